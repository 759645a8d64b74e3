// Two spirals wound around each other: which one does a point belong to? A small network learns it in a second.
#include <weft/weft.hpp>

#include <cmath>
#include <cstdio>

using namespace weft;

struct Classifier : nn::Module {
  nn::Linear input{2, 64}, hidden{64, 64}, output{64, 1};

  Classifier() {
    add("input", input);
    add("hidden", hidden);
    add("output", output);
  }
  Tensor operator()(const Tensor& points) const { return output(tanh(hidden(tanh(input(points))))); }
};

int main() {
  // 200 points on each spiral, one and a half turns; the second is the first turned by half a circle.
  std::vector<float> points, labels;
  for (int i = 0; i < 400; ++i) {
    const float along = static_cast<float>(i / 2 + 10) / 210, angle = 9.42f * along, radius = 3 * along,
                sign = i % 2 ? -1.f : 1.f;
    points.insert(points.end(), {sign * radius * std::cos(angle), sign * radius * std::sin(angle)});
    labels.push_back(static_cast<float>(i % 2));
  }
  const Tensor x = tensor<float>(points, {400, 2}), y = tensor<float>(labels, {400, 1});

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

  const Tensor right = cast(elementwise("eq", {cast(model(x) > scalar_like(0, x), DType::f32), y}), DType::f32);
  const float share = mean(right).item<float>();
  std::printf("%.1f %% of the points are on the right spiral\n", 100 * share);
  model.save("spirals.safetensors");
  return share > 0.98f ? 0 : 1;
}
