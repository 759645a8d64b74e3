#include "grammar/token_trie.hpp"

#include <algorithm>
#include <limits>

namespace weft::grammar {

TokenTrie::TokenTrie(std::vector<std::string> bytes) : bytes_(std::move(bytes)), same_(bytes_.size(), kNoToken) {
  std::vector<std::int32_t> order;
  for (std::size_t i = 0; i < bytes_.size(); ++i) {
    if (bytes_[i].size() > std::numeric_limits<std::uint16_t>::max()) bytes_[i].clear();
    if (!bytes_[i].empty()) order.push_back(static_cast<std::int32_t>(i));
    longest_ = std::max(longest_, bytes_[i].size());
  }
  std::sort(order.begin(), order.end(), [&](std::int32_t a, std::int32_t b) {
    const int difference = bytes_of(a).compare(bytes_of(b));
    return difference != 0 ? difference < 0 : a < b;
  });
  std::vector<std::uint32_t> path;  // nodes of the bytes so far
  std::string_view before;
  const auto leave = [&](std::size_t depth) {
    for (; path.size() > depth; path.pop_back()) nodes_[path.back()].end = static_cast<std::uint32_t>(nodes_.size());
  };
  for (const std::int32_t token : order) {
    const std::string_view now = bytes_of(token);
    const auto [x, y] = std::mismatch(before.begin(), before.end(), now.begin(), now.end());
    leave(static_cast<std::size_t>(x - before.begin()));
    for (std::size_t i = path.size(); i < now.size(); ++i) {
      path.push_back(static_cast<std::uint32_t>(nodes_.size()));
      nodes_.push_back({.byte = static_cast<std::uint8_t>(now[i]), .depth = static_cast<std::uint16_t>(i + 1)});
    }
    Node& node = nodes_[path.back()];
    same_[static_cast<std::size_t>(token)] = node.token;
    node.token = token;
    before = now;
  }
  leave(0);
}

}  // namespace weft::grammar
