// weft train text
#include <cstdlib>
#include <filesystem>
#include <iterator>
#include <memory>
#include <string>
#include <vector>

#include "cli/commands.hpp"
#include "cli/language_model.hpp"
#include "cli/output.hpp"
#include "cli/stop_on_interrupt.hpp"
#include "cli/train_console.hpp"
#include "weft/compile.hpp"
#include "weft/optim/table.hpp"
#include "weft/train/config.hpp"
#include "weft/train/need.hpp"
#include "weft/train/run.hpp"

namespace weft::cli {
namespace {

namespace fs = std::filesystem;

// The demo's text, where script/setup puts it: $WEFT_DATA_DIR, else .cache/data below here.
std::optional<fs::path> demo_text() {
  const char* folder = std::getenv("WEFT_DATA_DIR");
  const fs::path path = (folder && *folder ? fs::path(folder) : fs::path(".cache/data")) / "moby-dick.txt";
  std::error_code ignored;
  return fs::exists(path, ignored) ? std::optional(path) : std::nullopt;
}

struct TextRequest : train::TrainRequest {
  bool quiet = false, is_dry_run = false;
  std::string memory;    // for device_memory
  std::string products;  // a ProductPrecision by name; empty: as the session has it
};

// Before its first step a run has nothing to save, so a signal may end the process.
class StopsTraining : public train::Observer {
 public:
  explicit StopsTraining(std::stop_source stop) : stop_(std::move(stop)) {}
  void begin(const train::RunStart&) override { interrupts_.emplace(stop_); }

 private:
  std::stop_source stop_;
  std::optional<StopOnInterrupt> interrupts_;
};

/// The need of the run as a table; kFailure if it does not fit.
int dry_run(const TextRequest& request) {
  if (request.divide) throw UsageError("--dry-run plans the step of one device; leave out --divide");
  const train::TrainingNeed need = train::training_need(request);
  put_text(need.to_string());
  return need.fits ? kOk : kFailure;
}

int train_text(const TextRequest& request) {
  if (const auto products = product_precision_of(request.products)) compile_settings().products = *products;
  if (request.is_dry_run) return dry_run(request);
  const std::stop_source stop;
  TrainConsole console(request.quiet);
  StopsTraining stops(stop);
  train::Observer* const observers[] = {&console, &stops};
  return train::train_text(request, observers, stop.get_token()).interrupted ? kInterrupted : kOk;
}

std::string preset_help() {
  std::string text = "model and batch to start from:";
  for (const train::Preset& preset : train::presets())
    text += "\n  " + std::string(preset.name) + ": " + std::string(preset.doc);
  return text;
}

void set_up_text(CLI::App& app, Action& action) {
  auto request = std::make_shared<TextRequest>();
  TextRequest& r = *request;
  app.footer(
      "Writes to OUT: last.safetensors and best.safetensors (each with the one before it), metrics.jsonl, loss.svg,\n"
      "samples.txt, config.json. Ctrl-C, SIGTERM or a lost terminal end the run after the step at hand, with a\n"
      "checkpoint. A run by --steps that is resumed ends with the same bits as one that was never interrupted.");

  const char* run = "Run";
  app.add_option("--data", r.data,
                 "the text, UTF-8 (default: the demo's, moby-dick.txt in $WEFT_DATA_DIR or .cache/data)")
      ->group(run);
  app.add_option("--out", r.out, "folder of the run")->group(run)->required();
  app.add_flag("--resume", r.resume, "go on with the run in OUT; options that it fixes need not be given again")
      ->group(run);
  app.add_option("--preset", r.preset, preset_help() + "\n(default: small)")->group(run);
  app.add_option("--device", r.device,
                 "auto, cpu, webgpu or webgpu:INDEX; several, as in webgpu:0,webgpu:1, share each batch")
      ->group(run)
      ->capture_default_str();
  app.add_option(
         "--products", r.products,
         "products of f32 where a device has matrix units: exact, high (three products of halves) or medium (one) "
         "(default: $WEFT_PRODUCTS, else exact)")
      ->group(run)
      ->check(CLI::IsMember(std::vector<std::string>(std::begin(kProductPrecisions), std::end(kProductPrecisions))));
  app.add_option("--steps", r.steps, "steps in all (default: the preset's)")->group(run);
  app.add_option("--seconds", r.seconds, "train for this long; without --steps the learning rate falls over the time")
      ->group(run);
  app.add_flag(
         "--dry-run", r.is_dry_run,
         "plans a step without running it: the memory of the run, the largest batch that fits, and whether the run "
         "fits (the exit code); writes nothing")
      ->group(run);
  app.add_option("--device-memory", r.memory,
                 "what the run may take on a device, as 6G (default: what the CPU has free)")
      ->group(run);
  app.add_option("--seed", r.seed, "seed of weights, batches and dropout (default: 1)")->group(run);
  app.add_option("--vocabulary", r.vocabulary, "char or byte (default: char)")->group(run);

  const char* model = "Model";
  app.add_option("--context", r.context, "positions that the model sees")->group(model);
  app.add_option("--layers", r.layers)->group(model);
  app.add_option("--width", r.width)->group(model);
  app.add_option("--heads", r.heads, "heads of attention; the width must be a multiple of them")->group(model);
  app.add_option("--dropout", r.dropout)->group(model);
  app.add_option("--tied", r.tied, "whether the head shares the token embedding's weights: true or false")
      ->group(model);

  const char* optimizer = "Optimizer";
  app.add_option("--batch", r.batch, "texts in a step")->group(optimizer);
  app.add_option("--accumulate", r.accumulate, "batches whose mean gradient makes one update (default: 1)")
      ->group(optimizer);
  app.add_option("--learning-rate", r.learning_rate, "largest learning rate")->group(optimizer);
  app.add_option("--warm-up", r.warm_up,
                 "steps over which the learning rate rises (default: 100; at most a tenth of the run)")
      ->group(optimizer);
  app.add_option("--final-fraction", r.final_fraction,
                 "final learning rate, as a fraction of --learning-rate (default: 0.1)")
      ->group(optimizer);
  std::string names;
  for (const optim::RuleInfo& rule : optim::rules()) names += (names.empty() ? "" : ", ") + rule.name;
  app.add_option("--optimizer", r.optimizer,
                 fmt::format("{} (default: adamw, for which the presets' learning rates are)", names))
      ->group(optimizer);
  app.add_option(
         "--optimizer-option", r.optimizer_options,
         "NAME=VALUE, an option of the optimizer, as momentum=0.9; may be given again (weft ops list shows them)")
      ->group(optimizer);
  app.add_option("--weight-decay", r.weight_decay, "of matrices only (default: 0.1)")->group(optimizer);
  app.add_option("--beta-1", r.beta_1, "decay rate of the gradient's mean, for optimizers with it (default: 0.9)")
      ->group(optimizer);
  app.add_option("--beta-2", r.beta_2, "decay rate of the mean square, for optimizers with it (default: 0.99)")
      ->group(optimizer);
  app.add_option("--clip", r.clip_norm, "largest norm of the gradient of all parameters (default: 1; 0: none)")
      ->group(optimizer);

  app.add_option("--precision", r.precision,
                 "f32, bf16 or f16: type of products, attention and the activations between them; weights are f32 "
                 "(default: f32)")
      ->group(optimizer);

  app.add_flag("--divide", r.divide,
               "several devices divide the layers, so that a model may be larger than one device; the batches of "
               "--accumulate go through all of them, several at a time")
      ->group(run);
  app.add_option("--exchange", r.exchange,
                 "f32, bf16 or f16: type in which gradients go between several devices; f16 needs --precision f16 "
                 "(default: f32)")
      ->group(optimizer);

  app.add_option("--recompute", r.recompute,
                 "compute the activations inside blocks again for gradients, which saves memory: true or false "
                 "(default: false)")
      ->group(optimizer);

  const char* report = "Reports";
  app.add_option("--log-every", r.log_every,
                 "steps between lines of metrics.jsonl (default: 10, or 2 seconds if that is less)")
      ->group(report);
  app.add_option(
         "--eval-every", r.eval_every,
         "steps between measurements of the validation loss (default: a tenth of the run, 250 by time; 0: at the end)")
      ->group(report);
  app.add_option("--eval-batches", r.eval_batches,
                 "batches of each measurement; the last one takes the whole validation text")
      ->group(report)
      ->capture_default_str();
  app.add_option("--checkpoint-every", r.checkpoint_every, "steps between checkpoints (default: every 30 seconds)")
      ->group(report);
  app.add_option("--sample-every", r.sample_every,
                 "steps between samples (default: at every fourth measurement; 0: at the end)")
      ->group(report);
  app.add_option("--sample-tokens", r.sample_tokens, "length of samples; 0: none")
      ->group(report)
      ->capture_default_str();
  app.add_flag(
         "--profile", r.profile,
         "when the run ends, prints which kernels of a step take how long, and writes profile.json and trace.json\n"
         "(for ui.perfetto.dev) to OUT")
      ->group(report);
  app.add_flag("--quiet", r.quiet, "print warnings and errors only")->group(report);

  app.callback([&action, request] {
    action = [request] {
      if (!request->data && !request->resume) request->data = demo_text();
      if (!request->memory.empty()) request->device_memory = parse_bytes(request->memory);
      return train_text(*request);
    };
  });
}

}  // namespace

void set_up_train(CLI::App& app, Action& action) {
  app.require_subcommand(1);
  set_up_text(*app.add_subcommand("text", "train a GPT on a text"), action);
}

}  // namespace weft::cli
