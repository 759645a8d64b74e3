// The configuration of a model that has none: its family from the names of tensors, its sizes from their shapes.
#pragma once

#include <optional>

#include "base/json.hpp"
#include "llm/weights.hpp"
#include "weft/llm.hpp"

namespace weft::llm {

/// What a config.json would say, as its JSON. Names tell the family: Llama, Qwen 2 and 3, Gemma 2 and 3, Phi-3, Mixtral, GPT-2,
/// gpt-oss, BLOOM, MPT, Mamba and Mamba-2. Shapes tell the vocabulary, widths and layers; norms of heads tell the size of a head. What remains are the
/// hints, and defaults of the family where a wrong one would not make the model another: the base of positions, the
/// epsilon of norms, and the context.
/// Errors: FileError for names of no known family, and for what neither tensors nor hints tell, with the hint to give; UsageError
/// for hints that do not fit the shapes.
Json guessed_config(const TensorNames& names, const ModelHints& hints);

/// The same for encoders, which are not language models: Whisper, CLIP and BERT, by their names, or by the hint `architecture`. Heads
/// are 64 wide unless a hint says how many there are. Nothing for other names. Errors: FileError for what the tensors lack.
std::optional<Json> guessed_encoder_config(const io::TensorSource& source, const ModelHints& hints);

}  // namespace weft::llm
