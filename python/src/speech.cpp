// Speech models: sounds to texts, and texts to sounds.
#include "weft/speech.hpp"

#include <atomic>
#include <filesystem>
#include <memory>

#include "callable.hpp"
#include "media.hpp"
#include "nanobind/stl/filesystem.h"
#include "nanobind/stl/pair.h"
#include "nanobind/stl/shared_ptr.h"
#include "nanobind/stl/tuple.h"
#include "produced.hpp"
#include "values.hpp"
#include "weft/error.hpp"

namespace weft::python {
namespace {

using Path = std::filesystem::path;

/// A model that one thread at a time may use, as iterators over its results do.
template <class M>
struct InUse {
  explicit InUse(M given) : model(std::move(given)) {}
  M model;
  std::shared_ptr<std::atomic<bool>> busy = std::make_shared<std::atomic<bool>>(false);

  /// While it exists, the model is taken.
  class Turn {
   public:
    explicit Turn(std::shared_ptr<std::atomic<bool>> busy) : busy_(std::move(busy)) {
      if (busy_->exchange(true))
        throw UsageError("speech: the model is in use; take what it is making to the end, or load it a second time");
    }
    ~Turn() { *busy_ = false; }
    Turn(const Turn&) = delete;

   private:
    std::shared_ptr<std::atomic<bool>> busy_;
  };
  std::shared_ptr<Turn> turn() const { return std::make_shared<Turn>(busy); }
};
using PythonTranscriber = InUse<speech::Transcriber>;
using PythonVoice = InUse<speech::Voice>;
using Segments = Produced<speech::Segment, speech::Transcript>;
using Sentences = Produced<audio::Sound, audio::Sound>;

template <class P, class ToObject>
nb::object next_of(P& produced, const ToObject& to_object) {
  const auto piece = without_gil([&] { return produced.next(); });
  if (!piece) throw nb::stop_iteration();
  return to_object(*piece);
}

speech::LoadOptions load_options(const nb::object& device, const nb::object& progress) {
  speech::LoadOptions options{.device = device_or_default(device)};
  if (!progress.is_none())
    options.progress = [call = Callable(progress)](std::uint64_t done, std::uint64_t total) {
      const nb::gil_scoped_acquire gil;
      call.get()(done, total);
    };
  return options;
}

void bind_transcriber(nb::module_& m) {
  nb::class_<Segments>(m, "_Segments")
      .def("next",
           [](Segments& self) {
             return next_of(self, [](const speech::Segment& s) { return object_of(speech::to_value(s)); });
           })
      .def("result",
           [](Segments& self) { return object_of(speech::to_value(without_gil([&] { return self.result(); }))); })
      .def("stop", &Segments::stop);
  nb::class_<PythonTranscriber>(m, "_Transcriber")
      .def(
          "transcribe",
          [](const PythonTranscriber& self, nb::object samples, int rate, const nb::dict& given,
             nb::object on_segment) {
            const audio::Sound sound = sound_from(samples, rate);
            speech::TranscribeOptions options = speech::transcribe_options(value_of(given.ptr()));
            if (!on_segment.is_none())
              options.on_segment = [call = Callable(on_segment)](const speech::Segment& s) {
                const nb::gil_scoped_acquire gil;
                call.get()(object_of(speech::to_value(s)));
              };
            const auto turn = self.turn();
            return object_of(speech::to_value(without_gil([&] { return self.model.transcribe(sound, options); })));
          },
          nb::arg("samples"), nb::arg("rate"), nb::arg("options"), nb::arg("on_segment").none())
      .def("stream",
           [](const PythonTranscriber& self, nb::object samples, int rate, const nb::dict& given) {
             audio::Sound sound = sound_from(samples, rate);
             speech::TranscribeOptions options = speech::transcribe_options(value_of(given.ptr()));
             return std::make_shared<Segments>([model = self.model, turn = self.turn(), sound = std::move(sound),
                                                options](const auto& put, const std::stop_token& stop) mutable {
               const auto held = std::move(turn);  // until the model is done, and no longer
               options.on_segment = [&](const speech::Segment& s) { put(s); };
               options.cancel = stop;
               return model.transcribe(sound, options);
             });
           })
      .def("detect_language",
           [](const PythonTranscriber& self, nb::object samples, int rate) {
             const audio::Sound sound = sound_from(samples, rate);
             const auto turn = self.turn();
             return without_gil([&] { return self.model.detect_language(sound); });
           })
      .def("features",
           [](const PythonTranscriber& self, nb::object samples, int rate, double begin) {
             const audio::Sound sound = sound_from(samples, rate);
             return wrapped(without_gil([&] { return self.model.features(sound, begin); }));
           })
      .def("encode",
           [](const PythonTranscriber& self, nb::object features) {
             const Tensor given = tensor_from(features.ptr());
             const auto turn = self.turn();
             return wrapped(without_gil([&] { return self.model.encode(given); }));
           })
      .def("kind", [](const PythonTranscriber& self) { return self.model.kind(); })
      .def("is_ctc", [](const PythonTranscriber& self) { return self.model.is_ctc(); })
      .def("frame_logits",
           [](const PythonTranscriber& self, nb::object samples, int rate) {
             const audio::Sound sound = sound_from(samples, rate);
             const auto turn = self.turn();
             return wrapped(without_gil([&] { return self.model.frame_logits(sound); }));
           })
      .def("languages", [](const PythonTranscriber& self) { return self.model.languages(); })
      .def("is_multilingual", [](const PythonTranscriber& self) { return self.model.is_multilingual(); })
      .def("tokenizer", [](const PythonTranscriber& self) { return self.model.tokenizer(); })
      .def("describe", [](const PythonTranscriber& self) { return self.model.describe(); });
  m.def(
      "_load_transcriber",
      [](const Path& folder, nb::object device, nb::object progress) {
        const speech::LoadOptions options = load_options(device, progress);
        return without_gil([&] { return PythonTranscriber(speech::load_transcriber(folder, options)); });
      },
      nb::arg("folder"), nb::arg("device").none(), nb::arg("progress").none());
  m.def("_is_transcriber", &speech::is_transcriber);
  m.def("_language_name", [](const std::string& code) { return speech::language_name(code); });
  // Subtitles of segments and their words, which is all that they have of a transcript.
  const auto subtitles = [](std::string (*write)(const speech::Transcript&, speech::WordCues)) {
    using Cue = std::tuple<double, double, std::string>;
    return [write](const std::vector<std::pair<Cue, std::vector<Cue>>>& segments, const std::string& words) {
      speech::Transcript transcript;
      for (const auto& [cue, own_words] : segments) {
        speech::Segment segment{.begin = std::get<0>(cue), .end = std::get<1>(cue), .text = std::get<2>(cue)};
        for (const auto& [begin, end, text] : own_words) segment.words.push_back({begin, end, text});
        transcript.segments.push_back(std::move(segment));
      }
      return write(transcript, speech::word_cues(words));
    };
  };
  m.def("_to_srt", subtitles(speech::to_srt));
  m.def("_to_vtt", subtitles(speech::to_vtt));
}

void bind_detector(nb::module_& m) {
  nb::class_<InUse<speech::Detector>>(m, "_Detector")
      .def("probabilities",
           [](const InUse<speech::Detector>& self, nb::object samples, int rate) {
             const audio::Sound sound = sound_from(samples, rate);
             const auto turn = self.turn();
             return without_gil([&] { return self.model.probabilities(sound); });
           })
      .def("spans", [](const InUse<speech::Detector>& self, nb::object samples, int rate, double threshold,
                       double speech_min, double silence_min, double margin) {
        const audio::Sound sound = sound_from(samples, rate);
        const speech::DetectorOptions options{threshold, speech_min, silence_min, margin};
        const auto turn = self.turn();
        std::vector<std::pair<double, double>> spans;
        for (const speech::Span& span : without_gil([&] { return self.model.spans(sound, options); }))
          spans.emplace_back(span.begin, span.end);
        return spans;
      });
  m.def("_load_detector", [](const Path& file) {
    return without_gil([&] { return InUse<speech::Detector>(speech::load_detector(file)); });
  });
}

void bind_voice(nb::module_& m) {
  nb::class_<Sentences>(m, "_Sentences")
      .def("next", [](Sentences& self) { return next_of(self, sound_object); })
      .def("stop", &Sentences::stop);
  nb::class_<PythonVoice>(m, "_Voice")
      .def("speak",
           [](const PythonVoice& self, const std::string& text, const nb::dict& given) {
             const speech::SpeakOptions options = speech::speak_options(value_of(given.ptr()));
             const auto turn = self.turn();
             return sound_object(without_gil([&] { return self.model.speak(text, options); }));
           })
      .def("stream",
           [](const PythonVoice& self, const std::string& text, const nb::dict& given) {
             return std::make_shared<Sentences>(
                 [model = self.model, turn = self.turn(), text, options = speech::speak_options(value_of(given.ptr()))](
                     const auto& put, const std::stop_token& stop) mutable {
                   const auto held = std::move(turn);
                   options.on_sentence = [&](const audio::Sound& sound) { put(sound); };
                   options.cancel = stop;
                   return model.speak(text, options);
                 });
           })
      .def("encode", [](const PythonVoice& self, const std::string& text,
                        bool is_phonemes) { return self.model.encode(text, is_phonemes); })
      .def("rate", [](const PythonVoice& self) { return self.model.rate(); })
      .def("speakers", [](const PythonVoice& self) { return self.model.speakers(); })
      .def("speaker_names", [](const PythonVoice& self) { return self.model.speaker_names(); })
      .def("describe", [](const PythonVoice& self) { return self.model.describe(); });
  m.def(
      "_load_voice",
      [](const Path& path, nb::object device, nb::object progress) {
        const speech::LoadOptions options = load_options(device, progress);
        return without_gil([&] { return PythonVoice(speech::load_voice(path, options)); });
      },
      nb::arg("path"), nb::arg("device").none(), nb::arg("progress").none());
  m.def("_is_voice", &speech::is_voice);
}

}  // namespace

void bind_speech(nb::module_& m) {
  bind_transcriber(m);
  bind_detector(m);
  bind_voice(m);
}

}  // namespace weft::python
