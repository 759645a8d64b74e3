// Gemma's later models: inputs that layers have of their own, layers without keys, and states side by side.
#include "llm/config_gemma.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "llm/config_families.hpp"
#include "llm/config_gguf.hpp"
#include "llm/config_write.hpp"
#include "weft/error.hpp"

namespace weft::llm {
namespace {

constexpr double kNone = -std::numeric_limits<double>::infinity();

/// A list of equal numbers is one number.
void join_equal(Json& json, const char* key) {
  const auto list = json.find(key);
  if (list == json.end() || !list->is_array() || list->empty()) return;
  const Json first = (*list)[0];
  if (std::all_of(list->begin(), list->end(), [&](const Json& each) { return each == first; })) json[key] = first;
}

void every_nth_sees_all(ModelConfig& c, Extent n) {
  if (!c.local_layers.empty()) return;
  for (Extent i = 0; i < c.layers; ++i) c.local_layers.push_back((i + 1) % n != 0);
}

}  // namespace

double deviations_of_share(double share) {
  if (share <= 0) return kNone;
  double x = 0;  // Newton's method on the normal distribution, which is concave or convex on each side of its middle
  for (int i = 0; i < 100; ++i) {
    const double miss = share_of_deviations(x) - share, slope = std::exp(-x * x / 2) / std::sqrt(2 * M_PI);
    const double step = std::clamp(miss / slope, -1.0, 1.0);
    x -= step;
    if (std::abs(step) < 1e-14) break;
  }
  return x;
}

double share_of_deviations(double deviations) { return std::erfc(-deviations / std::sqrt(2.0)) / 2; }

Json with_defaults_of_gemma3n(const Json& given) {
  Json all = {{"vocab_size", 262400},
              {"hidden_size", 2048},
              {"intermediate_size", 16384},
              {"num_hidden_layers", 35},
              {"num_attention_heads", 8},
              {"num_key_value_heads", 2},
              {"head_dim", 256},
              {"max_position_embeddings", 32768},
              {"sliding_window", 512},
              {"final_logit_softcapping", 30.0},
              {"eos_token_id", 1}};
  all.update(given);
  join_equal(all, "intermediate_size");
  return all;
}

void read_gemma3n(const Keys& keys, ModelConfig& c) {
  every_nth_sees_all(c, 5);
  c.layer_input = keys.size({"hidden_size_per_layer_input"}, 256);
  c.layer_vocabulary = keys.size({"vocab_size_per_layer_input"}, 262144);
  c.layers_without_keys = keys.size({"num_kv_shared_layers"}, 15);
  c.streams = {.count = keys.size({"altup_num_inputs"}, 4),
               .active = keys.size({"altup_active_idx"}, 0),
               .rank = keys.size({"laurel_rank"}, 64),
               .are_scaled = keys.flag("altup_correct_scale", true)};
  const Json* given = keys.find({"activation_sparsity_pattern"});
  constexpr Extent kSparse = 10;  // layers, unless a file says otherwise
  std::vector<double> shares(static_cast<std::size_t>(c.layers), 0.0);
  if (given && given->is_number())
    shares.assign(shares.size(), given->get<double>());
  else if (given)
    shares = keys.numbers("activation_sparsity_pattern");
  else if (c.layers > kSparse)
    std::fill_n(shares.begin(), kSparse, 0.95);
  for (const double share : shares) {
    if (!(share >= 0 && share < 1))
      keys.fail("activation_sparsity_pattern", fmt::format("has {}, not from 0 to 1", share));
    c.streams.deviations.push_back(deviations_of_share(share));
  }
}

Json with_defaults_of_gemma4(const Json& given) {
  Json all = {{"vocab_size", 262144},      {"hidden_size", 2304},
              {"intermediate_size", 9216}, {"num_hidden_layers", 30},
              {"num_attention_heads", 8},  {"num_key_value_heads", 4},
              {"head_dim", 256},           {"max_position_embeddings", 131072},
              {"sliding_window", 512},     {"eos_token_id", 1}};
  all.update(given);
  if (all.value("use_bidirectional_attention", Json()) == "vision") all.erase("use_bidirectional_attention");
  // Layers that see everything may have a configuration of their own, the same for all of them.
  if (const auto own = all.find("per_layer_config"); own != all.end() && own->is_object() && !own->empty()) {
    const Json first = own->begin().value();
    const bool are_equal = std::all_of(own->begin(), own->end(), [&](const Json& each) { return each == first; });
    if (are_equal && first.is_object()) {
      all["global_head_dim"] = first.value("head_dim", all["head_dim"]);
      all["num_global_key_value_heads"] = first.value("num_key_value_heads", all["num_key_value_heads"]);
    }
  } else if (!all.value("attention_k_eq_v", Json()).is_boolean() || !all["attention_k_eq_v"].get<bool>()) {
    all.erase("num_global_key_value_heads");
  }
  // Their positions: only a share of the pairs turns, by the frequencies that all pairs would have.
  Json& positions = all["rope_parameters"];
  if (!positions.is_object())
    positions = {{"sliding_attention", {{"rope_type", "default"}, {"rope_theta", 10000.0}}},
                 {"full_attention",
                  {{"rope_type", "proportional"}, {"partial_rotary_factor", 0.25}, {"rope_theta", 1000000.0}}}};
  if (const auto full = positions.find("full_attention"); full != positions.end() && full->is_object())
    if (full->value("rope_type", Json()) == "proportional") {
      all["global_partial_rotary_factor"] = full->value("partial_rotary_factor", Json(1.0));
      full->erase("partial_rotary_factor");
      (*full)["rope_type"] = full->contains("factor") ? "linear" : "default";
    }
  return all;
}

void read_gemma4(const Keys& keys, ModelConfig& c) {
  every_nth_sees_all(c, 6);
  if (!c.local_layers.empty()) c.local_layers.back() = false;
  c.global_head_dim = keys.size({"global_head_dim"}, 512);
  c.global_kv_heads = keys.size({"num_global_key_value_heads"}, c.kv_heads);
  c.global_keys_are_values = keys.flag("attention_k_eq_v", false);
  c.rope_dims = c.global_head_dim;
  c.rope_local_dims = c.head_dim;
  const double share = keys.number({"global_partial_rotary_factor"}, 1.0);
  if (!(share > 0 && share <= 1))
    keys.fail("partial_rotary_factor", fmt::format("is {}; it must be above 0, and at most 1", share));
  c.rope_pairs = static_cast<Extent>(share * static_cast<double>(c.global_head_dim) / 2);
  c.layer_input = keys.size({"hidden_size_per_layer_input"}, keys.is_null("hidden_size_per_layer_input") ? 0 : 256);
  if (c.layer_input > 0) c.layer_vocabulary = keys.size({"vocab_size_per_layer_input"}, 262144);
  c.layers_without_keys = keys.size({"num_kv_shared_layers"}, 0);
  c.wide_without_keys = keys.flag("use_double_wide_mlp", false);
}

void read_gemma4_experts(const Keys& keys, ModelConfig& c) {
  if (!keys.flag("enable_moe_block", false)) return;
  c.experts = keys.size({"num_experts"});
  c.experts_per_token = keys.size({"top_k_experts"});
  c.expert_intermediate = keys.size({"moe_intermediate_size"});
}

void read_gguf_gemma4(const io::GgufMetadata& m, ModelConfig& c) {
  const GgufKeys key(m, c);
  read_gguf_windows(m, c);
  every_nth_sees_all(c, 6);
  if (static_cast<Extent>(c.local_layers.size()) != c.layers)
    throw FileError(fmt::format("{}: {} has {} entries for {} layers", c.source,
                                key("attention.sliding_window_pattern"), c.local_layers.size(), c.layers));
  c.global_head_dim = c.head_dim;
  c.head_dim = key.size("attention.key_length_swa", c.head_dim);
  c.rope_dims = c.global_head_dim;
  c.rope_pairs = c.rope_dims / 2;  // but for those that factors of positions stop
  c.rope_local_dims = key.size("rope.dimension_count_swa", c.head_dim);
  if (c.rope_local_base == 0) c.rope_local_base = 10000;
  const std::vector<Extent> keys = sizes_of_layers(m, key("attention.head_count_kv"), c.layers),
                            widths = sizes_of_layers(m, key("feed_forward_length"), c.layers);
  c.kv_heads = c.global_kv_heads = keys[0];
  for (Extent i = 0; i < c.layers; ++i) {
    const auto at = static_cast<std::size_t>(i);
    (c.local_layers[at] ? c.kv_heads : c.global_kv_heads) = keys[at];
  }
  for (Extent i = 0; i < c.layers; ++i) {
    const auto at = static_cast<std::size_t>(i);
    if (keys[at] != (c.local_layers[at] ? c.kv_heads : c.global_kv_heads))
      throw FileError(fmt::format("{}: {} differs among layers of one kind, which Weft does not support", c.source,
                                  key("attention.head_count_kv")));
  }
  c.layer_input = key.size("embedding_length_per_layer_input", 0);
  if (c.layer_input > 0) c.layer_vocabulary = c.vocabulary;
  c.layers_without_keys = key.size("attention.shared_kv_layers", 0);
  c.intermediate = widths[0];
  c.wide_without_keys = c.layers_without_keys > 0 && widths.back() == 2 * widths[0];
  for (Extent i = 0; i < c.layers; ++i) {
    const bool is_wide = c.wide_without_keys && i >= c.layers - c.layers_without_keys;
    if (widths[static_cast<std::size_t>(i)] != c.intermediate * (is_wide ? 2 : 1))
      throw FileError(fmt::format("{}: {} differs from layer to layer in a way that Weft does not support", c.source,
                                  key("feed_forward_length")));
  }
}

bool take_gguf_gemma4_factors(ModelConfig& c, const std::vector<double>& factors) {
  constexpr double kStopped = 1e20;  // files have 1e30
  const auto turning = std::find_if(factors.begin(), factors.end(), [](double f) { return f > kStopped; });
  if (static_cast<Extent>(factors.size()) != c.rope_dims / 2 ||
      std::any_of(factors.begin(), turning, [](double f) { return f != 1; }) ||
      std::any_of(turning, factors.end(), [](double f) { return f <= kStopped; }))
    return false;
  c.rope_pairs = turning - factors.begin();
  return true;
}

void read_gguf_gemma3n(const io::GgufMetadata& m, ModelConfig& c) {
  const GgufKeys key(m, c);
  // What readers take where files say nothing.
  constexpr Extent kSparse = 10, kWithKeys = 20;
  constexpr double kDeviations = 1.6448533535003662;  // 95 of 100 gates are zero
  read_gguf_windows(m, c);
  every_nth_sees_all(c, 5);
  c.layer_input = key.size("embedding_length_per_layer_input", 256);
  c.layer_vocabulary = c.vocabulary;
  c.layers_without_keys = key.size("attention.shared_kv_layers", std::max<Extent>(c.layers - kWithKeys, 0));
  c.streams = {.count = key.size("altup.num_inputs", 4), .active = key.size("altup.active_idx", 0)};
  if (m.contains(key("activation_sparsity_scale"))) {
    c.streams.deviations = m.numbers(key("activation_sparsity_scale"));
  } else {
    c.streams.deviations.assign(static_cast<std::size_t>(c.layers), kNone);
    std::fill_n(c.streams.deviations.begin(), std::min(kSparse, c.layers), kDeviations);
  }
}

void read_gguf_windows(const io::GgufMetadata& m, ModelConfig& c) {
  const std::string key = c.architecture + ".attention.sliding_window_pattern";
  if (m.contains(key)) c.local_layers = m.flags(key);
}

namespace {

void add_gemma4(Json& json, const ModelGraph& graph, const ModelConfig& c) {
  bool keys_are_values = false;
  for (Extent i = 0; i < c.layers - c.layers_without_keys; ++i)
    keys_are_values |= graph.find(fmt::format("layer{}.v.weight", i)) == nullptr;
  for (const char* key : {"rope_theta", "rope_scaling", "partial_rotary_factor"}) json.erase(key);
  json.update(
      {{"global_head_dim", c.global_head_dim},
       {"attention_k_eq_v", keys_are_values},
       {"num_global_key_value_heads", keys_are_values ? Json(c.global_kv_heads) : Json()},
       {"num_kv_shared_layers", c.layers_without_keys},
       {"use_double_wide_mlp", c.wide_without_keys},
       {"hidden_size_per_layer_input", c.layer_input},
       {"vocab_size_per_layer_input", c.layer_input > 0 ? c.layer_vocabulary : c.vocabulary},
       {"enable_moe_block", c.experts > 0},
       {"final_logit_softcapping", c.logit_soft_cap > 0 ? Json(tidy(c.logit_soft_cap)) : Json()},
       {"rope_parameters",
        {{"sliding_attention", {{"rope_type", "default"}, {"rope_theta", tidy(c.rope_local_base)}}},
         {"full_attention",
          {{"rope_type", "proportional"},
           {"partial_rotary_factor", static_cast<double>(2 * c.rope_pairs) / static_cast<double>(c.global_head_dim)},
           {"rope_theta", tidy(c.rope_base)}}}}}});
  if (c.experts > 0)
    json.update({{"num_experts", c.experts},
                 {"top_k_experts", c.experts_per_token},
                 {"moe_intermediate_size", c.expert_intermediate}});
}

void add_gemma4(io::GgufMetadata& m, const ModelConfig& c) {
  const auto size = [&](std::string_view key, Extent value) {
    m.set(fmt::format("gemma4.{}", key), static_cast<std::uint32_t>(value));
  };
  std::vector<std::int32_t> keys, widths;
  for (Extent i = 0; i < c.layers; ++i) {
    const bool is_wide = c.wide_without_keys && i >= c.layers - c.layers_without_keys;
    keys.push_back(
        static_cast<std::int32_t>(c.local_layers[static_cast<std::size_t>(i)] ? c.kv_heads : c.global_kv_heads));
    widths.push_back(static_cast<std::int32_t>(c.intermediate * (is_wide ? 2 : 1)));
  }
  m.set("gemma4.attention.head_count_kv", io::GgufArray(keys));
  m.set("gemma4.feed_forward_length", io::GgufArray(widths));
  for (const char* part : {"key", "value"}) {
    size(fmt::format("attention.{}_length", part), c.global_head_dim);
    size(fmt::format("attention.{}_length_swa", part), c.head_dim);
  }
  size("rope.dimension_count_swa", c.rope_local_dims);
}

}  // namespace

std::vector<float> gguf_gemma4_factors(const ModelConfig& c) {
  std::vector<float> factors(static_cast<std::size_t>(c.rope_dims / 2), 1e30F);
  std::fill_n(factors.begin(), c.rope_pairs, 1.0F);
  return factors;
}

void add_gemma(Json& json, const ModelGraph& graph, const ModelConfig& c) {
  if (c.architecture == "gemma4_text") return add_gemma4(json, graph, c);
  Json shares = Json::array();
  // GGUF files have the deviations as f32.
  for (const double each : c.streams.deviations) shares.push_back(std::round(share_of_deviations(each) * 1e6) / 1e6);
  json.update({{"hidden_size_per_layer_input", c.layer_input},
               {"vocab_size_per_layer_input", c.layer_vocabulary},
               {"num_kv_shared_layers", c.layers_without_keys},
               {"altup_num_inputs", c.streams.count},
               {"altup_active_idx", c.streams.active},
               {"altup_correct_scale", c.streams.are_scaled},
               {"laurel_rank", c.streams.rank},
               {"activation_sparsity_pattern", shares},
               {"final_logit_softcapping", tidy(c.logit_soft_cap)}});
}

void add_gemma(io::GgufMetadata& m, const std::string& architecture, const ModelConfig& c) {
  const auto size = [&](std::string_view key, Extent value) {
    m.set(fmt::format("{}.{}", architecture, key), static_cast<std::uint32_t>(value));
  };
  size("embedding_length_per_layer_input", c.layer_input);
  size("attention.shared_kv_layers", c.layers_without_keys);
  m.set(architecture + ".attention.sliding_window_pattern", io::GgufArray(c.local_layers));
  if (architecture == "gemma4") return add_gemma4(m, c);
  size("altup.num_inputs", c.streams.count);
  size("altup.active_idx", c.streams.active);
  m.set(architecture + ".activation_sparsity_scale",
        io::GgufArray(std::vector<float>(c.streams.deviations.begin(), c.streams.deviations.end())));
}

void check_gemma(const ModelConfig& c) {
  const auto require = [&](bool good, const std::string& fact) {
    if (!good) throw FileError(fmt::format("{}: {}", c.source, fact));
  };
  require(c.layer_input >= 0 && c.layer_input <= 1 << 14,
          fmt::format("the inputs of layers have {} columns", c.layer_input));
  require(c.layer_input == 0 || (c.layer_vocabulary >= 1 && c.layer_vocabulary <= c.vocabulary),
          fmt::format("the table of inputs of layers has {} rows for {} tokens", c.layer_vocabulary, c.vocabulary));
  require(
      c.layers_without_keys >= 0 && c.layers_without_keys < c.layers,
      fmt::format("{} of {} layers read the keys of others; the first needs its own", c.layers_without_keys, c.layers));
  require(c.global_head_dim == 0 || (c.global_head_dim % 2 == 0 && c.global_head_dim <= 1 << 12 &&
                                     c.global_kv_heads >= 1 && c.heads % c.global_kv_heads == 0 && c.rope_pairs >= 1),
          fmt::format(
              "layers without a window have heads of {} channels, and {} heads of keys for {} of queries, which does "
              "not fit",
              c.global_head_dim, c.global_kv_heads, c.heads));
  const Streams& s = c.streams;
  require(s.count >= 0 && s.count <= 8 && (s.count == 0 || (s.active >= 0 && s.active < s.count)),
          fmt::format("state {} of {} is active; Weft takes 1 to 8", s.active, s.count));
  require(s.count == 0 || (s.rank >= 1 && s.rank <= 1 << 14), fmt::format("the rank of LAuReL is {}", s.rank));
  require(s.deviations.empty() || static_cast<Extent>(s.deviations.size()) == c.layers,
          fmt::format("activation_sparsity_pattern has {} entries for {} layers", s.deviations.size(), c.layers));
}

}  // namespace weft::llm
