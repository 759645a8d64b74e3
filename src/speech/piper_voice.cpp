// Voices of Piper: a VITS model in ONNX's format, which draws its noise itself, and settings beside it.
#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "base/json.hpp"
#include "base/quote.hpp"
#include "base/utf8.hpp"
#include "io/config_keys.hpp"
#include "speech/seeded_run.hpp"
#include "speech/voice_engine.hpp"
#include "weft/error.hpp"
#include "weft/onnx.hpp"
#include "weft/ops.hpp"

namespace weft::speech::detail {
namespace {

class PiperVoice : public VoiceEngine {
 public:
  PiperVoice(const std::filesystem::path& file, const LoadOptions& options)
      : model_(onnx::load(file, options.device)), weight_bytes_(std::filesystem::file_size(file)) {
    const std::string source = piper_settings(file).string();
    const Json json = read_json_file(source, {.max_bytes = std::uint64_t{8} << 20, .max_values = 200'000});
    const io::ConfigKeys keys(json, source);
    const auto part = [&](const char* name) {
      const Json* found = keys.find({name});
      return found ? *found : Json::object();
    };
    const Json audio = part("audio"), inference = part("inference");
    const io::ConfigKeys audio_keys(audio, source, "audio"), inference_keys(inference, source, "inference");
    rate_ = static_cast<int>(audio_keys.size({"sample_rate"}, 22050));
    if (rate_ < 1 || rate_ > audio::kRateMax) audio_keys.fail("sample_rate", fmt::format("is {}", rate_));
    noise_ = inference_keys.number({"noise_scale"}, 0.667);
    length_ = inference_keys.number({"length_scale"}, 1.0);
    duration_noise_ = inference_keys.number({"noise_w"}, 0.8);
    if (!(noise_ >= 0 && length_ > 0 && duration_noise_ >= 0))
      inference_keys.fail("", "has a scale that is not positive");
    speakers_ = std::max<Extent>(keys.size({"num_speakers"}, 1), 1);
    vocabulary_ = keys.size({"num_symbols"}, 256);
    reads_letters_ = keys.text({"phoneme_type"}, "espeak") == "text";
    const Json* map = keys.find({"phoneme_id_map"});
    if (!map || !map->is_object()) keys.fail("phoneme_id_map", "is not an object of tokens by phoneme");
    for (const auto& [phoneme, list] : map->items()) {
      const std::u32string name = decode_utf8(phoneme, source);
      if (!list.is_array())
        keys.fail("phoneme_id_map", fmt::format("has {} for {}, not a list of tokens", list.dump(), quote(phoneme)));
      if (name.size() != 1) continue;
      for (const Json& id : list) {
        if (!id.is_number_integer() || id < 0 || id >= vocabulary_)
          keys.fail("phoneme_id_map", fmt::format("has {} for {}, which is not one of {} symbols", id.dump(),
                                                  quote(phoneme), vocabulary_));
        ids_[name[0]].push_back(id.get<std::int32_t>());
      }
    }
    for (const char32_t mark : U"_^$")
      if (mark != 0 && !ids_.contains(mark)) keys.fail("phoneme_id_map", "lacks _, ^ or $, which are around phonemes");
    std::vector<std::string> wanted = {"input", "input_lengths", "scales"};
    if (speakers_ > 1) wanted.emplace_back("sid");
    for (const std::string& name : wanted)
      if (std::none_of(model_.inputs().begin(), model_.inputs().end(),
                       [&](const onnx::Port& port) { return port.name == name; }))
        throw FileError(fmt::format("{}: has no input \"{}\"; is it a voice of Piper?", file.string(), name));
  }

  // The beginning, each phoneme with a blank behind it, the end.
  std::vector<std::int32_t> encode(std::string_view text, bool is_phonemes) const override {
    if (!is_phonemes && !reads_letters_)
      throw UsageError(
          "speak: the voice reads phonemes, and not letters; give those of another program, such as espeak-ng -q "
          "--ipa");
    std::vector<std::int32_t> tokens = ids_.at(U'^');
    const std::vector<std::int32_t>& blank = ids_.at(U'_');
    const auto put = [&](const std::vector<std::int32_t>& ids) { tokens.insert(tokens.end(), ids.begin(), ids.end()); };
    put(blank);
    bool knows_one = false;
    for (const char32_t c : decode_utf8(text))
      if (const auto found = ids_.find(c); found != ids_.end() && c != U'^' && c != U'$' && c != U'_') {
        knows_one = true;
        put(found->second);
        put(blank);
      }
    if (!knows_one) throw UsageError(fmt::format("speak: the voice knows no character of {}", quote(text, 60)));
    put(ids_.at(U'$'));
    return tokens;
  }

  std::vector<float> synthesize(std::span<const std::int32_t> tokens, const SpeakOptions& o,
                                std::uint32_t sentence) const override {
    const auto count = static_cast<std::int32_t>(tokens.size());
    const auto whole = [&](std::vector<std::int32_t> values, const Shape& shape) {
      const Tensor x = tensor_from_bytes(values.data(), shape, DType::i32, kCpu);
      // A GPU has no integers of 64 bits, and takes these.
      return model_.device() == kCpu ? cast(x, DType::i64) : x.to(model_.device());
    };
    const float scales[] = {static_cast<float>(o.noise.value_or(noise_)),
                            static_cast<float>(o.rate ? 1 / *o.rate : length_),
                            static_cast<float>(o.duration_noise.value_or(duration_noise_))};
    NamedTensors inputs = {{"input", whole({tokens.begin(), tokens.end()}, {1, count})},
                           {"input_lengths", whole({count}, {1})},
                           {"scales", tensor_from_bytes(scales, {3}, DType::f32, model_.device())}};
    if (speakers_ > 1) inputs.emplace("sid", whole({static_cast<std::int32_t>(o.speaker)}, {1}));
    const SeededRun run(o.seed, sentence);
    const Tensor sound = model_.run(inputs).begin()->second;
    return cast(reshape(sound, {sound.numel()}), DType::f32).to_vector<float>();
  }

  int rate() const override { return rate_; }
  Extent vocabulary() const override { return vocabulary_; }
  Extent speakers() const override { return speakers_; }
  Device device() const override { return model_.device(); }
  std::uint64_t weight_bytes() const override { return weight_bytes_; }
  std::string describe() const override {
    return fmt::format("piper: {} symbols, {} speaker{}, {} Hz, {:.1f} MB of weights on {}", vocabulary_, speakers_,
                       speakers_ == 1 ? "" : "s", rate_, static_cast<double>(weight_bytes_) / 1e6,
                       device().to_string());
  }

 private:
  onnx::Model model_;
  std::uint64_t weight_bytes_;
  int rate_ = 22050;
  double noise_, length_, duration_noise_;
  Extent speakers_ = 1, vocabulary_ = 0;
  bool reads_letters_ = false;
  std::map<char32_t, std::vector<std::int32_t>> ids_;
};

}  // namespace

std::filesystem::path piper_settings(const std::filesystem::path& file) {
  std::filesystem::path settings = file;
  settings += ".json";
  return settings;
}

std::shared_ptr<const VoiceEngine> load_piper(const std::filesystem::path& file, const LoadOptions& options) {
  return std::make_shared<PiperVoice>(file, options);
}

}  // namespace weft::speech::detail
