#include "optim/rule.hpp"

namespace weft::optim {
namespace {

enum AdafactorKind : int { whole_variance, factored_variance };

Shape without(const Shape& shape, int axis) {
  std::vector<Extent> extents(shape.begin(), shape.end());
  extents[extents.size() - static_cast<std::size_t>(axis)] = 1;
  return Shape(extents);
}
Shape row_shape(const Shape& shape) { return without(shape, 1); }
Shape column_shape(const Shape& shape) { return without(shape, 2); }

std::vector<StateRow> adafactor_states(const AdafactorOptions& /*options*/, int kind) {
  if (kind == whole_variance) return {{.name = "variance"}};
  return {{.name = "row_var", .shape = row_shape}, {.name = "col_var", .shape = column_shape}};
}

double distance_from_one(DType type) {
  switch (type) {
    case DType::f64: return 0x1p-52;
    case DType::f16: return 0x1p-10;
    case DType::bf16: return 0x1p-7;
    default: return 0x1p-23;
  }
}

Tensor root_mean_square(const Tensor& x) { return sqrt(mean(square(x))); }
Tensor at_least(const Tensor& x, double least) { return maximum(x, least); }

Tensor adafactor_update(const AdafactorOptions& o, Update& u) {
  const double epsilon = o.epsilon_1 > 0 ? o.epsilon_1 : distance_from_one(u.gradient.dtype());
  const Tensor share = exp(log(u.step) * o.beta_2_decay);
  const Tensor rate = minimum(u.rate, rsqrt(u.step));
  const std::vector<Tensor> gradients = u.parts(u.gradient), parameters = u.parts(u.parameter);

  std::vector<Tensor> variances;
  if (u.kind == whole_variance) {
    u.state[0] = u.state[0] + (square(u.gradient) - u.state[0]) * share;
    variances = u.parts(u.state[0]);
  } else {
    std::vector<Shape> rows, columns;
    for (const Shape& shape : u.shapes) rows.push_back(row_shape(shape)), columns.push_back(column_shape(shape));
    std::vector<Tensor> r = Update::parts(u.state[0], rows), c = Update::parts(u.state[1], columns);
    for (std::size_t i = 0; i < gradients.size(); ++i) {
      const Tensor squares = square(gradients[i]);
      r[i] = r[i] + (mean(squares, -1, {.keepdims = true}) - r[i]) * share;
      c[i] = c[i] + (mean(squares, -2, {.keepdims = true}) - c[i]) * share;
      variances.push_back(r[i] * c[i] / at_least(mean(r[i], -2, {.keepdims = true}), epsilon));
    }
    u.state[0] = Update::join(r);
    u.state[1] = Update::join(c);
  }
  std::vector<Tensor> steps;
  for (std::size_t i = 0; i < gradients.size(); ++i) {
    const Tensor update = gradients[i] * rsqrt(at_least(variances[i], epsilon * epsilon));
    const Tensor clip = at_least(root_mean_square(update) / o.clip_threshold, 1);
    // The size of the parameter is that before the decay.
    steps.push_back(update * (rate * at_least(root_mean_square(parameters[i]), o.epsilon_2) / clip));
  }
  const Tensor decayed = u.decay == 0 ? u.parameter : u.parameter * (1.0 - u.rate * u.decay);
  return decayed - Update::join(steps);
}

}  // namespace

const Rule<AdafactorOptions>& rule_of(const AdafactorOptions& /*options*/) {
  using O = AdafactorOptions;
  static const Rule<O> rule = {
      .name = "adafactor",
      .title = "Adafactor",
      .doc = "Adam without a mean, with the rows and columns of the mean square",
      .fields = {{"beta_2_decay", &O::beta_2_decay, {}, "power of the step that is the share of new squares"},
                 {"epsilon_1", &O::epsilon_1, Range::not_negative, "least root of the mean square; 0: by the dtype"},
                 {"epsilon_2", &O::epsilon_2, Range::not_negative, "least size of a parameter, for the step"},
                 {"clip_threshold", &O::clip_threshold, Range::positive, "largest root mean square of an update"}},
      .states = adafactor_states,
      .update = adafactor_update,
      .decay = [](const O&) { return Decay::own; },
      .kind = [](const O&, const nn::NamedParameter& p) -> int {
        return p.variable.shape().rank() >= 2 ? factored_variance : whole_variance;
      }};
  return rule;
}

}  // namespace weft::optim
