// The tiny random voices that make_vits.py asked the transformers library about.
#pragma once

#include <cmath>

#include "llm/tiny_model.hpp"

namespace weft::test {

inline const Json& vits_golden() {
  static const Json json = read_json_file(WEFT_TEST_VITS);
  return json;
}

/// Writes the model of a case into a folder.
inline void put_voice(const TemporaryFolder& folder, const Json& c, const Json& changes = {}) {
  TinyTensors tensors;
  for (const auto& [key, extents] : c.at("tensors").items()) {
    const Shape shape(extents.get<std::vector<Extent>>());
    const bool is_factor = key.ends_with("weight_g") || (shape.rank() == 1 && key.ends_with(".weight"));
    const bool is_small = shape.rank() == 1 || is_factor || key.ends_with("translate") || key.ends_with("log_scale");
    const double scale = is_small ? 0.3 : 1.7 / std::sqrt(static_cast<double>(shape.numel() / shape[0]));
    tensors[key] = random_values(key, shape, scale, is_factor ? 1 : 0);
  }
  Json config = c.at("config");
  if (!changes.is_null()) config.update(changes);
  put({"voice", config, tensors}, folder);
  folder.put("vocab.json", c.at("vocabulary").dump());
}

}  // namespace weft::test
