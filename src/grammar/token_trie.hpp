// The tokens of a vocabulary by their bytes, in the order in which a walk over all of them visits them.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace weft::grammar {

/// A trie in preorder: a walk goes forwards through one array, and skips what begins with bytes that do not fit. Immutable, for
/// any number of threads.
class TokenTrie {
 public:
  static constexpr std::int32_t kNoToken = -1;

  struct Node {
    std::uint8_t byte = 0;
    std::uint16_t depth = 0;        // bytes up to and with this one
    std::uint32_t end = 0;          // the first node that is not below
    std::int32_t token = kNoToken;  // of exactly these bytes; further ones by `same`
  };

  /// `bytes[i]`: those that token i adds to a text; empty for tokens that are never to be used (special ones, holes).
  /// Tokens of more than 65535 bytes are left out.
  explicit TokenTrie(std::vector<std::string> bytes);

  std::span<const Node> nodes() const { return nodes_; }
  /// Another token of the same bytes; kNoToken after the last.
  std::int32_t same(std::int32_t token) const { return same_[static_cast<std::size_t>(token)]; }
  std::string_view bytes_of(std::int32_t token) const { return bytes_[static_cast<std::size_t>(token)]; }
  std::size_t size() const { return bytes_.size(); }
  std::size_t longest_bytes() const { return longest_; }

 private:
  std::vector<std::string> bytes_;
  std::vector<Node> nodes_;
  std::vector<std::int32_t> same_;
  std::size_t longest_ = 0;
};

}  // namespace weft::grammar
