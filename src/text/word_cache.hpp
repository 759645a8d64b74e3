// A cache from words to their tokens: a small table for each thread, without locks.
#pragma once

#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <new>
#include <string_view>
#include <vector>

#include "text/token.hpp"

namespace weft::text {

/// The cache of one model. A word of up to 24 bytes with up to 8 tokens is kept, until another takes its place.
class WordCache {
 public:
  static constexpr std::size_t kMaxBytes = 24, kMaxTokens = 8;

  /// Appends the tokens of `word`, by `make(word, out)` when it is new.
  template <class Make>
  void get(std::string_view word, std::vector<TokenId>& out, Make make) const {
    if (word.size() > kMaxBytes || word.empty()) {
      make(word, out);
      return;
    }
    const Key key = key_of(word);
    Entry& entry = table()[hash(key, word.size())];
    if (entry.model == model_ && entry.size == word.size() && std::memcmp(&entry.key, &key, sizeof key) == 0) {
      out.insert(out.end(), entry.tokens, entry.tokens + entry.count);
      return;
    }
    const std::size_t before = out.size();
    make(word, out);
    const std::size_t count = out.size() - before;
    if (count > kMaxTokens) return;
    entry.model = model_;
    entry.size = static_cast<std::uint8_t>(word.size());
    entry.count = static_cast<std::uint8_t>(count);
    entry.key = key;
    std::copy(out.begin() + static_cast<std::ptrdiff_t>(before), out.end(), entry.tokens);
  }

 private:
  struct Key {
    std::uint64_t words[3];
  };
  struct Entry {  // one line of the cache
    Key key;
    std::uint32_t model;  // 0: empty
    std::uint8_t size, count;
    TokenId tokens[kMaxTokens];
  };
  static_assert(sizeof(Entry) == 64);
  static constexpr std::size_t kEntries = 1 << 15;

  // The bytes, padded with zeros; loads overlap so that none goes past the word.
  static Key key_of(std::string_view word) {
    const char* at = word.data();
    const std::size_t size = word.size();
    const auto load = [](const char* from, std::size_t bytes) {
      std::uint64_t value = 0;
      std::memcpy(&value, from, bytes);
      return value;
    };
    const auto tail = [&](std::size_t begin) { return load(at + size - 8, 8) >> (8 * (begin + 8 - size)); };
    if (size >= 16) return {{load(at, 8), load(at + 8, 8), size > 16 ? tail(16) : 0}};
    if (size >= 8) return {{load(at, 8), size > 8 ? tail(8) : 0, 0}};
    if (size >= 4) return {{load(at, 4) | load(at + size - 4, 4) << (8 * (size - 4)), 0, 0}};
    const auto byte = [&](std::size_t i) { return std::uint64_t{static_cast<unsigned char>(at[i])} << (8 * i); };
    return {{byte(0) | byte(size / 2) | byte(size - 1), 0, 0}};
  }
  static std::size_t hash(const Key& key, std::size_t size) {
    std::uint64_t h = (key.words[0] ^ size) * 0x9E3779B97F4A7C15ull;
    h = (h ^ (h >> 32) ^ key.words[1]) * 0xD6E8FEB86659FD93ull;
    h = (h ^ (h >> 32) ^ key.words[2]) * 0xFF51AFD7ED558CCDull;
    return h >> 49;
  }
  struct Free {
    void operator()(Entry* entries) const { std::free(entries); }
  };
  static Entry* table() {
    thread_local std::unique_ptr<Entry[], Free> entries;
    if (!entries) {
      entries.reset(static_cast<Entry*>(std::calloc(kEntries, sizeof(Entry))));
      if (!entries) throw std::bad_alloc();
    }
    return entries.get();
  }
  static std::uint32_t next_model() {
    static std::atomic<std::uint32_t> last{0};
    return ++last;
  }

  std::uint32_t model_ = next_model();
};

}  // namespace weft::text
