// Gemma's later models in both kinds of files.
#pragma once

#include "io/gguf_metadata.hpp"
#include "llm/config.hpp"

namespace weft::llm {

/// Of normal numbers, how many standard deviations above the mean has this share below it; minus infinity for 0. And the way back.
double deviations_of_share(double share);
double share_of_deviations(double deviations);

/// Which layers have windows, if the file tells.
void read_gguf_windows(const io::GgufMetadata& metadata, ModelConfig& config);
void read_gguf_gemma3n(const io::GgufMetadata& metadata, ModelConfig& config);
void read_gguf_gemma4(const io::GgufMetadata& metadata, ModelConfig& config);
/// Factors of the positions of Gemma 4's layers without a window: 1 for pairs that turn, and behind them huge ones for those that do
/// not. False for any others.
bool take_gguf_gemma4_factors(ModelConfig& config, const std::vector<double>& factors);
/// FileError unless what they say fits.
void check_gemma(const ModelConfig& config);

}  // namespace weft::llm
