#include "text/normalizer.hpp"

#include <utf8proc.h>

#include <algorithm>

#include "text/byte_level.hpp"
#include "text/call_limits.hpp"
#include "text/unicode.hpp"

namespace weft::text {
namespace {

template <class Call>
void for_each_character(std::string_view text, Call call) {
  for (const char *at = text.data(), *end = at + text.size(); at < end;) {
    const Character c = character_at(at);
    call(c.value, std::string_view(at, c.length));
    at += c.length;
  }
}

void append_lowercase(std::string& out, char32_t c) {
  if (c == 0x130) {
    out.append("i\u0307");  // the only character whose small form has two
  } else {
    append_character(out, static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(c))));
  }
}

bool is_chinese(char32_t c) {
  return (c >= 0x4E00 && c <= 0x9FFF) || (c >= 0x3400 && c <= 0x4DBF) || (c >= 0x20000 && c <= 0x2A6DF) ||
         (c >= 0x2A700 && c <= 0x2B73F) || (c >= 0x2B740 && c <= 0x2B81F) || (c >= 0x2B920 && c <= 0x2CEAF) ||
         (c >= 0xF900 && c <= 0xFAFF) || (c >= 0x2F800 && c <= 0x2FA1F);
}

std::string without(std::string_view text, std::uint32_t classes, bool& first) {
  const CharacterTable& table = CharacterTable::get();
  std::string out;
  out.reserve(text.size());
  for_each_character(text, [&](char32_t c, std::string_view bytes) {
    if (table[c] & classes) {
      first &= !out.empty();
    } else {
      out.append(bytes);
    }
  });
  return out;
}

class Bert final : public Normalizer {
 public:
  explicit Bert(BertNormalizerOptions options) : options_(options) {}
  std::string apply(std::string text, bool& first) const override {
    const CharacterTable& table = CharacterTable::get();
    if (options_.clean_text || options_.handle_chinese_chars) {
      std::string out;
      out.reserve(text.size() + text.size() / 8);
      for_each_character(text, [&](char32_t c, std::string_view bytes) {
        if (options_.clean_text) {
          const bool space = table[c] & kSpace;
          if (c == 0 || c == 0xFFFD || ((table[c] & kOther) && c != '\t' && c != '\n' && c != '\r')) {
            first &= !out.empty();
            return;
          }
          if (space) bytes = " ";
        }
        const bool apart = options_.handle_chinese_chars && is_chinese(c);
        if (apart) out.push_back(' ');
        out.append(bytes);
        if (apart) out.push_back(' ');
      });
      text = std::move(out);
    }
    if (options_.strip_accents.value_or(options_.lowercase) && ascii_length(text) < text.size())
      text = without(text::normalize(text, NormalizationForm::kNfd), kNonspacing, first);
    if (options_.lowercase) text = text::lowercase(text);
    return text;
  }

 private:
  BertNormalizerOptions options_;
};

class Strip final : public Normalizer {
 public:
  Strip(bool left, bool right) : left_(left), right_(right) {}
  std::string apply(std::string text, bool& first) const override {
    const CharacterTable& table = CharacterTable::get();
    const char *begin = text.data(), *end = begin + text.size();
    if (left_)
      while (begin < end && (table[character_at(begin).value] & kSpace)) begin += character_at(begin).length;
    if (right_)
      while (begin < end && (table[character_before(end).value] & kSpace)) end -= character_before(end).length;
    first &= begin == text.data();
    return std::string(begin, end);
  }

 private:
  bool left_, right_;
};

class StripAccents final : public Normalizer {
 public:
  std::string apply(std::string text, bool& first) const override { return without(text, kMark, first); }
};

class UnicodeForm final : public Normalizer {
 public:
  explicit UnicodeForm(NormalizationForm form) : form_(form) {}
  std::string apply(std::string text, bool&) const override {
    if (ascii_length(text) == text.size()) return text;
    return text::normalize(text, form_);
  }

 private:
  NormalizationForm form_;
};

class Lowercase final : public Normalizer {
 public:
  std::string apply(std::string text, bool&) const override { return text::lowercase(text); }
};

class Nmt final : public Normalizer {
 public:
  std::string apply(std::string text, bool& first) const override {
    std::string out;
    out.reserve(text.size());
    for_each_character(text, [&](char32_t c, std::string_view bytes) {
      const bool removed =
          (c >= 0x01 && c <= 0x08) || c == 0x0B || (c >= 0x0E && c <= 0x1F) || c == 0x7F || c == 0x8F || c == 0x9F;
      const bool space = c == 0x09 || c == 0x0A || c == 0x0C || c == 0x0D || c == 0x1680 ||
                         (c >= 0x200B && c <= 0x200F) || c == 0x2028 || c == 0x2029 || c == 0x2581 || c == 0xFEFF ||
                         c == 0xFFFD;
      if (!removed) out.append(space ? " " : bytes);
      first &= !out.empty();
    });
    return out;
  }
};

class Replace final : public Normalizer {
 public:
  Replace(std::unique_ptr<Pattern> pattern, std::string content)
      : pattern_(std::move(pattern)), content_(std::move(content)) {}
  std::string apply(std::string text, bool& first) const override {
    if (text.empty()) return text;
    std::string out;
    out.reserve(text.size());
    std::size_t copied = 0;
    const std::string_view source = text;
    pattern_->for_each(source, [&](std::size_t begin, std::size_t end) {
      out.append(source.substr(copied, begin - copied)).append(content_);
      CallLimits::check_bytes(out.size());
      first &= begin > 0 || (!content_.empty() && end <= character_at(source.data()).length);
      copied = end;
    });
    if (copied == 0 && out.empty()) return text;
    out.append(source.substr(copied));
    return out;
  }

 private:
  std::unique_ptr<Pattern> pattern_;
  std::string content_;
};

class Prepend final : public Normalizer {
 public:
  explicit Prepend(std::string prefix) : prefix_(std::move(prefix)) {}
  std::string apply(std::string text, bool&) const override {
    if (!text.empty()) text.insert(0, prefix_);
    return text;
  }

 private:
  std::string prefix_;
};

class ByteLevelNormalizer final : public Normalizer {
 public:
  std::string apply(std::string text, bool&) const override {
    std::string out;
    out.reserve(2 * text.size());
    append_as_characters(out, text);
    return out;
  }
};

class NormalizerSequence final : public Normalizer {
 public:
  explicit NormalizerSequence(std::vector<NormalizerPtr> parts) : parts_(std::move(parts)) {}
  std::string apply(std::string text, bool& first) const override {
    for (const NormalizerPtr& part : parts_) {
      CallLimits::work(text.size());
      text = part->apply(std::move(text), first);
      CallLimits::check_bytes(text.size());
    }
    return text;
  }

 private:
  std::vector<NormalizerPtr> parts_;
};

}  // namespace

std::string lowercase(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  const std::size_t ascii = ascii_length(text);
  for (const char c : text.substr(0, ascii)) out.push_back(c >= 'A' && c <= 'Z' ? static_cast<char>(c | 0x20) : c);
  for_each_character(text.substr(ascii), [&](char32_t c, std::string_view) { append_lowercase(out, c); });
  return out;
}

NormalizerPtr make_bert_normalizer(BertNormalizerOptions options) { return std::make_unique<Bert>(options); }
NormalizerPtr make_strip(bool left, bool right) { return std::make_unique<Strip>(left, right); }
NormalizerPtr make_strip_accents() { return std::make_unique<StripAccents>(); }
NormalizerPtr make_unicode_form(NormalizationForm form) { return std::make_unique<UnicodeForm>(form); }
NormalizerPtr make_lowercase() { return std::make_unique<Lowercase>(); }
NormalizerPtr make_nmt() { return std::make_unique<Nmt>(); }
NormalizerPtr make_replace(std::unique_ptr<Pattern> pattern, std::string content) {
  return std::make_unique<Replace>(std::move(pattern), std::move(content));
}
NormalizerPtr make_prepend(std::string prefix) { return std::make_unique<Prepend>(std::move(prefix)); }
NormalizerPtr make_byte_level_normalizer() { return std::make_unique<ByteLevelNormalizer>(); }
NormalizerPtr make_normalizer_sequence(std::vector<NormalizerPtr> parts) {
  return std::make_unique<NormalizerSequence>(std::move(parts));
}

}  // namespace weft::text
