// The tiny random Whisper that make.py asked the transformers library about.
#pragma once

#include <cmath>
#include <string>

#include "audio/signals.hpp"
#include "llm/byte_model.hpp"
#include "weft/audio/sound.hpp"

namespace weft::test {

inline const Json& whisper_golden() {
  static const Json json = read_json_file(WEFT_TEST_WHISPER);
  return json;
}

inline TinyTensors whisper_tensors(const Json& golden) {
  TinyTensors tensors;
  for (const auto& [key, extents] : golden.at("tensors").items()) {
    const Shape shape(extents.get<std::vector<Extent>>());
    const bool is_norm = shape.rank() == 1 && key.ends_with(".weight");
    double scale = 0.3;
    if (shape.rank() > 1) scale = 1.7 / std::sqrt(static_cast<double>(shape.numel() / shape[0]));
    if (key.ends_with("decoder.embed_positions.weight")) scale = 1.5;
    tensors[key] = random_values(key, shape, scale, is_norm ? 1 : 0);
  }
  return tensors;
}

/// A tokenizer of bytes, with the special tokens behind them.
inline std::string whisper_tokenizer(const Json& golden) {
  Json vocabulary = Json::object(), added = Json::array();
  for (int b = 0; b < 256; ++b) vocabulary[byte_level(std::string(1, static_cast<char>(b)))] = b;
  for (const std::string content : golden.at("special"))
    added.push_back({{"id", 256 + added.size()},
                     {"content", content},
                     {"single_word", false},
                     {"lstrip", false},
                     {"rstrip", false},
                     {"normalized", false},
                     {"special", true}});
  const Json level = {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"trim_offsets", true}, {"use_regex", false}};
  return Json{{"version", "1.0"},
              {"added_tokens", added},
              {"normalizer", nullptr},
              {"pre_tokenizer", level},
              {"post_processor", nullptr},
              {"decoder", level},
              {"model", {{"type", "BPE"}, {"vocab", vocabulary}, {"merges", Json::array()}}}}
      .dump();
}

/// Writes the model into a folder, its tensors as F32 or F16.
inline void put_whisper(const TemporaryFolder& folder, const std::string& type = "F32",
                        const Json& config_changes = {}) {
  const Json& golden = whisper_golden();
  Json config = golden.at("config");
  if (!config_changes.is_null()) config.update(config_changes);
  put({"whisper", config, whisper_tensors(golden)}, folder, type);
  folder.put("tokenizer.json", whisper_tokenizer(golden));
  folder.put("generation_config.json", golden.at("generation_config").dump());
}

/// Three chirps, the middle one softer, the last one backwards.
inline audio::Sound whisper_sound(double seconds) {
  const std::vector<float> one = chirp(16000, 16000);
  audio::Sound sound;
  sound.samples = one;
  for (const float x : one) sound.samples.push_back(static_cast<float>(0.1 * static_cast<double>(x)));
  sound.samples.insert(sound.samples.end(), one.rbegin(), one.rend());
  sound.samples.resize(static_cast<std::size_t>(seconds * 16000));
  return sound;
}

}  // namespace weft::test
