// Training in f32, bf16 and f16 side by side on one text: loss curves, final validation, time. JSON lines on standard output.
//   bench_precision [device] [preset] [steps] [text] [seed]
#include <fmt/format.h>

#include <chrono>
#include <cstdio>

#include "weft/weft.hpp"

using namespace weft;
using Clock = std::chrono::steady_clock;

int main(int argc, char** argv) {
  const auto argument = [&](int i, const char* otherwise) { return std::string(argc > i ? argv[i] : otherwise); };
  set_default_device(parse_device(argument(1, "cpu")));
  train::TrainRequest request;
  request.out = "unused";
  request.preset = argument(2, "small");
  request.steps = std::stoll(argument(3, "300"));
  request.data = argument(4, ".cache/data/moby-dick.txt");
  request.seed = std::stoull(argument(5, "1"));
  train::RunConfig config = train::new_run(request);
  const auto data = train::TextData::load(*request.data, config.vocabulary, config.model.context);
  config.model.vocabulary = data.vocabulary.size();

  double exact = 0;
  for (const DType precision : {DType::f32, DType::bf16, DType::f16}) {
    config.precision = precision;
    train::Trainer trainer(config, data);
    const auto line = [&](std::string_view rest) {
      fmt::print("{{\"precision\": \"{}\", \"step\": {}, {}}}\n", name_of(precision), trainer.steps(), rest);
      std::fflush(stdout);
    };
    const std::int64_t every = std::max<std::int64_t>(1, config.steps / 20);
    double seconds = 0;
    trainer.step(0).loss.item<float>();  // compiles
    for (auto begin = Clock::now(); trainer.steps() < config.steps;) {
      const train::Trainer::StepResult result = trainer.step(0);
      if (trainer.steps() % every != 0 && trainer.steps() < config.steps) continue;
      const float loss = result.loss.item<float>();
      seconds += std::chrono::duration<double>(Clock::now() - begin).count();
      line(fmt::format("\"loss\": {:.6f}, \"val_loss\": {:.6f}", loss, trainer.evaluate(20).loss));
      begin = Clock::now();
    }
    const double final_loss = trainer.evaluate().loss;
    if (precision == DType::f32) exact = final_loss;
    const optim::LossScale* scale = trainer.loss_scale();
    line(fmt::format(
        "\"final_val_loss\": {:.6f}, \"relative_to_f32\": {:.6f}, \"ms_per_step\": {:.3f}, \"kernels\": {}, "
        "\"scratch_mb\": {:.1f}, \"loss_scale\": {}, \"skipped_steps\": {}",
        final_loss, final_loss / exact - 1,
        1e3 * seconds / static_cast<double>(std::max<std::int64_t>(1, config.steps - 1)),
        trainer.compiled_step().kernel_count(), static_cast<double>(trainer.compiled_step().scratch_bytes()) / 1e6,
        scale ? scale->value() : 1, scale ? scale->skipped_steps() : 0));
  }
}
