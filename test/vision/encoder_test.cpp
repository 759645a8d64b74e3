// Vision models against the transformers library: preprocessing, embeddings of images and texts, scores, classes; and files that
// do not fit.
#include <gtest/gtest.h>

#include "vision/images.hpp"
#include "vision/preprocess.hpp"
#include "vision/tower.hpp"
#include "vision/vision_cases.hpp"
#include "weft/error.hpp"
#include "weft/vision.hpp"

namespace weft::vision {
namespace {

test::VisionCase case_of(const std::string& name) {
  return {name, read_json_file(std::filesystem::path(WEFT_TEST_VISION) / (name + ".json"))};
}

std::string message_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

// The largest difference of rows, relative to the largest wanted value.
double worst(const std::vector<float>& values, const Json& rows) {
  double apart = 0, largest = 0;
  std::size_t at = 0;
  for (const Json& row : rows)
    for (const Json& wanted : row) {
      apart = std::max(apart, std::abs(wanted.get<double>() - double{values.at(at++)}));
      largest = std::max(largest, std::abs(wanted.get<double>()));
    }
  EXPECT_EQ(at, values.size());
  return apart / largest;
}

const char* const kEncoders[] = {"clip", "clip-old", "siglip"};

TEST(VisionEncoder, RowsAndScoresAreThoseOfTransformers) {
  for (const char* name : kEncoders) {
    SCOPED_TRACE(name);
    const test::VisionCase c = case_of(name);
    const test::TemporaryFolder folder;
    c.put_into(folder);
    const Encoder model = Encoder::load(folder.path());
    const std::vector<Tensor> images = c.images();
    const auto texts = c.json["texts"].get<std::vector<std::string>>();
    const Tensor image_rows = model.embed_images(images), text_rows = model.embed_texts(texts);
    EXPECT_LT(worst(image_rows.to_vector<float>(), c.json["image_rows"]), 5e-6);
    EXPECT_LT(worst(text_rows.to_vector<float>(), c.json["text_rows"]), 5e-6);
    EXPECT_LT(worst(model.scores(image_rows, text_rows).to_vector<float>(), c.json["scores"]), 1e-5);
    const std::vector<float> shares = model.probabilities(image_rows, text_rows).to_vector<float>();
    const bool is_siglip = std::string(name) == "siglip";
    for (std::size_t i = 0; i < images.size(); ++i) {
      double total = 0, expected = 0;
      for (std::size_t t = 0; t < texts.size(); ++t) {
        total += shares[i * texts.size() + t];
        expected += 1 / (1 + std::exp(-c.json["scores"][i][t].get<double>()));
      }
      EXPECT_NEAR(total, is_siglip ? expected : 1, 1e-5);
    }
  }
}

TEST(VisionEncoder, ImagesTogetherGiveTheRowsOfEach) {
  for (const char* name : kEncoders) {
    const test::VisionCase c = case_of(name);
    const test::TemporaryFolder folder;
    c.put_into(folder);
    const Encoder model = Encoder::load(folder.path());
    std::vector<Tensor> images = c.images();
    for (std::size_t i = 0; i < 8; ++i) images.push_back(images[i % 3]);  // 8, 2 and 1
    std::vector<float> rows;
    for (const Tensor& image : images) {
      const std::vector<float> row = model.embed_images({image}).to_vector<float>();
      rows.insert(rows.end(), row.begin(), row.end());
    }
    EXPECT_EQ(model.embed_images(images).to_vector<float>(), rows) << name;
  }
  using Sizes = std::vector<std::size_t>;
  EXPECT_EQ(pass_sizes(11, 17), (Sizes{8, 2, 1}));
  EXPECT_EQ(pass_sizes(5, 1024), (Sizes{4, 1}));
  EXPECT_EQ(pass_sizes(3, 1500), (Sizes{2, 1}));
  EXPECT_EQ(pass_sizes(2, 60'000), (Sizes{1, 1}));
  EXPECT_EQ(pass_sizes(0, 1), Sizes());
}

TEST(VisionEncoder, TextsOfSiglipAreFilledWithTheTokenizersPadding) {
  test::VisionCase c = case_of("siglip");
  c.json["config"]["text_config"]["pad_token_id"] = 0;
  const test::TemporaryFolder folder;
  c.put_into(folder);
  folder.put("tokenizer_config.json", R"({"pad_token": "<pad>"})");
  const std::vector<std::string> texts = c.json["texts"];
  EXPECT_LT(worst(Encoder::load(folder.path()).embed_texts(texts).to_vector<float>(), c.json["text_rows"]), 5e-6);
  folder.put("tokenizer_config.json", "{}");
  EXPECT_GT(worst(Encoder::load(folder.path()).embed_texts(texts).to_vector<float>(), c.json["text_rows"]), 1e-3);
}

TEST(VisionEncoder, HalvesAndReadyImagesAreRead) {
  const test::VisionCase c = case_of("clip");
  const test::TemporaryFolder folder;
  c.put_into(folder);
  const Encoder model = Encoder::load(folder.path());
  const ImageProcessor processor = ImageProcessor::from_folder(folder.path());
  const Tensor image = c.images()[0];
  image::Pixels pixels{image.dim(0), image.dim(1), 3, image.to_vector<std::uint8_t>()};
  const Tensor ready = tensor<float>(processor.normalized(processor.prepare(pixels).tiles[0]), {3, 28, 28});
  const std::vector<float> row = model.embed_images({image}).to_vector<float>();
  EXPECT_EQ(model.embed_images({ready}).to_vector<float>(), row);
  const test::TemporaryFolder halves;
  c.put_into(halves, {}, "F16");
  const std::vector<float> near = Encoder::load(halves.path()).embed_images({image}).to_vector<float>();
  double cosine = 0, apart = 0;
  for (std::size_t i = 0; i < row.size(); ++i) {
    cosine += double{row[i]} * double{near[i]};
    apart = std::max(apart, std::abs(double{row[i]} - double{near[i]}));
  }
  EXPECT_GT(cosine, 0.99999);
  EXPECT_GT(apart, 0);  // its weights were rounded
}

TEST(VisionClassifier, LogitsAreThoseOfTransformers) {
  const test::VisionCase c = case_of("vit");
  const test::TemporaryFolder folder;
  c.put_into(folder);
  const Classifier model = Classifier::load(folder.path());
  const std::vector<Tensor> images = c.images();
  EXPECT_LT(worst(model.logits(images).to_vector<float>(), c.json["logits"]), 5e-6);
  const std::vector<double> wanted = c.json["logits"][0];
  const auto best = static_cast<std::size_t>(std::max_element(wanted.begin(), wanted.end()) - wanted.begin());
  const std::vector<Label> labels = model.classify(images[0], 2);
  ASSERT_EQ(labels.size(), 2u);
  EXPECT_EQ(labels[0].index, static_cast<Extent>(best));
  EXPECT_EQ(labels[0].name, c.json["config"]["id2label"][std::to_string(best)]);
  EXPECT_GE(labels[0].probability, labels[1].probability);
  EXPECT_EQ(model.classify(images[0], 99).size(), 5u);
}

TEST(VisionPreprocess, PixelsAreThoseOfTransformers) {
  for (const test::VisionCase& c : test::vision_cases(WEFT_TEST_VISION)) {
    SCOPED_TRACE(c.name);
    const ImageProcessor processor = ImageProcessor::from_json(c.json["processor"], c.name);
    const Tensor image = c.images()[0];
    const PreparedImage prepared = processor.prepare({image.dim(0), image.dim(1), 3, image.to_vector<std::uint8_t>()});
    ASSERT_EQ(prepared.tiles.size(), 1u);
    const image::Pixels& tile = prepared.tiles[0];
    ASSERT_EQ(tile.height, 28);
    ASSERT_EQ(tile.width, 28);
    const std::vector<float> values = processor.normalized(tile);
    std::size_t at = 0;
    for (std::size_t channel = 0; channel < 3; ++channel)
      for (std::size_t y = 0; y < 28; y += 5)
        for (std::size_t x = 0; x < 28; x += 3)
          EXPECT_NEAR(values[(channel * 28 + y) * 28 + x], c.json["pixels"][at++].get<double>(), 2e-6);
    EXPECT_EQ(at, c.json["pixels"].size());
  }
}

TEST(VisionPreprocess, OldFormsOfSettingsAreRead) {
  const ImageProcessor old = ImageProcessor::from_json(
      {{"feature_extractor_type", "CLIPFeatureExtractor"}, {"size", 30}, {"crop_size", 28}, {"resample", 3}}, "old");
  EXPECT_EQ(old.side(), 28);
  const PreparedImage prepared = old.prepare({60, 40, 3, std::vector<std::uint8_t>(60 * 40 * 3, 7)});
  EXPECT_EQ(prepared.tiles[0].height, 28);
  const ImageProcessor square =
      ImageProcessor::from_json({{"feature_extractor_type", "ViTFeatureExtractor"}, {"size", 12}}, "old");
  EXPECT_EQ(square.prepare({60, 40, 3, std::vector<std::uint8_t>(60 * 40 * 3, 7)}).tiles[0].width, 12);
}

TEST(VisionPreprocess, WhatIsNotKnownIsRefused) {
  const auto refused = [](Json json) {
    if (!json.contains("image_processor_type")) json["image_processor_type"] = "CLIPImageProcessor";
    return message_of([&] { (void)ImageProcessor::from_json(json, "it"); });
  };
  EXPECT_NE(refused({{"image_processor_type", "LlavaOnevisionImageProcessor"}})
                .find("\"LlavaOnevisionImageProcessor\"; Weft has"),
            std::string::npos);
  EXPECT_EQ(refused({{"resample", 5}}),
            "it: resample is 5; known are 0 (nearest), 1 (lanczos), 2 (bilinear) and 3 (bicubic)");
  EXPECT_EQ(refused({{"size", {{"shortest_edge", 100000}}}}), "it: size.shortest_edge is 100000, not from 1 to 4096");
  EXPECT_EQ(refused({{"crop_size", 0}}), "it: crop_size is 0, not from 1 to 4096");
  EXPECT_EQ(refused({{"image_mean", {1, 2}}}), "it: image_mean is not a list of 3 numbers");
  EXPECT_EQ(refused({{"image_std", {1, 0, 1}}}), "it: image_std has 0, which is not above 0");
  EXPECT_EQ(refused({{"do_pad", true}}), "it: do_pad is true, which Weft supports only where images are cut");
  const ImageProcessor narrow = ImageProcessor::from_json({{"image_processor_type", "CLIPImageProcessor"}}, "it");
  EXPECT_NE(message_of([&] {
              (void)narrow.prepare({1, 30000, 3, std::vector<std::uint8_t>(90000)});
            }).find("too narrow a strip"),
            std::string::npos);
}

TEST(VisionEncoder, FilesThatDoNotFitAreRefused) {
  const test::VisionCase c = case_of("clip");
  const auto refused = [&](const std::function<void(test::VisionCase&)>& change,
                           const std::function<void(test::TinyTensors&)>& change_tensors = {}) {
    test::VisionCase other = c;
    change(other);
    const test::TemporaryFolder folder;
    other.put_into(folder, change_tensors);
    return message_of([&] { (void)Encoder::load(folder.path()); });
  };
  const auto has = [](const std::string& text, const std::string& part) {
    return text.find(part) != std::string::npos;
  };
  const auto with = [](const char* part, const char* key, const Json& value) {
    return [=](test::VisionCase& other) { other.json["config"][part][key] = value; };
  };
  EXPECT_TRUE(
      has(refused(with("vision_config", "hidden_size", 33)), "num_attention_heads is 4, which does not divide"));
  EXPECT_TRUE(has(refused(with("vision_config", "num_hidden_layers", 100000)), "not from 1 to 1024"));
  EXPECT_TRUE(has(refused(with("vision_config", "num_hidden_layers", 900)), "tensors do not fit config.json"));
  EXPECT_TRUE(has(refused(with("vision_config", "patch_size", 0)), "patch_size is 0"));
  EXPECT_TRUE(has(refused(with("vision_config", "hidden_act", "relu")), "hidden_act is \"relu\"; known are"));
  EXPECT_TRUE(
      has(refused(with("text_config", "vocab_size", 13)), "token_embedding.weight is [12, 24], the configuration"));
  EXPECT_TRUE(has(refused([](auto& other) { other.json["config"]["model_type"] = "blip"; }),
                  "model_type is \"blip\"; vision::Encoder reads clip and siglip"));
  EXPECT_TRUE(
      has(refused([](auto&) {}, [](auto& tensors) { tensors.erase("visual_projection.weight"); }),
          "1 tensor does not fit config.json; is the model whole?\n  missing: visual_projection.weight [20, 32]"));
  EXPECT_TRUE(
      has(refused([](auto&) {}, [](auto& tensors) { tensors["visual_projection.weight"].values[5] = std::nanf(""); }),
          "visual_projection.weight"));
  EXPECT_TRUE(has(refused([](auto& other) { other.json.erase("tokenizer"); }), "no tokenizer.json"));
}

TEST(VisionEncoder, ArgumentsThatDoNotFitAreRefused) {
  const test::VisionCase c = case_of("clip");
  const test::TemporaryFolder folder;
  c.put_into(folder);
  const Encoder model = Encoder::load(folder.path());
  EXPECT_EQ(message_of([&] { (void)model.embed_images({}); }), "vision: there are no images; give at least one");
  EXPECT_EQ(message_of([&] {
              (void)model.embed_images({zeros({4, 4, 4}, DType::u8)});
            }),
            "vision: the image is u8 [4, 4, 4]; give u8 [height, width, 3]");
  EXPECT_EQ(message_of([&] {
              (void)model.embed_images({zeros({3, 27, 28})});
            }),
            "vision: an image f32 [3, 27, 28]; give u8 [height, width, 3], or f32 [3, 28, 28], normalised");
  EXPECT_EQ(message_of([&] { (void)model.embed_texts({"a a a a a a a a a"}); }),
            "vision: a text has 11 tokens, and the model reads 10; shorten the text");
  EXPECT_EQ(message_of([&] {
              (void)model.scores(zeros({1, 3}), zeros({1, 20}));
            }),
            "vision: rows of shape [1, 3]; the model's have a width of 20");
}

TEST(VisionTower, PositionsSpreadOverOtherGrids) {
  EXPECT_EQ(spread_positions(4, 4), (std::vector<std::int32_t>{0, 1, 2, 3}));
  EXPECT_EQ(spread_positions(4, 6), (std::vector<std::int32_t>{0, 1, 3, 4}));
  EXPECT_EQ(spread_positions(6, 3), (std::vector<std::int32_t>{0, 0, 1, 1, 2, 2}));
}

}  // namespace
}  // namespace weft::vision
