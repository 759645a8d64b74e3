// The characters of a voice, and sentences.
#include <fmt/format.h>
#include <utf8proc.h>

#include <algorithm>

#include "base/json.hpp"
#include "base/quote.hpp"
#include "base/utf8.hpp"
#include "io/config_keys.hpp"
#include "speech/vits_config.hpp"
#include "text/unicode.hpp"
#include "weft/error.hpp"

namespace weft::speech {
namespace {

constexpr JsonLimits kCharacterLimits{.max_bytes = std::uint64_t{8} << 20, .max_values = 200'000};
constexpr char32_t kLatinEnd = 0x0250;  // behind Latin Extended-B

bool is_class(char32_t c, std::uint32_t classes) { return (text::CharacterTable::get()[c] & classes) != 0; }

bool ends_sentence(char32_t c) {
  constexpr std::u32string_view kEnds = U".!?\u2026\u3002\uFF01\uFF1F\u061F\u06D4\u0964\u0965;\n";
  return kEnds.find(c) != std::u32string_view::npos;
}

}  // namespace

Characters Characters::load(const std::filesystem::path& folder, Extent vocabulary) {
  Characters result;
  const std::string source = (folder / "vocab.json").string();
  const Json json = read_json_file(source, kCharacterLimits);
  if (!json.is_object()) throw FileError(fmt::format("{}: is not an object of tokens by character", source));
  std::map<std::string, std::int32_t> all;
  for (const auto& [piece, id] : json.items()) {
    if (!id.is_number_integer() || id < 0 || id >= vocabulary)
      throw FileError(fmt::format("{}: {} is {}, which is not a token of the vocabulary of {}", source, quote(piece),
                                  id.dump(), vocabulary));
    all[piece] = id.get<std::int32_t>();
    if (const std::u32string code_points = decode_utf8(piece, source); code_points.size() == 1)
      result.ids_[code_points[0]] = id.get<std::int32_t>();
  }
  if (result.ids_.empty())
    throw FileError(fmt::format("{}: has no characters; is it the vocabulary of a voice?", source));
  const std::filesystem::path settings = folder / "tokenizer_config.json";
  if (!std::filesystem::exists(settings)) return result;
  const std::string name = settings.string();
  const Json config = read_json_file(settings, kCharacterLimits);
  const io::ConfigKeys keys(config, name);
  result.adds_blank_ = keys.flag("add_blank", true);
  result.normalizes_ = keys.flag("normalize", true);
  result.reads_phonemes_ = keys.flag("phonemize", false);
  result.reads_latin_ = keys.flag("is_uroman", false);
  result.language_ = keys.text({"language"}, "");
  const Json* unknown = keys.find({"unk_token"});
  if (unknown && unknown->is_string())
    if (const auto found = all.find(unknown->get<std::string>()); found != all.end()) result.unknown_ = found->second;
  return result;
}

std::vector<std::int32_t> Characters::encode(std::string_view text, bool is_phonemes) const {
  if (reads_phonemes_ && !is_phonemes)
    throw UsageError(
        "speak: the voice reads phonemes, and not letters; give those of another program, such as espeak-ng -q --ipa");
  std::vector<std::int32_t> tokens;
  std::vector<bool> is_space;
  for (char32_t c : decode_utf8(text)) {
    if (reads_latin_ && !is_phonemes && c >= kLatinEnd && is_class(c, text::kLetter)) {
      std::string shown;
      append_utf8(shown, c);
      throw UsageError(fmt::format(
          "speak: the voice reads Latin letters, and {} is another; romanise the text first, as with uroman",
          quote(shown)));
    }
    // Romanian is written with two characters for one letter; the voice knows the older one.
    if (language_ == "ron" && c == U'\u021B') c = U'\u0163';
    auto found = ids_.find(c);
    if (found == ids_.end() && normalizes_)
      found = ids_.find(static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(c))));
    if (found != ids_.end()) {
      tokens.push_back(found->second);
      is_space.push_back(is_class(c, text::kSpace));
    } else if (!normalizes_ && unknown_ >= 0) {
      tokens.push_back(unknown_);
      is_space.push_back(false);
    }
  }
  // Unknown characters are left out first, so the spaces around them may be at an end.
  const auto first = std::find(is_space.begin(), is_space.end(), false);
  const auto last = std::find(is_space.rbegin(), is_space.rend(), false);
  if (first == is_space.end())
    throw UsageError(fmt::format("speak: the voice knows no character of {}", quote(text, 60)));
  tokens.erase(tokens.end() - (last - is_space.rbegin()), tokens.end());
  tokens.erase(tokens.begin(), tokens.begin() + (first - is_space.begin()));
  if (!adds_blank_) return tokens;
  std::vector<std::int32_t> spread(2 * tokens.size() + 1, 0);
  for (std::size_t i = 0; i < tokens.size(); ++i) spread[2 * i + 1] = tokens[i];
  return spread;
}

std::vector<std::string> sentences_of(std::string_view text, std::size_t most) {
  std::vector<std::string> sentences;
  std::u32string now;
  const auto finish = [&](std::size_t length) {
    const std::u32string_view part = std::u32string_view(now).substr(0, length);
    if (std::any_of(part.begin(), part.end(),
                    [](char32_t c) { return is_class(c, text::kLetter | text::kNumber | text::kMark); }))
      sentences.push_back(encode_utf8(part));
    now.erase(0, length);
  };
  const std::u32string all = decode_utf8(text);
  for (std::size_t i = 0; i < all.size(); ++i) {
    now += all[i];
    // A point inside of a number or a name ends nothing.
    const bool is_last = i + 1 == all.size() || is_class(all[i + 1], text::kSpace) || all[i] != U'.';
    if (ends_sentence(all[i]) && is_last) finish(now.size());
    if (now.size() >= most) {
      const std::size_t space = now.find_last_of(U" ,");
      finish(space == std::u32string::npos || space == 0 ? now.size() : space + 1);
    }
  }
  finish(now.size());
  return sentences;
}

}  // namespace weft::speech
