#include "cli/voice_chat.hpp"

#include <fmt/format.h>

#include "cli/language_model.hpp"
#include "weft/device.hpp"
#include "weft/error.hpp"
#include "weft/speech.hpp"

namespace weft::cli {

void add_voice_options(CLI::App& app, VoiceChatOptions& o) {
  app.add_option("--listen", o.listen,
                 "answer what is said in a file (WAV, FLAC, Ogg, MP3) and end; needs --transcriber");
  app.add_option("--transcriber", o.transcriber, "folder of a Whisper model, for --listen");
  app.add_option("--language", o.language, "language of --listen; otherwise it is detected");
  app.add_option("--say", o.say, "write the answer as a sound to this WAV file; needs --voice and one question");
  app.add_option("--voice", o.voice, "folder of a VITS voice, or a voice of Piper that reads letters, for --say");
}

void check(const VoiceChatOptions& o) {
  if (o.listen.empty() != o.transcriber.empty()) throw UsageError("--listen and --transcriber belong together");
  if (o.say.empty() != o.voice.empty()) throw UsageError("--say and --voice belong together");
  if (!o.language.empty() && o.listen.empty()) throw UsageError("--language is that of --listen FILE");
}

std::string hear(const VoiceChatOptions& o, const ModelOptions& model) {
  const audio::Sound sound = audio::load(o.listen);
  use_threads(model);
  const speech::Transcriber transcriber =
      speech::load_transcriber(model_path(o.transcriber), {.device = first_device(model.device)});
  std::string text = transcriber.transcribe(sound, {.language = o.language}).text;
  if (text.empty()) throw UsageError(fmt::format("--listen {}: no words were heard", o.listen.string()));
  return text;
}

void say(std::string_view text, const VoiceChatOptions& o, const ModelOptions& model) {
  const speech::Voice voice = speech::load_voice(model_path(o.voice), {.device = first_device(model.device)});
  audio::save_wav(o.say, voice.speak(text));
}

}  // namespace weft::cli
