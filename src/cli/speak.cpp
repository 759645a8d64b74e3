// weft speak
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <memory>

#include "cli/commands.hpp"
#include "cli/input.hpp"
#include "cli/language_model.hpp"
#include "cli/output.hpp"
#include "cli/stop_on_interrupt.hpp"
#include "weft/audio/sound.hpp"
#include "weft/device.hpp"
#include "weft/error.hpp"
#include "weft/speech.hpp"

namespace weft::cli {
namespace {

struct SpeakRequest {
  ModelOptions model;  // path, device and threads
  std::string text;
  std::filesystem::path file, out;
  speech::SpeakOptions options;
  double rate = 0, noise = -1, duration_noise = -1;  // outside of their ranges: those of the model
  std::string speaker = "0";                         // its number or name
  std::int64_t seed = 0;
  bool stats = false;
};

constexpr std::uint64_t kSpokenBytesMax = std::uint64_t{1} << 24;

int speak(SpeakRequest r) {
  if (r.text.empty() == r.file.empty()) throw UsageError("weft speak: give a text or --file, and not both");
  if (!r.file.empty()) r.text = read_text(r.file, kSpokenBytesMax);
  require_utf8_text(r.text, r.file.empty() ? "the text" : "--file");
  use_threads(r.model);
  set_default_device(parse_device(r.model.device));
  const speech::Voice voice = speech::load_voice(model_path(r.model.path));
  StopOnInterrupt stop;
  if (r.rate != 0) r.options.rate = r.rate;
  if (r.noise >= 0) r.options.noise = r.noise;
  if (r.duration_noise >= 0) r.options.duration_noise = r.duration_noise;
  const bool is_number =
      !r.speaker.empty() && std::ranges::all_of(r.speaker, [](char c) { return c >= '0' && c <= '9'; });
  if (is_number && r.speaker.size() < 10)
    r.options.speaker = std::stoll(r.speaker);
  else
    r.options.speaker_name = r.speaker;
  r.options.seed = static_cast<std::uint64_t>(r.seed);
  r.options.cancel = stop.token();
  const auto start = std::chrono::steady_clock::now();
  const audio::Sound sound = voice.speak(r.text, r.options);
  if (stop.signal() != 0) return kInterrupted;
  audio::save_wav(r.out, sound);
  if (r.stats) {
    const double taken = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    put_message(fmt::format("{}; {:.1f} s of sound in {:.1f} s", voice.describe(), sound.seconds(), taken));
  }
  return kOk;
}

}  // namespace

void set_up_speak(CLI::App& app, Action& action) {
  auto request = std::make_shared<SpeakRequest>();
  SpeakRequest& r = *request;
  app.footer("docs/speech.md describes voices and options.");
  app.add_option(
         "model", r.model.path,
         std::string(
             "folder of a VITS voice (config.json, vocab.json, safetensors), or a voice of Piper or Kokoro (.onnx)") +
             kOrName)
      ->required();
  app.add_option("text", r.text, "what to say");
  app.add_option("-f,--file", r.file, "read the text from a file; - is standard input");
  app.add_option("-o,--out", r.out, "the WAV file to write")->required();
  app.add_option("--rate", r.rate, "above 1: faster; otherwise the voice's own");
  app.add_option("--noise", r.noise, "how much the voice varies; 0: not at all; otherwise the voice's own");
  app.add_option("--duration-noise", r.duration_noise,
                 "how much the lengths of sounds vary; otherwise the voice's own");
  app.add_option("--speaker", r.speaker, "number or name of the speaker, of a model with several")
      ->capture_default_str();
  app.add_option("--seed", r.seed, "the same seed and text give the same sound")
      ->capture_default_str()
      ->check(CLI::NonNegativeNumber);
  app.add_option("--pause", r.options.pause, "seconds of silence between sentences")->capture_default_str();
  app.add_flag("--phonemes", r.options.is_phonemes,
               "the text is phonemes, or what else the voice's own front end makes of letters");
  app.add_flag("--stats", r.stats, "tell the speed at the end");
  app.add_option("--device", r.model.device, "auto, cpu, webgpu or webgpu:INDEX")->capture_default_str();
  app.add_option("--threads", r.model.threads, "CPU threads; 0: one for each core")->capture_default_str();
  app.callback([&action, request] { action = [request] { return speak(*request); }; });
}

}  // namespace weft::cli
