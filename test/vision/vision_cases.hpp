// The models that make.py asked the transformers library about.
#pragma once

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "llm/tiny_model.hpp"
#include "weft/tensor.hpp"

namespace weft::test {

struct VisionCase {
  std::string name;
  Json json;

  /// Its files, with the weights that make.py gives it.
  void put_into(const TemporaryFolder& folder, const std::function<void(TinyTensors&)>& change = {},
                const std::string& type = "F32") const {
    TinyTensors tensors;
    for (const auto& [key, extents] : json.at("tensors").items()) {
      const Shape shape(extents.get<std::vector<Extent>>());
      if (key.ends_with("bias"))
        tensors[key] = random_values(key, shape, 0.3);
      else if (shape.rank() < 2)
        tensors[key] = random_values(key, shape, 0.3, 1);
      else
        tensors[key] = random_values(key, shape, 1.7 / std::sqrt(static_cast<double>(shape.numel() / shape[0])));
    }
    if (change) change(tensors);
    put({name, json.at("config"), std::move(tensors)}, folder, type);
    std::filesystem::remove(folder / "tokenizer.json");
    folder.put("preprocessor_config.json", json.at("processor").dump());
    if (json.contains("tokenizer")) folder.put("tokenizer.json", json.at("tokenizer").dump());
    if (json.contains("chat_template"))
      folder.put("tokenizer_config.json", Json{{"chat_template", json.at("chat_template")}}.dump());
  }

  std::vector<Tensor> images() const {
    std::vector<Tensor> all;
    for (const Json& image : json.at("images")) {
      const auto hex = image["pixels"].get<std::string>();
      std::vector<std::uint8_t> bytes;
      for (std::size_t i = 0; i < hex.size(); i += 2)
        bytes.push_back(static_cast<std::uint8_t>(std::stoi(hex.substr(i, 2), nullptr, 16)));
      all.push_back(tensor<std::uint8_t>(bytes, {image["height"].get<Extent>(), image["width"].get<Extent>(), 3}));
    }
    return all;
  }
};

inline std::vector<VisionCase> vision_cases(const std::filesystem::path& folder) {
  std::vector<VisionCase> all;
  for (const auto& entry : std::filesystem::directory_iterator(folder))
    if (entry.path().extension() == ".json") all.push_back({entry.path().stem(), read_json_file(entry.path())});
  std::sort(all.begin(), all.end(), [](const auto& a, const auto& b) { return a.name < b.name; });
  return all;
}

}  // namespace weft::test
