// Adapters beside the peft library: peft/make.py made the files.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "io/convert_model.hpp"
#include "io/quantise_model.hpp"
#include "io/tensor_source.hpp"
#include "llm/adapter_file.hpp"
#include "llm/convert.hpp"
#include "llm/engine.hpp"
#include "llm/magnitudes.hpp"
#include "tune/peft_case.hpp"
#include "weft/error.hpp"
#include "weft/tune.hpp"

namespace weft::tune {
namespace {

double distance(const std::vector<float>& logits, std::size_t row, const Json& wanted) {
  double worst = 0;
  const std::size_t width = wanted.size();
  for (std::size_t i = 0; i < width; ++i)
    worst = std::max(worst, std::abs(double{logits[row * width + i]} - wanted[i].get<double>()));
  return worst;
}
double distance(const std::vector<float>& logits, const Json& wanted) {
  return std::max({distance(logits, 3, wanted[0]), distance(logits, 11, wanted[1]), distance(logits, 23, wanted[2])});
}

const std::vector<std::string> kCases = {"llama",
                                         "llama-by-root",
                                         "llama-patterns",
                                         "llama-tied",
                                         "gpt2",
                                         "falcon",
                                         "phi3",
                                         "gemma2",
                                         "qwen3",
                                         "bloom",
                                         "llama-dora",
                                         "gpt2-dora",
                                         "phi3-dora",
                                         "mamba",
                                         "mamba2",
                                         "bamba",
                                         "lfm2",
                                         "mixtral-experts",
                                         "mixtral-apart",
                                         "qwen3-moe-downs",
                                         "gpt-oss-experts",
                                         "llama4-experts",
                                         "deepseek-v3-experts"};
bool has_states(const std::string& name) { return name.starts_with("mamba") || name == "bamba" || name == "lfm2"; }
bool has_magnitudes(const std::string& name) { return name.ends_with("-dora"); }
constexpr double kNear = 2e-5;

llm::Model model_alone(const PeftCase& c) { return llm::load(c.model.path(), {.context = 64}); }

TEST(TunePeft, AModelWithAnAdapterGivesTheSameLogits) {
  for (const std::string& name : kCases) {
    SCOPED_TRACE(name);
    const PeftCase c(name);
    const llm::Model model = llm::load(c.model.path(), {.context = 64, .adapters = {{c.adapter.path()}}});
    EXPECT_LT(distance(model.forward(c.first_text()), c.json.at("logits")), kNear);
    // Twice half of it is all of it, and none of it is the model.
    const llm::Model halves =
        llm::load(c.model.path(), {.context = 64, .adapters = {{c.adapter.path(), 0.5}, {c.adapter.path(), 0.5}}});
    EXPECT_LT(distance(halves.forward(c.first_text()), c.json.at("logits")), kNear);
    const llm::Model none = llm::load(c.model.path(), {.context = 64, .adapters = {{c.adapter.path(), 0}}});
    EXPECT_EQ(none.forward(c.first_text()), llm::load(c.model.path(), {.context = 64}).forward(c.first_text()));
  }
}

TEST(TunePeft, AnAdapterGoesWithEitherKindOfFile) {
  for (const std::string& name : kCases) {
    SCOPED_TRACE(name);
    const PeftCase c(name);
    if (has_states(name)) continue;                      // models whose GGUF files are not made from folders
    if (name == "falcon" || name == "gemma2") continue;  // which GGUF files do not have, the latter with such a scale
    if (name == "llama4-experts") continue;              // as above
    const test::TemporaryFolder files;
    const std::filesystem::path gguf = files.path() / "model.gguf", small = files.path() / "adapter.gguf";
    llm::convert_to_gguf(io::TensorSource::open(c.model.path()), gguf);
    const llm::Model model = llm::load(gguf, {.context = 64, .adapters = {{c.adapter.path()}}});
    EXPECT_LT(distance(model.forward(c.first_text()), c.json.at("logits")), kNear);
    if (has_magnitudes(name)) {
      EXPECT_THROW(Tuner(model_alone(c), {.from = c.adapter.path()}).save(small), FileError);
      Tuner(llm::load(gguf, {.context = 64}), {.from = c.adapter.path()}).save(files.path() / "again");
      EXPECT_LT(distance(llm::load(c.model.path(), {.context = 64, .adapters = {{files.path() / "again"}}})
                             .forward(c.first_text()),
                         c.json.at("logits")),
                kNear);
      continue;
    }
    // As a GGUF file, and back as a folder, each made with the other kind of model.
    Tuner(llm::load(c.model.path(), {.context = 64}), {.from = c.adapter.path()}).save(small);
    EXPECT_LT(
        distance(llm::load(gguf, {.context = 64, .adapters = {{small}}}).forward(c.first_text()), c.json.at("logits")),
        kNear);
    EXPECT_LT(distance(llm::load(c.model.path(), {.context = 64, .adapters = {{small}}}).forward(c.first_text()),
                       c.json.at("logits")),
              kNear);
    Tuner(llm::load(gguf, {.context = 64}), {.from = small}).save(files.path() / "again");
    EXPECT_LT(
        distance(
            llm::load(c.model.path(), {.context = 64, .adapters = {{files.path() / "again"}}}).forward(c.first_text()),
            c.json.at("logits")),
        kNear);
  }
}

TEST(TunePeft, TrainingGivesTheSameLossesAndMatrices) {
  for (const std::string& name : kCases) {
    // PEFT has one A for the queries, keys and values of a fused matrix that Weft reads as three.
    if (name == "falcon" || name == "bloom") continue;
    for (const bool recompute : {false, true}) {
      SCOPED_TRACE(name);
      const PeftCase c(name);
      const std::vector<Example> examples = c.examples();
      Tuner tuner(llm::load(c.model.path(), {.context = 64}), {.from = c.adapter.path(), .recompute = recompute});
      RowStream stream(examples, 24, 1, false, tuner.texts_of_row());
      const std::int64_t count = stream.rows_of_epochs(1);
      ASSERT_EQ(count, has_states(name) ? 3 : 2);  // the two shorter texts share a row, if they may
      const Rows rows = stream.batch(0, count);
      for (const Json& loss : c.json.at("losses"))
        EXPECT_NEAR(static_cast<double>(tuner.step({rows}, c.json.at("rate").get<double>()).loss.item<float>()),
                    loss.get<double>(), 2e-5);
      const test::TemporaryFolder after;
      tuner.save(after.path());
      const io::TensorSource saved = io::TensorSource::open(after.path() / "adapter_model.safetensors");
      const std::vector<float> values = saved.read_f32(c.json.at("after_key").get<std::string>());
      double worst = 0;
      for (std::size_t i = 0; i < c.json.at("after").size(); ++i)
        worst = std::max(worst, std::abs(double{values[i]} - c.json.at("after")[i].get<double>()));
      EXPECT_LT(worst, 1e-4);  // six steps of 3e-3, whose size does not depend on the gradient's
      const llm::Model model = llm::load(c.model.path(), {.context = 64, .adapters = {{after.path()}}});
      if (name == "llama-tied") continue;  // PEFT merges into the table of tokens too
      // Adam's steps do not depend on a gradient's size, and Mamba's have elements that are nothing but rounding.
      EXPECT_LT(distance(model.forward(c.first_text()), 23, c.json.at("last")), name == "mamba" ? 3e-3 : 2e-4);
    }
  }
}

TEST(TunePeft, MergedMatricesGiveTheSameLogits) {
  for (const std::string& name : kCases) {
    SCOPED_TRACE(name);
    const PeftCase c(name);
    const io::TensorSource source = io::TensorSource::open(c.model.path());
    const llm::Model plain = llm::load(c.model.path(), {.context = 64});
    const llm::ModelGraph& graph = llm::detail::engine_of(plain)->graph();
    auto changes = llm::read_adapter(c.adapter.path(), 1, graph);
    llm::make_gains(changes, graph, llm::TensorNames(source));
    if (name == "llama-tied") {
      EXPECT_THROW(llm::merged(source, changes, graph), FileError);
      continue;
    }
    const test::TemporaryFolder folder;
    io::convert_model(llm::merged(source, changes, graph), folder.path() / "model.safetensors", {});
    std::filesystem::copy_file(c.model.path() / "config.json", folder.path() / "config.json");
    std::filesystem::copy_file(c.model.path() / "tokenizer.json", folder.path() / "tokenizer.json");
    const llm::Model merged = llm::load(folder.path(), {.context = 64});
    EXPECT_LT(distance(merged.forward(c.first_text()), c.json.at("logits")), kNear);
  }
}

class TuneExperts : public ::testing::Test {
 protected:
  TuneExperts() {
    test::put(test::transformers_case("qwen3-moe").model(), folder_);
    Example& example = examples_.emplace_back(Example{{1, 5, 3, 8, 2, 9, 4, 7, 6}, {}});
    example.counts.assign(example.tokens.size(), true);
    rows_ = RowStream(examples_, 8, 1, false).batch(0, 1);
  }
  llm::Model model() const { return llm::load(folder_.path(), {.context = 32}); }
  template <class E = UsageError>
  static std::string refusal(const std::function<void()>& work) {
    try {
      work();
    } catch (const E& error) {
      return error.what();
    }
    return "no error";
  }

  test::TemporaryFolder folder_, files_;
  std::vector<Example> examples_;
  Rows rows_;
};

TEST_F(TuneExperts, AreChosenByNameAndGoWithBlocks) {
  const std::filesystem::path gguf = files_.path() / "f32.gguf", blocks = files_.path() / "q8.gguf";
  llm::convert_to_gguf(io::TensorSource::open(folder_.path()), gguf);
  io::quantise_model(io::TensorSource::open(gguf), blocks, {.type = "Q8_0", .pure = true});
  for (const auto& [name, count] : std::map<std::string, std::size_t>{{"experts", 6}, {"experts.down_proj", 3}})
    for (const bool in_blocks : {false, true}) {
      SCOPED_TRACE(name);
      const std::filesystem::path path = in_blocks ? blocks : folder_.path();
      Tuner tuner(llm::load(path, {.context = 32, .exact = true}), {.rank = 3, .alpha = 6, .targets = {name}});
      EXPECT_EQ(tuner.products().size(), count);
      const double before = tuner.loss(rows_);
      for (int i = 0; i < 8; ++i) (void)tuner.step({rows_}, 2e-2);
      EXPECT_LT(tuner.loss(rows_), before - 0.1);
      const std::vector<float> trained = tuner.logits(rows_).to_vector<float>();
      for (const char* file : {"adapter", "adapter.gguf"}) {
        tuner.save(files_.path() / file);
        for (const bool merges : {false, true}) {
          if (merges && in_blocks) continue;  // F16 is near, not equal
          const std::vector<float> logits =
              llm::load(path,
                        {.context = 32, .exact = true, .adapters = {{files_.path() / file}}, .merge_adapters = merges})
                  .forward(Tokens(examples_[0].tokens.begin(), examples_[0].tokens.end() - 1));
          double worst = 0;
          for (std::size_t i = 0; i < logits.size(); ++i)
            worst = std::max(worst, std::abs(double{logits[i]} - trained[i]));
          EXPECT_LT(worst, 1e-4) << file << merges;
        }
      }
    }
}

TEST_F(TuneExperts, HaveNeitherMagnitudesNorDropout) {
  for (const TunerOptions& options : {TunerOptions{.dora = true, .targets = {"experts"}},
                                      TunerOptions{.dropout = 0.1, .targets = {"experts.gate_up_proj"}}})
    EXPECT_NE(refusal([&] { Tuner(model(), options); }).find("neither magnitudes (dora) nor dropout"),
              std::string::npos);
  const std::string unknown = refusal([&] { Tuner(model(), {.targets = {"expert"}}); });
  EXPECT_NE(unknown.find("experts.gate_up_proj"), std::string::npos) << unknown;
}

TEST_F(TuneExperts, OtherNumbersOfThemAreRefusedByName) {
  const PeftCase c("qwen3-moe-downs");
  Json config = c.json.at("adapter");
  config["r"] = 5;
  write_file_atomically(c.adapter.path() / "adapter_config.json", config.dump());
  const auto use = [&] { llm::load(c.model.path(), {.context = 32, .adapters = {{c.adapter.path()}}}); };
  std::string refused = refusal<FileError>(use);
  EXPECT_NE(refused.find("has 18 rows, and the rank of each expert is 5"), std::string::npos) << refused;
  config["r"] = 9;  // two experts of rank 9
  write_file_atomically(c.adapter.path() / "adapter_config.json", config.dump());
  refused = refusal<FileError>(use);
  EXPECT_NE(refused.find("it changes 2 x 32 x 24, the model's experts are 6 x 32 x 24"), std::string::npos) << refused;
  config["target_parameters"] = nullptr;
  write_file_atomically(c.adapter.path() / "adapter_config.json", config.dump());
  refused = refusal<FileError>(use);
  EXPECT_NE(refused.find("target_parameters does not tell"), std::string::npos) << refused;
}

}  // namespace
}  // namespace weft::tune
