// Unigram: the best path through all pieces of a word.
#include <algorithm>
#include <limits>

#include "text/byte_trie.hpp"
#include "text/call_limits.hpp"
#include "text/model.hpp"
#include "text/unicode.hpp"
#include "text/word_cache.hpp"
#include "weft/error.hpp"

namespace weft::text {
namespace {

using std::size_t;

class Unigram final : public Model {
 public:
  Unigram(Vocabulary vocabulary, std::vector<double> scores, UnigramOptions options)
      : vocabulary_(std::move(vocabulary)), scores_(std::move(scores)), options_(options) {
    double least = std::numeric_limits<double>::infinity();
    for (TokenId id = 0; id < vocabulary_.id_limit(); ++id) {
      const auto piece = vocabulary_.piece(id);
      if (!piece) continue;
      least = std::min(least, scores_.at(static_cast<size_t>(id)));
      if (!piece->empty() && vocabulary_.find(*piece) == id) trie_.insert(*piece, id);
    }
    unknown_score_ = least - 10.0;
  }

  const Vocabulary& vocabulary() const override { return vocabulary_; }

  void encode(std::string_view word, std::vector<TokenId>& out) const override {
    cache_.get(word, out, [this](std::string_view text, std::vector<TokenId>& to) { encode_word(text, to); });
  }

 private:
  struct Best {
    double score = 0;
    std::uint32_t begin = kNowhere;  // of the last piece
    TokenId id = 0;
  };
  static constexpr std::uint32_t kNowhere = 0xFFFFFFFF;

  void encode_word(std::string_view word, std::vector<TokenId>& out) const {
    std::vector<Best> best(word.size() + 1);  // by the byte where a path ends
    const auto offer = [&](size_t begin, size_t end, double score, TokenId id) {
      Best& target = best[end];
      if (target.begin == kNowhere || score > target.score) target = {score, static_cast<std::uint32_t>(begin), id};
    };
    for (size_t begin = 0; begin < word.size();) {
      const size_t length = character_at(word.data() + begin).length;
      const double score = best[begin].score;
      bool covered = false;  // the first character by a piece of its own
      ByteTrie::Node node = ByteTrie::kRoot;
      size_t end = begin;
      while (end < word.size()) {
        node = trie_.step(node, static_cast<unsigned char>(word[end]));
        if (node == ByteTrie::kNone) break;
        ++end;
        const TokenId id = trie_.value(node);
        if (id == ByteTrie::kNoValue) continue;
        offer(begin, end, score + scores_[static_cast<size_t>(id)], id);
        covered |= end - begin == length;
      }
      CallLimits::work(end - begin);
      if (!covered) {
        if (options_.unknown == kNoToken)
          throw UsageError(
              "the tokenizer has no piece for a character of the text, and no token for unknown ones; take another "
              "copy of its file");
        offer(begin, begin + length, score + unknown_score_, options_.unknown);
      }
      begin += length;
    }

    // Backwards along the path; neighbouring unknowns are one.
    std::vector<std::string_view> pieces;
    size_t unknown_end = 0;
    for (size_t end = word.size(); end > 0;) {
      const Best& node = best[end];
      const size_t begin = node.begin;
      if (node.id == options_.unknown) {
        if (!unknown_end) unknown_end = end;
      } else {
        if (unknown_end) pieces.push_back(word.substr(end, unknown_end - end));
        unknown_end = 0;
        pieces.push_back(word.substr(begin, end - begin));
      }
      end = begin;
    }
    if (unknown_end) pieces.push_back(word.substr(0, unknown_end));
    for (auto piece = pieces.rbegin(); piece != pieces.rend(); ++piece) put(*piece, out);
  }

  void put(std::string_view piece, std::vector<TokenId>& out) const {
    if (const TokenId id = vocabulary_.find(piece); id != kNoToken) {
      out.push_back(id);
      return;
    }
    const size_t before = out.size();
    if (options_.byte_fallback) {
      for (const char c : piece) {
        const TokenId id = vocabulary_.find_any(byte_piece(static_cast<unsigned char>(c)));
        if (id == kNoToken) break;
        out.push_back(id);
      }
      if (out.size() - before == piece.size()) return;
      out.resize(before);
    }
    out.push_back(options_.unknown);
  }

  Vocabulary vocabulary_;
  std::vector<double> scores_;
  UnigramOptions options_;
  ByteTrie trie_;
  double unknown_score_ = 0;
  WordCache cache_;
};

}  // namespace

ModelPtr make_unigram(Vocabulary vocabulary, std::vector<double> scores, UnigramOptions options) {
  return std::make_unique<Unigram>(std::move(vocabulary), std::move(scores), options);
}

}  // namespace weft::text
