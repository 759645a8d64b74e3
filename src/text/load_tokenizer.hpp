// Tokenizers of models on disk.
#pragma once

#include <filesystem>
#include <string>

#include "io/gguf_metadata.hpp"
#include "text/tokenizer.hpp"

namespace weft::text {

/// A whole tokenizer.json in a GGUF file; where it is there, it counts.
inline constexpr const char* kWholeTokenizerKey = "tokenizer.huggingface.json";

/// The tokenizer of a GGUF file's metadata. `more_token`, unless it is empty, is a special token behind those of the vocabulary,
/// which the model itself does not know. FileError as `Tokenizer::from_gguf` and `Tokenizer::from_json`.
Tokenizer tokenizer_of_gguf(const io::GgufMetadata& metadata, const std::string& more_token = {});

/// The vocabulary that the keys tokenizer.ggml.* hold. FileError if one is missing or of another type.
GgufVocabulary gguf_vocabulary(const io::GgufMetadata& metadata);

/// The tokenizer of a tokenizer.json, of a folder that holds one, or of a GGUF file (by its first bytes). Errors as
/// `Tokenizer::from_json_file`, `io::GgufFile::open` and `Tokenizer::from_gguf`.
Tokenizer load_tokenizer(const std::filesystem::path& path);

}  // namespace weft::text
