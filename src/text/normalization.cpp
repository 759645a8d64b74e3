#include "text/normalization.hpp"

#include <utf8proc.h>

#include <algorithm>
#include <vector>

#include "text/unicode.hpp"
#include "weft/error.hpp"

namespace weft::text {
namespace {

std::uint32_t unstable_bit(NormalizationForm form) {
  switch (form) {
    case NormalizationForm::kNfc: return kUnstableNfc;
    case NormalizationForm::kNfd: return kUnstableNfd;
    case NormalizationForm::kNfkc: return kUnstableNfkc;
    case NormalizationForm::kNfkd: return kUnstableNfkd;
  }
  throw InternalError("no such normalization form");
}

int combining_class(utf8proc_int32_t c) { return utf8proc_get_property(c)->combining_class; }

// utf8proc puts marks in order by neighbouring swaps, which takes quadratic time on long runs of them; a stable sort does not.
void order_marks(std::vector<utf8proc_int32_t>& text) {
  for (std::size_t i = 0; i < text.size();) {
    if (combining_class(text[i]) == 0) {
      ++i;
      continue;
    }
    std::size_t end = i;
    while (end < text.size() && combining_class(text[end]) != 0) ++end;
    std::stable_sort(text.begin() + static_cast<std::ptrdiff_t>(i), text.begin() + static_cast<std::ptrdiff_t>(end),
                     [](utf8proc_int32_t a, utf8proc_int32_t b) { return combining_class(a) < combining_class(b); });
    i = end;
  }
}

class FormWriter {
 public:
  explicit FormWriter(NormalizationForm form)
      : compose_(form == NormalizationForm::kNfc || form == NormalizationForm::kNfkc),
        options_(form == NormalizationForm::kNfkc || form == NormalizationForm::kNfkd
                     ? UTF8PROC_DECOMPOSE | UTF8PROC_COMPAT
                     : UTF8PROC_DECOMPOSE) {}

  void append(std::string& out, std::string_view region) {
    parts_.clear();
    for (const char *at = region.data(), *end = at + region.size(); at < end;) {
      const Character c = character_at(at);
      at += c.length;
      utf8proc_int32_t buffer[32];  // the longest decomposition has 18 characters
      const auto count = utf8proc_decompose_char(static_cast<utf8proc_int32_t>(c.value), buffer, 32,
                                                 static_cast<utf8proc_option_t>(options_), nullptr);
      if (count < 0 || count > 32) throw InternalError("a character does not decompose");
      parts_.insert(parts_.end(), buffer, buffer + count);
    }
    order_marks(parts_);
    auto size = static_cast<utf8proc_ssize_t>(parts_.size());
    if (compose_)
      size = utf8proc_normalize_utf32(parts_.data(), size,
                                      static_cast<utf8proc_option_t>(UTF8PROC_COMPOSE | UTF8PROC_STABLE));
    for (utf8proc_ssize_t i = 0; i < size; ++i)
      append_character(out, static_cast<char32_t>(parts_[static_cast<std::size_t>(i)]));
  }

 private:
  bool compose_;
  int options_;
  std::vector<utf8proc_int32_t> parts_;
};

}  // namespace

std::string normalize(std::string_view text, NormalizationForm form) {
  const CharacterTable& table = CharacterTable::get();
  const std::uint32_t unstable = unstable_bit(form);
  std::string out;
  out.reserve(text.size());
  FormWriter writer(form);
  const char *at = text.data(), *const end = at + text.size();
  const char* copied = at;    // all before it is in `out`
  const char* previous = at;  // the last stable character: what follows may join it
  while (at < end) {
    const Character c = character_at(at);
    if (!(table[c.value] & unstable)) {
      previous = at;
      at += c.length;
      continue;
    }
    out.append(copied, previous);
    const char* stop = at;
    while (stop < end) {
      const Character next = character_at(stop);
      if (!(table[next.value] & unstable)) break;
      stop += next.length;
    }
    writer.append(out, {previous, static_cast<std::size_t>(stop - previous)});
    copied = previous = at = stop;
  }
  out.append(copied, end);
  return out;
}

}  // namespace weft::text
