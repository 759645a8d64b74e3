// Numbers that one kind of file has in its configuration, and the other in its tensors.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "io/tensor_source.hpp"
#include "llm/config.hpp"
#include "llm/convert_moves.hpp"
#include "llm/weights.hpp"

namespace weft::llm {

/// Falcon-H1's factors of a layer's parts, which GGUF files have in the weights: those of the rows of constants, by name. The
/// configuration is then of a model without factors. Those of a table that is the head, too, stay in it.
std::map<std::string, std::vector<RowFactor>> take_factors_of_parts(ModelConfig& config);

/// Puts the numbers of Apertus's activations, which folders have as tensors, into the configuration.
void take_xielu(ModelConfig& config, const io::TensorSource& source, const TensorNames& names);
/// The same numbers as tensors of a folder, by name.
struct NumberTensor {
  std::string name;
  Shape shape;
  float value = 0;
};
std::vector<NumberTensor> xielu_tensors(const ModelConfig& config);

}  // namespace weft::llm
