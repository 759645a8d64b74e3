// Tiny text encoders, as make.py describes them, put into folders.
#pragma once

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <string>

#include "base/file.hpp"
#include "base/json.hpp"
#include "base/temporary_folder.hpp"
#include "llm/tiny_model.hpp"
#include "weft/encoder.hpp"

namespace weft::test {

inline Json encoder_case(const std::string& name) {
  return read_json_file(std::filesystem::path(WEFT_TEST_ENCODERS) / (name + ".json"));
}

inline std::vector<std::string> encoder_names() {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(WEFT_TEST_ENCODERS))
    names.push_back(entry.path().stem().string());
  std::sort(names.begin(), names.end());
  return names;
}

/// Values as make.py draws them.
inline TinyTensor encoder_values(const std::string& name, const Shape& shape, bool has_unit_norms) {
  const bool is_bias = name.ends_with(".bias");
  if (is_bias) return random_values(name, shape, 0.3);
  if (shape.rank() < 2) return random_values(name, shape, 0.3, has_unit_norms ? 1 : 0);
  return random_values(name, shape, 1.7 / std::sqrt(static_cast<double>(shape[1])));
}

inline void write_tensors(const std::filesystem::path& file, const TinyTensors& tensors) {
  std::vector<io::TensorView> views;
  for (const auto& [name, tensor] : tensors)
    views.push_back({name, "F32", tensor.shape, std::as_bytes(std::span(tensor.values))});
  io::write_safetensors(file, views);
}

/// The whole folder of a case.
inline void put_encoder(const Json& c, const std::string& name, const std::filesystem::path& folder) {
  for (const auto& [path, contents] : c.at("files").items()) {
    std::filesystem::create_directories((folder / path).parent_path());
    write_file_atomically(folder / path, contents.dump());
  }
  TinyTensors tensors;
  for (const auto& [key, extents] : c.at("tensors").items())
    tensors[key] =
        encoder_values(key, Shape(extents.get<std::vector<Extent>>()), name.find("gemma") == std::string::npos);
  write_tensors(folder / "model.safetensors", tensors);
  for (const auto& [path, parts] : c.at("dense").items()) {
    TinyTensors dense;
    for (const auto& [key, extents] : parts.items())  // "2.linear.weight": the number keeps the draws apart
      dense[key.substr(key.find('.') + 1)] = encoder_values(key, Shape(extents.get<std::vector<Extent>>()), true);
    write_tensors(folder / path, dense);
  }
}

}  // namespace weft::test
