// Byte pair encoding.
#include <algorithm>
#include <array>
#include <bit>
#include <functional>
#include <memory>
#include <optional>
#include <unordered_set>

#include "text/model.hpp"
#include "text/unicode.hpp"
#include "text/word_cache.hpp"
#include "weft/error.hpp"

namespace weft::text {
namespace {

using std::size_t;

/// Merges by what they join, open addressing. The table holds places of merges and some bits of their hashes.
class MergeTable {
 public:
  struct Found {
    std::uint32_t rank;
    TokenId result;
  };

  /// The last of equal pairs counts.
  explicit MergeTable(const std::vector<Merge>& merges) : entries_(merges.size()) {
    const auto out_of_order = [](const Merge& a, const Merge& b) { return a.rank >= b.rank; };
    const bool ranked = std::adjacent_find(merges.begin(), merges.end(), out_of_order) != merges.end();
    if (ranked) ranks_.resize(merges.size());
    size_t slots = 16;
    while (3 * slots < 4 * merges.size()) slots *= 2;
    slots_.resize(slots);
    mask_ = slots - 1;
    place_bits_ = std::bit_width(merges.size());
    for (size_t i = 0; i < merges.size(); ++i) {
      const Merge& merge = merges[i];
      entries_[i] = {merge.left, merge.right, merge.result};
      if (ranked) ranks_[i] = merge.rank;
      const std::uint64_t hash = hash_of(merge.left, merge.right);
      slots_[place(merge.left, merge.right, hash)] = tag(hash) | static_cast<std::uint32_t>(i + 1);
    }
  }
  /// Nothing if the two are not to be joined.
  std::optional<Found> find(TokenId left, TokenId right) const {
    const std::uint32_t slot = slots_[place(left, right, hash_of(left, right))];
    if (slot == 0) return std::nullopt;
    const size_t i = index_of(slot);
    return Found{ranks_.empty() ? static_cast<std::uint32_t>(i) : ranks_[i], entries_[i].result};
  }

 private:
  struct Entry {
    TokenId left, right, result;
  };
  static std::uint64_t hash_of(TokenId left, TokenId right) {
    return seeded_hash(std::uint64_t{static_cast<std::uint32_t>(left)} << 32 | static_cast<std::uint32_t>(right));
  }
  std::uint32_t tag(std::uint64_t hash) const {
    return static_cast<std::uint32_t>(hash >> 32) >> place_bits_ << place_bits_;
  }
  size_t index_of(std::uint32_t slot) const { return (slot & ((1u << place_bits_) - 1)) - 1; }
  size_t place(TokenId left, TokenId right, std::uint64_t hash) const {
    size_t at = hash & mask_;
    for (; slots_[at] != 0; at = (at + 1) & mask_) {
      if (((slots_[at] ^ tag(hash)) >> place_bits_) != 0) continue;
      const Entry& entry = entries_[index_of(slots_[at])];
      if (entry.left == left && entry.right == right) break;
    }
    return at;
  }

  std::vector<Entry> entries_;
  std::vector<std::uint32_t> ranks_;  // empty: each is ranked by its place
  std::vector<std::uint32_t> slots_;  // 0: free
  size_t mask_ = 0;
  int place_bits_ = 0;
};

/// Ids of single characters, a page at a time.
class CharacterIds {
 public:
  explicit CharacterIds(const Vocabulary& vocabulary) {
    for (TokenId id = 0; id < vocabulary.id_limit(); ++id) {
      const auto piece = vocabulary.piece(id);
      if (!piece || piece->empty() || piece->size() > 4) continue;
      const Character c = character_at(piece->data());
      if (c.length != piece->size()) continue;
      if (vocabulary.find(*piece) == id) set(c.value, id);
    }
  }
  TokenId operator[](char32_t c) const { return pages_[c >> 8] ? (*pages_[c >> 8])[c & 0xFF] : kNoToken; }

 private:
  void set(char32_t c, TokenId id) {
    auto& page = pages_[c >> 8];
    if (!page) {
      page = std::make_unique<std::array<TokenId, 256>>();
      page->fill(kNoToken);
    }
    (*page)[c & 0xFF] = id;
  }
  std::array<std::unique_ptr<std::array<TokenId, 256>>, 0x1100> pages_;
};

// Joins `symbols` in place; returns how many are left. For short words: looks through all ranks for each merge.
size_t merge_short(const MergeTable& table, TokenId* symbols, size_t count) {
  constexpr std::uint64_t kNever = ~std::uint64_t{0};
  std::uint64_t ranks[32];  // rank and result of each symbol with its right neighbour
  const auto rank_at = [&](size_t i) {
    const auto entry = table.find(symbols[i], symbols[i + 1]);
    return entry ? std::uint64_t{entry->rank} << 32 | static_cast<std::uint32_t>(entry->result) : kNever;
  };
  for (size_t i = 0; i + 1 < count; ++i) ranks[i] = rank_at(i);
  while (count > 1) {
    size_t best = 0;
    for (size_t i = 1; i + 1 < count; ++i)
      if (ranks[i] >> 32 < ranks[best] >> 32) best = i;
    if (ranks[best] == kNever) break;
    symbols[best] = static_cast<TokenId>(ranks[best] & 0xFFFFFFFF);
    --count;
    for (size_t i = best + 1; i < count; ++i) symbols[i] = symbols[i + 1];
    for (size_t i = best + 1; i + 1 < count; ++i) ranks[i] = ranks[i + 1];
    if (best > 0) ranks[best - 1] = rank_at(best - 1);
    if (best + 1 < count) ranks[best] = rank_at(best);
  }
  return count;
}
constexpr size_t kShort = 32;

// The same for words of any length: a linked list, and a heap of what could be joined.
class LongMerger {
 public:
  size_t merge(const MergeTable& table, std::vector<TokenId>& symbols) {
    const auto count = static_cast<std::uint32_t>(symbols.size());
    next_.resize(count);
    previous_.resize(count);
    heap_.clear();
    for (std::uint32_t i = 0; i < count; ++i) next_[i] = i + 1, previous_[i] = i - 1;
    for (std::uint32_t i = 0; i + 1 < count; ++i)
      if (const auto entry = table.find(symbols[i], symbols[i + 1])) heap_.push_back(key(entry->rank, i));
    std::make_heap(heap_.begin(), heap_.end(), std::greater<>());
    const auto push = [&](std::uint32_t left, std::uint32_t right) {
      if (const auto entry = table.find(symbols[left], symbols[right])) {
        heap_.push_back(key(entry->rank, left));
        std::push_heap(heap_.begin(), heap_.end(), std::greater<>());
      }
    };
    while (!heap_.empty()) {
      std::pop_heap(heap_.begin(), heap_.end(), std::greater<>());
      const auto left = static_cast<std::uint32_t>(heap_.back());
      const auto rank = static_cast<std::uint32_t>(heap_.back() >> 32);
      heap_.pop_back();
      if (symbols[left] == kNoToken || next_[left] == count) continue;
      const std::uint32_t right = next_[left];
      const auto entry = table.find(symbols[left], symbols[right]);
      if (!entry || entry->rank != rank) continue;  // one of the two has been joined since
      symbols[left] = entry->result;
      symbols[right] = kNoToken;
      next_[left] = next_[right];
      if (next_[left] != count) previous_[next_[left]] = left;
      if (left != 0) push(previous_[left], left);
      if (next_[left] != count) push(left, next_[left]);
    }
    size_t kept = 0;
    for (const TokenId symbol : symbols)
      if (symbol != kNoToken) symbols[kept++] = symbol;
    return kept;
  }

 private:
  static std::uint64_t key(std::uint32_t rank, std::uint32_t place) { return std::uint64_t{rank} << 32 | place; }
  std::vector<std::uint32_t> next_, previous_;
  std::vector<std::uint64_t> heap_;
};

class Bpe final : public Model {
 public:
  Bpe(Vocabulary vocabulary, const std::vector<Merge>& merges, BpeOptions options)
      : vocabulary_(std::move(vocabulary)), table_(merges), options_(std::move(options)) {
    bytes_.fill(kNoToken);
    for (int byte = 0; byte < 256; ++byte) {
      const char c = static_cast<char>(byte);
      bytes_[static_cast<size_t>(byte)] = options_.bytes
                                              ? vocabulary_.find({&c, 1})
                                              : vocabulary_.find_any(byte_piece(static_cast<unsigned char>(byte)));
    }
    if (options_.bytes) return;
    characters_.emplace(vocabulary_);
    plain_ = options_.continuing_prefix.empty() && options_.word_suffix.empty();
    find_cuts(merges);
  }

  const Vocabulary& vocabulary() const override { return vocabulary_; }

  void encode(std::string_view word, std::vector<TokenId>& out) const override {
    if (options_.ignore_merges && word.size() > WordCache::kMaxBytes && word.size() <= vocabulary_.longest_bytes()) {
      if (const TokenId id = vocabulary_.find(word); id != kNoToken) {
        out.push_back(id);
        return;
      }
    }
    if (!cuts_ || options_.ignore_merges) {
      encode_cached(word, out);
      return;
    }
    // No merge joins a space marker to the character before it, so words can be looked up one by one.
    const char *at = word.data(), *const end = at + word.size(), *begin = at;
    char32_t before = kMarker;
    while (at < end) {
      const Character c = character_at(at);
      if (c.value == kMarker && before != kMarker && !uncut_.contains(before)) {
        encode_cached({begin, static_cast<size_t>(at - begin)}, out);
        begin = at;
      }
      before = c.value;
      at += c.length;
    }
    if (begin < end) encode_cached({begin, static_cast<size_t>(end - begin)}, out);
  }

 private:
  static constexpr char32_t kMarker = 0x2581;  // what SentencePiece writes for a space

  // Finds out whether the text may be cut before markers: for that, no merge may join another character to a marker after
  // it (those that do are noted), and symbols that are not characters must not merge.
  void find_cuts(const std::vector<Merge>& merges) {
    if (!plain_ || (*characters_)[kMarker] == kNoToken) return;
    bool all_bytes = true;
    for (const TokenId id : bytes_) all_bytes &= id != kNoToken;
    if (!(options_.byte_fallback && all_bytes) && options_.unknown == kNoToken) return;  // characters may vanish
    std::unordered_set<TokenId> special;
    for (const TokenId id : bytes_)
      if (id != kNoToken) special.insert(id);
    if (options_.unknown != kNoToken) special.insert(options_.unknown);
    for (const Merge& merge : merges) {
      if (special.contains(merge.left) || special.contains(merge.right)) return;
      const auto left = vocabulary_.piece(merge.left), right = vocabulary_.piece(merge.right);
      if (!left || !right || left->empty() || right->empty()) return;
      const char32_t last = character_before(left->data() + left->size()).value;
      if (last != kMarker && character_at(right->data()).value == kMarker) uncut_.insert(last);
    }
    cuts_ = true;
  }

  void encode_cached(std::string_view word, std::vector<TokenId>& out) const {
    cache_.get(word, out, [this](std::string_view text, std::vector<TokenId>& to) { encode_word(text, to); });
  }

  void encode_word(std::string_view word, std::vector<TokenId>& out) const {
    if (options_.ignore_merges) {
      if (const TokenId id = vocabulary_.find(word); id != kNoToken) {
        out.push_back(id);
        return;
      }
    }
    if (options_.bytes && word.size() <= kShort) {
      TokenId symbols[kShort];
      size_t count = 0;
      for (const char c : word)
        if (const TokenId id = bytes_[static_cast<unsigned char>(c)]; id != kNoToken) symbols[count++] = id;
      count = merge_short(table_, symbols, count);
      out.insert(out.end(), symbols, symbols + count);
      return;
    }
    thread_local std::vector<TokenId> symbols;
    symbols.clear();
    if (options_.bytes) {
      for (const char c : word)
        if (const TokenId id = bytes_[static_cast<unsigned char>(c)]; id != kNoToken) symbols.push_back(id);
    } else {
      start(word, symbols);
    }
    size_t count = symbols.size();
    if (count <= kShort) {
      count = merge_short(table_, symbols.data(), count);
    } else {
      thread_local LongMerger merger;
      count = merger.merge(table_, symbols);
    }
    out.insert(out.end(), symbols.begin(), symbols.begin() + static_cast<std::ptrdiff_t>(count));
    if (symbols.capacity() > kKeptSymbols) {
      symbols = {};
    }
  }

  // The symbols that a word begins as.
  void start(std::string_view word, std::vector<TokenId>& symbols) const {
    bool unknown_waits = false;
    std::string decorated;
    for (const char *at = word.data(), *const end = at + word.size(); at < end;) {
      const Character c = character_at(at);
      std::string_view piece(at, c.length);
      const bool first = at == word.data();
      at += c.length;
      TokenId id;
      if (plain_) {
        id = (*characters_)[c.value];
      } else {
        decorated.clear();
        if (!first) decorated += options_.continuing_prefix;
        decorated += piece;
        if (at == end) decorated += options_.word_suffix;
        piece = decorated;
        id = vocabulary_.find(piece);
      }
      if (id != kNoToken) {
        if (unknown_waits) symbols.push_back(options_.unknown);
        unknown_waits = false;
        symbols.push_back(id);
        continue;
      }
      if (options_.byte_fallback && std::all_of(piece.begin(), piece.end(), [this](char b) {
            return bytes_[static_cast<unsigned char>(b)] != kNoToken;
          })) {
        for (const char b : piece) symbols.push_back(bytes_[static_cast<unsigned char>(b)]);
        continue;  // a pending unknown token comes after them, as in the reference implementation
      }
      if (options_.unknown == kNoToken) continue;
      if (unknown_waits && !options_.fuse_unknown) symbols.push_back(options_.unknown);
      unknown_waits = true;
    }
    if (unknown_waits) symbols.push_back(options_.unknown);
  }

  static constexpr size_t kKeptSymbols = 1 << 20;

  Vocabulary vocabulary_;
  MergeTable table_;
  BpeOptions options_;
  std::array<TokenId, 256> bytes_;
  std::optional<CharacterIds> characters_;
  bool plain_ = true, cuts_ = false;
  std::unordered_set<char32_t> uncut_;  // characters that a merge joins to a marker after them
  WordCache cache_;
};

}  // namespace

ModelPtr make_bpe(Vocabulary vocabulary, std::vector<Merge> merges, BpeOptions options) {
  return std::make_unique<Bpe>(std::move(vocabulary), merges, std::move(options));
}

std::string byte_piece(unsigned char byte) {
  constexpr char kDigits[] = "0123456789ABCDEF";
  return {'<', '0', 'x', kDigits[byte >> 4], kDigits[byte & 15], '>'};
}

std::optional<unsigned char> byte_of_piece(std::string_view piece) {
  if (piece.size() != 6 || !piece.starts_with("<0x") || piece[5] != '>') return std::nullopt;
  unsigned value = 0;
  for (const char c : piece.substr(3, 2)) {
    const char lower = static_cast<char>(c | 0x20);
    if (c >= '0' && c <= '9') {
      value = value * 16 + static_cast<unsigned>(c - '0');
    } else if (lower >= 'a' && lower <= 'f') {
      value = value * 16 + static_cast<unsigned>(lower - 'a' + 10);
    } else {
      return std::nullopt;
    }
  }
  return static_cast<unsigned char>(value);
}

}  // namespace weft::text
