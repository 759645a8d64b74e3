// The events that a training run reports to observers. The run itself prints nothing and handles no signals.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "weft/device.hpp"
#include "weft/nn/gpt.hpp"
#include "weft/profile.hpp"
#include "weft/train/config.hpp"
#include "weft/train/text.hpp"

namespace weft::train {

/// The metrics of a logged step.
struct Metrics {
  std::int64_t step = 0;  // completed steps
  double loss = 0;        // of that step's batch, before its update
  std::optional<double> val_loss;
  std::optional<std::int64_t> val_tokens;  // number of targets of val_loss
  double tokens_per_second = 0;            // since the previous logged step
  double learning_rate = 0;
  double grad_norm = 0;              // before clipping; not finite where a step in f16 was left out
  std::optional<double> loss_scale;  // of runs in f16, after the step
  double seconds = 0;                // of the run so far
  /// Of runs that learn preferences: the share that the model has right, in the batch and in validation; the mean difference of rewards.
  std::optional<double> accuracy, val_accuracy, margin, balance;
  std::optional<double> val_f1, val_spearman;  ///< of runs that tune text encoders
};

/// A run that is set up and about to make its first step. The references hold until the run ends.
struct RunStart {
  const RunConfig& config;
  const TextData& data;
  const nn::GPT& model;
  std::filesystem::path folder;
  bool resumed = false;
  std::int64_t steps = 0;  // made by the resumed run before
  double seconds = 0;      // and how long they took
  std::span<const Device> devices;
};

/// The validation loss, measured after `step` steps.
struct Validation {
  std::int64_t step = 0;
  double loss = 0;          // mean over targets, in nats
  std::int64_t tokens = 0;  // how many
  bool best = false;        // the lowest loss of the run so far
};

/// Text that the model wrote after `step` steps.
struct Sample {
  std::int64_t step = 0;
  std::string_view text;
};

/// A checkpoint that has been written to the disk.
struct SavedCheckpoint {
  std::int64_t step = 0;
  std::filesystem::path path;
  bool best = false;  // weights with the lowest validation loss, for inference; else all that the run needs to continue
};

struct TrainResult {
  std::int64_t steps = 0;
  double validation_loss = 0;  // over the whole validation text, at the end; NaN if it was not measured
  double seconds = 0;
  bool interrupted = false;  // by the stop token; the last checkpoint holds everything
};

/// A run that is finished or was stopped. Its last checkpoint is written.
struct RunEnd {
  const TrainResult& result;
  std::span<const Metrics> metrics;  // of the whole run, including steps logged before it was resumed
  std::optional<double> best_loss;   // lowest validation loss, and the step when it was measured
  std::int64_t best_step = 0;
};

/// Observes a run: override the functions that you need. All are called on the training thread, between steps, so a slow
/// function slows the run. An exception from them ends the run.
class Observer {
 public:
  virtual ~Observer() = default;
  virtual void begin(const RunStart&) {}
  /// A logged step. If its loss is not finite, the run then ends with an Error.
  virtual void step(const Metrics&) {}
  /// The validation loss is going to be measured, which may take a while; `validation` follows, then `step`.
  virtual void validating(const Metrics&) {}
  virtual void validation(const Validation&) {}
  virtual void sample(const Sample&) {}
  virtual void checkpoint(const SavedCheckpoint&) {}
  /// A problem that the user should know of but that does not end the run, such as a damaged checkpoint that was skipped. May
  /// come before `begin`.
  virtual void warning(std::string_view) {}
  /// Of a step at the end of a run that asks for it, before `end`; with the rates of the device.
  virtual void profile(const Profile&) {}
  /// Not called for a run that ends with an exception.
  virtual void end(const RunEnd&) {}
};

}  // namespace weft::train
