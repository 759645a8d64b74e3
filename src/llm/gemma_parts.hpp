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

/// Attention of layers that see a window and of those that see everything, whose heads may be others. Each kind keeps the names of the
/// last keys and values that it made, for the last layers, which have none of their own.
class AttentionOfTwoKinds {
 public:
  explicit AttentionOfTwoKinds(GraphBuilder& b);
  std::string of(const std::string& x);

 private:
  struct KeysValues {
    std::string k, v;
  };
  GraphBuilder& b_;
  const ModelConfig& c_;
  const std::vector<bool> windowed_;
  KeysValues local_, global_;
};

}  // namespace weft::llm
