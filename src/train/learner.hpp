// One device's share of a training run: the model, its optimiser, and the compiled functions of a step.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "weft/compile.hpp"
#include "weft/nn/gpt.hpp"
#include "weft/optim/gradient_sum.hpp"
#include "weft/optim/optimizer.hpp"
#include "weft/parallel.hpp"
#include "weft/profile.hpp"
#include "weft/train/checkpoint.hpp"
#include "weft/train/config.hpp"

namespace weft::train {

/// Bytes of the weights, of the optimiser's state, and of the sum of gradients of a run that accumulates.
std::uint64_t state_bytes(const RunConfig& config);

/// Works in the session and on the default device that it is made in. Alone, a step without accumulation is one plan. With
/// others, gradients are one plan, their mean over the members comes next, and the update is another plan.
class Learner {
 public:
  /// A new run, or the checkpoint's if there is one. Without a member it works alone.
  Learner(const RunConfig& config, const Checkpoint* checkpoint, const parallel::Member* member = nullptr);

  struct StepResult {
    Tensor loss;       // the mean over the batches of all members
    Tensor grad_norm;  // before clipping
  };
  /// One step on batches [rows, context + 1] of tokens.
  StepResult step(double learning_rate, std::span<const Tensor> batches);
  /// The mean loss of inputs and targets, [rows, context] each.
  Tensor loss(const Tensor& inputs, const Tensor& targets);
  /// Gradients, activations and scratch of a step on batches of `rows` texts, and of a call of `loss`: the memory of their plans,
  /// which are made but not run.
  std::uint64_t planned_step_bytes(Extent rows);
  std::uint64_t planned_loss_bytes(Extent rows);
  /// Makes two steps more and times the kernels of the second one; of a run that accumulates or has several devices, those of
  /// a batch's gradients.
  Profile profile(double learning_rate, const Tensor& batch);

  /// The state of model, optimiser, loss scale and random numbers into a checkpoint.
  void save_to(Checkpoint& checkpoint) const;

  nn::GPT& model() { return model_; }
  const optim::LossScale* loss_scale() const { return loss_scale_ ? &*loss_scale_ : nullptr; }
  Compiled& compiled_step() { return compiled_step_; }

  static constexpr int kIgnored = -100;  // a target that is not counted

 private:
  struct LossAndGradients {
    Tensor loss;
    std::vector<Tensor> gradients;
  };
  LossAndGradients loss_and_gradients(const Tensor& batch);
  Tensor update(std::span<const Tensor> gradients, const Tensor& learning_rate);

  const RunConfig config_;
  std::optional<parallel::Member> member_;
  nn::GPT model_;
  std::unique_ptr<optim::Optimizer> optimizer_;
  std::optional<optim::LossScale> loss_scale_;
  std::optional<optim::GradientSum> sum_;  // of runs that accumulate
  Compiled compiled_step_, compiled_add_, compiled_gradients_, compiled_update_, compiled_loss_;
};

}  // namespace weft::train
