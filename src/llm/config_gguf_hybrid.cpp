// Hybrids of states and attention in GGUF files.
#include <fmt/format.h>

#include <algorithm>

#include "llm/config_gguf.hpp"
#include "llm/config_keys.hpp"
#include "weft/error.hpp"

namespace weft::llm {
namespace {

constexpr std::string_view kHybrids[] = {"jamba",          "granitehybrid", "falcon-h1", "nemotron_h",
                                         "nemotron_h_moe", "lfm2",          "lfm2moe"};

/// The number of all layers that have one.
Extent equal_one(const io::GgufMetadata& m, const std::string& key, const std::vector<Extent>& list) {
  Extent found = 0;
  for (const Extent each : list) {
    if (each > 0 && found > 0 && each != found)
      throw FileError(fmt::format("{}: {} has {} and {}; Weft takes layers of one size", m.source(), key, found, each));
    found = std::max(found, each);
  }
  return found;
}

}  // namespace

std::vector<Extent> sizes_of_layers(const io::GgufMetadata& m, const std::string& key, Extent layers) {
  const std::vector<std::int64_t> given = m.integers(key);
  std::vector<Extent> list(given.begin(), given.end());
  if (list.size() == 1) list.resize(static_cast<std::size_t>(layers), list[0]);
  if (static_cast<Extent>(list.size()) < layers ||
      std::any_of(list.begin(), list.end(), [](Extent n) { return n < 0 || n > kSizeMax; }))
    throw FileError(fmt::format("{}: {} has {} numbers for {} layers, or one that is not from 0 to {}", m.source(), key,
                                given.size(), layers, kSizeMax));
  list.resize(static_cast<std::size_t>(layers));
  return list;
}

bool is_gguf_hybrid(std::string_view architecture) {
  return std::find(std::begin(kHybrids), std::end(kHybrids), architecture) != std::end(kHybrids);
}

void read_gguf_hybrid(const io::GgufMetadata& m, ModelConfig& c) {
  const GgufKeys key(m, c);
  StateSpace& s = c.state_space;
  if (c.architecture.starts_with("lfm2")) {  // short convolutions, which keep their last inputs alone
    s = {.inner = c.hidden, .kernel = key.size("shortconv.l_cache")};
  } else {
    s = {.inner = key.size("ssm.inner_size"),
         .states = key.size("ssm.state_size"),
         .kernel = key.size("ssm.conv_kernel")};
    (c.architecture == "jamba" ? s.rank : s.heads) = key.size("ssm.time_step_rank");
  }
  if (s.heads > 0) s.groups = m.get_or<std::int64_t>(key("ssm.group_count"), 1);
  const std::vector<Extent> keys = sizes_of_layers(m, key("attention.head_count_kv"), c.layers),
                            widths = sizes_of_layers(m, key("feed_forward_length"), c.layers);
  c.kv_heads = std::max<Extent>(equal_one(m, key("attention.head_count_kv"), keys), 1);
  c.intermediate = equal_one(m, key("feed_forward_length"), widths);
  c.hybrid_factors.are_side_by_side = c.architecture == "falcon-h1";  // their factors are in the weights
  for (std::size_t i = 0; i < keys.size(); ++i) {
    s.layers.push_back(c.hybrid_factors.are_side_by_side || keys[i] == 0);
    if (c.architecture.starts_with("nemotron_h")) c.mlp_layers.push_back(widths[i] > 0);
  }
}

}  // namespace weft::llm
