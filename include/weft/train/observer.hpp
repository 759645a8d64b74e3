// What a training run tells those who watch it. The run itself prints nothing and handles no signals.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "weft/nn/gpt.hpp"
#include "weft/train/config.hpp"
#include "weft/train/text.hpp"

namespace weft::train {

/// What is known of a logged step.
struct Metrics {
  std::int64_t step = 0;  // completed steps
  double loss = 0;        // of that step's batch, before its update
  std::optional<double> val_loss;
  std::optional<std::int64_t> val_tokens;  // how many targets val_loss is the mean of
  double tokens_per_second = 0;            // since the logged step before
  double learning_rate = 0;
  double grad_norm = 0;  // before clipping
  double seconds = 0;    // of the run so far
};

/// A run that is set up and about to make its first step. The references hold until the run ends.
struct RunStart {
  const RunConfig& config;
  const TextData& data;
  const nn::GPT& model;
  std::filesystem::path folder;
  bool resumed = false;
  std::int64_t steps = 0;  // made by the run that is resumed
  double seconds = 0;      // and how long they took
};

/// The validation loss, measured after `step` steps.
struct Validation {
  std::int64_t step = 0;
  double loss = 0;          // mean over targets, in nats
  std::int64_t tokens = 0;  // how many
  bool best = false;        // the least loss of the run so far
};

/// Text that the model wrote after `step` steps.
struct Sample {
  std::int64_t step = 0;
  std::string_view text;
};

/// A checkpoint that now stands on the disk.
struct SavedCheckpoint {
  std::int64_t step = 0;
  std::filesystem::path path;
  bool best = false;  // weights for use, of the least validation loss; else all that the run needs to go on
};

struct TrainResult {
  std::int64_t steps = 0;
  double validation_loss = 0;  // over the whole validation text, at the end; NaN if it was not measured
  double seconds = 0;
  bool interrupted = false;  // by its stop token; the last checkpoint holds everything
};

/// A run that has ended, by itself or because it was asked to. Its last checkpoint is written.
struct RunEnd {
  const TrainResult& result;
  std::span<const Metrics> metrics;  // of the whole run, what was logged before it was resumed included
  std::optional<double> best_loss;   // least validation loss, and the step it was measured at
  std::int64_t best_step = 0;
};

/// Watches a run: override what is of interest. All functions are called on the thread that trains, between steps, so what
/// they take is time of the run. What they throw ends the run.
class Observer {
 public:
  virtual ~Observer() = default;
  virtual void begin(const RunStart&) {}
  /// A logged step. Its loss may be not finite; the run then ends with an Error.
  virtual void step(const Metrics&) {}
  /// The validation loss is going to be measured, which may take a while; `validation` follows, then `step`.
  virtual void validating(const Metrics&) {}
  virtual void validation(const Validation&) {}
  virtual void sample(const Sample&) {}
  virtual void checkpoint(const SavedCheckpoint&) {}
  /// Something that the user should know and that ends nothing: a damaged checkpoint that was passed over, say. May come
  /// before `begin`.
  virtual void warning(std::string_view) {}
  /// Not called for a run that ends with an exception.
  virtual void end(const RunEnd&) {}
};

}  // namespace weft::train
