// A transformer over the patches of an image in its own proportions, which knows where a patch is by turning queries and keys
// on two axes: the towers of Qwen2-VL, Qwen2.5-VL, Qwen3-VL and Pixtral.
#pragma once

#include <vector>

#include "image/pixels.hpp"
#include "vision/stack.hpp"

namespace weft::vision {

enum class GridKind : std::uint8_t {
  qwen2,    ///< layer norms; two frames of each image
  qwen2_5,  ///< RMS norms, gated MLPs; most layers see squares of the image
  qwen3,    ///< as qwen2, with learnt positions too; states of some layers go to layers of the language model
  pixtral,  ///< RMS norms, gated MLPs, no biases; one frame
};

struct GridTowerConfig {
  GridKind kind = GridKind::qwen2;
  StackConfig stack;
  Extent patch_size = 14, frames = 1;
  Extent merge = 1;  ///< patches on a side of the square that becomes one row of the language model
  double rope_base = 10000;
  Extent window = 0;           ///< patches on a side of the squares that layers see; 0: they see all
  std::vector<bool> sees_all;  ///< with a window: the layers that have none
  Extent known = 0;            ///< learnt positions on a side; 0: none
  std::vector<Extent> taken;   ///< layers whose states are given beside the last ones
  Extent out = 0;              ///< width of the language model's rows, as the file says; 0: it does not

  Extent head_dim() const { return stack.hidden / stack.heads; }
  bool operator==(const GridTowerConfig&) const = default;
};
/// As tower_config: from the object `vision_config` of a config.json. `merge` is for Pixtral, whose file says it elsewhere.
GridTowerConfig grid_tower_config(GridKind kind, const Json& json, const std::string& source, const std::string& path,
                                  Extent merge = 1);

/// The patches of a picture in the order in which the tower reads them: those that become one row side by side, and the rows of
/// a window side by side.
struct PatchGrid {
  Extent height = 0, width = 0;    ///< in patches
  std::vector<std::int32_t> y, x;  ///< of each patch
  std::vector<std::int32_t> first,
      length;                     ///< the patches that a layer with a window sees from each; empty without windows
  std::vector<std::int32_t> row;  ///< of each row that the tower gives, its place in reading order
};
PatchGrid patch_grid(const GridTowerConfig& config, Extent height, Extent width);
/// f32 [patches, 3 frames p p], as the first product reads them, of planes f32 [3, height p, width p].
std::vector<float> patch_values(const GridTowerConfig& config, const PatchGrid& grid, std::span<const float> planes);

class GridTower {
 public:
  /// `prefix` of its tensors. FileError for more layers than the files have tensors.
  GridTower(const GridTowerConfig& config, ModelWeights& weights, const std::string& prefix);

  const GridTowerConfig& config() const { return config_; }
  /// What `states` reads of N pictures of one size, on the device.
  std::vector<Tensor> inputs(const PatchGrid& grid, std::span<const std::vector<float>> planes, Device device) const;
  /// The states [N patches, hidden] after the layers of `taken`, and after the last layer.
  std::vector<Tensor> states(std::span<const Tensor> inputs) const;

 private:
  /// Layer norm, or RMS norm where there is no bias.
  struct AnyNorm {
    Tensor weight, bias;
    double eps;
    Tensor operator()(const Tensor& x) const;
  };
  struct Layer {
    AnyNorm norm1, norm2;
    Linear qkv, q, k, v, o;  // one matrix, or three
    Linear gate, up, down;   // without a gate: down(activation(up))
  };
  Tensor attended_layer(const Layer& layer, const Tensor& x, bool sees_all, std::span<const Tensor> inputs) const;

  GridTowerConfig config_;
  Linear patches_;
  Tensor positions_, first_norm_;
  std::vector<Layer> layers_;
};

}  // namespace weft::vision
