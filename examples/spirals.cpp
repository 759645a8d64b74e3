// Two spirals wound around each other: which one does a point belong to? A small network learns it in a second.
#include <weft/weft.hpp>

#include <cstdio>

using namespace weft;

struct Classifier : nn::Module {
  nn::Child<nn::Linear> input{this, "input", 2, 64}, hidden{this, "hidden", 64, 64}, output{this, "output", 64, 1};

  Tensor operator()(const Tensor& points) const { return output(tanh(hidden(tanh(input(points))))); }
};

int main() {
  // 200 points on each spiral, one and a half turns; the second is the first turned by half a circle.
  const Tensor along = unsqueeze(linspace(0.05, 1, 200), 1);
  const Tensor spiral = 3.0 * along * concat({cos(9.42 * along), sin(9.42 * along)}, 1);
  const Tensor x = concat({spiral, -spiral}, 0), y = concat({ones({200, 1}), zeros({200, 1})}, 0);

  manual_seed(1);
  Classifier model;
  optim::AdamW optimizer(model, {.learning_rate = 0.02});
  auto step = compile([&](Tensor inputs, Tensor targets) {
    const Tensor loss = nn::binary_cross_entropy(model(inputs), targets);
    optimizer.step(grad(loss, optimizer.parameters()));
    return loss;
  });
  for (int i = 0; i <= 600; ++i) {
    const Tensor loss = step(x, y);
    if (i % 100 == 0) std::printf("step %3d  loss %.4f\n", i, loss.item<float>());
  }

  const float share = mean(eq(model(x) > 0.0, y > 0.5)).item<float>();
  std::printf("%.1f %% of the points are on the right spiral\n", 100 * share);
  model.save("spirals.safetensors");
  return share > 0.98f ? 0 : 1;
}
