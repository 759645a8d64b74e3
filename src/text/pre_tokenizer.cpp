#include "text/pre_tokenizer.hpp"

#include <algorithm>

#include "text/byte_level.hpp"
#include "text/call_limits.hpp"
#include "text/scanners.hpp"
#include "text/scripts.hpp"
#include "text/unicode.hpp"

namespace weft::text {
namespace {

using std::size_t;

// Takes the parts of a word, which are matches and the text between them, and hands on words by the behavior.
class Splitter {
 public:
  Splitter(Word word, SplitBehavior behavior, bool invert, PreTokenizer::Sink sink)
      : word_(word), behavior_(behavior), invert_(invert), sink_(sink) {}

  void match(size_t begin, size_t end) {
    if (at_ != begin) part(at_, begin, invert_);
    part(begin, end, !invert_);
    at_ = end;
  }
  void finish() {
    if (at_ != word_.text.size()) part(at_, word_.text.size(), invert_);
    if (holding_) put(begin_, end_);
  }

 private:
  void part(size_t begin, size_t end, bool delimiter) {
    switch (behavior_) {
      case SplitBehavior::kIsolated: put(begin, end); return;
      case SplitBehavior::kRemoved:
        if (!delimiter) put(begin, end);
        return;
      case SplitBehavior::kContiguous: join(begin, end, delimiter == previous_); break;
      case SplitBehavior::kMergedWithPrevious: join(begin, end, delimiter && !previous_); break;
      case SplitBehavior::kMergedWithNext: join(begin, end, previous_ && !delimiter); break;
    }
    previous_ = delimiter;
  }
  void join(size_t begin, size_t end, bool to_held) {
    if (!to_held || !holding_) {
      if (holding_) put(begin_, end_);
      begin_ = begin;
    }
    end_ = end;
    holding_ = true;
  }
  void put(size_t begin, size_t end) {
    if (begin < end) sink_({word_.text.substr(begin, end - begin), word_.first && begin == 0});
  }

  Word word_;
  SplitBehavior behavior_;
  bool invert_;
  PreTokenizer::Sink sink_;
  size_t at_ = 0, begin_ = 0, end_ = 0;
  bool holding_ = false, previous_ = false;
};

class Split final : public PreTokenizer {
 public:
  Split(std::unique_ptr<Pattern> pattern, SplitBehavior behavior, bool invert)
      : pattern_(std::move(pattern)), behavior_(behavior), invert_(invert) {}
  void split(Word word, Sink sink) const override {
    Splitter splitter(word, behavior_, invert_, sink);
    pattern_->for_each(word.text, [&](size_t begin, size_t end) { splitter.match(begin, end); });
    splitter.finish();
  }

 private:
  std::unique_ptr<Pattern> pattern_;
  SplitBehavior behavior_;
  bool invert_;
};

// Cuts at each character for which `test(character, its classes)` holds.
template <class Test>
void split_at(Word word, SplitBehavior behavior, PreTokenizer::Sink sink, Test test) {
  const CharacterTable& table = CharacterTable::get();
  Splitter splitter(word, behavior, false, sink);
  for (size_t at = 0; at < word.text.size();) {
    const Character c = character_at(word.text.data() + at);
    if (test(c.value, table[c.value])) splitter.match(at, at + c.length);
    at += c.length;
  }
  splitter.finish();
}

bool is_punctuation(char32_t c, std::uint32_t classes) {
  return (classes & kPunctuation) || (c < 0x80 && (classes & kSymbol));
}

class ByteLevelPreTokenizer final : public PreTokenizer {
 public:
  ByteLevelPreTokenizer(bool add_prefix_space, bool use_regex, bool keep_bytes)
      : pattern_(use_regex ? make_scanner(kGpt2Expression) : nullptr),
        add_prefix_space_(add_prefix_space),
        keep_bytes_(keep_bytes) {}
  void split(Word word, Sink sink) const override {
    std::string prefixed;
    if (add_prefix_space_ && !word.text.starts_with(' ')) {
      prefixed.append(" ").append(word.text);
      word.text = prefixed;
    }
    if (!pattern_) {
      put(word, sink);
      return;
    }
    const auto put_part = [&](Word part) { put(part, sink); };
    Splitter splitter(word, SplitBehavior::kIsolated, false, put_part);
    pattern_->for_each(word.text, [&](size_t begin, size_t end) { splitter.match(begin, end); });
    splitter.finish();
  }

 private:
  void put(Word word, Sink sink) const {
    if (keep_bytes_) {
      sink(word);
      return;
    }
    std::string characters;
    append_as_characters(characters, word.text);
    CallLimits::check_bytes(characters.size());
    sink({characters, word.first});
  }

  std::unique_ptr<Pattern> pattern_;
  bool add_prefix_space_, keep_bytes_;
};

class MetaspacePreTokenizer final : public PreTokenizer {
 public:
  MetaspacePreTokenizer(char32_t replacement, PrependScheme scheme, bool split) : scheme_(scheme), split_(split) {
    append_character(replacement_, replacement);
  }
  void split(Word word, Sink sink) const override {
    std::string text;
    text.reserve(word.text.size() + word.text.size() / 2 + replacement_.size());
    const bool begins_so = word.text.starts_with(' ') || word.text.starts_with(replacement_);
    const bool prepend = scheme_ == PrependScheme::kAlways || (scheme_ == PrependScheme::kFirst && word.first);
    if (prepend && !begins_so) text = replacement_;
    for (const char c : word.text) {
      if (c == ' ') {
        text.append(replacement_);
      } else {
        text.push_back(c);
      }
    }
    if (!split_) {
      sink({text, word.first});
      return;
    }
    Splitter splitter({text, word.first}, SplitBehavior::kMergedWithNext, false, sink);
    for (size_t at = 0; (at = text.find(replacement_, at)) != std::string::npos; at += replacement_.size())
      splitter.match(at, at + replacement_.size());
    splitter.finish();
  }

 private:
  std::string replacement_;
  PrependScheme scheme_;
  bool split_;
};

class BertPreTokenizer final : public PreTokenizer {
 public:
  void split(Word word, Sink sink) const override {
    split_at(
        word, SplitBehavior::kRemoved,
        [&](Word part) { split_at(part, SplitBehavior::kIsolated, sink, is_punctuation); },
        [](char32_t, std::uint32_t classes) { return classes & kSpace; });
  }
};

class WhitespaceSplit final : public PreTokenizer {
 public:
  void split(Word word, Sink sink) const override {
    split_at(word, SplitBehavior::kRemoved, sink, [](char32_t, std::uint32_t classes) { return classes & kSpace; });
  }
};

class Whitespace final : public PreTokenizer {
 public:
  void split(Word word, Sink sink) const override {
    const CharacterTable& table = CharacterTable::get();
    const auto kind_at = [&](size_t at) -> std::uint32_t {
      const std::uint32_t classes = table[character_at(word.text.data() + at).value];
      return classes & kWord ? classes & kWord : classes & kSpace;
    };
    for (size_t at = 0; at < word.text.size();) {
      const size_t begin = at;
      const auto kind = kind_at(at);
      do {
        at += character_at(word.text.data() + at).length;
      } while (at < word.text.size() && kind_at(at) == kind);
      if (kind != kSpace) sink({word.text.substr(begin, at - begin), word.first && begin == 0});
    }
  }
};

class Punctuation final : public PreTokenizer {
 public:
  explicit Punctuation(SplitBehavior behavior) : behavior_(behavior) {}
  void split(Word word, Sink sink) const override { split_at(word, behavior_, sink, is_punctuation); }

 private:
  SplitBehavior behavior_;
};

class Digits final : public PreTokenizer {
 public:
  explicit Digits(bool individual) : behavior_(individual ? SplitBehavior::kIsolated : SplitBehavior::kContiguous) {}
  void split(Word word, Sink sink) const override {
    split_at(word, behavior_, sink, [](char32_t, std::uint32_t classes) { return classes & kNumber; });
  }

 private:
  SplitBehavior behavior_;
};

class CharacterDelimiter final : public PreTokenizer {
 public:
  explicit CharacterDelimiter(char32_t delimiter) : delimiter_(delimiter) {}
  void split(Word word, Sink sink) const override {
    split_at(word, SplitBehavior::kRemoved, sink, [this](char32_t c, std::uint32_t) { return c == delimiter_; });
  }

 private:
  char32_t delimiter_;
};

class FixedLength final : public PreTokenizer {
 public:
  explicit FixedLength(size_t length) : length_(length) {}
  void split(Word word, Sink sink) const override {
    for (size_t at = 0; at < word.text.size();) {
      const size_t begin = at;
      for (size_t i = 0; i < length_ && at < word.text.size(); ++i) at += character_at(word.text.data() + at).length;
      sink({word.text.substr(begin, at - begin), word.first && begin == 0});
    }
  }

 private:
  size_t length_;
};

class UnicodeScripts final : public PreTokenizer {
 public:
  void split(Word word, Sink sink) const override {
    // A space belongs to the word before it; the first word begins where the first character with a script does.
    Script last = Script::kNone;
    size_t begin = 0;
    bool began = false;
    for (size_t at = 0; at < word.text.size();) {
      const Character c = character_at(word.text.data() + at);
      const Script script = script_for_splitting(c.value);
      if (script != Script::kAny && last != Script::kAny && last != script) {
        if (began) sink({word.text.substr(begin, at - begin), word.first && begin == 0});
        begin = at;
        began = true;
      }
      if (script != Script::kAny) last = script;
      at += c.length;
    }
    if (began) sink({word.text.substr(begin), word.first && begin == 0});
  }
};

class PreTokenizerSequence final : public PreTokenizer {
 public:
  explicit PreTokenizerSequence(std::vector<PreTokenizerPtr> parts) : parts_(std::move(parts)) {}
  void split(Word word, Sink sink) const override { run(0, word, sink); }

 private:
  void run(size_t part, Word word, Sink sink) const {
    if (part == parts_.size()) {
      sink(word);
    } else if (part + 1 == parts_.size()) {
      parts_[part]->split(word, sink);
    } else {
      parts_[part]->split(word, [&](Word next) { run(part + 1, next, sink); });
    }
  }
  std::vector<PreTokenizerPtr> parts_;
};

}  // namespace

PreTokenizerPtr make_split(std::unique_ptr<Pattern> pattern, SplitBehavior behavior, bool invert) {
  return std::make_unique<Split>(std::move(pattern), behavior, invert);
}
PreTokenizerPtr make_byte_level(bool add_prefix_space, bool use_regex, bool keep_bytes) {
  return std::make_unique<ByteLevelPreTokenizer>(add_prefix_space, use_regex, keep_bytes);
}
PreTokenizerPtr make_metaspace(char32_t replacement, PrependScheme scheme, bool split) {
  return std::make_unique<MetaspacePreTokenizer>(replacement, scheme, split);
}
PreTokenizerPtr make_bert_pre_tokenizer() { return std::make_unique<BertPreTokenizer>(); }
PreTokenizerPtr make_whitespace_split() { return std::make_unique<WhitespaceSplit>(); }
PreTokenizerPtr make_whitespace() { return std::make_unique<Whitespace>(); }
PreTokenizerPtr make_punctuation(SplitBehavior behavior) { return std::make_unique<Punctuation>(behavior); }
PreTokenizerPtr make_digits(bool individual) { return std::make_unique<Digits>(individual); }
PreTokenizerPtr make_character_delimiter(char32_t delimiter) { return std::make_unique<CharacterDelimiter>(delimiter); }
PreTokenizerPtr make_fixed_length(size_t length) { return std::make_unique<FixedLength>(length); }
PreTokenizerPtr make_unicode_scripts() { return std::make_unique<UnicodeScripts>(); }
PreTokenizerPtr make_pre_tokenizer_sequence(std::vector<PreTokenizerPtr> parts) {
  return std::make_unique<PreTokenizerSequence>(std::move(parts));
}

}  // namespace weft::text
