// The partial results of joint reductions: how a thread adds values, how two parts are joined, and how a kernel joins the parts
// of chunks.
#include <fmt/format.h>

#include <limits>

#include "backend/webgpu/wgsl/reduction/writer.hpp"

namespace weft::webgpu {
using kernel::Level;
using kernel::LoopKernel;
using kernel::Step;
using kernel::StepKind;
using scalar::Op;
using scalar::Reduction;

namespace {

/// Below every value but -infinity, from which nothing may be subtracted.
constexpr const char* kLowest = "-3.4028234e38f";

std::string sum_of(const std::vector<std::string>& terms) {
  std::string sum = terms.front();
  for (std::size_t i = 1; i < terms.size(); ++i) sum += " + " + terms[i];
  return sum;
}

}  // namespace

void ReductionWriter::declare_joint(int s, StepWriter& writer, Helpers& helpers) {
  const int x = kernel_.steps[static_cast<std::size_t>(s)].a;
  if (joint(s) == Joint::squares) {
    writer.set_inner_variable("0u");
    writer.write(x, "first");
  }
  for (int lane = 0; lane < accumulators(); ++lane) {
    writer.line(fmt::format("var {} = 0f;", accumulator(s, lane, 0)));
    if (joint(s) == Joint::squares) {
      writer.line(fmt::format("var {} = 0f;", accumulator(s, lane, 1)));
      writer.line(fmt::format("var {} = 0f;", accumulator(s, lane, 2)));
    } else {
      writer.line(
          fmt::format("var {} = {};", accumulator(s, lane, 1), render_identity(Reduction::max, DType::f32, helpers)));
    }
  }
}

// Adds the values of some slots at a time.
void ReductionWriter::accumulate_joint(int s, StepWriter& writer, Helpers& helpers,
                                       const std::vector<std::string>& slots) {
  const int x = kernel_.steps[static_cast<std::size_t>(s)].a;
  const auto exp = [&](const std::string& value) {
    return fmt::format("{}({})", helpers.use("exp_of_negative_f32"), value);
  };
  for (int lane = 0; lane < accumulators(); ++lane) {
    std::vector<std::string> values, terms;
    for (const std::string& slot : slots)
      for (int item = 0; item < (layout_.columns ? 1 : layout_.width); ++item)
        values.push_back(writer.value(x, layout_.columns ? lane : item, slot).text);
    const std::string sum = accumulator(s, lane, 0), beside = accumulator(s, lane, 1);
    writer.line("{");
    writer.indent();
    if (joint(s) == Joint::squares) {
      const std::string number = accumulator(s, lane, 2), first = writer.value(x, lane, "first").text;
      const auto more = static_cast<double>(values.size());
      for (std::size_t i = 0; i < values.size(); ++i) {
        writer.line(fmt::format("let d{} = {} - {};", i, values[i], first));
        terms.push_back(fmt::format("d{}", i));
      }
      writer.line(fmt::format("let more = {};", sum_of(terms)));
      writer.line(fmt::format("let middle = more * {};", render_constant(1 / more, DType::f32, helpers)));
      for (std::size_t i = 0; i < values.size(); ++i) {
        writer.line(fmt::format("let e{0} = d{0} - middle;", i));
        terms[i] = fmt::format("e{0} * e{0}", i);
      }
      writer.line(fmt::format("let gap = middle - {} / max({}, 1f);", beside, number));
      writer.line(fmt::format("{0} += {1} + gap * gap * ({2} * {3:.1f}f / ({2} + {3:.1f}f));", sum, sum_of(terms),
                              number, more));
      writer.line(fmt::format("{} += more;", beside));
      writer.line(fmt::format("{} += {:.1f}f;", number, more));
    } else {
      // The largest without its sign, as bits, is a NaN if there is one.
      std::string top = beside, size = fmt::format("bitcast<u32>({}) & 0x7fffffffu", beside);
      for (const std::string& value : values) {
        top = fmt::format("max({}, {})", top, value);
        size = fmt::format("max({}, bitcast<u32>({}) & 0x7fffffffu)", size, value);
      }
      writer.line(fmt::format("let top = select({}, {}(), ({}) > 0x7f800000u);", top, helpers.use("nan_f32"), size));
      writer.line(fmt::format("let least = max(top, {});", kLowest));
      for (const std::string& value : values) terms.push_back(exp(value + " - least"));
      writer.line(fmt::format("{0} = {0} * {1} + {2};", sum, exp(beside + " - least"), sum_of(terms)));
      writer.line(fmt::format("{} = top;", beside));
    }
    writer.dedent();
    writer.line("}");
  }
}

std::string ReductionWriter::combine_joint(int s, int lane, const std::string& other, Helpers& helpers) const {
  const std::string sum = accumulator(s, lane, 0), beside = accumulator(s, lane, 1);
  if (joint(s) == Joint::squares) {
    const std::string number = accumulator(s, lane, 2);
    return fmt::format(
        "{{ let gap = {0}p / max({0}n, 1f) - {2} / max({3}, 1f); {1} += {0} + gap * gap * ({3} * {0}n / max({3} + "
        "{0}n, 1f)); "
        "{2} += {0}p; {3} += {0}n; }}",
        other, sum, beside, number);
  }
  const auto exp = [&](const std::string& value) {
    return fmt::format("{}({})", helpers.use("exp_of_negative_f32"), value);
  };
  return fmt::format("{{ let top = {}; let least = max(top, {}); {} = {} * {} + {} * {}; {} = top; }}",
                     render_combine(Reduction::max, DType::f32, beside, other + "p", helpers), kLowest, sum, sum,
                     exp(beside + " - least"), other, exp(other + "p - least"), beside);
}

void ReductionWriter::define_joint(int s, StepWriter& writer, Helpers& helpers) {
  std::vector<std::string> sums, maxima;
  for (int lane = 0; lane < accumulators(); ++lane) {
    sums.push_back(accumulator(s, lane, 0));
    if (joint(s) == Joint::squares) continue;
    const std::string top = accumulator(s, lane, 1);
    const std::string otherwise =  // the sum of the exponentials themselves, if no maximum was subtracted
        joint(s) == Joint::finite_exponentials
            // By bits: compilers make max(top, 0) of a comparison with 0, which is 0 for a NaN.
            ? fmt::format("select({0}, 0f, bitcast<u32>({0}) == 0xff800000u)", top)
            : fmt::format("{}()", helpers.use("nan_f32"));
    sums.back() =
        fmt::format("select({}, {}, (bitcast<u32>({}) & 0x7fffffffu) < 0x7f800000u)", otherwise, sums.back(), top);
    maxima.push_back(top);
  }
  writer.define(s, sums);
  for (std::size_t step = 0; step < kernel_.steps.size(); ++step)
    if (needed_[step] && sum_beside(static_cast<int>(step)) == s) writer.define(static_cast<int>(step), maxima);
}

int ReductionWriter::sum_beside(int s) const {
  const Step& step = kernel_.steps[static_cast<std::size_t>(s)];
  if (step.kind != StepKind::reduce || step.reduction != Reduction::max) return -1;
  for (std::size_t other = 0; other < kinds_.size(); ++other)
    if (needed_[other] && (kinds_[other] == Joint::exponentials || kinds_[other] == Joint::finite_exponentials) &&
        kernel_.steps[other].a == step.a)
      return static_cast<int>(other);
  return -1;
}

int ReductionWriter::push_joined(Joint kind, LoopKernel& rest, FunctionRef<int(int part)> load, int* maximum) const {
  const auto push = [&](Step step) {
    rest.steps.push_back(std::move(step));
    return static_cast<int>(rest.steps.size()) - 1;
  };
  const auto map = [&](Op op, Level level, int a, int b = -1, int c = -1, DType type = DType::f32) {
    Step step{StepKind::map, type, level};
    step.op = op;
    step.a = a, step.b = b, step.c = c;
    return push(step);
  };
  const auto constant = [&](double value) {
    Step step{StepKind::constant, DType::f32, Level::outer};
    step.value = value;
    return push(step);
  };
  const auto reduce = [&](Reduction reduction, int a) {
    Step step{StepKind::reduce, DType::f32, Level::outer};
    step.reduction = reduction;
    step.a = a;
    return push(step);
  };
  if (kind == Joint::squares) {
    // sum of q + n (s / n - mean)^2, where s and the mean are relative to the row's first value
    const int squares = load(0), sum = load(1), number = load(2);
    const int mean = map(Op::div, Level::outer, reduce(Reduction::sum, sum), reduce(Reduction::sum, number));
    const int own_mean = map(Op::div, Level::inner, sum, map(Op::max, Level::inner, number, constant(1)));
    const int gap = map(Op::sub, Level::inner, own_mean, mean);
    const int moved = map(Op::mul, Level::inner, map(Op::mul, Level::inner, gap, gap), number);
    return reduce(Reduction::sum, map(Op::add, Level::inner, squares, moved));
  }
  const int sum = load(0), own_top = load(1);
  const int top = reduce(Reduction::max, own_top);
  if (maximum) *maximum = top;
  const int least = map(Op::max, Level::outer, top, constant(-3.4028234663852886e38));
  const int scale = map(Op::exp, Level::inner, map(Op::sub, Level::inner, own_top, least));
  const int total = reduce(Reduction::sum, map(Op::mul, Level::inner, sum, scale));
  const double inf = std::numeric_limits<double>::infinity();
  const int is_finite = map(Op::lt, Level::outer, map(Op::abs, Level::outer, top), constant(inf), -1, DType::boolean);
  int otherwise = constant(std::numeric_limits<double>::quiet_NaN());
  if (kind == Joint::finite_exponentials) {  // the sum of the exponentials themselves
    const int is_lowest = map(Op::eq, Level::outer, top, constant(-inf), -1, DType::boolean);
    otherwise = map(Op::select, Level::outer, is_lowest, constant(0), top);
  }
  return map(Op::select, Level::outer, is_finite, total, otherwise);
}

}  // namespace weft::webgpu
