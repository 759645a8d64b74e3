#include "text/tokenizer_json.hpp"

#include <algorithm>

#include "base/file.hpp"
#include "base/json.hpp"
#include "text/tokenizer.hpp"
#include "text/tokenizer_parts.hpp"

namespace weft::text {
namespace {

constexpr std::size_t kMaxBytes = std::size_t{256} << 20;
constexpr std::size_t kMaxDepth = 64;
constexpr std::size_t kMaxAddedTokens = 1 << 20;
constexpr std::size_t kMaxAddedTokenBytes = 4096;
constexpr std::size_t kMaxTemplateItems = 256;
constexpr std::uint64_t kMaxTokenType = 1 << 10;

std::vector<AddedToken> read_added_tokens(const JsonNode& node, const TokenizerParts& parts) {
  std::vector<AddedToken> tokens;
  std::unordered_map<std::string, std::size_t> places;
  const auto vocabulary_size = static_cast<TokenId>(parts.piece_count());
  TokenId next = vocabulary_size;
  for (const JsonNode& item : node.items(kMaxAddedTokens)) {
    AddedToken token{.content = std::string(item.at("content").string()),
                     .id = kNoToken,
                     .single_word = item.boolean_or("single_word", false),
                     .lstrip = item.boolean_or("lstrip", false),
                     .rstrip = item.boolean_or("rstrip", false),
                     .normalized = item.boolean_or("normalized", true),
                     .special = item.boolean_or("special", false)};
    item.at("id").integer(0, kMaxTokenId);
    if (token.content.empty()) continue;
    if (token.content.size() > kMaxAddedTokenBytes)
      item.fail(fmt::format("the content has {} bytes; an added token has at most {}", token.content.size(),
                            kMaxAddedTokenBytes));
    const auto [place, added] = places.emplace(token.content, tokens.size());
    if (!added) {
      token.id = tokens[place->second].id;
      tokens[place->second] = std::move(token);
      continue;
    }
    // As the reference implementation has it: the id is that of the piece, or the next free one, whatever the file says.
    token.id = parts.id_of_piece(token.content);
    if (token.id == kNoToken) token.id = next++;
    if (token.id > kMaxTokenId) item.fail(fmt::format("its id is above {}", kMaxTokenId));
    tokens.push_back(std::move(token));
  }
  std::stable_sort(tokens.begin(), tokens.end(), [](const AddedToken& a, const AddedToken& b) { return a.id < b.id; });
  return tokens;
}

// What the special tokens are written as.
// The texts of tokens that no merge may make.
std::vector<std::string_view> hidden_contents(const JsonNode& node) {
  std::vector<std::string_view> contents;
  for (const JsonNode& item : node.items(kMaxAddedTokens)) {
    const std::string_view content = item.at("content").string();
    if (item.boolean_or("special", false) || is_marked_word(content)) contents.push_back(content);
  }
  return contents;
}

// ["[SEP]", 102]
TokenId read_token_pair(const JsonNode& node) {
  const std::vector<JsonNode> items = node.items(2);
  if (items.size() != 2) node.fail("is not a pair of a token and its id");
  items[0].string();
  return static_cast<TokenId>(items[1].integer(0, kMaxTokenId));
}

std::int32_t read_token_type(const JsonNode& item) {
  const auto type = item.find("type_id");
  return type ? static_cast<std::int32_t>(type->integer(0, kMaxTokenType)) : 0;
}

std::vector<TemplateItem> read_template(const JsonNode& node, const std::optional<JsonNode>& tokens, bool pair) {
  std::vector<TemplateItem> items;
  for (const JsonNode& item : node.items(kMaxTemplateItems)) {
    if (const auto sequence = item.find("Sequence")) {
      const JsonNode name = sequence->at("id");
      if (name.string() != "A" && (name.string() != "B" || !pair))
        name.fail(fmt::format("{}, not {}", name.kind(), pair ? "A or B" : "A"));
      items.push_back({name.string() == "A" ? TemplateItem::Kind::kFirst : TemplateItem::Kind::kSecond, kNoToken,
                       read_token_type(*sequence)});
      continue;
    }
    const JsonNode special = item.at("SpecialToken"), name = special.at("id");
    const auto token = tokens ? tokens->find(name.string()) : std::nullopt;
    if (!token) name.fail(fmt::format("special_tokens has no {}; add it", quote(name.string(), 60)));
    for (const JsonNode& id : token->at("ids").items(kMaxTemplateItems))
      items.push_back(
          {TemplateItem::Kind::kToken, static_cast<TokenId>(id.integer(0, kMaxTokenId)), read_token_type(special)});
  }
  return items;
}

void read_post_processor(const JsonNode& node, std::vector<PostProcessor>& out, int depth = 0) {
  using Kind = TemplateItem::Kind;
  const TemplateItem first{Kind::kFirst}, second{Kind::kSecond};
  const JsonNode type_node = node.at("type");
  const std::string_view type = type_node.string();
  if (type == "ByteLevel") return;  // moves offsets only
  if (out.size() >= 64) node.fail("more than 64 post-processors");
  if (type == "Sequence") {
    if (depth > 8) node.fail("sequences are nested deeper than 8");
    for (const JsonNode& part : node.at("processors").items(64)) read_post_processor(part, out, depth + 1);
  } else if (type == "TemplateProcessing") {
    const auto tokens = node.find("special_tokens");
    out.push_back({read_template(node.at("single"), tokens, false), read_template(node.at("pair"), tokens, true)});
  } else if (type == "BertProcessing" || type == "RobertaProcessing") {
    const TemplateItem begin{Kind::kToken, read_token_pair(node.at("cls"))},
        end{Kind::kToken, read_token_pair(node.at("sep"))};
    if (type == "BertProcessing") {
      TemplateItem typed = second, last = end;
      typed.type = last.type = 1;
      out.push_back({{begin, first, end}, {begin, first, end, typed, last}});
    } else {
      out.push_back({{begin, first, end}, {begin, first, end, end, second, end}});
    }
  } else {
    type_node.fail(fmt::format(
        "{} is unknown; Weft knows TemplateProcessing, BertProcessing, RobertaProcessing, ByteLevel, Sequence",
        quote(type, 60)));
  }
}

std::unique_ptr<TokenizerParts> read(const JsonNode& root) {
  if (const auto version = root.find("version"); version && version->string() != "1.0")
    version->fail(fmt::format("{}, and Weft reads \"1.0\"", version->kind()));
  auto parts = std::make_unique<TokenizerParts>();
  if (const auto normalizer = root.find("normalizer")) parts->normalizer = read_normalizer(*normalizer);

  const auto pre_tokenizer = root.find("pre_tokenizer");
  const auto added = root.find("added_tokens");
  ReadModel model = read_model(root.at("model"), pre_tokenizer && ends_in_byte_level(*pre_tokenizer),
                               added ? hidden_contents(*added) : std::vector<std::string_view>());
  parts->model = std::move(model.model);
  parts->byte_level = model.bytes;
  parts->other_pieces = std::move(model.other_pieces);
  if (pre_tokenizer) parts->pre_tokenizer = read_pre_tokenizer(*pre_tokenizer, parts->byte_level);

  if (const auto post_processor = root.find("post_processor"))
    read_post_processor(*post_processor, parts->post_processors);
  if (const auto decoder = root.find("decoder")) {
    parts->decoder = Decoder(read_decoder(*decoder));
  } else {
    parts->decoder = Decoder({DecoderStep{DecoderStep::Kind::kJoin}});
  }
  if (added) parts->added = read_added_tokens(*added, *parts);
  if (added)
    added->guarded([&] { parts->complete(); });
  else
    parts->complete();
  return parts;
}

}  // namespace

Tokenizer Tokenizer::from_json(std::string_view text, std::string_view source) {
  if (text.size() > kMaxBytes)
    throw FileError(fmt::format("{}: holds {} bytes; a tokenizer.json has at most {}", source, text.size(), kMaxBytes));
  simdjson::dom::parser parser(kMaxBytes);
  simdjson::dom::element document;
  auto error = parser.allocate(std::max<std::size_t>(text.size(), 64), kMaxDepth);
  if (!error) error = parser.parse(text.data(), text.size()).get(document);
  if (error == simdjson::MEMALLOC) throw std::bad_alloc();
  if (error) {
    parse_json(text, source, {.max_depth = kMaxDepth, .max_bytes = kMaxBytes});  // knows line and column
    throw FileError(fmt::format("{}: not valid JSON: {}", source, simdjson::error_message(error)));
  }
  return Tokenizer(read(JsonNode(document, source)));
}

Tokenizer Tokenizer::from_json_file(const std::filesystem::path& path) {
  return from_json(read_text_file(path, kMaxBytes), path.string());
}

}  // namespace weft::text
