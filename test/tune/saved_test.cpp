// Adapters that change tensors besides products (modules_to_save, tables of tokens, biases), beside the peft library, and adapters that
// are merged while a model is loaded.
#include <gtest/gtest.h>

#include "io/convert_model.hpp"
#include "io/quantise_model.hpp"
#include "io/tensor_source.hpp"
#include "llm/convert.hpp"
#include "llm/merge_folder.hpp"
#include "tune/peft_case.hpp"
#include "weft/error.hpp"
#include "weft/llm_fit.hpp"

namespace weft::tune {
namespace {

constexpr double kSavedNear = 2e-5;

/// How far logits are from the adapter's, at the three places that a case has.
double apart(const PeftCase& c, const std::vector<float>& logits) {
  double worst = 0;
  const std::size_t places[] = {3, 11, 23};
  for (std::size_t row = 0; row < 3; ++row) {
    const Json& wanted = c.json.at("logits")[row];
    for (std::size_t i = 0; i < wanted.size(); ++i)
      worst = std::max(worst, std::abs(double{logits[places[row] * wanted.size() + i]} - wanted[i].get<double>()));
  }
  return worst;
}

std::vector<float> logits_of(const PeftCase& c, const std::filesystem::path& model,
                             const std::vector<llm::AdapterUse>& adapters, bool merge = false) {
  return llm::load(model, {.context = 64, .adapters = adapters, .merge_adapters = merge}).forward(c.first_text());
}

template <class E>
std::string message_of(const std::function<void()>& work) {
  try {
    work();
  } catch (const E& error) {
    return error.what();
  }
  return "no error";
}

const char* const kSaved[] = {"llama-saved", "llama-biases-saved", "llama-table", "tied-saved",
                              "tied-table",  "tied-head",          "gpt2-saved"};

TEST(TuneSaved, TensorsOfAnAdapterTakeThePlaceOfTheModels) {
  for (const char* name : kSaved) {
    SCOPED_TRACE(name);
    const PeftCase c(name);
    EXPECT_LT(apart(c, logits_of(c, c.model.path(), {{c.adapter.path()}})), kSavedNear);
    EXPECT_EQ(logits_of(c, c.model.path(), {{c.adapter.path(), 0}}), logits_of(c, c.model.path(), {}));
    EXPECT_LT(apart(c, logits_of(c, c.model.path(), {{c.adapter.path()}}, true)), kSavedNear);
    // Twice half of the change of one adapter is not the change, because the second half begins at the first.
    EXPECT_GT(apart(c, logits_of(c, c.model.path(), {{c.adapter.path(), 0.5}})), 1e-3);
    const llm::FitReport need = llm::fit(c.model.path(), {.context = 64, .adapters = {{c.adapter.path()}}});
    EXPECT_EQ(need.need.weights,
              llm::load(c.model.path(), {.context = 64, .adapters = {{c.adapter.path()}}}).parts()[0].weight_bytes);
  }
}

TEST(TuneSaved, AWrittenFolderAndAGgufFileHaveThem) {
  for (const char* name : kSaved) {
    SCOPED_TRACE(name);
    const PeftCase c(name);
    const test::TemporaryFolder files;
    const std::vector<llm::AdapterUse> uses = {{c.adapter.path()}};
    const io::TensorSource merged = llm::with_adapters(io::TensorSource::open(c.model.path()), uses);
    llm::write_folder(merged, files.path() / "merged", {});
    EXPECT_LT(apart(c, logits_of(c, files.path() / "merged", {})), kSavedNear);
    const std::filesystem::path gguf = files.path() / "merged.gguf", plain = files.path() / "plain.gguf";
    llm::convert_to_gguf(merged, gguf);
    EXPECT_LT(apart(c, logits_of(c, gguf, {})), kSavedNear);
    llm::convert_to_gguf(io::TensorSource::open(c.model.path()), plain);
    if (std::string_view(name) == "llama-biases-saved") {  // GGUF files have rows of keys in another order
      const std::string refused = message_of<FileError>([&] { logits_of(c, plain, uses); });
      EXPECT_NE(refused.find("that both kinds of files write in one way"), std::string::npos) << refused;
      continue;
    }
    EXPECT_LT(apart(c, logits_of(c, plain, uses)), kSavedNear);
    EXPECT_LT(apart(c, logits_of(c, plain, uses, true)), kSavedNear);
  }
}

TEST(TuneSaved, TheyTrainToTheSameLossesAndTensors) {
  for (const char* name : {"llama-saved", "tied-saved", "tied-head", "gpt2-saved"})
    for (const bool recompute : {false, true}) {
      SCOPED_TRACE(name);
      const PeftCase c(name);
      const std::vector<Example> examples = c.examples();
      Tuner tuner(llm::load(c.model.path(), {.context = 64}), {.from = c.adapter.path(), .recompute = recompute});
      const Rows rows = RowStream(examples, 24, 1, false).batch(0, 2);
      for (const Json& loss : c.json.at("losses"))
        EXPECT_NEAR(double{tuner.step({rows}, c.json.at("rate").get<double>()).loss.item<float>()}, loss.get<double>(),
                    3e-5);
      const test::TemporaryFolder after;
      tuner.save(after.path());
      const io::TensorSource saved = io::TensorSource::open(after.path() / "adapter_model.safetensors");
      const std::vector<float> values = saved.read_f32(c.json.at("after_key").get<std::string>());
      double worst = 0;
      for (std::size_t i = 0; i < c.json.at("after").size(); ++i)
        worst = std::max(worst, std::abs(double{values[i]} - c.json.at("after")[i].get<double>()));
      EXPECT_LT(worst, 1e-4);
      EXPECT_EQ(read_json_file(after.path() / "adapter_config.json").at("modules_to_save").size(),
                std::string_view(name) == "llama-saved" ? 5u : 1u);
      // What was saved is what trained.
      const Json& last = c.json.at("last");
      const std::vector<float> logits = logits_of(c, c.model.path(), {{after.path()}}),
                               trained = tuner.logits(rows).to_vector<float>();
      worst = 0;
      for (std::size_t i = 0; i < logits.size(); ++i) worst = std::max(worst, std::abs(double{logits[i]} - trained[i]));
      EXPECT_LT(worst, 2e-5);
      if (std::string_view(name).starts_with("tied")) continue;  // PEFT merges one of the two into both
      for (std::size_t i = 0; i < last.size(); ++i)
        EXPECT_NEAR(logits[23 * last.size() + i], last[i].get<float>(), 5e-4);
    }
}

TEST(TuneSaved, ModulesAreChosenByNameBesideBlocks) {
  const PeftCase c("tied-saved"), apart("llama-saved");
  const test::TemporaryFolder files;
  const std::filesystem::path gguf = files.path() / "f32.gguf", blocks = files.path() / "q8.gguf";
  llm::convert_to_gguf(io::TensorSource::open(apart.model.path()), gguf);
  io::quantise_model(io::TensorSource::open(gguf), blocks, {.type = "Q8_0", .pure = true});
  const Rows rows = RowStream(c.examples(), 24, 1, false).batch(0, 2);
  for (const auto& [path, names] : std::map<std::filesystem::path, std::vector<std::string>>{
           {c.model.path(), {"embed_tokens", "lm_head"}}, {blocks, {"embed_tokens", "lm_head"}}, {gguf, {"norm"}}}) {
    const llm::Model model = llm::load(path, {.context = 64, .exact = true});
    Tuner tuner(model, {.rank = 2, .targets = {"o"}, .saved = names});
    const double before = tuner.loss(rows);
    for (int i = 0; i < 5; ++i) (void)tuner.step({rows}, 1e-2);
    EXPECT_LT(tuner.loss(rows), before - 0.2);
    tuner.save(files.path() / "adapter");
    const std::vector<float> logits =
                                 llm::load(path,
                                           {.context = 64, .exact = true, .adapters = {{files.path() / "adapter"}}})
                                     .forward(c.first_text()),
                             trained = tuner.logits(rows).to_vector<float>();
    double worst = 0;
    for (std::size_t i = 0; i < logits.size(); ++i) worst = std::max(worst, std::abs(double{logits[i]} - trained[i]));
    EXPECT_LT(worst, path == blocks ? 0.05 : 2e-5) << path;  // tables in blocks become F16 where they are changed
    const std::string none = message_of<FileError>([&] { tuner.save(files.path() / "adapter.gguf"); });
    EXPECT_NE(none.find("no place for whole tensors"), std::string::npos) << none;
  }
  const llm::Model model = llm::load(c.model.path(), {.context = 64});
  const std::string unknown = message_of<UsageError>([&] { Tuner(model, {.saved = {"wte"}}); });
  EXPECT_NE(unknown.find("embed_tokens, "), std::string::npos) << unknown;
  const std::string both =
      message_of<UsageError>([&] { Tuner(model, {.targets = {"lm_head"}, .saved = {"lm_head"}}); });
  EXPECT_NE(both.find("choose one"), std::string::npos) << both;
}

TEST(TuneSaved, WhatDoesNotFitIsNamed) {
  const PeftCase c("llama-saved"), other("gpt2-saved"), biases("llama-biases-saved"), table("llama-table");
  const std::string wrong = message_of<FileError>([&] { logits_of(c, c.model.path(), {{other.adapter.path()}}); });
  EXPECT_NE(wrong.find("is it an adapter of this model?"), std::string::npos) << wrong;
  const std::string from = message_of<UsageError>(
      [&] { Tuner(llm::load(biases.model.path(), {.context = 64}), {.from = biases.adapter.path()}); });
  EXPECT_NE(from.find("which does not train; merge it"), std::string::npos) << from;
  const std::string rows = message_of<UsageError>(
      [&] { Tuner(llm::load(table.model.path(), {.context = 64}), {.from = table.adapter.path()}); });
  EXPECT_NE(rows.find("matrices of a table of tokens"), std::string::npos) << rows;
  // A table of another vocabulary.
  const test::TemporaryFolder folder;
  const std::vector<float> values(std::size_t{49} * 32, 0.1F);
  const std::vector<io::TensorView> views = {
      {"base_model.model.model.embed_tokens.weight", "F32", {49, 32}, std::as_bytes(std::span(values))}};
  io::write_safetensors(folder.path() / "adapter_model.safetensors", views, {{"format", "pt"}});
  write_file_atomically(folder.path() / "adapter_config.json", c.json.at("adapter").dump());
  const std::string longer = message_of<FileError>([&] { logits_of(c, c.model.path(), {{folder.path()}}); });
  EXPECT_NE(longer.find("is [49, 32], and the model's is [48, 32]; the adapter is of a model with another number"),
            std::string::npos)
      << longer;
}

TEST(TuneMerged, AModelWithMergedAdaptersGivesTheSameLogits) {
  for (const char* name : {"llama", "gpt2", "phi3", "falcon", "llama-dora", "mamba"}) {
    SCOPED_TRACE(name);
    const PeftCase c(name);
    EXPECT_LT(apart(c, logits_of(c, c.model.path(), {{c.adapter.path()}}, true)), kSavedNear);
    // Two of them add up, each by its scale.
    const std::vector<llm::AdapterUse> two = {{c.adapter.path(), 0.75}, {c.adapter.path(), 0.5}};
    const std::vector<float> beside = logits_of(c, c.model.path(), two),
                             merged = logits_of(c, c.model.path(), two, true);
    double worst = 0;
    for (std::size_t i = 0; i < beside.size(); ++i) worst = std::max(worst, std::abs(double{beside[i]} - merged[i]));
    EXPECT_LT(worst, 2e-5);
  }
}

TEST(TuneMerged, BlocksBecomeF16AndPackedFilesAreNotTakenForThem) {
  const PeftCase c("llama");
  const test::TemporaryFolder files;
  const std::filesystem::path gguf = files.path() / "f32.gguf", blocks = files.path() / "q8.gguf";
  llm::convert_to_gguf(io::TensorSource::open(c.model.path()), gguf);
  io::quantise_model(io::TensorSource::open(gguf), blocks, {.type = "Q8_0", .pure = true});
  const std::vector<llm::AdapterUse> uses = {{c.adapter.path()}};
  const std::vector<float> plain = logits_of(c, blocks, {}), merged = logits_of(c, blocks, uses, true);
  EXPECT_NE(plain, merged);
  EXPECT_LT(apart(c, merged), 0.2);
  EXPECT_EQ(logits_of(c, blocks, {}), plain);
  EXPECT_GT(llm::fit(blocks, {.context = 64, .adapters = uses, .merge_adapters = true}).need.weights,
            llm::fit(blocks, {.context = 64}).need.weights);
}

}  // namespace
}  // namespace weft::tune
