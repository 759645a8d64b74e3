// Sequences that arrive part by part, as when a model writes one token after another.
#pragma once

#include <memory>

#include "weft/grid/network.hpp"

namespace weft::grid {

/// Runs a network on sequences as their steps come. Attention keeps the keys and values that later steps see (in a window, those of
/// its last positions), and recurrent layers their state, so all parts together give what one pass over the whole sequences gives.
/// Layers that read no other steps need no state.
class Stream {
 public:
  /// `network` must outlive this object, and not change while it is used.
  explicit Stream(const Network& network);
  ~Stream();
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;

  /// The output at the next steps, one or more. Computes it, with the states.
  /// Shapes    x [batch, steps, ...] or ids [batch, steps] -> as a pass
  /// Errors    UsageError: a convolution, which reads across steps. Others as a pass
  Tensor next(const Tensor& x, Where where = Where::current());
  /// Begins new sequences.
  void reset();

 private:
  const Network& network_;
  std::unique_ptr<StepStates> states_;
};

}  // namespace weft::grid
