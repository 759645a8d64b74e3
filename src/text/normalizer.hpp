// Normalizers: what is done to a text before it is cut into words.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "text/normalization.hpp"
#include "text/pattern.hpp"

namespace weft::text {

/// Rewrites UTF-8 to UTF-8. For use by many threads at once.
class Normalizer {
 public:
  virtual ~Normalizer() = default;
  /// Sets `first` to false if the beginning of the text was removed: then the user's text no longer begins here.
  virtual std::string apply(std::string text, bool& first) const = 0;
};
using NormalizerPtr = std::unique_ptr<Normalizer>;

/// Of BERT: control characters removed and white space made spaces (clean_text), spaces around Chinese characters, accents
/// removed (when not given: if lowercase), small letters.
struct BertNormalizerOptions {
  bool clean_text = true;
  bool handle_chinese_chars = true;
  std::optional<bool> strip_accents;
  bool lowercase = true;
};
NormalizerPtr make_bert_normalizer(BertNormalizerOptions options);

/// White space removed at the ends.
NormalizerPtr make_strip(bool left, bool right);
/// All marks removed; the text should be decomposed.
NormalizerPtr make_strip_accents();
NormalizerPtr make_unicode_form(NormalizationForm form);
NormalizerPtr make_lowercase();
/// Of the NMT models: some control characters removed, others made spaces.
NormalizerPtr make_nmt();
/// Each match replaced by `content`.
NormalizerPtr make_replace(std::unique_ptr<Pattern> pattern, std::string content);
/// `prefix` in front, unless the text is empty.
NormalizerPtr make_prepend(std::string prefix);
/// Bytes as characters of the byte-level alphabet.
NormalizerPtr make_byte_level_normalizer();
/// One after another.
NormalizerPtr make_normalizer_sequence(std::vector<NormalizerPtr> parts);

/// `text` in small letters, character by character.
std::string lowercase(std::string_view text);

}  // namespace weft::text
