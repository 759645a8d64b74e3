// What the types of layers are: a row for each, with its members, parameters and forward function.
#pragma once

#include <cstdint>
#include <limits>
#include <span>
#include <string_view>
#include <variant>
#include <vector>

#include "grid/layer_functions.hpp"
#include "weft/grid/description.hpp"
#include "weft/nn/init.hpp"

namespace weft::grid {

/// A parameter of a layer. Their order is that of storage.
struct ParameterSpec {
  std::string_view name;
  Shape shape;
  nn::Init init;
};

/// The result before the activation. `weights` are in the order of the parameters.
using Forward = Tensor (*)(const Layer& layer, std::span<const Tensor> weights, const Tensor& x, Where where);

/// The same for steps that follow those of a state.
using ForwardSteps = Tensor (*)(const Layer& layer, std::span<const Tensor> weights, const Tensor& x, StepState& state,
                                Where where);

struct LayerRow {
  LayerType type;
  std::string_view name;
  bool activates;                                                      ///< whether an activation is applied
  std::vector<ParameterSpec> (*parameters)(const Layer&);              ///< null: none
  Forward forward;                                                     ///< null: the network runs the layers inside
  Extent (*input_width)(const Layer&), (*output_width)(const Layer&);  ///< of the last axis; null: any
  ForwardSteps forward_steps = nullptr;                                ///< null: `forward`, for it keeps no state
};
const LayerRow& row_of(LayerType type);
std::vector<ParameterSpec> parameters_of(const Layer& layer);

/// A number of a layer: which types use it, and its range.
struct LayerField {
  std::string_view name;
  std::variant<Extent Layer::*, double Layer::*, bool Layer::*> member;
  std::uint32_t types;
  double least = 0, most = 0;

  bool is_used_by(LayerType type) const { return types >> static_cast<int>(type) & 1; }
};
std::span<const LayerField> layer_fields();

/// Errors  UsageError that lists the problems, if there are any.
void refuse(const std::vector<Problem>& problems);

/// The largest extent that a description may have.
inline constexpr Extent kExtentMax = Extent{1} << 40;
/// How deep layers may be inside of others.
inline constexpr int kNestingMax = 24;

}  // namespace weft::grid
