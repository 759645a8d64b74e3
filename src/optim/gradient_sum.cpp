#include "weft/optim/gradient_sum.hpp"

#include <fmt/format.h>

#include "graph/autocast.hpp"
#include "optim/flat.hpp"
#include "weft/grad.hpp"
#include "weft/ops.hpp"

namespace weft::optim {
namespace {

Variable flat_zeros(std::span<const Variable> parameters) {
  if (parameters.empty()) throw UsageError("GradientSum: no parameters");
  Extent count = 0;
  for (const Variable& p : parameters) {
    if (p.dtype() != parameters[0].dtype())
      throw UsageError(fmt::format("GradientSum: parameters of {} and {}; make one sum for each dtype",
                                   name_of(parameters[0].dtype()), name_of(p.dtype())));
    count += p.numel();
  }
  return Variable(zeros({count}, parameters[0].dtype(), parameters[0].device()), "gradient_sum", false);
}

}  // namespace

GradientSum::GradientSum(std::span<const Variable> parameters)
    : sum_(flat_zeros(parameters)), count_(float_variable(0, "gradient_sum.count", parameters[0].device())) {
  for (const Variable& p : parameters) shapes_.push_back(p.shape());
}

void GradientSum::add(std::span<const Tensor> gradients) {
  const NoGrad no_grad;
  const graph::NoAutocast in_given_types;
  if (gradients.size() != shapes_.size())
    throw UsageError(fmt::format("GradientSum: {} gradients for {} parameters", gradients.size(), shapes_.size()));
  std::vector<Tensor> parts;
  for (std::size_t i = 0; i < gradients.size(); ++i) {
    if (gradients[i].shape() != shapes_[i])
      throw ShapeError(fmt::format("GradientSum: gradient {} has shape {}, its parameter {}", i,
                                   gradients[i].shape().to_string(), shapes_[i].to_string()));
    parts.push_back(reshape(cast(gradients[i], sum_.dtype()), {gradients[i].numel()}));
  }
  sum_.assign(sum_.value() + concat(parts, 0));
  count_.assign(count_.value() + 1.0);
}

std::vector<Tensor> GradientSum::take_mean() {
  const NoGrad no_grad;
  const graph::NoAutocast in_given_types;
  const Tensor mean = sum_.value() / cast(count_.value(), sum_.dtype());
  std::vector<Tensor> gradients;
  Extent begin = 0;
  for (const Shape& shape : shapes_) {
    gradients.push_back(reshape(narrow(mean, 0, begin, shape.numel()), shape));
    begin += shape.numel();
  }
  sum_.assign(zeros_like(sum_.value()));
  count_.assign(zeros_like(count_.value()));
  return gradients;
}

}  // namespace weft::optim
