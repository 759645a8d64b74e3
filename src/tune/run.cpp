// `weft tune` without its screen: the loop, its measurements and its files.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>

#include "base/file.hpp"
#include "base/json.hpp"
#include "base/processors.hpp"
#include "io/svg_chart.hpp"
#include "train/curve.hpp"
#include "train/metrics.hpp"
#include "train/run_folder.hpp"
#include "tune/checkpoint.hpp"
#include "tune/reference.hpp"
#include "weft/error.hpp"
#include "weft/optim/schedule.hpp"
#include "weft/tune.hpp"

namespace weft::tune {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

constexpr const char *kReference = "reference.training", *kValidationReference = "reference.validation";

double seconds_since(Clock::time_point begin) { return std::chrono::duration<double>(Clock::now() - begin).count(); }

void check(const Request& r) {
  if (r.batch < 1 || r.batch > 65536)
    throw UsageError(fmt::format("tune: a batch of {} rows; give 1 to 65536", r.batch));
  if (r.steps < 0) throw UsageError(fmt::format("tune: {} steps; give 1 or more, or 0 to go by epochs", r.steps));
  if (r.steps == 0 && !(r.epochs > 0 && r.epochs <= 1e6))
    throw UsageError(fmt::format("tune: {} epochs; give more than 0", r.epochs));
  if (r.learning_rate && !(*r.learning_rate > 0 && *r.learning_rate <= 10))
    throw UsageError(fmt::format("tune: a learning rate of {}; give more than 0, as 2e-4", *r.learning_rate));
  if (!(r.warm_up >= 0 && r.warm_up <= 1e9)) throw UsageError(fmt::format("tune: a warm-up of {} steps", r.warm_up));
  if (r.log_every < 1 || r.eval_every < 0 || r.checkpoint_every < 1)
    throw UsageError("tune: intervals of logs and checkpoints are 1 step or more, that of measurements 0 or more");
}

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
    read_data();
    tuner_.emplace(*model_, r_.tuner);
    make_streams();
    steps_ = planned_steps();
    settings_ = settings();
    check_memory();
    if (r_.resume) go_on();
    write_file_atomically(r_.out / "run.json", settings_.dump(2) + "\n");
    metrics_.emplace(r_.out / "metrics.jsonl", step_);
    if (observer_.begin) observer_.begin(*model_, *tuner_, examples_, steps_);
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

  void read_data() {
    examples_ = read_examples(r_.data, *model_, r_.context);
    if (examples_.cut > 0 && observer_.note)
      observer_.note(fmt::format("{} of {} examples are longer than the context of {} tokens, and lost their end",
                                 examples_.cut, examples_.all.size() + 2 * examples_.preferences.size(), r_.context));
    learns_preferences_ = !examples_.preferences.empty();
    rate_ = r_.learning_rate.value_or(learns_preferences_ ? 2e-5 : 2e-4);
    if (learns_preferences_ && r_.batch % 2 != 0)
      throw UsageError(fmt::format(
          "tune: a batch of {} rows; chosen and rejected texts are in rows of their own, so give an even number", r_.batch));
    if (!r_.validation.empty()) {
      apart_ = read_examples(r_.validation, *model_, r_.context);
      if (apart_.preferences.empty() == learns_preferences_)
        throw UsageError(fmt::format("{}: it has {}, and {} has {}", r_.validation.string(),
                                     learns_preferences_ ? "examples" : "preferences", r_.data.string(),
                                     learns_preferences_ ? "preferences" : "examples"));
    }
  }

  void make_streams() {
    if (learns_preferences_)
      make_streams(examples_.preferences, apart_.preferences);
    else
      make_streams(examples_.all, apart_.all);
  }
  template <class T>
  void make_streams(const std::vector<T>& all, const std::vector<T>& apart) {
    const std::size_t held = r_.validation.empty() ? all.size() / 20 : 0;
    const std::span<const T> training = std::span(all).first(all.size() - held),
                             validation = r_.validation.empty() ? std::span(all).last(held) : std::span(apart);
    train_.emplace(training, r_.context, r_.tuner.seed);
    if (!validation.empty()) validate_.emplace(validation, r_.context, r_.tuner.seed, false);
    if (!learns_preferences_) return;
    reference_ = Reference(training.size());
    validation_reference_ = Reference(validation.size());
  }

  /// A GPU does not tell how much memory it has free.
  void check_memory() {
    if (r_.device.kind != Device::Kind::cpu) return;
    const std::uint64_t needed = tuner_->planned_bytes(r_.batch, r_.context, learns_preferences_),
                        room = free_memory();
    if (needed > room)
      throw UsageError(
          fmt::format("tune: gradients, activations and scratch of a step take {:.1f} MB, and there is room for "
                      "{:.1f} MB; take a smaller batch or context{}",
                      static_cast<double>(needed) / 1e6, static_cast<double>(room) / 1e6,
                      r_.tuner.recompute ? "" : ", or let layers be computed again"));
  }

  Extent rows_of_step() const { return r_.batch * r_.tuner.accumulate; }

  std::int64_t planned_steps() {
    if (r_.steps > 0) return r_.steps;
    const double whole = std::floor(r_.epochs);
    const auto epochs = static_cast<std::int64_t>(whole);
    double rows = static_cast<double>(train_->rows_of_epochs(epochs));
    if (r_.epochs > whole)
      rows += (r_.epochs - whole) *
              static_cast<double>(train_->rows_of_epochs(epochs + 1) - train_->rows_of_epochs(epochs));
    return std::max<std::int64_t>(1, static_cast<std::int64_t>(std::ceil(rows / static_cast<double>(rows_of_step()))));
  }

  /// What decides the numbers of the run.
  Json settings() const {
    const TunerOptions& t = r_.tuner;
    Json all = {{"model", model_->describe()},
            {"data", fmt::format("{:016x}", examples_.hash)},
            {"validation", fmt::format("{:016x}", apart_.hash)},
            {"context", r_.context},
            {"batch", r_.batch},
            {"accumulate", t.accumulate},
            {"steps", steps_},
            {"learning_rate", rate_},
            {"warm_up", r_.warm_up},
            {"seed", t.seed},
            {"products", tuner_->products()},
            {"rank", t.rank},
            {"alpha", t.alpha},
            {"dropout", t.dropout},
            {"precision", std::string(name_of(t.precision))},
            {"weight_decay", t.weight_decay},
            {"beta_1", t.beta_1},
            {"beta_2", t.beta_2},
            {"clip_norm", t.clip_norm}};
    if (learns_preferences_)
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
      if (learns_preferences_) {
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
    reference_.compute(*tuner_, *train_, std::min(steps_ * rows_of_step(), train_->rows_of_epochs(1)), r_.batch, stop_);
    if (validate_)
      validation_reference_.compute(*tuner_, *validate_, validate_->rows_of_epochs(1), r_.batch, stop_);
  }

  double rate_at(std::int64_t step) const {
    return optim::Schedule::cosine(rate_, 0, static_cast<double>(steps_))
        .with_warm_up(std::min(r_.warm_up, static_cast<double>(steps_) / 10))
        .at(static_cast<double>(step));
  }
  double elapsed() const { return before_ + seconds_since(begin_); }

  /// The mean over the targets of all examples for validation, or over all preferences.
  Tuner::Measured measure() {
    const std::int64_t rows = validate_->rows_of_epochs(1);
    Tuner::Measured sum;
    if (learns_preferences_) sum.accuracy = sum.margin = 0;
    double count = 0;
    for (std::int64_t first = 0; first < rows; first += r_.batch) {
      // Rows beyond the epoch are those of the next one; they do not count.
      Rows batch = validate_->batch(first, r_.batch);
      const std::int64_t inside = std::min<std::int64_t>(r_.batch, rows - first);
      std::fill(batch.targets.begin() + static_cast<std::ptrdiff_t>(inside * r_.context), batch.targets.end(),
                Rows::kIgnored);
      std::int64_t counted = batch.counted();
      if (learns_preferences_) {
        std::fill(batch.pairs.begin() + static_cast<std::ptrdiff_t>(inside / 2 * Rows::kTextsMax), batch.pairs.end(), -1);
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
    tuner_->save(r_.out);
    Checkpoint checkpoint{settings_, step_, elapsed(), report_.first_validation, report_.best_validation,
                          tuner_->state_dict()};
    if (learns_preferences_) {
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
    if (r_.tuner.precision == DType::f16) m.loss_scale = tuner_->loss_scale();
    if (progress.step > 0) metrics_->append(m);
    if (observer_.step) observer_.step(progress);
  }

  void loop() {
    if (learns_preferences_ && step_ == 0) {
      compute_references();
      if (stop_.stop_requested()) return;  // there is nothing to save
    }
    const std::int64_t eval_every = r_.eval_every > 0 ? r_.eval_every : std::max<std::int64_t>(1, steps_ / 10);
    if (step_ == 0 && validate_) {
      Progress progress{.steps = steps_, .loss = std::nan("")};
      evaluate(progress);
      tell(progress);
    }
    Clock::time_point last = Clock::now();
    std::int64_t logged = step_;
    while (step_ < steps_ && !stop_.stop_requested()) {
      const double rate = rate_at(step_);
      std::vector<Rows> batches;
      for (Extent i = 0; i < r_.tuner.accumulate; ++i)
        reference_.set(batches.emplace_back(train_->batch(step_ * rows_of_step() + i * r_.batch, r_.batch)));
      const Tuner::StepResult result = tuner_->step(batches, rate);
      ++step_;
      const bool is_over = step_ == steps_;
      const auto due = [&](std::int64_t every) { return every > 0 && step_ % every == 0; };
      const bool evaluates = validate_ && (is_over || due(eval_every)), saves = due(r_.checkpoint_every);
      if (!(is_over || evaluates || saves || due(r_.log_every) || step_ == 1 || stop_.stop_requested())) continue;
      Progress progress{step_, steps_, static_cast<double>(result.loss.item<float>()), rate,
                        static_cast<double>(result.grad_norm.item<float>())};
      progress.tokens_per_second =
          static_cast<double>((step_ - logged) * rows_of_step() * r_.context) / std::max(seconds_since(last), 1e-9);
      progress.seconds = elapsed();
      if (learns_preferences_) {
        progress.accuracy = static_cast<double>(result.accuracy.item<float>());
        progress.margin = static_cast<double>(result.margin.item<float>());
      }
      if (!std::isfinite(progress.loss))
        throw Error(
            fmt::format("the loss is {} at step {}: training has diverged. Lower --learning-rate (it was {:.2g}); {} "
                        "has the last adapter that was saved",
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
    report_.interrupted = step_ < steps_;
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
  Examples examples_, apart_;
  bool learns_preferences_ = false;
  double rate_ = 0;
  Reference reference_, validation_reference_;
  std::optional<Tuner> tuner_;
  std::optional<RowStream> train_, validate_;
  std::optional<train::MetricsLog> metrics_;
  Json settings_;
  std::int64_t step_ = 0, steps_ = 0;
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
