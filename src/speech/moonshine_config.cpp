#include "speech/moonshine_config.hpp"

#include <fmt/format.h>

#include <cmath>
#include <optional>
#include <tuple>

#include "base/json.hpp"
#include "base/quote.hpp"
#include "io/config_keys.hpp"
#include "weft/error.hpp"

namespace weft::speech {
namespace {

constexpr JsonLimits kMoonshineLimits{.max_bytes = std::uint64_t{8} << 20, .max_values = 400'000};

std::string moonshine_activation(const io::ConfigKeys& keys, const char* key, const char* fallback) {
  const std::string name = keys.text({key}, fallback);
  if (name != "gelu" && name != "relu" && name != "silu" && name != "gelu_new")
    keys.fail(key, fmt::format("is {}; known are gelu, gelu_new, relu and silu", quote(name)));
  return name == "gelu_new" ? "gelu_tanh" : name;
}

/// The settings of rotation, which newer files keep in an object of their own.
void read_rotation(MoonshineConfig& c, const io::ConfigKeys& keys, const std::string& source) {
  static const Json nothing = Json::object();
  const Json* found = keys.find({"rope_parameters"});
  const io::ConfigKeys inner(found ? *found : nothing, source, "rope_parameters");
  const io::ConfigKeys& of = found ? inner : keys;
  if (const std::string type = of.text({"rope_type"}, "default"); type != "default")
    of.fail("rope_type", fmt::format("is {}; positions of a Moonshine turn as \"default\" says", quote(type)));
  if (const Json* scaling = keys.find({"rope_scaling"}); scaling && !scaling->empty())
    keys.fail("rope_scaling", "is given; positions of a Moonshine are not scaled");
  c.rope_base = of.number({"rope_theta"}, 10000.0);
  c.turned_part = of.number({"partial_rotary_factor"}, keys.number({"partial_rotary_factor"}, 0.9));
  if (!(c.rope_base > 0)) of.fail("rope_theta", fmt::format("is {}; it must be above 0", c.rope_base));
  if (!(c.turned_part > 0 && c.turned_part <= 1))
    of.fail("partial_rotary_factor", fmt::format("is {}; it must be in (0, 1]", c.turned_part));
}

}  // namespace

Extent MoonshineConfig::frames(Extent samples) { return samples < kReach ? 0 : (samples - kReach) / kHop + 1; }

Extent MoonshineConfig::turned(Extent heads) const {
  return static_cast<Extent>(static_cast<double>(width / heads) * turned_part);
}

Extent MoonshineConfig::turning_pairs(Extent heads) const { return (turned(heads) + 1) / 2; }

MoonshineConfig read_moonshine_config(const std::filesystem::path& folder) {
  const std::string source = (folder / "config.json").string();
  const Json json = read_json_file(source, kMoonshineLimits);
  const io::ConfigKeys keys(json, source);
  if (const std::string type = keys.text({"model_type"}); type != "moonshine")
    keys.fail("model_type", fmt::format("is {}, not \"moonshine\"", quote(type)));
  MoonshineConfig c;
  const auto size = [&](const char* key, std::optional<Extent> fallback, Extent most) {
    const Extent value = keys.size({key}, fallback);
    if (value < 1 || value > most) keys.fail(key, fmt::format("is {}; it must be in [1, {}]", value, most));
    return value;
  };
  c.vocabulary = size("vocab_size", {}, 1 << 22);
  c.width = size("hidden_size", {}, 1 << 14);
  c.inner = size("intermediate_size", {}, 1 << 17);
  c.encoder_layers = size("encoder_num_hidden_layers", {}, 1024);
  c.decoder_layers = size("decoder_num_hidden_layers", {}, 1024);
  c.encoder_heads = size("encoder_num_attention_heads", {}, c.width);
  c.decoder_heads = size("decoder_num_attention_heads", {}, c.width);
  c.positions = size("max_position_embeddings", 512, 1 << 16);
  for (const auto& [heads, key, key_heads] :
       {std::tuple(c.encoder_heads, "encoder_num_attention_heads", "encoder_num_key_value_heads"),
        std::tuple(c.decoder_heads, "decoder_num_attention_heads", "decoder_num_key_value_heads")}) {
    if (c.width % heads != 0) keys.fail(key, fmt::format("is {}, which does not divide a width of {}", heads, c.width));
    if (const Extent shared = keys.size({key_heads}, heads); shared != heads)
      keys.fail(key_heads, fmt::format("is {} of {} heads; heads of a Moonshine share no keys", shared, heads));
  }
  c.encoder_activation = moonshine_activation(keys, "encoder_hidden_act", "gelu");
  c.decoder_activation = moonshine_activation(keys, "decoder_hidden_act", "silu");
  c.has_attention_bias = keys.flag("attention_bias", false);
  c.is_tied = keys.flag("tie_word_embeddings", true);
  read_rotation(c, keys, source);
  for (const Extent heads : {c.encoder_heads, c.decoder_heads})
    if (const Extent pairs = c.turning_pairs(heads); pairs < 1 || 2 * pairs > c.width / heads)
      keys.fail("partial_rotary_factor", fmt::format("is {}, which makes {} pairs of the {} channels of a head",
                                                     c.turned_part, pairs, c.width / heads));
  const auto token = [&](const char* key, Extent fallback) {
    const Extent value = keys.size({key}, fallback);
    if (value >= c.vocabulary)
      keys.fail(key, fmt::format("is {}, which is not a token of the vocabulary of {}", value, c.vocabulary));
    return static_cast<std::int32_t>(value);
  };
  c.start = token("decoder_start_token_id", 1), c.end = token("eos_token_id", 2);
  const std::filesystem::path sounds = folder / "preprocessor_config.json";
  if (!std::filesystem::exists(sounds)) return c;
  const std::string name = sounds.string();
  const Json settings = read_json_file(sounds, kMoonshineLimits);
  const io::ConfigKeys sound_keys(settings, name);
  c.normalizes_sound = sound_keys.flag("do_normalize", true);
  if (const Extent rate = sound_keys.size({"sampling_rate"}, 16000); rate != 16000)
    sound_keys.fail("sampling_rate", fmt::format("is {}; a Moonshine reads 16000 Hz", rate));
  return c;
}

}  // namespace weft::speech
