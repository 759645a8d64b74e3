// Adapters that the peft library made, with their models.
#pragma once

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <string>
#include <vector>

#include "base/file.hpp"
#include "base/json.hpp"
#include "io/safetensors.hpp"
#include "llm/transformers_cases.hpp"
#include "weft/tune.hpp"

namespace weft::tune {

using Tokens = std::vector<std::int32_t>;

/// An adapter of PEFT and its model, as folders.
struct PeftCase {
  explicit PeftCase(const std::string& name)
      : json(read_json_file(std::filesystem::path(WEFT_TEST_PEFT) / (name + ".json"))) {
    test::put(test::transformers_case(json.at("model")).model(), model);
    std::vector<test::TinyTensor> tensors;
    std::vector<io::TensorView> views;
    for (const auto& [key, shape] : json.at("tensors").items()) {
      const Shape extents(shape.get<std::vector<Extent>>());
      if (extents.rank() == 1) {
        tensors.push_back(test::random_values("adapter " + key, extents, 0.3, key.ends_with(".bias") ? 0 : 1));
        continue;
      }
      tensors.push_back(
          test::random_values("adapter " + key, extents, 1.7 / std::sqrt(static_cast<double>(extents[1]))));
      for (float& value : tensors.back().values) value *= 0.3F;
    }
    std::size_t i = 0;
    for (const auto& [key, shape] : json.at("tensors").items()) {
      views.push_back({key, "F32", tensors[i].shape, std::as_bytes(std::span(tensors[i].values))});
      ++i;
    }
    io::write_safetensors(adapter.path() / "adapter_model.safetensors", views, {{"format", "pt"}});
    write_file_atomically(adapter.path() / "adapter_config.json", json.at("adapter").dump());
  }

  std::vector<Example> examples() const {
    std::vector<Example> all;
    for (std::size_t t = 0; t < json.at("texts").size(); ++t) {
      Example example{json.at("texts")[t].get<Tokens>(), {}};
      example.counts.assign(example.tokens.size(), true);
      std::fill_n(example.counts.begin(), json.at("skipped")[t].get<std::size_t>() + 1, false);
      all.push_back(std::move(example));
    }
    return all;
  }
  Tokens first_text() const {
    Tokens tokens = json.at("texts")[0].get<Tokens>();
    tokens.pop_back();
    return tokens;
  }

  Json json;
  test::TemporaryFolder model, adapter;
};

}  // namespace weft::tune
