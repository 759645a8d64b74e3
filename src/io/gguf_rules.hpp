// Limits and rules of GGUF that its reader and writer share. If the format's document and its reference reader differ, this
// file has the stricter rule.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/utf8.hpp"

namespace weft::io::gguf {

inline constexpr std::string_view kMagic = "GGUF";
inline constexpr std::uint32_t kVersion =
    3;  ///< written; a little-endian reader sees no difference between it and version 2
inline constexpr std::uint32_t kDefaultAlignment = 32;
inline constexpr std::uint32_t kMaxAlignment =
    65'536;  ///< the largest page of a common machine; the format has no bound
inline constexpr int kMaxRank = 4;
inline constexpr std::size_t kMaxKeyBytes = 65'535;
inline constexpr std::size_t kMaxNameBytes = 63;  ///< the reference stores names in 64 bytes with a final 0
inline constexpr std::uint64_t kMaxStringBytes = std::uint64_t{1} << 30;
inline constexpr std::uint64_t kMaxArrayElements = std::uint64_t{1} << 30;
inline constexpr std::string_view kAlignmentKey = "general.alignment";

/// What is wrong with a key, or "". Words of letters, digits, '_' and '-', with dots between them: the document's
/// lower_snake_case, and the characters in names of architectures (gpt-oss) and templates.
inline std::string_view problem_of_key(std::string_view key) {
  if (key.empty()) return "the key is empty";
  if (key.size() > kMaxKeyBytes) return "the key has more than 65535 bytes";
  char before = '.';
  for (const char c : key) {
    const bool word =
        (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '-';
    if (!word && c != '.') return "the key holds more than letters, digits, '_', '-' and '.'";
    if (c == '.' && before == '.') return "the key has an empty part";
    before = c;
  }
  return before == '.' ? "the key has an empty part" : "";
}

/// What is wrong with the name of a tensor, or "".
inline std::string_view problem_of_name(std::string_view name) {
  if (name.empty()) return "the name is empty";
  if (name.size() > kMaxNameBytes) return "the name has more than 63 bytes";
  if (name.find('\0') != std::string_view::npos) return "the name holds a 0 byte";
  if (find_invalid_utf8(name)) return "the name is not UTF-8";
  return "";
}

inline bool is_alignment(std::uint32_t value) {
  return value >= 8 && value <= kMaxAlignment && std::has_single_bit(value);
}

}  // namespace weft::io::gguf
