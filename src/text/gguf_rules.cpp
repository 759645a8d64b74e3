#include "text/gguf_rules.hpp"

#include <fmt/format.h>

#include <functional>
#include <set>
#include <unordered_map>

#include "base/quote.hpp"
#include "text/scanners.hpp"
#include "weft/error.hpp"

namespace weft::text {

std::int32_t type_of_token(const GgufVocabulary& v, std::size_t id) { return v.types.empty() ? kNormal : v.types[id]; }
bool is_special_token(const GgufVocabulary& v, std::size_t id) {
  return type_of_token(v, id) == kControl || type_of_token(v, id) == kUnknown;
}

// The names and rules that converters of model files use.
std::span<const WordRule> word_rules() {
  static constexpr std::string_view kWithoutParentheses = R"( ?[^(\s|.,!?…。，、।۔،)]+)";
  // Letters with a case, as of an older Unicode. The file that it is from has these characters, not their numbers.
  static constexpr std::string_view kDeepSeekLetters =
      R"(\s?[A-Za-zµÀ-ÖØ-öø-ƺƼ-ƿǄ-ʓʕ-ʯͰ-ͳͶͷͻ-ͽͿΆΈ-ΊΌΎ-ΡΣ-ϵϷ-ҁҊ-ԯԱ-ՖႠ-ჅᎠ-Ᏽᏸ-ᏽᲐ-ᲺᲽ-Ჿᴀ)"
      R"(-ᴫᵫ-ᵷᵹ-ᶚḀ-ἕἘ-Ἕἠ-ὅὈ-Ὅὐ-ὗὙὛὝὟ-ώᾀ-ᾴᾶ-ᾼιῂ-ῄῆ-ῌῐ-ΐῖ-Ίῠ-Ῥῲ-ῴῶ-ῼℂℇℊ-ℓℕℙ-ℝℤΩℨK)"
      R"(-ℭℯ-ℴℹℼ-ℿⅅ-ⅉⅎↃↄⰀ-ⱻⱾ-ⳤⳫ-ⳮⳲⳳꙀ-ꙭꚀ-ꚛꜢ-ꝯꝱ-ꞇꞋ-ꞎꭰ-ꮿﬀ-ﬆﬓ-ﬗＡ-Ｚａ-ｚ𐐀-𐑏𐒰-𐓓𐓘-𐓻𐲀-𐲲𐳀-𐳲𑢠-𑣟𞤀-𞥃]+)";
  static constexpr std::string_view kEnglishEndings = R"((?i:'s|'t|'re|'ve|'m|'ll|'d)?)";
  static const std::string kKimi =
      fmt::format(R"([\p{{Han}}]+|[^\r\n\p{{L}}\p{{N}}]?{0}*{1}+{2}|[^\r\n\p{{L}}\p{{N}}]?{0}+{1}*{2}|\p{{N}}{{1,3}})"
                  R"(| ?[^\s\p{{L}}\p{{N}}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
                  R"((?:(?!\p{Han})[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]))", R"((?:(?!\p{Han})[\p{Ll}\p{Lm}\p{Lo}\p{M}]))",
                  kEnglishEndings);
  static const std::vector<WordRule> kRules = {
      {{"default"}, {R"([\p{P}\$\+<=>\^~\|]+)", kGpt2Expression, R"(\p{N}+)", "[0-9][0-9][0-9]"}},
      {{"gpt-2", "phi-2", "jina-es", "jina-de", "gigachat", "jina-v2-es", "jina-v2-de", "a.x-4.0", "mellum",
        "modern-bert", "mpt", "olmo", "jais", "trillion", "granite-docling", "exaone4"},
       {kGpt2Expression}},
      {{"smollm", "starcoder", "refact", "command-r", "codeshell", "exaone", "minerva-7b", "mellum2"},
       {kDigitExpression, kGpt2Expression}},
      {{"llama3", "llama-v3", "llama-bpe", "falcon3", "falcon-h1", "pixtral", "midm-2.0", "lfm2", "jina-v5-nano"},
       {kLlama3Expression},
       true,
       true},
      {{"glm4", "glm5"}, {kLlama3Expression}, true},
      {{"chatglm-bpe", "dbrx", "smaug-bpe"}, {kLlama3Expression}},
      {{"qwen2", "deepseek-r1-qwen", "kormo", "f2llmv2", "stablelm2", "hunyuan", "solar-open", "megrez", "grok-2"},
       {kQwen2Expression}},
      {{"qwen35"},
       {R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)"}},
      {{"deepseek-v3", "hunyuan-dense", "joyai-llm", "hy_v4"},
       {kDeepSeekNumbersExpression, kDeepSeekHanExpression, kDeepSeekExpression}},
      {{"deepseek-coder"},
       {R"([\r\n])", R"(\s?\p{L}+)", R"(\s?\p{P}+)", R"([一-龥ࠀ-一가-퟿]+)", kDigitExpression}},
      {{"deepseek-llm"},
       {R"([\r\n])", kDeepSeekLetters, R"(\s?[!-/:-~！-／：-～‘-‟　-。]+)", R"(\s+$)", R"([一-龥ࠀ-一가-퟿]+)",
        kDigitExpression}},
      {{"gpt-4o", "llama4", "kanana2", "talkie", "minimax-m2"}, {kO200kExpression}},
      {{"tekken"},
       {R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+)"
        R"(|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*)"
        R"(|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)"},
       true,
       true},
      {{"falcon"}, {R"([\p{P}\$\+<=>\^~\|`]+)", kGpt2Expression, "[0-9][0-9][0-9]"}},
      {{"bloom", "poro-chat", "gpt3-finnish"}, {kWithoutParentheses}},
      {{"viking"}, {kWithoutParentheses, kDigitExpression}},
      {{"bailingmoe", "bailingmoe2", "llada-moe"},
       {R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+)"}},
      {{"seed-coder"},
       {R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}\r\n]+|\s*[\r\n]+|\s+(?!\S)|\s+)"}},
      {{"kimi-k2"}, {kKimi}},
      {{"jais-2"},
       {R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+)"
        R"(|\s{512}(?!\S)|\s{256}(?!\S)|\s{128}(?!\S)|\s{64}(?!\S)|\s{32}(?!\S)|\s{16}(?!\S)|\s{8}(?!\S)|\s{4}(?!\S))"
        R"(|\s{1,2}(?!\S)|\s{1})"}},
      {{"exaone-moe"},
       {R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?(?:\p{L}\p{M}*(?: \p{L}\p{M}*)*)+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]?|\s*[\r\n]|\s+(?!\S)|\s+)"}},
      {{"tiny_aya", "cohere2moe"}, {R"(\d{1,3}(?=(?:\d{3})*\b))", kO200kExpression}},
      {{"superbpe"}, {R"(\p{N}+)", R"((?=(\d{3})+(?!\d)))"}},
      {{"minicpm5"},
       {kDeepSeekNumbersExpression,
        R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}+| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)"},
       true},
      {{"ufakzeka"}, {R"([^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)"}},
      {{"laguna"}, {R"([^\n]+|[\n]+)", kQwen2Expression}},
  };
  return kRules;
}

const WordRule* find_word_rule(std::string_view name) {
  for (const WordRule& rule : word_rules())
    for (const std::string_view each : rule.names)
      if (each == name) return &rule;
  return nullptr;
}

std::pair<std::string, std::string> merged_pieces(const GgufVocabulary& v, std::size_t i, std::string_view source) {
  const std::string& line = v.merges[i];
  // A piece may begin with a space itself, so the space between is looked for from the second byte on.
  const std::size_t space = line.find(' ', 1);
  if (line.size() < 3 || space == std::string::npos)
    throw FileError(fmt::format("{}: tokenizer.ggml.merges[{}]: is {}, not two pieces with a space between", source, i,
                                quote(line, 60)));
  return {line.substr(0, space), line.substr(space + 1)};
}

std::vector<Merge> sentence_piece_merges(const GgufVocabulary& v, const Vocabulary& pieces) {
  std::set<float, std::greater<>> scores;
  const auto counts = [&](std::size_t id) { return type_of_token(v, id) == kNormal || type_of_token(v, id) == kUser; };
  for (std::size_t id = 0; id < v.tokens.size(); ++id)
    if (counts(id)) scores.insert(v.scores[id]);
  std::unordered_map<float, std::uint32_t> ranks;
  for (const float score : scores) ranks.emplace(score, static_cast<std::uint32_t>(ranks.size()));
  const auto find = [&](std::string_view piece) {
    const TokenId id = pieces.find(piece);
    return id != kNoToken && counts(static_cast<std::size_t>(id)) ? id : kNoToken;
  };
  std::vector<Merge> merges;
  for (std::size_t id = 0; id < v.tokens.size(); ++id) {
    const std::string_view piece = v.tokens[id];
    if (!counts(id) || pieces.find(piece) != static_cast<TokenId>(id)) continue;
    for (std::size_t cut = 1; cut < piece.size(); ++cut) {
      if ((piece[cut] & 0xC0) == 0x80) continue;
      const TokenId left = find(piece.substr(0, cut));
      if (left == kNoToken) continue;
      const TokenId right = find(piece.substr(cut));
      if (right != kNoToken) merges.push_back({left, right, static_cast<TokenId>(id), ranks.at(v.scores[id])});
    }
  }
  return merges;
}

}  // namespace weft::text
