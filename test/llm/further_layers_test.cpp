// Layers behind the last that guess further tokens (multi-token prediction): left out with a note, of folders and of GGUF files.
#include <gtest/gtest.h>

#include "base/message_of.hpp"
#include "io/gguf.hpp"
#include "io/tensor_source.hpp"
#include "llm/convert.hpp"
#include "llm/transformers_cases.hpp"
#include "weft/error.hpp"
#include "weft/llm.hpp"

namespace weft::llm::further_layers_test {
namespace {

using test::TemporaryFolder;

const std::vector<std::int32_t> kText = {3, 10, 17, 1, 8, 40, 22, 5, 9, 31};
constexpr const char* kNote = "1 layer behind the last that guesses further tokens is left out";

/// The model with a layer more, which has the tensors of the one before and those that join a guess to a state.
test::TinyModel with_further_layer(const std::string& name, Extent layers) {
  test::TinyModel model = test::transformers_case(name).model();
  const std::string last = "model.layers." + std::to_string(layers - 1) + ".",
                    more = "model.layers." + std::to_string(layers) + ".";
  const auto tensors = model.tensors;
  for (const auto& [key, tensor] : tensors)
    if (key.starts_with(last)) model.tensors[more + key.substr(last.size())] = tensor;
  model.tensors[more + "enorm.weight"] = test::random_values("enorm", {32}, 0.3, 1);
  model.tensors[more + "eh_proj.weight"] = test::random_values("eh_proj", {32, 64}, 0.3);
  return model;
}

TEST(FurtherLayers, FoldersLeaveThemOutWithANote) {
  for (const char* name : {"deepseek-v3", "llama", "glm4"}) {
    SCOPED_TRACE(name);
    const TemporaryFolder plain, longer;
    test::put(test::transformers_case(name).model(), plain);
    test::TinyModel model = with_further_layer(name, 3);
    model.config["num_nextn_predict_layers"] = 1;
    test::put(model, longer);
    const Model loaded = load(longer.path(), {.context = 64}), wanted = load(plain.path(), {.context = 64});
    EXPECT_EQ(loaded.forward(kText), wanted.forward(kText));
    EXPECT_EQ(loaded.notes(), std::vector<std::string>{kNote});
    EXPECT_TRUE(wanted.notes().empty());
    const auto source = io::TensorSource::open(longer.path());
    EXPECT_EQ(convert_to_gguf(source, longer / "model.gguf").notes.at(0), kNote);
    EXPECT_EQ(load(longer / "model.gguf", {.context = 64}).notes().size(), 0u);

    // A layer that the configuration does not tell of is an error.
    model.config["num_nextn_predict_layers"] = 0;
    test::put(model, longer);
    const std::string message = test::message_of<FileError>([&] { (void)load(longer.path(), {.context = 64}); });
    EXPECT_NE(message.find("unexpected: model.layers.3."), std::string::npos) << message;
    model.config["num_nextn_predict_layers"] = 17;
    test::put(model, longer);
    EXPECT_NE(test::message_of<FileError>([&] {
                (void)load(longer.path(), {.context = 64});
              }).find("num_nextn_predict_layers is 17, more than 16"),
              std::string::npos);
  }
}

TEST(FurtherLayers, GgufFilesCountThemAsBlocks) {
  const TemporaryFolder folder;
  test::put(test::transformers_case("deepseek-v3").model(), folder);
  (void)convert_to_gguf(io::TensorSource::open(folder.path()), folder / "model.gguf");
  const auto file = io::TensorSource::open(folder / "model.gguf");
  const auto put = [&](const char* name, std::uint32_t further) {
    io::GgufMetadata metadata = file.gguf()->metadata();
    metadata.set("deepseek2.block_count", 4u);
    metadata.set("deepseek2.nextn_predict_layers", further);
    std::vector<io::GgufTensorInfo> infos;
    for (const io::SourceTensor& tensor : file.tensors()) infos.push_back({tensor.name, tensor.shape, BlockType::f32});
    infos.push_back({"blk.3.nextn.eh_proj.weight", {32, 64}, BlockType::f32});
    infos.push_back({"blk.3.attn_norm.weight", {32}, BlockType::f32});
    const auto bytes_of = [](const std::vector<float>& values) { return std::as_bytes(std::span(values)); };
    io::GgufWriter writer(folder / name, metadata, std::move(infos));
    for (const io::SourceTensor& tensor : file.tensors()) writer.write(bytes_of(file.read_f32(tensor.name)));
    writer.write(bytes_of(std::vector<float>(32 * 64)));
    writer.write(bytes_of(std::vector<float>(32)));
    writer.commit();
    return folder / name;
  };
  const Model loaded = load(put("longer.gguf", 1), {.context = 64});
  EXPECT_EQ(loaded.forward(kText), load(folder / "model.gguf", {.context = 64}).forward(kText));
  EXPECT_EQ(loaded.notes(), std::vector<std::string>{kNote});
  EXPECT_NE(test::message_of<FileError>([&] {
              (void)load(put("none.gguf", 4), {.context = 64});
            }).find("deepseek2.nextn_predict_layers is 4; it must be less than the 4 blocks"),
            std::string::npos);
}

}  // namespace
}  // namespace weft::llm::further_layers_test
