// `weft train text`: a run from its request to its last screen.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <tuple>

#include "base/file.hpp"
#include "io/svg_chart.hpp"
#include "io/text_chart.hpp"
#include "train/console.hpp"
#include "train/curve.hpp"
#include "train/interrupt.hpp"
#include "train/metrics.hpp"
#include "weft/device.hpp"
#include "weft/error.hpp"
#include "weft/nn/table.hpp"
#include "weft/train/generate.hpp"
#include "weft/train/trainer.hpp"

namespace weft::train {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

constexpr double kCheckpointSeconds = 30;
constexpr double kLogSeconds = 2;
constexpr std::int64_t kLogSteps = 10;
constexpr const char* kConfigFile = "config.json";

double seconds_since(Clock::time_point begin) { return std::chrono::duration<double>(Clock::now() - begin).count(); }

// Whether the environment says that text is UTF-8.
bool has_unicode() {
  for (const char* name : {"LC_ALL", "LC_CTYPE", "LANG"})
    if (const char* value = std::getenv(name); value && *value) {
      const std::string text = value;
      return text.find("UTF-8") != std::string::npos || text.find("utf8") != std::string::npos;
    }
  return false;
}

struct Folder {
  fs::path path;
  fs::path last() const { return path / kLastCheckpoint; }
  fs::path best() const { return path / kBestCheckpoint; }
  fs::path config() const { return path / kConfigFile; }
  fs::path metrics() const { return path / "metrics.jsonl"; }
  fs::path samples() const { return path / "samples.txt"; }
  fs::path curve() const { return path / "loss.svg"; }

  bool has_checkpoint() const { return exists(last()) || exists(previous_path(last())); }
  bool has_run() const { return has_checkpoint() || exists(config()); }
  static bool exists(const fs::path& p) {
    std::error_code ignored;
    return fs::exists(p, ignored);
  }
};

// The folder of the run, made if need be. Errors come before any work is done.
Folder open_folder(const TrainRequest& request) {
  if (request.out.empty()) throw UsageError("no place for the run: give --out FOLDER");
  const Folder folder{request.out};
  if (Folder::exists(folder.path) && !fs::is_directory(folder.path))
    throw UsageError(fmt::format("--out {}: is a file; name a folder", folder.path.string()));
  if (request.resume && !folder.has_run())
    throw UsageError(
        fmt::format("--resume: {} holds no run; leave --resume out to begin one there", folder.path.string()));
  if (!request.resume && folder.has_run())
    throw UsageError(fmt::format("--out {}: holds a run already; add --resume to go on with it, or name another folder",
                                 folder.path.string()));
  std::error_code error;
  fs::create_directories(folder.path, error);
  if (error)
    throw FileError(fmt::format("--out {}: cannot be made: {}; name a folder that can be written", folder.path.string(),
                                error.message()));
  return folder;
}

// One run as it goes: the trainer and everything that is kept about it.
class Run {
 public:
  explicit Run(const TrainRequest& request)
      : request_(request),
        console_(stdout, request.quiet ? Console::Style::silent : Console::Style::automatic),
        folder_(open_folder(request)) {}

  TrainResult operator()() {
    set_up();
    const InterruptScope interrupts;
    begin_ = Clock::now();
    loop(interrupts);
    return finish(interrupts.signal() != 0 && !complete_);
  }

 private:
  double elapsed() const { return elapsed_before_ + seconds_since(begin_); }

  bool is_over() const {
    if (config_.steps > 0 && trainer_->steps() >= config_.steps) return true;
    return config_.seconds > 0 && elapsed() >= config_.seconds;
  }

  void set_up() {
    check_intervals();
    std::optional<Checkpoint> resumed = read_stored();
    data_ = TextData::load(config_.data, config_.vocabulary, config_.model.context);
    if (request_.resume && data_.content_hash != config_.data_hash)
      throw FileError(
          fmt::format("{}: not the text that the run in {} was trained on (its content differs); give that text, or "
                      "train into another --out",
                      config_.data, folder_.path.string()));
    config_.data_hash = data_.content_hash;
    config_.model.vocabulary = std::max(config_.model.vocabulary, data_.vocabulary.size());
    set_default_device(parse_device(request_.device));  // after what is quicker to check
    write_file_atomically(folder_.config(), to_json(config_) + "\n");
    metrics_.emplace(folder_.metrics(), resumed ? resumed->step : 0);
    if (resumed) {
      trainer_.emplace(config_, data_, *resumed);
      elapsed_before_ = resumed->elapsed_seconds;
      best_loss_ = resumed->best_loss;
      best_step_ = resumed->best_step;
    } else {
      trainer_.emplace(config_, data_);
    }
    describe(resumed.has_value());
  }

  void check_intervals() const {
    const std::tuple<const char*, std::int64_t, std::int64_t> intervals[] = {
        {"log-every", request_.log_every.value_or(1), 1},
        {"eval-every", request_.eval_every.value_or(0), 0},
        {"eval-batches", request_.eval_batches, 1},
        {"checkpoint-every", request_.checkpoint_every.value_or(1), 1},
        {"sample-every", request_.sample_every.value_or(0), 0},
        {"sample-tokens", request_.sample_tokens, 0}};
    for (const auto& [name, value, least] : intervals)
      if (value < least) throw UsageError(fmt::format("--{} {}: it must be at least {}", name, value, least));
  }

  // Fills config_; gives the checkpoint to go on from, if there is one.
  std::optional<Checkpoint> read_stored() {
    if (!request_.resume) {
      config_ = new_run(request_);
      return std::nullopt;
    }
    for (const fs::path& leftover : find_leftovers(folder_.path))
      console_.print(
          fmt::format("note: {} is a file that a killed run left unfinished; it can be deleted", leftover.string()));
    if (!folder_.has_checkpoint()) {
      // Killed before its first checkpoint: nothing but the configuration is known, and nothing else is needed.
      config_ =
          resumed_run(run_config_from_json(read_text_file(folder_.config()), folder_.config().string()), request_, 0);
      return std::nullopt;
    }
    std::string warning;
    Checkpoint checkpoint = load_checkpoint_or_previous(folder_.last(), &warning);
    if (!warning.empty()) console_.print("warning: " + warning);
    config_ = resumed_run(checkpoint.config, request_, checkpoint.elapsed_seconds);
    return checkpoint;
  }

  void describe(bool resumed) {
    const Extent parameters = trainer_->model().parameter_count();
    const auto megabytes = static_cast<double>(parameters) * 4e-6;
    std::string text = nn::to_text(nn::table_of(trainer_->model()), std::min(console_.columns(), 110));
    text += fmt::format(
        "\n{} parameters: {:.1f} MB, {:.1f} MB with gradients and moments; {:.2f} GFLOP a step of {} tokens\n",
        grouped(parameters), megabytes, 4 * megabytes,
        trainer_->model().training_flops_per_token() * static_cast<double>(config_.tokens_per_step()) * 1e-9,
        grouped(config_.tokens_per_step()));
    text += fmt::format("text    {}: {} {} to train on, {} for validation, vocabulary {}\n", config_.data,
                        grouped(static_cast<std::int64_t>(data_.training_count)),
                        config_.vocabulary == Vocabulary::Kind::bytes ? "bytes" : "characters",
                        grouped(static_cast<std::int64_t>(data_.validation().size())), data_.vocabulary.size());
    text += fmt::format("device  {}\n", default_device().to_string());
    const std::string plan =
        config_.steps > 0 && config_.seconds > 0
            ? fmt::format("{} steps, at most {}", grouped(config_.steps), clock_text(config_.seconds))
        : config_.steps > 0 ? fmt::format("{} steps", grouped(config_.steps))
                            : clock_text(config_.seconds);
    text += fmt::format("run     {}: {}, seed {}\n", folder_.path.string(), plan, config_.seed);
    if (resumed)
      text += fmt::format("resumed from step {}, {} into the run\n", grouped(trainer_->steps()),
                          clock_text(elapsed_before_));
    console_.print(text);
  }

  std::int64_t eval_interval() const {
    if (request_.eval_every) return *request_.eval_every;
    return config_.steps > 0 ? std::max<std::int64_t>(1, config_.steps / 10) : 250;
  }

  void loop(const InterruptScope& interrupts) {
    const std::int64_t eval_every = eval_interval();
    const std::int64_t sample_every = request_.sample_every.value_or(4 * eval_every);
    Clock::time_point last_log = begin_, last_checkpoint = begin_;
    std::int64_t logged_step = trainer_->steps();
    bool over = is_over();
    if (over) return console_.print("The run has made all its steps. Go on with --steps (in all) or --seconds (more).");
    while (!over && !interrupts.signal()) {
      const Trainer::StepResult result = trainer_->step(elapsed());
      const std::int64_t step = trainer_->steps();
      over = is_over();
      auto due = [&](std::int64_t every) { return every > 0 && step % every == 0; };
      const bool evaluates = over || due(eval_every);
      const bool checkpoints = request_.checkpoint_every ? due(*request_.checkpoint_every)
                                                         : seconds_since(last_checkpoint) >= kCheckpointSeconds;
      const bool logs =
          request_.log_every ? due(*request_.log_every) : due(kLogSteps) || seconds_since(last_log) >= kLogSeconds;
      if (!(evaluates || checkpoints || logs || step == 1 || interrupts.signal())) continue;

      Metrics m;
      m.step = step;
      m.loss = static_cast<double>(result.loss.item<float>());  // waits for the device
      m.grad_norm = static_cast<double>(result.grad_norm.item<float>());
      m.learning_rate = trainer_->learning_rate();
      m.tokens_per_second = static_cast<double>((step - logged_step) * config_.tokens_per_step()) /
                            std::max(seconds_since(last_log), 1e-9);
      m.seconds = trained_seconds_ = elapsed();
      if (!std::isfinite(m.loss)) stop_for_loss(m);
      smooth_loss_ = smooth_loss_ ? 0.7 * *smooth_loss_ + 0.3 * m.loss : m.loss;
      if (evaluates) evaluate(m, over ? 0 : request_.eval_batches);
      metrics_->append(m);
      show(m);
      if (evaluates && !over && due(sample_every)) write_sample();
      if (checkpoints && !over) {
        save_last();
        last_checkpoint = Clock::now();
      }
      // Checks, samples and checkpoints do not count in the speed of steps.
      last_log = Clock::now();
      logged_step = step;
    }
    complete_ = over;
    save_last();
  }

  [[noreturn]] void stop_for_loss(const Metrics& m) {
    metrics_->append(m);
    console_.end_status();
    throw Error(fmt::format(
        "the loss is {} at step {}: training has diverged. {} Lower --learning-rate (it was {:.2g}), or set --clip",
        m.loss, m.step,
        folder_.has_checkpoint() ? fmt::format("The last checkpoint, {}, is from before.", folder_.last().string())
                                 : "No checkpoint was written.",
        m.learning_rate));
  }

  void evaluate(Metrics& m, std::int64_t batches) {
    console_.status(status_line(m) + "  validating", false);
    const Trainer::Evaluation evaluation = trainer_->evaluate(batches);
    m.val_loss = evaluation.loss;
    m.val_tokens = evaluation.tokens;
    last_validation_ = evaluation.loss;
    if (best_loss_ && !(evaluation.loss < *best_loss_)) return;
    if (!std::isfinite(evaluation.loss)) return;
    best_loss_ = evaluation.loss;
    best_step_ = m.step;
    Checkpoint best = trainer_->checkpoint();
    best.optimizer.clear();
    best.random_state.reset();
    save(folder_.best(), std::move(best));
  }

  void save(const fs::path& path, Checkpoint checkpoint) {
    checkpoint.elapsed_seconds = elapsed();
    checkpoint.best_loss = best_loss_;
    checkpoint.best_step = best_step_;
    try {
      save_checkpoint(path, checkpoint);
    } catch (FileError& error) {
      console_.end_status();
      error.add_context(fmt::format("saving step {}; the checkpoint of before is whole, go on from it with --resume",
                                    checkpoint.step));
      throw;
    }
  }
  void save_last() { save(folder_.last(), trainer_->checkpoint()); }

  std::string status_line(const Metrics& m) const {
    std::string line = fmt::format("step {}", grouped(m.step));
    if (config_.steps > 0) line += "/" + grouped(config_.steps);
    line += fmt::format("  loss {:.4f}", *smooth_loss_);
    if (last_validation_) line += fmt::format("  val {:.4f}{}", *last_validation_, best_step_ == m.step ? "*" : "");
    line += fmt::format("  {} tok/s  ETA {}", short_count(m.tokens_per_second), clock_text(remaining(m)));
    line += fmt::format("  lr {:.1e}  grad {:.2f}  {:.0f} MB", m.learning_rate, m.grad_norm,
                        static_cast<double>(resident_bytes()) * 1e-6);
    return line;
  }

  double remaining(const Metrics& m) const {
    double left = INFINITY;
    if (config_.steps > 0)
      left = static_cast<double>((config_.steps - m.step) * config_.tokens_per_step()) / m.tokens_per_second;
    if (config_.seconds > 0) left = std::min(left, config_.seconds - elapsed());
    return left;
  }

  // A line with a validation loss stays; the others are replaced by the next.
  void show(const Metrics& m) {
    const std::string line = status_line(m);
    if (m.val_loss)
      console_.print(line);
    else
      console_.status(line);
  }

  std::string sample(std::int64_t tokens) {
    Generator generator(trainer_->model(), data_.vocabulary);
    const std::string text = generator.generate("\n", tokens, {.seed = config_.seed});
    trainer_->model().train();
    return text;
  }

  void write_sample() {
    if (request_.sample_tokens <= 0) return;
    const std::string text = sample(request_.sample_tokens);
    append_text(text);
    console_.print(indented(text));
  }

  void append_text(const std::string& text) {
    LineLog log(folder_.samples());
    log.append(fmt::format("---- step {} ----", trainer_->steps()));
    for (std::size_t begin = 0; begin <= text.size();) {
      const std::size_t end = std::min(text.find('\n', begin), text.size());
      log.append(text.substr(begin, end - begin));
      begin = end + 1;
    }
  }

  static std::string indented(const std::string& text) {
    std::string out = "  | ";
    for (const char c : text) {
      if (c == '\r') continue;
      out += c;
      if (c == '\n') out += "  | ";
    }
    return out + "\n";
  }

  TrainResult finish(bool interrupted) {
    console_.end_status();
    const io::Chart curve = loss_curve(
        metrics_->all(), fmt::format("{} on {}", config_.preset, fs::path(config_.data).filename().string()));
    io::write_svg_chart(folder_.curve(), curve);
    TrainResult result{trainer_->steps(), last_validation_.value_or(std::nan("")), trained_seconds_, interrupted};
    const std::string out = folder_.path.string();
    if (interrupted) {
      console_.print(
          fmt::format("\nInterrupted after step {}; everything is in {}.\nGo on:  weft train text --out {} --resume",
                      grouped(result.steps), folder_.last().string(), out));
      return result;
    }
    if (request_.sample_tokens > 0 && !request_.quiet) write_sample();
    std::string text =
        io::text_chart(curve, {.width = std::clamp(console_.columns(), 24, 100), .unicode = has_unicode()});
    text += fmt::format("\n{} steps, {} tokens, {}\n", grouped(result.steps),
                        short_count(static_cast<double>(result.steps * config_.tokens_per_step())),
                        clock_text(result.seconds));
    if (last_validation_)
      text += fmt::format("validation  {:.4f} nats a {} over the whole last tenth\n", *last_validation_,
                          config_.vocabulary == Vocabulary::Kind::bytes ? "byte" : "character");
    if (best_loss_)
      text += fmt::format("best        {}  (step {}, validation {:.4f})\n", folder_.best().string(),
                          grouped(best_step_), *best_loss_);
    text += fmt::format("last        {}\nmetrics     {}\ncurve       {}\n\n", folder_.last().string(),
                        folder_.metrics().string(), folder_.curve().string());
    text += fmt::format(
        "Let it write:  weft generate {} --prompt \"The \"\nTrain longer:  weft train text --out {} --resume --seconds "
        "90\n",
        out, out);
    console_.print(text);
    return result;
  }

  const TrainRequest& request_;
  Console console_;
  Folder folder_;
  RunConfig config_;
  TextData data_;
  std::optional<Trainer> trainer_;
  std::optional<MetricsLog> metrics_;
  Clock::time_point begin_;
  double elapsed_before_ = 0;
  std::optional<double> best_loss_, last_validation_;
  std::int64_t best_step_ = 0;
  std::optional<double> smooth_loss_;
  double trained_seconds_ = 0;  // of the run, up to the last step and without the check after it
  bool complete_ = false;
};

}  // namespace

TrainResult train_text(const TrainRequest& request) { return Run(request)(); }

}  // namespace weft::train
