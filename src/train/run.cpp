// `weft train text` without its screen: the loop, its checks and its checkpoints.
#include "weft/train/run.hpp"
#include "weft/optim/table.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <tuple>

#include "base/file.hpp"
#include "base/processors.hpp"
#include "train/learner.hpp"
#include "train/run_files.hpp"
#include "train/run_folder.hpp"
#include "weft/device.hpp"
#include "weft/error.hpp"
#include "weft/nn/gpt.hpp"
#include "weft/parallel.hpp"
#include "weft/session.hpp"
#include "weft/train/generate.hpp"
#include "weft/train/trainer.hpp"

namespace weft::train {
namespace {

using Clock = std::chrono::steady_clock;

constexpr double kCheckpointSeconds = 30;
constexpr double kLogSeconds = 2;
constexpr std::int64_t kLogSteps = 10;

double seconds_since(Clock::time_point begin) { return std::chrono::duration<double>(Clock::now() - begin).count(); }

void check_intervals(const TrainRequest& request) {
  const std::tuple<const char*, std::int64_t, std::int64_t> intervals[] = {
      {"log-every", request.log_every.value_or(1), 1},
      {"eval-every", request.eval_every.value_or(0), 0},
      {"eval-batches", request.eval_batches, 1},
      {"checkpoint-every", request.checkpoint_every.value_or(1), 1},
      {"sample-every", request.sample_every.value_or(0), 0},
      {"sample-tokens", request.sample_tokens, 0}};
  for (const auto& [name, value, least] : intervals)
    if (value < least) throw UsageError(fmt::format("--{} {}: it must be at least {}", name, value, least));
}

// One run: the trainer and everything that is recorded about it.
class Run {
 public:
  Run(const TrainRequest& request, std::span<Observer* const> observers, std::stop_token stop)
      : request_(request), stop_(std::move(stop)), folder_(open_run_folder(request)), files_(folder_) {
    observers_.push_back(&files_);
    observers_.insert(observers_.end(), observers.begin(), observers.end());
  }

  TrainResult operator()() {
    set_up();
    begin_ = Clock::now();
    loop();
    return finish();
  }

 private:
  template <class Argument>
  void tell(void (Observer::*event)(Argument), const std::decay_t<Argument>& fact) {
    for (Observer* observer : observers_) (observer->*event)(fact);
  }

  double elapsed() const { return elapsed_before_ + seconds_since(begin_); }

  bool is_over() const {
    if (config_.steps > 0 && trainer_->steps() >= config_.steps) return true;
    return config_.seconds > 0 && elapsed() >= config_.seconds;
  }

  void set_up() {
    check_intervals(request_);
    std::optional<Checkpoint> resumed = read_stored();
    try {
      data_ = TextData::load(config_.data, config_.vocabulary, config_.model.context);
    } catch (FileError& error) {
      if (request_.resume && !request_.data)
        error.add_context("resuming the run; if its text was moved, give the new place with --data");
      throw;
    }
    if (request_.resume && data_.content_hash != config_.data_hash)
      throw FileError(
          fmt::format("{}: not the text that the run in {} was trained on (its content differs); give that text, or "
                      "train into another --out",
                      config_.data, folder_.path.string()));
    config_.data_hash = data_.content_hash;
    config_.model.vocabulary = std::max(config_.model.vocabulary, data_.vocabulary.size());
    const std::vector<Device> devices = parallel::parse_devices(request_.device);  // after the quicker checks
    if (!request_.divide) check_state(devices[0]);  // a part of a model is known when it is there
    set_default_device(devices[0]);
    const Sharing sharing = request_.divide ? Sharing::layers : Sharing::batches;
    if (request_.divide && request_.profile)
      throw UsageError("--profile shows the plan of one device; leave out --divide");
    // Before the device works: a run whose device is lost can be resumed. A run that is refused leaves the folder as it was.
    const std::string before = request_.resume ? read_text_file(folder_.config()) : std::string();
    write_file_atomically(folder_.config(), to_json(config_) + "\n");
    try {
      if (resumed) {
        trainer_.emplace(config_, data_, *resumed, devices, sharing);
        elapsed_before_ = resumed->elapsed_seconds;
        best_loss_ = resumed->best_loss;
        best_step_ = resumed->best_step;
      } else {
        trainer_.emplace(config_, data_, devices, sharing);
      }
      if (!request_.divide) check_step(*trainer_);
    } catch (const UsageError&) {
      if (request_.resume)
        write_file_atomically(folder_.config(), before);
      else
        std::filesystem::remove(folder_.config());
      throw;
    }
    tell(&Observer::begin, RunStart{config_, data_, trainer_->model(), folder_.path, resumed.has_value(),
                                    trainer_->steps(), elapsed_before_, devices});
  }

  /// Bytes that the run may take on a device from here on, as far as they are known. Memory in use by then counts as taken.
  std::optional<std::uint64_t> room(Device device, std::uint64_t taken) const {
    if (request_.device_memory > 0) return request_.device_memory - std::min(request_.device_memory, taken);
    return device.kind == Device::Kind::cpu ? std::optional(free_memory()) : std::nullopt;
  }
  [[noreturn]] void refuse(std::string_view what, std::uint64_t needed, std::uint64_t room,
                           std::string_view cure) const {
    throw UsageError(
        fmt::format("{} take {:.1f} MB, and there is room for {:.1f} MB; {} (--dry-run shows what takes how much)",
                    what, static_cast<double>(needed) / 1e6, static_cast<double>(room) / 1e6, cure));
  }
  void check_state(Device device) const {
    const std::uint64_t bytes = state_bytes(config_);
    if (const auto limit = room(device, 0); limit && bytes > *limit)
      refuse(fmt::format("the weights and the moments of {}", optim::rule_named(config_.optimizer).title), bytes,
             *limit, "take fewer --layers or a smaller --width");
  }
  void check_step(Trainer& trainer) const {
    const std::uint64_t bytes = trainer.planned_step_bytes();
    if (const auto limit = room(default_device(), state_bytes(config_)); limit && bytes > *limit)
      refuse("gradients, activations and scratch of a step", bytes, *limit,
             "take a smaller --batch or --context, or --recompute true");
  }

  // Fills config_; returns the checkpoint to resume from, if there is one.
  std::optional<Checkpoint> read_stored() {
    if (!request_.resume) {
      config_ = new_run(request_);
      return std::nullopt;
    }
    for (const std::filesystem::path& leftover : find_leftovers(folder_.path))
      warn(fmt::format("{} is a file that a killed run left unfinished; it can be deleted", leftover.string()));
    if (!folder_.has_checkpoint()) {
      // The run was killed before its first checkpoint: only the configuration is known, and that is enough.
      config_ =
          resumed_run(run_config_from_json(read_text_file(folder_.config()), folder_.config().string()), request_, 0);
      return std::nullopt;
    }
    std::string warning;
    Checkpoint checkpoint = load_checkpoint_or_previous(folder_.last(), &warning);
    if (!warning.empty()) warn(warning);
    config_ = resumed_run(checkpoint.config, request_, checkpoint.elapsed_seconds);
    return checkpoint;
  }

  void warn(std::string_view text) { tell(&Observer::warning, text); }

  std::int64_t eval_interval() const {
    if (request_.eval_every) return *request_.eval_every;
    return config_.steps > 0 ? std::max<std::int64_t>(1, config_.steps / 10) : 250;
  }

  void loop() {
    const std::int64_t eval_every = eval_interval();
    const std::int64_t sample_every = request_.sample_every.value_or(4 * eval_every);
    Clock::time_point last_log = begin_, last_checkpoint = begin_;
    std::int64_t logged_step = trainer_->steps();
    bool over = is_over();
    if (over) {  // the resumed run has made all its steps, or the time is too short for one
      complete_ = true;
      if (!folder_.has_checkpoint()) save_last();
      return;
    }
    while (!over && !stop_.stop_requested()) {
      const Trainer::StepResult result = trainer_->step(elapsed());
      const std::int64_t step = trainer_->steps();
      over = is_over();
      auto due = [&](std::int64_t every) { return every > 0 && step % every == 0; };
      const bool evaluates = over || due(eval_every);
      const bool checkpoints = request_.checkpoint_every ? due(*request_.checkpoint_every)
                                                         : seconds_since(last_checkpoint) >= kCheckpointSeconds;
      const bool logs =
          request_.log_every ? due(*request_.log_every) : due(kLogSteps) || seconds_since(last_log) >= kLogSeconds;
      if (!(evaluates || checkpoints || logs || step == 1 || stop_.stop_requested())) continue;

      Metrics m;
      m.step = step;
      m.loss = static_cast<double>(result.loss.item<float>());  // waits for the device
      m.grad_norm = static_cast<double>(result.grad_norm.item<float>());
      m.learning_rate = trainer_->learning_rate();
      if (const optim::LossScale* scale = trainer_->loss_scale()) m.loss_scale = scale->value();
      m.tokens_per_second = static_cast<double>((step - logged_step) * config_.tokens_per_step()) /
                            std::max(seconds_since(last_log), 1e-9);
      m.seconds = trained_seconds_ = elapsed();
      if (!std::isfinite(m.loss)) stop_for_loss(m);
      if (evaluates) evaluate(m, over ? 0 : request_.eval_batches);
      tell(&Observer::step, m);
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
    tell(&Observer::step, m);
    throw Error(fmt::format(
        "the loss is {} at step {}: training has diverged. {} Lower --learning-rate (it was {:.2g}), or set --clip",
        m.loss, m.step,
        folder_.has_checkpoint() ? fmt::format("The last checkpoint, {}, is from before that.", folder_.last().string())
                                 : "No checkpoint was written.",
        m.learning_rate));
  }

  void evaluate(Metrics& m, std::int64_t batches) {
    tell(&Observer::validating, m);
    const Trainer::Evaluation evaluation = trainer_->evaluate(batches);
    m.val_loss = evaluation.loss;
    m.val_tokens = evaluation.tokens;
    last_validation_ = evaluation.loss;
    const bool best = std::isfinite(evaluation.loss) && !(best_loss_ && !(evaluation.loss < *best_loss_));
    if (best) {
      best_loss_ = evaluation.loss;
      best_step_ = m.step;
    }
    tell(&Observer::validation, {m.step, evaluation.loss, evaluation.tokens, best});
    if (!best) return;
    Checkpoint checkpoint = trainer_->checkpoint();
    checkpoint.optimizer.clear();
    checkpoint.random_state.reset();
    checkpoint.loss_scale.clear();
    save(folder_.best(), std::move(checkpoint), true);
  }

  void save(const std::filesystem::path& path, Checkpoint checkpoint, bool best) {
    checkpoint.elapsed_seconds = elapsed();
    checkpoint.best_loss = best_loss_;
    checkpoint.best_step = best_step_;
    try {
      save_checkpoint(path, checkpoint);
    } catch (FileError& error) {
      error.add_context(fmt::format("saving step {}; {}", checkpoint.step,
                                    folder_.has_checkpoint()
                                        ? "the checkpoint before it is whole; go on from that one with --resume"
                                        : "there is no checkpoint yet, so what was trained is lost"));
      throw;
    }
    tell(&Observer::checkpoint, {checkpoint.step, path, best});
  }
  void save_last() { save(folder_.last(), trainer_->checkpoint(), false); }

  void write_sample() {
    if (request_.sample_tokens <= 0) return;
    tell(&Observer::sample, {trainer_->steps(), request_.divide ? sample_on_host() : sample_of(trainer_->model())});
  }

  std::string sample_of(nn::GPT& model) {
    Generator generator(model, data_.vocabulary);
    const std::string text = generator.generate("", request_.sample_tokens, {.seed = config_.seed});
    model.train();
    return text;
  }

  /// No device has all of a model that is divided.
  std::string sample_on_host() {
    const Checkpoint checkpoint = trainer_->checkpoint();
    const Session session({.device = kCpu});
    const auto in = session.enter();
    nn::GPT model(config_.model);
    model.load_state_dict(checkpoint.model);
    return sample_of(model);
  }

  TrainResult finish() {
    const TrainResult result{trainer_->steps(), last_validation_.value_or(std::nan("")), trained_seconds_,
                             stop_.stop_requested() && !complete_};
    if (!result.interrupted) write_sample();
    if (request_.profile && !result.interrupted) {
      Profile profile = trainer_->profile();
      profile.rates = measure_rates(default_device());
      tell(&Observer::profile, profile);
    }
    tell(&Observer::end, {result, files_.metrics(), best_loss_, best_step_});
    return result;
  }

  const TrainRequest& request_;
  const std::stop_token stop_;
  RunFolder folder_;
  const FolderLock lock_{folder_.path};
  RunFiles files_;
  std::vector<Observer*> observers_;
  RunConfig config_;
  TextData data_;
  std::optional<Trainer> trainer_;
  Clock::time_point begin_;
  double elapsed_before_ = 0;
  std::optional<double> best_loss_, last_validation_;
  std::int64_t best_step_ = 0;
  double trained_seconds_ = 0;  // of the run, up to the last step and without the check after it
  bool complete_ = false;
};

}  // namespace

TrainResult train_text(const TrainRequest& request, std::span<Observer* const> observers, const std::stop_token& stop) {
  std::error_code ignored;
  const bool is_new = !std::filesystem::exists(request.out, ignored);
  try {
    return Run(request, observers, stop)();
  } catch (...) {
    if (is_new)
      std::filesystem::remove(request.out, ignored);  // only if it is empty: the run was refused before it began
    throw;
  }
}

}  // namespace weft::train
