// Vision models through WebGPU, against what the transformers library computes.
#include <gtest/gtest.h>

#include "runtime/open_device.hpp"
#include "vision/vision_cases.hpp"
#include "weft/llm.hpp"
#include "weft/vision.hpp"

namespace weft {
namespace {

class WebgpuImages : public testing::Test {
 protected:
  void SetUp() override { test::open_device("webgpu:0", device_); }
  Device device_ = kCpu;
};

test::VisionCase vision_case(const char* path) {
  return {path, read_json_file(std::filesystem::path(WEFT_TEST_TREE) / path)};
}

TEST_F(WebgpuImages, AModelThatSeesSaysWhatTransformersSays) {
  const test::VisionCase c = vision_case("llm/images/idefics3.json");
  const test::TemporaryFolder folder;
  c.put_into(folder);
  const llm::Model model = llm::load(folder.path(), {.context = 128, .device = device_});
  const Json& chat = c.json["chats"][0];
  const Tensor image = c.images()[0];
  const llm::Prompt prompt = model.prompt(chat["prompt"].get<std::string>(), {&image, 1});
  const std::vector<float> logits = model.forward(prompt);
  const auto width = static_cast<std::size_t>(model.vocabulary()), row = chat["rows"][1].get<std::size_t>();
  double worst = 0;
  for (std::size_t i = 0; i < width; ++i)
    worst = std::max(worst, std::abs(double{logits[row * width + i]} - chat["logits"][1][i].get<double>()));
  EXPECT_LT(worst, 1e-4);
}

TEST_F(WebgpuImages, EmbeddingsAreThoseOfTransformers) {
  const test::VisionCase c = vision_case("vision/cases/clip.json");
  const test::TemporaryFolder folder;
  c.put_into(folder);
  const vision::Encoder model = vision::Encoder::load(folder.path(), device_);
  const std::vector<float> image = model.embed_images({c.images()[0]}).to_vector<float>(),
                           text = model.embed_texts({c.json["texts"][0].get<std::string>()}).to_vector<float>();
  for (std::size_t i = 0; i < image.size(); ++i) {
    EXPECT_NEAR(image[i], c.json["image_rows"][0][i].get<float>(), 1e-5);
    EXPECT_NEAR(text[i], c.json["text_rows"][0][i].get<float>(), 1e-5);
  }
}

}  // namespace
}  // namespace weft
