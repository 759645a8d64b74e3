// Networks that run by a clock: in each tick every layer reads what its source gave in the tick before.
#pragma once

#include <cstdint>
#include <vector>

#include "weft/grid/network.hpp"

namespace weft::grid {

/// The state of a network in systolic mode. All layers of the grid run at once, so data move on by one layer a tick, and links may
/// point anywhere: to a later layer, or to the layer itself, they make it recurrent. The input has a slot of its own, which the
/// first layer reads in every tick, and nothing else writes to it.
///
/// For n layers one after another and an input that stays, n ticks give what a pass gives.
class Systolic {
 public:
  struct Options {
    /// Gradients flow back through the ticks: weft::grad of `output()` reaches all of them, and adds up the gradients of the weights,
    /// which they share. If not, each tick is computed as it is made, and earlier ones are forgotten.
    bool keeps_gradients = false;
  };
  /// `network` must outlive this object.
  explicit Systolic(const Network& network, Options options);
  explicit Systolic(const Network& network) : Systolic(network, Options()) {}

  /// What the first layer reads from the next tick on.
  void set_input(const Tensor& x) { input_ = x; }
  /// Sets what a layer gave, for a loop that no input reaches otherwise.
  void set_output(const Coordinate& at, const Tensor& y);
  /// A layer whose source has given nothing yet waits, and keeps what it gave. Disabled layers pass on what they read.
  /// Errors  as a pass
  void tick(Where where = Where::current());
  void ticks(int count, Where where = Where::current());
  std::int64_t tick_count() const { return tick_count_; }

  /// What the last layer gave, or another; undefined before anything reached it.
  const Tensor& output() const { return outputs_.back(); }
  const Tensor& output(const Coordinate& at) const;
  /// What the layer read to give that; undefined before.
  const Tensor& input(const Coordinate& at) const;
  /// Forgets all outputs, and the input.
  void reset();

  const Network& network() const { return network_; }
  /// The index of the layer that layer `index` reads; -1 for the input.
  std::ptrdiff_t source(std::size_t index) const;

 private:
  const Network& network_;
  Options options_;
  Tensor input_;
  std::vector<Tensor> inputs_, outputs_;  // of each layer, in the tick that made its output
  std::int64_t tick_count_ = 0;
};

}  // namespace weft::grid
