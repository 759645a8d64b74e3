// Embeddings on tiny models: against the logits that the head makes of the same states, and alone against in a batch.
#include <gtest/gtest.h>

#include <cmath>

#include "base/message_of.hpp"
#include "llm/tiny_model.hpp"
#include "weft/llm.hpp"

namespace weft::llm {
namespace {

const std::vector<std::string> kTexts = {"w3 w14 w15 w9 w2 w6 w5", "w1 w8", "w2 w7 w1 w8 w2 w8", "w14"};

class Embed : public testing::Test {
 protected:
  Model load_tiny(std::size_t i = 0, const LoadOptions& options = {}) {
    test::put(test::tiny_models()[i], folder_);
    return load(folder_.path(), options);
  }
  test::TemporaryFolder folder_;
};

TEST_F(Embed, TheHeadMakesTheLogitsOfTheStates) {
  const Model model = load_tiny();
  const std::vector<float> head = test::tiny_models()[0].tensors.at("lm_head.weight").values;
  const auto width = static_cast<std::size_t>(model.width()), words = static_cast<std::size_t>(model.vocabulary());
  const Tensor last = model.embed(kTexts, {.pooling = Pooling::last, .normalize = false});
  ASSERT_EQ(last.shape(), (Shape{4, 32}));
  const std::vector<float> states = last.to_vector<float>();
  for (std::size_t text = 0; text < kTexts.size(); ++text) {
    const std::vector<float> logits = model.forward(model.encode(kTexts[text]));
    for (std::size_t word = 0; word < words; ++word) {
      double expected = 0;
      for (std::size_t i = 0; i < width; ++i) expected += states[text * width + i] * head[word * width + i];
      EXPECT_NEAR(logits[logits.size() - words + word], expected, 1e-4) << text << " " << word;
    }
  }
}

TEST_F(Embed, TheMeanIsOverThePrefixes) {
  const Model model = load_tiny();
  // A token sees only those before it, so the states of a text are the last states of its beginnings.
  const std::vector<std::string> beginnings = {"w3", "w3 w14", "w3 w14 w15"};
  const std::vector<float> parts =
      model.embed(beginnings, {.pooling = Pooling::last, .normalize = false}).to_vector<float>();
  const std::vector<float> mean = model.embed({&beginnings[2], 1}, {.normalize = false}).to_vector<float>();
  for (std::size_t i = 0; i < 32; ++i) EXPECT_NEAR(mean[i], (parts[i] + parts[32 + i] + parts[64 + i]) / 3, 1e-5) << i;
}

TEST_F(Embed, ABatchGivesWhatEachTextGivesAlone) {
  for (std::size_t i = 0; i < test::tiny_models().size(); ++i) {
    SCOPED_TRACE(test::tiny_models()[i].name);
    const Model model = load_tiny(i, {.sequences = 3});
    const Tensor all = model.embed(kTexts);
    const std::vector<float> rows = all.to_vector<float>();
    const auto width = static_cast<std::size_t>(model.width());
    for (std::size_t text = 0; text < kTexts.size(); ++text) {
      const std::vector<float> alone = model.embed({&kTexts[text], 1}).to_vector<float>();
      double squares = 0;
      for (std::size_t k = 0; k < width; ++k) {
        EXPECT_NEAR(rows[text * width + k], alone[k], 1e-4);
        squares += alone[k] * alone[k];
      }
      EXPECT_NEAR(squares, 1, 1e-5);
    }
  }
}

TEST_F(Embed, TextsLongerThanAPass) {
  const Model model = load_tiny(0, {.context = 1200});
  std::string text;
  for (int i = 0; i < 700; ++i) text += "w" + std::to_string(i % 40) + " ";
  text.pop_back();
  const std::vector<float> mean = model.embed({&text, 1}, {.normalize = false}).to_vector<float>();
  for (const float each : mean) EXPECT_TRUE(std::isfinite(each));
  const std::vector<float> last =
      model.embed({&text, 1}, {.pooling = Pooling::last, .normalize = false}).to_vector<float>();
  EXPECT_NE(mean, last);
}

TEST_F(Embed, Errors) {
  const Model model = load_tiny(0, {.context = 4});
  EXPECT_EQ(model.embed({}).shape(), (Shape{0, 32}));
  const std::vector<std::string> empty = {"w1", ""};
  EXPECT_NE(test::message_of<UsageError>([&] { model.embed(empty); }).find("text 1 has no tokens"), std::string::npos);
  const std::vector<std::string> longer = {"w1 w2 w3 w4 w5"};
  EXPECT_NE(test::message_of<UsageError>([&] { model.embed(longer); }).find("the context is 4"), std::string::npos);
  Generation running = model.generate("w1");
  EXPECT_THROW(model.embed(kTexts), UsageError);
}

}  // namespace
}  // namespace weft::llm
