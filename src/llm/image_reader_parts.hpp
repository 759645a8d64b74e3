// What readers of images share, and a function for each kind of them.
#pragma once

#include <initializer_list>
#include <string_view>

#include "io/config_keys.hpp"
#include "llm/image_reader.hpp"
#include "vision/config.hpp"
#include "vision/weights.hpp"

namespace weft::llm::detail {

/// The first of the prefixes that some tensor of the files has with `probe` behind it; else the first.
std::string prefix_of(const io::TensorSource& files, std::initializer_list<const char*> prefixes,
                      std::string_view probe);
/// The layers whose states LLaVA's kin read, from 0 (none) to `count`: negative numbers count from the end.
std::vector<Extent> feature_layers(const io::ConfigKeys& keys, Extent fallback, Extent count);
/// The token of a config's key, which the tokenizer must have. FileError.
text::TokenId token_of(const io::ConfigKeys& keys, std::initializer_list<const char*> names, Extent fallback,
                       const text::Tokenizer& tokenizer);
/// The text of such a token.
std::string text_of_token(text::TokenId token, const text::Tokenizer& tokenizer, const std::string& source);
/// Whether the projector's activation is gelu. FileError for another.
void require_gelu(const io::ConfigKeys& keys);

/// Adds `count` equal parts of the values to the list.
void append_parts(std::vector<std::vector<float>>& all, const std::vector<float>& values, std::size_t count);

// Models have some hundreds. A prompt holds a token once for each.
inline constexpr Extent kTileRowsMax = 1 << 12;

/// LLaVA with CLIP or SigLIP, Idefics3, SmolVLM, Gemma 3: images are squares of one size.
std::unique_ptr<ImageReader> square_reader(const ImageReaderInput& input);
/// Qwen's models and those with Pixtral's tower: images keep their proportions.
std::unique_ptr<ImageReader> grid_reader(const ImageReaderInput& input);

}  // namespace weft::llm::detail
