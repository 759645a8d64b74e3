// What trains on another device gives the losses of the CPU.
#include <gtest/gtest.h>

#include "llm/byte_model.hpp"
#include "llm/transformers_cases.hpp"
#include "tune/peft_case.hpp"
#include "weft/device.hpp"
#include "weft/tune.hpp"

namespace weft::tune {
namespace {

/// Some texts of tokens below 48, and preferences among them.
Example text_of(std::int32_t first, std::size_t length) {
  Example example;
  for (std::size_t i = 0; i < length; ++i) example.tokens.push_back((first + static_cast<std::int32_t>(7 * i)) % 48);
  example.counts.assign(length, true);
  return example;
}

class TuneDevice : public ::testing::Test {
 protected:
  void SetUp() override {
    if (default_device() == kCpu) GTEST_SKIP() << "the default device is the CPU";
  }
  void TearDown() override { set_default_device(device_); }

  /// Steps of a model on both devices.
  void compare(const char* model, const TunerOptions& options, bool of_preferences) {
    const test::TemporaryFolder folder;
    test::put(test::transformers_case(model).model(), folder);
    std::vector<std::vector<double>> losses;
    for (const Device device : {device_, kCpu}) {
      set_default_device(device);
      Tuner tuner(llm::load(folder.path(), {.context = 32, .device = device}), options);
      const std::vector<Example> examples = {text_of(1, 12), text_of(5, 9)};
      const std::vector<Preference> preferences = {{text_of(1, 12), text_of(2, 9)}, {text_of(5, 6), text_of(9, 11)}};
      RowStream stream = of_preferences ? RowStream(preferences, 16, 1, false, tuner.texts_of_row())
                                        : RowStream(examples, 16, 1, false, tuner.texts_of_row());
      Rows rows = stream.batch(0, stream.rows_of_epochs(1));
      if (of_preferences) rows.reference = tuner.log_probabilities(rows);
      std::vector<double>& list = losses.emplace_back();
      for (int i = 0; i < 3; ++i) list.push_back(double{tuner.step({rows}, 3e-3).loss.item<float>()});
    }
    for (std::size_t i = 0; i < losses[0].size(); ++i) EXPECT_NEAR(losses[0][i], losses[1][i], 2e-3) << i;
    EXPECT_LT(losses[0].back(), losses[0].front());
  }

  const Device device_ = default_device();
};

TEST_F(TuneDevice, Preferences) {
  compare("llama", {.rank = 2, .targets = {"v_proj"}, .preference = {.beta = 0.5}}, true);
}
TEST_F(TuneDevice, LengthsOfRows) { compare("gpt2", {.rank = 2, .dora = true, .targets = {"c_attn"}}, false); }
TEST_F(TuneDevice, LayersWithStates) { compare("mamba2", {.rank = 2, .targets = {"out_proj"}}, false); }
TEST_F(TuneDevice, Experts) { compare("mixtral", {.rank = 2, .targets = {"experts"}, .balance = 0.1}, false); }
// Beside packed experts, as texts are written with.
TEST_F(TuneDevice, AdaptersOfExperts) {
  const PeftCase c("mixtral-experts");
  std::vector<std::vector<float>> logits;
  for (const Device device : {device_, kCpu})
    logits.push_back(llm::load(c.model.path(), {.context = 32, .adapters = {{c.adapter.path()}}, .device = device})
                         .forward(c.first_text()));
  for (std::size_t i = 0; i < logits[0].size(); ++i) ASSERT_NEAR(logits[0][i], logits[1][i], 2e-3) << i;
}
TEST_F(TuneDevice, AllWeights) { compare("llama-llama3", {.full = true}, false); }

}  // namespace
}  // namespace weft::tune
