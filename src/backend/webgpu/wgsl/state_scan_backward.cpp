#include "backend/webgpu/wgsl/state_scan_backward.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "backend/webgpu/wgsl/loop.hpp"
#include "backend/webgpu/wgsl/routine_shader.hpp"

namespace weft::webgpu {
namespace {

using kernel::CallKernel;
using kernel::Operand;

constexpr Extent kBackThreads = 64;      // of a workgroup
constexpr Extent kBackStatesEach = 4;    // of a thread, in registers
constexpr Extent kBackStatesMax = 256;   // of a channel
constexpr Extent kBackStretch = 8;       // steps whose states workgroup memory has at once
constexpr Extent kTogether = 1 << 25;    // elements of scratch for sequences that run side by side
constexpr Extent kScratchMax = 1 << 28;  // ... for one sequence

/// Extents of a scan, how threads share its work, and the arrays in scratch memory.
struct BackwardSpace {
  BackwardSpace(const Shape& x, const Shape& a, const Shape& b)
      : batch(x[0]),
        steps(x[1]),
        heads(x[2]),
        width(x[3]),
        groups(b[2]),
        states(b[3]),
        shares_rate(a[1] == 1),
        each(std::min(states, kBackStatesEach)),
        parts(divide_up(std::max<Extent>(states, 1), std::max<Extent>(each, 1))),
        columns(kBackThreads / parts),
        in_group(heads / groups * width),
        blocks(divide_up(in_group, columns)),
        stretches(divide_up(steps, kBackStretch)) {}

  Extent channels() const { return heads * width; }
  /// Elements that a sequence needs: states between stretches, the gradient of dt of each channel, and those of b and c of each block.
  Extent kept_states() const { return stretches * channels() * states; }
  Extent dt_parts() const { return steps * channels(); }
  Extent group_parts() const { return steps * groups * blocks * states; }
  Extent of_sequence() const { return kept_states() + dt_parts() + 2 * group_parts(); }
  /// Elements of the gradients of a of each sequence.
  Extent rate_parts() const { return batch * channels() * states; }

  Extent batch, steps, heads, width, groups, states;
  bool shares_rate;
  Extent each, parts, columns;  // states of a thread, threads of a channel, channels of a workgroup
  Extent in_group, blocks;      // channels of a group, workgroups that share them
  Extent stretches;
};

/// The arrays of the sequences that run side by side, in one buffer.
struct BackwardArrays {
  Operand all, kept, dt, b, c, rates;
  Extent first_sequence = 0;  // of those whose gradients of a stand in `rates`
};

Operand piece(const Operand& of, Extent offset, Extent count) {
  return {of.buffer, of.type, of.offset + offset, count};
}

/// A workgroup has some channels of one group of a sequence; neighbouring threads have neighbouring states of a channel.
class BackwardScanShader : RoutineShader {
 public:
  BackwardScanShader(const CallKernel& kernel, const BackwardSpace& space, const BackwardArrays& arrays,
                     const Target& target)
      : RoutineShader(target, kernel.name), kernel_(kernel), e_(space), arrays_(arrays) {
    pieces.threads = static_cast<int>(kBackThreads);
  }

  RenderedDispatch keep_states() {
    read_scan();
    state_ = read(kernel_.reads[5]);
    scratch_ = write(arrays_.all);
    resolve();
    begin();
    each_state([&](const std::string& k) { line(fmt::format("state{} = {};", k, at(state_, "states + n" + k))); });
    line(fmt::format("for (var t = 0u; t <= {}u; t++) {{", (e_.stretches - 1) * kBackStretch));
    line(fmt::format("if (t % {}u == 0u && is_there) {{", kBackStretch));
    each_state([&](const std::string& k) {
      line(put(scratch_, kept_at(fmt::format("t / {}u", kBackStretch)) + " + n" + k, "state" + k));
    });
    line("}");
    step("t");
    each_state([&](const std::string& k) { next_state(k); });
    line("}");
    return dispatch(kernel_.name + ".states", e_.batch * e_.groups * e_.blocks);
  }

  RenderedDispatch go_back() {
    read_scan();
    c_ = read(kernel_.reads[4]);
    const int d_state = read(kernel_.reads[6]);
    d_y_ = read(kernel_.reads[7]);
    d_x_ = write(kernel_.outs[0]);
    const int first = write(kernel_.outs[5]);
    scratch_ = write(arrays_.all);
    resolve();
    pieces.share("states_of_stretch", "f32", kBackStretch * e_.each * kBackThreads);
    pieces.share("parts_of_b", "f32", e_.each * kBackThreads);
    pieces.share("parts_of_c", "f32", e_.each * kBackThreads);
    pieces.share("parts_of_moved", "f32", kBackThreads);
    pieces.share("parts_of_rate", "f32", kBackThreads);
    begin();
    for (Extent k = 0; k < e_.each; ++k) {
      line(fmt::format("var flow{} = 0f;", k));
      line(fmt::format("var of_rate{} = 0f;", k));
    }
    each_state([&](const std::string& k) {
      line(fmt::format("if (is_there) {{ flow{} = {}; }}", k, at(d_state, "states + n" + k)));
    });
    line(fmt::format("for (var stretch = {}u; stretch > 0u; stretch--) {{", e_.stretches));
    line(fmt::format("let first = (stretch - 1u) * {}u;", kBackStretch));
    line(fmt::format("let count = min({}u, {}u - first);", kBackStretch, e_.steps));
    states_again();
    line("for (var left = count; left > 0u; left--) {");
    line("let q = left - 1u;");
    step("first + q");
    back_step();
    line("}");
    line("}");
    line("if (is_there) {");
    each_state([&](const std::string& k) {
      line(put(first, "states + n" + k, "flow" + k));
      line(put(
          scratch_,
          fmt::format("{}u + (s * {}u + channel) * {}u + n{}",
                      arrays_.rates.offset - arrays_.all.offset + arrays_.first_sequence * e_.channels() * e_.states,
                      e_.channels(), e_.states, k),
          "of_rate" + k));
    });
    line("}");
    return dispatch(kernel_.name, e_.batch * e_.groups * e_.blocks);
  }

 private:
  void read_scan() {
    x_ = read(kernel_.reads[0]);
    dt_ = read(kernel_.reads[1]);
    a_ = read(kernel_.reads[2]);
    b_ = read(kernel_.reads[3]);
  }
  /// Statements for each state of the thread that there is.
  template <class Write>
  void each_state(Write write) {
    for (Extent k = 0; k < e_.each; ++k) {
      const bool is_full = e_.states % e_.each == 0;
      if (!is_full) line(fmt::format("if (n{} < {}u) {{", k, e_.states));
      write(std::to_string(k));
      if (!is_full) line("}");
    }
  }
  std::string in_scratch(const Operand& array) const { return fmt::format("{}u", array.offset - arrays_.all.offset); }
  std::string kept_at(const std::string& stretch) const {
    return fmt::format("{} + ((({}) * {}u + s) * {}u + channel) * {}u", in_scratch(arrays_.kept), stretch, e_.batch,
                       e_.channels(), e_.states);
  }

  void begin() {
    line(fmt::format("let block = {};", modulo("group", e_.blocks)));
    line(fmt::format("let of_groups = {};", divided("group", e_.blocks)));
    line(fmt::format("let shared_by = {};", modulo("of_groups", e_.groups)));
    line(fmt::format("let s = {};", divided("of_groups", e_.groups)));
    line(fmt::format("let part = {};", modulo("thread", e_.parts)));
    line(fmt::format("let column = block * {}u + {};", e_.columns, divided("thread", e_.parts)));
    line(fmt::format("let is_there = column < {}u && thread < {}u;", e_.in_group, e_.columns * e_.parts));
    line(fmt::format("let channel = shared_by * {0}u + min(column, {1}u);", e_.in_group, e_.in_group - 1));
    line(fmt::format("let head = {};", divided("channel", e_.width)));
    line(fmt::format("let states = (s * {}u + channel) * {}u;", e_.channels(), e_.states));
    for (Extent k = 0; k < e_.each; ++k) {
      line(fmt::format("let n{0} = part * {1}u + {0}u;", k, e_.each));
      line(fmt::format("var state{} = 0f;", k));
      line(fmt::format("var rate{} = 0f;", k));
    }
    each_state([&](const std::string& k) {
      line(fmt::format("rate{} = {};", k,
                       at(a_, e_.shares_rate ? "head" : fmt::format("head * {}u + n{}", e_.states, k))));
    });
  }
  /// Declares what step `t` of the sequence has for the thread's channel.
  void step(const std::string& t) {
    line(fmt::format("let step = s * {}u + {};", e_.steps, t));
    line(fmt::format("let dt = {};", at(dt_, fmt::format("step * {}u + head", e_.heads))));
    line(fmt::format("let x = {};", at(x_, fmt::format("step * {}u + channel", e_.channels()))));
    line("let moved = dt * x;");
    line(fmt::format("let shared_at = (step * {}u + shared_by) * {}u;", e_.groups, e_.states));
  }
  std::string kept(const std::string& k) { return fmt::format("{}(dt * rate{})", pieces.helpers.use("exp_f32"), k); }
  void next_state(const std::string& k) {
    line(fmt::format("state{0} = state{0} * {1} + moved * {2};", k, kept(k), at(b_, "shared_at + n" + k)));
  }

  /// The states before each step of a stretch.
  void states_again() {
    each_state([&](const std::string& k) {
      line(fmt::format("state{} = {};", k, at(scratch_, kept_at("stretch - 1u") + " + n" + k)));
    });
    line("for (var q = 0u; q < count; q++) {");
    step("first + q");
    each_state([&](const std::string& k) {
      line(fmt::format("{} = state{};", state_of_step(k), k));
      next_state(k);
    });
    line("}");
  }
  std::string state_of_step(const std::string& k) const {
    return fmt::format("$states_of_stretch[(q * {}u + {}u) * {}u + thread]", e_.each, k, kBackThreads);
  }

  /// One step back: g is the gradient of the states after it.
  void back_step() {
    line(fmt::format("let d_y = {};", at(d_y_, fmt::format("step * {}u + channel", e_.channels()))));
    line("var to_moved = 0f;");
    line("var to_rate = 0f;");
    each_state([&](const std::string& k) {
      line("{");
      line(fmt::format("  let b = {};", at(b_, "shared_at + n" + k)));
      line(fmt::format("  let g = flow{} + d_y * {};", k, at(c_, "shared_at + n" + k)));
      line(fmt::format("  let before = {};", state_of_step(k)));
      line(fmt::format("  let kept = {};", kept(k)));
      line("  let to_kept = g * before * kept;");
      const std::string place = fmt::format("[{}u * {}u + thread]", k, kBackThreads);
      line("  $parts_of_b" + place + " = select(0f, g * moved, is_there);");
      line("  $parts_of_c" + place + " = select(0f, d_y * (before * kept + moved * b), is_there);");
      line("  to_moved += g * b;");
      line(fmt::format("  to_rate += to_kept * rate{};", k));
      line(fmt::format("  of_rate{} += to_kept * dt;", k));
      line(fmt::format("  flow{} = g * kept;", k));
      line("}");
    });
    line("$parts_of_moved[thread] = to_moved;");
    line("$parts_of_rate[thread] = to_rate;");
    line("workgroupBarrier();");
    // The first thread of a channel adds up its states.
    line("if (is_there && part == 0u) {");
    line("  var of_moved = 0f;");
    line("  var of_dt = 0f;");
    line(fmt::format("  for (var p = 0u; p < {}u; p++) {{", e_.parts));
    line("    of_moved += $parts_of_moved[thread + p];");
    line("    of_dt += $parts_of_rate[thread + p];");
    line("  }");
    line("  " + put(d_x_, fmt::format("step * {}u + channel", e_.channels()), "of_moved * dt"));
    line("  " + put(scratch_, fmt::format("{} + step * {}u + channel", in_scratch(arrays_.dt), e_.channels()),
                    "of_moved * x + of_dt"));
    line("}");
    // Each thread adds up some states of all channels.
    line(fmt::format("for (var n = thread; n < {}u; n += {}u) {{", e_.states, kBackThreads));
    line(fmt::format("  let begin = {} * {}u + {};", modulo("n", e_.each), kBackThreads, divided("n", e_.each)));
    line("  var of_b = 0f;");
    line("  var of_c = 0f;");
    line(fmt::format("  for (var i = 0u; i < {}u; i++) {{", e_.columns));
    line(fmt::format("    of_b += $parts_of_b[begin + i * {}u];", e_.parts));
    line(fmt::format("    of_c += $parts_of_c[begin + i * {}u];", e_.parts));
    line("  }");
    line(
        fmt::format("  let to = ((step * {}u + shared_by) * {}u + block) * {}u + n;", e_.groups, e_.blocks, e_.states));
    line("  " + put(scratch_, in_scratch(arrays_.b) + " + to", "of_b"));
    line("  " + put(scratch_, in_scratch(arrays_.c) + " + to", "of_c"));
    line("}");
    line("workgroupBarrier();");
  }

  const CallKernel& kernel_;
  const BackwardSpace& e_;
  const BackwardArrays& arrays_;
  int x_ = -1, dt_ = -1, a_ = -1, b_ = -1, c_ = -1, state_ = -1, d_y_ = -1, d_x_ = -1, scratch_ = -1;
};

/// Appends sums of `from` over inner extents: `view` is over the elements of `to`, then those.
void add_up(std::string name, const Operand& from, kernel::View view, const Operand& to, const Target& target,
            Scratch& scratch, Rendered& rendered) {
  kernel::LoopKernel sum;
  sum.name = std::move(name);
  sum.outer = to.count;
  sum.inner = 1;
  for (const Extent extent : view.extents) sum.inner *= extent;
  sum.inner /= to.count;
  sum.inputs = {from};
  sum.outputs = {to};
  kernel::Step load{kernel::StepKind::load, DType::f32, kernel::Level::inner};
  load.operand = 0;
  load.view = std::move(view);
  kernel::Step reduce{kernel::StepKind::reduce, DType::f32, kernel::Level::outer};
  reduce.reduction = scalar::Reduction::sum;
  reduce.a = 0;
  sum.steps = {load, reduce};
  sum.stores = {{1, 0, {{to.count}, {1}, 0, {}}}};
  const std::size_t first = rendered.dispatches.size();
  render(sum, target, scratch, rendered);
  rendered.set_aside(first);
}

/// The call for `count` sequences from `first` on.
CallKernel narrowed(const CallKernel& kernel, Extent first, Extent count) {
  CallKernel part = kernel;
  const auto narrow = [&](Operand& operand, Shape& shape) {
    const Extent each = operand.count / shape[0];
    operand = piece(operand, first * each, count * each);
    shape[0] = count;
  };
  for (const std::size_t i : {0u, 1u, 3u, 4u, 5u, 6u, 7u}) narrow(part.reads[i], part.shapes[i]);
  for (const std::size_t i : {0u, 1u, 3u, 4u, 5u}) narrow(part.outs[i], part.out_shapes[i]);
  return part;
}

}  // namespace

bool accepts_state_scan_backward(const graph::Call& call) {
  const Tensor &x = call.input(0), &a = call.input(2), &b = call.input(3);
  if (x.dtype() != DType::f32 || x.numel() == 0 || b.numel() == 0 || b.dim(3) > kBackStatesMax) return false;
  const BackwardSpace e(x.shape(), a.shape(), b.shape());
  return e.of_sequence() <= kScratchMax && e.rate_parts() <= kScratchMax && x.numel() <= UINT32_MAX &&
         b.numel() <= UINT32_MAX;
}

void render_state_scan_backward(const CallKernel& kernel, const Target& target, Scratch& scratch, Rendered& rendered) {
  const BackwardSpace e(kernel.shapes[0], kernel.shapes[2], kernel.shapes[3]);
  // All arrays are one binding.
  const std::uint64_t binding = target.limits.binding_bytes / 4;
  const Extent room = binding == 0 ? kTogether : std::min(kTogether, static_cast<Extent>(binding) - e.rate_parts());
  const Extent together = std::clamp<Extent>(room / e.of_sequence(), 1, e.batch);
  BackwardArrays arrays;
  arrays.all = scratch.add(DType::f32, e.rate_parts() + together * e.of_sequence());
  arrays.rates = piece(arrays.all, 0, e.rate_parts());
  for (Extent first = 0; first < e.batch; first += together) {
    const Extent count = std::min(together, e.batch - first);
    const CallKernel part = narrowed(kernel, first, count);
    const BackwardSpace space(part.shapes[0], part.shapes[2], part.shapes[3]);
    Extent at = e.rate_parts();
    const auto next = [&](Extent elements) {
      at += elements;
      return piece(arrays.all, at - elements, elements);
    };
    arrays.kept = next(count * e.kept_states());
    arrays.dt = next(count * e.dt_parts());
    arrays.b = next(count * e.group_parts());
    arrays.c = next(count * e.group_parts());
    arrays.first_sequence = first;
    rendered.dispatches.push_back(BackwardScanShader(part, space, arrays, target).keep_states());
    rendered.dispatches.push_back(BackwardScanShader(part, space, arrays, target).go_back());
    add_up(kernel.name + ".dt", arrays.dt, {{part.outs[1].count, e.width}, {e.width, 1}, 0, {}}, part.outs[1], target,
           scratch, rendered);
    const Extent rows = count * e.steps * e.groups;
    const kernel::View of_groups{{rows, e.states, e.blocks}, {e.blocks * e.states, 1, e.states}, 0, {}};
    add_up(kernel.name + ".b", arrays.b, of_groups, part.outs[3], target, scratch, rendered);
    add_up(kernel.name + ".c", arrays.c, of_groups, part.outs[4], target, scratch, rendered);
  }
  const Extent head = e.width * e.states, sequence = e.heads * head;
  const kernel::View of_rates =
      e.shares_rate ? kernel::View{{e.heads, e.batch, head}, {head, sequence, 1}, 0, {}}
                    : kernel::View{{e.heads, e.states, e.batch, e.width}, {head, 1, sequence, e.states}, 0, {}};
  add_up(kernel.name + ".a", arrays.rates, of_rates, kernel.outs[2], target, scratch, rendered);
}

}  // namespace weft::webgpu
