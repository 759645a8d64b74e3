#include "text/character_map.hpp"

#include <fmt/format.h>
#include <utf8proc.h>

#include <cstring>
#include <optional>

#include "base/utf8.hpp"
#include "text/call_limits.hpp"
#include "text/unicode.hpp"
#include "weft/error.hpp"

namespace weft::text {
namespace {

class CharacterMap final : public Normalizer {
 public:
  explicit CharacterMap(std::string_view bytes) {
    std::uint32_t size = 0;
    if (bytes.size() >= 4) std::memcpy(&size, bytes.data(), 4);
    if (bytes.size() < 4 || size == 0 || size % 4 != 0 || size > bytes.size() - 4)
      throw UsageError(
          fmt::format("the character map of {} bytes is damaged: its trie is said to have {}", bytes.size(), size));
    units_.resize(size / 4);
    std::memcpy(units_.data(), bytes.data() + 4, size);
    texts_ = bytes.substr(4 + std::size_t{size});
    if (find_invalid_utf8(texts_)) throw UsageError("the character map is damaged: its texts are not UTF-8");
  }

  // By grapheme if it is short, else by character. A prefix of it that the map knows replaces the whole.
  std::string apply(std::string text, bool&) const override {
    std::string out;
    out.reserve(text.size());
    const char *at = text.data(), *const end = at + text.size();
    while (at < end) {
      CallLimits::check_bytes(out.size());
      const char* stop = grapheme_end(at, end);
      const std::string_view grapheme(at, static_cast<std::size_t>(stop - at));
      std::optional<std::string_view> mapped;
      if (grapheme.size() < 6) mapped = find(grapheme);
      if (mapped) {
        out.append(*mapped);
        at = stop;
        continue;
      }
      while (at < stop) {
        const std::string_view character(at, character_at(at).length);
        out.append(find(character).value_or(character));
        CallLimits::check_bytes(out.size());
        at += character.size();
      }
    }
    return out;
  }

 private:
  static const char* grapheme_end(const char* at, const char* end) {
    Character c = character_at(at);
    at += c.length;
    utf8proc_int32_t state = 0;
    while (at < end) {
      const Character next = character_at(at);
      if (utf8proc_grapheme_break_stateful(static_cast<utf8proc_int32_t>(c.value),
                                           static_cast<utf8proc_int32_t>(next.value), &state))
        break;
      c = next;
      at += c.length;
    }
    return at;
  }

  static bool has_leaf(std::uint32_t unit) { return (unit >> 8) & 1; }
  static std::uint32_t label(std::uint32_t unit) { return unit & ((1u << 31) | 0xFF); }
  static std::uint32_t offset(std::uint32_t unit) { return (unit >> 10) << ((unit & (1u << 9)) >> 6); }

  // The text of the shortest start of `key` that the map holds.
  std::optional<std::string_view> find(std::string_view key) const {
    std::uint32_t node = offset(units_[0]);
    for (const char c : key) {
      const auto byte = static_cast<unsigned char>(c);
      if (byte == 0) break;
      node ^= byte;
      if (node >= units_.size() || label(units_[node]) != byte) return std::nullopt;
      const std::uint32_t unit = units_[node];
      node ^= offset(unit);
      if (!has_leaf(unit)) continue;
      if (node >= units_.size()) return std::nullopt;
      const std::uint32_t value = units_[node] & ((1u << 31) - 1);
      if (value > texts_.size() ||
          (value < texts_.size() && (static_cast<unsigned char>(texts_[value]) & 0xC0) == 0x80))
        return std::nullopt;
      const std::string_view rest = std::string_view(texts_).substr(value);
      return rest.substr(0, rest.find('\0'));
    }
    return std::nullopt;
  }

  std::vector<std::uint32_t> units_;
  std::string texts_;
};

}  // namespace

NormalizerPtr make_character_map(std::string_view bytes) { return std::make_unique<CharacterMap>(bytes); }

std::string decode_base64(std::string_view text) {
  std::string out;
  while (text.ends_with('=')) text.remove_suffix(1);
  std::uint32_t bits = 0;
  int count = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    int value;
    if (c >= 'A' && c <= 'Z')
      value = c - 'A';
    else if (c >= 'a' && c <= 'z')
      value = c - 'a' + 26;
    else if (c >= '0' && c <= '9')
      value = c - '0' + 52;
    else if (c == '+')
      value = 62;
    else if (c == '/')
      value = 63;
    else
      throw UsageError(fmt::format("byte {} is not a character of base64", i));
    bits = bits << 6 | static_cast<std::uint32_t>(value);
    if ((count += 6) >= 8) out.push_back(static_cast<char>(bits >> (count -= 8) & 0xFF));
  }
  return out;
}

}  // namespace weft::text
