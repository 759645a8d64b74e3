// Target propagation: every layer learns from the gap between what it gave and what it should have given.
#pragma once

#include <string>
#include <vector>

#include "weft/grid/network.hpp"
#include "weft/grid/systolic.hpp"

namespace weft::grid {

enum class TargetMode : std::uint8_t {
  chain_rule,  ///< targets and updates from the layer's own gradients, one layer at a time
  gap          ///< targets and updates from weights and activations alone, without gradients
};

struct TargetOptions {
  TargetMode mode = TargetMode::chain_rule;
  double gradient_scale = 0.1;  ///< chain rule: how far the target of an input is moved along its gradient
  double learning_rate = 0.01;
  double budget_min = 0.2;  ///< layers with a smaller budget are not updated
};

/// How well a layer of the grid met its target.
struct LinkState {
  std::string path;
  Tensor target;
  /// (cosine(actual, target) + 1) / 2, f32 of rank 0 in [0, 1].
  Tensor budget;
  /// The root mean square of target - actual.
  Tensor gap;
};

/// One update of all layers of the grid. Let a layer give y = f(x, W) and let t be its target; that of the last layer is given.
///
/// Chain rule: with e = t - y, the target of x is x + gradient_scale J_x^T e, and W moves by rate J_W^T e. Targets of a layer that
/// several read, as input or as skip, are added up as changes. A layer that an earlier one reads by its link responds to that target
/// by itself, after all others.
///
/// Gap: the target of input j is sum_o w_oj t_o / sum_o |w_oj| where the denominator is above 0.01, with w the weight of dense, the
/// input weight of rnn, the four of lstm, the query of attention; other layers leave the input as its own target. With g = t - y:
/// dense W += rate g x^T; rnn the same for its input weight and bias, half of it for the hidden weight with the step before; lstm a
/// quarter of it, a tenth for the hidden weights; attention half of it for the query; swiglu a tenth for the outer weight with the
/// inner units; norms gamma += rate g / 100.
///
/// The rate of a layer is learning_rate (0.5 + budget / 2), or 0 if its budget is below budget_min. Updates are means over the batch.
/// All of it is values on the device: `step` may be part of a compiled function.
class TargetPropagation {
 public:
  /// `network` must outlive this object. Errors: UsageError for an option out of its range.
  explicit TargetPropagation(Network& network, TargetOptions options = {});

  /// Runs x through the network and updates the parameters. The states are those before the update, from the first layer to the
  /// last; disabled layers have none.
  /// Errors  ShapeError: a target of another shape than the output. UsageError: a link to a later layer
  std::vector<LinkState> step(const Tensor& x, const Tensor& target, Where where = Where::current());
  /// The same with what the layers of a mesh read and gave in their last tick. Layers that nothing reached are left out.
  /// Errors  UsageError: a mesh of another network, or one whose last layer gave nothing
  std::vector<LinkState> step(const Systolic& mesh, const Tensor& target, Where where = Where::current());

 private:
  /// What each layer of the grid read and gave, and the indices of the layers that gave its input and its skip; -1: the input of the
  /// network, or no skip.
  struct Activity {
    std::vector<Tensor> inputs, skips, outputs;
    std::vector<std::ptrdiff_t> sources, skip_sources;
  };
  std::vector<LinkState> step(const Activity& activity, const Tensor& target, Where where);

  Network& network_;
  TargetOptions options_;
};

}  // namespace weft::grid
