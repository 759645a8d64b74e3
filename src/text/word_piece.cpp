// WordPiece, and whole words.
#include "text/byte_trie.hpp"
#include "text/model.hpp"
#include "text/unicode.hpp"
#include "text/word_cache.hpp"
#include "weft/error.hpp"

namespace weft::text {
namespace {

using std::size_t;

void put_unknown(TokenId unknown, std::vector<TokenId>& out) {
  if (unknown == kNoToken)
    throw UsageError(
        "the tokenizer does not know a word of the text, and has no token for unknown ones; take another copy of its "
        "file");
  out.push_back(unknown);
}

class WordPiece final : public Model {
 public:
  WordPiece(Vocabulary vocabulary, WordPieceOptions options)
      : vocabulary_(std::move(vocabulary)), options_(std::move(options)) {
    for (TokenId id = 0; id < vocabulary_.id_limit(); ++id)
      if (const auto piece = vocabulary_.piece(id); piece && !piece->empty() && vocabulary_.find(*piece) == id)
        trie_.insert(*piece, id);
    for (const char c : options_.continuing_prefix) {
      if (continuing_ == ByteTrie::kNone) break;
      continuing_ = trie_.step(continuing_, static_cast<unsigned char>(c));
    }
  }

  const Vocabulary& vocabulary() const override { return vocabulary_; }

  void encode(std::string_view word, std::vector<TokenId>& out) const override {
    cache_.get(word, out, [this](std::string_view text, std::vector<TokenId>& to) { encode_word(text, to); });
  }

 private:
  void encode_word(std::string_view word, std::vector<TokenId>& out) const {
    const size_t before = out.size();
    bool known = true;
    size_t characters = 0;
    for (const char c : word) characters += (c & 0xC0) != 0x80;
    if (characters > options_.max_characters) known = false;
    for (size_t begin = 0; known && begin < word.size();) {
      ByteTrie::Node node = begin == 0 ? ByteTrie::kRoot : continuing_;
      size_t longest = 0;
      TokenId found = kNoToken;
      for (size_t end = begin; node != ByteTrie::kNone && end < word.size();) {
        node = trie_.step(node, static_cast<unsigned char>(word[end++]));
        if (node == ByteTrie::kNone) break;
        if (const TokenId id = trie_.value(node); id != ByteTrie::kNoValue) longest = end, found = id;
      }
      known = found != kNoToken;
      if (!known) break;
      out.push_back(found);
      begin = longest;
    }
    if (known) return;
    out.resize(before);
    put_unknown(options_.unknown, out);
  }

  Vocabulary vocabulary_;
  WordPieceOptions options_;
  ByteTrie trie_;
  ByteTrie::Node continuing_ = ByteTrie::kRoot;
  WordCache cache_;
};

class WordLevel final : public Model {
 public:
  WordLevel(Vocabulary vocabulary, TokenId unknown) : vocabulary_(std::move(vocabulary)), unknown_(unknown) {}
  const Vocabulary& vocabulary() const override { return vocabulary_; }
  void encode(std::string_view word, std::vector<TokenId>& out) const override {
    if (const TokenId id = vocabulary_.find(word); id != kNoToken) {
      out.push_back(id);
    } else {
      put_unknown(unknown_, out);
    }
  }

 private:
  Vocabulary vocabulary_;
  TokenId unknown_;
};

}  // namespace

ModelPtr make_word_piece(Vocabulary vocabulary, WordPieceOptions options) {
  return std::make_unique<WordPiece>(std::move(vocabulary), std::move(options));
}

ModelPtr make_word_level(Vocabulary vocabulary, TokenId unknown) {
  return std::make_unique<WordLevel>(std::move(vocabulary), unknown);
}

}  // namespace weft::text
