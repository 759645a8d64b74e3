// What a kind of voice does: tokens of a text, and the sound of tokens.
#pragma once

#include <cstdint>
#include <memory>
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
  virtual Extent speakers() const = 0;
  virtual Device device() const = 0;
  virtual std::uint64_t weight_bytes() const = 0;
  virtual std::string describe() const = 0;
};

std::shared_ptr<const VoiceEngine> load_vits(const std::filesystem::path& folder, const LoadOptions& options);
std::shared_ptr<const VoiceEngine> load_piper(const std::filesystem::path& file, const LoadOptions& options);
/// The settings beside a model of Piper.
std::filesystem::path piper_settings(const std::filesystem::path& file);

}  // namespace weft::speech::detail
