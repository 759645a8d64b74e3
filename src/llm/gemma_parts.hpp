// What Gemma's later models share: inputs that each layer has of its own, and layers that read the keys of others.
#pragma once

#include <string>
#include <vector>

#include "llm/builder.hpp"

namespace weft::llm {

/// Inputs of all layers side by side, [T, layers * width]: rows of a table of tokens, and a product of the embeddings `x`, normalised.
std::string layer_inputs(GraphBuilder& b, const std::string& x);
/// What the layer makes of x and of its part of those inputs.
std::string layer_input_added(GraphBuilder& b, const std::string& x, const std::string& inputs);

/// Whether each layer sees a window.
std::vector<bool> windowed_layers(const ModelConfig& config);
/// The layer whose keys and values layer `i` reads: itself, or the last of its kind among those that have some.
Extent layer_of_keys(const ModelConfig& config, const std::vector<bool>& windowed, Extent i);

}  // namespace weft::llm
