#include "text/load_tokenizer.hpp"

#include <fmt/format.h>

#include <fstream>

#include "io/gguf.hpp"
#include "weft/error.hpp"

namespace weft::text {
namespace {

bool is_gguf(const std::filesystem::path& path) {
  char magic[4] = {};
  std::error_code ignored;
  if (!std::filesystem::is_regular_file(path, ignored)) return false;  // opening a pipe would wait for its writer
  std::ifstream(path, std::ios::binary).read(magic, 4);
  return std::string_view(magic, 4) == "GGUF";
}

}  // namespace

GgufVocabulary gguf_vocabulary(const io::GgufMetadata& metadata) {
  const auto key = [](std::string_view name) { return fmt::format("tokenizer.ggml.{}", name); };
  GgufVocabulary v;
  v.model = metadata.get<std::string>(key("model"));
  v.pre = metadata.get_or<std::string>(key("pre"), "");
  v.tokens = metadata.array<std::string>(key("tokens"));
  if (const auto* scores = metadata.array_if<float>(key("scores"))) v.scores = *scores;
  if (const auto* types = metadata.array_if<std::int32_t>(key("token_type"))) v.types = *types;
  if (const auto* merges = metadata.array_if<std::string>(key("merges"))) v.merges = *merges;
  // Files of the first models leave out the usual ids.
  const bool llama = v.model == "llama", bert = v.model == "bert";
  const auto id = [&](std::string_view name, TokenId usual) { return metadata.get_or<TokenId>(key(name), usual); };
  v.bos = id("bos_token_id", llama ? 1 : bert ? 101 : kNoToken);
  v.eos = id("eos_token_id", llama || v.model == "t5" ? (llama ? 2 : 1) : kNoToken);
  v.unknown = id("unknown_token_id", llama ? 0 : bert ? 100 : v.model == "t5" ? 2 : kNoToken);
  v.separator = id("seperator_token_id", bert ? 102 : kNoToken);  // so spelt in the format
  v.padding = id("padding_token_id", kNoToken);
  v.add_bos = metadata.get_if<bool>(key("add_bos_token"));
  v.add_eos = metadata.get_if<bool>(key("add_eos_token"));
  v.add_space_prefix = metadata.get_if<bool>(key("add_space_prefix"));
  if (metadata.contains(key("precompiled_charsmap")))
    for (const std::int64_t byte : metadata.integers(key("precompiled_charsmap")))
      v.precompiled_charsmap.push_back(static_cast<char>(byte));
  return v;
}

Tokenizer tokenizer_of_gguf(const io::GgufMetadata& metadata, const std::string& more_token) {
  if (metadata.contains(kWholeTokenizerKey) && more_token.empty())
    return Tokenizer::from_json(metadata.get<std::string>(kWholeTokenizerKey),
                                fmt::format("{}: {}", metadata.source(), kWholeTokenizerKey));
  GgufVocabulary v = gguf_vocabulary(metadata);
  if (!more_token.empty()) {
    constexpr std::int32_t kNormal = 1, kControl = 3;
    v.types.resize(v.tokens.size(), kNormal);
    if (!v.scores.empty()) v.scores.push_back(0);
    v.types.push_back(kControl);
    v.tokens.push_back(more_token);
  }
  return Tokenizer::from_gguf(std::move(v), metadata.source());
}

Tokenizer load_tokenizer(const std::filesystem::path& path) {
  std::error_code ignored;
  if (std::filesystem::is_directory(path, ignored)) {
    const std::filesystem::path file = path / "tokenizer.json";
    if (!std::filesystem::exists(file, ignored))
      throw FileError(fmt::format("{}: holds no tokenizer.json; name one, or a GGUF file", path.string()));
    return Tokenizer::from_json_file(file);
  }
  if (!is_gguf(path)) return Tokenizer::from_json_file(path);
  return tokenizer_of_gguf(io::GgufFile::open(path).metadata());
}

}  // namespace weft::text
