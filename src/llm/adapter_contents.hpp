// What an adapter's file or folder holds, by the names of its kind of file.
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "io/tensor_source.hpp"
#include "llm/adapter_modules.hpp"

namespace weft::llm {

constexpr std::string_view kAdapterConfig = "adapter_config.json", kAdapterWeights = "adapter_model.safetensors",
                           kAdapterPrefix = "base_model.model.";

struct AdapterContents {
  bool is_folder = false;
  ModuleChanges modules;  ///< of products
  ModuleChanges tables;   ///< of tables of tokens, whose rows are the columns of B A
  /// Tensors that take the place of the model's own (modules_to_save, biases), whose data `source` holds.
  struct Saved {
    std::string key;
    io::SourceTensor tensor;
  };
  std::vector<Saved> saved;
  std::shared_ptr<const io::TensorSource> source;

  bool changes_tensors() const { return !saved.empty() || !tables.empty(); }
};

/// Whether the path is an adapter: a folder with adapter_config.json, or a GGUF file that says so.
bool is_adapter(const std::filesystem::path& path);

/// Errors: FileError if it is not an adapter, or is of a kind that Weft does not read.
AdapterContents read_contents(const std::filesystem::path& path, double scale);

}  // namespace weft::llm
