// The configuration of a model from its files, whatever they are.
#pragma once

#include "llm/weights.hpp"
#include "weft/llm.hpp"

namespace weft::llm {

/// From a GGUF file's metadata, with the factors of positions that it keeps as tensors; from a folder's config.json; or, where
/// there is none, from the tensors and hints. FileError as `config_from_gguf`, `config_from_json` and `guessed_config`, and for
/// more layers than tensors.
ModelConfig read_config(const io::TensorSource& source, const TensorNames& names, const ModelHints& hints = {});

/// Whether a folder's head is made, of quantised weights or by an adapter. It is then not the table of tokens, whatever the
/// configuration says.
bool makes_head(const io::TensorSource& source);

/// Takes over factors of positions, which `factors_of` gives by the name of their tensor, or none. FileError as `check`.
void take_factors(ModelConfig& config, const std::function<std::vector<double>(const char* name)>& factors_of);

}  // namespace weft::llm
