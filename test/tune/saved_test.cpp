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

TEST(TuneSaved, WhatDoesNotFitIsNamed) {
  const PeftCase c("llama-saved"), other("gpt2-saved");
  const std::string wrong = message_of<FileError>([&] { logits_of(c, c.model.path(), {{other.adapter.path()}}); });
  EXPECT_NE(wrong.find("is it an adapter of this model?"), std::string::npos) << wrong;
  const std::string from =
      message_of<UsageError>([&] { Tuner(llm::load(c.model.path(), {.context = 64}), {.from = c.adapter.path()}); });
  EXPECT_NE(from.find("which do not train; merge it"), std::string::npos) << from;
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
