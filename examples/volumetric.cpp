// A volumetric network: a mixture of experts in a grid learns two moons, is packed to 4 bits, and evolves a little further.
#include <weft/weft.hpp>

#include <cstdio>
#include <filesystem>

using namespace weft;

int main() {
  // Two half circles, 200 points each, one upside down inside the other.
  const Tensor angle = unsqueeze(linspace(0, 3.1416, 200), 1);
  const Tensor x =
      concat({concat({cos(angle), sin(angle)}, 1), concat({1.0 - cos(angle), 0.5 - sin(angle)}, 1)}, 0).eval();
  const Tensor y = concat({zeros({200}, DType::i32), ones({200}, DType::i32)}, 0).eval();

  grid::Description description(1, 2, 2, 1);
  description.at({0, 0, 0, 0}) = grid::dense_layer(2, 16, grid::Activation::tanh);
  description.at({0, 0, 1, 0}) =
      grid::mixture_layer({grid::dense_layer(16, 16, grid::Activation::gelu), grid::swiglu_layer(16, 24)},
                          grid::dense_layer(16, 2, grid::Activation::linear));
  description.at({0, 1, 0, 0}) = grid::residual_layer();
  description.at({0, 1, 1, 0}) = grid::dense_layer(16, 2, grid::Activation::linear);

  manual_seed(1);
  grid::Network network(description);
  network.morph(DType::int4);  // the pass sees four bits of each weight
  optim::Adam optimizer(network, {.learning_rate = 0.01});
  const auto loss = [](const Tensor& scores, const Tensor& classes) { return nn::cross_entropy(scores, classes); };
  train::fit(network, loss, optimizer, {x, y}, {.epochs = 40, .on_epoch = [](const train::EpochReport& r) {
                                                  if (r.epoch % 10 == 0)
                                                    std::printf("epoch %2d  loss %.4f\n", r.epoch, r.loss);
                                                  return true;
                                                }});

  const std::string file = "moons.safetensors";
  grid::save(network, file);
  const auto packed = grid::load(file);
  std::printf("%zu parameters, %zu bytes in f32, %zu packed\n", network.memory().parameters,
              network.memory().master_bytes, network.memory().packed_bytes);
  const bool is_equal = (*packed)(x).to_vector<float>() == network(x).to_vector<float>();
  std::filesystem::remove(file);

  evolve::Population population(*packed,
                                {.size = 8, .mutation = {.weights = 0.3, .amount = 0.01, .activation = 0, .node = 0}});
  for (int i = 0; i < 5; ++i) {
    const auto generation =
        population.evolve([&](const grid::Network& n) { return -nn::cross_entropy(n(x), y).item<float>(); });
    std::printf("%s\n", evolve::to_string(generation).c_str());
  }
  const double accuracy = evolve::evaluate(population.best(), x, y).accuracy();
  std::printf("%.1f %% of the points are on the right moon\n", 100 * accuracy);
  return accuracy > 0.95 && is_equal ? 0 : 1;
}
