// Training on several devices beside training on the first of them, in turns in one run: tokens a second, and how long the
// mean of the gradients takes alone. The batch of a device is the same in both (weak scaling).
//   bench_train_devices [device,device,...] [preset] [seconds] [f32|bf16|f16] [batches that make an update] [exchange: f32|bf16|f16] [batches|layers]
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <string>

#include "figure.hpp"
#include "runtime/devices.hpp"
#include "weft/weft.hpp"

using namespace weft;
using Clock = std::chrono::steady_clock;

namespace {

double seconds_since(Clock::time_point begin) { return std::chrono::duration<double>(Clock::now() - begin).count(); }

/// Seconds that the mean of so many numbers takes, the best of ten.
double seconds_of_mean(std::span<const Device> devices, Extent numbers, DType type) {
  double best = 1e30;
  parallel::run(devices, [&](parallel::Member& member) {
    const Extent bucket = std::min<Extent>(numbers, Extent(1) << 24);
    std::vector<Tensor> values;
    for (Extent left = numbers; left > 0; left -= bucket)
      values.push_back(cast(rand({std::min(left, bucket)}), type).eval());
    Compiled use([](std::span<const Tensor> means) {
      std::vector<Tensor> sums;
      for (const Tensor& mean : means) sums.push_back(sum(cast(mean, DType::f32)));
      return sums;
    });
    for (int i = 0; i < 12; ++i) {
      member.barrier();
      const auto begin = Clock::now();
      const std::vector<Tensor> sums = use(member.all_reduce_mean(values));
      for (const Tensor& sum : sums) sum.eval();
      synchronize(default_device());
      if (member.rank() == 0 && i > 1) best = std::min(best, seconds_since(begin));
    }
  });
  return best;
}

int run(int argc, char** argv) {
  auto argument = [&](int i, const char* otherwise) { return std::string(argc > i ? argv[i] : otherwise); };
  const std::vector<Device> devices = parallel::parse_devices(argument(1, "cpu"));
  set_default_device(devices[0]);
  const train::Preset preset = train::preset(argument(2, "small"));
  const double seconds = std::stod(argument(3, "5"));
  const std::string precision = argument(4, "f32");
  const int count = static_cast<int>(devices.size());

  std::string text;
  for (int i = 0; i < 20000; ++i) text += fmt::format("{} times {} is {}\n", i, i % 7, i * (i % 7));
  train::TextData data;
  data.vocabulary = train::Alphabet::characters_of(text);
  data.tokens = data.vocabulary.encode(text);
  data.training_count = data.tokens.size() - data.tokens.size() / 10;
  train::RunConfig config;
  config.model = preset.model;
  config.model.vocabulary = std::max<Extent>(config.model.vocabulary, data.vocabulary.size());
  config.batch = preset.batch;
  config.steps = 1000000;
  config.precision = train::precision_named(precision);
  config.accumulate = std::stoi(argument(5, "1"));
  config.exchange = train::precision_named(argument(6, "f32"));

  // Batches shared: each device has as many texts as the one alone. Layers divided: the same step.
  const auto sharing = argument(7, "batches") == "layers" ? train::Sharing::layers : train::Sharing::batches;
  const int shares = sharing == train::Sharing::layers ? 1 : count;
  train::Trainer alone(config, data);
  config.batch *= shares;
  train::Trainer together(config, data, devices, sharing);
  fmt::print("{} parameters; the mean over {} devices of as many {} takes {:.2f} ms\n", alone.model().parameter_count(),
             count, name_of(config.exchange),
             1e3 * seconds_of_mean(devices, alone.model().parameter_count(), config.exchange));

  double best_alone = 1e30, best_together = 1e30;
  auto time = [&](train::Trainer& trainer, double& best) {
    constexpr int kSteps = 5;
    trainer.step(0).loss.item<float>();
    const auto begin = Clock::now();
    float loss = 0;
    for (int i = 0; i < kSteps; ++i) loss = trainer.step(0).loss.item<float>();
    best = std::min(best, seconds_since(begin) / kSteps);
    return loss;
  };
  const auto begin = Clock::now();
  float loss_alone = 0, loss_together = 0;
  do {
    loss_alone = time(alone, best_alone);
    loss_together = time(together, best_together);
  } while (seconds_since(begin) < seconds);

  const double ratio = shares * best_alone / best_together;
  fmt::print(
      "{} {} accumulate {} exchange {}: one device {:.2f} ms a step, {} devices {:.2f} ms: {:.2f} times the tokens a "
      "second; "
      "losses {:.4f} and {:.4f} "
      "after {} steps\n",
      argument(2, "small"), precision, config.accumulate, name_of(config.exchange), 1e3 * best_alone, count,
      1e3 * best_together, ratio, loss_alone, loss_together, alone.steps());
  const auto tokens = static_cast<double>(config.tokens_per_step());
  figures::keep(
      {"training on several devices",
       fmt::format("preset {}, {}, {} batches an update, {} devices{}", argument(2, "small"), precision,
                   config.accumulate, count,
                   sharing == train::Sharing::layers ? ", layers divided"
                   : config.exchange == DType::f32   ? ""
                                                     : fmt::format(", exchange in {}", name_of(config.exchange))),
       "tokens/s", tokens / best_together, "one device", tokens / shares / best_alone,
       devices[0].kind == Device::Kind::webgpu ? runtime::backend_of(devices[0]).describe().hardware : ""});
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run(argc, argv);
  } catch (const std::exception& error) {
    fmt::print(stderr,
               "error: {}\n"
               "usage: bench_train_devices [device,device,...] [preset] [seconds] [f32|bf16|f16] [batches that make an "
               "update] [exchange: f32|bf16|f16] [batches|layers]\n",
               error.what());
    return 2;
  }
}
