// What stands behind the layers of a model of sentence-transformers: pooling and products, and the prompts before texts.
#pragma once

#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "encoder/heads.hpp"

namespace weft::encoder {

struct SentenceModules {
  std::vector<Pooling> poolings = {Pooling::mean};  ///< side by side
  struct Dense {
    layers::Linear product;
    Extent width = 0;        ///< of its output
    std::string activation;  ///< an op; empty: none
    std::string folder;      ///< within the whole
  };
  std::vector<Dense> products;
  /// Of sparse embeddings (SPLADE, Formal et al. 2021, arXiv:2109.10086): of the scores of the vocabulary for each token, log(1 + max(x, 0)),
  /// and of those the largest in the text, or the sum.
  struct Splade {
    bool sums = false, is_twice = false;  ///< log(1 + log(1 + max(x, 0)))
  };
  std::optional<Splade> splade;
  std::vector<std::string> folders;  ///< of all modules but the model's own, within the whole
  std::map<std::string, std::string> prompts;
  std::optional<std::string> default_prompt;
  bool pools_prompts = true;                ///< whether the tokens of a prompt count
  Extent length = 0;                        ///< most tokens of a text; 0: as the model says
  std::filesystem::path transformer = ".";  ///< the folder of the model itself, within the whole

  /// f32 [texts, width].
  Tensor embedded(const Tensor& states, const Padded& texts) const;
  /// f32 [texts, vocabulary], of scores f32 [texts length, vocabulary].
  Tensor sparse(const Tensor& scores, const Padded& texts) const;
  Extent width(Extent hidden) const;
};

/// Of a folder with a modules.json; the defaults where there is none. Dense modules are read by `read_products`. FileError for
/// modules that Weft does not have.
SentenceModules read_sentence_modules(const std::filesystem::path& folder);
/// Of a GGUF file, whose metadata names a pooling. FileError for one that Weft does not have.
SentenceModules read_sentence_modules(const io::GgufMetadata& metadata);
/// The Dense modules. `bytes` grows by what they take on the device.
void read_products(const std::filesystem::path& folder, Extent hidden, Device device, SentenceModules& modules,
                   std::uint64_t& bytes);

}  // namespace weft::encoder
