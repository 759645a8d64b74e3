// The pass that training takes over whole rows beside what the transformers library computes, and beside itself.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "llm/transformers_cases.hpp"
#include "weft/error.hpp"
#include "weft/tune.hpp"

namespace weft::tune {
namespace {

using Tokens = std::vector<std::int32_t>;

Example example_of(Tokens tokens) {
  Example example{std::move(tokens), {}};
  example.counts.assign(example.tokens.size(), true);
  return example;
}

bool has_states(const std::string& name) {
  return name.starts_with("mamba") || name.starts_with("bamba") || name.starts_with("granite-hybrid") ||
         name.starts_with("lfm2");
}

TEST(TunePass, EveryFamilyGivesTheLogitsOfTransformers) {
  std::size_t families = 0;
  for (const test::TransformersCase& c : test::transformers_cases()) {
    SCOPED_TRACE(c.name);
    const test::TemporaryFolder folder;
    test::put(c.model(), folder);
    const llm::Model model = llm::load(folder.path(), {.context = c.json.at("context").get<Extent>()});
    if (has_states(c.name)) {
      EXPECT_THROW(Tuner(model, {}), UsageError);
      continue;
    }
    Tuner tuner(model, {.rank = 2});
    auto tokens = c.json.at("tokens").get<Tokens>();
    const auto count = static_cast<Extent>(tokens.size());
    tokens.push_back(0);
    const std::vector<Example> examples = {example_of(tokens)};
    RowStream stream(examples, count, 1);
    const std::vector<float> logits = tuner.logits(stream.batch(0, 1)).to_vector<float>();
    const auto width = static_cast<std::size_t>(model.vocabulary());
    double worst = 0;
    for (std::size_t r = 0; r < c.json.at("rows").size(); ++r) {
      const auto wanted = c.json.at("logits")[r].get<std::vector<double>>();
      const std::size_t row = c.json.at("rows")[r];
      for (std::size_t i = 0; i < width; ++i)
        worst = std::max(worst, std::abs(double{logits[row * width + i]} - wanted[i]));
    }
    EXPECT_LT(worst, 2e-5);
    ++families;
  }
  EXPECT_GE(families, 65u);
}

}  // namespace
}  // namespace weft::tune
