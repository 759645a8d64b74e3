// A volumetric network: a module made from a description. A pass is ordinary ops, so gradients, `compile` and every device follow.
#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "weft/grid/description.hpp"
#include "weft/grid/number_types.hpp"
#include "weft/nn/module.hpp"

namespace weft::grid {

/// A layer of a network: its parameters, and the layers inside of it as children "0", "1", ... and "gate".
class LayerModule : public nn::Module {
 public:
  /// `layer` must outlive this object, and keep the members that parameters depend on. A layer inside of another has no parameters
  /// if it is a link.
  explicit LayerModule(const Layer& layer, bool is_inside = false);

  const Layer& layer() const { return layer_; }
  /// The f32 parameters in the order of storage.
  const std::vector<nn::Parameter>& master() const { return master_; }
  /// The same as the pass sees them: `quantised` to the layer's dtype.
  std::vector<Tensor> weights() const;
  const std::vector<std::unique_ptr<LayerModule>>& inside() const { return inside_; }
  /// Null if there is none.
  const LayerModule* gate() const { return gate_.get(); }

  std::string describe() const override;
  double own_flops() const override;
  bool runs_hooks() const override { return false; }

 private:
  const Layer& layer_;
  std::vector<nn::Parameter> master_;
  std::vector<std::unique_ptr<LayerModule>> inside_;
  std::unique_ptr<LayerModule> gate_;
};

/// What one layer made of its input in a pass.
struct LayerPass {
  std::string path;  ///< "0,0,0,2"; of layers inside "0,0,0,2/1" and "0,0,0,2/gate"
  const LayerModule* module = nullptr;
  Tensor input, before, after;  ///< `before` the activation; the same as `after` where there is none
};
/// A pass with all that its layers made. Layers are in the order in which they end: those inside before the one around them.
/// Disabled layers are left out.
struct Pass {
  Tensor output;
  std::vector<LayerPass> layers;
};

/// Sizes of the parameters of a network.
struct Memory {
  std::size_t parameters = 0;
  std::size_t master_bytes = 0;  ///< in f32
  std::size_t packed_bytes = 0;  ///< in the types of their layers, with scales
};

struct StepStates;

/// A network. Layers are modules named by their place: "z0y0x0l2.weight", and inside of others "z0y0x0l2.1.weight".
///
/// In a pass each layer reads the output of the layer before it, or of the one that its link names, and gets that layer's input as
/// skip. A compiled function that calls the network is traced again after `morph` and `set_disabled`.
class Network : public nn::Module {
 public:
  /// Errors  UsageError that lists every mistake of the description.
  explicit Network(Description description);

  const Description& description() const { return description_; }
  const LayerModule& layer(std::size_t index) const { return *layers_.at(index); }
  const LayerModule& layer(const Coordinate& at) const { return *layers_[description_.index(at)]; }

  /// Shapes    x [batch, ...], as the first layer takes it
  /// Errors    ShapeError, with the layer: x does not fit, children that are added differ. UsageError: a link to a layer that a pass
  ///           has not run yet
  Tensor operator()(const Tensor& x, Where where = Where::current()) const;
  /// The same with what every layer made. It can be part of a compiled function, and gradients of all these tensors can be taken.
  Pass pass(const Tensor& x, Where where = Where::current()) const;
  /// One layer of the grid alone. An undefined `skip` is none. Appends to `made` unless it is null.
  Tensor run_layer(std::size_t index, const Tensor& x, const Tensor& skip = {}, std::vector<LayerPass>* made = nullptr,
                   Where where = Where::current()) const;

  /// From now on the layer, with those inside of it, or all layers, see their parameters in this type. The f32 parameters stay as
  /// they are, so a network may change its type at any time and be trained in each: gradients go to them unchanged.
  /// Errors  UsageError: not one of kNumberTypes
  void morph(DType type);
  void morph(const Coordinate& at, DType type);
  /// Errors of both  UsageError: a fresh layer that is to be enabled, or a type of layer without activation
  void set_disabled(const Coordinate& at, bool disabled);
  void set_activation(const Coordinate& at, Activation activation);

  Memory memory() const;
  /// A network of its own with the same description and parameters, those of layers inside and gates included.
  std::unique_ptr<Network> clone() const;

  std::string describe() const override;

 private:
  friend class Runner;
  friend class Stream;
  Pass pass(const Tensor& x, StepStates* states, Where where) const;
  Tensor run_layer(std::size_t index, const Tensor& x, const Tensor& skip, std::vector<LayerPass>* made,
                   StepStates* states, Where where) const;
  void changed();

  Description description_;
  std::vector<std::unique_ptr<LayerModule>> layers_;
  /// True until the description changes; a new one is made then. Compiled functions note it.
  std::shared_ptr<std::atomic<bool>> is_current_;
};

}  // namespace weft::grid
