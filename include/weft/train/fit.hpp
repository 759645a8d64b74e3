// Training of any module on tensors of examples: epochs, batches, validation, callbacks, history.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <stop_token>
#include <string>
#include <string_view>
#include <vector>

#include "weft/nn/module.hpp"
#include "weft/optim/optimizer.hpp"
#include "weft/tensor.hpp"

namespace weft::train {

/// Inputs and what is expected of them: example i is x[i] and y[i].
struct Examples {
  Tensor x, y;
};

/// What an epoch reached.
struct EpochReport {
  int epoch = 0;                               ///< from 1
  double loss = 0;                             ///< the mean over the examples, each before the update of its batch
  std::optional<double> validation_loss = {};  ///< after the epoch
  double seconds = 0;                          ///< since `fit` began
};

struct FitOptions {
  int epochs = 10;
  Extent batch = 32;
  /// Decides the order of the examples, anew in each epoch.
  std::uint64_t seed = 1;
  Examples validation = {};
  /// Ends the training when the validation loss, or the loss where there is none, is at most this.
  std::optional<double> loss_target = {};
  /// Called after each epoch; false ends the training.
  std::function<bool(const EpochReport&)> on_epoch = {};
  /// A stop ends the training before the next batch. The epoch that it cuts is not in the history; what was learnt in it stays.
  std::stop_token stop = {};
};

/// The epochs of a training run.
struct History {
  std::vector<EpochReport> epochs;
  std::size_t parameter_bytes = 0;  ///< of the trained parameters

  /// The validation loss of the last epoch, or its loss. Errors: UsageError for no epochs.
  double final_loss() const;
  /// Seconds until that loss was at most `loss`; nothing if it never was.
  std::optional<double> seconds_to(double loss) const;
};

using Forward = std::function<Tensor(const Tensor& x)>;
using Loss = std::function<Tensor(const Tensor& output, const Tensor& y)>;
/// "mse" (nn::mse), or "cross_entropy" (nn::cross_entropy) with classes as targets. Errors: UsageError for any other name.
Loss loss_named(std::string_view name);

/// Trains the optimiser's parameters. A step (batch, pass, gradients, update) is one compiled function; the data stay on their
/// device. `module` is in training mode while it trains, and in evaluation mode for the validation; its mode is restored. The same
/// seed gives the same batches.
/// Errors  UsageError: no examples, x and y of different lengths, numbers out of range. DeviceError, ShapeError: as `forward`
History fit(nn::Module& module, const Forward& forward, const Loss& loss, optim::Optimizer& optimizer,
            const Examples& examples, const FitOptions& options = {});
template <std::derived_from<nn::Module> M>
History fit(M& model, const Loss& loss, optim::Optimizer& optimizer, const Examples& examples,
            const FitOptions& options = {}) {
  return fit(
      model, [&model](const Tensor& x) { return model(x); }, loss, optimizer, examples, options);
}

/// The mean loss over examples, in batches, in evaluation mode.
double mean_loss(nn::Module& module, const Forward& forward, const Loss& loss, const Examples& examples,
                 Extent batch = 256);

/// Runs of several methods beside each other as a table: final loss, seconds, seconds to each milestone, bytes of parameters.
/// Methods that did not reach a milestone have "-".
std::string comparison_table(std::span<const std::pair<std::string, History>> methods,
                             std::span<const double> milestones = {});

}  // namespace weft::train
