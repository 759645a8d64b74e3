// Vision and speech models as operations. A loaded model is a resource, vision:NAME or speech:NAME, with the actions load, describe and run.
// One call at a time uses a model; others wait.
#include <fmt/format.h>

#include <variant>

#include "catalogue/families.hpp"
#include "catalogue/media_values.hpp"
#include "catalogue/sense_family.hpp"
#include "io/model_type.hpp"
#include "weft/speech.hpp"
#include "weft/vision.hpp"

namespace weft::operations {
namespace {

template <class Wanted, class Model>
const Wanted& as(const Model& model, const char* needed) {
  if (const auto* found = std::get_if<Wanted>(&model)) return *found;
  throw OperationError("WRONG_MODEL", fmt::format("the operation needs {}", needed));
}

// ---- Vision

using VisionModel = std::variant<vision::Encoder, vision::Classifier>;

VisionModel load_vision(const std::filesystem::path& path) {
  if (io::model_type_of(path) == "vit") return vision::Classifier::load(path);
  return vision::Encoder::load(path);
}
Value describe_vision(const VisionModel& model) {
  if (const auto* encoder = std::get_if<vision::Encoder>(&model))
    return Value::object({{"kind", "encoder"}, {"width", encoder->width()}, {"text", encoder->describe()}});
  return Value::object({{"kind", "classifier"}});
}

std::vector<Tensor> images_of(const Value& images) {
  std::vector<Tensor> all;
  for (const Value& each : images.elements()) all.push_back(image_of(each.tensor()));
  return all;
}

void add_vision_operations(Registry& registry, const CatalogueOptions& options) {
  const SenseFamily<VisionModel> family(registry, "vision", "VISION_MODEL");
  family.add_common(
      "Loads a folder of CLIP or SigLIP, which embed images and texts, or of ViT, which classifies images.", options,
      load_vision, describe_vision);
  const std::string images = fmt::format(
                        R"("images": {{"type": "array", "minItems": 1, "maxItems": 256, "items": {}}})", kImageSchema),
                    texts =
                        R"("texts": {"type": "array", "minItems": 1, "maxItems": 2048, "items": {"type": "string"}})";
  family.add(
      "embed", Kind::query, "Rows of images f32 [images, width], and of texts f32 [texts, width], in one space.",
      images + ", " + texts +
          R"(, "normalize": {"type": "boolean", "default": true, "description": "rows of length 1"})",
      "",
      R"({"type": "object", "properties": {"images": {"x-tensor": {"dtypes": ["f32"]}}, "texts": {"x-tensor": {"dtypes": ["f32"]}}}})",
      "run", [use = family.use()](Context& call) {
        const Value &in = call.input(), *pictures = in.find("images"), *words = in.find("texts");
        if (!pictures && !words) throw UsageError("give images, texts, or both");
        const vision::EncoderOptions how{.normalize = in["normalize"].boolean()};
        const std::vector<Tensor> pixels = pictures ? images_of(*pictures) : std::vector<Tensor>();
        return use(call, [&](const VisionModel& model) {
          const auto& encoder = as<vision::Encoder>(model, "an encoder of images and texts");
          Value::Object answer;
          if (pictures) answer.set("images", encoder.embed_images(pixels, how));
          if (words) answer.set("texts", encoder.embed_texts(texts_of(*words), how));
          return Value(std::move(answer));
        });
      });
  family.add(
      "compare", Kind::query, "What share of each image each text has, f32 [images, texts].", images + ", " + texts,
      R"(, "images", "texts")",
      R"({"type": "object", "required": ["probabilities"], "properties": {"probabilities": {"x-tensor": {"dtypes": ["f32"]}}}})",
      "run", [use = family.use()](Context& call) {
        const std::vector<Tensor> pixels = images_of(call.input("images"));
        return use(call, [&](const VisionModel& model) {
          const auto& encoder = as<vision::Encoder>(model, "an encoder of images and texts");
          return Value::object(
              {{"probabilities", encoder.probabilities(encoder.embed_images(pixels),
                                                       encoder.embed_texts(texts_of(call.input("texts"))))}});
        });
      });
  family.add(
      "classify", Kind::query, "The most probable classes of an image, in order.",
      fmt::format(R"("image": {}, "count": {{"type": "integer", "minimum": 1, "maximum": 1000, "default": 5}})",
                  kImageSchema),
      R"(, "image")",
      R"({"type": "object", "required": ["labels"], "properties": {"labels": {"type": "array", "items": {"type": "object",
               "required": ["index", "name", "probability"]}}}})",
      "run", [use = family.use()](Context& call) {
        const Tensor pixels = image_of(call.input("image").tensor());
        return use(call, [&](const VisionModel& model) {
          Value::Array labels;
          for (const vision::Label& label :
               as<vision::Classifier>(model, "a classifier of images")
                   .classify(pixels, static_cast<std::size_t>(call.input("count").integer())))
            labels.push_back(to_value(label));
          return Value::object({{"labels", std::move(labels)}});
        });
      });
}

// ---- Speech

using SpeechModel = std::variant<speech::Transcriber, speech::Voice, speech::Detector>;

SpeechModel load_speech(const std::filesystem::path& path) {
  if (speech::is_voice(path)) return speech::load_voice(path);
  if (speech::is_detector(path)) return speech::load_detector(path);
  return speech::load_transcriber(path);
}
Value describe_speech(const SpeechModel& model) {
  if (const auto* voice = std::get_if<speech::Voice>(&model)) {
    const std::vector<std::string> names = voice->speaker_names();
    return Value::object({{"kind", "voice"},
                          {"rate", voice->rate()},
                          {"speakers", voice->speakers()},
                          {"speaker_names", Value::Array(names.begin(), names.end())},
                          {"text", voice->describe()}});
  }
  if (const auto* detector = std::get_if<speech::Detector>(&model))
    return Value::object({{"kind", "detector"}, {"text", detector->describe()}});
  const auto& transcriber = std::get<speech::Transcriber>(model);
  return Value::object({{"kind", "transcriber"},
                        {"languages", Value::Array(transcriber.languages().begin(), transcriber.languages().end())},
                        {"text", transcriber.describe()}});
}

constexpr const char* kTranscribeProperties = R"(
  "language": {"type": "string", "description": "a code or a name; otherwise it is detected"},
  "task": {"enum": ["transcribe", "translate"], "default": "transcribe"},
  "timestamps": {"type": "boolean", "default": true},
  "words": {"type": "boolean", "default": false, "description": "segments have words with times"},
  "speech": {"type": "array", "maxItems": 100000, "items": {"type": "array", "minItems": 2, "maxItems": 2, "items": {"type": "number", "minimum": 0}}, "description": "the spans to hear, in seconds"},
  "beam_size": {"type": "integer", "minimum": 1, "maximum": 16, "default": 1}, "best_of": {"type": "integer", "minimum": 1, "maximum": 16, "default": 1},
  "patience": {"type": "number", "exclusiveMinimum": 0, "maximum": 16}, "length_penalty": {"type": "number", "minimum": 0, "maximum": 1},
  "prompt": {"type": "string", "maxLength": 10000},
  "temperatures": {"type": "array", "minItems": 1, "maxItems": 16, "items": {"type": "number", "minimum": 0}},
  "compression_ratio_max": {"type": "number"}, "log_probability_min": {"type": "number"}, "no_speech_max": {"type": "number"},
  "condition_on_previous": {"type": "boolean"}, "max_tokens": {"type": "integer", "minimum": 0}, "seed": {"type": "integer", "minimum": 0})";
constexpr const char* kSpeakProperties = R"(
  "text": {"type": "string", "minLength": 1, "maxLength": 65536}, "rate": {"type": "number", "description": "above 1: faster"},
  "noise": {"type": "number", "minimum": 0}, "duration_noise": {"type": "number", "minimum": 0},
  "speaker": {"type": ["integer", "string"], "minimum": 0, "description": "its number or name"}, "seed": {"type": "integer", "minimum": 0},
  "pause": {"type": "number", "minimum": 0, "maximum": 60, "description": "seconds between sentences"}, "is_phonemes": {"type": "boolean"})";
constexpr const char* kDetectorProperties = R"(
  "threshold": {"type": "number", "minimum": 0, "maximum": 1, "default": 0.5}, "speech_min": {"type": "number", "minimum": 0, "description": "seconds; shorter speech is left out"},
  "silence_min": {"type": "number", "minimum": 0, "description": "seconds; shorter silence is part of speech"},
  "margin": {"type": "number", "minimum": 0, "maximum": 60, "description": "seconds that a span gets on both sides"})";
constexpr const char* kTranscript = R"({"type": "object", "required": ["text", "language", "segments"], "properties": {
  "text": {"type": "string"}, "language": {"type": "string"}, "language_probability": {"type": "number"}, "seconds": {"type": "number"},
  "segments": {"type": "array", "items": {"type": "object", "required": ["begin", "end", "text"]}}}})";

/// Writes down the sound of a call, and tells of segments if there is somebody to tell.
speech::Transcript transcribe(Context& call, const SpeechModel& model, const audio::Sound& sound,
                              std::function<void(const speech::Segment&)> on_segment) {
  speech::TranscribeOptions options = speech::transcribe_options(without(call.input(), {"model", "sound", "rate"}));
  options.on_segment = std::move(on_segment);
  options.cancel = call.stop();
  speech::Transcript transcript =
      as<speech::Transcriber>(model, "a model that writes down speech").transcribe(sound, options);
  call.check();
  return transcript;
}

void add_speech_operations(Registry& registry, const CatalogueOptions& options) {
  const SenseFamily<SpeechModel> family(registry, "speech", "SPEECH_MODEL");
  family.add_common(
      "Loads a folder of Whisper, Moonshine, wav2vec 2.0 or HuBERT, which write down speech; a voice: a folder of "
      "VITS, "
      "or a file of Piper; or Silero's detector of speech (.onnx).",
      options, load_speech, describe_speech);
  const std::string heard = fmt::format("{}, {}", kSoundProperties, kTranscribeProperties);
  family.add("transcribe", Kind::query, "Writes down a sound, with times, and finds its language.", heard,
             R"(, "sound")", kTranscript, "run", [use = family.use()](Context& call) {
               const audio::Sound sound = heard_sound_of(call.input());
               return use(call, [&](const SpeechModel& model) {
                 return speech::to_value(transcribe(call, model, sound, {}));
               });
             });
  family.add(
      "stream", Kind::subscription,
      "The same, an answer {\"segment\"} for each segment once it is certain, and {\"transcript\"} at the end.", heard,
      R"(, "sound")",
      R"({"type": "object", "properties": {"segment": {"type": "object", "required": ["begin", "end", "text"]}, "transcript": {"type": "object"}}})",
      "run", [use = family.use()](Context& call) {
        const audio::Sound sound = heard_sound_of(call.input());
        return use(call, [&](const SpeechModel& model) {
          const speech::Transcript transcript = transcribe(call, model, sound, [&](const speech::Segment& segment) {
            call.emit(Value::object({{"segment", speech::to_value(segment)}}));
          });
          call.emit(Value::object({{"transcript", speech::to_value(transcript)}}));
          return Value();
        });
      });
  family.add(
      "detect_language", Kind::query, "Languages of the first 30 s of a sound, the most probable one first.",
      kSoundProperties, R"(, "sound")",
      R"({"type": "object", "required": ["languages"], "properties": {"languages": {"type": "array", "items": {"type": "object",
               "required": ["language", "probability"]}}}})",
      "run", [use = family.use()](Context& call) {
        const audio::Sound sound = heard_sound_of(call.input());
        return use(call, [&](const SpeechModel& model) {
          Value::Array all;
          for (const auto& [code, probability] :
               as<speech::Transcriber>(model, "a model that writes down speech").detect_language(sound))
            all.push_back(Value::object({{"language", code}, {"probability", probability}}));
          return Value::object({{"languages", std::move(all)}});
        });
      });
  family.add(
      "spans", Kind::query,
      "The spans of speech in a sound, pairs of seconds, by a detector; `speech` of speech.transcribe takes them.",
      fmt::format("{}, {}", kSoundProperties, kDetectorProperties), R"(, "sound")",
      R"({"type": "object", "required": ["spans"], "properties": {"spans": {"type": "array", "items": {"type": "array", "minItems": 2, "maxItems": 2, "items": {"type": "number"}}}}})",
      "run", [use = family.use()](Context& call) {
        const audio::Sound sound = heard_sound_of(call.input());
        const speech::DetectorOptions how = speech::detector_options(without(call.input(), {"model", "sound", "rate"}));
        return use(call, [&](const SpeechModel& model) {
          return Value::object(
              {{"spans", speech::to_value(as<speech::Detector>(model, "a detector of speech").spans(sound, how))}});
        });
      });
  family.add(
      "speak", Kind::query, "The sound of a text: f32 [1, frames], and its rate.", kSpeakProperties, R"(, "text")",
      R"({"type": "object", "required": ["sound", "rate"], "properties": {"sound": {"x-tensor": {"dtypes": ["f32"]}}, "rate": {"type": "integer"}}})",
      "run", [use = family.use()](Context& call) {
        speech::SpeakOptions how = speech::speak_options(without(call.input(), {"model", "text"}));
        how.cancel = call.stop();
        return use(call, [&](const SpeechModel& model) {
          const audio::Sound sound = as<speech::Voice>(model, "a voice").speak(call.input("text").string(), how);
          call.check();
          return to_value(sound);
        });
      });
}

}  // namespace

void add_sense_operations(Registry& registry, const CatalogueOptions& options) {
  add_vision_operations(registry, options);
  add_speech_operations(registry, options);
}

}  // namespace weft::operations
