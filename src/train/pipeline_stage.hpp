// One device's part of a training run whose model is divided by layers: some blocks, their optimiser, and the plans of a step.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "weft/compile.hpp"
#include "weft/nn/gpt.hpp"
#include "weft/optim/gradient_sum.hpp"
#include "weft/optim/optimizer.hpp"
#include "weft/parallel.hpp"
#include "weft/train/checkpoint.hpp"
#include "weft/train/config.hpp"

namespace weft::train {

/// The number of blocks of each device: the largest number of parameters on a device is as small as it can be.
/// Errors  UsageError: fewer blocks than devices.
std::vector<Extent> blocks_of_stages(const nn::GptConfig& model, std::size_t stages);

/// Works in the session and on the default device that it is made in. The first stage also has the embeddings, the last one the norm
/// and the head. Each batch of a step goes through the stages to the loss and back; a stage has several of them under way
/// ("one forward, one backward": Narayanan et al. 2021, arXiv:2104.04473), and computes its blocks again for the gradients of a
/// batch, so it keeps one value of [rows, context, width] for each. A tied head is a copy of the embedding: both add up the gradients of
/// both, in the same order, and make the same update.
class PipelineStage {
 public:
  /// A new run, or the checkpoint's if there is one. Errors: FileError for a checkpoint that does not fit its configuration.
  PipelineStage(const RunConfig& config, const Checkpoint* checkpoint, const parallel::Member& member);

  struct StepResult {
    Tensor loss, grad_norm;  // the same at every stage
  };
  /// Batches [rows, context + 1] of tokens by their number. Only the first stage and the last one ask for them.
  using Batches = std::function<Tensor(Extent)>;
  StepResult step(std::int64_t step, double learning_rate, const Batches& batches);
  /// The mean loss of inputs and targets [rows, context] each, at the last stage; undefined elsewhere.
  Tensor loss(const Tensor& inputs, const Tensor& targets);
  void train(bool on) { model_.train(on); }

  bool is_first() const { return member_.rank() == 0; }
  bool is_last() const { return member_.rank() + 1 == member_.size(); }
  /// Adds the state of the stage's parameters; the first stage also adds that of the random numbers. A table that is both embedding
  /// and head is the first stage's.
  void save_to(Checkpoint& checkpoint) const;
  /// With the parameters of this stage alone.
  nn::GPT& model() { return model_; }

  static constexpr int kIgnored = -100;  // a target that is not counted

 private:
  Tensor part(const Tensor& x) const;
  std::vector<Tensor> with_gradients(const Tensor& y, const Tensor& x, const Tensor& seed);
  void forward(std::int64_t step, Extent batch, const Batches& batches);
  void backward(std::int64_t step, Extent batch);
  void set_random_state(std::int64_t step, Extent batch) const;
  /// Of rank 0 and of the last one, where the head is tied: the place of the table among the parameters.
  std::optional<std::size_t> tied_table() const;
  std::vector<nn::NamedVariable> named_variables() const;

  const RunConfig config_;
  parallel::Member member_;
  nn::GPT model_;
  Extent first_block_ = 0, last_block_ = 0;
  std::vector<nn::NamedParameter> parameters_;
  std::unique_ptr<optim::Optimizer> optimizer_;
  std::optional<optim::GradientSum> sum_;
  Compiled forward_, backward_, loss_and_backward_, means_, update_, evaluate_;
  std::deque<Tensor> inputs_;  // of batches that have gone forward
  Tensor loss_;                // the sum over the batches of a step; the last stage's
};

}  // namespace weft::train
