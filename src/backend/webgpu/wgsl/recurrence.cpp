#include "backend/webgpu/wgsl/recurrence.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "backend/webgpu/wgsl/cache.hpp"
#include "backend/webgpu/wgsl/loop.hpp"
#include "backend/webgpu/wgsl/recurrence_steps.hpp"
#include "compile/call_attributes.hpp"
#include "graph/recurrence.hpp"

namespace weft::webgpu {
namespace {

using graph::RecurrenceAttributes;
using graph::RecurrentCell;
using kernel::CallKernel;
using kernel::Operand;

/// What both directions share: the extents, the operands one after another, and elements of arrays [T, N, columns].
class CellWriter {
 protected:
  CellWriter(const CallKernel& kernel, const Target& target, const Shape& states)
      : kernel_(kernel),
        target_(target),
        a_(kernel::attributes_of<RecurrenceAttributes>(kernel)),
        steps_(states[0]),
        sequences_(states[1]),
        width_(states[2]),
        gates_(graph::gates_of(a_.cell)),
        bindings_(target, kernel.name) {}

  bool is_lstm() const { return a_.cell == RecurrentCell::lstm; }
  bool is_gru() const { return a_.cell == RecurrentCell::gru; }
  /// The handle of the next operand; -1 if it is not given.
  int next(bool given = true) { return given ? bindings_.add(kernel_.reads[at_++], false) : -1; }
  /// The same for one that is given and may not be needed.
  int next_if(bool needed) { return needed ? next() : (++at_, -1); }
  int result(std::size_t number) {
    const int handle = bindings_.add(kernel_.outs[number], true);
    bindings_.forbid_vectors(handle);
    return handle;
  }
  std::string load(int handle, const std::string& index) const {
    return bindings_.load(handle, fmt::format("{} + {}u", index, bindings_.base(handle)));
  }
  std::string store(int handle, const std::string& index, const std::string& value) const {
    return bindings_.store(handle, fmt::format("{} + {}u", index, bindings_.base(handle)), value);
  }
  /// Index text of row n of a step in an array with rows of `columns`.
  std::string row_at(const std::string& step, Extent columns) const {
    return fmt::format("({} * {}u + n) * {}u", step, sequences_, columns);
  }
  void line(const std::string& text) { text_ += "      " + text + "\n"; }
  std::string sigmoid(const std::string& x) {
    return fmt::format("(1f / (1f + {}(-({}))))", shader_.helpers.use("exp_f32"), x);
  }
  std::string tanh(const std::string& x) { return fmt::format("{}({})", shader_.helpers.use("tanh_f32"), x); }
  /// Declares `has`: whether the sequence has step t.
  void declare_has() {
    line(a_.lengths ? fmt::format("let has = i32(t) < {};", load(lengths_, "n")) : "let has = true;");
  }

  CallKernel kernel_;
  const Target& target_;
  const RecurrenceAttributes a_;
  const Extent steps_, sequences_, width_, gates_;
  Bindings bindings_;
  std::size_t at_ = 0;
  int lengths_ = -1;
  ShaderPieces shader_;
  std::string text_;
};

class ForwardWriter : CellWriter {
 public:
  ForwardWriter(const CallKernel& kernel, const Target& target) : CellWriter(kernel, target, kernel.out_shapes[0]) {}

  void render(Scratch& scratch, Rendered& rendered) {
    const StepProduct product{.rows = sequences_, .units = width_, .inner = width_, .columns = gates_};
    const RecurrenceSteps steps = choose_steps(product, steps_, has_whole_lines(kernel_.outs[0], sequences_ * width_),
                                               kernel_.reads.size() + kernel_.outs.size(), target_);
    x_ = next();
    h_ = next();
    c_ = next(is_lstm());
    weight_ = next();
    bias_ = next(a_.bias);
    lengths_ = next(a_.lengths);
    all_h_ = result(0);
    all_c_ = is_lstm() ? result(1) : -1;
    saved_ = is_lstm() || is_gru() ? result(kernel_.outs.size() - 1) : -1;
    if (width_ % 4 == 0) bindings_.want_vectors(weight_);
    const StepDispatch dispatch(steps, target_, bindings_, scratch);
    bindings_.resolve();

    const StepProductWriter writer(product, steps.tile);
    writer.share(shader_);
    text_ = writer.declare_tile();
    line(a_.reverse ? fmt::format("let t = {}u - i;", steps_ - 1) : "let t = i;");
    line(a_.reverse ? "let before = t + 1u;" : "let before = t - 1u;");
    StepProductWriter::Source source{
        .first = [&](const auto& n, const auto& k) { return load(h_, fmt::format("{} * {}u + {}", n, width_, k)); },
        .later = [&](const auto&, const auto& k) { return load(all_h_, row_at("before", width_) + " + " + k); },
        .is_first = "i == 0u",
        .weight = [&](const auto& row,
                      const auto& k) { return load(weight_, fmt::format("{} * {}u + {}", row, width_, k)); },
        .weight_row = [&](const auto& unit,
                          const auto& column) { return fmt::format("{} * {}u + {}", column, width_, unit); },
        .stages_weights = dispatch.stages_weights(0)};
    if (bindings_.has_vectors(weight_) && bindings_.base(weight_) % 4 == 0)
      source.four_weights = [&](const auto& row, const auto& k) {
        return bindings_.load_vector(weight_,
                                     fmt::format("{} * {}u + {} + {}u", row, width_, k, bindings_.base(weight_)));
      };
    text_ += writer.compute(source);
    text_ += writer.begin_results() + writer.sums("true");
    cell();
    text_ += writer.end_results();
    dispatch.render(kernel_.name, std::move(shader_), text_, scratch, rendered);
  }

 private:
  /// The first state of an operand, or the state after the step before.
  void declare_before(const std::string& name, int first, int all) {
    line(fmt::format("var {}: f32;", name));
    line(fmt::format("if (i == 0u) {{ {} = {}; }} else {{ {} = {}; }}", name,
                     load(first, fmt::format("n * {}u + u", width_)), name,
                     load(all, row_at("before", width_) + " + u")));
  }

  void cell() {
    declare_has();
    for (Extent g = 0; g < gates_; ++g)
      line(fmt::format("let x{0} = {1};", g,
                       load(x_, fmt::format("{} + {}u + u", row_at("t", gates_ * width_), g * width_))));
    if (a_.bias)
      for (Extent g = 0; g < gates_; ++g)
        line(fmt::format("sum{} += {};", g, load(bias_, fmt::format("{}u + u", g * width_))));
    const bool needs_h = is_gru() || a_.lengths;
    if (needs_h) declare_before("h_before", h_, all_h_);
    if (is_lstm()) {
      declare_before("c_before", c_, all_c_);
      line(fmt::format("let g0 = {};", sigmoid("x0 + sum0")));
      line(fmt::format("let g1 = {};", sigmoid("x1 + sum1")));
      line(fmt::format("let g2 = {};", tanh("x2 + sum2")));
      line(fmt::format("let g3 = {};", sigmoid("x3 + sum3")));
      line("let c = g1 * c_before + g0 * g2;");
      line(fmt::format("let h = g3 * {};", tanh("c")));
      line(store(all_c_, row_at("t", width_) + " + u", "select(c_before, c, has)"));
    } else if (is_gru()) {
      line(fmt::format("let g0 = {};", sigmoid("x0 + sum0")));
      line(fmt::format("let g1 = {};", sigmoid("x1 + sum1")));
      line("let g3 = sum2;");
      line(fmt::format("let g2 = {};", tanh("x2 + g0 * g3")));
      line("let h = g2 + g1 * (h_before - g2);");
    } else {
      line("let sum = x0 + sum0;");
      line(fmt::format("let h = {};", a_.cell == RecurrentCell::rnn ? tanh("sum") : "select(sum, 0f, sum <= 0f)"));
    }
    line(store(all_h_, row_at("t", width_) + " + u", needs_h ? "select(h_before, h, has)" : "h"));
    if (saved_ < 0) return;
    for (Extent g = 0; g < 4; ++g)
      line(store(saved_, fmt::format("{} + {}u + u", row_at("t", 4 * width_), g * width_),
                 fmt::format("select(0f, g{}, has)", g)));
  }

  int x_ = -1, h_ = -1, c_ = -1, weight_ = -1, bias_ = -1, all_h_ = -1, all_c_ = -1, saved_ = -1;
};

/// Steps are counted from the last one of the forward pass. What passes by the cell to the step before it, and the gradient of c, are
/// kept in the results that have them after the first step; one more turn adds the product to the former.
class BackwardWriter : CellWriter {
 public:
  BackwardWriter(const CallKernel& kernel, const Target& target) : CellWriter(kernel, target, kernel.shapes[0]) {}

  void render(Scratch& scratch, Rendered& rendered) {
    const Extent rows = gates_ * width_;
    const StepProduct product{.rows = sequences_, .units = width_, .inner = rows, .columns = 1};
    const std::size_t products = is_gru() ? 2 : 0;  // the result with the gradient of the products
    const Extent unused = is_lstm() ? 2 : is_gru() ? 0 : 1;
    const auto operands = kernel_.reads.size() + kernel_.outs.size() - static_cast<std::size_t>(unused);
    if (operands > target_.limits.storage_buffers) join_operands(scratch, rendered);
    const RecurrenceSteps steps = choose_steps(
        product, steps_ + 1, has_whole_lines(kernel_.outs[products], sequences_ * rows), operands, target_);
    bind(transposed_weight(scratch, rendered));
    const StepDispatch dispatch(steps, target_, bindings_, scratch);
    bindings_.resolve();

    const StepProductWriter writer(product, steps.tile);
    writer.share(shader_);
    text_ = writer.declare_tile();
    // The forward pass has computed step `later` after step t, and `before` in front of it.
    line(a_.reverse ? "let t = i;" : fmt::format("let t = {}u - i;", steps_ - 1));
    line(a_.reverse ? "let later = t - 1u;" : "let later = t + 1u;");
    line(a_.reverse ? "let before = t + 1u;" : "let before = t - 1u;");
    const int from = is_gru() ? d_products_ : d_gates_;
    StepProductWriter::Source source{
        .first = {},
        .later = [&](const auto&, const auto& k) { return load(from, row_at("later", rows) + " + " + k); },
        .is_first = "",
        .weight = [&](const auto& row,
                      const auto& k) { return load(weight_, fmt::format("{} * {}u + {}", row, rows, k)); },
        .weight_row = [](const auto& unit, const auto&) { return unit; },
        .stages_weights = dispatch.stages_weights(1)};
    if (bindings_.has_vectors(weight_) && bindings_.base(weight_) % 4 == 0)
      source.four_weights = [&](const auto& row, const auto& k) {
        return bindings_.load_vector(weight_,
                                     fmt::format("{} * {}u + {} + {}u", row, rows, k, bindings_.base(weight_)));
      };
    text_ += "    if (i > 0u) {\n" + writer.compute(source) + "    }\n";
    text_ += writer.begin_results() + writer.sums("i > 0u");
    cell();
    text_ += writer.end_results();
    dispatch.render(kernel_.name, std::move(shader_), text_, scratch, rendered);
  }

 private:
  /// Copies the first states and the given gradients into one buffer, for devices that bind few: there they share a binding.
  void join_operands(Scratch& scratch, Rendered& rendered) {
    std::vector<std::size_t> places{is_lstm() ? std::size_t{4} : std::size_t{2}};
    for (std::size_t i = weight_place() + 1 + (a_.lengths ? 1 : 0); i < kernel_.reads.size(); ++i) places.push_back(i);
    Extent count = 0;
    for (const std::size_t place : places) count += kernel_.reads[place].count;
    Operand to = scratch.add(DType::f32, count);
    const std::size_t first = rendered.dispatches.size();
    for (const std::size_t place : places) {
      to.count = kernel_.reads[place].count;
      render_copy(kernel_.reads[place], to, target_, scratch, rendered);
      kernel_.reads[place] = to;
      to.offset += to.count;
    }
    rendered.set_aside(first);
  }

  std::size_t weight_place() const { return is_lstm() ? 5 : is_gru() ? 3 : 2; }
  Operand transposed_weight(Scratch& scratch, Rendered& rendered) {
    const Operand weight = kernel_.reads[weight_place()], turned = scratch.add(DType::f32, weight.count);
    const Extent rows = gates_ * width_;
    kernel::LoopKernel loop;
    loop.name = kernel_.name + ".weight";
    loop.outer = weight.count;
    loop.inputs = {weight};
    loop.outputs = {turned};
    kernel::Step load{kernel::StepKind::load, DType::f32, kernel::Level::outer};
    load.operand = 0;
    load.view = {{width_, rows}, {1, width_}, 0, {}};
    loop.steps = {load};
    loop.stores = {{0, 0, {{weight.count}, {1}, 0, {}}}};
    const std::size_t first = rendered.dispatches.size();
    webgpu::render(loop, target_, scratch, rendered);
    rendered.set_aside(first);
    return turned;
  }

  void bind(const Operand& weight) {
    all_h_ = next_if(!is_lstm());
    all_c_ = next(is_lstm());
    saved_ = next(is_lstm() || is_gru());
    h_ = next_if(is_gru());
    c_ = next(is_lstm());
    next_if(false);  // the weight as it is
    weight_ = bindings_.add(weight, false);
    if (width_ * gates_ % 4 == 0) bindings_.want_vectors(weight_);
    lengths_ = next(a_.lengths);
    d_h_ = next();
    d_c_ = next(a_.d_c);
    d_gates_ = result(0);
    first_d_h_ = result(1);
    if (is_gru()) d_products_ = result(2);
    if (is_lstm()) first_d_c_ = result(2);
  }

  std::string saved(Extent gate) const {
    return load(saved_, fmt::format("{} + {}u + u", row_at("t", 4 * width_), gate * width_));
  }
  std::string state_before(const std::string& name, int first, int all) const {
    return fmt::format("var {0}: f32;\n      if (i == {1}u) {{ {0} = {2}; }} else {{ {0} = {3}; }}", name, steps_ - 1,
                       load(first, fmt::format("n * {}u + u", width_)), load(all, row_at("before", width_) + " + u"));
  }
  void store_gates(int handle, std::initializer_list<const char*> values) {
    Extent g = 0;
    for (const char* value : values)
      line(store(handle, fmt::format("{} + {}u + u", row_at("t", gates_ * width_), g++ * width_),
                 fmt::format("select(0f, {}, has)", value)));
  }

  void cell() {
    const std::string at = fmt::format("n * {}u + u", width_), in_step = row_at("t", width_) + " + u";
    const bool has_by = is_gru() || a_.lengths;  // something passes by the cell
    if (has_by) line(fmt::format("if (i > 0u) {{ sum0 += {}; }}", load(first_d_h_, at)));
    line(fmt::format("if (i == {}u) {{", steps_));
    line(store(first_d_h_, at, "sum0"));
    line("} else {");
    declare_has();
    line(fmt::format("let d_h = {} + sum0;", load(d_h_, in_step)));
    line("var by = 0f;");
    if (is_lstm())
      lstm(at, in_step);
    else if (is_gru())
      gru();
    else
      rnn(in_step);
    if (has_by) line(store(first_d_h_, at, "select(d_h, by, has)"));
    line("}");
  }

  void lstm(const std::string& at, const std::string& in_step) {
    line("var carried = 0f;");
    line(fmt::format("if (i > 0u) {{ carried = {}; }}", load(first_d_c_, at)));
    if (a_.d_c) line(fmt::format("carried += {};", load(d_c_, in_step)));
    line(state_before("c_before", c_, all_c_));
    for (Extent g = 0; g < 4; ++g) line(fmt::format("let g{} = {};", g, saved(g)));
    line(fmt::format("let squashed = {};", tanh(load(all_c_, in_step))));
    line("let d_c = carried + d_h * g3 * (1f - squashed * squashed);");
    store_gates(d_gates_, {"d_c * g2 * g0 * (1f - g0)", "d_c * c_before * g1 * (1f - g1)", "d_c * g0 * (1f - g2 * g2)",
                           "d_h * squashed * g3 * (1f - g3)"});
    line(store(first_d_c_, at, "select(carried, d_c * g1, has)"));
  }
  void gru() {
    line(state_before("h_before", h_, all_h_));
    for (Extent g = 0; g < 4; ++g) line(fmt::format("let g{} = {};", g, saved(g)));
    line("let d_made = d_h * (1f - g1) * (1f - g2 * g2);");
    line("let d_update = d_h * (h_before - g2) * g1 * (1f - g1);");
    line("let d_reset = d_made * g3 * g0 * (1f - g0);");
    line("by = d_h * g1;");
    store_gates(d_gates_, {"d_reset", "d_update", "d_made"});
    store_gates(d_products_, {"d_reset", "d_update", "d_made * g0"});
  }
  void rnn(const std::string& in_step) {
    line(fmt::format("let h = {};", load(all_h_, in_step)));
    store_gates(d_gates_, {a_.cell == RecurrentCell::rnn ? "d_h * (1f - h * h)" : "select(0f, d_h, h > 0f)"});
  }

  int all_h_ = -1, all_c_ = -1, saved_ = -1, h_ = -1, c_ = -1, weight_ = -1, d_h_ = -1, d_c_ = -1;
  int d_gates_ = -1, first_d_h_ = -1, d_products_ = -1, first_d_c_ = -1;
};

}  // namespace

bool accepts_recurrence(const graph::Call& call) {
  return call.input(0).dtype() == DType::f32 &&
         std::ranges::all_of(call.inputs(), [](const Tensor& x) { return x.numel() <= UINT32_MAX / 4; });
}

void render_recurrence(const CallKernel& kernel, const Target& target, Scratch& scratch, Rendered& rendered) {
  if (kernel.shape().numel() > 0) ForwardWriter(kernel, target).render(scratch, rendered);
}
void render_recurrence_backward(const CallKernel& kernel, const Target& target, Scratch& scratch, Rendered& rendered) {
  if (kernel.shape().numel() > 0) BackwardWriter(kernel, target).render(scratch, rendered);
}

}  // namespace weft::webgpu
