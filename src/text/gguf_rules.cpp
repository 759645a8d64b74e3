#include "text/gguf_rules.hpp"

#include <functional>
#include <set>
#include <unordered_map>

#include "text/scanners.hpp"

namespace weft::text {

std::int32_t type_of_token(const GgufVocabulary& v, std::size_t id) { return v.types.empty() ? kNormal : v.types[id]; }
bool is_special_token(const GgufVocabulary& v, std::size_t id) {
  return type_of_token(v, id) == kControl || type_of_token(v, id) == kUnknown;
}

// The names and rules that converters of model files use.
std::span<const WordRule> word_rules() {
  static constexpr std::string_view kWithoutParentheses = R"( ?[^(\s|.,!?…。，、।۔،)]+)";
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
  };
  return kRules;
}

const WordRule* find_word_rule(std::string_view name) {
  for (const WordRule& rule : word_rules())
    for (const std::string_view each : rule.names)
      if (each == name) return &rule;
  return nullptr;
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
