#include "text/added_tokens.hpp"

#include <algorithm>

#include "text/unicode.hpp"

namespace weft::text {

bool is_control(const AddedToken& token) {
  if (token.special) return true;
  const CharacterTable& table = CharacterTable::get();
  constexpr char32_t kMarker = 0x2581;  // what SentencePiece writes for a space
  for (const char *at = token.content.data(), *end = at + token.content.size(); at < end;) {
    const Character c = character_at(at);
    if (!(table[c.value] & kSpace) && c.value != kMarker) return true;
    at += c.length;
  }
  return false;
}

bool is_marked_word(std::string_view content) {
  if (content.size() < 3) return false;
  const CharacterTable& table = CharacterTable::get();
  const auto is_mark = [&](char32_t c) { return (table[c] & (kPunctuation | kSymbol)) != 0; };
  const Character first = character_at(content.data()), last = character_before(content.data() + content.size());
  if (!is_mark(first.value) || !is_mark(last.value)) return false;
  for (const char *at = content.data(), *end = at + content.size(); at < end; at += character_at(at).length)
    if (table[character_at(at).value] & kLetter) return true;
  return false;
}

void AddedTokenFinder::add(std::string_view form, const AddedToken& token) {
  if (form.empty()) return;
  ByteTrie::Node node = ByteTrie::kRoot;
  for (const char c : form)
    if ((node = trie_.step(node, static_cast<unsigned char>(c))) == ByteTrie::kNone) break;
  if (node != ByteTrie::kNone && trie_.value(node) != ByteTrie::kNoValue) return;
  trie_.insert(form, static_cast<std::int32_t>(tokens_.size()));
  tokens_.push_back({token.id, token.single_word, token.lstrip, token.rstrip, is_control(token)});
  starts_[static_cast<unsigned char>(form[0])] = true;
  has_control_ |= tokens_.back().control;
}

void AddedTokenFinder::find(std::string_view text, std::span<const ByteRange> plain, OnPart part) const {
  const CharacterTable& table = CharacterTable::get();
  const char* const data = text.data();
  std::size_t done = 0;  // everything before it has been handed out
  for (std::size_t at = 0; at < text.size();) {
    if (!starts_[static_cast<unsigned char>(text[at])]) {
      ++at;
      continue;
    }
    while (!plain.empty() && plain.front().end <= at) plain = plain.subspan(1);
    const std::size_t plain_begin = plain.empty() ? text.size() : plain.front().begin;
    ByteTrie::Node node = ByteTrie::kRoot;
    const Flags* found = nullptr;
    std::size_t stop = at;
    for (std::size_t end = at; end < text.size();) {
      node = trie_.step(node, static_cast<unsigned char>(text[end]));
      if (node == ByteTrie::kNone) break;
      ++end;
      const std::int32_t value = trie_.value(node);
      if (value == ByteTrie::kNoValue) continue;
      const Flags& token = tokens_[static_cast<std::size_t>(value)];
      if (token.control && end > plain_begin) continue;
      found = &token;
      stop = end;
    }
    if (!found) {
      ++at;
      continue;
    }
    std::size_t begin = at;
    at = stop;
    if (found->single_word) {
      const bool word_before = begin > 0 && (table[character_before(data + begin).value] & kWord);
      const bool word_behind = stop < text.size() && (table[character_at(data + stop).value] & kWord);
      if (word_before || word_behind) continue;
    }
    if (found->lstrip)
      while (begin > done && (table[character_before(data + begin).value] & kSpace))
        begin -= character_before(data + begin).length;
    if (found->rstrip)
      while (stop < text.size() && (table[character_at(data + stop).value] & kSpace))
        stop += character_at(data + stop).length;
    if (done < begin) part(done, begin, kNoToken);
    part(begin, stop, found->id);
    done = stop;
    at = std::max(at, stop);
  }
  if (done < text.size()) part(done, text.size(), kNoToken);
}

}  // namespace weft::text
