#include "weft/optim/lbfgs.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <optional>

#include "graph/autocast.hpp"
#include "weft/grad.hpp"
#include "weft/ops.hpp"

namespace weft::optim {
namespace {

double number_of(const Tensor& x) {
  const Tensor wide = cast(x, DType::f64);
  return wide.item<double>();
}
double dot(const Tensor& x, const Tensor& y) { return number_of(sum(x * y)); }
double largest(const Tensor& x) { return number_of(amax(abs(x))); }
Tensor joined(std::span<const Tensor> tensors) {
  std::vector<Tensor> parts;
  for (const Tensor& each : tensors) parts.push_back(reshape(each, {each.numel()}));
  return concat(parts, 0);
}

// The least point of the cubic through two points and slopes, between the bounds. Nocedal and Wright, equation 3.59.
double least_of_cubic(double x1, double f1, double g1, double x2, double f2, double g2,
                      std::optional<std::pair<double, double>> bounds = {}) {
  const double low = bounds ? bounds->first : std::min(x1, x2), high = bounds ? bounds->second : std::max(x1, x2);
  const double d1 = g1 + g2 - 3 * (f1 - f2) / (x1 - x2), squared = d1 * d1 - g1 * g2;
  if (!(squared >= 0)) return (low + high) / 2;
  const double d2 = std::sqrt(squared);
  const double least = x1 <= x2 ? x2 - (x2 - x1) * ((g2 + d2 - d1) / (g2 - g1 + 2 * d2))
                                : x1 - (x1 - x2) * ((g1 + d2 - d1) / (g1 - g2 + 2 * d2));
  return std::min(std::max(least, low), high);
}

}  // namespace

LBFGS::LBFGS(ParameterList list, LBFGSOptions options) : options_(options) {
  if (list.parameters.empty()) throw UsageError("LBFGS: no parameters to train; is requires_grad off for all of them?");
  for (const nn::NamedParameter& p : list.parameters) {
    if (!p.variable.defined() || !is_float(p.variable.dtype()))
      throw UsageError(fmt::format("LBFGS: parameter \"{}\" is not a Variable of floats", p.name));
    if (p.variable.dtype() != list.parameters[0].variable.dtype())
      throw UsageError("LBFGS: parameters of several dtypes; cast them, or make one optimiser for each dtype");
    variables_.push_back(p.variable);
  }
  set_learning_rate(options.learning_rate);
  if (options_.iterations < 1 || options_.history < 1 || options_.evaluations < 0)
    throw UsageError("LBFGS: iterations and history must be at least 1, and evaluations at least 0");
  if (!(options_.gradient_tolerance >= 0) || !(options_.change_tolerance >= 0))
    throw UsageError("LBFGS: tolerances must be numbers of at least 0");
  if (options_.evaluations == 0) options_.evaluations = options_.iterations * 5 / 4;
}

void LBFGS::set_learning_rate(double rate) {
  if (!(rate >= 0) || std::isinf(rate))
    throw UsageError(fmt::format("LBFGS: learning rate {} must be a number of at least 0", rate));
  options_.learning_rate = rate;
}

void LBFGS::reset() {
  iteration_count_ = evaluation_count_ = 0;
  gradient_changes_.clear(), steps_.clear(), curvatures_.clear();
  scale_ = 1, length_ = loss_ = 0;
  direction_ = gradient_ = Tensor();
}

Tensor LBFGS::flat_parameters() const {
  std::vector<Tensor> values;
  for (const Variable& v : variables_) values.push_back(v.value());
  return joined(values).eval();
}

void LBFGS::assign(const Tensor& flat) {
  Extent offset = 0;
  for (Variable& v : variables_) {
    v.assign(reshape(narrow(flat, 0, offset, v.numel()), v.shape()));
    offset += v.numel();
  }
}

Tensor LBFGS::gradient_of(const Evaluation& evaluation) const {
  const std::vector<Tensor>& gradients = evaluation.gradients;
  if (gradients.size() != variables_.size())
    throw UsageError(fmt::format("LBFGS: {} gradients for {} parameters; return grad(loss, optimizer.parameters())",
                                 gradients.size(), variables_.size()));
  for (std::size_t i = 0; i < gradients.size(); ++i) {
    if (!gradients[i].defined() || gradients[i].shape() != variables_[i].shape())
      throw ShapeError(fmt::format("LBFGS: gradient {} does not have the shape {} of its parameter", i,
                                   variables_[i].shape().to_string()));
    if (gradients[i].dtype() != variables_[i].dtype())
      throw DTypeError(fmt::format("LBFGS: gradient {} does not have the dtype of its parameter; cast it", i));
  }
  return joined(gradients).eval();
}

LBFGS::Point LBFGS::evaluate_at(const Evaluate& evaluate, const Tensor& parameters) {
  assign(parameters);
  Evaluation found;
  {
    const EnableGrad gradients;
    found = evaluate();
  }
  Point point{found.loss, gradient_of(found)};
  point.slope = dot(point.gradient, direction_);
  return point;
}

// Minus the inverse Hessian times the gradient. Nocedal and Wright, algorithm 7.4.
Tensor LBFGS::direction(const Tensor& gradient) const {
  Tensor q = -gradient;
  std::vector<double> shares(steps_.size());
  for (std::size_t i = steps_.size(); i-- > 0;) {
    shares[i] = dot(steps_[i], q) * curvatures_[i];
    q = q - gradient_changes_[i] * shares[i];
  }
  q = q * scale_;
  for (std::size_t i = 0; i < steps_.size(); ++i)
    q = q + steps_[i] * (shares[i] - dot(gradient_changes_[i], q) * curvatures_[i]);
  return q.eval();
}

// A length with sufficient decrease and a small slope: first a bracket, then narrower ones. The constants are those of PyTorch.
LBFGS::Point LBFGS::strong_wolfe(const Evaluate& evaluate, const Tensor& start, double& length, const Point& first) {
  constexpr double kDecrease = 1e-4, kCurvature = 0.9;
  constexpr int kMost = 25;
  const double size = largest(direction_), tolerance = options_.change_tolerance;
  struct End {
    double at;
    Point point;
  };
  const auto at = [&](double t) { return End{t, evaluate_at(evaluate, start + direction_ * t)}; };
  const auto falls_too_little = [&](const End& end) {
    return end.point.loss > first.loss + kDecrease * end.at * first.slope;
  };
  const auto is_flat = [&](const End& end) { return std::abs(end.point.slope) <= -kCurvature * first.slope; };

  End previous{0, first}, now = at(length);
  ++evaluation_count_;
  std::vector<End> bracket;
  bool done = false;
  int tries = 0;
  while (tries < kMost) {
    if (falls_too_little(now) || (tries > 1 && now.point.loss >= previous.point.loss)) {
      bracket = {previous, now};
      break;
    }
    if (is_flat(now)) {
      bracket = {now};
      done = true;
      break;
    }
    if (now.point.slope >= 0) {
      bracket = {previous, now};
      break;
    }
    const double least = now.at + 0.01 * (now.at - previous.at), most = now.at * 10;
    const double next = least_of_cubic(previous.at, previous.point.loss, previous.point.slope, now.at, now.point.loss,
                                       now.point.slope, std::pair{least, most});
    previous = now;
    now = at(next);
    ++evaluation_count_;
    ++tries;
  }
  if (tries == kMost) bracket = {End{0, first}, now};

  bool slow = false;
  std::size_t low = bracket.size() == 1 || bracket[0].point.loss <= bracket[1].point.loss ? 0 : 1;
  while (!done && tries < kMost) {
    const std::size_t high = 1 - low;
    if (std::abs(bracket[1].at - bracket[0].at) * size < tolerance) break;
    double t = least_of_cubic(bracket[0].at, bracket[0].point.loss, bracket[0].point.slope, bracket[1].at,
                              bracket[1].point.loss, bracket[1].point.slope);
    // A point close to an end for the second time, or outside, moves inside.
    const auto [begin, end] = std::minmax(bracket[0].at, bracket[1].at);
    const double margin = 0.1 * (end - begin);
    if (std::min(end - t, t - begin) < margin) {
      if (slow || t >= end || t <= begin) {
        t = std::abs(t - end) < std::abs(t - begin) ? end - margin : begin + margin;
        slow = false;
      } else {
        slow = true;
      }
    } else {
      slow = false;
    }
    const End tried = at(t);
    ++evaluation_count_;
    ++tries;
    if (falls_too_little(tried) || tried.point.loss >= bracket[low].point.loss) {
      bracket[high] = tried;
      low = bracket[0].point.loss <= bracket[1].point.loss ? 0 : 1;
    } else {
      if (is_flat(tried))
        done = true;
      else if (tried.point.slope * (bracket[high].at - bracket[low].at) >= 0)
        bracket[high] = bracket[low];
      bracket[low] = tried;
    }
  }
  length = bracket[low].at;
  return bracket[low].point;
}

double LBFGS::step(const Evaluate& evaluate) {
  const NoGrad no_grad;
  const graph::NoAutocast in_given_types;
  Tensor parameters = flat_parameters();
  const Extent evaluations_before = evaluation_count_;
  Point now;
  {
    Evaluation found;
    {
      const EnableGrad gradients;
      found = evaluate();
    }
    now = {found.loss, gradient_of(found)};
  }
  const double first_loss = now.loss;
  ++evaluation_count_;
  if (largest(now.gradient) <= options_.gradient_tolerance) return first_loss;

  for (Extent iteration = 1; iteration <= options_.iterations; ++iteration) {
    ++iteration_count_;
    if (iteration_count_ == 1) {
      direction_ = -now.gradient;
      scale_ = 1;
    } else {
      const Tensor change = (now.gradient - gradient_).eval(), moved = (direction_ * length_).eval();
      const double curvature = dot(change, moved);
      if (curvature > 1e-10) {
        if (static_cast<Extent>(steps_.size()) == options_.history) {
          steps_.erase(steps_.begin());
          gradient_changes_.erase(gradient_changes_.begin());
          curvatures_.erase(curvatures_.begin());
        }
        steps_.push_back(moved);
        gradient_changes_.push_back(change);
        curvatures_.push_back(1 / curvature);
        scale_ = curvature / dot(change, change);
      }
      direction_ = direction(now.gradient);
    }
    gradient_ = now.gradient;
    loss_ = now.loss;
    length_ = iteration_count_ == 1 ? std::min(1.0, 1 / number_of(sum(abs(now.gradient)))) * options_.learning_rate
                                    : options_.learning_rate;
    now.slope = dot(now.gradient, direction_);
    if (now.slope > -options_.change_tolerance) break;

    if (options_.strong_wolfe) {
      now = strong_wolfe(evaluate, parameters, length_, now);
      parameters = (parameters + direction_ * length_).eval();
      assign(parameters);
    } else {
      parameters = (parameters + direction_ * length_).eval();
      // The gradient after the last iteration would not be used.
      if (iteration == options_.iterations) {
        assign(parameters);
        break;
      }
      now = evaluate_at(evaluate, parameters);
      ++evaluation_count_;
    }
    if (evaluation_count_ - evaluations_before >= options_.evaluations) break;
    if (largest(now.gradient) <= options_.gradient_tolerance) break;
    if (largest(direction_ * length_) <= options_.change_tolerance) break;
    if (std::abs(now.loss - loss_) < options_.change_tolerance) break;
  }
  eval_pending();
  return first_loss;
}

nn::StateDict LBFGS::state_dict() const {
  nn::StateDict state;
  const auto number = [&](const char* name, double value) {
    nn::NamedArray entry{name, DType::f64, {}, std::vector<std::byte>(sizeof(double))};
    std::memcpy(entry.bytes.data(), &value, sizeof(double));
    state.push_back(std::move(entry));
  };
  number("iterations", static_cast<double>(iteration_count_));
  number("evaluations", static_cast<double>(evaluation_count_));
  number("H_diag", scale_);
  number("t", length_);
  number("prev_loss", loss_);
  const auto rows = [&](const char* name, std::span<const Tensor> values) {
    nn::NamedArray entry{name, variables_[0].dtype(), {}, {}};
    const Extent width = flat_parameters().numel();
    entry.shape = Shape{static_cast<Extent>(values.size()), width};
    const std::size_t bytes = static_cast<std::size_t>(width) * size_bytes(entry.dtype);
    entry.bytes.resize(bytes * values.size());
    for (std::size_t i = 0; i < values.size(); ++i) values[i].copy_to(entry.bytes.data() + i * bytes, bytes);
    state.push_back(std::move(entry));
  };
  const auto one = [](const Tensor& x) { return x.defined() ? std::vector<Tensor>{x} : std::vector<Tensor>{}; };
  rows("d", one(direction_));
  rows("prev_flat_grad", one(gradient_));
  rows("old_dirs", gradient_changes_);
  rows("old_stps", steps_);
  return state;
}

void LBFGS::load_state_dict(const nn::StateDict& state) {
  const Extent width = flat_parameters().numel();
  std::vector<nn::NamedShape> expected;
  for (const char* name : {"iterations", "evaluations", "H_diag", "t", "prev_loss"})
    expected.push_back({name, DType::f64, {}});
  const auto count_of = [&](const char* name, Extent most) {
    const nn::NamedArray* entry = nn::find(state, name);
    return entry && entry->shape.rank() == 2 ? std::min(entry->shape[0], most) : 0;
  };
  const Extent pairs = count_of("old_stps", options_.history);
  for (const char* name : {"d", "prev_flat_grad"})
    expected.push_back({name, variables_[0].dtype(), Shape{count_of(name, 1), width}});
  for (const char* name : {"old_dirs", "old_stps"})
    expected.push_back({name, variables_[0].dtype(), Shape{pairs, width}});
  nn::check_state(expected, state, true, "LBFGS");

  const auto number = [&](const char* name) {
    double value = 0;
    std::memcpy(&value, nn::find(state, name)->bytes.data(), sizeof(double));
    return value;
  };
  const auto rows = [&](const char* name) {
    const nn::NamedArray& entry = *nn::find(state, name);
    const Tensor all = tensor_from_bytes(entry.bytes.data(), entry.shape, entry.dtype, variables_[0].device());
    std::vector<Tensor> list;
    for (Extent i = 0; i < entry.shape[0]; ++i) list.push_back(reshape(narrow(all, 0, i, 1), {width}).eval());
    return list;
  };
  const auto one = [&](const char* name) {
    const std::vector<Tensor> list = rows(name);
    return list.empty() ? Tensor() : list[0];
  };
  iteration_count_ = static_cast<Extent>(number("iterations"));
  evaluation_count_ = static_cast<Extent>(number("evaluations"));
  scale_ = number("H_diag"), length_ = number("t"), loss_ = number("prev_loss");
  direction_ = one("d"), gradient_ = one("prev_flat_grad");
  gradient_changes_ = rows("old_dirs"), steps_ = rows("old_stps");
  curvatures_.clear();
  for (std::size_t i = 0; i < steps_.size(); ++i) curvatures_.push_back(1 / dot(gradient_changes_[i], steps_[i]));
}

}  // namespace weft::optim
