// Every family against the transformers library: configs as it saves them, tensors by its names, its logits, and its
// greedy text. transformers/make.py made the files.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>

#include "llm/tiny_model.hpp"
#include "weft/llm.hpp"

namespace weft::llm {
namespace {

namespace fs = std::filesystem;

struct Case {
  std::string name;
  Json json;
};

std::vector<Case> cases() {
  std::vector<Case> all;
  for (const auto& entry : fs::directory_iterator(WEFT_TEST_TRANSFORMERS))
    if (entry.path().extension() == ".json") all.push_back({entry.path().stem(), read_json_file(entry.path())});
  std::sort(all.begin(), all.end(), [](const Case& a, const Case& b) { return a.name < b.name; });
  return all;
}

/// The weights that make.py gives a tensor.
test::TinyTensor values_of(const std::string& name, const Shape& shape, bool unit_norms) {
  if (name.ends_with(".bias")) return test::random_values(name, shape, 0.3);
  if (shape.rank() == 1) return test::random_values(name, shape, 0.3, unit_norms ? 1 : 0);
  return test::random_values(name, shape, 1.7 / std::sqrt(static_cast<double>(shape[1])));
}

Model load_case(const Case& c, const test::TemporaryFolder& folder) {
  test::TinyModel tiny{c.name, c.json.at("config"), {}};
  for (const auto& [key, shape] : c.json.at("tensors").items())
    tiny.tensors[key] = values_of(key, Shape(shape.get<std::vector<Extent>>()), !c.name.starts_with("gemma"));
  test::put(tiny, folder);
  return load(folder.path(), {.context = c.json.at("context").get<Extent>()});
}

TEST(Transformers, LogitsAndGreedyTextAreTheSame) {
  const std::vector<Case> all = cases();
  ASSERT_GE(all.size(), 26u);
  for (const Case& c : all) {
    SCOPED_TRACE(c.name);
    const test::TemporaryFolder folder;
    const Model model = load_case(c, folder);
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
    EXPECT_LT(worst, 2e-5);

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
