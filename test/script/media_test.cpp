// Images, sounds, vision and speech in scripts: the same values as in C++, granted folders, limits.
#include <gtest/gtest.h>

#include <fmt/format.h>

#include "script/run_script.hpp"
#include "speech/tiny_detector.hpp"
#include "speech/tiny_voice.hpp"
#include "speech/tiny_whisper.hpp"
#include "vision/vision_cases.hpp"
#include "weft/image.hpp"
#include "weft/speech.hpp"
#include "weft/vision.hpp"

namespace weft::script::media_test {
namespace {

IsolateOptions with_folder(const std::filesystem::path& folder) {
  IsolateOptions options = small_limits();
  options.time_limit = std::chrono::minutes(1);
  options.read_folders = options.write_folders = {folder};
  return options;
}
/// Runs with the folder granted, as $ in the text.
Ran run_in(const std::filesystem::path& folder, std::string text) {
  for (std::size_t at; (at = text.find('$')) != std::string::npos;) text.replace(at, 1, folder.string());
  return run_script(text, with_folder(folder));
}
std::string printed_by(const std::filesystem::path& folder, const std::string& text) {
  const Ran ran = run_in(folder, text);
  EXPECT_EQ(ran.result.outcome, Outcome::done) << ran.result.message;
  return ran.printed;
}

TEST(ScriptMedia, ImagesGoThroughFilesAndBytes) {
  const test::TemporaryFolder folder;
  EXPECT_EQ(printed_by(folder.path(), R"(
import { image, tensor, files } from "weft";
const a = tensor([[[1, 2, 3], [200, 100, 0]], [[9, 8, 7], [255, 255, 255]]], { dtype: "u8" });
image.write("$/a.png", a);
const b = image.read("$/a.png");
console.log(b.sub(a).abs().sum().item(), b.dtype, image.decode(files.read("$/a.png")).shape.join());
console.log(image.resize(a, 1, 3, { filter: "nearest" }).shape.join(), image.centerCrop(a, 1, 1).readSync().join());
const [fine, rough] = [100, 1].map((quality) => image.encode(a, { format: "jpeg", quality }));
console.log(rough.length < fine.length, fine instanceof Uint8Array);
)"),
            "0 u8 2,2,3\n1,3,3 1,2,3\ntrue true\n");
  EXPECT_EQ(image::read(folder / "a.png").dim(0), 2);
}

TEST(ScriptMedia, SoundsGoThroughFilesAndBytes) {
  const test::TemporaryFolder folder;
  EXPECT_EQ(printed_by(folder.path(), R"(
import { audio, files, stack } from "weft";
import { tensor } from "weft";
const x = tensor(Array.from({ length: 800 }, (_, t) => 0.5 * Math.sin(0.2 * t)));
const sound = { samples: stack([x, x.neg()], 0), rate: 8000 };
audio.write("$/a.wav", sound, { format: "f32" });
const again = audio.read("$/a.wav");
console.log(again.rate, again.samples.shape.join(), again.samples.sub(sound.samples).abs().max().item());
console.log(audio.decode(files.read("$/a.wav")).samples.shape.join(), audio.encode(sound, { format: "pcm16" }).length);
console.log(audio.mono(sound).samples.abs().max().item(), audio.resample(sound, 16000).samples.shape.join());
const options = { size: 64, hop: 16, window: "hamming", centred: true };
const spectrum = audio.stft(x, options);
console.log(spectrum.real.shape.join(), audio.istft(spectrum, { ...options, length: 800 }).sub(x).abs().max().item() < 1e-5);
console.log(audio.melFilters({ mels: 20, scale: "htk" }).shape.join(), audio.logMelSpectrogram(x, 40).shape.join());
)"),
            "8000 2,800 0\n2,800 3244\n0 2,1600\n51,33 true\n20,201 40,5\n");
}

TEST(ScriptMedia, ModelsSeeAsInCpp) {
  const test::TemporaryFolder folder, clip, vit;
  const auto case_of = [](const std::string& name) {
    return test::VisionCase{name, read_json_file(std::filesystem::path(WEFT_TEST_VISION) / (name + ".json"))};
  };
  case_of("clip").put_into(clip);
  case_of("vit").put_into(vit);
  std::filesystem::rename(clip.path(), folder / "clip");
  std::filesystem::rename(vit.path(), folder / "vit");
  const Tensor photo = case_of("clip").images()[0];
  image::write(folder / "a.png", photo);
  const auto encoder = vision::Encoder::load(folder / "clip");
  const std::vector<float> wanted =
      encoder.probabilities(encoder.embed_images({photo}), encoder.embed_texts({"dog", "a photo of cat"}))
          .to_vector<float>();
  const vision::Label label = vision::Classifier::load(folder / "vit").classify(photo, 1)[0];
  EXPECT_EQ(printed_by(folder.path(), R"(
import { image, vision } from "weft";
const encoder = vision.encoder("$/clip"), classifier = vision.classifier("$/vit");
const photo = image.read("$/a.png");
const shares = encoder.probabilities(encoder.embedImages([photo]), encoder.embedTexts(["dog", "a photo of cat"]));
console.log(shares.readSync().map((x) => Math.round(x * 1e5)).join());
const [label] = classifier.classify(photo, 1);
console.log(label.index, Math.round(label.probability * 1e5), classifier.logits([photo, photo]).shape[0]);
try { encoder.classify(photo); } catch (error) { console.log(error.name, error.message); }
)"),
            fmt::format("{},{}\n{} {} 2\nUsageError classify: it is no method of the kind \"encoder\"\n",
                        std::lround(wanted[0] * 1e5), std::lround(wanted[1] * 1e5), label.index,
                        std::lround(label.probability * 1e5)));
}

TEST(ScriptMedia, ModelsHearAndSpeakAsInCpp) {
  const test::TemporaryFolder folder, whisper, voice;
  test::put_whisper(whisper);
  test::put_voice(voice, test::vits_golden().at("predicted"));
  std::filesystem::rename(whisper.path(), folder / "whisper");
  std::filesystem::rename(voice.path(), folder / "voice");
  const audio::Sound sound = test::whisper_sound(2.9);
  audio::save_wav(folder / "a.wav", sound, audio::SampleFormat::f32);
  const speech::Transcript wanted =
      speech::load_transcriber(folder / "whisper").transcribe(sound, {.language = "de", .temperatures = {0}});
  const audio::Sound said = speech::load_voice(folder / "voice").speak("hello there", {.seed = 4});
  std::string times;
  for (const speech::Segment& s : wanted.segments) times += fmt::format("{:.2f} {}\n", s.begin, s.tokens.size());
  EXPECT_EQ(printed_by(folder.path(), R"(
import { audio, speech } from "weft";
const model = speech.transcriber("$/whisper");
const made = model.transcribe(audio.read("$/a.wav"), { language: "de", temperatures: [0],
  onSegment: ({ begin, tokens, noSpeechProbability }) => console.log(begin.toFixed(2), tokens.length) });
console.log(made.segments.length, made.language, made.languageProbability, model.languages.join());
const timed = model.transcribe(audio.read("$/a.wav"), { language: "de", temperatures: [0], words: true, beamSize: 1, bestOf: 2 });
console.log(made.segments[0].words.length, timed.segments[0].words.every(({ begin, end, text }) => begin <= end && text.length > 0));
const said = speech.voice("$/voice").speak("hello there", { seed: 4 });
console.log(said.rate, said.samples.shape.join());
try { model.transcribe(audio.read("$/a.wav"), { onSegment: () => { throw new RangeError("no more"); } }); } catch (error) { console.log(error.message); }
try { model.transcribe(audio.read("$/a.wav"), { langauge: "de" }); } catch (error) { console.log(error.name); }
)"),
            times + fmt::format("{} de 1 en,de,fr\n0 true\n{} 1,{}\nno more\nUsageError\n", wanted.segments.size(),
                                said.rate, said.samples.size()));
}

TEST(ScriptMedia, ADetectorFindsTheSpeech) {
  const test::TemporaryFolder folder;
  test::put_detector(folder / "ears.onnx");
  std::filesystem::create_symlink(folder / "ears.onnx", folder / "link.onnx");
  audio::Sound sound{std::vector<float>(16000, 0), 1, 16000};
  std::fill(sound.samples.begin() + 5000, sound.samples.begin() + 9000, 0.02f);
  audio::save_wav(folder / "a.wav", sound, audio::SampleFormat::f32);
  const speech::Detector detector = speech::load_detector(folder / "ears.onnx");
  const std::vector<speech::Span> wanted = detector.spans(sound), loose = detector.spans(sound, {.threshold = 0.1});
  ASSERT_EQ(wanted.size(), 1u);
  EXPECT_EQ(printed_by(folder.path(), R"(
import { audio, speech } from "weft";
const detector = speech.detector("$/ears.onnx");
const sound = audio.read("$/a.wav");
for (const [begin, end] of detector.spans(sound)) console.log(begin.toFixed(4), end.toFixed(4));
for (const [begin, end] of detector.spans(sound, { threshold: 0.1 })) console.log(begin.toFixed(4), end.toFixed(4));
console.log(detector.spans(sound, { speechMin: 1, silenceMin: 0.2, margin: 0 }).length);
const refused = f => { try { f(); console.log("taken"); } catch (error) { console.log(error.name); } };
refused(() => detector.spans(sound, { threshhold: 0.1 }));
refused(() => detector.spans(sound, { threshold: 2 }));
refused(() => detector.transcribe(sound));
refused(() => speech.detector("$/link.onnx"));
)"),
            fmt::format("{:.4f} {:.4f}\n{:.4f} {:.4f}\n0\nUsageError\nUsageError\nUsageError\nAccessError\n",
                        wanted[0].begin, wanted[0].end, loose.at(0).begin, loose.at(0).end));
}

TEST(ScriptMedia, OnlyWhatIsGrantedIsRead) {
  const test::TemporaryFolder folder, outside, whisper;
  image::write(outside / "a.png", zeros({2, 2, 3}, DType::u8));
  test::put_whisper(whisper);
  std::filesystem::rename(whisper.path(), folder / "linked");
  const auto outcome_of = [&](const std::string& text) { return run_in(folder.path(), text).result; };
  const std::string imports = "import { image, audio, vision, speech, tensor } from 'weft';\n";
  EXPECT_EQ(outcome_of(imports + fmt::format("image.read('{}');", (outside / "a.png").string())).outcome,
            Outcome::refused);
  EXPECT_EQ(outcome_of(imports + fmt::format("speech.transcriber('{}');", outside.path().string())).outcome,
            Outcome::refused);
  EXPECT_EQ(outcome_of(imports + fmt::format("audio.write('{}', {{ samples: tensor([1]), rate: 8000 }});",
                                             (outside / "a.wav").string()))
                .outcome,
            Outcome::refused);
  // A file of a model that is a link could be any file.
  std::filesystem::rename(folder / "linked" / "config.json", outside / "config.json");
  std::filesystem::create_symlink(outside / "config.json", folder / "linked" / "config.json");
  const Result linked = outcome_of(imports + "speech.transcriber('$/linked');");
  EXPECT_EQ(linked.outcome, Outcome::refused);
  EXPECT_NE(linked.message.find("holds the link \"config.json\""), std::string::npos) << linked.message;
}

TEST(ScriptMedia, LimitsHold) {
  const test::TemporaryFolder folder;
  image::write(folder / "large.png", zeros({1000, 1000, 3}, DType::u8));
  IsolateOptions options = with_folder(folder.path());
  options.device_memory_limit = 1 << 20;
  const std::string path = (folder / "large.png").string();
  const auto message_of = [&](const std::string& text) {
    return run_script("import { image, audio, tensor, zeros } from 'weft';\n" + text, options).result.message;
  };
  EXPECT_NE(message_of("image.read('" + path + "');").find("pixels (height x width)"), std::string::npos);
  EXPECT_NE(
      message_of("audio.resample({ samples: zeros([2000]), rate: 1 }, 768000);").find("more than the script may hold"),
      std::string::npos);
  EXPECT_NE(message_of("audio.mono(3);").find("not a sound {samples, rate}"), std::string::npos);
  EXPECT_NE(message_of("audio.encode({ samples: zeros([2]), rate: 1e12 });").find("a rate of"), std::string::npos);
}

TEST(ScriptMedia, TheTimeLimitEndsATranscription) {
  const test::TemporaryFolder folder, whisper;
  test::put_whisper(whisper);
  std::filesystem::rename(whisper.path(), folder / "whisper");
  IsolateOptions options = with_folder(folder.path());
  options.time_limit = std::chrono::milliseconds(test::kSanitized ? 10'000 : 1500);
  const auto start = std::chrono::steady_clock::now();
  const Ran ran = run_script(fmt::format(R"(
import {{ speech, zeros }} from "weft";
const model = speech.transcriber("{}");
model.transcribe({{ samples: zeros([16000 * 400]), rate: 16000 }}, {{ language: "de", timestamps: false }});
console.log("the end");
)",
                                         (folder / "whisper").string()),
                             options);
  EXPECT_EQ(ran.result.outcome, Outcome::time);
  EXPECT_EQ(ran.printed, "");
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(60));
}

}  // namespace
}  // namespace weft::script::media_test
