#include "io/content_hash.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <string_view>

#include "base/xxh64.hpp"
#include "weft/error.hpp"

namespace weft::io {

std::string content_hash(const SafetensorsMetadata& metadata, std::vector<TensorView> tensors) {
  std::sort(tensors.begin(), tensors.end(), [](const auto& a, const auto& b) { return a.name < b.name; });
  Xxh64 hash;
  auto add = [&](std::string_view text) {
    const std::uint64_t length = text.size();
    hash.add(std::as_bytes(std::span(&length, 1)));
    hash.add(text);
  };
  for (const auto& [key, value] : metadata)
    if (key != kContentHash) {
      add(key);
      add(value);
    }
  for (const TensorView& t : tensors) {
    add(t.name);
    add(t.dtype);
    add(t.shape.to_string());
    hash.add(t.data);
  }
  return fmt::format("{:016x}", hash.digest());
}

void add_content_hash(SafetensorsMetadata& metadata, const std::vector<TensorView>& tensors) {
  metadata[kContentHash] = content_hash(metadata, tensors);
}

void check_content_hash(const SafetensorsFile& file, std::string_view cure) {
  const auto stored = file.metadata().find(kContentHash);
  if (stored == file.metadata().end())
    throw FileError(fmt::format("{}: its metadata lacks \"{}\"; {}", file.source(), kContentHash, cure));
  if (stored->second != content_hash(file.metadata(), file.tensors()))
    throw FileError(
        fmt::format("{}: damaged: the hash of its content is not the one stored in it; {}", file.source(), cure));
}

}  // namespace weft::io
