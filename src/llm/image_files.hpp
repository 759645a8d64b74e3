// What the part of a model that sees is made of, wherever it is kept: a Hugging Face folder, or a file beside a GGUF file.
#pragma once

#include <filesystem>
#include <functional>
#include <string>

#include "base/json.hpp"
#include "io/tensor_source.hpp"
#include "vision/preprocess.hpp"

namespace weft::llm::detail {

struct ImageFiles {
  Json config;         ///< the keys of a config.json of a model that reads images
  std::string source;  ///< of the configuration, for messages
  std::string place;   ///< of all files, for messages
  vision::ImageProcessor processor;
  io::TensorSource tensors;  ///< with the names of a folder
  /// Gemma 3: whether the norm of its rows holds w of 1 + w, as folders do, or the sum.
  bool norms_lack_one = true;
  /// The name that the files give a tensor, for messages; null: its own.
  std::function<std::string(const std::string& name)> shown = {};
};

/// Of a folder with a config.json of a model that reads images. FileError for files that are missing or malformed.
ImageFiles image_files_of_folder(const std::filesystem::path& folder, const io::TensorSource& tensors);

}  // namespace weft::llm::detail
