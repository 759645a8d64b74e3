#include "vision/config.hpp"

namespace weft::vision {
namespace {

using io::ConfigKeys;

/// Defaults of the classes in transformers.
struct Defaults {
  Extent hidden, intermediate, layers, heads;
  double norm_eps;
  const char* activation;
};

/// A number, or a list of two that are the same.
Extent square(const ConfigKeys& keys, const char* key, Extent fallback) {
  const Json* value = keys.find({key});
  if (!value || !value->is_array()) return keys.size({key}, fallback);
  if (value->size() != 2 || !(*value)[0].is_number_integer() || (*value)[0] != (*value)[1])
    keys.fail(key, fmt::format("is {}, not two sides that are the same, which Weft needs", value->dump()));
  return (*value)[0].get<Extent>();
}

void read_internvl(const ConfigKeys& keys, TowerConfig& c) {
  c.stack.has_attention_bias = keys.flag("attention_bias", false);
  c.stack.norms_queries = keys.flag("use_qk_norm", false);
  c.stack.scales_layers = true;
  const std::string norm = keys.text({"norm_type"}, "layer_norm");
  if (norm != "layer_norm" && norm != "rms_norm")
    keys.fail("norm_type", fmt::format("is \"{}\"; known are layer_norm and rms_norm", norm));
  c.stack.norms_are_rms = norm == "rms_norm";
  c.has_last_norm = !keys.flag("use_mean_pooling", true);
  if (!keys.flag("use_absolute_position_embeddings", true))
    keys.fail("use_absolute_position_embeddings", "is false, which Weft does not support");
}

Defaults defaults_of(TowerKind kind) {
  switch (kind) {
    case TowerKind::clip: return {768, 3072, 12, 12, 1e-5, "quick_gelu"};
    case TowerKind::siglip: return {768, 3072, 12, 12, 1e-6, "gelu_pytorch_tanh"};
    case TowerKind::vit: return {768, 3072, 12, 12, 1e-12, "gelu"};
    case TowerKind::idefics3: return {1152, 3072, 12, 16, 1e-6, "gelu_pytorch_tanh"};
    case TowerKind::internvl: return {1024, 4096, 24, 16, 1e-6, "gelu"};
  }
  return {};
}

StackConfig stack_config(const ConfigKeys& keys, const Defaults& d) {
  StackConfig c;
  c.hidden = keys.size({"hidden_size"}, d.hidden);
  c.intermediate = keys.size({"intermediate_size"}, d.intermediate);
  c.layers = keys.size({"num_hidden_layers"}, d.layers);
  c.heads = keys.size({"num_attention_heads"}, d.heads);
  c.norm_eps = keys.number({"layer_norm_eps"}, d.norm_eps);
  require_size(keys, "hidden_size", c.hidden, 1 << 16);
  require_size(keys, "intermediate_size", c.intermediate, 1 << 18);
  require_size(keys, "num_hidden_layers", c.layers, 1 << 10);
  require_size(keys, "num_attention_heads", c.heads, 1 << 10);
  if (c.hidden % c.heads != 0)
    keys.fail("num_attention_heads", fmt::format("is {}, which does not divide hidden_size {}", c.heads, c.hidden));
  if (!(c.norm_eps > 0 && c.norm_eps < 1))
    keys.fail("layer_norm_eps", fmt::format("is {}, not between 0 and 1", c.norm_eps));
  c.activation = activation_of(keys, d.activation);
  return c;
}

}  // namespace

void require_size(const ConfigKeys& keys, const char* key, Extent value, Extent max) {
  if (value < 1 || value > max) keys.fail(key, fmt::format("is {}, not from 1 to {}", value, max));
}

Activation activation_of(const ConfigKeys& keys, const char* fallback) {
  const std::string name = keys.text({"hidden_act"}, fallback);
  if (name == "gelu") return Activation::gelu;
  if (name == "quick_gelu") return Activation::quick_gelu;
  if (name == "gelu_pytorch_tanh" || name == "gelu_new") return Activation::gelu_tanh;
  if (name == "silu") return Activation::silu;
  keys.fail("hidden_act", fmt::format("is \"{}\"; known are gelu, quick_gelu, gelu_pytorch_tanh and silu", name));
}

TowerConfig tower_config(TowerKind kind, const Json& json, const std::string& source, const std::string& path) {
  const ConfigKeys keys(json, source, path);
  TowerConfig c;
  c.kind = kind;
  c.stack = stack_config(keys, defaults_of(kind));
  const bool is_internvl = kind == TowerKind::internvl,
             is_coarse = kind == TowerKind::clip || kind == TowerKind::idefics3;
  c.image_size = square(keys, "image_size", is_internvl ? 448 : 224);
  c.patch_size = square(keys, "patch_size", is_internvl ? 14 : is_coarse ? 32 : 16);
  if (is_internvl) read_internvl(keys, c);
  require_size(keys, "image_size", c.image_size, 1 << 13);
  require_size(keys, "patch_size", c.patch_size, c.image_size);
  if (const Extent channels = keys.size({"num_channels"}, 3); channels != 3)
    keys.fail("num_channels", fmt::format("is {}; Weft reads images of 3 channels", channels));
  if (!keys.flag("qkv_bias", true)) keys.fail("qkv_bias", "is false, which Weft does not support");
  return c;
}

TextConfig text_config(bool is_siglip, const Json& json, const std::string& source, const std::string& path) {
  const ConfigKeys keys(json, source, path);
  const Defaults defaults = is_siglip ? Defaults{768, 3072, 12, 12, 1e-6, "gelu_pytorch_tanh"}
                                      : Defaults{512, 2048, 12, 8, 1e-5, "quick_gelu"};
  TextConfig c;
  c.is_siglip = is_siglip;
  c.stack = stack_config(keys, defaults);
  c.vocabulary = keys.size({"vocab_size"}, is_siglip ? 32000 : 49408);
  c.context = keys.size({"max_position_embeddings"}, is_siglip ? 64 : 77);
  require_size(keys, "vocab_size", c.vocabulary, ConfigKeys::kSizeMax);
  require_size(keys, "max_position_embeddings", c.context, 1 << 14);
  c.end_token = keys.size({"eos_token_id"}, 49407);
  c.padding_token = keys.size({"pad_token_id"}, 1);
  if (is_siglip && c.padding_token >= c.vocabulary)
    keys.fail("pad_token_id", fmt::format("is {}, outside of the vocabulary of {}", c.padding_token, c.vocabulary));
  return c;
}

}  // namespace weft::vision
