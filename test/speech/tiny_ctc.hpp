// The tiny random recognisers by CTC that make_ctc.py asked the transformers library about.
#pragma once

#include <cmath>
#include <string>

#include "llm/tiny_model.hpp"
#include "speech/tiny_whisper.hpp"

namespace weft::test {

inline const Json& ctc_golden() {
  static const Json json = read_json_file(WEFT_TEST_CTC);
  return json;
}

/// Writes a model into a folder, its tensors as F32 or F16.
inline void put_ctc(const TemporaryFolder& folder, const std::string& name, const std::string& type = "F32",
                    const Json& config_changes = {}) {
  const Json& golden = ctc_golden().at(name);
  TinyTensors tensors;
  for (const auto& [key, extents] : golden.at("tensors").items()) {
    const Shape shape(extents.get<std::vector<Extent>>());
    const bool is_norm = shape.rank() == 1 && key.ends_with(".weight"), is_head = key == "lm_head.weight";
    const double scale = shape.rank() == 1 ? 0.3 : 1.7 / std::sqrt(static_cast<double>(shape.numel() / shape[0]));
    tensors[key] =
        random_values(is_head ? golden.at("head").get<std::string>() + key : key, shape, scale, is_norm ? 1 : 0);
    if (is_head)
      for (float& x : tensors[key].values) x *= 4;
  }
  Json config = golden.at("config");
  if (!config_changes.is_null()) config.update(config_changes);
  put({"ctc", config, tensors}, folder, type);
  std::filesystem::remove(folder / "tokenizer.json");
  Json vocabulary = Json::object();
  for (std::size_t i = 0; i < ctc_golden().at("pieces").size(); ++i)
    vocabulary[ctc_golden().at("pieces")[i].get<std::string>()] = i;
  folder.put("vocab.json", vocabulary.dump());
  folder.put("tokenizer_config.json", golden.at("tokenizer").dump());
}

/// Chirps, one of them softer.
inline audio::Sound ctc_sound() {
  audio::Sound sound = whisper_sound(3);
  sound.samples.insert(sound.samples.end(), sound.samples.rbegin(), sound.samples.rend());
  return sound;
}

}  // namespace weft::test
