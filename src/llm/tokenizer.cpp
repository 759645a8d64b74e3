// The face of tokenizers.
#include "weft/tokenizer.hpp"

#include "text/load_tokenizer.hpp"

namespace weft::llm {

Tokenizer Tokenizer::load(const std::filesystem::path& path) {
  return Tokenizer(std::make_shared<const text::Tokenizer>(text::load_tokenizer(path)));
}

std::vector<std::int32_t> Tokenizer::encode(std::string_view text, EncodeOptions options) const {
  return tokenizer_->encode(text, {.add_special = options.add_special, .parse_special = options.parse_special});
}
std::string Tokenizer::decode(std::span<const std::int32_t> ids, bool skip_special) const {
  return tokenizer_->decode(ids, skip_special);
}
std::optional<std::string> Tokenizer::piece(std::int32_t id) const { return tokenizer_->piece(id); }
std::optional<std::int32_t> Tokenizer::id_of(std::string_view piece) const {
  const text::TokenId id = tokenizer_->id_of(piece);
  return id == text::kNoToken ? std::nullopt : std::optional<std::int32_t>(id);
}
bool Tokenizer::is_special(std::int32_t id) const { return tokenizer_->is_special(id); }
Extent Tokenizer::size() const { return tokenizer_->vocabulary_size(); }

}  // namespace weft::llm
