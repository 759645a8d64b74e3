// Vision and speech models as operations, beside the models themselves: answers, segments as they come, rights, errors.
#include <gtest/gtest.h>

#include "io/tensor_source.hpp"
#include "llm/convert.hpp"
#include "operations/code_of.hpp"
#include "speech/tiny_detector.hpp"
#include "speech/tiny_voice.hpp"
#include "speech/tiny_whisper.hpp"
#include "vision/vision_cases.hpp"
#include "weft/catalogue.hpp"
#include "weft/image.hpp"
#include "weft/ops.hpp"
#include "weft/speech.hpp"
#include "weft/vision.hpp"

namespace weft::operations::sense_test {
namespace {

using test::code_of;
Value members(std::initializer_list<ValueObject::Member> list) { return Value::object(list); }
test::VisionCase vision_case(const char* folder, const std::string& name) {
  return {name, read_json_file(std::filesystem::path(folder) / (name + ".json"))};
}

struct SenseOperations : testing::Test {
  SenseOperations() { set_default_device(parse_device("cpu")); }
  std::shared_ptr<Registry> registry = std::make_shared<Registry>();
  Catalogue catalogue{registry, {.any_files = true}};
  Exchange exchange{registry};
  CallOptions owner{.identity = registry->owner()};

  Value call(std::string_view id, Value input) { return exchange.call(id, std::move(input), owner).data; }
  std::string code(std::string_view id, Value input) {
    return code_of([&] { call(id, std::move(input)); });
  }
  void load_vision(const char* name) {
    const test::TemporaryFolder folder;
    vision_case(WEFT_TEST_VISION, name).put_into(folder);
    call("vision.load", members({{"model", name}, {"path", folder.path().string()}}));
  }
};

TEST_F(SenseOperations, VisionAnswersAsTheModelsDo) {
  load_vision("clip");
  load_vision("vit");
  const test::VisionCase clip = vision_case(WEFT_TEST_VISION, "clip"), vit = vision_case(WEFT_TEST_VISION, "vit");
  EXPECT_EQ(call("vision.list", members({}))["models"], Value::array({"clip", "vit"}));
  EXPECT_EQ(call("vision.describe", members({{"model", "clip"}}))["kind"], Value("encoder"));
  EXPECT_EQ(call("vision.describe", members({{"model", "vit"}}))["kind"], Value("classifier"));
  Value::Array images, files, texts;
  for (const Tensor& image : clip.images()) {
    images.emplace_back(image);
    const std::vector<std::byte> png = image::encode_png(image);
    files.emplace_back(tensor_from_bytes(png.data(), {static_cast<Extent>(png.size())}, DType::u8));
  }
  for (const Json& text : clip.json["texts"]) texts.emplace_back(text.get<std::string>());
  const Value rows = call("vision.embed", members({{"model", "clip"}, {"images", images}, {"texts", texts}}));
  for (const auto& [name, wanted] : {std::pair{"images", "image_rows"}, std::pair{"texts", "text_rows"}}) {
    const std::vector<float> values = rows[name].tensor().to_vector<float>();
    std::size_t at = 0;
    for (const Json& row : clip.json[wanted])
      for (const Json& x : row) EXPECT_NEAR(values.at(at++), x.get<double>(), 5e-6);
  }
  EXPECT_EQ(call("vision.embed", members({{"model", "clip"}, {"images", files}}))["images"].tensor().to_vector<float>(),
            rows["images"].tensor().to_vector<float>());
  const Tensor shares =
      call("vision.compare", members({{"model", "clip"}, {"images", files}, {"texts", texts}}))["probabilities"]
          .tensor();
  EXPECT_EQ(shares.shape(), (Shape{static_cast<Extent>(images.size()), static_cast<Extent>(texts.size())}));
  const Value labels =
      call("vision.classify", members({{"model", "vit"}, {"image", vit.images()[0]}, {"count", 2}}))["labels"];
  ASSERT_EQ(labels.elements().size(), 2u);
  const std::vector<double> logits = vit.json["logits"][0].get<std::vector<double>>();
  EXPECT_EQ(labels[std::size_t{0}]["index"].integer(), std::max_element(logits.begin(), logits.end()) - logits.begin());

  EXPECT_EQ(code("vision.classify", members({{"model", "clip"}, {"image", images[0]}})), "WRONG_MODEL");
  EXPECT_EQ(code("vision.embed", members({{"model", "vit"}, {"texts", texts}})), "WRONG_MODEL");
  EXPECT_EQ(code("vision.embed", members({{"model", "clip"}})), "USAGE_ERROR");
  EXPECT_EQ(code("vision.embed", members({{"model", "none"}, {"texts", texts}})), "VISION_MODEL_NOT_FOUND");
  EXPECT_EQ(code("vision.load", members({{"model", "clip"}, {"path", "/none"}})), "VISION_MODEL_EXISTS");
  EXPECT_EQ(code("vision.load", members({{"model", "other"}, {"path", "/none"}})), "FILE_ERROR");
  call("vision.unload", members({{"model", "clip"}}));
  EXPECT_EQ(code("vision.describe", members({{"model", "clip"}})), "VISION_MODEL_NOT_FOUND");
}

TEST_F(SenseOperations, ADetectorFindsTheSpeech) {
  const test::TemporaryFolder folder;
  const std::string path = (folder / "ears.onnx").string();
  test::put_detector(path);
  EXPECT_EQ(call("speech.load", members({{"model", "d"}, {"path", path}}))["kind"], Value("detector"));
  audio::Sound sound{std::vector<float>(16000, 0), 1, 16000};
  std::fill(sound.samples.begin() + 5000, sound.samples.begin() + 9000, 0.02f);
  const Value input = members({{"model", "d"}, {"sound", audio::to_tensor(sound)}, {"rate", sound.rate}});
  const Value found = call("speech.spans", input)["spans"];
  EXPECT_EQ(found, speech::to_value(speech::load_detector(path).spans(sound)));
  ASSERT_EQ(found.elements().size(), 1u);
  EXPECT_NEAR(found[std::size_t{0}][std::size_t{0}].number(), 5000.0 / 16000, 0.1);
  EXPECT_NEAR(found[std::size_t{0}][std::size_t{1}].number(), 9000.0 / 16000, 0.1);
  Value strict = input;
  strict.members().set("speech_min", 1);
  EXPECT_TRUE(call("speech.spans", strict)["spans"].elements().empty());
  EXPECT_EQ(code("speech.transcribe", input), "WRONG_MODEL");
  strict.members().set("margin", 61);
  EXPECT_NE(code("speech.spans", strict), "");
}

TEST_F(SenseOperations, SpeechIsWrittenDownSegmentBySegment) {
  const test::TemporaryFolder folder;
  test::put_whisper(folder);
  const speech::Transcriber model = speech::load_transcriber(folder.path());
  EXPECT_EQ(call("speech.load", members({{"model", "w"}, {"path", folder.path().string()}}))["kind"],
            Value("transcriber"));
  const audio::Sound sound = test::whisper_sound(2.9);
  const speech::TranscribeOptions how{
      .language = "de", .words = true, .temperatures = {0}, .beam_size = 2, .condition_on_previous = false};
  const Value wanted = speech::to_value(model.transcribe(sound, how));
  ASSERT_GE(wanted["segments"].elements().size(), 3u);
  const Value input = members({{"model", "w"},
                               {"sound", audio::to_tensor(sound)},
                               {"rate", sound.rate},
                               {"language", "german"},
                               {"words", true},
                               {"beam_size", 2},
                               {"temperatures", Value::array({0})},
                               {"condition_on_previous", false}});
  EXPECT_EQ(call("speech.transcribe", input), wanted);
  EXPECT_FALSE(wanted["segments"][std::size_t{0}]["words"].elements().empty());
  // The sound as a file.
  Value as_file = input;
  const std::vector<std::byte> wav = audio::wav_bytes(sound, audio::SampleFormat::f32);
  as_file.members().set("sound", tensor_from_bytes(wav.data(), {static_cast<Extent>(wav.size())}, DType::u8));
  EXPECT_EQ(call("speech.transcribe", as_file), wanted);
  operations::Subscription answers = exchange.subscribe("speech.stream", input, owner);
  Value::Array segments;
  Value transcript;
  while (const auto answer = answers.next()) {
    if (const Value* segment = answer->data.find("segment")) {
      EXPECT_TRUE(transcript.is_null());
      segments.push_back(*segment);
    } else {
      transcript = answer->data["transcript"];
    }
  }
  EXPECT_EQ(Value(segments), wanted["segments"]);
  EXPECT_EQ(transcript, wanted);
  const Value languages =
      call("speech.detect_language",
           members({{"model", "w"}, {"sound", audio::to_tensor(sound)}, {"rate", 16000}}))["languages"];
  EXPECT_EQ(languages[std::size_t{0}]["language"], Value(model.detect_language(sound)[0].first));

  EXPECT_EQ(code("speech.speak", members({{"model", "w"}, {"text", "hello"}})), "WRONG_MODEL");
  Value wrong = input;
  wrong.members().set("language", "xx");
  EXPECT_EQ(code("speech.transcribe", wrong), "USAGE_ERROR");
  // Eleven thousand seconds, in 44 KB.
  EXPECT_EQ(code("speech.transcribe", members({{"model", "w"}, {"sound", zeros({11'000})}, {"rate", 1}})),
            "USAGE_ERROR");
}

TEST_F(SenseOperations, AnAbortedTranscriptionEnds) {
  const test::TemporaryFolder folder;
  test::put_whisper(folder);
  call("speech.load", members({{"model", "w"}, {"path", folder.path().string()}}));
  PendingCall pending = exchange.start(
      "speech.transcribe",
      members({{"model", "w"}, {"sound", zeros({16000 * 600})}, {"rate", 16000}, {"language", "de"}}), owner);
  exchange.abort(pending.request_id());
  EXPECT_EQ(code_of([&] { pending.get(); }), "ABORTED");
  // The model is free again.
  EXPECT_EQ(code("speech.describe", members({{"model", "w"}})), "none");
}

TEST_F(SenseOperations, VoicesSpeak) {
  const test::TemporaryFolder folder;
  test::put_voice(folder, test::vits_golden().at("predicted"));
  EXPECT_EQ(call("speech.load", members({{"model", "v"}, {"path", folder.path().string()}}))["kind"], Value("voice"));
  const Value said =
      call("speech.speak", members({{"model", "v"}, {"text", "hello there"}, {"seed", 3}, {"rate", 1.5}}));
  const audio::Sound wanted = speech::load_voice(folder.path()).speak("hello there", {.rate = 1.5, .seed = 3});
  EXPECT_EQ(said["rate"], Value(wanted.rate));
  EXPECT_EQ(said["sound"].tensor().to_vector<float>(), wanted.samples);
  EXPECT_EQ(code("speech.speak", members({{"model", "v"}, {"text", "123"}})), "USAGE_ERROR");
}

TEST_F(SenseOperations, RightsAreOnModelsByName) {
  load_vision("vit");
  const Value look = members({{"model", "vit"}, {"image", zeros({8, 8, 3}, DType::u8)}});
  const auto as = [&](std::vector<std::string> scopes, std::map<std::string, std::vector<std::string>> resources,
                      std::string_view id, Value input) {
    return code_of([&] {
      exchange.call(id, std::move(input), {.identity = Identity{"ann", std::move(scopes), std::move(resources)}});
    });
  };
  EXPECT_EQ(as({}, {}, "vision.classify", look), "ACCESS_DENIED");
  EXPECT_EQ(as({}, {{"vision:other", {"run"}}}, "vision.classify", look), "ACCESS_DENIED");
  EXPECT_EQ(as({}, {{"vision:vit", {"describe"}}}, "vision.classify", look), "ACCESS_DENIED");
  EXPECT_EQ(as({}, {{"vision:vit", {"run"}}}, "vision.classify", look), "none");
  const Value load = members({{"model", "more"}, {"path", "/none"}});
  EXPECT_EQ(as({"vision:load"}, {{"vision:*", {"load"}}}, "vision.load", load),
            "ACCESS_DENIED");  // no right to read the files
  EXPECT_EQ(as({}, {{"vision:*", {"load"}}, {"weights:*", {"read"}}}, "vision.load", load), "ACCESS_DENIED");
  EXPECT_EQ(as({"vision:load"}, {{"vision:*", {"load"}}, {"weights:*", {"read"}}}, "vision.load", load), "FILE_ERROR");
}

TEST_F(SenseOperations, ChatsSeeImages) {
  const test::VisionCase c = vision_case(WEFT_TEST_IMAGES, "llava");
  const test::TemporaryFolder folder;
  c.put_into(folder);
  call("model.load", members({{"model", "llava"}, {"path", folder.path().string()}, {"context", 128}}));
  const Json chat = c.json["chats"][0];
  const auto said = [&](Value content) {
    std::string text;
    operations::Subscription answers =
        exchange.subscribe("model.chat",
                           members({{"model", "llava"},
                                    {"max_tokens", 12},
                                    {"temperature", 0},
                                    {"messages", Value::array({members({{"role", "user"}, {"content", content}})})}}),
                           owner);
    while (const auto answer = answers.next()) text += answer->data["text"].string();
    return text;
  };
  const llm::Model model = llm::load(folder.path(), {.context = 128});
  const Tensor photo = c.images()[0];
  const std::string wanted =
      model.describe_image(photo, "What is this?", {.max_tokens = 12, .sampling = {.temperature = 0}}).result().text;
  const std::vector<std::byte> png = image::encode_png(photo);
  const Tensor file = tensor_from_bytes(png.data(), {static_cast<Extent>(png.size())}, DType::u8);
  EXPECT_EQ(said(Value::array({members({{"image", photo}}), members({{"text", "What is this?"}})})), wanted);
  EXPECT_EQ(said(Value::array({members({{"image", file}}), members({{"text", "What is this?"}})})), wanted);
  EXPECT_NE(said("What is this?"), wanted);
  EXPECT_EQ(code_of([&] {
              said(Value::array({members({{"image", tensor<std::uint8_t>({1, 2}, {2})}})}));
            }),
            "FILE_ERROR");
}

TEST_F(SenseOperations, GgufFilesSeeByAFileThatIsNamed) {
  const test::VisionCase c = vision_case(WEFT_TEST_IMAGES, "qwen2-5-vl");
  const test::TemporaryFolder folder, made;
  c.put_into(folder);
  const std::string model = (made.path() / "model.gguf").string(), tower = (made.path() / "mmproj-model.gguf").string();
  llm::convert_to_gguf(io::TensorSource::open(folder.path()), model);
  const auto message = Value::array({members(
      {{"role", "user"}, {"content", Value::array({members({{"image", c.images()[0]}}), members({{"text", "x"}})})}})});
  const auto said = [&](const char* name) {
    std::string text;
    operations::Subscription answers = exchange.subscribe(
        "model.chat", members({{"model", name}, {"max_tokens", 6}, {"temperature", 0}, {"messages", message}}), owner);
    while (const auto answer = answers.next()) text += answer->data["text"].string();
    return text;
  };
  call("model.load", members({{"model", "sees"}, {"path", model}, {"mmproj", tower}, {"context", 128}}));
  const llm::Model wanted = llm::load(folder.path(), {.context = 128});
  EXPECT_EQ(said("sees"),
            wanted.describe_image(c.images()[0], "x", {.max_tokens = 6, .sampling = {.temperature = 0}}).result().text);
  // A file that was not named is not read, though it lies beside the model.
  call("model.load", members({{"model", "blind"}, {"path", model}, {"context", 128}}));
  EXPECT_NE(code_of([&] { said("blind"); }), "none");
  EXPECT_EQ(code_of([&] {
              call("model.load", members({{"model", "other"}, {"path", model}, {"mmproj", model}}));
            }),
            "FILE_ERROR");
}

}  // namespace
}  // namespace weft::operations::sense_test
