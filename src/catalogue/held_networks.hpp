// Volumetric networks that clients hold by name, as resources network:NAME.
#pragma once

#include <map>
#include <memory>
#include <string>

#include "catalogue/named_resources.hpp"
#include "weft/compile.hpp"
#include "weft/grid.hpp"
#include "weft/optim/optimizer.hpp"
#include "weft/train/fit.hpp"

namespace weft::operations {

/// A network, and the optimiser (Adam) that has its moments from the first update on.
class HeldNetwork {
 public:
  explicit HeldNetwork(std::unique_ptr<grid::Network> network) : network_(std::move(network)) {}

  grid::Network& network() { return *network_; }
  /// The optimiser, with this learning rate from now on.
  optim::Optimizer& optimizer(double learning_rate);
  /// One update with a batch. Returns the loss before it.
  double step(const train::Examples& batch, const std::string& loss, double learning_rate);
  /// Forgets the moments and the number of updates; the parameters stay.
  void reset_optimizer();

 private:
  using Step = std::function<Tensor(const Tensor&, const Tensor&)>;
  std::unique_ptr<grid::Network> network_;
  std::unique_ptr<optim::Adam> optimizer_;
  std::map<std::string, Step> steps_;  // compiled, by their losses
};

using Networks = NamedResources<std::unique_ptr<HeldNetwork>>;

/// The form that networks take: f32, and ids in i32.
Tensor network_tensor(const Tensor& x);
train::Examples examples_of(const Value& input);

/// Names of new networks, in schemas.
inline constexpr const char* kNetworkName = R"({"type": "string", "pattern": "^[A-Za-z0-9._-]{1,100}$"})";

void add_evolution_operations(Registry& registry, const std::shared_ptr<Networks>& networks,
                              const CatalogueOptions& options);

}  // namespace weft::operations
