#include "serve/fill_in.hpp"

#include <algorithm>

#include "weft/tokenizer.hpp"

namespace weft::serve {
namespace {

/// The tokens of a family. Without a mark for the middle, the text before the gap comes last.
struct Marks {
  std::string_view before, after, middle;
};
constexpr Marks kMarks[] = {
    {"<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>"},     // Qwen Coder, CodeGemma
    {"<fim_prefix>", "<fim_suffix>", "<fim_middle>"},           // StarCoder, Granite Code
    {"<fim-prefix>", "<fim-suffix>", "<fim-middle>"},           // SantaCoder
    {"<｜fim▁begin｜>", "<｜fim▁hole｜>", "<｜fim▁end｜>"},     // DeepSeek Coder
    {"<|code_prefix|>", "<|code_suffix|>", "<|code_middle|>"},  // GLM-4
    {"\u2581<PRE>", "\u2581<SUF>", "\u2581<MID>"},              // Code Llama
    {"[PREFIX]", "[SUFFIX]", ""},                               // Codestral
};

struct MarkIds {
  std::int32_t before, after;
  std::optional<std::int32_t> middle;
};

std::optional<MarkIds> marks_of(const llm::Model& model) {
  const llm::Tokenizer tokenizer = model.tokenizer();
  for (const Marks& marks : kMarks) {
    const auto before = tokenizer.id_of(marks.before), after = tokenizer.id_of(marks.after);
    if (!before || !after) continue;
    if (marks.middle.empty()) return MarkIds{*before, *after, {}};
    if (const auto middle = tokenizer.id_of(marks.middle)) return MarkIds{*before, *after, middle};
  }
  return std::nullopt;
}

/// What the tokenizer puts before a text.
std::vector<std::int32_t> opening_of(const llm::Model& model) {
  const std::vector<std::int32_t> with = model.encode("a", true), without = model.encode("a", false);
  return {with.begin(), std::search(with.begin(), with.end(), without.begin(), without.end())};
}

}  // namespace

bool can_fill_in(const llm::Model& model) { return marks_of(model).has_value(); }

std::optional<std::vector<std::int32_t>> fill_in_prompt(const llm::Model& model, std::string_view before,
                                                        std::string_view after) {
  const auto marks = marks_of(model);
  if (!marks) return std::nullopt;
  std::vector<std::int32_t> tokens = opening_of(model);
  const auto add = [&](std::int32_t mark, std::string_view text) {
    tokens.push_back(mark);
    const std::vector<std::int32_t> own = text.empty() ? std::vector<std::int32_t>() : model.encode(text, false);
    tokens.insert(tokens.end(), own.begin(), own.end());
  };
  if (!marks->middle) add(marks->after, after);
  add(marks->before, before);
  if (!marks->middle) return tokens;
  add(marks->after, after);
  tokens.push_back(*marks->middle);
  return tokens;
}

}  // namespace weft::serve
