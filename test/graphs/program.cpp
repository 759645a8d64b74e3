#include "graphs/program.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <optional>
#include <string_view>

#include "compile/random_views.hpp"
#include "graph/linear_algebra.hpp"
#include "graph/node.hpp"
#include "graphs/rows.hpp"
#include "runtime/op_cases.hpp"
#include "weft/grad.hpp"
#include "weft/ops.hpp"

namespace weft::test {
namespace {

using graph::CaseInput;
using graph::OpCase;
using graph::OpRow;
using graph::Tensors;

constexpr Extent kElementsMax =
    400;  // in the result of an elementwise step, and in any tensor that a later step may read
const Shape kShapes[] = {{}, {5}, {8}, {2, 3}, {4, 5}, {3, 1}, {2, 3, 4}, {1, 4}, {2, 1, 3, 2}};
constexpr DType kIntegers[] = {DType::i32, DType::i32, DType::u32, DType::boolean,
                               DType::i8,  DType::i16, DType::u8,  DType::u16};

struct Value {
  Tensor tensor;
  // Known while the program settles its choices:
  bool same_bits = false;
};

/// Whether the row divides by a deviation.
bool standardises(const graph::OpRow& row) {
  return row.name == "batch_norm" || row.name == "layer_norm" || row.name == "group_norm" ||
         row.name == "instance_norm";
}
/// Whether at most half of the numbers differ, as where an axis was expanded.
bool repeats_numbers(std::vector<double> numbers) {
  const std::size_t all = numbers.size();
  std::sort(numbers.begin(), numbers.end());
  numbers.erase(std::unique(numbers.begin(), numbers.end()), numbers.end());
  return 2 * numbers.size() <= all;
}

/// Whether a number is so near an edge between two parts of a range that rounding decides in which part it counts: rounding of
/// the edge, and where the numbers are not `exact`, that of the steps before, as much as results may differ by.
bool is_near_edge(const std::vector<double>& numbers, bool exact, const std::vector<double>& edges, DType type) {
  const double epsilon = std::ldexp(1.0, 1 - element(type).digits);
  const double reach = (exact ? 2 : 256) * epsilon * std::max(std::fabs(edges.front()), std::fabs(edges.back()));
  for (std::size_t e = 1; e + 1 < edges.size(); ++e)
    for (const double x : numbers)
      if (std::fabs(x - edges[e]) <= reach) return true;
  return false;
}

/// Makes the graph of a recipe. While it settles, every choice that depends on values is written down; later it is read.
class Pass {
 public:
  Pass(const Recipe& recipe, DType type, bool settles, std::vector<double>& decisions)
      : recipe_(recipe), type_(type), settles_(settles), decisions_(decisions) {}

  void run() {
    manual_seed(static_cast<std::uint32_t>(recipe_.seed));
    for (std::size_t s = 0; s < recipe_.steps.size(); ++s) run(recipe_.steps[s], s);
    Tensors gradients = recipe_.gradients > 0 ? gradients_of(outputs_, 1) : Tensors{};
    Tensors second = recipe_.gradients > 1 && !gradients.empty() ? gradients_of(gradients, 2) : Tensors{};
    for (const Tensors& of : {gradients, second})
      for (std::size_t i = 0; i < of.size(); ++i) {
        outputs_.push_back(of[i]);
        facts_.push_back({fmt::format("{} gradient {}", &of == &gradients ? "first" : "a", i), false, {}});
      }
  }

  Tensors outputs_;
  std::vector<Program::Output> facts_;
  bool grows_rounding_ = false, reads_nan_ = false;
  std::vector<std::string> lines_;

 private:
  double decided(const std::function<double()>& choice) {
    if (settles_) decisions_.push_back(choice());
    return decisions_.at(next_decision_++);
  }

  // ---- Inputs ----------------------------------------------------------------------------------------------------------

  /// Fresh numbers, rounded to the recipe's type so that every pass has the same. Some have few bits.
  Value leaf(RandomViews& random, const Shape& shape, double lo, double hi, std::optional<DType> integer = {}) {
    const auto seed = static_cast<std::uint32_t>(random.pick(1, 1 << 30));
    const bool few_bits = random.pick(0, 1) && hi - lo >= 1;
    std::vector<double> numbers = runtime::random_numbers(shape.numel(), lo, hi + (integer ? 1 : 0), seed);
    for (double& x : numbers)
      x = integer    ? std::floor(x)
          : few_bits ? std::clamp(std::round(x * 4) / 4, std::ceil(lo * 4) / 4, std::floor(hi * 4) / 4)
                     : x;
    return fixed(numbers, shape, integer);
  }
  Value fixed(const std::vector<double>& numbers, const Shape& shape, std::optional<DType> integer = {}) {
    if (integer) return {runtime::tensor_of(numbers, shape, *integer), true};
    const Tensor rounded = cast(runtime::tensor_of(numbers, shape, recipe_.type), type_);
    leaves_.push_back(rounded);
    return {rounded, true};
  }

  /// What the source has, or nothing.
  std::optional<Value> find(const Step& step, std::size_t input) const {
    if (step.sources.empty()) return {};
    const Source& source = step.sources[input % step.sources.size()];
    if (source.step < 0 || values_[static_cast<std::size_t>(source.step)].empty()) return {};
    const std::vector<Value>& of = values_[static_cast<std::size_t>(source.step)];
    const Value& value = of[source.which % of.size()];
    if (value.tensor.numel() == 0 || value.tensor.numel() > kElementsMax || is_storage(value.tensor.dtype())) return {};
    return value;
  }

  /// Caches say their type by an attribute, and the moments of an update would overflow or vanish in a narrow one.
  DType type_for(const OpRow& row, const graph::InputSpec& spec) const {
    const bool wide_only = (row.family == "cache" || row.family == "update") && is_narrow(type_);
    return spec.allows(type_) && !wide_only ? type_ : DType::f32;
  }

  /// The numbers of x in another shape: repeated, or some of them. Sometimes as a view with other strides.
  static Tensor reshaped(RandomViews& random, const Tensor& x, const Shape& shape) {
    const bool turned = random.pick(0, 2) == 0;
    const int first = random.pick(0, 7);
    if (x.shape() == shape && !turned) return x;
    Tensor flat = flatten(x, 0, -1);
    const Extent n = shape.numel(), m = flat.numel();
    if (m < n) flat = flatten(expand(unsqueeze(flat, 0), {(n + m - 1) / m, m}), 0, -1);
    if (flat.numel() > n) {
      const Extent start = std::min<Extent>(first, flat.numel() - n);
      flat = slice(flat, 0, start, start + n);
    }
    if (!turned || shape.rank() < 2) return reshape(flat, shape);
    std::vector<Extent> reversed(shape.vector().rbegin(), shape.vector().rend());
    Axes order;
    for (int d = shape.rank() - 1; d >= 0; --d) order.push_back(d);
    return permute(reshape(flat, Shape(reversed)), order);
  }

  /// x moved into a range by a factor and a number, both powers of two or multiples of a half.
  Tensor fitted(const Tensor& x, double lo, double hi) {
    double least = 0, most = 0;
    if (settles_) {
      const std::vector<double> numbers = runtime::numbers_of(x);
      least = *std::min_element(numbers.begin(), numbers.end());
      most = *std::max_element(numbers.begin(), numbers.end());
    }
    const double factor = decided([&] {
      if (least >= lo && most <= hi) return 1.0;
      return most == least ? 0.5 : std::min(1.0, std::exp2(std::floor(std::log2(0.75 * (hi - lo) / (most - least)))));
    });
    const double moved = decided([&] {
      if (least * factor >= lo && most * factor <= hi) return 0.0;
      const double room = (hi - lo) - (most - least) * factor, step = std::exp2(std::floor(std::log2(room / 2)));
      return std::ceil((lo - least * factor) / std::min(step, 0.5)) * std::min(step, 0.5);
    });
    const Tensor scaled = factor == 1 ? x : x * factor;
    return moved == 0 ? scaled : scaled + moved;
  }

  bool usable(const Value& value, bool needs_same_bits) {
    return decided([&] {
             if (needs_same_bits && !value.same_bits) return 0.0;
             for (const double x : runtime::numbers_of(value.tensor))
               if (!std::isfinite(x) || std::fabs(x) > 1e4) return 0.0;
             return 1.0;
           }) != 0;
  }

  /// An input of floats in a range.
  Value floats(RandomViews& random, const Step& step, std::size_t input, const Shape& shape, double lo, double hi,
               DType type, bool needs_same_bits) {
    std::optional<Value> value = find(step, input);
    Value made;
    if (value && shape.numel() > 0 && hi > lo && usable(*value, needs_same_bits)) {
      Tensor x = value->tensor;
      if (x.dtype() != type) x = cast(x, type);
      x = fitted(reshaped(random, x, shape), lo, hi);
      made = {x, value->same_bits && stays_exact(x)};
      if (needs_same_bits && decided([&] { return made.same_bits ? 1.0 : 0.0; }) == 0)
        made = leaf(random, shape, lo, hi);
    } else {
      made = leaf(random, shape, lo, hi);
    }
    if (made.tensor.dtype() != type) made.tensor = cast(made.tensor, type);
    return made;
  }
  /// An input of whole numbers in a range, which is the same on every device.
  Value integers(RandomViews& random, const Step& step, std::size_t input, const Shape& shape, double lo, double hi,
                 DType type) {
    const std::optional<Value> value = find(step, input);
    if (!value || shape.numel() == 0 || !usable(*value, true)) return leaf(random, shape, lo, hi, type);
    const Tensor x = reshaped(random, cast(value->tensor, DType::i32), shape);
    return {cast(elementwise("clamp", {x}, {lo, hi}), type), true};
  }
  bool stays_exact(const Tensor& x) const { return !settles_ || has_few_bits(runtime::numbers_of(x), recipe_.type); }

  // ---- Steps -----------------------------------------------------------------------------------------------------------

  struct Made {
    std::vector<Value> inputs;
    Tensors results;
    std::string attributes;
    bool rounds = false;  // whatever the row, the results are not the same bits everywhere
  };

  void run(const Step& step, std::size_t number) {
    RandomViews random(step.seed);
    Made made = step.row->elementwise ? elementwise_step(random, step)
                : step.row->reduction ? reduction_step(random, step)
                                      : case_step(random, step);
    if (settles_ && standardises(*step.row) && repeats_numbers(runtime::numbers_of(made.inputs[0].tensor)))
      grows_rounding_ = true;
    if (settles_ && step.row->name == "histogram" &&
        is_near_edge(runtime::numbers_of(made.inputs[0].tensor), made.inputs[0].same_bits,
                     runtime::numbers_of(made.results[1]), recipe_.type))
      grows_rounding_ = true;
    bool same = !made.rounds;
    for (const Value& input : made.inputs) {
      same = same && (!input.tensor.defined() || input.same_bits);
      if (!settles_ || !input.tensor.defined() || !is_float(input.tensor.dtype())) continue;
      const std::vector<double> numbers = runtime::numbers_of(input.tensor);
      reads_nan_ = reads_nan_ || std::any_of(numbers.begin(), numbers.end(), [](double x) { return std::isnan(x); });
    }
    std::string line = fmt::format("{:2} {}({})", number, step.row->name, made.attributes);
    for (const Value& input : made.inputs)
      line += input.tensor.defined()
                  ? fmt::format(" {} {}", name_of(input.tensor.dtype()), input.tensor.shape().to_string())
                  : " -";
    line += " ->";
    std::vector<Value> kept;
    for (Tensor result : made.results) {
      bool exact = same;
      if (settles_ && exact && !selects(*step.row) && is_float(result.dtype()))
        exact = is_exact_for_few_bits(*step.row) && has_few_bits(runtime::numbers_of(result), recipe_.type);
      if (step.viewed && !is_storage(result.dtype())) {
        const Tensor view = random.view_of(result);
        if (view.numel() <= 20000) result = view;
      }
      kept.push_back({result, exact});
      line += fmt::format(" {} {}", name_of(result.dtype()), result.shape().to_string());
      if (!step.shown || result.numel() > 20000) continue;
      outputs_.push_back(result);
      facts_.push_back({fmt::format("{} {}", number, step.row->name), exact, {}});
      if (settles_) facts_.back().alone = runtime::numbers_of(result);
    }
    lines_.push_back(line);
    values_.push_back(std::move(kept));
  }

  /// The program's floats, or integers where the row takes them.
  DType drawn_type(RandomViews& random, ops::DTypes taken) const {
    const bool of_integers =
        !ops::allows(taken, DType::f32) || (ops::allows(taken, DType::i32) && random.pick(0, 3) == 0);
    DType type = type_;
    while (of_integers && (is_float(type) || !ops::allows(taken, type))) type = kIntegers[random.pick(0, 7)];
    return type;
  }

  Made elementwise_step(RandomViews& random, const Step& step) {
    const ops::ElementwiseRow& row = *step.row->elementwise;
    const DType type = drawn_type(random, row.dtypes);
    const bool of_integers = !is_float(type);
    Made made;
    Shape so_far;
    std::vector<std::pair<double, double>> ranges;
    for (std::size_t i = 0; i < row.inputs.size(); ++i) {
      const std::optional<Value> source = find(step, i);
      Shape shape = i == 0 ? kShapes[random.pick(0, 8)] : so_far, joined;
      const int axis = random.pick(0, 9);
      if (i > 0 && axis < shape.rank()) shape[axis] = 1;
      if (source && (i == 0 || (graph::broadcast_shapes(source->tensor.shape(), so_far, joined) &&
                                joined.numel() <= kElementsMax)))
        shape = source->tensor.shape();
      if (i == 0)
        so_far = shape;
      else if (graph::broadcast_shapes(shape, so_far, joined))
        so_far = joined;
      if (of_integers) {
        const double hi = type == DType::boolean ? 1 : 100, lo = element(type).is_signed ? -100 : 0;
        made.inputs.push_back(integers(random, step, i, shape, lo, hi, type));
      } else {
        const ops::Range tested = row.tested.of(i);
        double lo = tested.lo, hi = tested.hi;
        if (random.pick(0, 3)) lo = std::max(lo, std::min(-2.0, hi - 0.5)), hi = std::min(hi, std::max(2.0, lo + 0.5));
        made.inputs.push_back(floats(random, step, i, shape, lo, hi, type, false));
        ranges.emplace_back(lo, hi);
      }
    }
    std::vector<double> attributes;
    for (const ops::Attribute& a : row.attributes)
      attributes.push_back(!of_integers                     ? a.tested
                           : std::isfinite(a.default_value) ? std::trunc(a.tested)
                                                            : a.default_value);
    if (!of_integers && may_jump(*step.row) &&
        decided([&] { return smooth_here(row, made.inputs, so_far, attributes); }) == 0)
      for (std::size_t i = 0; i < made.inputs.size(); ++i) {
        const Value fresh = leaf(random, made.inputs[i].tensor.shape(), ranges[i].first, ranges[i].second);
        if (decided([&] { return made.inputs[i].same_bits ? 1.0 : 0.0; }) == 0) made.inputs[i] = fresh;
      }
    Tensors inputs;
    for (const Value& value : made.inputs) inputs.push_back(value.tensor);
    made.results = {elementwise(row.name, inputs, attributes)};
    made.rounds = of_integers && is_float(made.results[0].dtype());
    if (of_integers && !made.rounds) made.rounds = !is_exact_for_integers(row);
    return made;
  }
  // Integers compute exactly unless a step in between is a float's.
  static bool is_exact_for_integers(const ops::ElementwiseRow& row) { return row.result != ops::Result::floating; }

  static double smooth_here(const ops::ElementwiseRow& row, const std::vector<Value>& inputs, const Shape& shape,
                            const std::vector<double>& attributes) {
    if (std::all_of(inputs.begin(), inputs.end(), [](const Value& v) { return v.same_bits; })) return 1;
    std::vector<std::vector<double>> columns;
    for (const Value& value : inputs) columns.push_back(runtime::numbers_of(expand(value.tensor, shape)));
    for (const double a : attributes) columns.emplace_back(columns[0].size(), a);
    return is_smooth_near(row, columns) ? 1 : 0;
  }

  Made reduction_step(RandomViews& random, const Step& step) {
    const ops::ReduceRow& row = *step.row->reduction;
    const DType type = drawn_type(random, row.dtypes);
    const bool of_integers = !is_float(type);
    const std::optional<Value> source = find(step, 0);
    const Shape fresh = kShapes[random.pick(0, 8)], shape = source ? source->tensor.shape() : fresh;
    const bool is_product = row.reduction == scalar::Reduction::prod;
    const double least = is_product                ? -2
                         : element(type).is_signed ? -9
                                                   : 0,
                 most = type == DType::boolean ? 1
                        : is_product           ? 2
                                               : 9;
    Made made;
    if (of_integers)
      made.inputs = {integers(random, step, 0, shape, least, most, type)};
    else
      made.inputs = {floats(random, step, 0, shape, std::max(row.tested.lo, -4.0), std::min(row.tested.hi, 4.0), type,
                            may_jump(*step.row))};
    Axes axes = random.some_axes(shape.rank());
    const bool position = row.reduction == scalar::Reduction::argmax || row.reduction == scalar::Reduction::argmin;
    if (position && axes.size() > 1) axes.resize(1);
    Extent reduced = 1;
    for (const int axis : axes) reduced *= shape[axis < 0 ? axis + shape.rank() : axis];
    if (axes.empty()) reduced = shape.numel();
    graph::CaseAttributes attributes{{"axes", std::vector<Extent>(axes.begin(), axes.end())},
                                     {"keepdims", random.pick(0, 1) == 1}};
    for (const ops::Attribute& a : row.attributes)
      attributes.emplace_back(std::string(a.name), a.name == "correction" && reduced < 3 ? 0.0 : a.tested);
    for (const auto& [name, value] : attributes)
      made.attributes += fmt::format(" {}={}", name, graph::to_string(value));
    made.results = graph::apply(*step.row, {made.inputs[0].tensor}, attributes);
    made.rounds = of_integers && is_float(made.results[0].dtype());
    return made;
  }

  Made case_step(RandomViews& random, const Step& step) {
    const std::vector<OpCase> cases = drawn_cases(*step.row);
    const OpCase& one = cases[static_cast<std::size_t>(random.pick(0, static_cast<int>(cases.size()) - 1))];
    const bool jumps = may_jump(*step.row);
    Made made;
    for (std::size_t i = 0; i < one.inputs.size(); ++i) {
      const CaseInput& input = one.inputs[i];
      const graph::InputSpec& spec = step.row->inputs[std::min(i, step.row->inputs.size() - 1)];
      const bool real = is_float(input.type);
      if (input.absent)
        made.inputs.push_back({});
      else if (!input.values.empty())
        made.inputs.push_back(fixed(input.values, input.shape, real ? std::nullopt : std::optional(input.type)));
      else if (real)
        made.inputs.push_back(
            floats(random, step, i, input.shape, input.lo, input.hi, type_for(*step.row, spec), jumps));
      else
        made.inputs.push_back(integers(random, step, i, input.shape, input.lo, input.hi, input.type));
      if (!input.absent && real && made.inputs.back().tensor.dtype() != type_for(*step.row, spec))
        made.inputs.back().tensor = cast(made.inputs.back().tensor, type_for(*step.row, spec));
    }
    Tensors inputs;
    for (const Value& value : made.inputs) inputs.push_back(value.tensor);
    made.attributes = one.name;
    made.results = graph::apply(*step.row, inputs, one.attributes);
    if (!one.compares_gradients || !step.row->no_gradient.empty())
      for (Tensor& result : made.results) result = detach(result);
    return made;
  }

  // ---- Gradients -------------------------------------------------------------------------------------------------------

  static bool has_gradient(const Tensor& x) { return is_float(x.dtype()) && x.numel() > 0; }

  /// Of a weighted sum of all that are floats (of second order: of their squares), for the first leaves.
  Tensors gradients_of(const Tensors& of, int order) {
    Tensor total;
    std::uint32_t seed = 99;
    for (const Tensor& x : of) {
      if (!has_gradient(x)) continue;
      const Tensor wide = x.dtype() == type_ ? x : cast(x, type_);
      const Tensor weights =
          runtime::tensor_of(runtime::random_numbers(x.numel(), 0.5, 1.5, seed++), x.shape(), recipe_.type);
      const Tensor part = sum((order == 1 ? wide : wide * wide) * cast(weights, type_));
      total = total.defined() ? total + part : part;
    }
    Tensors leaves(leaves_.begin(),
                   leaves_.begin() + static_cast<std::ptrdiff_t>(std::min<std::size_t>(leaves_.size(), 5)));
    if (!total.defined() || leaves.empty()) return {};
    return grad(total, leaves);
  }

  const Recipe& recipe_;
  DType type_;
  bool settles_;
  std::vector<double>& decisions_;
  std::size_t next_decision_ = 0;
  std::vector<std::vector<Value>> values_;
  Tensors leaves_;
};

}  // namespace

std::vector<const OpRow*> drawn_rows(Drawn drawn) {
  constexpr std::string_view kSlow[] = {"histogram", "conv3d", "conv_transpose3d", "lp_pool3d"};
  const auto is_slow = [&](const OpRow& row) {
    return drawn == Drawn::on_gpu && (row.family == "order" || row.family == "scan" || row.name == "mode" ||
                                      std::find(std::begin(kSlow), std::end(kSlow), row.name) != std::end(kSlow));
  };
  std::vector<const OpRow*> rows;
  for (const OpRow* row : graph::op_rows()) {
    if (!row->elementwise && !row->reduction && drawn_cases(*row).empty()) continue;
    if (drawn != Drawn::on_cpu && (row->family == graph::kDecompositionFamily || is_slow(*row))) continue;
    rows.push_back(row);
  }
  return rows;
}

Recipe draw(std::uint64_t seed, std::span<const OpRow* const> rows) {
  RandomViews random(seed * 0x9e3779b97f4a7c15ull + 1);
  Recipe recipe{.seed = seed};
  const int kind = random.pick(0, 7);
  recipe.type = kind == 0 ? DType::f16 : kind == 1 ? DType::bf16 : DType::f32;
  const int steps = random.pick(2, 6);
  for (int s = 0; s < steps; ++s) {
    // Rows take turns, so that all are drawn equally often; the order of the table is mixed by a step that divides nothing.
    const std::size_t at = random.pick(0, 1)
                               ? static_cast<std::size_t>(random.pick(0, static_cast<int>(rows.size()) - 1))
                               : (seed * 7 + static_cast<std::size_t>(s) * 131) % rows.size();
    Step step{.row = rows[at], .seed = static_cast<std::uint64_t>(random.pick(1, 1 << 30))};
    for (int i = random.pick(1, 4); i > 0; --i) {
      Source source{.step = random.pick(0, 4) == 0 ? -1 : random.pick(std::max(-1, s - 3), s - 1),
                    .which = static_cast<unsigned>(random.pick(0, 5))};
      step.sources.push_back(source);
    }
    step.viewed = random.pick(0, 2) == 0;
    step.shown = s + 1 == steps || random.pick(0, 2) == 0;
    recipe.steps.push_back(std::move(step));
  }
  const int order = random.pick(0, 9);
  recipe.gradients = order < 4 ? 0 : order < 9 ? 1 : 2;
  return recipe;
}

std::vector<Recipe> smaller(const Recipe& recipe) {
  std::vector<Recipe> all;
  for (std::size_t s = recipe.steps.size(); s-- > 0 && recipe.steps.size() > 1;) {
    Recipe less = recipe;
    less.steps.erase(less.steps.begin() + static_cast<std::ptrdiff_t>(s));
    for (Step& step : less.steps)
      for (Source& source : step.sources) {
        if (source.step == static_cast<int>(s)) source.step = -1;
        if (source.step > static_cast<int>(s)) --source.step;
      }
    all.push_back(std::move(less));
  }
  if (recipe.gradients > 0) {
    all.push_back(recipe);
    --all.back().gradients;
  }
  if (recipe.type != DType::f32) {
    all.push_back(recipe);
    all.back().type = DType::f32;
  }
  for (std::size_t s = 0; s < recipe.steps.size(); ++s) {
    const auto changed = [&](const std::function<void(Step&)>& change) {
      all.push_back(recipe);
      change(all.back().steps[s]);
    };
    if (recipe.steps[s].viewed) changed([](Step& step) { step.viewed = false; });
    if (recipe.steps[s].shown && recipe.steps.size() > 1) changed([](Step& step) { step.shown = false; });
    for (std::size_t i = 0; i < recipe.steps[s].sources.size(); ++i)
      if (recipe.steps[s].sources[i].step >= 0) changed([i](Step& step) { step.sources[i].step = -1; });
  }
  return all;
}

Program::Program(Recipe recipe) : recipe_(std::move(recipe)) {
  Recipe forward = recipe_;
  forward.gradients = 0;
  Pass settling(forward, DType::f64, true, decisions_);
  settling.run();
  lines_ = settling.lines_;
  grows_rounding_ = settling.grows_rounding_;
  reads_nan_ = settling.reads_nan_;
  std::vector<Output> forward_outputs = std::move(settling.facts_);
  Pass whole(recipe_, DType::f64, false, decisions_);
  whole.run();
  outputs_ = std::move(whole.facts_);
  for (std::size_t i = 0; i < forward_outputs.size(); ++i) outputs_[i] = std::move(forward_outputs[i]);
}

std::vector<Tensor> Program::make(DType type) const {
  std::vector<double> decisions = decisions_;
  Pass pass(recipe_, type, false, decisions);
  pass.run();
  return pass.outputs_;
}

std::string Program::text() const {
  std::string text =
      fmt::format("seed {}, {}, gradients of order {}\n", recipe_.seed, name_of(recipe_.type), recipe_.gradients);
  for (std::size_t s = 0; s < lines_.size(); ++s) {
    text += "  " + lines_[s] + "   from";
    for (const Source& source : recipe_.steps[s].sources)
      text += source.step < 0 ? " new" : fmt::format(" {}.{}", source.step, source.which);
    text += fmt::format("{}{}\n", recipe_.steps[s].viewed ? ", viewed" : "", recipe_.steps[s].shown ? ", shown" : "");
  }
  return text;
}

}  // namespace weft::test
