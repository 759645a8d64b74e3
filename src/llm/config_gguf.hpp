// Parts of configurations in GGUF files.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "io/gguf_metadata.hpp"
#include "llm/config.hpp"

namespace weft::llm {

/// Keys of an architecture, as "llama.block_count".
class GgufKeys {
 public:
  GgufKeys(const io::GgufMetadata& metadata, const ModelConfig& config)
      : metadata_(metadata), architecture_(config.architecture), source_(config.source) {}
  std::string operator()(std::string_view name) const { return architecture_ + '.' + std::string(name); }
  /// A size. Without a fallback the key must be there. FileError for one that is out of range.
  Extent size(std::string_view name, std::optional<Extent> fallback = {}) const;

 private:
  const io::GgufMetadata& metadata_;
  std::string architecture_, source_;
};

/// How experts are chosen, in which layers they are, and how wide the one of all tokens is. Behind the sizes.
void read_gguf_mixture(const io::GgufMetadata& metadata, ModelConfig& config);
/// What the families of 2025 say beside the usual keys, or mean where they say nothing.
void read_gguf_families(const io::GgufMetadata& metadata, ModelConfig& config);

/// A number for each layer; a single number counts for all layers. FileError for another count, or for numbers that cannot be sizes.
std::vector<Extent> sizes_of_layers(const io::GgufMetadata& metadata, const std::string& key, Extent layers);

/// Whether files of this architecture are of hybrids, whose layers tell by numbers of heads what they have.
bool is_gguf_hybrid(std::string_view architecture);
/// States and layers of such a file, also its heads of keys and the width of its MLPs.
void read_gguf_hybrid(const io::GgufMetadata& metadata, ModelConfig& config);

}  // namespace weft::llm
