// Training of a small GPT on a text, step by step, and what it writes.
#include <chrono>

#include "browser/src/module.hpp"
#include "weft/ops.hpp"
#include "weft/train.hpp"

using namespace weft;
using namespace weft::browser;

namespace {

using Clock = std::chrono::steady_clock;

struct TextTraining {
  train::RunConfig config;
  train::TextData data;
  train::Trainer trainer;
  double seconds = 0;

  TextTraining(train::RunConfig run, train::TextData text)
      : config(std::move(run)), data(std::move(text)), trainer(config, data) {}
};

TextTraining& training_of(std::uint64_t id) { return object_of<TextTraining, Kind::trainer>(id, "trainer"); }

}  // namespace

/// A new run on the text in a file. `numbers`: steps, learning rate, batch, context, layers, heads, width, seed; a NaN keeps the
/// preset's. It runs on the default device.
WEFT_EXPORT(weft_browser_trainer_create)
weft_status weft_browser_trainer_create(const char* path, const char* preset, const double* numbers,
                                        std::uint64_t* result) {
  return capi::guarded([&] {
    capi::required(numbers, "numbers");
    train::TrainRequest request;
    request.data = capi::required(path, "path");
    request.preset = capi::required(preset, "preset");
    const auto set = [&](auto& field, int index) {
      using Number = typename std::decay_t<decltype(field)>::value_type;
      if (!is_given(numbers[index])) return;
      if (!(numbers[index] >= 0 && numbers[index] <= 9007199254740992.0))
        throw UsageError(fmt::format("{} is not a number that a run can have", numbers[index]));
      field = static_cast<Number>(numbers[index]);
    };
    set(request.steps, 0);
    set(request.learning_rate, 1);
    set(request.batch, 2);
    set(request.context, 3);
    set(request.layers, 4);
    set(request.heads, 5);
    set(request.width, 6);
    set(request.seed, 7);
    train::RunConfig config = train::new_run(request);
    train::TextData data = train::TextData::load(*request.data, config.vocabulary, config.model.context);
    config.model.vocabulary = std::max(config.model.vocabulary, data.vocabulary.size());
    config.check();
    manual_seed(static_cast<std::uint32_t>(config.seed));
    *capi::required(result, "result") =
        objects<TextTraining, Kind::trainer>().add(std::make_shared<TextTraining>(std::move(config), std::move(data)));
  });
}
/// Makes the next step; `loss` is that of its batch, before the update.
WEFT_EXPORT(weft_browser_trainer_step) weft_status weft_browser_trainer_step(std::uint64_t trainer, double* loss) {
  return capi::guarded([&] {
    TextTraining& run = training_of(trainer);
    const auto start = Clock::now();
    const double value = static_cast<double>(run.trainer.step(run.seconds).loss.item<float>());
    run.seconds += std::chrono::duration<double>(Clock::now() - start).count();
    *capi::required(loss, "loss") = value;
  });
}
/// What the model writes after the prompt. The text is valid until the next function that gives a text.
WEFT_EXPORT(weft_browser_trainer_generate)
weft_status weft_browser_trainer_generate(std::uint64_t trainer, const char* prompt, double count, double temperature,
                                          double seed, const char** text) {
  return capi::guarded([&] {
    TextTraining& run = training_of(trainer);
    train::SampleOptions options;
    if (is_given(temperature)) options.temperature = temperature;
    if (is_given(seed)) options.seed = static_cast<std::uint64_t>(seed);
    if (!(count >= 0 && count <= 1e6)) throw UsageError(fmt::format("{} tokens; 0 to 1000000 can be written", count));
    train::Generator generator(run.trainer.model(), run.data.vocabulary);
    std::string written =
        generator.generate(capi::required(prompt, "prompt"), static_cast<std::int64_t>(count), options);
    run.trainer.model().train();
    *capi::required(text, "text") = capi::keep_text(std::move(written));
  });
}
/// Writes a checkpoint, which `weft generate` and `weft train --resume` read.
WEFT_EXPORT(weft_browser_trainer_save) weft_status weft_browser_trainer_save(std::uint64_t trainer, const char* path) {
  return capi::guarded(
      [&] { train::save_checkpoint(capi::required(path, "path"), training_of(trainer).trainer.checkpoint()); });
}
WEFT_EXPORT(weft_browser_trainer_release) weft_status weft_browser_trainer_release(std::uint64_t trainer) {
  return release<TextTraining, Kind::trainer>(trainer, "trainer");
}
