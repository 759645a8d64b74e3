// A tiny random model that can write every byte, some pieces of JSON, and parts of characters.
#pragma once

#include <string>
#include <vector>

#include "llm/tiny_model.hpp"

namespace weft::test {

/// The characters that stand for bytes in byte-level vocabularies.
inline std::string byte_level(std::string_view bytes) {
  std::string text;
  for (const char c : bytes) {
    const auto byte = static_cast<unsigned char>(c);
    const auto is_plain = [](unsigned b) { return (b >= 33 && b <= 126) || (b >= 0xA1 && b <= 0xAC) || b >= 0xAE; };
    unsigned code = byte;
    if (!is_plain(byte)) {
      code = 256;
      for (unsigned b = 0; b < byte; ++b) code += is_plain(b) ? 0 : 1;
    }
    if (code < 0x80) {
      text += static_cast<char>(code);
    } else {
      text += static_cast<char>(0xC0 | (code >> 6));
      text += static_cast<char>(0x80 | (code & 0x3F));
    }
  }
  return text;
}

/// Writes it into a folder, with the template ("" for none). The last token, "<|end|>", ends a text.
inline void put_byte_model(const TemporaryFolder& folder, const std::string& chat_template = {}) {
  std::vector<std::string> pieces;
  for (int b = 0; b < 256; ++b) pieces.emplace_back(1, static_cast<char>(b));
  for (const char* piece : {"\", \"", "\":", "{\"", "\"}", "]]", "[\"", "true", "the", " a", "12", "\\n", "\xC3\xA9",
                            "\xF0\x9F", "\x98\x80", "\"a\":1", "\"\":", "-0."})
    pieces.emplace_back(piece);
  Json vocabulary = Json::object(), added = Json::array();
  for (std::size_t i = 0; i < pieces.size(); ++i) vocabulary[byte_level(pieces[i])] = i;
  for (const char* content : {"<think>", "</think>", "<|end|>"})
    added.push_back({{"id", pieces.size() + added.size()},
                     {"content", content},
                     {"single_word", false},
                     {"lstrip", false},
                     {"rstrip", false},
                     {"normalized", false},
                     {"special", std::string(content) == "<|end|>"}});
  Json config = base_config("llama");
  config.update({{"vocab_size", pieces.size() + added.size()},
                 {"max_position_embeddings", 512},
                 {"eos_token_id", pieces.size() + 2}});
  put(finish("bytes", std::move(config)), folder);
  const Json level = {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"trim_offsets", true}, {"use_regex", false}};
  folder.put("tokenizer.json", Json{{"version", "1.0"},
                                    {"added_tokens", added},
                                    {"normalizer", nullptr},
                                    {"pre_tokenizer", level},
                                    {"post_processor", nullptr},
                                    {"decoder", level},
                                    {"model", {{"type", "BPE"}, {"vocab", vocabulary}, {"merges", Json::array()}}}}
                                   .dump());
  if (!chat_template.empty()) folder.put("chat_template.jinja", chat_template);
}

}  // namespace weft::test
