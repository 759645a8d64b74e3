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
#include "weft/error.hpp"
#include "weft/parallel.hpp"
#include "weft/train/config.hpp"
#include "weft/tune.hpp"

namespace weft::cli {
namespace {

namespace fs = std::filesystem;

struct TuneRequest : tune::Request {
  // --device is read when the command runs: a wrong WEFT_DEVICE must not end those that need none.
  TuneRequest() : tune::Request{.device = kCpu} {}
  std::string device_name = "auto", precision = "f32", preference_loss = "sigmoid";
  fs::path template_file;
  std::int64_t threads = 0;
  std::string memory;
  bool quiet = false, keep_activations = false, is_dry_run = false;
};

std::string line_of(const tune::Progress& p) {
  std::string text = fmt::format("step {:>6} of {}", grouped(p.step), grouped(p.steps));
  if (std::isfinite(p.loss)) text += fmt::format("  loss {:.4f}", p.loss);
  if (p.validation_loss) text += fmt::format("  validation {:.4f}", *p.validation_loss);
  if (p.validation_accuracy) text += fmt::format(" ({:.0f}% right)", *p.validation_accuracy * 100);
  if (p.balance) text += fmt::format("  balance {:.3f}", *p.balance);
  if (p.accuracy) text += fmt::format("  right {:.0f}%  margin {:.3g}", *p.accuracy * 100, p.margin.value_or(0));
  if (p.step > 0)
    text += fmt::format("  rate {:.2e}  norm {:.3g}  {} tokens/s  {}", p.learning_rate, p.grad_norm,
                        grouped(static_cast<std::int64_t>(p.tokens_per_second)), clock_text(p.seconds));
  return text;
}

void print_begin(Console& console, const TuneRequest& r, const llm::Model& model, const tune::Tuner& tuner,
                 const tune::Examples& examples, std::int64_t steps) {
  std::int64_t tokens = 0;
  const auto count = [&](const tune::Example& example) { tokens += static_cast<std::int64_t>(example.tokens.size()); };
  for (const tune::Example& example : examples.all) count(example);
  for (const tune::Preference& preference : examples.preferences) {
    count(preference.chosen);
    count(preference.rejected);
  }
  const std::string data = examples.preferences.empty() ? fmt::format("{} examples", examples.all.size())
                                                        : fmt::format("{} preferences", examples.preferences.size());
  const std::string trains = r.tuner.full
                                 ? fmt::format("trains   all weights, {} numbers", grouped(tuner.parameter_count()))
                                 : fmt::format("adapter  {} numbers beside {} products of the layers, rank {}",
                                               grouped(tuner.parameter_count()), tuner.products().size(), r.tuner.rank);
  console.print(
      fmt::format("{}\n{}\ndata     {}: {}, {} tokens\nrun      {}: {} steps of {} rows of {} tokens, {}, {}\n",
                  model.describe(), trains, r.data.string(), data, grouped(tokens), r.out.string(), grouped(steps),
                  r.batch * r.tuner.accumulate, r.context, r.device.to_string(), r.precision));
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
  observer.begin = [&](const llm::Model& model, const tune::Tuner& tuner, const tune::Examples& examples,
                       std::int64_t steps) {
    interrupts.emplace(stop);
    print_begin(console, r, model, tuner, examples, steps);
  };
  observer.step = [&](const tune::Progress& progress) { console.print(line_of(progress) + "\n"); };
  observer.note = [](std::string_view note) { put_message("note: " + std::string(note)); };
  const tune::RunReport report = tune::run(r, observer, stop.get_token());
  std::string text = fmt::format("\n{} steps in {}\n", grouped(report.steps), clock_text(report.seconds));
  if (report.first_validation && report.last_validation)
    text += fmt::format("validation  {:.4f} before, {:.4f} now, {:.4f} at best\n", *report.first_validation,
                        *report.last_validation, report.best_validation.value_or(*report.last_validation));
  if (report.last_accuracy) text += fmt::format("right       {:.1f}% of them\n", *report.last_accuracy * 100);
  text += r.tuner.full ? fmt::format("model       {0}\nLet it write:  weft generate {0}\n", (r.out / "model").string())
                       : fmt::format("adapter     {0}\nLet it write:  weft generate {1} --adapter {0}\n",
                                     r.out.string(), r.model.string());
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
      "Writes to OUT: adapter_config.json and adapter_model.safetensors (also read by PEFT), best/, metrics.jsonl,\n"
      "loss.svg, run.json and checkpoint.safetensors. Ctrl-C ends the run after the step at hand, with a checkpoint.");
  app.add_option("model", r.model,
                 std::string("GGUF file (blocks stay as they are), or folder with config.json, tokenizer.json and "
                             "safetensors") +
                     kOrName)
      ->required();

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
  app.add_option("--context", r.context, "tokens of a row; several short examples share one")
      ->group(run)
      ->capture_default_str();
  app.add_option("--seed", r.tuner.seed, "of the adapter, the order of the examples and dropout")
      ->group(run)
      ->capture_default_str();
  app.add_option("--chat-template", r.template_file, "a file with a template in place of the model's own")->group(run);

  app.add_flag(
         "--full", r.tuner.full,
         "train all weights, in f32, in place of an adapter; OUT/model is then a folder of a model, and so is OUT/best")
      ->group(run);

  app.add_option(
         "--balance", r.tuner.balance,
         "of models with experts: factor of the loss that keeps them in use alike, as router_aux_loss_coef; 0: without")
      ->group(run)
      ->capture_default_str();

  const char* adapter = "Adapter";
  app.add_option("--rank", r.tuner.rank, "of the matrices beside each product")->group(adapter)->capture_default_str();
  app.add_option("--alpha", r.tuner.alpha, "changes are multiplied by alpha / rank")
      ->group(adapter)
      ->capture_default_str();
  app.add_option("--dropout", r.tuner.dropout, "of what the adapter reads")->group(adapter)->capture_default_str();
  app.add_flag("--dora", r.tuner.dora, "also train the lengths of the rows of changed matrices (DoRA)")->group(adapter);
  app.add_option(
         "--targets", r.tuner.targets,
         "products that get an adapter, as in q_proj,v_proj (default: all products of the layers but experts, which "
         "are called experts)")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->group(adapter);
  app.add_option(
         "--save-modules", r.tuner.saved,
         "modules that train as a whole beside the adapter, as in embed_tokens,lm_head (PEFT's modules_to_save)")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->group(adapter);
  app.add_option("--from", r.tuner.from, "an adapter to go on with, in a new run")->group(adapter);
  app.add_flag("--gguf", r.to_gguf, "also write adapter.gguf, for llama.cpp")->group(adapter);

  const char* preferences = "Preferences";
  app.add_option("--beta", r.tuner.preference.beta, "how close the model stays to the reference, which it was at first")
      ->group(preferences)
      ->capture_default_str();
  app.add_option("--preference-loss", r.preference_loss, "sigmoid (DPO) or ipo")
      ->group(preferences)
      ->capture_default_str();
  app.add_option("--label-smoothing", r.tuner.preference.label_smoothing,
                 "share of preferences that are taken to be the wrong way round")
      ->group(preferences)
      ->capture_default_str();

  const char* optimizer = "Optimizer";
  app.add_option("--batch", r.batch, "rows of a batch; of preferences an even number")
      ->group(optimizer)
      ->capture_default_str();
  app.add_option("--accumulate", r.tuner.accumulate, "batches whose mean gradient makes one update")
      ->group(optimizer)
      ->capture_default_str();
  app.add_option("--learning-rate", r.learning_rate,
                 "largest learning rate, which falls to 0 along half a cosine (default: 2e-4, of preferences 2e-5, "
                 "with --full a tenth)")
      ->group(optimizer);
  app.add_option("--warm-up", r.warm_up, "steps over which the learning rate rises; at most a tenth of the run")
      ->group(optimizer)
      ->capture_default_str();
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
