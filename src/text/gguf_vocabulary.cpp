// Tokenizers from the vocabularies of GGUF files.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/quote.hpp"
#include "base/utf8.hpp"
#include "text/added_tokens.hpp"
#include "text/byte_level.hpp"
#include "text/character_map.hpp"
#include "text/gguf_rules.hpp"
#include "text/tokenizer.hpp"
#include "text/tokenizer_parts.hpp"
#include "text/unicode.hpp"
#include "weft/error.hpp"

namespace weft::text {
namespace {

using std::size_t;

constexpr size_t kMaxTokenBytes = 1024;

class Reader {
 public:
  Reader(GgufVocabulary vocabulary, std::string_view source) : v_(std::move(vocabulary)), source_(source) {}

  std::unique_ptr<TokenizerParts> read() {
    check();
    add_special_tokens();
    if (v_.model == "gpt2") {
      read_bpe();
    } else if (v_.model == "llama") {
      read_sentence_piece();
    } else if (v_.model == "gemma4") {
      read_marked_bpe();
    } else if (v_.model == "bert") {
      read_word_piece();
    } else if (v_.model == "t5") {
      read_unigram();
    } else {
      fail("model", fmt::format("{} is unknown; Weft knows gpt2, llama, gemma4, bert, t5", quote(v_.model, 60)));
    }
    parts_->bos = v_.bos;
    parts_->eos = v_.eos;
    parts_->padding = v_.padding;
    parts_->complete();
    return std::move(parts_);
  }

 private:
  [[noreturn]] void fail(std::string_view key, std::string_view fact) const {
    throw FileError(fmt::format("{}: tokenizer.ggml.{}: {}", source_, key, fact));
  }
  [[noreturn]] void fail(std::string_view key, size_t index, std::string_view fact) const {
    fail(fmt::format("{}[{}]", key, index), fact);
  }
  std::int32_t type_of(size_t id) const { return type_of_token(v_, id); }
  bool is_special(size_t id) const { return is_special_token(v_, id); }
  /// Whether no text may become it by merges.
  bool is_hidden(size_t id) const { return is_special(id) || (type_of(id) == kUser && is_marked_word(v_.tokens[id])); }

  void check() const {
    const size_t count = v_.tokens.size();
    if (count == 0) fail("tokens", "is empty; a model needs a vocabulary");
    if (count > static_cast<size_t>(kMaxTokenId))
      fail("tokens", fmt::format("has {} tokens; at most {} are allowed", count, kMaxTokenId));
    if (!v_.types.empty() && v_.types.size() != count)
      fail("token_type", fmt::format("has {} entries for {} tokens; it needs one each", v_.types.size(), count));
    if ((v_.model == "llama" || v_.model == "t5") && v_.scores.size() != count)
      fail("scores", fmt::format("has {} entries for {} tokens; it needs one each", v_.scores.size(), count));
    for (size_t i = 0; i < v_.scores.size(); ++i)
      if (!std::isfinite(v_.scores[i])) fail("scores", i, "is not a finite number");
    for (size_t i = 0; i < count; ++i) {
      if (v_.tokens[i].size() > kMaxTokenBytes)
        fail("tokens", i, fmt::format("has {} bytes; a token has at most {}", v_.tokens[i].size(), kMaxTokenBytes));
      if (find_invalid_utf8(v_.tokens[i])) fail("tokens", i, fmt::format("{} is not UTF-8", quote(v_.tokens[i], 40)));
    }
    const auto check_id = [&](std::string_view key, TokenId id) {
      if (id < kNoToken || (id != kNoToken && static_cast<size_t>(id) >= count))
        fail(key, fmt::format("is {}, not the id of one of the {} tokens", id, count));
    };
    check_id("bos_token_id", v_.bos);
    check_id("eos_token_id", v_.eos);
    check_id("unknown_token_id", v_.unknown);
    check_id("seperator_token_id", v_.separator);  // so spelt in the format
    check_id("padding_token_id", v_.padding);
  }

  void add_special_tokens() {
    for (size_t id = 0; id < v_.tokens.size(); ++id)
      if (!v_.tokens[id].empty() && (is_special(id) || type_of(id) == kUser))
        parts_->added.push_back(
            {.content = v_.tokens[id], .id = static_cast<TokenId>(id), .normalized = false, .special = is_special(id)});
  }

  void add_template(bool bos, bool eos, TokenId end) {
    PostProcessor processor;
    const TemplateItem first{TemplateItem::Kind::kFirst}, second{TemplateItem::Kind::kSecond};
    const auto put = [&](std::vector<TemplateItem>& items, bool wanted, std::string_view key, TokenId id) {
      if (!wanted) return;
      if (id == kNoToken) fail(key, "is missing, and the model wants it around texts");
      items.push_back({TemplateItem::Kind::kToken, id});
    };
    for (auto* items : {&processor.single, &processor.pair}) {
      put(*items, bos, "bos_token_id", v_.bos);
      items->push_back(first);
      put(*items, eos, "eos_token_id", end);
    }
    processor.pair.push_back(second);
    put(processor.pair, eos, "eos_token_id", end);
    parts_->post_processors.push_back(std::move(processor));
  }

  void read_bpe() {
    const std::string name = v_.pre.empty() ? "default" : v_.pre;
    const WordRule* rule = find_word_rule(name);
    std::string known;
    for (const WordRule& candidate : word_rules())
      for (const std::string_view each : candidate.names) known += fmt::format("{}{}", known.empty() ? "" : ", ", each);
    if (!rule)
      fail("pre", fmt::format("{} is unknown: how texts are cut into words for it is not to be guessed; Weft knows {}",
                              quote(name, 60), known));

    Vocabulary bytes;
    bytes.reserve(v_.tokens.size(), 8 * v_.tokens.size());
    std::vector<size_t> not_words;
    std::string piece;
    const auto read = [&](std::string_view written) {
      piece.clear();
      return append_as_bytes(piece, written);
    };
    for (size_t id = 0; id < v_.tokens.size(); ++id) {
      if (type_of(id) != kNormal || !read(v_.tokens[id]))
        not_words.push_back(id);
      else
        bytes.add(piece, static_cast<TokenId>(id), bytes.find(piece) == kNoToken);
    }
    for (const size_t id : not_words) {
      if (!read(v_.tokens[id])) {
        parts_->other_pieces.add(v_.tokens[id], static_cast<TokenId>(id));
        continue;
      }
      const bool is_new = bytes.find_any(piece) == kNoToken;
      bytes.add(piece, static_cast<TokenId>(id), is_new);
      if (is_new) bytes.hide(piece);
    }
    std::vector<Merge> merges;
    merges.reserve(v_.merges.size());
    for (size_t i = 0; i < v_.merges.size(); ++i) {
      const auto [left, right] = merged_pieces(v_, i, source_);
      const auto require = [&](std::string_view written) {
        const TokenId id = read(written) ? bytes.find_any(piece) : parts_->other_pieces.find_any(written);
        if (id == kNoToken)
          fail("merges", i, fmt::format("needs the piece {}, which tokens does not have", quote(written, 60)));
      };
      bool is_bytes = read(left);
      const size_t cut = piece.size();
      is_bytes = is_bytes && append_as_bytes(piece, right);
      Merge merge{kNoToken, kNoToken, kNoToken, static_cast<std::uint32_t>(i)};
      if (is_bytes) {
        const std::string_view both = piece;
        merge.left = bytes.find_any(both.substr(0, cut));
        merge.right = bytes.find_any(both.substr(cut));
        merge.result = bytes.find_any(both);
      }
      if (merge.left == kNoToken || merge.right == kNoToken || merge.result == kNoToken) {
        for (const std::string& each : {left, right, left + right}) require(each);
        continue;  // of characters outside of the alphabet: no word has them
      }
      if (!is_hidden(static_cast<size_t>(merge.result))) merges.push_back(merge);
    }
    BpeOptions options;
    options.bytes = true;
    options.ignore_merges = rule->ignore_merges;
    std::vector<PreTokenizerPtr> splits;
    for (const std::string_view expression : rule->expressions)
      splits.push_back(make_split(make_regex(expression), SplitBehavior::kIsolated, false));
    parts_->pre_tokenizer = make_pre_tokenizer_sequence(std::move(splits));
    parts_->model = make_bpe(std::move(bytes), std::move(merges), std::move(options));
    parts_->byte_level = true;
    parts_->decoder = Decoder({DecoderStep{DecoderStep::Kind::kByteLevel}});
    add_template(v_.add_bos.value_or(rule->add_bos), v_.add_eos.value_or(false), v_.eos);
  }

  // Pieces that text may become.
  Vocabulary text_pieces() const {
    Vocabulary pieces;
    pieces.reserve(v_.tokens.size(), 8 * v_.tokens.size());
    for (size_t id = 0; id < v_.tokens.size(); ++id) {
      const bool text = !is_hidden(id) && type_of(id) != kUnused && pieces.find(v_.tokens[id]) == kNoToken;
      pieces.add(v_.tokens[id], static_cast<TokenId>(id), text);
    }
    return pieces;
  }

  void spaces_as_markers(bool prefix, bool strip) {
    std::vector<NormalizerPtr> normalizers;
    if (!v_.precompiled_charsmap.empty()) {
      try {
        normalizers.push_back(make_character_map(v_.precompiled_charsmap));
      } catch (const UsageError& error) {
        fail("precompiled_charsmap", error.what());
      }
    }
    if (v_.model == "t5") normalizers.push_back(make_replace(make_regex(" {2,}"), " "));
    if (prefix) normalizers.push_back(make_prepend(" "));
    normalizers.push_back(make_replace(make_literal(" "), std::string(kMarker)));
    parts_->normalizer = make_normalizer_sequence(std::move(normalizers));
    std::vector<DecoderStep> steps(3);
    steps[0] = {
        .kind = DecoderStep::Kind::kReplace, .text = "", .other = " ", .pattern = make_literal(std::string(kMarker))};
    steps[1].kind = DecoderStep::Kind::kByteFallback;
    steps[2].kind = DecoderStep::Kind::kFuse;
    if (strip)
      steps.push_back({.kind = DecoderStep::Kind::kStrip, .text = " ", .other = "", .pattern = nullptr, .start = 1});
    parts_->decoder = Decoder(std::move(steps));
  }

  void read_sentence_piece() {
    const bool prefix = v_.add_space_prefix.value_or(true);
    Vocabulary pieces = text_pieces();
    std::vector<Merge> merges = sentence_piece_merges(v_, pieces);
    BpeOptions options;
    options.unknown = v_.unknown;
    options.byte_fallback = true;
    spaces_as_markers(prefix, prefix);
    parts_->model = make_bpe(std::move(pieces), std::move(merges), std::move(options));
    add_template(v_.add_bos.value_or(true), v_.add_eos.value_or(false), v_.eos);
  }

  /// Pieces as SentencePiece's, and merges as those of a tokenizer.json.
  void read_marked_bpe() {
    const bool prefix = v_.add_space_prefix.value_or(false);
    Vocabulary pieces = text_pieces();
    std::vector<Merge> merges;
    merges.reserve(v_.merges.size());
    for (size_t i = 0; i < v_.merges.size(); ++i) {
      const auto [left, right] = merged_pieces(v_, i, source_);
      const TokenId result = pieces.find_any(left + right);
      const Merge merge{pieces.find_any(left), pieces.find_any(right), result, static_cast<std::uint32_t>(i)};
      for (const std::string& each : {left, right, left + right})
        if (pieces.find_any(each) == kNoToken)
          fail("merges", i, fmt::format("needs the piece {}, which tokens does not have", quote(each, 60)));
      if (!is_hidden(static_cast<size_t>(result))) merges.push_back(merge);
    }
    BpeOptions options;
    options.unknown = v_.unknown;
    options.byte_fallback = true;
    spaces_as_markers(prefix, prefix);
    parts_->model = make_bpe(std::move(pieces), std::move(merges), std::move(options));
    add_template(v_.add_bos.value_or(true), v_.add_eos.value_or(false), v_.eos);
  }

  void read_unigram() {
    const bool prefix = v_.add_space_prefix.value_or(true);
    spaces_as_markers(prefix, prefix);
    parts_->model = make_unigram(text_pieces(), std::vector<double>(v_.scores.begin(), v_.scores.end()),
                                 {.unknown = v_.unknown, .byte_fallback = false});
    add_template(v_.add_bos.value_or(false), v_.add_eos.value_or(true), v_.eos);
  }

  // Files hold "▁the" for a word's begin and "ing" for what goes on; here they are "the" and "##ing".
  void read_word_piece() {
    Vocabulary pieces;
    for (size_t id = 0; id < v_.tokens.size(); ++id) {
      const std::string_view token = v_.tokens[id];
      const bool begins = token.starts_with(kMarker);
      const bool word = type_of(id) == kNormal;
      const std::string piece = begins ? std::string(token.substr(kMarker.size()))
                                : word ? "##" + std::string(token)
                                       : std::string(token);
      pieces.add(piece, static_cast<TokenId>(id), word && pieces.find(piece) == kNoToken);
    }
    parts_->normalizer = make_bert_normalizer({});
    parts_->pre_tokenizer = make_bert_pre_tokenizer();
    parts_->model = make_word_piece(std::move(pieces), {.unknown = v_.unknown});
    parts_->decoder = Decoder({DecoderStep{
        .kind = DecoderStep::Kind::kWordPiece, .text = "##", .other = "", .pattern = nullptr, .flag = true}});
    add_template(v_.add_bos.value_or(true), v_.add_eos.value_or(true),
                 v_.separator != kNoToken ? v_.separator : v_.eos);
  }

  GgufVocabulary v_;
  std::string_view source_;
  std::unique_ptr<TokenizerParts> parts_ = std::make_unique<TokenizerParts>();
};

}  // namespace

Tokenizer Tokenizer::from_gguf(GgufVocabulary vocabulary, std::string_view source) {
  return Tokenizer(Reader(std::move(vocabulary), source).read());
}

}  // namespace weft::text
