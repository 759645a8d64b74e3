// Models that talk about images, against the transformers library: prompts, logits and greedy texts; caches that know which image
// they hold; and what is refused. test/vision/make.py made the files.
#include <gtest/gtest.h>

#include <algorithm>

#include "io/tensor_source.hpp"
#include "llm/convert.hpp"
#include "llm/image_rows.hpp"
#include "vision/vision_cases.hpp"
#include "weft/error.hpp"
#include "weft/llm.hpp"

namespace weft::llm::images_test {
namespace {

using test::VisionCase;

VisionCase image_case(const std::string& name) {
  return {name, read_json_file(std::filesystem::path(WEFT_TEST_IMAGES) / (name + ".json"))};
}

std::vector<Message> messages_of(const Json& chat, const std::vector<Tensor>& images) {
  std::vector<Message> messages;
  std::size_t next = 0;
  for (const Json& json : chat["messages"]) {
    Message message{json["role"], ""};
    for (const Json& part : json["content"]) {
      if (part["type"] == "image")
        message.parts.emplace_back(images.at(next++));
      else
        message.parts.emplace_back(part["text"].get<std::string>());
    }
    messages.push_back(std::move(message));
  }
  return messages;
}

std::vector<std::int32_t> ids_of(const Result& result) {
  std::vector<std::int32_t> ids;
  for (const GeneratedToken& token : result.tokens) ids.push_back(token.id);
  return ids;
}

GenerateOptions greedy(Extent tokens) { return {.max_tokens = tokens, .sampling = {.temperature = 0}}; }

std::string refusal_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

Model loaded(const VisionCase& c, const test::TemporaryFolder& folder, LoadOptions options = {}) {
  c.put_into(folder);
  return load(folder.path(), options);
}

TEST(LlmImages, LogitsAndGreedyTextsAreThoseOfTransformers) {
  const std::vector<VisionCase> all = test::vision_cases(WEFT_TEST_IMAGES);
  ASSERT_GE(all.size(), 18u);
  for (const VisionCase& c : all) {
    const test::TemporaryFolder folder;
    const Model model = loaded(c, folder);
    EXPECT_TRUE(model.reads_images());
    const std::vector<Tensor> images = c.images();
    for (const Json& chat : c.json["chats"]) {
      SCOPED_TRACE(c.name + " " + chat["name"].get<std::string>());
      const std::vector<Message> messages = messages_of(chat, images);
      EXPECT_EQ(model.render(messages), chat["prompt"].get<std::string>());
      const Prompt prompt = model.chat_prompt(messages);
      std::vector<std::int32_t> tokens = prompt.tokens();
      for (std::int32_t& id : tokens)
        if (detail::is_image_row(id)) id = c.json["row_token"].get<std::int32_t>();
      EXPECT_EQ(tokens, chat["tokens"].get<std::vector<std::int32_t>>());
      EXPECT_EQ(prompt.image_count(), chat["images"].get<std::size_t>());

      const std::vector<float> logits = model.forward(prompt);
      const auto width = static_cast<std::size_t>(model.vocabulary());
      double worst = 0;
      for (std::size_t r = 0; r < chat["rows"].size(); ++r)
        for (std::size_t i = 0; i < width; ++i)
          worst = std::max(worst, std::abs(double{logits[chat["rows"][r].get<std::size_t>() * width + i]} -
                                           chat["logits"][r][i].get<double>()));
      EXPECT_LT(worst, c.name.starts_with("gemma3") ? 6e-5 : 2e-5);  // norms of 1 + w make Gemma's states larger
      const auto wanted = chat["greedy"].get<std::vector<std::int32_t>>();
      EXPECT_EQ(ids_of(model.chat(messages, greedy(static_cast<Extent>(wanted.size()))).result()), wanted);
      // Guesses change nothing, and never guess an image.
      GenerateOptions guessing = greedy(static_cast<Extent>(wanted.size()));
      guessing.draft = 4;
      EXPECT_EQ(ids_of(model.chat(messages, guessing).result()), wanted);
    }
  }
}

TEST(LlmImages, ManyPromptsRunSideBySide) {
  for (const char* name :
       {"llava", "llava-next", "internvl", "idefics3", "qwen2-5-vl", "qwen3-vl", "gemma3-images", "mistral3"}) {
    const VisionCase c = image_case(name);
    const test::TemporaryFolder folder;
    const Model model = loaded(c, folder, {.sequences = 3});
    const std::vector<Tensor> images = c.images();
    Batch batch(model);
    std::map<Batch::Id, std::string> wanted;
    const auto text_of = [&](const Json& ids) { return model.decode(ids.get<std::vector<std::int32_t>>()); };
    for (std::size_t i = 0; i < 3; ++i) {
      const Json& chat = c.json["chats"][i];
      wanted[batch.add(model.chat_prompt(messages_of(chat, images)), greedy(12))] = text_of(chat["greedy"]);
    }
    while (!batch.empty())
      for (const Batch::Progress& progress : batch.step()) {
        if (!progress.has_ended) continue;
        EXPECT_EQ(progress.error, "");
        EXPECT_EQ(model.decode(ids_of(batch.result(progress.id))), wanted.at(progress.id));
        batch.remove(progress.id);
      }
  }
}

TEST(LlmImages, TheCacheKnowsWhichImageItHolds) {
  const VisionCase c = image_case("llava");
  const test::TemporaryFolder folder;
  const Model model = loaded(c, folder);
  const std::vector<Tensor> images = c.images();
  const auto asked = [&](const Tensor& image, const std::string& question) {
    return model.describe_image(image, question, greedy(4)).result();
  };
  const Result first = asked(images[0], "What?");
  EXPECT_EQ(first.reused_tokens, 0);
  // The same pixels in another tensor are the same image.
  const Tensor same = tensor<std::uint8_t>(images[0].to_vector<std::uint8_t>(), images[0].shape());
  EXPECT_EQ(asked(same, "What?").reused_tokens, first.prompt_tokens - 1);
  // "user:" and the 16 rows of the image; then the questions differ.
  EXPECT_EQ(asked(images[0], "Who?").reused_tokens, 5 + 16 + 2);
  EXPECT_EQ(asked(images[1], "Who?").reused_tokens, 5);
  // One pixel differs.
  std::vector<std::uint8_t> pixels = images[1].to_vector<std::uint8_t>();
  pixels[pixels.size() / 2] ^= 0x40;
  EXPECT_EQ(asked(tensor<std::uint8_t>(pixels, images[1].shape()), "Who?").reused_tokens, 5);
  const Prompt one = model.chat_prompt({{.role = "user", .parts = {images[0]}}}),
               two = model.chat_prompt({{.role = "user", .parts = {images[1]}}});
  EXPECT_EQ(one.size(), two.size());
  EXPECT_NE(one.tokens(), two.tokens());
}

TEST(LlmImages, ADeviceSeesWhatTheCpuSees) {
  if (default_device().kind == Device::Kind::cpu) GTEST_SKIP() << "WEFT_DEVICE names no other device";
  for (const char* name : {"qwen2-5-vl", "gemma3-images", "llava-next", "internvl-rms"}) {
    SCOPED_TRACE(name);
    const VisionCase c = image_case(name);
    const test::TemporaryFolder folder;
    const Model model = loaded(c, folder), on_cpu = load(folder.path(), {.device = kCpu});
    // Two images of one size, which the tower sees in one pass.
    const Tensor image = c.images()[0];
    std::vector<std::uint8_t> pixels = image.to_vector<std::uint8_t>();
    std::reverse(pixels.begin(), pixels.end());
    const auto messages = messages_of(c.json["chats"][2], {image, tensor<std::uint8_t>(pixels, image.shape())});
    const std::vector<float> logits = model.forward(model.chat_prompt(messages)),
                             wanted = on_cpu.forward(on_cpu.chat_prompt(messages));
    double worst = 0;
    for (std::size_t i = 0; i < wanted.size(); ++i) worst = std::max(worst, std::abs(double{logits[i]} - wanted[i]));
    EXPECT_LT(worst, 2e-3);
  }
}

TEST(LlmImages, AConversationGoesOnBehindItsImages) {
  // Places behind images of several sizes, kept rows of images that see themselves whole, and an image in place of another.
  for (const char* name : {"qwen2-5-vl", "qwen3-vl", "gemma3-crops", "pixtral", "llava-next"}) {
    SCOPED_TRACE(name);
    const VisionCase c = image_case(name);
    const test::TemporaryFolder folder;
    const Model model = loaded(c, folder, {.context = 512}), other = load(folder.path(), {.context = 512});
    const std::vector<Tensor> images = c.images();
    std::vector<Message> messages = {{.role = "user", .parts = {images[0], "What is this?"}}};
    for (int turn = 0; turn < 2; ++turn) {
      const Result kept = model.chat(messages, greedy(6)).result();
      EXPECT_EQ(kept.reused_tokens > 0, turn > 0);
      const Result fresh = load(folder.path(), {.context = 512}).chat(messages, greedy(6)).result();
      EXPECT_EQ(ids_of(kept), ids_of(fresh));
      messages.push_back({"assistant", "Well."});
      messages.push_back({.role = "user", .parts = {"And ", images[1], "?"}});
    }
    messages[0].parts[0] = images[1];
    const Result changed = model.chat(messages, greedy(6)).result();
    EXPECT_LT(changed.reused_tokens, 40);  // the text in front of the image, which Gemma writes before crops
    EXPECT_EQ(ids_of(changed), ids_of(other.chat(messages, greedy(6)).result()));
  }
}

TEST(LlmImages, ImagesOfOneShapeAreSeenTogether) {
  // Seen in one pass of the tower, or each by a question about it before: the same bits on the CPU. Kernels of a GPU depend on sizes.
  const float tolerance = default_device().kind == Device::Kind::cpu ? 0 : 1e-4f;
  for (const VisionCase& c : test::vision_cases(WEFT_TEST_IMAGES)) {
    SCOPED_TRACE(c.name);
    const test::TemporaryFolder folder;
    const Model together = loaded(c, folder, {.context = 2048}), apart = load(folder.path(), {.context = 2048});
    std::vector<Tensor> images;
    for (std::uint8_t i = 0; i < 5; ++i) {
      std::vector<std::uint8_t> pixels(35 * 28 * 3);
      for (std::size_t j = 0; j < pixels.size(); ++j) pixels[j] = static_cast<std::uint8_t>(j * (7 + i) + 31 * i);
      images.push_back(tensor<std::uint8_t>(pixels, {35, 28, 3}));
    }
    Message question{.role = "user", .parts = {"Which?"}};
    for (const Tensor& image : images) {
      question.parts.emplace_back(image);
      (void)apart.forward(apart.chat_prompt({{.role = "user", .parts = {image}}}));
    }
    const Prompt prompt = together.chat_prompt({question});
    const std::vector<float> seen = together.forward(prompt), wanted = apart.forward(apart.chat_prompt({question}));
    ASSERT_EQ(seen.size(), wanted.size());
    for (std::size_t i = 0; i < seen.size(); ++i) ASSERT_NEAR(seen[i], wanted[i], tolerance) << i;
  }
}

TEST(LlmImages, ImagesKeepTheirProportions) {
  const VisionCase c = image_case("qwen2-vl");  // rows of 14 x 14 pixels, 5 to 14 of them
  const test::TemporaryFolder folder;
  const Model model = loaded(c, folder);
  const auto rows = [&](Extent height, Extent width) {
    const Prompt prompt = model.chat_prompt({{.role = "user", .parts = {zeros({height, width, 3}, DType::u8)}}});
    return std::count_if(prompt.tokens().begin(), prompt.tokens().end(), detail::is_image_row);
  };
  EXPECT_EQ(rows(42, 28), 6);       // as it is
  EXPECT_EQ(rows(300, 300), 9);     // smaller
  EXPECT_EQ(rows(7, 7), 9);         // larger
  EXPECT_EQ(rows(14, 140), 10);     // one row of them
  EXPECT_EQ(rows(35, 14 * 5), 10);  // halves go to the even number: 2.5 becomes 2
  EXPECT_NE(refusal_of([&] { (void)rows(1, 201); }).find("too narrow a strip"), std::string::npos);
  const std::string text = refusal_of([&] { (void)model.describe_image(zeros({3, 15, 14}), "x"); });
  EXPECT_NE(text.find("with sides that are multiples of 14"), std::string::npos) << text;
  // Pixels that are ready, of any size.
  const Tensor image = c.images()[1];
  const auto processor = vision::ImageProcessor::from_folder(folder.path());
  const image::Pixels pixels{image.dim(0), image.dim(1), 3, image.to_vector<std::uint8_t>()};
  const image::Pixels tile = processor.prepare(pixels).tiles[0];
  const Tensor ready = tensor<float>(processor.normalized(tile), {3, tile.height, tile.width});
  EXPECT_EQ(model.describe_image(ready, "What?", greedy(6)).result().text,
            model.describe_image(image, "What?", greedy(6)).result().text);
}

TEST(LlmImages, ImagesAreCutIntoAsManyPartsAsByTransformers) {
  for (const char* name : {"llava-next", "llava-next-siglip", "internvl", "internvl-whole"}) {
    const VisionCase c = image_case(name);
    const test::TemporaryFolder folder;
    const Model model = loaded(c, folder);
    for (const Json& size : c.json["sizes"]) {
      SCOPED_TRACE(c.name + " " + size.dump());
      const Tensor image = zeros({size[0].get<Extent>(), size[1].get<Extent>(), 3}, DType::u8);
      const Prompt prompt = model.chat_prompt({{.role = "user", .parts = {image}}});
      EXPECT_EQ(std::count_if(prompt.tokens().begin(), prompt.tokens().end(), detail::is_image_row),
                size[2].get<Extent>());
    }
  }
  // No size of LLaVA-NeXT leaves a pixel of such a strip.
  const test::TemporaryFolder folder;
  const Model model = loaded(image_case("llava-next"), folder);
  const std::string text = refusal_of([&] { (void)model.describe_image(zeros({1, 200, 3}, DType::u8), "x"); });
  EXPECT_NE(text.find("an image of 1 x 200 pixels is too narrow a strip"), std::string::npos) << text;
}

TEST(LlmImages, PartsThatLookTheSameMayBeOfImagesThatDiffer) {
  // Both are black in all parts, and one has more lines.
  const VisionCase c = image_case("llava-next");
  const test::TemporaryFolder folder;
  const Model model = loaded(c, folder), other = load(folder.path());
  const auto asked = [](const Model& m, Extent height) {
    return ids_of(m.describe_image(zeros({height, 84, 3}, DType::u8), "What?", greedy(6)).result());
  };
  (void)asked(model, 28);
  EXPECT_EQ(asked(model, 14), asked(other, 14));
}

TEST(LlmImages, AFolderWithoutSettingsOfImagesReadsTexts) {
  const VisionCase c = image_case("gemma3-images");
  const test::TemporaryFolder folder;
  c.put_into(folder);
  std::filesystem::remove(folder / "preprocessor_config.json");
  const Model model = load(folder.path());
  EXPECT_FALSE(model.reads_images());
  EXPECT_NE(model.describe().find("reads texts alone"), std::string::npos) << model.describe();
  EXPECT_EQ(ids_of(model.chat({{"user", "Hello"}}, greedy(12)).result()),
            c.json["chats"][3]["greedy"].get<std::vector<std::int32_t>>());
  const std::string text = refusal_of([&] { (void)model.describe_image(c.images()[0], "x"); });
  EXPECT_NE(text.find("has no preprocessor_config.json, which says how images are resized"), std::string::npos) << text;
}

TEST(LlmImages, ALanguageModelAloneGoesIntoGguf) {
  for (const char* name : {"qwen2-vl", "qwen2-5-vl-flat"}) {
    const VisionCase c = image_case(name);
    const test::TemporaryFolder folder;
    const Model model = loaded(c, folder);
    const Converted converted = convert_to_gguf(io::TensorSource::open(folder.path()), folder / "model.gguf");
    ASSERT_FALSE(converted.notes.empty());
    const Model text = load(folder / "model.gguf", {.mmproj = "none"});
    EXPECT_FALSE(text.reads_images());
    const std::vector<std::int32_t> tokens = {72, 5, 9, 130, 44, 7};
    const std::vector<float> logits = text.forward(tokens), wanted = model.forward(tokens);
    ASSERT_EQ(logits.size(), wanted.size());
    for (std::size_t i = 0; i < wanted.size(); ++i) ASSERT_NEAR(logits[i], wanted[i], 1e-5) << i;
    convert_to_folder(io::TensorSource::open(folder / "model.gguf"), folder / "text", {.mmproj = "none"});
    EXPECT_EQ(read_json_file(folder / "text" / "config.json")["model_type"], "qwen2");
  }
}

TEST(LlmImages, ReadyPixelsAndRawPromptsAreTaken) {
  const VisionCase c = image_case("llava");
  const test::TemporaryFolder folder;
  const Model model = loaded(c, folder);
  const Tensor image = c.images()[0];
  const auto processor = vision::ImageProcessor::from_folder(folder.path());
  const image::Pixels pixels{image.dim(0), image.dim(1), 3, image.to_vector<std::uint8_t>()};
  const Tensor ready = tensor<float>(processor.normalized(processor.prepare(pixels).tiles[0]), {3, 28, 28});
  const std::string text = model.describe_image(image, "What is this?", greedy(8)).result().text;
  EXPECT_EQ(model.describe_image(ready, "What is this?", greedy(8)).result().text, text);
  const Prompt prompt = model.prompt(c.json["chats"][0]["prompt"].get<std::string>(), {&image, 1});
  EXPECT_EQ(model.generate(prompt, greedy(8)).result().text, text);
}

TEST(LlmImages, MessagesWithoutPartsReachTemplatesOfLists) {
  const VisionCase c = image_case("llava");
  const test::TemporaryFolder folder;
  const Model model = loaded(c, folder);
  const std::string wanted = c.json["chats"][3]["prompt"];
  EXPECT_EQ(model.render({{"user", "Hello"}}), wanted);
  // And parts that are texts reach templates of texts, as one.
  const Model plain = load(folder.path(), {.chat_template = "{{ messages[0]['content'] }}"});
  EXPECT_EQ(plain.render({{.role = "user", .parts = {"Hel", "lo"}}}), "Hello");
}

TEST(LlmImages, TheStoreKeepsIdsApart) {
  detail::ImageStore store;
  const auto image = [](std::uint8_t value) {
    return vision::PreparedImage{{{2, 2, 3, std::vector<std::uint8_t>(12, value)}}};
  };
  const auto one = store.put(image(1), 4, 8), two = store.put(image(2), 6, 8);
  EXPECT_EQ(store.put(image(1), 4, 8), one);
  EXPECT_EQ(one->first, -2);
  EXPECT_EQ(two->first, -6);
  EXPECT_EQ(store.find(-5), one);
  EXPECT_EQ(store.find(-6), two);
  EXPECT_EQ(store.find(-11), two);
  EXPECT_EQ(store.find(-12), nullptr);
  // Images that nobody refers to go when there are too many; those of prompts stay.
  const auto first = two->first;
  for (std::uint8_t i = 10; i < 40; ++i) (void)store.put(image(i), 1, 4 << 20);  // 16 MiB each
  EXPECT_LE(store.size(), 20u);
  EXPECT_EQ(store.find(first), two);
  EXPECT_EQ(store.find(-17), nullptr);
  EXPECT_LT(store.put(image(10), 1, 4 << 20)->first, -40);  // forgotten: it gets other ids
}

TEST(LlmImages, WhatDoesNotFitIsRefused) {
  const VisionCase c = image_case("llava");
  const test::TemporaryFolder folder;
  const Model model = loaded(c, folder);
  const Tensor image = c.images()[0];
  const auto has = [](const std::string& text, const std::string& part) {
    EXPECT_NE(text.find(part), std::string::npos) << text;
  };
  // What a user writes is text, and no place for an image.
  const auto typed = model.chat_prompt({{"user", "<image>"}});
  EXPECT_EQ(typed.image_count(), 0u);
  EXPECT_EQ(std::count(typed.tokens().begin(), typed.tokens().end(), 257), 0);
  has(refusal_of([&] {
        (void)model.prompt("no marker", {&image, 1});
      }),
      "the text has 0 places for images (\"<image>\"), and there is 1");
  has(refusal_of([&] {
        (void)model.chat_prompt({{.role = "user", .parts = {zeros({2, 2}, DType::u8)}}});
      }),
      "llm: the image is u8 [2, 2]; give u8 [height, width, 3]");
  has(refusal_of([&] {
        (void)model.describe_image(zeros({3, 2, 2}), "x");
      }),
      "an image f32 [3, 2, 2]; give u8 [height, width, 3], or f32 [3, 28, 28]");
  const std::vector<std::int32_t> unknown = {-1000};
  has(refusal_of([&] { (void)model.forward(unknown); }), "-1000 is neither a token nor a row of an image");

  const test::TemporaryFolder other;
  other.put("chat.jinja", "{{ messages[0]['role'] }}");
  const Model forgetful = load(folder.path(), {.chat_template = "{{ messages[0]['role'] }}"});
  has(refusal_of([&] { (void)forgetful.describe_image(image, "x"); }),
      "the chat template's text has 0 places for images");

  const auto text_only = test::tiny_models()[0];
  const test::TemporaryFolder plain;
  test::put(text_only, plain);
  const Model blind = load(plain.path(), {.chat_template = "{{ messages[0]['role'] }}"});
  has(refusal_of([&] { (void)blind.describe_image(image, "x"); }), "the model reads no images");
  EXPECT_FALSE(blind.reads_images());
}

TEST(LlmImages, FilesThatDoNotFitAreRefused) {
  const auto refused = [&](const char* name, const std::function<void(Json&)>& change, const std::string& part) {
    VisionCase c = image_case(name);
    change(c.json);
    const test::TemporaryFolder folder;
    c.put_into(folder);
    const std::string text = refusal_of([&] { (void)load(folder.path()); });
    EXPECT_NE(text.find(part), std::string::npos) << text;
  };
  const auto config = [](const char* key, const Json& value) {
    return [=](Json& json) { json["config"][key] = value; };
  };
  refused("llava", config("vision_feature_layer", 9), "vision_feature_layer is 9; give up to 64 layers from -4 to 3");
  refused("llava", config("vision_feature_layer", "last"), "vision_feature_layer is \"last\"");
  refused("llava", config("vision_feature_layer", Json::array()), "vision_feature_layer is empty");
  refused("llava", config("vision_feature_select_strategy", "best"), "known are default and full");
  refused("llava", config("image_token_index", 4000), "the token 4000 of images is not in tokenizer.json");
  refused("llava", config("projector_hidden_act", "relu"), "projector_hidden_act is \"relu\"");
  refused(
      "llava", [](Json& json) { json["tensors"].erase("multi_modal_projector.linear_2.weight"); },
      "missing: multi_modal_projector.linear_2.weight [32, 32]");
  refused(
      "llava", [](Json& json) { json["config"]["vision_config"]["model_type"] = "resnet"; },
      "model_type is \"resnet\"; Weft's LLaVA sees by");
  refused(
      "llava", [](Json& json) { json["processor"]["crop_size"] = 21; }, "images of 21 x 21 pixels do not fit");
  refused("idefics3", config("scale_factor", 3), "proj.weight is [32, 128], the configuration asks for [32, 288]");
  refused(
      "idefics3", [](Json& json) { json["processor"]["max_image_size"]["longest_edge"] = 21; },
      "images of 21 x 21 pixels do not fit the model, which has image_size 28, patch_size 7 and scale_factor 2");
  refused(
      "idefics3", [](Json& json) { json["processor"]["size"]["longest_edge"] = 4000; },
      "size cuts 4000 pixels into parts of 28; Weft has at most 16 of them on a side");
  refused("idefics3", config("scale_factor", 0), "scale_factor is 0, not from 1 to 16");
  const auto of_tower = [](const char* key, const Json& value) {
    return [=](Json& json) { json["config"]["vision_config"][key] = value; };
  };
  refused("qwen2-vl", of_tower("hidden_size", 24), "makes rows of 24, and the language model has a width of 32");
  refused("qwen2-vl", of_tower("num_heads", 3), "vision_config.num_heads is 3, which does not cut 32 channels");
  refused("qwen2-5-vl", of_tower("fullatt_block_indexes", {9}), "fullatt_block_indexes has 9; the tower has 3 layers");
  refused("qwen3-vl", of_tower("num_position_embeddings", 24), "is 24, which is not the square of a whole number");
  refused("qwen3-vl", of_tower("deepstack_visual_indexes", {2, 0}), "is not a growing list");
  refused("gemma3-images", config("mm_tokens_per_image", 9),
          "is 9, not the square of a number that divides the 4 patches");
  const auto of_processor = [](const char* key, const Json& value) {
    return [=](Json& json) { json["processor"][key] = value; };
  };
  refused("llava-next", config("image_grid_pinpoints", {{28, 56}}),
          "image_grid_pinpoints is [[28,56]], and the settings of images have [[28,56],[56,28]");
  refused("llava-next", of_processor("image_grid_pinpoints", {{28, 50}}),
          "has a size that is not [height, width] in multiples of 28 up to 448");
  refused("llava-next", of_processor("image_grid_pinpoints", 3),
          "image_grid_pinpoints is not a list of 1 to 1000 sizes");
  refused("llava-next", of_processor("size", {{"shortest_edge", 56}}), "crop_size is 28, and size is 56");
  refused("llava-next", config("vision_feature_select_strategy", "full"),
          "the class token has no place in lines of rows");
  refused(
      "llava-next", [](Json& json) { json["tensors"].erase("image_newline"); }, "missing: image_newline [32]");
  refused(
      "llava-next",
      [](Json& json) {
        json["processor"] = Json{{"image_processor_type", "CLIPImageProcessor"}};
      },
      "do not make squares as the model reads them");
  refused("internvl", of_processor("max_patches", 0),
          "max_patches is 0, and min_patches is 1; give numbers from 1 to 256");
  refused("internvl", of_processor("size", {{"height", 28}, {"width", 14}}), "size has sides that differ");
  refused("internvl", config("downsample_ratio", 0.3),
          "downsample_ratio is 0.3, not 1 through a number that divides the 4");
  refused("internvl", config("vision_feature_layer", -2), "vision_feature_layer is -2; Weft's InternVL takes the last");
  refused("internvl", of_tower("norm_type", "batch_norm"), "known are layer_norm and rms_norm");
  refused("internvl", of_tower("image_size", {28, 14}), "image_size is [28,14], not two sides that are the same");
  refused("mistral3", config("vision_feature_layer", {-1, 1}), "is not one layer, which Weft's Pixtral needs");
  refused(
      "qwen2-vl",
      [](Json& json) {
        json["config"]["text_config"]["rope_parameters"]["mrope_section"] = {1, 2};
      },
      "mrope_section is [1, 2], not three numbers that add up to 4");
  refused(
      "pixtral",
      [](Json& json) {
        json["processor"] = Json{{"image_processor_type", "CLIPImageProcessor"}};
      },
      "do not keep their proportions");
  refused(
      "idefics3",
      [](Json& json) {
        json["processor"] = Json{{"image_processor_type", "CLIPImageProcessor"}};
      },
      "do not make squares as the model reads them");
}

}  // namespace
}  // namespace weft::llm::images_test
