// Configurations as the two kinds of files write them: the way back of config.hpp.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "llm/ir.hpp"

namespace weft::llm {

/// The number that was meant where a file keeps it as f32: 9.99999997e-07 was written as 1e-06.
double tidy(double value);

/// The model_type or general.architecture that the other kind of file calls a model by.
std::string architecture_elsewhere(const ModelConfig& config);

/// How much the frequencies of positions are slowed, a factor a pair.
std::vector<double> slowing_of(const ModelConfig& config);
/// Layers before the first that has experts.
Extent leading_dense(const ModelConfig& config);

/// The config.json of a model whose graph this is, but for its tokens and dtype.
Json config_to_json(const ModelGraph& graph);

/// The keys of experts of GLM-4.5, ERNIE 4.5, Hunyuan, Llama 4 and MiniMax-M2, for the file that config.json describes.
void add_mixture(Json& json, const ModelGraph& graph, const ModelConfig& config);

/// The keys of layers with states.
void add_states(Json& json, const ModelGraph& graph, const ModelConfig& config);
void add_states(io::GgufMetadata& metadata, const std::string& architecture, const ModelConfig& config);
/// The numbers of Apertus's activations, which folders have as tensors.
void add_xielu(io::GgufMetadata& metadata, const ModelConfig& config);
/// The keys of Gemma's later models.
void add_gemma(Json& json, const ModelGraph& graph, const ModelConfig& config);
void add_gemma(io::GgufMetadata& metadata, const std::string& architecture, const ModelConfig& config);

/// Factors of the positions of Gemma 4's layers without a window, which stop the pairs that do not turn.
std::vector<float> gguf_gemma4_factors(const ModelConfig& config);

struct GgufConfig {
  io::GgufMetadata metadata;
  std::map<std::string, std::vector<float>> factors;  ///< of positions, which GGUF keeps as tensors
  std::map<std::string, Shape> zeros;  ///< tensors that nothing reads, but without which llama.cpp refuses the file
};
/// The metadata that describes a model, but for its tokens and file type.
GgufConfig config_to_gguf(const ModelGraph& graph);
/// Of these families, and of DeepSeek: how experts are chosen, in which layers they are, and how wide they are.
void add_mixture(io::GgufMetadata& metadata, const std::string& architecture, const ModelConfig& config);

}  // namespace weft::llm
