// Recognises texts of a grammar byte by byte, by Earley's algorithm, and remembers each step.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "grammar/network.hpp"

namespace weft::grammar {

/// A place in a text is a set of items: a state of a rule, and the set where the rule began. Sets with the same items are one
/// object, so that places from which the same texts go on are the same place (in a list, after each element; in a string,
/// after each character), and a step from a place by a byte is a look-up from its second time on. That also makes an automaton
/// of the regular parts of a grammar while it is used, so that no pattern takes more than linear time.
///
/// One thread at a time. Source: Earley 1970; rules that fit the empty text: Aycock and Horspool 2002.
class Recognizer {
 public:
  using Place = std::uint32_t;
  static constexpr Place kDead = 0xFFFFFFFF;  ///< no text of the grammar goes on like this
  static constexpr std::size_t kItemsMax = 50'000, kBytesMax = std::size_t{256} << 20;

  explicit Recognizer(std::shared_ptr<const Network> network);

  Place start() const { return 0; }
  /// Errors: UsageError if the place has more than kItemsMax items, or all places together more than kBytesMax.
  Place step(Place place, std::uint8_t byte) {
    const Place known = sets_[place].next ? (*sets_[place].next)[byte] : kUnknown;
    return known != kUnknown ? known : new_step(place, byte);
  }
  Place step(Place place, std::string_view bytes);
  /// Whether the text up to here is a whole text of the grammar.
  bool accepts(Place place) const { return sets_[place].accepts; }
  std::size_t place_count() const { return sets_.size(); }
  std::size_t memory_bytes() const { return bytes_; }

 private:
  static constexpr Place kUnknown = 0xFFFFFFFE, kHere = 0xFFFFFFFD;

  struct Item {
    StateId state;
    Place origin;  // kHere: this set
    bool operator==(const Item&) const = default;
    auto operator<=>(const Item&) const = default;
  };
  /// An item that goes on at `target` after a text of `rule`.
  struct Waiting {
    RuleId rule;
    StateId target;
    Place origin;
  };
  struct Set {
    std::vector<Item> items;       // with the beginnings of rules
    std::vector<Waiting> waiting;  // by rule
    std::unique_ptr<std::array<Place, 256>> next;
    bool accepts = false;
  };

  Place new_step(Place place, std::uint8_t byte);
  /// The set of items that were read, and of all that follows from them without another byte.
  Place intern(std::vector<Item> items);
  void add(std::vector<Item>& items, Item item);

  std::shared_ptr<const Network> network_;
  std::vector<Set> sets_;
  std::unordered_multimap<std::uint64_t, Place> by_hash_;
  std::vector<std::vector<Item>> kernels_;  // of each set, the items that are not beginnings, in order
  std::size_t bytes_ = 0;
  // Members of the set that is being made: a hash table that is emptied by counting up.
  struct Slot {
    Item item;
    std::uint32_t era = 0;
  };
  std::vector<Slot> slots_;
  std::uint32_t era_ = 0;
};

}  // namespace weft::grammar
