#include "backend/webgpu/wgsl/state_scan.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "backend/webgpu/wgsl/state_writer.hpp"
#include "compile/call_attributes.hpp"
#include "graph/state_scan.hpp"

namespace weft::webgpu {
namespace {

using kernel::CallKernel;
using kernel::Operand;

constexpr Extent kScanThreads = 64;  // of a workgroup
constexpr Extent kStatesEach = 16;   // of a thread, in registers
constexpr Extent kStatesMax = 256;   // of a channel
constexpr Extent kShortText = 8;     // steps that a thread of a convolution takes one after another, with the state

/// A thread has some states of a channel for all steps; as many threads as a channel needs are neighbours. The workgroup's
/// channels belong to one group, so they read the same b and c, which a stretch of steps finds in workgroup memory. Parts of y are
/// summed once a stretch.
class StateScanWriter : SequenceScanWriter {
 public:
  StateScanWriter(const CallKernel& kernel, const Target& target, bool cached)
      : SequenceScanWriter(kernel, target, cached),
        batch_(kernel.shapes[0][0]),
        steps_(kernel.shapes[0][1]),
        heads_(kernel.shapes[0][2]),
        width_(kernel.shapes[0][3]),
        groups_(kernel.shapes[3][2]),
        states_(kernel.shapes[3][3]),
        shares_rate_(kernel.shapes[2][1] == 1),
        each_(std::min(states_, kStatesEach)),
        parts_(divide_up(states_, each_)),
        columns_(kScanThreads / parts_),
        padded_(parts_ * each_),
        stretch_(std::min<Extent>(steps_, padded_ > 128 ? 4 : 8)),
        in_group_(heads_ / groups_ * width_) {}

  RenderedDispatch write() {
    bind_scan();
    shader_.threads = kScanThreads;
    shader_.share("b_of_steps", "f32", stretch_ * padded_);
    shader_.share("c_of_steps", "f32", stretch_ * padded_);
    shader_.share("parts", "f32", stretch_ * kScanThreads);
    body();
    const Extent blocks = divide_up(in_group_, columns_);
    shader_.body = std::move(text_);
    return dispatch_of(kernel_.name, std::move(shader_), bindings_,
                       static_cast<std::uint64_t>(batch_ * groups_ * blocks), target_);
  }

 private:
  void body() {
    const Extent blocks = divide_up(in_group_, columns_);
    line(fmt::format("let block = {};", modulo("group", blocks)));
    line(fmt::format("let of_groups = {};", divided("group", blocks)));
    line(fmt::format("let shared_by = {};", modulo("of_groups", groups_)));
    line(fmt::format("let s = {};", divided("of_groups", groups_)));
    line(fmt::format("let part = {};", modulo("thread", parts_)));
    line(fmt::format("let column = block * {}u + {};", columns_, divided("thread", parts_)));
    line(fmt::format("let is_there = column < {}u && thread < {}u;", in_group_, columns_ * parts_));
    line(fmt::format("let channel = shared_by * {0}u + min(column, {1}u);", in_group_, in_group_ - 1));
    line(fmt::format("let head = {};", divided("channel", width_)));
    declare_row(kScanState);
    line(fmt::format("let states = (slot * {}u + channel) * {}u;", heads_ * width_, states_));
    line(fmt::format("var state: array<f32, {}>;", each_));
    if (shares_rate_)
      line(fmt::format("let rate = {};", load(reads_[2], "head")));
    else
      line(fmt::format("var rate: array<f32, {}>;", each_));
    line(fmt::format("for (var k = 0u; k < {}u; k++) {{", each_));
    line(fmt::format("  let n = part * {}u + k;", each_));
    line(fmt::format("  if (n < {}u) {{", states_));
    line(fmt::format("    if (has_state) {{ state[k] = {}; }}", load(state_, "states + n")));
    if (!shares_rate_) line(fmt::format("    rate[k] = {};", load(reads_[2], fmt::format("head * {}u + n", states_))));
    line("  }");
    line("}");
    line(fmt::format("for (var first = 0u; first < {}u; first += {}u) {{", steps_, stretch_));
    stage({steps_, groups_, states_, padded_, stretch_, kScanThreads},
          {{"b_of_steps", reads_[3]}, {"c_of_steps", reads_[4]}});
    line("  workgroupBarrier();");
    line(fmt::format("  let count = min({}u, {}u - first);", stretch_, steps_));
    line("  for (var q = 0u; q < count; q++) {");
    line(fmt::format("    let step = s * {}u + first + q;", steps_));
    line(fmt::format("    let dt = {};", load(reads_[1], fmt::format("step * {}u + head", heads_))));
    line(
        fmt::format("    let moved = dt * {};", load(reads_[0], fmt::format("step * {}u + channel", heads_ * width_))));
    const std::string_view exp = shader_.helpers.use("exp_f32");
    if (shares_rate_) line(fmt::format("    let kept = {}(dt * rate);", exp));
    line("    var sum = 0f;");
    line(fmt::format("    for (var k = 0u; k < {}u; k++) {{", each_));
    line(fmt::format("      let n = q * {}u + part * {}u + k;", padded_, each_));
    const std::string kept = shares_rate_ ? "kept" : fmt::format("{}(dt * rate[k])", exp);
    line(fmt::format("      let next = state[k] * {} + moved * $b_of_steps[n];", kept));
    line("      sum += next * $c_of_steps[n];");
    line("      state[k] = next;");
    line("    }");
    line(fmt::format("    $parts[q * {}u + thread] = sum;", kScanThreads));
    line("  }");
    line("  workgroupBarrier();");
    add_parts();
    line("}");
    line("if (is_there && has_row) {");
    line(fmt::format("  for (var k = 0u; k < {}u; k++) {{", each_));
    line(fmt::format("    let n = part * {}u + k;", each_));
    line(fmt::format("    if (n < {}u) {{ {} }}", states_, store(after_, "states + n", "state[k]")));
    line("  }");
    line("}");
  }

  void add_parts() {
    line(fmt::format("  for (var i = thread; i < count * {}u; i += {}u) {{", columns_, kScanThreads));
    line(fmt::format("    let q = {};", divided("i", columns_)));
    line(fmt::format("    let place = {};", modulo("i", columns_)));
    line(fmt::format("    let to = block * {}u + place;", columns_));
    line("    var y = 0f;");
    line(fmt::format("    for (var p = 0u; p < {0}u; p++) {{ y += $parts[q * {1}u + place * {0}u + p]; }}", parts_,
                     kScanThreads));
    line(fmt::format(
        "    if (to < {}u) {{ {} }}", in_group_,
        store(y_, fmt::format("(s * {}u + first + q) * {}u + shared_by * {}u + to", steps_, heads_ * width_, in_group_),
              "y")));
    line("  }");
  }

  const Extent batch_, steps_, heads_, width_, groups_, states_;
  const bool shares_rate_;
  const Extent each_, parts_, columns_;  // states of a thread, threads of a channel, channels of a workgroup
  const Extent padded_, stretch_, in_group_;
  ShaderPieces shader_;
};

/// A thread has one channel of one sequence. A short text is one dispatch: the state is read before it is written. A long one has
/// a thread for every step, and the state follows in another dispatch.
class StateConvolutionWriter : StateWriter {
 public:
  enum class Part { both, outputs, state };
  StateConvolutionWriter(const CallKernel& kernel, const Target& target, bool cached, Part part)
      : StateWriter(kernel, target, cached),
        part_(part),
        batch_(kernel.shapes[0][0]),
        steps_(kernel.shapes[0][1]),
        width_(kernel.shapes[0][2]),
        size_(kernel.shapes[1][1]) {}

  RenderedDispatch write() {
    const bool in_place = kernel_.outs[0] == kernel_.reads[3];
    x_ = bindings_.add(kernel_.reads[0], false);
    if (part_ != Part::state) {
      weight_ = bindings_.add(kernel_.reads[1], false);
      bias_ = bindings_.add(kernel_.reads[2], false);
      y_ = bindings_.add(kernel_.outs[1], true);
      bindings_.forbid_vectors(y_);
    }
    const bool reads_after = in_place || cached_;
    if (part_ != Part::outputs || reads_after) {
      after_ = bindings_.add(kernel_.outs[0], part_ != Part::outputs);
      bindings_.forbid_vectors(after_);
    }
    before_ = reads_after ? after_ : bindings_.add(kernel_.reads[3], false);
    bind_rows(3);
    if (cached_) count_ = bindings_.add(kernel_.reads[6], false);
    bindings_.resolve();
    body();
    ShaderPieces shader{.threads = static_cast<int>(kScanThreads)};
    shader.body = std::move(text_);
    return dispatch_of(kernel_.name + (part_ == Part::state ? ".state" : ""), std::move(shader), bindings_,
                       static_cast<std::uint64_t>(divide_up(threads(), kScanThreads)), target_);
  }

 private:
  Extent kept() const { return size_ - 1; }
  Extent threads() const { return batch_ * width_ * (part_ == Part::outputs ? steps_ : 1); }

  /// Input `i` of the sequence, counted from the first one of the state.
  void declare_input(const std::string& indent, const std::string& i) {
    line(fmt::format("{}var input = 0f;", indent));
    line(fmt::format("{}if ({} >= {}u) {{", indent, i, kept()));
    line(fmt::format("{}  input = {};", indent,
                     load(x_, fmt::format("(s * {}u + {} - {}u) * {}u + channel", steps_, i, kept(), width_))));
    if (kept() > 0) {
      line(fmt::format("{}}} else if (has_state) {{", indent));
      line(fmt::format("{}  input = {};", indent,
                       load(before_, fmt::format("(slot * {}u + {}) * {}u + channel", kept(), i, width_))));
    }
    line(indent + "}");
  }

  void body() {
    line(fmt::format("let number = group * {}u + thread;", kScanThreads));
    line(fmt::format("if (number >= {}u) {{ return; }}", threads()));
    line(fmt::format("let channel = {};", modulo("number", width_)));
    line(fmt::format("let rest = {};", divided("number", width_)));
    if (part_ == Part::outputs) {
      line(fmt::format("let s = {};", divided("rest", steps_)));
      line(fmt::format("let first = {};", modulo("rest", steps_)));
    } else {
      line("let s = rest;");
      line("let first = 0u;");
    }
    declare_row(3);
    line(cached_ ? fmt::format("let counted = u32(clamp({}, 0, {}));", load(count_, "0u"), steps_)
                 : fmt::format("let counted = {}u;", steps_));
    if (part_ != Part::state) outputs();
    if (part_ != Part::outputs && kept() > 0) state();
  }
  void outputs() {
    line(fmt::format("for (var t = first; t < first + {}u; t++) {{", part_ == Part::outputs ? 1 : steps_));
    line("  var y = " + load(bias_, "channel") + ";");
    line(fmt::format("  for (var k = 0u; k < {}u; k++) {{", size_));
    declare_input("    ", "(t + k)");
    line(fmt::format("    y += input * {};", load(weight_, fmt::format("channel * {}u + k", size_))));
    line("  }");
    line("  " + store(y_, fmt::format("(s * {}u + t) * {}u + channel", steps_, width_), "y"));
    line("}");
  }
  void state() {
    line("if (has_row) {");
    line(fmt::format("  var last: array<f32, {}>;", kept()));
    line(fmt::format("  for (var k = 0u; k < {}u; k++) {{", kept()));
    declare_input("    ", "(counted + k)");
    line("    last[k] = input;");
    line("  }");
    line(fmt::format("  for (var k = 0u; k < {}u; k++) {{", kept()));
    line("    " + store(after_, fmt::format("(slot * {}u + k) * {}u + channel", kept(), width_), "last[k]"));
    line("  }");
    line("}");
  }

  const Part part_;
  const Extent batch_, steps_, width_, size_;
  int x_ = 0, weight_ = 0, bias_ = 0, before_ = 0, after_ = 0, y_ = 0, count_ = 0;
};

}  // namespace

bool accepts_state_scan(const graph::Call& call) {
  return call.input(0).dtype() == DType::f32 && call.input(3).dim(3) <= kStatesMax;
}

void render_state_scan(const CallKernel& kernel, const Target& target, Scratch& scratch, Rendered& rendered) {
  const bool cached = kernel::attributes_of<graph::StateScanAttributes>(kernel).cached;
  if (cached) copy_cache(kernel, kScanState, target, scratch, rendered);
  if (kernel.shapes[0].numel() == 0 || kernel.shapes[3].numel() == 0) return;
  rendered.dispatches.push_back(StateScanWriter(kernel, target, cached).write());
}

void render_state_convolution(const CallKernel& kernel, const Target& target, Scratch& scratch, Rendered& rendered) {
  using Part = StateConvolutionWriter::Part;
  const bool cached = kernel::attributes_of<graph::StateConvolutionAttributes>(kernel).cached;
  if (cached) copy_cache(kernel, 3, target, scratch, rendered);
  if (kernel.shapes[0].numel() == 0) return;
  if (kernel.shapes[0][1] <= kShortText) {
    rendered.dispatches.push_back(StateConvolutionWriter(kernel, target, cached, Part::both).write());
    return;
  }
  rendered.dispatches.push_back(StateConvolutionWriter(kernel, target, cached, Part::outputs).write());
  if (kernel.shapes[1][1] > 1)
    rendered.dispatches.push_back(StateConvolutionWriter(kernel, target, cached, Part::state).write());
}

}  // namespace weft::webgpu
