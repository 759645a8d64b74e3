// vision and speech: models from granted folders.
#include <fmt/format.h>

#include <chrono>
#include <thread>

#include "catalogue/media_values.hpp"
#include "script/engine.hpp"
#include "script/files.hpp"
#include "script/media.hpp"
#include "script/sense_models.hpp"
#include "weft/speech.hpp"
#include "weft/vision.hpp"

namespace weft::script {

Value camel_members(const Value& given) {
  if (given.is_array()) {
    Value::Array all;
    for (const Value& each : given.elements()) all.push_back(camel_members(each));
    return all;
  }
  if (!given.is_object()) return given;
  Value::Object made;
  for (const auto& [key, value] : given.members()) made.set(camel(key), camel_members(value));
  return made;
}

namespace {

namespace fs = std::filesystem;

/// Ends work that looks at a token when the script's time is over, or its call is aborted.
class EndsInTime {
 public:
  explicit EndsInTime(Engine& engine)
      : engine_(engine), watch_([this](const std::stop_token& done) {
          while (!done.stop_requested()) {
            if (engine_.is_late() || engine_.turn_stop.stop_requested()) {
              source_.request_stop();
              return;
            }
            std::this_thread::sleep_for(std::chrono::milliseconds(10));
          }
        }) {}
  /// Throws if the work was ended, and not finished; then the script ends too.
  void check() const {
    if (!source_.stop_requested()) return;
    engine_.ran_out_of_time = true;
    throw UsageError("speech: the time is over");
  }
  std::stop_token token() const { return source_.get_token(); }

 private:
  Engine& engine_;
  std::stop_source source_;
  std::jthread watch_;
};

std::vector<Tensor> images_at(Engine& engine, Arguments arguments, std::size_t i) {
  return engine.tensors(at(arguments, i), "the images");
}

// ---- vision

Local load_encoder(Engine& engine, JSValueConst, Arguments arguments) {
  return load_folder(engine, engine.text(at(arguments, 0)),
                     [](const fs::path& path) { return vision::Encoder::load(path); });
}
Local load_classifier(Engine& engine, JSValueConst, Arguments arguments) {
  return load_folder(engine, engine.text(at(arguments, 0)),
                     [](const fs::path& path) { return vision::Classifier::load(path); });
}
vision::EncoderOptions encoder_options(Engine& engine, Arguments arguments, const char* method) {
  Options options(engine, at(arguments, 1), method);
  const vision::EncoderOptions made{.normalize = options.boolean("normalize", true)};
  options.finish();
  return made;
}
Local embed_images(Engine& engine, JSValueConst self, Arguments arguments) {
  const auto& model = model_of<vision::Encoder>(engine, self, "embedImages");
  return engine.make(
      model.embed_images(images_at(engine, arguments, 0), encoder_options(engine, arguments, "embedImages")));
}
Local embed_texts(Engine& engine, JSValueConst self, Arguments arguments) {
  const auto& model = model_of<vision::Encoder>(engine, self, "embedTexts");
  const std::vector<std::string> texts = texts_at(engine, arguments, 0, "embedTexts: the texts");
  return engine.make(model.embed_texts(texts, encoder_options(engine, arguments, "embedTexts")));
}
Local scores(Engine& engine, JSValueConst self, Arguments arguments) {
  return engine.make(model_of<vision::Encoder>(engine, self, "scores")
                         .scores(engine.tensor(at(arguments, 0), "scores: the images"),
                                 engine.tensor(at(arguments, 1), "scores: the texts")));
}
Local probabilities(Engine& engine, JSValueConst self, Arguments arguments) {
  return engine.make(model_of<vision::Encoder>(engine, self, "probabilities")
                         .probabilities(engine.tensor(at(arguments, 0), "probabilities: the images"),
                                        engine.tensor(at(arguments, 1), "probabilities: the texts")));
}
// logits(images), or of a text encoder logits(texts, pairs)
Local class_logits(Engine& engine, JSValueConst self, Arguments arguments) {
  if (is_model<encoder::Model>(engine, self)) return text_logits(engine, self, arguments);
  return engine.make(model_of<vision::Classifier>(engine, self, "logits").logits(images_at(engine, arguments, 0)));
}
// classify(image, count), or of a text encoder classify(text, {count, pair, cut})
Local classify(Engine& engine, JSValueConst self, Arguments arguments) {
  if (is_model<encoder::Model>(engine, self)) return classify_text(engine, self, arguments);
  const Extent count = JS_IsUndefined(at(arguments, 1)) ? 5 : engine.integer(arguments[1], "classify: the count");
  if (count < 1) Engine::refuse("classify", fmt::format("{} classes; ask for 1 or more", count));
  Value::Array labels;
  for (const vision::Label& label :
       model_of<vision::Classifier>(engine, self, "classify")
           .classify(engine.tensor(at(arguments, 0), "classify: the image"), static_cast<std::size_t>(count)))
    labels.push_back(operations::to_value(label));
  return value_to(engine, labels);
}

// ---- speech

Local load_transcriber(Engine& engine, JSValueConst, Arguments arguments) {
  return load_folder(engine, engine.text(at(arguments, 0)),
                     [](const fs::path& path) { return speech::load_transcriber(path); });
}
// A folder of VITS, or a file of Piper with its settings beside it.
Local load_voice(Engine& engine, JSValueConst, Arguments arguments) {
  const std::string path = engine.text(at(arguments, 0));
  if (fs::path(path).extension() != ".onnx")
    return load_folder(engine, path, [](const fs::path& folder) { return speech::load_voice(folder); });
  Files::Place place = engine.files->place(path, false);
  (void)engine.files->open(place);  // neither it nor its settings may be a link
  (void)engine.files->open(engine.files->place(path + ".json", false));
  const std::string name = place.parts.back();
  place.parts.pop_back();
  const Descriptor folder = engine.files->open_folder(place);
  return wrap_model(engine, speech::load_voice(folder.path() / name));
}

Local load_detector(Engine& engine, JSValueConst, Arguments arguments) {
  Files::Place place = engine.files->place(engine.text(at(arguments, 0)), false);
  (void)engine.files->open(place);  // it may not be a link
  const std::string name = place.parts.back();
  place.parts.pop_back();
  const Descriptor folder = engine.files->open_folder(place);
  return wrap_model(engine, speech::load_detector(folder.path() / name));
}

/// A sound that a model hears.
audio::Sound heard_sound_at(Engine& engine, Arguments arguments, const char* method) {
  audio::Sound sound = sound_at(engine, arguments, 0, method);
  if (sound.seconds() > operations::kClientSecondsMax)
    Engine::refuse(method, fmt::format("the sound has {:.0f} s; at most {:.0f} are heard at once", sound.seconds(),
                                       operations::kClientSecondsMax));
  return sound;
}

// transcribe(sound, {language, ..., onSegment})
Local transcribe(Engine& engine, JSValueConst self, Arguments arguments) {
  auto model = model_of<speech::Transcriber>(engine, self, "transcribe");  // a copy: the function may drop the handle
  const audio::Sound sound = heard_sound_at(engine, arguments, "transcribe");
  Local on_segment;
  Value::Object options;
  if (!engine.is_nullish(at(arguments, 1))) {
    if (!engine.is_plain_object(arguments[1]))
      Engine::refuse("transcribe", "the options are " + inspect(engine, arguments[1]));
    for (const std::string& name : engine.names(arguments[1])) {
      Local given = engine.property(arguments[1], name.c_str());
      if (name == "onSegment")
        on_segment = std::move(given);
      else
        options.set(snake(name), value_from(engine, given.get()));
    }
  }
  speech::TranscribeOptions how = speech::transcribe_options(std::move(options));
  if (!engine.is_nullish(on_segment.get())) {
    if (!JS_IsFunction(engine.context, on_segment.get()))
      Engine::refuse("transcribe",
                     "onSegment is " + inspect(engine, on_segment.get()) + ", not a function of a segment");
    how.on_segment = [&](const speech::Segment& segment) {
      const Local given = value_to(engine, camel_members(speech::to_value(segment)));
      engine.call(on_segment.get(), JS_UNDEFINED, {given.get()});
    };
  }
  const EndsInTime in_time(engine);
  how.cancel = in_time.token();
  const speech::Transcript transcript = model.transcribe(sound, how);
  in_time.check();
  return value_to(engine, camel_members(speech::to_value(transcript)));
}
Local detect_language(Engine& engine, JSValueConst self, Arguments arguments) {
  const auto& model = model_of<speech::Transcriber>(engine, self, "detectLanguage");
  Value::Array all;
  for (const auto& [code, probability] : model.detect_language(sound_at(engine, arguments, 0, "detectLanguage")))
    all.push_back(Value::object({{"language", code}, {"probability", probability}}));
  return value_to(engine, all);
}
Local languages_of(Engine& engine, JSValueConst self, Arguments) {
  const std::vector<std::string>& codes = model_of<speech::Transcriber>(engine, self, "languages").languages();
  return value_to(engine, Value::Array(codes.begin(), codes.end()));
}
// spans(sound, {threshold, ...})
Local spans_in(Engine& engine, JSValueConst self, Arguments arguments) {
  const auto& detector = model_of<speech::Detector>(engine, self, "spans");
  const Value given = options_at(engine, arguments, 1);
  Value::Object options;
  if (given.is_object())
    for (const auto& [key, value] : given.members()) options.set(snake(key), value);
  const speech::DetectorOptions how = speech::detector_options(std::move(options));
  return value_to(engine, speech::to_value(detector.spans(heard_sound_at(engine, arguments, "spans"), how)));
}
// speak(text, {rate, ...})
Local speak(Engine& engine, JSValueConst self, Arguments arguments) {
  const auto& voice = model_of<speech::Voice>(engine, self, "speak");
  speech::SpeakOptions how = speech::speak_options(options_at(engine, arguments, 1));
  const EndsInTime in_time(engine);
  how.cancel = in_time.token();
  const audio::Sound sound = voice.speak(engine.text(at(arguments, 0)), how);
  in_time.check();
  return sound_to(engine, sound);
}
Local speaker_names_of(Engine& engine, JSValueConst self, Arguments) {
  const std::vector<std::string> names = model_of<speech::Voice>(engine, self, "speakerNames").speaker_names();
  return value_to(engine, Value::Array(names.begin(), names.end()));
}
Local describe_model(Engine& engine, JSValueConst self, Arguments) {
  auto* const handle = static_cast<SenseHandle*>(static_cast<Handle*>(JS_GetOpaque(self, engine.sense_class)));
  if (!handle) Engine::refuse("toString", inspect(engine, self) + " is not a model");
  return engine.string(std::visit(
      [](const auto& model) -> std::string {
        if constexpr (requires { model.describe(); })
          return model.describe();
        else
          return "classifier";
      },
      handle->model));
}

}  // namespace

void define_senses(Engine& engine) {
  const Local prototype = engine.make_class(engine.sense_class, "SenseModel");
  const JSValueConst p = prototype.get();
  engine.method(p, "embedImages", native<embed_images>, 2);
  engine.method(p, "embedTexts", native<embed_texts>, 2);
  engine.method(p, "scores", native<scores>, 2);
  engine.method(p, "probabilities", native<probabilities>, 2);
  engine.method(p, "logits", native<class_logits>, 1);
  engine.method(p, "classify", native<classify>, 2);
  engine.method(p, "transcribe", native<transcribe>, 2);
  engine.method(p, "detectLanguage", native<detect_language>, 1);
  engine.getter(p, "languages", native<languages_of>);
  engine.method(p, "spans", native<spans_in>, 2);
  engine.method(p, "speak", native<speak>, 2);
  engine.getter(p, "speakerNames", native<speaker_names_of>);
  engine.method(p, "toString", native<describe_model>, 0);
  define_encoders(engine, p);
  Local sight = engine.object();
  engine.method(sight.get(), "encoder", native<load_encoder>, 1);
  engine.method(sight.get(), "classifier", native<load_classifier>, 1);
  engine.checked(JS_FreezeObject(engine.context, sight.get()));
  add_export(engine, "vision", std::move(sight));
  Local voices = engine.object();
  engine.method(voices.get(), "transcriber", native<load_transcriber>, 1);
  engine.method(voices.get(), "voice", native<load_voice>, 1);
  engine.method(voices.get(), "detector", native<load_detector>, 1);
  engine.checked(JS_FreezeObject(engine.context, voices.get()));
  add_export(engine, "speech", std::move(voices));
}

}  // namespace weft::script
