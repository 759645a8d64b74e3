#include "llm/model_folder.hpp"

#include <algorithm>
#include <span>

#include "base/name_pattern.hpp"

namespace weft::llm {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kWeights[] = {"*.safetensors", "*.safetensors.index.json", "pytorch_model*",
                                         "adapter_config.json"};
constexpr std::string_view kTokenizer[] = {"tokenizer.*",
                                           "tokenizer_config.json",
                                           "special_tokens_map.json",
                                           "added_tokens.json",
                                           "vocab.json",
                                           "vocab.txt",
                                           "merges.txt",
                                           "spiece.model",
                                           "sentencepiece.bpe.model",
                                           "*processor_config.json",
                                           "chat_template.*",
                                           "additional_chat_templates",
                                           "generation_config.json"};

bool matches_any(std::string_view name, std::span<const std::string_view> patterns) {
  return std::any_of(patterns.begin(), patterns.end(),
                     [&](std::string_view pattern) { return matches_pattern(name, pattern); });
}

}  // namespace

FolderRest rest_of_folder(const fs::path& folder, const std::function<bool(std::string_view)>& is_written) {
  FolderRest rest;
  std::error_code error;
  for (fs::directory_iterator each(folder, error), end; !error && each != end; each.increment(error)) {
    const std::string name = each->path().filename().string();
    if (is_written(name)) continue;
    if (matches_any(name, kWeights)) rest.weights.push_back(name);
    if (matches_any(name, kTokenizer)) rest.tokenizer.push_back(name);
  }
  std::sort(rest.weights.begin(), rest.weights.end());
  std::sort(rest.tokenizer.begin(), rest.tokenizer.end());
  return rest;
}

}  // namespace weft::llm
