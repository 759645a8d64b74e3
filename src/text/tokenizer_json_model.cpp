// Models of tokenizer.json. Vocabularies and merges have hundreds of thousands of entries, so their paths are written down
// only when something is wrong with one.
#include <algorithm>
#include <unordered_set>

#include "text/byte_level.hpp"
#include "text/tokenizer_json.hpp"
#include "weft/error.hpp"

namespace weft::text {
namespace {

using simdjson::dom::element;

constexpr std::size_t kMaxPieceBytes = 64 << 10;

using Special = std::vector<std::string_view>;

void hide(Vocabulary& vocabulary, const Special& special) {
  for (const std::string_view piece : special) vocabulary.hide(piece);
}

void check_piece(const JsonNode& node, std::string_view piece) {
  if (piece.size() > kMaxPieceBytes)
    node.fail(fmt::format("{} has {} bytes; a piece has at most {}", quote(piece, 40), piece.size(), kMaxPieceBytes));
}

// {"piece": id, ...}
Vocabulary read_vocabulary(const JsonNode& node) {
  Vocabulary vocabulary;
  const simdjson::dom::object object = node.object();
  vocabulary.reserve(object.size(), 8 * object.size());
  for (const auto [piece, value] : object) {
    std::uint64_t id = 0;
    if (value.get(id) || id > static_cast<std::uint64_t>(kMaxTokenId))
      node.fail(fmt::format("the id of {} {}, not an integer in [0, {}]", quote(piece, 40),
                            JsonNode(value, node.source()).kind(), kMaxTokenId));
    check_piece(node, piece);
    if (const auto there = vocabulary.piece(static_cast<TokenId>(id)))
      node.fail(
          fmt::format("{} and {} have the same id {}; give one another", quote(*there, 40), quote(piece, 40), id));
    if (!vocabulary.add(piece, static_cast<TokenId>(id)))
      node.fail(fmt::format("{} occurs twice; keep one", quote(piece, 40)));
  }
  return vocabulary;
}

// ["a b", ...] or [["a", "b"], ...]; the place in the array is the rank.
class MergeReader {
 public:
  MergeReader(const JsonNode& node, const Vocabulary& vocabulary, std::string_view prefix)
      : node_(node), vocabulary_(vocabulary), prefix_(prefix) {}

  std::vector<Merge> read() {
    const simdjson::dom::array array = node_.array();
    merges_.reserve(array.size());
    bool strings = false, pairs = false;
    for (const element item : array) {
      std::string_view line;
      simdjson::dom::array pair;
      if (!item.get(line)) {
        strings = true;
        if (!line.starts_with("#version")) read_line(line);
      } else if (!item.get(pair)) {
        pairs = true;
        read_pair(pair);
      } else {
        fail("is neither a string \"left right\" nor a pair of strings");
      }
      if (strings && pairs) fail("differs in form from the merges before; write all as strings or all as pairs");
      ++index_;
    }
    return std::move(merges_);
  }

 private:
  [[noreturn]] void fail(std::string_view fact) const { node_.fail_item(index_, fact); }

  void read_line(std::string_view line) {
    const std::size_t space = line.find(' ');
    if (space == std::string_view::npos || line.find(' ', space + 1) != std::string_view::npos)
      fail(fmt::format("is {}, not two pieces with a space between; write merges of pieces with spaces as pairs",
                       quote(line, 60)));
    put(line.substr(0, space), line.substr(space + 1));
  }
  void read_pair(const simdjson::dom::array& pair) {
    std::string_view sides[2];
    std::size_t count = 0;
    for (const element side : pair) {
      if (count == 2 || side.get(sides[count])) fail("is not a pair of two strings");
      ++count;
    }
    if (count != 2) fail("is not a pair of two strings");
    put(sides[0], sides[1]);
  }
  TokenId find(std::string_view piece) const {
    const TokenId id = vocabulary_.find(piece);
    if (id == kNoToken) fail(fmt::format("needs the piece {}, which the vocabulary does not have", quote(piece, 60)));
    return id;
  }
  void put(std::string_view left, std::string_view right) {
    if (right.size() < prefix_.size())
      fail(fmt::format("{} is shorter than the prefix of continuing pieces", quote(right, 60)));
    joined_.assign(left);
    joined_ += right.substr(prefix_.size());
    merges_.push_back({find(left), find(right), find(joined_), static_cast<std::uint32_t>(merges_.size())});
  }

  const JsonNode& node_;
  const Vocabulary& vocabulary_;
  std::string_view prefix_;
  std::vector<Merge> merges_;
  std::string joined_;
  std::size_t index_ = 0;
};

ReadModel read_bpe(const JsonNode& node, bool byte_level, const Special& special) {
  BpeOptions options;
  options.continuing_prefix = node.string_or("continuing_subword_prefix", "");
  options.word_suffix = node.string_or("end_of_word_suffix", "");
  options.fuse_unknown = node.boolean_or("fuse_unk", false);
  options.byte_fallback = node.boolean_or("byte_fallback", false);
  options.ignore_merges = node.boolean_or("ignore_merges", false);
  if (const auto dropout = node.find("dropout")) dropout->number();  // for training only

  Vocabulary vocabulary = read_vocabulary(node.at("vocab"));
  const auto unknown = node.find("unk_token");
  if (unknown) {
    options.unknown = vocabulary.find(unknown->string());
    if (options.unknown == kNoToken)
      unknown->fail(fmt::format("the vocabulary has no piece {}; add it, or write null", quote(unknown->string(), 60)));
  }
  const JsonNode merges_node = node.at("merges");
  std::vector<Merge> merges = MergeReader(merges_node, vocabulary, options.continuing_prefix).read();

  std::unordered_set<TokenId> made_special;
  options.bytes = byte_level && !unknown && !options.byte_fallback && options.continuing_prefix.empty() &&
                  options.word_suffix.empty();
  for (const std::string_view piece : special)
    if (const TokenId id = vocabulary.find(piece); id != kNoToken) made_special.insert(id);
  std::erase_if(merges, [&](const Merge& merge) { return made_special.contains(merge.result); });
  if (!options.bytes) {
    hide(vocabulary, special);
    return {make_bpe(std::move(vocabulary), std::move(merges), std::move(options)), false, {}};
  }
  Vocabulary bytes, others;
  bytes.reserve(vocabulary.size(), 8 * vocabulary.size());
  for (TokenId id = 0; id < vocabulary.id_limit(); ++id) {
    const auto piece = vocabulary.piece(id);
    if (!piece) continue;
    const auto as_bytes = bytes_of_characters(*piece);
    if (as_bytes)
      bytes.add(*as_bytes, id);
    else
      others.add(*piece, id);
    if (as_bytes && made_special.contains(id)) bytes.hide(*as_bytes);
  }
  return {make_bpe(std::move(bytes), std::move(merges), std::move(options)), true, std::move(others)};
}

ReadModel read_unigram(const JsonNode& node, const Special& special) {
  const JsonNode vocabulary_node = node.at("vocab");
  const simdjson::dom::array array = vocabulary_node.array();
  Vocabulary vocabulary;
  vocabulary.reserve(array.size(), 8 * array.size());
  std::vector<double> scores;
  scores.reserve(array.size());
  for (const element item : array) {
    simdjson::dom::array pair;
    std::string_view piece;
    double score = 0;
    if (item.get(pair) || pair.size() != 2 || pair.at(0).get(piece) || pair.at(1).get(score))
      vocabulary_node.fail_item(scores.size(), "is not a pair of a piece and its score");
    if (scores.size() > static_cast<std::size_t>(kMaxTokenId))
      vocabulary_node.fail(fmt::format("has more than {} pieces", kMaxTokenId + 1));
    check_piece(vocabulary_node, piece);
    vocabulary.add(piece, static_cast<TokenId>(scores.size()));  // the last of equal pieces counts
    scores.push_back(score);
  }
  UnigramOptions options{.unknown = kNoToken, .byte_fallback = node.boolean_or("byte_fallback", false)};
  if (const auto unknown = node.find("unk_id")) {
    if (scores.empty()) unknown->fail("the vocabulary is empty");
    options.unknown = static_cast<TokenId>(unknown->integer(0, scores.size() - 1));
  }
  hide(vocabulary, special);
  return {make_unigram(std::move(vocabulary), std::move(scores), options), false, {}};
}

ReadModel read_word_piece(const JsonNode& node, const Special& special) {
  Vocabulary vocabulary = read_vocabulary(node.at("vocab"));
  WordPieceOptions options{
      .unknown = vocabulary.find(node.string_or("unk_token", "[UNK]")),
      .continuing_prefix = node.string_or("continuing_subword_prefix", "##"),
      .max_characters = static_cast<std::size_t>(node.integer_or("max_input_chars_per_word", 100, 0, 1 << 30))};
  hide(vocabulary, special);
  return {make_word_piece(std::move(vocabulary), std::move(options)), false, {}};
}

ReadModel read_word_level(const JsonNode& node, const Special& special) {
  Vocabulary vocabulary = read_vocabulary(node.at("vocab"));
  const TokenId unknown = vocabulary.find(node.string_or("unk_token", "<unk>"));
  hide(vocabulary, special);
  return {make_word_level(std::move(vocabulary), unknown), false, {}};
}

// Files of before the models had a type.
std::string_view guessed_type(const JsonNode& node) {
  if (node.find("merges")) return "BPE";
  if (node.at("vocab").is_array()) return "Unigram";
  return node.find("max_input_chars_per_word") || node.find("continuing_subword_prefix") ? "WordPiece" : "WordLevel";
}

}  // namespace

ReadModel read_model(const JsonNode& node, bool byte_level, const Special& special) {
  const auto type_node = node.find("type");
  const std::string_view type = type_node ? type_node->string() : guessed_type(node);
  if (type == "BPE") return read_bpe(node, byte_level, special);
  if (type == "Unigram") return read_unigram(node, special);
  if (type == "WordPiece") return read_word_piece(node, special);
  if (type == "WordLevel") return read_word_level(node, special);
  type_node->fail(fmt::format("{} is unknown; Weft knows BPE, Unigram, WordPiece, WordLevel", quote(type, 60)));
}

}  // namespace weft::text
