#include "tune/run_loop.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>

#include "base/file.hpp"
#include "base/processors.hpp"
#include "io/svg_chart.hpp"
#include "train/curve.hpp"
#include "train/metrics.hpp"
#include "train/run_folder.hpp"
#include "tune/checkpoint.hpp"
#include "weft/error.hpp"
#include "weft/optim/schedule.hpp"
#include "weft/optim/table.hpp"

namespace weft::tune {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point begin) { return std::chrono::duration<double>(Clock::now() - begin).count(); }

struct NamedSchedule {
  const char* name;
  RateSchedule schedule;
};
constexpr NamedSchedule kSchedules[] = {
    {"cosine", RateSchedule::cosine}, {"linear", RateSchedule::linear}, {"constant", RateSchedule::constant}};

class Loop {
 public:
  Loop(const Request& request, const Observer& observer, std::stop_token stop)
      : r_(request), observer_(observer), stop_(std::move(stop)) {}

  RunReport operator()(const std::function<std::unique_ptr<Trainee>()>& make) {
    open_folder();
    const train::FolderLock lock(r_.out);
    trainee_ = make();
    start_ = trainee_->start();
    settings_ = settings();
    check_memory();
    if (r_.resume) go_on();
    write_file_atomically(r_.out / "run.json", settings_.dump(2) + "\n");
    metrics_.emplace(r_.out / "metrics.jsonl", step_);
    if (observer_.begin) observer_.begin(start_);
    begin_ = Clock::now();
    steps();
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
    const std::uint64_t needed = trainee_->planned_bytes() + (is_limited ? trainee_->held_bytes() : 0);
    const std::uint64_t room = is_limited ? r_.device_memory : free_memory();
    if (needed > room)
      throw UsageError(
          fmt::format("tune: {}gradients, activations and scratch of a step take {:.1f} MB, and there is room for "
                      "{:.1f} MB; take a "
                      "smaller batch or context{} (--dry-run shows what takes how much)",
                      is_limited ? "weights, what trains, " : "", static_cast<double>(needed) / 1e6,
                      static_cast<double>(room) / 1e6, r_.tuner.recompute ? "" : ", or let layers be computed again"));
  }

  /// What decides the numbers of the run.
  Json settings() const {
    const TunerOptions& t = r_.tuner;
    Json all = {
        {"model", start_.model},          {"context", r_.context}, {"batch", r_.batch},
        {"accumulate", t.accumulate},     {"steps", start_.steps}, {"learning_rate", trainee_->learning_rate()},
        {"warm_up", r_.warm_up},          {"seed", t.seed},        {"precision", std::string(name_of(t.precision))},
        {"weight_decay", t.weight_decay}, {"beta_1", t.beta_1},    {"beta_2", t.beta_2},
        {"clip_norm", t.clip_norm}};
    // Runs of versions that had one schedule and one optimiser can go on.
    if (r_.schedule != RateSchedule::cosine)
      all["schedule"] = r_.schedule == RateSchedule::linear ? "linear" : "constant";
    if (t.optimizer != "adamw" || !t.optimizer_options.empty())
      all.update({{"optimizer", optim::rule_named(t.optimizer).name}, {"optimizer_options", t.optimizer_options}});
    const Json more = trainee_->settings();
    for (const auto& [key, value] : more.items()) all[key] = value;
    return all;
  }

  void go_on() {
    if (!fs::exists(checkpoint_file())) return;  // it was stopped before its first checkpoint
    Checkpoint checkpoint = load_checkpoint(checkpoint_file());
    std::string changed;
    for (const auto& [key, value] : settings_.items())
      if (!checkpoint.run.contains(key) || checkpoint.run.at(key) != value)
        changed += (changed.empty() ? "" : ", ") + key;
    for (const auto& [key, value] : checkpoint.run.items())
      if (!settings_.contains(key)) changed += (changed.empty() ? "" : ", ") + key;
    if (!changed.empty())
      throw UsageError(
          fmt::format("{}: the run was begun with other settings ({}); give those in its run.json, or begin a new run "
                      "in another folder",
                      r_.out.string(), changed));
    try {
      trainee_->load_state_dict(checkpoint.state);
    } catch (const UsageError& error) {
      throw FileError(fmt::format("{}: {}", checkpoint_file().string(), error.what()));
    }
    step_ = checkpoint.step;
    before_ = checkpoint.seconds;
    report_.first_validation = checkpoint.first_validation;
    report_.best_validation = checkpoint.best_validation;
  }

  double rate_at(std::int64_t step) const {
    const double rate = trainee_->learning_rate(), all = static_cast<double>(start_.steps);
    const optim::Schedule falls = r_.schedule == RateSchedule::cosine   ? optim::Schedule::cosine(rate, 0, all)
                                  : r_.schedule == RateSchedule::linear ? optim::Schedule::linear(rate, 0, all)
                                                                        : optim::Schedule::constant(rate);
    return falls.with_warm_up(std::min(r_.warm_up, all / 10)).at(static_cast<double>(step));
  }
  double elapsed() const { return before_ + seconds_since(begin_); }

  void evaluate(Progress& progress) {
    const Measured measured = trainee_->measure();
    const double loss = measured.loss;
    progress.validation_loss = report_.last_validation = loss;
    progress.validation_accuracy = report_.last_accuracy = measured.accuracy;
    progress.validation_f1 = report_.last_f1 = measured.f1;
    progress.validation_spearman = report_.last_spearman = measured.spearman;
    if (step_ == 0) {
      report_.first_validation = loss;
      return;
    }
    if (report_.best_validation && !(loss < *report_.best_validation)) return;
    report_.best_validation = loss;
    trainee_->save(r_.out / "best");
  }

  void save() {
    trainee_->save_last(r_.out);
    save_checkpoint(checkpoint_file(), {settings_, step_, elapsed(), report_.first_validation, report_.best_validation,
                                        trainee_->state_dict()});
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
    m.val_f1 = progress.validation_f1;
    m.val_spearman = progress.validation_spearman;
    m.margin = progress.margin;
    m.balance = progress.balance;
    if (r_.tuner.precision == DType::f16) m.loss_scale = trainee_->loss_scale();
    if (progress.step > 0) metrics_->append(m);
    if (observer_.step) observer_.step(progress);
  }

  void steps() {
    if (step_ == 0) {
      trainee_->prepare(stop_);
      if (stop_.stop_requested()) return;  // there is nothing to save
    }
    const bool measures = trainee_->can_measure();
    const std::int64_t eval_every = r_.eval_every > 0 ? r_.eval_every : std::max<std::int64_t>(1, start_.steps / 10);
    if (step_ == 0 && measures) {
      Progress progress{.steps = start_.steps, .loss = std::nan("")};
      evaluate(progress);
      tell(progress);
    }
    Clock::time_point last = Clock::now();
    std::int64_t logged = trainee_->tokens();
    while (step_ < start_.steps && !stop_.stop_requested()) {
      const double rate = rate_at(step_);
      const Tuner::StepResult result = trainee_->step(step_, rate);
      ++step_;
      const bool is_over = step_ == start_.steps;
      const auto due = [&](std::int64_t every) { return every > 0 && step_ % every == 0; };
      const bool evaluates = measures && (is_over || due(eval_every)), saves = due(r_.checkpoint_every);
      if (!(is_over || evaluates || saves || due(r_.log_every) || step_ == 1 || stop_.stop_requested())) continue;
      const auto number = [](const Tensor& tensor) {
        return tensor.defined() ? std::optional<double>(tensor.item<float>()) : std::nullopt;
      };
      Progress progress{step_, start_.steps, *number(result.loss), rate, *number(result.grad_norm)};
      progress.tokens_per_second =
          static_cast<double>(trainee_->tokens() - logged) / std::max(seconds_since(last), 1e-9);
      progress.seconds = elapsed();
      progress.accuracy = number(result.accuracy);
      progress.margin = number(result.margin);
      progress.balance = number(result.balance);
      if (!std::isfinite(progress.loss))
        throw Error(
            fmt::format("the loss is {} at step {}: training has diverged. Lower --learning-rate (it was {:.2g}); {} "
                        "has what was saved last",
                        progress.loss, step_, rate, r_.out.string()));
      if (evaluates) evaluate(progress);
      tell(progress);
      if (saves && !is_over) save();
      last = Clock::now();
      logged = trainee_->tokens();
    }
    save();
  }

  RunReport finish() {
    report_.steps = step_;
    report_.seconds = elapsed();
    report_.interrupted = step_ < start_.steps;
    trainee_->finish(r_.out);
    io::write_svg_chart(r_.out / "loss.svg",
                        train::loss_curve(metrics_->all(), fmt::format("{} on {}", r_.model.filename().string(),
                                                                       r_.data.filename().string())));
    return report_;
  }

  const Request& r_;
  const Observer& observer_;
  const std::stop_token stop_;
  std::unique_ptr<Trainee> trainee_;
  RunStart start_;
  std::optional<train::MetricsLog> metrics_;
  Json settings_;
  std::int64_t step_ = 0;
  double before_ = 0;
  Clock::time_point begin_ = Clock::now();
  RunReport report_;
};

}  // namespace

RateSchedule rate_schedule_named(std::string_view name) {
  for (const NamedSchedule& each : kSchedules)
    if (name == each.name) return each.schedule;
  throw UsageError(fmt::format("tune: a schedule of {}; choose cosine, linear or constant", name));
}

std::optional<std::uint64_t> available_for(const Request& request) {
  if (request.device_memory > 0) return request.device_memory;
  return request.device.kind == Device::Kind::cpu ? std::optional(free_memory()) : std::nullopt;
}

RunReport run_loop(const Request& request, const Observer& observer, const std::stop_token& stop,
                   const std::function<std::unique_ptr<Trainee>()>& make) {
  std::error_code ignored;
  const bool is_new = !fs::exists(request.out, ignored);
  try {
    return Loop(request, observer, stop)(make);
  } catch (...) {
    if (is_new) fs::remove(request.out, ignored);  // only if it is empty: the run was refused before it began
    throw;
  }
}

}  // namespace weft::tune
