// What a kind of voice does: tokens of a text, and the sound of tokens.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "weft/speech/voice.hpp"

namespace weft::speech::detail {

class VoiceEngine {
 public:
  virtual ~VoiceEngine() = default;
  /// UsageError as Voice::encode.
  virtual std::vector<std::int32_t> encode(std::string_view text, bool is_phonemes) const = 0;
  /// The samples of tokens, which are checked, as the options are.
  virtual std::vector<float> synthesize(std::span<const std::int32_t> tokens, const SpeakOptions& options,
                                        std::uint32_t sentence) const = 0;
  virtual int rate() const = 0;
  virtual Extent vocabulary() const = 0;
  /// The most tokens of a sentence.
  virtual Extent tokens_max() const { return 4096; }
  virtual Extent speakers() const = 0;
  /// Empty where speakers have only numbers.
  virtual std::vector<std::string> speaker_names() const { return {}; }
  virtual Device device() const = 0;
  virtual std::uint64_t weight_bytes() const = 0;
  virtual std::string describe() const = 0;
};

std::shared_ptr<const VoiceEngine> load_vits(const std::filesystem::path& folder, const LoadOptions& options);
std::shared_ptr<const VoiceEngine> load_piper(const std::filesystem::path& file, const LoadOptions& options);
/// The settings beside a model of Piper.
std::filesystem::path piper_settings(const std::filesystem::path& file);

struct KokoroFiles {
  std::filesystem::path model, speakers, config;  // the last one need not exist
};
/// The files of a voice of Kokoro, if the path is one.
std::optional<KokoroFiles> kokoro_files(const std::filesystem::path& path);
std::shared_ptr<const VoiceEngine> load_kokoro(const KokoroFiles& files, const LoadOptions& options);

}  // namespace weft::speech::detail
