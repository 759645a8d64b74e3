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

TEST(TunePass, EveryFamilyGivesTheLogitsOfTransformers) {
  std::size_t families = 0;
  for (const test::TransformersCase& c : test::transformers_cases()) {
    SCOPED_TRACE(c.name);
    const test::TemporaryFolder folder;
    test::put(c.model(), folder);
    const llm::Model model = llm::load(folder.path(), {.context = c.json.at("context").get<Extent>()});
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
    EXPECT_LT(worst, c.logits_bound());
    ++families;
  }
  EXPECT_GE(families, 75u);
}

TEST(TunePass, AModelWithStatesTakesOneTextInARow) {
  const test::TemporaryFolder folder;
  test::put(test::transformers_case("mamba").model(), folder);
  Tuner tuner(llm::load(folder.path(), {.context = 32}), {.rank = 2});
  EXPECT_EQ(tuner.texts_of_row(), 1);
  const std::vector<Example> examples = {example_of({1, 2, 3}), example_of({4, 5, 6})};
  RowStream several(examples, 8, 1, false), one(examples, 8, 1, false, tuner.texts_of_row());
  EXPECT_THROW(tuner.loss(several.batch(0, 1)), UsageError);
  EXPECT_EQ(one.rows_of_epochs(1), 2);
  // The text of a row and its padding are nothing to those of another.
  const Rows both = one.batch(0, 2);
  EXPECT_NEAR(tuner.loss(both), (tuner.loss(one.batch(0, 1)) + tuner.loss(one.batch(1, 1))) / 2, 1e-6);
  EXPECT_THROW(RowStream(examples, 8, 1, false, 0), UsageError);
  for (const DType type : {DType::f16, DType::bf16}) {
    Tuner narrow(llm::load(folder.path(), {.context = 32}), {.rank = 2, .precision = type});
    EXPECT_NEAR(narrow.loss(both), tuner.loss(both), type == DType::f16 ? 0.01 : 0.1);
    float norm = INFINITY;  // until the scale of the loss has fallen far enough
    for (int i = 0; i < 12 && !std::isfinite(norm); ++i) norm = narrow.step({both}, 1e-3).grad_norm.item<float>();
    EXPECT_TRUE(std::isfinite(norm)) << narrow.loss_scale();
  }
}

}  // namespace
}  // namespace weft::tune
