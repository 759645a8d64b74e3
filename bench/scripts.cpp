// Scripts beside C++ in one run: the cost of an op, and of a training step with a captured plan.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <string>
#include <vector>

#include "weft/compile.hpp"
#include "weft/grad.hpp"
#include "weft/nn.hpp"
#include "weft/ops/random.hpp"
#include "weft/optim.hpp"
#include "weft/script.hpp"
#include "weft/session.hpp"

namespace {

using namespace weft;

double seconds(const auto& work) {
  const auto begin = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

constexpr int kOps = 20'000, kSteps = 60, kRounds = 7;

constexpr std::string_view kOpsScript = R"js(
  const x = tensor([1, 2, 3]);
  globalThis.ops = (n) => { let y; for (let i = 0; i < n; ++i) y = x.add(x).exp().sum(0); };
)js";
constexpr std::string_view kTrainScript = R"js(
  manualSeed(1);
  class Model extends nn.Module {
    hidden = nn.linear(256, 512); middle = nn.linear(512, 512); output = nn.linear(512, 10);
    forward(x) { return this.output(this.middle(this.hidden(x).relu()).relu()) }
  }
  const model = new Model(), optimizer = optim.adamW(model, { learningRate: 1e-3 });
  const inputs = randn([64, 256]), wanted = zeros([64], "i32");
  const step = compile((x, y) => { const loss = nn.crossEntropy(model(x), y); optimizer.step(grad(loss, optimizer)); return loss });
  globalThis.train = (n) => { let loss; for (let i = 0; i < n; ++i) loss = step(inputs, wanted).item(); return loss };
)js";

struct Model : nn::Module {
  nn::Child<nn::Linear> hidden{this, "hidden", 256, 512}, middle{this, "middle", 512, 512},
      output{this, "output", 512, 10};
  Tensor operator()(const Tensor& x) const { return output(relu(middle(relu(hidden(x))))); }
};

std::string checked(script::Isolate& isolate, const std::string& text) {
  const script::Result result = isolate.evaluate(text);
  if (result.outcome != script::Outcome::done) throw UsageError(result.message);
  return result.value;
}

// The median of the ratios of neighbouring rounds, so that a change of the machine's speed falls on both.
double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

}  // namespace

int main() {
  script::Isolate isolate({.device = kCpu});
  checked(isolate, std::string(kOpsScript));
  const Tensor x = tensor({1.0f, 2.0f, 3.0f});
  const auto ops_in_cpp = [&] {
    Tensor y;
    for (int i = 0; i < kOps; ++i) y = sum(exp(x + x), 0);
  };
  std::vector<double> cpp, scripted, over;
  for (int round = 0; round < kRounds; ++round) {
    cpp.push_back(seconds(ops_in_cpp) / (3 * kOps) * 1e6);
    scripted.push_back(seconds([&] { checked(isolate, fmt::format("ops({})", kOps)); }) / (3 * kOps) * 1e6);
    over.push_back(scripted.back() - cpp.back());
  }
  fmt::print("an op: C++ {:.3f} us, script {:.3f} us, overhead {:.3f} us\n", median(cpp), median(scripted),
             median(over));

  const Session session;
  const auto in = session.enter();
  manual_seed(1);
  Model model;
  optim::AdamW optimizer(model, {.learning_rate = 1e-3});
  const Tensor inputs = randn({64, 256}), wanted = zeros({64}, DType::i32);
  auto step = compile([&](Tensor a, Tensor b) {
    const Tensor loss = nn::cross_entropy(model(a), b);
    optimizer.step(grad(loss, optimizer.parameters()));
    return loss;
  });
  float loss = 0;
  const auto train = [&] {
    for (int i = 0; i < kSteps; ++i) loss = step(inputs, wanted).item<float>();
  };
  checked(isolate, std::string(kTrainScript));
  const auto train_script = [&] { checked(isolate, fmt::format("train({})", kSteps)); };
  train();
  train_script();
  std::vector<double> ratios, cpp_ms, script_ms;
  for (int round = 0; round < kRounds; ++round) {
    cpp_ms.push_back(seconds(train) / kSteps * 1e3);
    script_ms.push_back(seconds(train_script) / kSteps * 1e3);
    ratios.push_back(script_ms.back() / cpp_ms.back());
  }
  fmt::print("a training step: C++ {:.3f} ms, script {:.3f} ms, ratio {:.3f}\n", median(cpp_ms), median(script_ms),
             median(ratios));

  const double start = seconds([] { script::Isolate fresh({.device = kCpu}); });
  const double types = seconds([&] { checked(isolate, "0"); });
  fmt::print("a new isolate: {:.1f} ms; a line of a conversation: {:.2f} ms\n", start * 1e3, types * 1e3);
}
