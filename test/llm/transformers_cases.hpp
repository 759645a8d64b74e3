// The models that transformers/make.py asked the transformers library about.
#pragma once

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <stdexcept>
#include <string>
#include <vector>

#include "llm/tiny_model.hpp"

namespace weft::test {

struct TransformersCase {
  std::string name;
  Json json;  // config, context, tokens, rows, logits, prompt, greedy, tensors

  /// Whether some layers keep a state: those have a short convolution.
  bool keeps_states() const {
    for (const auto& [key, extents] : json.at("tensors").items())
      if (key.find(".conv") != std::string::npos) return true;
    return false;
  }
  /// How near its logits are to those of transformers. A state adds up the rounding of all steps.
  double logits_bound() const {
    const bool keeps_sums = name.starts_with("mamba2") || name.starts_with("qwen3-next") || name.starts_with("qwen3.5");
    return keeps_sums ? 4e-5 : 2e-5;
  }
  /// With the weights that make.py gives it.
  TinyModel model() const {
    TinyModel tiny{name, json.at("config"), {}};
    for (const auto& [key, extents] : json.at("tensors").items()) {
      const Shape shape(extents.get<std::vector<Extent>>());
      const bool vector = shape.rank() < 2, bias = key.ends_with(".bias"),
                 unit = !name.starts_with("gemma") || name.starts_with("gemma3n") || name.starts_with("gemma4");
      tiny.tensors[key] = vector
                              ? random_values(key, shape, 0.3, bias || !unit ? 0 : 1)
                              : random_values(key, shape, bias ? 0.3 : 1.7 / std::sqrt(static_cast<double>(shape[1])));
    }
    return tiny;
  }
};

inline std::vector<TransformersCase> transformers_cases() {
  std::vector<TransformersCase> all;
  for (const auto& entry : std::filesystem::directory_iterator(WEFT_TEST_TRANSFORMERS))
    if (entry.path().extension() == ".json") all.push_back({entry.path().stem(), read_json_file(entry.path())});
  std::sort(all.begin(), all.end(), [](const auto& a, const auto& b) { return a.name < b.name; });
  return all;
}

inline TransformersCase transformers_case(const std::string& name) {
  for (TransformersCase& c : transformers_cases())
    if (c.name == name) return std::move(c);
  throw std::runtime_error("no case " + name);
}

}  // namespace weft::test
