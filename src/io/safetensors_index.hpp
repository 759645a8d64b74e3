// Models spread over several safetensors files: model.safetensors.index.json and its shards.
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "io/safetensors.hpp"

namespace weft::io {

/// The contents of an index file: which file of its folder holds which tensor.
struct SafetensorsIndex {
  std::map<std::string, std::string> weight_map;  ///< tensor -> file name
  std::vector<std::string> files;                 ///< each file once, sorted
};

/// Reads an index. FileError for anything but an object with "weight_map", an object of file names, and for file names
/// that are not plain names ending in ".safetensors": an index may name only files of its own folder.
SafetensorsIndex read_safetensors_index(const std::filesystem::path& path);

/// The tensors of a model folder.
class SafetensorsFolder {
 public:
  /// Opens model.safetensors or, when there is none, model.safetensors.index.json with every shard it names, and checks that
  /// each tensor is in the file that the index says, and in no other. Shards may be links to files elsewhere. FileError as
  /// `read_safetensors_index` and SafetensorsFile, and for missing shards.
  static SafetensorsFolder open(const std::filesystem::path& folder);

  /// By name.
  const std::map<std::string, TensorView>& tensors() const { return tensors_; }
  const std::vector<SafetensorsFile>& files() const { return files_; }

 private:
  std::vector<SafetensorsFile> files_;  // keep the mappings that the views read from
  std::map<std::string, TensorView> tensors_;
};

}  // namespace weft::io
