// Voices of Kokoro (StyleTTS 2 with an inverse short-time transform, https://arxiv.org/abs/2306.07691) as files of ONNX: the model, and
// beside it the styles of its speakers.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <utility>

#include "base/file.hpp"
#include "base/json.hpp"
#include "base/quote.hpp"
#include "base/utf8.hpp"
#include "io/config_keys.hpp"
#include "io/npz.hpp"
#include "speech/seeded_run.hpp"
#include "speech/voice_engine.hpp"
#include "weft/error.hpp"
#include "weft/onnx.hpp"
#include "weft/ops.hpp"

namespace weft::speech::detail {
namespace {

constexpr int kRate = 24000;
constexpr Extent kStyle = 256;                                // numbers of a style
constexpr std::uint64_t kStylesMax = std::uint64_t{1} << 30;  // bytes of a file of styles

struct Symbol {
  char32_t phoneme;
  std::int32_t token;
};
/// The symbols of version 1.0, which its files do not have. Token 0 is around a sentence.
constexpr Symbol kSymbols[] = {
    {U';', 1},        {U':', 2},        {U',', 3},        {U'.', 4},        {U'!', 5},        {U'?', 6},
    {U'\u2014', 9},   {U'\u2026', 10},  {U'"', 11},       {U'(', 12},       {U')', 13},       {U'\u201c', 14},
    {U'\u201d', 15},  {U' ', 16},       {U'\u0303', 17},  {U'\u02a3', 18},  {U'\u02a5', 19},  {U'\u02a6', 20},
    {U'\u02a8', 21},  {U'\u1d5d', 22},  {U'\uab67', 23},  {U'A', 24},       {U'I', 25},       {U'O', 31},
    {U'Q', 33},       {U'S', 35},       {U'T', 36},       {U'W', 39},       {U'Y', 41},       {U'\u1d4a', 42},
    {U'a', 43},       {U'b', 44},       {U'c', 45},       {U'd', 46},       {U'e', 47},       {U'f', 48},
    {U'h', 50},       {U'i', 51},       {U'j', 52},       {U'k', 53},       {U'l', 54},       {U'm', 55},
    {U'n', 56},       {U'o', 57},       {U'p', 58},       {U'q', 59},       {U'r', 60},       {U's', 61},
    {U't', 62},       {U'u', 63},       {U'v', 64},       {U'w', 65},       {U'x', 66},       {U'y', 67},
    {U'z', 68},       {U'\u0251', 69},  {U'\u0250', 70},  {U'\u0252', 71},  {U'\u00e6', 72},  {U'\u03b2', 75},
    {U'\u0254', 76},  {U'\u0255', 77},  {U'\u00e7', 78},  {U'\u0256', 80},  {U'\u00f0', 81},  {U'\u02a4', 82},
    {U'\u0259', 83},  {U'\u025a', 85},  {U'\u025b', 86},  {U'\u025c', 87},  {U'\u025f', 90},  {U'\u0261', 92},
    {U'\u0265', 99},  {U'\u0268', 101}, {U'\u026a', 102}, {U'\u029d', 103}, {U'\u026f', 110}, {U'\u0270', 111},
    {U'\u014b', 112}, {U'\u0273', 113}, {U'\u0272', 114}, {U'\u0274', 115}, {U'\u00f8', 116}, {U'\u0278', 118},
    {U'\u03b8', 119}, {U'\u0153', 120}, {U'\u0279', 123}, {U'\u027e', 125}, {U'\u027b', 126}, {U'\u0281', 128},
    {U'\u027d', 129}, {U'\u0282', 130}, {U'\u0283', 131}, {U'\u0288', 132}, {U'\u02a7', 133}, {U'\u028a', 135},
    {U'\u028b', 136}, {U'\u028c', 138}, {U'\u0263', 139}, {U'\u0264', 140}, {U'\u03c7', 142}, {U'\u028e', 143},
    {U'\u0292', 147}, {U'\u0294', 148}, {U'\u02c8', 156}, {U'\u02cc', 157}, {U'\u02d0', 158}, {U'\u02b0', 162},
    {U'\u02b2', 164}, {U'\u2193', 169}, {U'\u2192', 171}, {U'\u2197', 172}, {U'\u2198', 173}, {U'\u1d7b', 177},
};

/// A speaker: a style for each number of phonemes, [phonemes, 256].
using Styles = std::vector<float>;

Styles styles_of(std::span<const std::byte> bytes, const std::string& source) {
  constexpr std::size_t kRowBytes = kStyle * sizeof(float);
  if (bytes.empty() || bytes.size() % kRowBytes != 0)
    throw FileError(fmt::format("{}: {} bytes are not styles of {} f32 numbers each", source, bytes.size(), kStyle));
  Styles styles(bytes.size() / sizeof(float));
  std::memcpy(styles.data(), bytes.data(), bytes.size());
  return styles;
}

/// Speakers of a file of NumPy (voices-v1.0.bin), or of a folder with a file of numbers for each.
std::map<std::string, Styles> read_speakers(const std::filesystem::path& path) {
  std::map<std::string, Styles> speakers;
  if (std::filesystem::is_directory(path)) {
    for (const std::filesystem::directory_entry& entry : std::filesystem::directory_iterator(path)) {
      if (entry.path().extension() != ".bin") continue;
      const std::vector<std::byte> bytes = read_file(entry.path(), kStylesMax);
      speakers.emplace(entry.path().stem().string(), styles_of(bytes, entry.path().string()));
    }
  } else {
    for (const auto& [name, array] : io::read_npz(path)) {
      const std::string source = fmt::format("{}: {}", path.string(), quote(name));
      if (array.dtype != DType::f32 || array.shape.rank() < 2 || array.shape.back() != kStyle)
        throw FileError(fmt::format("{}: is {} {}, and not f32 [phonemes, {}]", source, name_of(array.dtype),
                                    array.shape.to_string(), kStyle));
      speakers.emplace(name, styles_of(array.data, source));
    }
  }
  if (speakers.empty()) throw FileError(fmt::format("{}: has no speaker", path.string()));
  return speakers;
}

std::map<char32_t, std::int32_t> read_symbols(const std::filesystem::path& config) {
  std::map<char32_t, std::int32_t> symbols;
  std::error_code ignored;
  if (std::filesystem::is_regular_file(config, ignored)) {
    const std::string source = config.string();
    const Json json = read_json_file(source, {.max_bytes = std::uint64_t{1} << 20, .max_values = 20'000});
    const io::ConfigKeys keys(json, source);
    if (const Json* vocab = keys.find({"vocab"})) {
      if (!vocab->is_object()) keys.fail("vocab", "is not an object of tokens by phoneme");
      for (const auto& [phoneme, token] : vocab->items()) {
        const std::u32string name = decode_utf8(phoneme, source);
        if (!token.is_number_integer() || token < 0 || token > 65535 || name.size() != 1)
          keys.fail("vocab", fmt::format("has {} for {}", token.dump(), quote(phoneme)));
        symbols[name[0]] = token.get<std::int32_t>();
      }
      return symbols;
    }
  }
  for (const Symbol& symbol : kSymbols) symbols[symbol.phoneme] = symbol.token;
  return symbols;
}

class KokoroVoice : public VoiceEngine {
 public:
  KokoroVoice(const KokoroFiles& files, const LoadOptions& options)
      : model_(onnx::load(files.model, options.device)),
        weight_bytes_(std::filesystem::file_size(files.model)),
        symbols_(read_symbols(files.config)) {
    for (auto& [name, styles] : read_speakers(files.speakers)) {
      names_.push_back(name);
      styles_.push_back(std::move(styles));
    }
    for (const auto& [phoneme, token] : symbols_) vocabulary_ = std::max<Extent>(vocabulary_, token + 1);
    const auto port = [&](std::initializer_list<std::string_view> names) -> const onnx::Port& {
      for (const onnx::Port& input : model_.inputs())
        if (std::ranges::find(names, input.name) != names.end()) return input;
      throw FileError(fmt::format("{}: has no input {}; is it a voice of Kokoro?", files.model.string(),
                                  quote(std::string(*names.begin()))));
    };
    tokens_name_ = port({"tokens", "input_ids"}).name;
    style_name_ = port({"style"}).name;
    const onnx::Port& speed = port({"speed"});
    speed_name_ = speed.name;
    speed_type_ = speed.type.value_or(DType::f32);
  }

  // A mark of the end on both sides.
  std::vector<std::int32_t> encode(std::string_view text, bool is_phonemes) const override {
    if (!is_phonemes)
      throw UsageError(
          "speak: the voice reads phonemes, and not letters; give those of another program, such as espeak-ng -q "
          "--ipa");
    std::vector<std::int32_t> tokens = {0};
    for (const char32_t c : decode_utf8(text)) {
      const bool is_space = c == U'\n' || c == U'\t' || c == U'\r';
      if (const auto found = symbols_.find(is_space ? U' ' : c); found != symbols_.end())
        tokens.push_back(found->second);
    }
    if (tokens.size() == 1) throw UsageError(fmt::format("speak: the voice knows no character of {}", quote(text, 60)));
    tokens.push_back(0);
    return tokens;
  }

  std::vector<float> synthesize(std::span<const std::int32_t> tokens, const SpeakOptions& o,
                                std::uint32_t sentence) const override {
    const bool is_cpu = model_.device() == kCpu;
    const auto count = static_cast<Extent>(tokens.size());
    const Styles& styles = styles_[static_cast<std::size_t>(o.speaker)];
    const Extent rows = static_cast<Extent>(styles.size()) / kStyle;
    const Extent row = std::clamp<Extent>(count - 2, 1, rows) - 1;  // of so many phonemes
    const Tensor ids = tensor_from_bytes(tokens.data(), {1, count}, DType::i32, kCpu);
    const auto rate = static_cast<float>(o.rate.value_or(1));
    const Tensor speed = cast(tensor_from_bytes(&rate, {1}, DType::f32, kCpu), speed_type_);
    // A GPU has no integers of 64 bits, and takes these.
    const NamedTensors inputs = {
        {tokens_name_, is_cpu ? cast(ids, DType::i64) : ids.to(model_.device())},
        {style_name_, tensor_from_bytes(styles.data() + row * kStyle, {1, kStyle}, DType::f32, model_.device())},
        {speed_name_, speed.to(model_.device())}};
    const SeededRun run(o.seed, sentence);
    const Tensor sound = model_.run(inputs).begin()->second;
    return cast(reshape(sound, {sound.numel()}), DType::f32).to_vector<float>();
  }

  int rate() const override { return kRate; }
  Extent vocabulary() const override { return vocabulary_; }
  Extent tokens_max() const override { return 512; }
  Extent speakers() const override { return static_cast<Extent>(names_.size()); }
  std::vector<std::string> speaker_names() const override { return names_; }
  Device device() const override { return model_.device(); }
  std::uint64_t weight_bytes() const override { return weight_bytes_; }
  std::string describe() const override {
    return fmt::format("kokoro: {} symbols, {} speaker{}, {} Hz, {:.1f} MB of weights on {}", symbols_.size(),
                       names_.size(), names_.size() == 1 ? "" : "s", kRate, static_cast<double>(weight_bytes_) / 1e6,
                       device().to_string());
  }

 private:
  onnx::Model model_;
  std::uint64_t weight_bytes_;
  std::map<char32_t, std::int32_t> symbols_;
  std::vector<std::string> names_;  // in their order
  std::vector<Styles> styles_;
  Extent vocabulary_ = 1;
  std::string tokens_name_, style_name_, speed_name_;
  DType speed_type_ = DType::f32;
};

bool is_file(const std::filesystem::path& path) {
  std::error_code ignored;
  return std::filesystem::is_regular_file(path, ignored);
}

}  // namespace

std::optional<KokoroFiles> kokoro_files(const std::filesystem::path& path) {
  std::error_code ignored;
  KokoroFiles files;
  if (std::filesystem::is_directory(path, ignored)) {
    files.speakers = path / "voices";
    if (!std::filesystem::is_directory(files.speakers, ignored)) return {};
    for (const char* name : {"onnx/model.onnx", "onnx/model_fp16.onnx", "onnx/model_quantized.onnx", "model.onnx"})
      if (files.model.empty() && is_file(path / name)) files.model = path / name;
    if (files.model.empty()) return {};
    files.config = path / "config.json";
    return files;
  }
  if (path.extension() != ".onnx" || !is_file(path)) return {};
  files.model = path;
  const std::filesystem::path folder = path.has_parent_path() ? path.parent_path() : std::filesystem::path(".");
  files.config = folder / "config.json";
  std::vector<std::filesystem::path> found;
  for (const std::filesystem::directory_entry& entry : std::filesystem::directory_iterator(folder, ignored)) {
    const std::string name = entry.path().filename().string();
    const std::string extension = entry.path().extension().string();
    if (name.starts_with("voices") && (extension == ".bin" || extension == ".npz")) found.push_back(entry.path());
  }
  if (found.empty()) return {};
  files.speakers = *std::ranges::max_element(found);  // of several versions the last one
  return files;
}

std::shared_ptr<const VoiceEngine> load_kokoro(const KokoroFiles& files, const LoadOptions& options) {
  return std::make_shared<KokoroVoice>(files, options);
}

}  // namespace weft::speech::detail
