// Training a GPT on a text, step by step.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>

#include "weft/compile.hpp"
#include "weft/device.hpp"
#include "weft/nn/gpt.hpp"
#include "weft/optim/loss_scale.hpp"
#include "weft/profile.hpp"
#include "weft/train/checkpoint.hpp"
#include "weft/train/config.hpp"

namespace weft::train {

class Learner;

/// How several devices share a run: each has a copy of the model and a share of every batch, or each has some of the layers.
enum class Sharing : std::uint8_t { batches, layers };

/// Model, optimiser and position of a run. A step on one device is one compiled function of (tokens, learning rate).
///
/// With several devices, each has a copy of the model and of the optimiser and takes its share of a batch's rows. The mean of
/// their gradients goes through the memory of the host (parallel::Member::all_reduce_mean), and all make the same update: so a
/// step computes what one device would, up to rounding, and dropout. Models on devices of different kinds drift apart by
/// rounding; the first device's is checked, saved and returned.
///
/// With `Sharing::layers` the model is divided: each device has some blocks with their weights, moments and gradients, so a model may be
/// larger than one device. The batches of a step (`accumulate` of them) go through the devices to the loss and back, several at a time,
/// and gradients are clipped by the norm over all devices. Losses, gradients and checkpoints are those of one device, up to rounding.
/// Blocks are computed again for gradients. In f32 or bf16.
class Trainer {
 public:
  /// A new run; `data` must outlive this object. Without `devices` it uses the default device; else the first of them must be
  /// the default device.
  /// Errors  UsageError: a batch that the devices cannot share evenly; layers of one device, more devices than layers, or in f16.
  Trainer(const RunConfig& config, const TextData& data, std::span<const Device> devices = {},
          Sharing sharing = Sharing::batches);
  /// A resumed run. Errors: as above; FileError if the checkpoint does not fit its own configuration.
  Trainer(const RunConfig& config, const TextData& data, const Checkpoint& checkpoint,
          std::span<const Device> devices = {}, Sharing sharing = Sharing::batches);
  ~Trainer();
  Trainer(const Trainer&) = delete;

  struct StepResult {
    Tensor loss;       // of the batch, before the update; reading it waits for the device
    Tensor grad_norm;  // before clipping; not finite where the step was left out (f16)
  };
  /// Makes the next step, after `elapsed` seconds of the run (for schedules that follow time).
  /// Errors  what another device threw; the run is then over.
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

  /// Gradients, activations and scratch of a step on the first device, as planned. Compiles the step, but runs nothing.
  std::uint64_t planned_step_bytes();

  Checkpoint checkpoint() const;
  /// Of the first device; of a model that is divided, only the parameters of that device's layers have been made.
  nn::GPT& model();
  /// Of a run in f16; else null.
  const optim::LossScale* loss_scale() const;
  /// Errors  UsageError: a model that is divided has several plans. So has `profile`.
  Compiled& compiled_step();
  /// Makes two steps more and times the kernels of the second one; of a run that accumulates or has several devices, those of
  /// the gradients of a batch on the first device.
  Profile profile();

 private:
  struct Others;
  struct Divided;
  Trainer(const RunConfig& config, const TextData& data, const Checkpoint* checkpoint, std::span<const Device> devices,
          Sharing sharing);
  void check(std::span<const Device> devices, Sharing sharing) const;
  Learner& learner() const;

  const RunConfig config_;
  const TextData& data_;
  const int members_;
  std::int64_t step_ = 0;
  double learning_rate_ = 0;
  std::unique_ptr<Learner> learner_;  // of the first device
  std::unique_ptr<Others> others_;    // of several devices
  std::unique_ptr<Divided> divided_;  // in place of both, where the model is divided
};

}  // namespace weft::train
