// Training a GPT on a text, step by step.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "weft/compile.hpp"
#include "weft/nn/gpt.hpp"
#include "weft/optim/gradient_sum.hpp"
#include "weft/optim/optimizer.hpp"
#include "weft/profile.hpp"
#include "weft/train/checkpoint.hpp"
#include "weft/train/config.hpp"

namespace weft::train {

/// Model, optimiser and position of a run. A step is one compiled function of (tokens, learning rate).
class Trainer {
 public:
  /// A new run; `data` must outlive this object.
  Trainer(const RunConfig& config, const TextData& data);
  /// A resumed run. Errors: FileError if the checkpoint does not fit its own configuration.
  Trainer(const RunConfig& config, const TextData& data, const Checkpoint& checkpoint);

  struct StepResult {
    Tensor loss;       // of the batch, before the update; reading it waits for the device
    Tensor grad_norm;  // before clipping; not finite where the step was left out (f16)
  };
  /// Makes the next step, after `elapsed` seconds of the run (for schedules that follow time).
  StepResult step(double elapsed);
  /// Number of steps made.
  std::int64_t steps() const { return step_; }
  double learning_rate() const { return learning_rate_; }

  struct Evaluation {
    double loss = 0;          // mean over targets, in nats
    std::int64_t tokens = 0;  // how many
  };
  /// Mean loss over the validation text, in windows of the context one after another; with `batches`, over this many batches of
  /// windows spread evenly. A whole pass counts every target once.
  Evaluation evaluate(std::int64_t batches = 0);

  Checkpoint checkpoint() const;
  nn::GPT& model() { return model_; }
  /// Of a run in f16; else null.
  const optim::LossScale* loss_scale() const { return loss_scale_ ? &*loss_scale_ : nullptr; }
  Compiled& compiled_step() { return compiled_step_; }
  /// Makes two steps more and times the kernels of the second one; of a run that accumulates, those of a batch's gradients.
  Profile profile();

 private:
  Trainer(const RunConfig& config, const TextData& data, const Checkpoint* checkpoint);
  /// The loss of a batch [rows, context + 1], whose tokens are the targets of those before them, and its gradients.
  std::pair<Tensor, std::vector<Tensor>> loss_and_gradients(const Tensor& batch);
  /// The next batches, each [batch, context + 1], and the learning rate.
  struct Arguments {
    Tensor rate;
    std::vector<Tensor> batches;
  };
  Arguments next_arguments(double elapsed);
  Tensor update(std::span<const Tensor> gradients, const Tensor& learning_rate);

  RunConfig config_;
  const TextData& data_;
  nn::GPT model_;
  std::optional<optim::AdamW> optimizer_;
  std::optional<optim::LossScale> loss_scale_;
  std::optional<optim::GradientSum> sum_;  // of runs that accumulate
  Compiled compiled_step_, compiled_add_, compiled_loss_;
  std::int64_t step_ = 0;
  double learning_rate_ = 0;
};

}  // namespace weft::train
