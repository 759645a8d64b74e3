#include "speech/ctc_config.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>

#include "base/json.hpp"
#include "base/quote.hpp"
#include "io/config_keys.hpp"
#include "weft/error.hpp"

namespace weft::speech {
namespace {

constexpr JsonLimits kCtcLimits{.max_bytes = std::uint64_t{8} << 20, .max_values = 400'000};

std::vector<Extent> extents_of(const io::ConfigKeys& keys, const char* key, std::vector<Extent> fallback, Extent most) {
  if (!keys.find({key})) return fallback;
  std::vector<Extent> list;
  for (const double value : keys.numbers(key)) {
    if (!(value >= 1 && value <= static_cast<double>(most) && value == std::floor(value)))
      keys.fail(key, fmt::format("has {}, not a whole number from 1 to {}", value, most));
    list.push_back(static_cast<Extent>(value));
  }
  return list;
}

std::string activation_of(const io::ConfigKeys& keys, const char* key) {
  const std::string name = keys.text({key}, "gelu");
  if (name != "gelu" && name != "relu" && name != "silu" && name != "gelu_new")
    keys.fail(key, fmt::format("is {}; known are gelu, gelu_new, relu and silu", quote(name)));
  return name == "gelu_new" ? "gelu_tanh" : name;
}

/// A token by its name, which newer files write as an object with its content.
std::string token_text(const io::ConfigKeys& keys, const char* key, std::string fallback) {
  const Json* value = keys.find({key});
  if (!value) return fallback;
  if (value->is_object() && value->contains("content") && (*value)["content"].is_string()) return (*value)["content"];
  if (!value->is_string()) keys.fail(key, fmt::format("is {}, not the text of a token", value->dump()));
  return value->get<std::string>();
}

}  // namespace

bool is_ctc_type(std::string_view model_type) { return model_type == "wav2vec2" || model_type == "hubert"; }

Extent CtcConfig::hop() const {
  Extent product = 1;
  for (const Extent stride : strides) product *= stride;
  return product;
}

Extent CtcConfig::reach() const {
  Extent seen = 1;
  for (std::size_t i = kernels.size(); i-- > 0;) seen = (seen - 1) * strides[i] + kernels[i];
  return seen;
}

Extent CtcConfig::frames(Extent samples) const { return samples < reach() ? 0 : (samples - reach()) / hop() + 1; }

CtcConfig read_ctc_config(const std::filesystem::path& folder) {
  const std::string source = (folder / "config.json").string();
  const Json json = read_json_file(source, kCtcLimits);
  const io::ConfigKeys keys(json, source);
  CtcConfig c;
  c.type = keys.text({"model_type"});
  if (!is_ctc_type(c.type))
    keys.fail("model_type", fmt::format("is {}; recognisers by CTC are wav2vec2 and hubert", quote(c.type)));
  const auto size = [&](const char* key, std::optional<Extent> fallback, Extent most) {
    const Extent value = keys.size({key}, fallback);
    if (value < 1 || value > most) keys.fail(key, fmt::format("is {}; it must be in [1, {}]", value, most));
    return value;
  };
  c.vocabulary = size("vocab_size", {}, 1 << 20);
  c.width = size("hidden_size", {}, 1 << 14);
  c.layers = size("num_hidden_layers", {}, 1024);
  c.heads = size("num_attention_heads", {}, c.width);
  c.inner = size("intermediate_size", {}, 1 << 17);
  if (c.width % c.heads != 0)
    keys.fail("hidden_size", fmt::format("is {}, which {} heads do not divide", c.width, c.heads));
  c.channels = extents_of(keys, "conv_dim", std::vector<Extent>(7, 512), 1 << 14);
  c.kernels = extents_of(keys, "conv_kernel", {10, 3, 3, 3, 3, 2, 2}, 1024);
  c.strides = extents_of(keys, "conv_stride", {5, 2, 2, 2, 2, 2, 2}, 1024);
  if (c.channels.empty() || c.channels.size() > 32 || c.kernels.size() != c.channels.size() ||
      c.strides.size() != c.channels.size())
    keys.fail("conv_dim",
              fmt::format("has {} convolutions, conv_kernel {} and conv_stride {}; they must be equally many, 1 to 32",
                          c.channels.size(), c.kernels.size(), c.strides.size()));
  if (double hop = 1; std::any_of(c.strides.begin(), c.strides.end(),
                                  [&](Extent s) { return (hop *= static_cast<double>(s)) > 16000; }))
    keys.fail("conv_stride", "makes frames of more than a second");
  c.has_conv_bias = keys.flag("conv_bias", false);
  const std::string norm = keys.text({"feat_extract_norm"}, "group");
  if (norm != "group" && norm != "layer")
    keys.fail("feat_extract_norm", fmt::format("is {}; known are group and layer", quote(norm)));
  c.norms_every_conv = norm == "layer";
  c.has_projection_norm = keys.flag("feat_proj_layer_norm", true);
  c.norms_first = keys.flag("do_stable_layer_norm", false);
  c.position_kernel = size("num_conv_pos_embeddings", 128, 4096);
  c.position_groups = size("num_conv_pos_embedding_groups", 16, c.width);
  if (c.width % c.position_groups != 0)
    keys.fail("num_conv_pos_embedding_groups",
              fmt::format("is {}, which does not divide a width of {}", c.position_groups, c.width));
  c.eps = keys.number({"layer_norm_eps"}, 1e-5);
  c.conv_activation = activation_of(keys, "feat_extract_activation");
  c.activation = activation_of(keys, "hidden_act");
  c.blank = static_cast<std::int32_t>(keys.size({"pad_token_id"}, 0));
  // Parts of models that are not read.
  if (keys.flag("add_adapter", false)) keys.fail("add_adapter", "is true; recognisers with an adapter are not read");
  if (keys.find({"adapter_attn_dim"}))
    keys.fail("adapter_attn_dim", "is given; recognisers with adapters for languages (MMS) are not read");
  if (keys.flag("conv_pos_batch_norm", false)) keys.fail("conv_pos_batch_norm", "is true, which is not read");
  const std::filesystem::path sounds = folder / "preprocessor_config.json";
  if (!std::filesystem::exists(sounds)) return c;
  const std::string name = sounds.string();
  const Json settings = read_json_file(sounds, kCtcLimits);
  const io::ConfigKeys sound_keys(settings, name);
  c.normalizes_sound = sound_keys.flag("do_normalize", true);
  if (const Extent rate = sound_keys.size({"sampling_rate"}, 16000); rate != 16000)
    sound_keys.fail("sampling_rate", fmt::format("is {}; recognisers read 16000 Hz", rate));
  return c;
}

CtcTokens read_ctc_tokens(const std::filesystem::path& folder, const CtcConfig& config) {
  const std::string source = (folder / "vocab.json").string();
  const Json json = read_json_file(source, kCtcLimits);
  if (!json.is_object()) throw FileError(fmt::format("{}: is not an object of tokens by text", source));
  CtcTokens t;
  t.texts.resize(static_cast<std::size_t>(config.vocabulary));
  std::map<std::string, std::int32_t> ids;
  for (const auto& [text, id] : json.items()) {
    if (id.is_object())
      throw FileError(fmt::format("{}: has a vocabulary for each language; keep that of one", source));
    if (!id.is_number_integer() || id < 0 || id >= config.vocabulary)
      throw FileError(fmt::format("{}: {} is {}, which is not a token of the vocabulary of {}", source, quote(text),
                                  id.dump(), config.vocabulary));
    t.texts[id.get<std::size_t>()] = text;
    ids[text] = id.get<std::int32_t>();
  }
  const std::filesystem::path settings = folder / "tokenizer_config.json";
  const std::string name = settings.string();
  const Json tokenizer =
      std::filesystem::exists(settings) ? read_json_file(settings, kCtcLimits) : Json(Json::object());
  const io::ConfigKeys keys(tokenizer, name);
  const auto id_of = [&](const std::string& text) {
    const auto found = ids.find(text);
    return found == ids.end() ? -1 : found->second;
  };
  const std::int32_t pad = id_of(token_text(keys, "pad_token", "<pad>"));
  t.blank = pad >= 0 ? pad : config.blank;
  if (t.blank >= config.vocabulary)
    throw FileError(fmt::format("{}: the blank is token {}, outside of the vocabulary of {}; correct pad_token_id",
                                (folder / "config.json").string(), t.blank, config.vocabulary));
  t.delimiter = id_of(token_text(keys, "word_delimiter_token", "|"));
  t.small_letters = keys.flag("do_lower_case", false);
  for (const auto& [key, fallback] : {std::pair("pad_token", "<pad>"), std::pair("bos_token", "<s>"),
                                      std::pair("eos_token", "</s>"), std::pair("unk_token", "<unk>")})
    if (const std::int32_t id = id_of(token_text(keys, key, fallback)); id >= 0)
      t.texts[static_cast<std::size_t>(id)].clear();
  t.texts[static_cast<std::size_t>(t.blank)].clear();
  if (t.delimiter >= 0) t.texts[static_cast<std::size_t>(t.delimiter)].clear();
  return t;
}

}  // namespace weft::speech
