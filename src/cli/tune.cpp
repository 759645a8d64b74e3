// weft tune
#include <fmt/format.h>

#include <cmath>
#include <memory>
#include <optional>

#include "base/file.hpp"
#include "cli/commands.hpp"
#include "cli/console.hpp"
#include "cli/language_model.hpp"
#include "cli/output.hpp"
#include "cli/stop_on_interrupt.hpp"
#include "text/chat_template.hpp"
#include "weft/encoder.hpp"
#include "weft/error.hpp"
#include "weft/optim/table.hpp"
#include "weft/parallel.hpp"
#include "weft/train/config.hpp"
#include "weft/tune.hpp"

namespace weft::cli {
namespace {

namespace fs = std::filesystem;

struct TuneRequest : tune::Request {
  // --device is read when the command runs: a wrong WEFT_DEVICE must not end those that need none.
  TuneRequest() : tune::Request{.device = kCpu} {}
  std::string device_name = "auto", precision = "f32", preference_loss = "sigmoid", objective, schedule_name = "cosine";
  fs::path template_file;
  std::int64_t threads = 0;
  std::string memory;
  bool quiet = false, keep_activations = false, is_dry_run = false, no_dropout = false;
  std::vector<const CLI::Option*> of_language_models, of_encoders;
};

/// Options that the other kind of model has would do nothing.
void refuse_given(const std::vector<const CLI::Option*>& options, std::string_view of) {
  for (const CLI::Option* option : options)
    if (option->count() > 0) throw UsageError(fmt::format("{} is for {}; leave it out", option->get_name(), of));
}

std::string line_of(const tune::Progress& p) {
  std::string text = fmt::format("step {:>6} of {}", grouped(p.step), grouped(p.steps));
  if (std::isfinite(p.loss)) text += fmt::format("  loss {:.4f}", p.loss);
  if (p.validation_loss) text += fmt::format("  validation {:.4f}", *p.validation_loss);
  if (p.validation_accuracy) text += fmt::format(" ({:.0f}% right)", *p.validation_accuracy * 100);
  if (p.validation_f1) text += fmt::format("  F1 {:.3f}", *p.validation_f1);
  if (p.validation_spearman) text += fmt::format("  Spearman {:.3f}", *p.validation_spearman);
  if (p.balance) text += fmt::format("  balance {:.3f}", *p.balance);
  if (p.accuracy) text += fmt::format("  right {:.0f}%  margin {:.3g}", *p.accuracy * 100, p.margin.value_or(0));
  if (p.step > 0)
    text += fmt::format("  rate {:.2e}  norm {:.3g}  {} tokens/s  {}", p.learning_rate, p.grad_norm,
                        grouped(static_cast<std::int64_t>(p.tokens_per_second)), clock_text(p.seconds));
  return text;
}

void print_begin(Console& console, const TuneRequest& r, const tune::RunStart& start) {
  const std::string numbers = grouped(start.parameters);
  if (start.products == 0 && start.tokens == 0) {  // a text encoder
    console.print(
        fmt::format("{}\ntrains   all weights, {} numbers\ndata     {}: {} examples\nrun      {}: {} steps, {}, {}\n",
                    start.model, numbers, r.data.string(), start.examples, r.out.string(), grouped(start.steps),
                    r.device.to_string(), r.precision));
    return;
  }
  const std::string trains = r.tuner.full ? fmt::format("trains   all weights, {} numbers", numbers)
                                          : fmt::format("adapter  {} numbers beside {} products of the layers, rank {}",
                                                        numbers, start.products, r.tuner.rank);
  console.print(
      fmt::format("{}\n{}\ndata     {}: {} {}, {} tokens\nrun      {}: {} steps of {} rows of {} tokens, {}, {}\n",
                  start.model, trains, r.data.string(), start.examples, start.learns, grouped(start.tokens),
                  r.out.string(), grouped(start.steps), (r.batch > 0 ? r.batch : 4) * r.tuner.accumulate, r.context,
                  r.device.to_string(), r.precision));
}

std::string advice(const TuneRequest& r, bool is_encoder) {
  if (!is_encoder)
    return r.tuner.full ? fmt::format("model       {0}\nLet it write:  weft generate {0}\n", (r.out / "model").string())
                        : fmt::format("adapter     {0}\nLet it write:  weft generate {1} --adapter {0}\n",
                                      r.out.string(), r.model.string());
  const std::string model = (r.out / "model").string();
  return fmt::format(
      "model       {0}\nTry it:  weft {1} {0} ...\n", model,
      encoder::load(r.out / "model", {.device = kCpu}).task() == encoder::Task::embed ? "embed" : "classify");
}

int run_tune(TuneRequest& r) {
  if (r.out.empty() && !r.is_dry_run) throw UsageError("--out is missing: the folder that the run writes to");
  ModelOptions threads;
  threads.threads = r.threads;
  use_threads(threads);
  r.model = model_path(r.model);
  r.device = parallel::parse_devices(r.device_name)[0];
  set_default_device(r.device);
  r.tuner.precision = train::precision_named(r.precision);
  r.tuner.recompute = !r.keep_activations;
  r.schedule = tune::rate_schedule_named(r.schedule_name);
  r.encoder.dropout = !r.no_dropout;
  if (!r.objective.empty()) r.encoder.objective = tune::objective_named(r.objective);
  const bool is_encoder = encoder::is_encoder(r.model);
  refuse_given(is_encoder ? r.of_language_models : r.of_encoders,
               is_encoder ? "language models, and this is a text encoder" : "text encoders");
  r.tuner.preference.loss = tune::preference_loss_named(r.preference_loss);
  if (!r.template_file.empty())
    r.chat_template = read_text_file(r.template_file, text::TemplateLimits().max_source_bytes);
  if (!r.memory.empty()) r.device_memory = parse_bytes(r.memory);
  if (r.is_dry_run) {
    const tune::RunNeed need = tune::run_need(r);
    put_text(need.to_string());
    return need.fits ? kOk : kFailure;
  }
  Console console(stdout, r.quiet ? Console::Style::silent : Console::Style::automatic);
  std::optional<StopOnInterrupt> interrupts;  // from the first step on: before it there is nothing to save
  std::stop_source stop;
  tune::Observer observer;
  observer.begin = [&](const tune::RunStart& start) {
    interrupts.emplace(stop);
    print_begin(console, r, start);
  };
  observer.step = [&](const tune::Progress& progress) { console.print(line_of(progress) + "\n"); };
  observer.note = [](std::string_view note) { put_message("note: " + std::string(note)); };
  const tune::RunReport report = tune::run(r, observer, stop.get_token());
  std::string text = fmt::format("\n{} steps in {}\n", grouped(report.steps), clock_text(report.seconds));
  if (report.first_validation && report.last_validation)
    text += fmt::format("validation  {:.4f} before, {:.4f} now, {:.4f} at best\n", *report.first_validation,
                        *report.last_validation, report.best_validation.value_or(*report.last_validation));
  if (report.last_accuracy) text += fmt::format("right       {:.1f}% of them\n", *report.last_accuracy * 100);
  if (report.last_f1) text += fmt::format("F1          {:.4f}\n", *report.last_f1);
  if (report.last_spearman) text += fmt::format("Spearman    {:.4f}\n", *report.last_spearman);
  if (!r.quiet) text += advice(r, is_encoder);
  console.print(text);
  return report.interrupted ? kInterrupted : kOk;
}

}  // namespace

void set_up_tune(CLI::App& app, Action& action) {
  auto request = std::make_shared<TuneRequest>();
  TuneRequest& r = *request;
  app.footer(
      "Lines of JSON (.jsonl) are examples: {\"messages\": [{\"role\": ..., \"content\": ...}]}, of which the answers "
      "of "
      "the\nassistant count; {\"prompt\": ..., \"completion\": ...}; or {\"text\": ...}. Lines {\"prompt\": ..., "
      "\"chosen\": ..., \"rejected\": ...}\nare preferences (DPO), whose prompts and answers may be lists of messages. "
      "Any other file is one text.\n"
      "Text encoders learn {\"text\": ..., \"label\": ...}, {\"tokens\": [...], \"labels\": [...]}, {\"anchor\": ..., "
      "\"positive\": ..., \"negative\": ...}\nand {\"sentence1\": ..., \"sentence2\": ..., \"score\": ...}; OUT/model "
      "and "
      "OUT/best are folders of models.\n"
      "Writes to OUT: adapter_config.json and adapter_model.safetensors (also read by PEFT), best/, metrics.jsonl,\n"
      "loss.svg, run.json and checkpoint.safetensors. Ctrl-C ends the run after the step at hand, with a checkpoint.");
  app.add_option("model", r.model,
                 std::string("GGUF file (blocks stay as they are), or folder with config.json, tokenizer.json and "
                             "safetensors") +
                     kOrName)
      ->required();

  const auto of_language_models = [&](CLI::Option* option) { r.of_language_models.push_back(option); };
  const auto of_encoders = [&](CLI::Option* option) { r.of_encoders.push_back(option); };
  const char* run = "Run";
  app.add_option("--data", r.data, "the examples")->group(run)->required();
  app.add_option("--validation", r.validation,
                 "other examples, to measure with (default: the last twentieth of --data)")
      ->group(run);
  app.add_option("--out", r.out, "folder of the run")->group(run);
  app.add_flag("--dry-run", r.is_dry_run,
               "reads the data and plans a step, without the weights: the memory of the run, its steps, the largest "
               "batch that "
               "fits, and whether the run fits (the exit code); writes nothing")
      ->group(run);
  app.add_option("--device-memory", r.memory,
                 "what the run may take on the device, as 6G (default: what the CPU has free)")
      ->group(run);
  app.add_flag("--resume", r.resume, "go on with the run in OUT, with the same options")->group(run);
  app.add_option("--device", r.device_name, "auto, cpu, webgpu or webgpu:INDEX")->group(run)->capture_default_str();
  app.add_option("--threads", r.threads, "CPU threads; 0: one for each core")->group(run)->capture_default_str();
  app.add_option("--epochs", r.epochs, "how often each example is seen, unless --steps is given")
      ->group(run)
      ->capture_default_str();
  app.add_option("--steps", r.steps, "updates in all")->group(run);
  app.add_option("--context", r.context,
                 "tokens of a row, which several short examples share; of a text encoder the most tokens of a text")
      ->group(run)
      ->capture_default_str();
  app.add_option("--seed", r.tuner.seed, "of the adapter, the order of the examples and dropout")
      ->group(run)
      ->capture_default_str();
  of_language_models(
      app.add_option("--chat-template", r.template_file, "a file with a template in place of the model's own")
          ->group(run));

  of_language_models(app.add_flag("--full", r.tuner.full,
                                  "train all weights, in f32, in place of an adapter; OUT/model is then a folder of a "
                                  "model, and so is OUT/best")
                         ->group(run));

  of_language_models(app.add_option("--balance", r.tuner.balance,
                                    "of models with experts: factor of the loss that keeps them in use alike, as "
                                    "router_aux_loss_coef; 0: without")
                         ->group(run)
                         ->capture_default_str());

  const char* adapter = "Adapter";
  of_language_models(app.add_option("--rank", r.tuner.rank, "of the matrices beside each product")
                         ->group(adapter)
                         ->capture_default_str());
  of_language_models(app.add_option("--alpha", r.tuner.alpha, "changes are multiplied by alpha / rank")
                         ->group(adapter)
                         ->capture_default_str());
  of_language_models(
      app.add_option("--dropout", r.tuner.dropout, "of what the adapter reads")->group(adapter)->capture_default_str());
  of_language_models(
      app.add_flag("--dora", r.tuner.dora, "also train the lengths of the rows of changed matrices (DoRA)")
          ->group(adapter));
  of_language_models(app.add_option("--targets", r.tuner.targets,
                                    "products that get an adapter, as in q_proj,v_proj (default: all products of the "
                                    "layers but experts, which "
                                    "are called experts)")
                         ->delimiter(',')
                         ->allow_extra_args(false)
                         ->group(adapter));
  of_language_models(
      app.add_option(
             "--save-modules", r.tuner.saved,
             "modules that train as a whole beside the adapter, as in embed_tokens,lm_head (PEFT's modules_to_save)")
          ->delimiter(',')
          ->allow_extra_args(false)
          ->group(adapter));
  of_language_models(app.add_option("--from", r.tuner.from, "an adapter to go on with, in a new run")->group(adapter));
  of_language_models(app.add_flag("--gguf", r.to_gguf, "also write adapter.gguf, for llama.cpp")->group(adapter));

  const char* preferences = "Preferences";
  of_language_models(app.add_option("--beta", r.tuner.preference.beta,
                                    "how close the model stays to the reference, which it was at first")
                         ->group(preferences)
                         ->capture_default_str());
  of_language_models(app.add_option("--preference-loss", r.preference_loss, "sigmoid (DPO) or ipo")
                         ->group(preferences)
                         ->capture_default_str());
  of_language_models(app.add_option("--label-smoothing", r.tuner.preference.label_smoothing,
                                    "share of preferences that are taken to be the wrong way round")
                         ->group(preferences)
                         ->capture_default_str());

  const char* encoders = "Text encoders";
  of_encoders(app.add_option("--objective", r.objective,
                             "single-label, multi-label, regression, tokens, ranking, cosine, cosent or cross-encoder "
                             "(default: as the lines say)")
                  ->group(encoders));
  of_encoders(app.add_option("--scale", r.encoder.scale, "of cosines, in the losses ranking and cosent")
                  ->group(encoders)
                  ->capture_default_str());
  of_encoders(
      app.add_flag("--no-dropout", r.no_dropout, "without the dropout that config.json names")->group(encoders));

  const char* optimizer = "Optimizer";
  app.add_option("--batch", r.batch,
                 "rows of a batch (default: 4), of preferences an even number; or examples of a text encoder (default: "
                 "16)")
      ->check(CLI::Range(1, 65536))
      ->group(optimizer);
  app.add_option("--accumulate", r.tuner.accumulate, "batches whose mean gradient makes one update")
      ->group(optimizer)
      ->capture_default_str();
  app.add_option(
         "--learning-rate", r.learning_rate,
         "largest learning rate (default: 2e-4, of preferences 2e-5, with --full a tenth; of text encoders 2e-5)")
      ->group(optimizer);
  app.add_option("--schedule", r.schedule_name, "how the rate falls to 0: cosine (half of one), linear, or constant")
      ->group(optimizer)
      ->capture_default_str();
  app.add_option("--warm-up", r.warm_up, "steps over which the learning rate rises; at most a tenth of the run")
      ->group(optimizer)
      ->capture_default_str();
  std::string names;
  for (const optim::RuleInfo& rule : optim::rules()) names += (names.empty() ? "" : ", ") + rule.name;
  app.add_option("--optimizer", r.tuner.optimizer, fmt::format("{}; the default learning rates are for adamw", names))
      ->group(optimizer)
      ->capture_default_str();
  app.add_option(
         "--optimizer-option", r.tuner.optimizer_options,
         "NAME=VALUE, an option of the optimizer, as momentum=0.9; may be given again (weft ops list shows them)")
      ->allow_extra_args(false)
      ->group(optimizer);
  app.add_option("--weight-decay", r.tuner.weight_decay)->group(optimizer)->capture_default_str();
  app.add_option("--beta-1", r.tuner.beta_1)->group(optimizer)->capture_default_str();
  app.add_option("--beta-2", r.tuner.beta_2)->group(optimizer)->capture_default_str();
  app.add_option("--clip", r.tuner.clip_norm, "largest norm of the gradient; 0: none")
      ->group(optimizer)
      ->capture_default_str();
  app.add_option("--precision", r.precision,
                 "f32, bf16 or f16: type of products, attention and activations; the adapter is f32")
      ->group(optimizer)
      ->capture_default_str();
  app.add_flag("--keep-activations", r.keep_activations,
               "keep what is inside layers for gradients instead of computing it again: faster, and takes more memory")
      ->group(optimizer);

  const char* reports = "Reports";
  app.add_option("--log-every", r.log_every, "steps between lines")->group(reports)->capture_default_str();
  app.add_option("--eval-every", r.eval_every, "steps between measurements (default: a tenth of the run)")
      ->group(reports);
  app.add_option("--checkpoint-every", r.checkpoint_every, "steps between checkpoints")
      ->group(reports)
      ->capture_default_str();
  app.add_flag("--quiet", r.quiet, "print warnings and errors only")->group(reports);
  app.callback([&action, request] { action = [request] { return run_tune(*request); }; });
}

}  // namespace weft::cli
