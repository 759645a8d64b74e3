// Sizes of vision models, from config.json.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "io/config_keys.hpp"

namespace weft::vision {

enum class Activation : std::uint8_t { gelu, gelu_tanh, quick_gelu, silu };
/// Of the key hidden_act. FileError for a name that Weft does not know.
Activation activation_of(const io::ConfigKeys& keys, const char* fallback);
/// FileError unless the value is from 1 to max.
void require_size(const io::ConfigKeys& keys, const char* key, Extent value, Extent max);

/// A stack of equal encoder layers with norms before attention and before the MLP.
struct StackConfig {
  Extent hidden = 0, intermediate = 0, layers = 0, heads = 0;
  double norm_eps = 1e-5;
  Activation activation = Activation::gelu;
  bool has_attention_bias = true;  ///< of queries, keys and values
  bool norms_are_rms = false;      ///< without means and biases
  bool norms_queries = false;      ///< queries and keys, over all heads
  bool scales_layers = false;      ///< what attention and MLP add, by a factor for each channel
  bool operator==(const StackConfig&) const = default;
};

enum class TowerKind : std::uint8_t {
  clip,      ///< a class token, a norm before the layers; its image is the class token after a norm
  siglip,    ///< no class token; its image is a query over all tokens
  vit,       ///< a class token; a norm behind the layers
  idefics3,  ///< SigLIP without its query, with positions for images of other sizes
  internvl,  ///< InternViT: as vit, with factors for what layers add
};

/// A transformer over patches of an image.
struct TowerConfig {
  TowerKind kind = TowerKind::clip;
  StackConfig stack;
  Extent image_size = 0, patch_size = 0;
  bool has_last_norm = true;  ///< InternViT: of the states behind the layers

  Extent grid() const { return image_size / patch_size; }
  bool has_class_token() const {
    return kind == TowerKind::clip || kind == TowerKind::vit || kind == TowerKind::internvl;
  }
  bool operator==(const TowerConfig&) const = default;
};
/// Keys that are missing have the defaults of the class in transformers, which leaves them out of files. `path`: of the object.
/// FileError for sizes that are out of range or do not fit each other, and for what Weft does not have.
TowerConfig tower_config(TowerKind kind, const Json& json, const std::string& source, const std::string& path);

/// A transformer over the tokens of a text.
struct TextConfig {
  bool is_siglip = false;
  StackConfig stack;
  Extent vocabulary = 0, context = 0;
  std::int64_t end_token = 0, padding_token = 1;
};
TextConfig text_config(bool is_siglip, const Json& json, const std::string& source, const std::string& path);

}  // namespace weft::vision
