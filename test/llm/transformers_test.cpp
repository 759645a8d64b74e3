// Every family against the transformers library: configs as it saves them, tensors by its names, its logits, and its
// greedy text. transformers/make.py made the files.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "llm/transformers_cases.hpp"
#include "weft/llm.hpp"

namespace weft::llm {
namespace {

TEST(Transformers, LogitsAndGreedyTextAreTheSame) {
  const std::vector<test::TransformersCase> all = test::transformers_cases();
  ASSERT_GE(all.size(), 100u);
  for (const test::TransformersCase& c : all) {
    SCOPED_TRACE(c.name);
    const test::TemporaryFolder folder;
    test::put(c.model(), folder);
    const Model model = load(folder.path(), {.context = c.json.at("context").get<Extent>()});
    const auto tokens = c.json.at("tokens").get<std::vector<std::int32_t>>();
    const std::vector<float> logits = model.forward(tokens);
    const auto width = static_cast<std::size_t>(model.vocabulary());
    double worst = 0;
    for (std::size_t r = 0; r < c.json.at("rows").size(); ++r) {
      const auto wanted = c.json.at("logits")[r].get<std::vector<double>>();
      const std::size_t row = c.json.at("rows")[r];
      ASSERT_EQ(wanted.size(), width);
      for (std::size_t i = 0; i < width; ++i)
        worst = std::max(worst, std::abs(double{logits[row * width + i]} - wanted[i]));
    }
    EXPECT_LT(worst, c.logits_bound());

    const auto prompt = std::span(tokens).first(c.json.at("prompt").get<std::size_t>());
    const auto greedy = c.json.at("greedy").get<std::vector<std::int32_t>>();
    Generation generation =
        model.generate(prompt, {.max_tokens = static_cast<Extent>(greedy.size()), .sampling = {.temperature = 0}});
    std::vector<std::int32_t> drawn;
    for (const GeneratedToken& token : generation.result().tokens) drawn.push_back(token.id);
    EXPECT_EQ(drawn, greedy);
  }
}

}  // namespace
}  // namespace weft::llm
