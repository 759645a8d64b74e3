// Tokenizers and chat templates from GGUF files to Hugging Face folders and back.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "base/json.hpp"
#include "io/gguf.hpp"
#include "llm/config.hpp"

namespace weft::llm {

struct TokenizerFiles {
  std::map<std::string, std::string> files;  ///< text by name
};
/// tokenizer.json and its settings; ids of special tokens are set in `config_json` too. FileError for a vocabulary that
/// tokenizer.json cannot express.
TokenizerFiles tokenizer_files_of(const io::GgufFile& file, const ModelConfig& config, Json& config_json);

/// Adds the tokenizer of a folder to the metadata of a GGUF file, and gives what is to be known of it. FileError if there
/// is none, or it is malformed.
std::vector<std::string> add_tokenizer(io::GgufMetadata& metadata, const std::filesystem::path& folder,
                                       const ModelConfig& config);

}  // namespace weft::llm
