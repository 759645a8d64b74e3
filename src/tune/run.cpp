// `weft tune` without its screen: the loop, its measurements and its files.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>

#include "base/file.hpp"
#include "base/json.hpp"
#include "base/processors.hpp"
#include "io/svg_chart.hpp"
#include "llm/engine.hpp"
#include "train/curve.hpp"
#include "train/metrics.hpp"
#include "train/run_folder.hpp"
#include "tune/checkpoint.hpp"
#include "tune/reference.hpp"
#include "tune/run_data.hpp"
#include "weft/error.hpp"
#include "weft/optim/schedule.hpp"
#include "weft/tune.hpp"

namespace weft::tune {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

constexpr const char *kReference = "reference.training", *kValidationReference = "reference.validation";

double seconds_since(Clock::time_point begin) { return std::chrono::duration<double>(Clock::now() - begin).count(); }

class Run {
 public:
  Run(const Request& request, const Observer& observer, std::stop_token stop)
      : r_(request), observer_(observer), stop_(std::move(stop)) {}

  RunReport operator()() {
    check(r_);
    open_folder();
    const train::FolderLock lock(r_.out);
    model_.emplace(llm::load(
        r_.model, {.context = r_.context, .chat_template = r_.chat_template, .mmproj = "none", .device = r_.device}));
    tuner_.emplace(*model_, r_.tuner);
    data_.emplace(r_, *model_, tuner_->texts_of_row());
    if (data_->examples.cut > 0 && observer_.note) observer_.note(data_->note_of_cut(r_.context));
    reference_ = Reference(data_->training_preferences);
    validation_reference_ = Reference(data_->validation_preferences);
    settings_ = settings();
    check_memory();
    if (r_.resume) go_on();
    write_file_atomically(r_.out / "run.json", settings_.dump(2) + "\n");
    metrics_.emplace(r_.out / "metrics.jsonl", step_);
    if (observer_.begin) observer_.begin(*model_, *tuner_, data_->examples, data_->steps);
    begin_ = Clock::now();
    loop();
    return finish();
  }

 private:
  fs::path checkpoint_file() const { return r_.out / "checkpoint.safetensors"; }

  void open_folder() {
    std::error_code error;
    const bool has_run = fs::exists(checkpoint_file(), error) || fs::exists(r_.out / "run.json", error);
    if (has_run && !r_.resume)
      throw UsageError(
          fmt::format("{}: the folder has a run; go on with it (--resume), or choose another folder", r_.out.string()));
    if (!has_run && r_.resume)
      throw UsageError(fmt::format("{}: there is no run to go on with; leave out --resume", r_.out.string()));
    fs::create_directories(r_.out, error);
    if (error) throw FileError(fmt::format("{}: the folder cannot be made: {}", r_.out.string(), error.message()));
  }

  /// A GPU does not tell how much memory it has free.
  void check_memory() {
    const bool is_limited = r_.device_memory > 0;
    if (!is_limited && r_.device.kind != Device::Kind::cpu) return;
    std::uint64_t needed = tuner_->planned_bytes(r_.batch, r_.context, data_->learns_preferences);
    if (is_limited) needed += llm::detail::engine_of(*model_)->weight_bytes() + tuner_->trained_bytes();
    const std::uint64_t room = is_limited ? r_.device_memory : free_memory();
    if (needed > room)
      throw UsageError(
          fmt::format("tune: {}gradients, activations and scratch of a step take {:.1f} MB, and there is room for "
                      "{:.1f} MB; take a "
                      "smaller batch or context{} (--dry-run shows what takes how much)",
                      is_limited ? "weights, what trains, " : "", static_cast<double>(needed) / 1e6,
                      static_cast<double>(room) / 1e6, r_.tuner.recompute ? "" : ", or let layers be computed again"));
  }

  Extent rows_of_step() const { return r_.batch * r_.tuner.accumulate; }

  /// What decides the numbers of the run.
  Json settings() const {
    const TunerOptions& t = r_.tuner;
    Json all = {{"model", model_->describe()},
                {"data", fmt::format("{:016x}", data_->examples.hash)},
                {"validation", fmt::format("{:016x}", data_->apart.hash)},
                {"context", r_.context},
                {"batch", r_.batch},
                {"accumulate", t.accumulate},
                {"steps", data_->steps},
                {"learning_rate", data_->learning_rate},
                {"warm_up", r_.warm_up},
                {"seed", t.seed},
                {"products", tuner_->products()},
                {"rank", t.rank},
                {"alpha", t.alpha},
                {"dropout", t.dropout},
                {"dora", t.dora},
                {"full", t.full},
                {"precision", std::string(name_of(t.precision))},
                {"weight_decay", t.weight_decay},
                {"beta_1", t.beta_1},
                {"beta_2", t.beta_2},
                {"clip_norm", t.clip_norm}};
    if (!t.saved.empty()) all["saved"] = t.saved;
    if (t.balance > 0) all["balance"] = t.balance;
    if (data_->learns_preferences)
      all["preference"] = {{"loss", t.preference.loss == PreferenceLoss::ipo ? "ipo" : "sigmoid"},
                           {"beta", t.preference.beta},
                           {"label_smoothing", t.preference.label_smoothing}};
    return all;
  }

  void go_on() {
    if (!fs::exists(checkpoint_file())) return;  // it was stopped before its first checkpoint
    Checkpoint checkpoint = load_checkpoint(checkpoint_file());
    std::string changed;
    for (const auto& [key, value] : settings_.items())
      if (!checkpoint.run.contains(key) || checkpoint.run.at(key) != value)
        changed += (changed.empty() ? "" : ", ") + key;
    if (!changed.empty())
      throw UsageError(
          fmt::format("{}: the run was begun with other settings ({}); give those in its run.json, or begin a new run "
                      "in another folder",
                      r_.out.string(), changed));
    try {
      if (data_->learns_preferences) {
        reference_.take_from(checkpoint.state, kReference);
        validation_reference_.take_from(checkpoint.state, kValidationReference);
      }
      tuner_->load_state_dict(checkpoint.state);
    } catch (const UsageError& error) {
      throw FileError(fmt::format("{}: {}", checkpoint_file().string(), error.what()));
    }
    step_ = checkpoint.step;
    before_ = checkpoint.seconds;
    report_.first_validation = checkpoint.first_validation;
    report_.best_validation = checkpoint.best_validation;
  }

  // ---- The log-probabilities of the reference: those of the model before the first step.

  void compute_references() {
    if (observer_.note)
      observer_.note(fmt::format("computing the log-probabilities of the reference for {} preferences",
                                 reference_.count() + validation_reference_.count()));
    // A short run does not come to all of them; behind the first epoch all are known.
    reference_.compute(*tuner_, *data_->train, std::min(data_->steps * rows_of_step(), data_->train->rows_of_epochs(1)),
                       r_.batch, stop_);
    if (data_->validate)
      validation_reference_.compute(*tuner_, *data_->validate, data_->validate->rows_of_epochs(1), r_.batch, stop_);
  }

  double rate_at(std::int64_t step) const {
    return optim::Schedule::cosine(data_->learning_rate, 0, static_cast<double>(data_->steps))
        .with_warm_up(std::min(r_.warm_up, static_cast<double>(data_->steps) / 10))
        .at(static_cast<double>(step));
  }
  double elapsed() const { return before_ + seconds_since(begin_); }

  /// The mean over the targets of all examples for validation, or over all preferences.
  Tuner::Measured measure() {
    const std::int64_t rows = data_->validate->rows_of_epochs(1);
    Tuner::Measured sum;
    if (data_->learns_preferences) sum.accuracy = sum.margin = 0;
    double count = 0;
    for (std::int64_t first = 0; first < rows; first += r_.batch) {
      // Rows beyond the epoch are those of the next one; they do not count.
      Rows batch = data_->validate->batch(first, r_.batch);
      const std::int64_t inside = std::min<std::int64_t>(r_.batch, rows - first);
      std::fill(batch.targets.begin() + static_cast<std::ptrdiff_t>(inside * r_.context), batch.targets.end(),
                Rows::kIgnored);
      std::int64_t counted = batch.counted();
      if (data_->learns_preferences) {
        std::fill(batch.pairs.begin() + static_cast<std::ptrdiff_t>(inside / 2 * Rows::kTextsMax), batch.pairs.end(),
                  -1);
        counted = std::count_if(batch.pairs.begin(), batch.pairs.end(), [](std::int32_t pair) { return pair >= 0; });
        validation_reference_.set(batch);
      }
      if (counted == 0) continue;
      const Tuner::Measured one = tuner_->measure(batch);
      sum.loss += one.loss * static_cast<double>(counted);
      if (sum.accuracy) *sum.accuracy += one.accuracy.value_or(0) * static_cast<double>(counted);
      count += static_cast<double>(counted);
    }
    sum.loss /= std::max(count, 1.0);
    if (sum.accuracy) *sum.accuracy /= std::max(count, 1.0);
    return sum;
  }

  void evaluate(Progress& progress) {
    const Tuner::Measured measured = measure();
    const double loss = measured.loss;
    progress.validation_loss = report_.last_validation = loss;
    progress.validation_accuracy = report_.last_accuracy = measured.accuracy;
    if (step_ == 0) {
      report_.first_validation = loss;
      return;
    }
    if (report_.best_validation && !(loss < *report_.best_validation)) return;
    report_.best_validation = loss;
    tuner_->save(r_.out / "best");
  }

  void save() {
    tuner_->save(r_.tuner.full ? r_.out / "model" : r_.out);
    Checkpoint checkpoint{settings_,           step_, elapsed(), report_.first_validation, report_.best_validation,
                          tuner_->state_dict()};
    if (data_->learns_preferences) {
      reference_.put_into(checkpoint.state, kReference);
      validation_reference_.put_into(checkpoint.state, kValidationReference);
    }
    save_checkpoint(checkpoint_file(), checkpoint);
  }

  void tell(const Progress& progress) {
    train::Metrics m;
    m.step = progress.step;
    m.loss = progress.loss;
    m.val_loss = progress.validation_loss;
    m.tokens_per_second = progress.tokens_per_second;
    m.learning_rate = progress.learning_rate;
    m.grad_norm = progress.grad_norm;
    m.seconds = progress.seconds;
    m.accuracy = progress.accuracy;
    m.val_accuracy = progress.validation_accuracy;
    m.margin = progress.margin;
    m.balance = progress.balance;
    if (r_.tuner.precision == DType::f16) m.loss_scale = tuner_->loss_scale();
    if (progress.step > 0) metrics_->append(m);
    if (observer_.step) observer_.step(progress);
  }

  void loop() {
    if (data_->learns_preferences && step_ == 0) {
      compute_references();
      if (stop_.stop_requested()) return;  // there is nothing to save
    }
    const std::int64_t eval_every = r_.eval_every > 0 ? r_.eval_every : std::max<std::int64_t>(1, data_->steps / 10);
    if (step_ == 0 && data_->validate) {
      Progress progress{.steps = data_->steps, .loss = std::nan("")};
      evaluate(progress);
      tell(progress);
    }
    Clock::time_point last = Clock::now();
    std::int64_t logged = step_;
    while (step_ < data_->steps && !stop_.stop_requested()) {
      const double rate = rate_at(step_);
      std::vector<Rows> batches;
      for (Extent i = 0; i < r_.tuner.accumulate; ++i)
        reference_.set(batches.emplace_back(data_->train->batch(step_ * rows_of_step() + i * r_.batch, r_.batch)));
      const Tuner::StepResult result = tuner_->step(batches, rate);
      ++step_;
      const bool is_over = step_ == data_->steps;
      const auto due = [&](std::int64_t every) { return every > 0 && step_ % every == 0; };
      const bool evaluates = data_->validate && (is_over || due(eval_every)), saves = due(r_.checkpoint_every);
      if (!(is_over || evaluates || saves || due(r_.log_every) || step_ == 1 || stop_.stop_requested())) continue;
      Progress progress{step_, data_->steps, static_cast<double>(result.loss.item<float>()), rate,
                        static_cast<double>(result.grad_norm.item<float>())};
      progress.tokens_per_second =
          static_cast<double>((step_ - logged) * rows_of_step() * r_.context) / std::max(seconds_since(last), 1e-9);
      progress.seconds = elapsed();
      if (data_->learns_preferences) {
        progress.accuracy = static_cast<double>(result.accuracy.item<float>());
        progress.margin = static_cast<double>(result.margin.item<float>());
      }
      if (result.balance.defined()) progress.balance = static_cast<double>(result.balance.item<float>());
      if (!std::isfinite(progress.loss))
        throw Error(
            fmt::format("the loss is {} at step {}: training has diverged. Lower --learning-rate (it was {:.2g}); {} "
                        "has what was saved last",
                        progress.loss, step_, rate, r_.out.string()));
      if (evaluates) evaluate(progress);
      tell(progress);
      if (saves && !is_over) save();
      last = Clock::now();
      logged = step_;
    }
    save();
  }

  RunReport finish() {
    report_.steps = step_;
    report_.seconds = elapsed();
    report_.interrupted = step_ < data_->steps;
    if (r_.to_gguf) tuner_->save(r_.out / "adapter.gguf");
    io::write_svg_chart(r_.out / "loss.svg",
                        train::loss_curve(metrics_->all(), fmt::format("{} on {}", r_.model.filename().string(),
                                                                       r_.data.filename().string())));
    return report_;
  }

  const Request& r_;
  const Observer& observer_;
  const std::stop_token stop_;
  std::optional<llm::Model> model_;
  Reference reference_, validation_reference_;
  std::optional<Tuner> tuner_;
  std::optional<RunData> data_;
  std::optional<train::MetricsLog> metrics_;
  Json settings_;
  std::int64_t step_ = 0;
  double before_ = 0;
  Clock::time_point begin_ = Clock::now();
  RunReport report_;
};

}  // namespace

RunReport run(const Request& request, const Observer& observer, const std::stop_token& stop) {
  std::error_code ignored;
  const bool is_new = !fs::exists(request.out, ignored);
  try {
    return Run(request, observer, stop)();
  } catch (...) {
    if (is_new) fs::remove(request.out, ignored);  // only if it is empty: the run was refused before it began
    throw;
  }
}

}  // namespace weft::tune
