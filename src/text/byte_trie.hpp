// A set of byte strings that is walked byte by byte.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

#include "weft/error.hpp"

namespace weft::text {

/// Maps byte strings to values. Steps are one probe of a hash table, so memory is some 20 bytes a node.
class ByteTrie {
 public:
  using Node = std::uint32_t;
  static constexpr Node kRoot = 0, kNone = 0xFFFFFFFF;
  static constexpr std::int32_t kNoValue = -1;
  static constexpr std::size_t kMaxNodes = (1u << 24) - 1;

  ByteTrie() { first_.fill(kNone); }

  /// Sets the value of `key`, which is not empty. FileError above kMaxNodes nodes.
  void insert(std::string_view key, std::int32_t value) {
    Node node = kRoot;
    for (const char c : key) {
      const auto byte = static_cast<unsigned char>(c);
      Node next = step(node, byte);
      if (next == kNone) {
        if (values_.size() > kMaxNodes)
          throw FileError("the pieces of the vocabulary are too long to be searched together");
        next = static_cast<Node>(values_.size());
        values_.push_back(kNoValue);
        add(node, byte, next);
      }
      node = next;
    }
    values_[node] = value;
  }

  /// The child of `node` for `byte`; kNone if no key continues with it.
  Node step(Node node, unsigned char byte) const {
    if (node == kRoot) return first_[byte];
    if (slots_.empty()) return kNone;
    const std::uint32_t label = (node << 8) | byte;
    for (std::size_t at = place(label);; at = (at + 1) & mask_) {
      if (slots_[at].child == kNone) return kNone;
      if (slots_[at].label == label) return slots_[at].child;
    }
  }

  std::int32_t value(Node node) const { return values_[node]; }

 private:
  struct Slot {
    std::uint32_t label;
    Node child;
  };
  std::size_t place(std::uint32_t label) const { return ((label * 0x9E3779B97F4A7C15ull) >> 32) & mask_; }
  void add(Node node, unsigned char byte, Node child) {
    if (node == kRoot) {
      first_[byte] = child;
      return;
    }
    if (2 * (used_ + 1) > slots_.size()) grow();
    ++used_;
    put({(node << 8) | byte, child});
  }
  void put(Slot slot) {
    std::size_t at = place(slot.label);
    while (slots_[at].child != kNone) at = (at + 1) & mask_;
    slots_[at] = slot;
  }
  void grow() {
    std::vector<Slot> old = std::move(slots_);
    slots_.assign(old.empty() ? 64 : 2 * old.size(), Slot{0, kNone});
    mask_ = slots_.size() - 1;
    for (const Slot& slot : old)
      if (slot.child != kNone) put(slot);
  }

  std::array<Node, 256> first_;
  std::vector<std::int32_t> values_{kNoValue};
  std::vector<Slot> slots_;
  std::size_t mask_ = 0, used_ = 0;
};

}  // namespace weft::text
