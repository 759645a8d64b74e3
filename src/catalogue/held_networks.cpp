#include "catalogue/held_networks.hpp"

#include "weft/dtype.hpp"
#include "weft/grad.hpp"
#include "weft/ops.hpp"

namespace weft::operations {

optim::Optimizer& HeldNetwork::optimizer(double learning_rate) {
  if (!optimizer_)
    optimizer_ = std::make_unique<optim::Adam>(*network_, optim::AdamOptions{.learning_rate = learning_rate});
  else if (optimizer_->learning_rate() != learning_rate)
    optimizer_->set_learning_rate(learning_rate);
  return *optimizer_;
}

double HeldNetwork::step(const train::Examples& batch, const std::string& loss, double learning_rate) {
  optim::Optimizer& adam = optimizer(learning_rate);
  network_->train();
  Step& step = steps_[loss];
  if (!step)
    step = compile([this, &adam, of = train::loss_named(loss)](const Tensor& x, const Tensor& y) {
      const Tensor value = of((*network_)(x), y);
      adam.step(grad(value, adam.parameters()));
      return value;
    });
  return static_cast<double>(step(batch.x, batch.y).item<float>());
}

void HeldNetwork::reset_optimizer() {
  if (optimizer_) optimizer_->reset();
}

Tensor network_tensor(const Tensor& x) { return cast(x, is_integer(x.dtype()) ? DType::i32 : DType::f32); }

train::Examples examples_of(const Value& input) {
  return {network_tensor(input["x"].tensor()), network_tensor(input["y"].tensor())};
}

}  // namespace weft::operations
