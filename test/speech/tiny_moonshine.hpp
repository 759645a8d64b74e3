// The tiny random Moonshines that make_moonshine.py asked the transformers library about.
#pragma once

#include <cmath>
#include <string>

#include "speech/tiny_whisper.hpp"

namespace weft::test {

inline const Json& moonshine_golden() {
  static const Json json = read_json_file(WEFT_TEST_MOONSHINE);
  return json;
}

/// Writes a model into a folder, its tensors as F32 or F16.
inline void put_moonshine(const TemporaryFolder& folder, const std::string& name, const std::string& type = "F32",
                          const Json& config_changes = {}) {
  const Json& golden = moonshine_golden().at(name);
  TinyTensors tensors;
  for (const auto& [key, extents] : golden.at("tensors").items()) {
    const Shape shape(extents.get<std::vector<Extent>>());
    const bool is_norm = shape.rank() == 1 && key.ends_with(".weight"),
               is_of_tokens = key.ends_with("embed_tokens.weight") || key == "proj_out.weight";
    const double scale = shape.rank() == 1 ? 0.3 : 1.7 / std::sqrt(static_cast<double>(shape.numel() / shape[0]));
    tensors[key] =
        random_values(is_of_tokens ? golden.at("table").get<std::string>() + key : key, shape, scale, is_norm ? 1 : 0);
    if (is_of_tokens)
      for (float& x : tensors[key].values) x *= golden.at("scale").get<float>();
  }
  Json config = golden.at("config");
  if (!config_changes.is_null()) config.update(config_changes);
  put({"moonshine", config, tensors}, folder, type);
  folder.put("tokenizer.json", whisper_tokenizer(moonshine_golden()));
}

}  // namespace weft::test
