// Writes what step_judge.py compares with PyTorch: a small GPT, a batch, its gradients, and the weights after some steps.
#include <cstdio>

#include "weft/weft.hpp"

using namespace weft;

namespace {

constexpr int kSteps = 5;

nn::NamedArray array_of(const std::string& name, const Tensor& value) {
  nn::NamedArray array{name, value.dtype(), value.shape(),
                       std::vector<std::byte>(static_cast<std::size_t>(value.numel()) * size_bytes(value.dtype()))};
  value.copy_to(array.bytes.data(), array.bytes.size());
  return array;
}

}  // namespace

int main(int count, char** arguments) {
  if (count != 3) {
    std::fprintf(stderr, "usage: step_dump DEVICE OUT.safetensors\n");
    return 2;
  }
  set_default_device(parse_device(arguments[1]));
  nn::GPT model({.vocabulary = 29, .context = 24, .layers = 2, .heads = 3, .width = 48});
  model.initialize(1);
  std::vector<train::Token> tokens;
  for (int i = 0; i < 4 * 25; ++i) tokens.push_back((i * i + i / 7) % 29);
  const Tensor batch = tensor<train::Token>(tokens, {4, 25});
  auto loss_of = [&](const Tensor& b) { return nn::cross_entropy(model(narrow(b, 1, 0, 24)), narrow(b, 1, 1, 24)); };

  nn::StateDict out;
  for (nn::NamedArray& a : model.state_dict()) out.push_back({"before." + a.name, a.dtype, a.shape, a.bytes});
  out.push_back(array_of("batch", batch));
  optim::AdamW optimizer(model, {.learning_rate = 4e-3, .beta_2 = 0.99, .weight_decay = 0.1, .clip_norm = 1});
  const std::vector<Tensor> gradients = grad(loss_of(batch), optimizer.parameters());
  for (std::size_t i = 0; i < gradients.size(); ++i)
    out.push_back(array_of("grad." + optimizer.parameters()[i].name(), gradients[i]));
  auto step = compile([&](Tensor b) {
    const Tensor loss = loss_of(b);
    optimizer.step(grad(loss, optimizer.parameters()));
    return loss;
  });
  for (int i = 0; i < kSteps; ++i) out.push_back(array_of("loss." + std::to_string(i), step(batch)));
  for (nn::NamedArray& a : model.state_dict()) out.push_back({"after." + a.name, a.dtype, a.shape, a.bytes});
  nn::save_state(arguments[2], out);
}
