#include "text/tokenizer_exchange.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <unordered_set>

#include "base/json.hpp"
#include "base/quote.hpp"
#include "text/added_tokens.hpp"
#include "text/gguf_rules.hpp"
#include "text/scanners.hpp"
#include "weft/error.hpp"

namespace weft::text {
namespace {

Json vocabulary_json(const GgufVocabulary& v, std::string_view source) {
  Json pieces = Json::object();
  for (std::size_t id = 0; id < v.tokens.size(); ++id)
    if (!pieces.emplace(v.tokens[id], id).second)
      throw FileError(
          fmt::format("{}: tokenizer.ggml.tokens[{}]: {} is there twice, which tokenizer.json does not have", source,
                      id, quote(v.tokens[id], 40)));
  return pieces;
}

Json added_json(const GgufVocabulary& v) {
  Json added = Json::array();
  for (std::size_t id = 0; id < v.tokens.size(); ++id) {
    const bool special = is_special_token(v, id);
    if (v.tokens[id].empty() || (!special && type_of_token(v, id) != kUser)) continue;
    added.push_back({{"id", id},
                     {"content", v.tokens[id]},
                     {"single_word", false},
                     {"lstrip", false},
                     {"rstrip", false},
                     {"normalized", false},
                     {"special", special}});
  }
  return added;
}

/// Tokens around a text.
Json post_processor_json(const GgufVocabulary& v, bool add_bos, bool add_eos) {
  Json tokens = Json::object(), single = Json::array(), pair = Json::array();
  const auto put = [&](bool wanted, TokenId id, std::initializer_list<Json*> lists) {
    if (!wanted || id == kNoToken) return;
    const std::string& text = v.tokens[static_cast<std::size_t>(id)];
    tokens[text] = {{"id", text}, {"ids", {id}}, {"tokens", {text}}};
    for (Json* list : lists) list->push_back({{"SpecialToken", {{"id", text}, {"type_id", 0}}}});
  };
  const auto text = [](const char* id) { return Json{{"Sequence", {{"id", id}, {"type_id", 0}}}}; };
  put(add_bos, v.bos, {&single, &pair});
  single.push_back(text("A"));
  pair.push_back(text("A"));
  put(add_eos, v.eos, {&single, &pair});
  pair.push_back(text("B"));
  put(add_eos, v.eos, {&pair});
  if (tokens.empty()) return nullptr;
  return {{"type", "TemplateProcessing"}, {"single", single}, {"pair", pair}, {"special_tokens", tokens}};
}

Json bpe_json(Json vocabulary, Json merges) {
  return {{"type", "BPE"},
          {"dropout", nullptr},
          {"unk_token", nullptr},
          {"continuing_subword_prefix", nullptr},
          {"end_of_word_suffix", nullptr},
          {"fuse_unk", false},
          {"byte_fallback", false},
          {"ignore_merges", false},
          {"vocab", std::move(vocabulary)},
          {"merges", std::move(merges)}};
}

Json byte_level_json() {
  return {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"trim_offsets", true}, {"use_regex", false}};
}

Json merges_json(const GgufVocabulary& v, std::string_view source) {
  Json merges = Json::array();
  for (std::size_t i = 0; i < v.merges.size(); ++i) {
    const auto [left, right] = merged_pieces(v, i, source);
    merges.push_back({left, right});
  }
  return merges;
}

Json merges_by_score(const GgufVocabulary& v) {
  Vocabulary pieces;
  for (std::size_t id = 0; id < v.tokens.size(); ++id) pieces.add(v.tokens[id], static_cast<TokenId>(id));
  std::vector<Merge> list = sentence_piece_merges(v, pieces);
  std::stable_sort(list.begin(), list.end(), [](const Merge& a, const Merge& b) { return a.rank < b.rank; });
  Json merges = Json::array();
  for (const Merge& merge : list)
    merges.push_back({v.tokens[static_cast<std::size_t>(merge.left)], v.tokens[static_cast<std::size_t>(merge.right)]});
  return merges;
}

void write_byte_level(Json& json, const GgufVocabulary& v, std::string_view source) {
  const WordRule& rule = *find_word_rule(v.pre.empty() ? "default" : v.pre);
  Json cuts = Json::array();
  for (const std::string_view expression : rule.expressions)
    cuts.push_back(
        {{"type", "Split"}, {"pattern", {{"Regex", expression}}}, {"behavior", "Isolated"}, {"invert", false}});
  cuts.push_back(byte_level_json());
  json["normalizer"] = nullptr;
  json["pre_tokenizer"] = {{"type", "Sequence"}, {"pretokenizers", cuts}};
  json["decoder"] = byte_level_json();
  json["post_processor"] = post_processor_json(v, v.add_bos.value_or(rule.add_bos), v.add_eos.value_or(false));
  json["model"] = bpe_json(vocabulary_json(v, source), merges_json(v, source));
  json["model"]["ignore_merges"] = rule.ignore_merges;
}

void write_sentence_piece(Json& json, const GgufVocabulary& v, std::string_view source) {
  if (!v.precompiled_charsmap.empty())
    throw FileError(
        fmt::format("{}: tokenizer.ggml.precompiled_charsmap: is not carried over into tokenizer.json; give "
                    "--no-tokenizer, and the model's own tokenizer.json",
                    source));
  const bool has_merges = v.model == "gemma4", prefix = v.add_space_prefix.value_or(!has_merges);
  Json normalizers = Json::array();
  if (prefix) normalizers.push_back({{"type", "Prepend"}, {"prepend", kMarker}});
  normalizers.push_back({{"type", "Replace"}, {"pattern", {{"String", " "}}}, {"content", kMarker}});
  json["normalizer"] = {{"type", "Sequence"}, {"normalizers", normalizers}};
  json["pre_tokenizer"] = nullptr;
  Json decoders = {{{"type", "Replace"}, {"pattern", {{"String", kMarker}}}, {"content", " "}},
                   {{"type", "ByteFallback"}},
                   {{"type", "Fuse"}}};
  if (prefix) decoders.push_back({{"type", "Strip"}, {"content", " "}, {"start", 1}, {"stop", 0}});
  json["decoder"] = {{"type", "Sequence"}, {"decoders", decoders}};
  json["post_processor"] = post_processor_json(v, v.add_bos.value_or(true), v.add_eos.value_or(false));

  json["model"] = bpe_json(vocabulary_json(v, source), has_merges ? merges_json(v, source) : merges_by_score(v));
  json["model"]["byte_fallback"] = true;
  if (v.unknown != kNoToken) json["model"]["unk_token"] = v.tokens[static_cast<std::size_t>(v.unknown)];
}

/// The expressions by which a pre-tokenizer cuts words before it writes bytes; nothing if it does anything else.
std::optional<std::vector<std::string>> expressions_of(const Json& node) {
  if (!node.is_object()) return {};
  const std::string type = node.value("type", "");
  if (type == "Sequence") {
    std::vector<std::string> all;
    for (const Json& part : node.value("pretokenizers", Json::array())) {
      const auto some = expressions_of(part);
      if (!some) return {};
      all.insert(all.end(), some->begin(), some->end());
    }
    return all;
  }
  if (type == "ByteLevel") {
    if (node.value("add_prefix_space", true)) return {};
    return node.value("use_regex", true) ? std::vector{std::string(kGpt2Expression)} : std::vector<std::string>();
  }
  if (type == "Digits" && node.value("individual_digits", false)) return std::vector{std::string(kDigitExpression)};
  // Where an expression matches all of a text, to keep what it matches and to cut it apart are the same.
  const std::string behavior = node.value("behavior", "");
  if (type == "Split" && behavior == (node.value("invert", false) ? "Removed" : "Isolated") &&
      node.value("pattern", Json::object()).contains("Regex"))
    return std::vector{node["pattern"]["Regex"].get<std::string>()};
  return {};
}

/// The name of the rule that cuts as the file does, or "".
std::string_view rule_of(const Json& root, const Json& model) {
  const auto expressions = expressions_of(root.value("pre_tokenizer", Json()));
  if (!expressions) return "";
  for (const WordRule& rule : word_rules())
    if (rule.ignore_merges == model.value("ignore_merges", false) &&
        std::equal(rule.expressions.begin(), rule.expressions.end(), expressions->begin(), expressions->end()))
      return rule.names.front();
  return "";
}

bool is_byte_level(const Json& root, const Json& model) {
  const auto absent = [&](const char* key) { return model.value(key, Json()).is_null() || model[key] == ""; };
  // GGUF has no normal forms; files of models whose texts have one (NFC) are written without it all the same.
  const Json normalizer = root.value("normalizer", Json());
  const std::string form = normalizer.is_object() ? normalizer.value("type", "") : "";
  const bool plain = normalizer.is_null() || form == "NFC" ||
                     (form == "Sequence" && normalizer.value("normalizers", Json::array()).empty());
  return model.value("type", "") == "BPE" && absent("unk_token") && absent("continuing_subword_prefix") &&
         absent("end_of_word_suffix") && !model.value("byte_fallback", false) && plain;
}

/// Pieces with spaces for markers, cut by merges alone: SentencePiece's own, as the library that reads tokenizer.json
/// writes them.
bool is_sentence_piece(const Json& root, const Json& model) {
  // Splitting at spaces does nothing if the normalizer has replaced them by markers.
  const Json cut = root.value("pre_tokenizer", Json());
  const bool whole =
      cut.is_null() || (cut.value("type", "") == "Split" && cut.value("pattern", Json()) == Json{{"String", " "}});
  return model.value("type", "") == "BPE" && model.value("byte_fallback", false) && whole &&
         root.value("normalizer", Json()).is_object();
}

/// Scores that rank tokens as merges do: the first merge that makes a token counts.
void score_by_merges(GgufVocabulary& v, const Json& model, const Tokenizer& tokenizer) {
  v.scores.assign(v.tokens.size(), -1e6f);
  float rank = 0;
  for (const Json& merge : model.value("merges", Json::array())) {
    std::string whole;
    if (merge.is_array()) {
      whole = merge[0].get<std::string>() + merge[1].get<std::string>();
    } else {
      whole = merge.get<std::string>();
      whole.erase(whole.find(' '), 1);
    }
    const TokenId id = tokenizer.id_of(whole);
    if (id != kNoToken && v.scores[static_cast<std::size_t>(id)] == -1e6f)
      v.scores[static_cast<std::size_t>(id)] = -(rank++);
  }
}

}  // namespace

std::string tokenizer_json_of(const GgufVocabulary& v, std::string_view source) {
  Tokenizer::from_gguf(v, source);  // for its checks
  Json json = {{"version", "1.0"}, {"truncation", nullptr}, {"padding", nullptr}, {"added_tokens", added_json(v)}};
  if (v.model == "gpt2") {
    write_byte_level(json, v, source);
  } else if (v.model == "llama" || v.model == "gemma4") {
    write_sentence_piece(json, v, source);
  } else {
    throw FileError(
        fmt::format("{}: tokenizer.ggml.model: {} is not carried over into tokenizer.json; give "
                    "--no-tokenizer, and the model's own tokenizer.json",
                    source, quote(v.model, 40)));
  }
  return json.dump();
}

GgufVocabulary gguf_vocabulary_of(std::string_view text, const Tokenizer& tokenizer, TokenId count) {
  const Json root = parse_json(text, "tokenizer.json");
  const Json& model = root.at("model");
  GgufVocabulary v;
  std::unordered_set<std::string> seen;
  for (TokenId id = 0; id < std::max(count, tokenizer.vocabulary_size()); ++id) {
    std::optional<std::string> piece = tokenizer.piece(id);
    const bool there = piece && seen.insert(*piece).second;
    v.tokens.push_back(there ? std::move(*piece) : fmt::format("[PAD{}]", id));
    v.types.push_back(!there ? kUnused : tokenizer.is_special(id) ? kControl : kNormal);
  }
  for (const AddedToken& token : tokenizer.added_tokens())
    if (!token.special) v.types[static_cast<std::size_t>(token.id)] = kUser;
  const std::vector<TokenId> empty = tokenizer.encode("");
  v.add_bos = !empty.empty();
  if (!empty.empty()) v.bos = empty.front();
  v.add_eos = false;
  if (is_byte_level(root, model)) {
    v.pre = rule_of(root, model);
    if (v.pre.empty()) return v;
    v.model = "gpt2";
    for (const Json& merge : model.value("merges", Json::array()))
      v.merges.push_back(merge.is_array() ? merge[0].get<std::string>() + " " + merge[1].get<std::string>()
                                          : merge.get<std::string>());
  } else if (is_sentence_piece(root, model)) {
    v.model = "llama";
    score_by_merges(v, model, tokenizer);
    for (std::size_t id = 0; id < v.tokens.size(); ++id)
      if (v.tokens[id].size() == 6 && v.tokens[id].starts_with("<0x")) v.types[id] = kByte;
    const std::string normalizer = root["normalizer"].dump();
    v.add_space_prefix = normalizer.find("\"Prepend\"") != std::string::npos;
    if (const Json unknown = model.value("unk_token", Json()); unknown.is_string()) {
      v.unknown = tokenizer.id_of(unknown.get<std::string>());
      if (v.unknown != kNoToken) v.types[static_cast<std::size_t>(v.unknown)] = kUnknown;
    }
  }
  return v;
}

}  // namespace weft::text
