// The methods of Python's strings, lists, tuples and dicts that change nothing.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "jinja/arguments.hpp"
#include "jinja/library.hpp"
#include "jinja/unicode.hpp"

namespace weft::jinja {
namespace {

using Names = Parameters::Names;
using Method = Value (*)(const Value& self, const Arguments& arguments);

class BoundMethod : public Object {
 public:
  BoundMethod(Value self, std::string_view name, Method method)
      : self_(std::move(self)), name_(name), method_(method), depth_(checked_depth(self_.depth() + 1)) {}
  std::string_view type_name() const override { return "method"; }
  void represent(TextBuilder& out) const override {
    out.append(fmt::format("<built-in method {} of {} object>", name_, jinja::type_name(self_)));
  }
  bool callable() const override { return true; }
  Value call(Arguments&& arguments) override { return method_(self_, arguments); }
  int depth() const override { return depth_; }

 private:
  Value self_;
  std::string_view name_;
  Method method_;
  int depth_;
  Charge charge_{64};
};

// ---- Strings ----------------------------------------------------------------------------------------------------------

// The text argument i; escaped if the string is Markup, as in markupsafe.
TextPointer inserted(const Text& self, const Parameters& parameters, std::size_t i) {
  return self.markup ? escape_html(Value(parameters.text(i))) : parameters.text(i);
}

void no_arguments(std::string_view name, const Arguments& arguments) { Parameters(name, arguments, {}); }

std::vector<Value> as_values(std::vector<TextPointer> texts) {
  std::vector<Value> values;
  for (TextPointer& text : texts) values.emplace_back(std::move(text));
  return values;
}

std::size_t position_in(const std::string& bytes, std::size_t from, const std::string& part) {
  const void* found = memmem(bytes.data() + from, bytes.size() - from, part.data(), part.size());
  return found ? static_cast<std::size_t>(static_cast<const char*>(found) - bytes.data()) : std::string::npos;
}
// The last place of `part` in the first `end` bytes; linear, by searching backwards in reversed copies.
std::size_t last_position_in(const std::string& bytes, std::size_t end, const std::string& part) {
  const Charge charge(end + part.size());
  const std::string text(bytes.rend() - static_cast<std::ptrdiff_t>(end), bytes.rend());
  const std::string wanted(part.rbegin(), part.rend());
  const std::size_t found = position_in(text, 0, wanted);
  return found == std::string::npos ? found : end - found - part.size();
}

std::vector<TextPointer> split_at_space(const TextPointer& text, std::int64_t count) {
  std::vector<TextPointer> parts;
  const std::string& bytes = text->bytes;
  std::size_t at = 0;
  const auto skip = [&](bool space) {
    while (at < bytes.size() && is_space(decode(bytes, at).code_point) == space) at += decode(bytes, at).bytes;
  };
  for (skip(true); at < bytes.size(); skip(true)) {
    const std::size_t begin = at;
    if (count-- == 0) {
      parts.push_back(slice(text, begin, bytes.size()));
      break;
    }
    skip(false);
    parts.push_back(slice(text, begin, at));
  }
  return parts;
}
std::vector<TextPointer> split_at_space_from_back(const TextPointer& text, std::int64_t count) {
  std::vector<TextPointer> parts;
  const std::string& bytes = text->bytes;
  std::size_t end = bytes.size();
  const auto skip = [&](bool space) {
    while (end > 0 && is_space(decode(bytes, previous(bytes, end)).code_point) == space) end = previous(bytes, end);
  };
  for (skip(true); end > 0; skip(true)) {
    const std::size_t last = end;
    if (count-- == 0) {
      parts.push_back(slice(text, 0, last));
      break;
    }
    skip(false);
    parts.push_back(slice(text, end, last));
  }
  std::reverse(parts.begin(), parts.end());
  return parts;
}

const TextPointer& separator_of(const TextPointer& separator) {
  if (separator->bytes.empty()) fail("the separator is empty", "leave it out to split at white space");
  return separator;
}

Value split(const Value& self, const Arguments& arguments) {
  const Parameters p("the method split", arguments, {"sep", "maxsplit"});
  std::int64_t count = p.integer(1, -1);
  if (!p.set(0)) return Value::list(as_values(split_at_space(self.text(), count)));
  const TextPointer &text = self.text(), separator = separator_of(p.text(0));
  std::vector<Value> parts;
  std::size_t begin = 0;
  for (; count != 0; --count) {
    const std::size_t found = position_in(text->bytes, begin, separator->bytes);
    if (found == std::string::npos) break;
    parts.emplace_back(slice(text, begin, found));
    begin = found + separator->bytes.size();
  }
  parts.emplace_back(slice(text, begin, text->bytes.size()));
  return Value::list(std::move(parts));
}

Value rsplit(const Value& self, const Arguments& arguments) {
  const Parameters p("the method rsplit", arguments, {"sep", "maxsplit"});
  std::int64_t count = p.integer(1, -1);
  if (!p.set(0)) return Value::list(as_values(split_at_space_from_back(self.text(), count)));
  if (count < 0) return split(self, Arguments{{*p[0]}, {}});
  const TextPointer &text = self.text(), separator = separator_of(p.text(0));
  std::vector<Value> parts;
  std::size_t end = text->bytes.size();
  for (; count != 0; --count) {
    const std::size_t found = last_position_in(text->bytes, end, separator->bytes);
    if (found == std::string::npos) break;
    parts.emplace_back(slice(text, found + separator->bytes.size(), end));
    end = found;
  }
  parts.emplace_back(slice(text, 0, end));
  std::reverse(parts.begin(), parts.end());
  return Value::list(std::move(parts));
}

// The bytes between the optional start and end of find, count, startswith and so on; empty if start is after end.
struct Window {
  bool valid;
  std::size_t begin, end;
};
Window window_of(const Text& text, const Parameters& p, std::size_t first) {
  const auto length = static_cast<std::int64_t>(text.characters);
  const auto bound = [&](std::size_t i, std::int64_t fallback) {
    if (!p.set(i)) return fallback;
    const std::int64_t value = p.integer(i, fallback);
    return value < 0 ? std::max<std::int64_t>(value < -length ? 0 : value + length, 0) : value;
  };
  const std::int64_t begin = bound(first, 0), end = std::min(bound(first + 1, length), length);
  if (begin > end) return {false, 0, 0};
  return {true, byte_of_character(text, static_cast<std::size_t>(begin)),
          byte_of_character(text, static_cast<std::size_t>(end))};
}

// Character position of the first or last occurrence, or -1.
std::int64_t find_in(const Value& self, const Parameters& p, bool last) {
  const Text& text = *self.text();
  const std::string& part = p.text(0)->bytes;
  const Window window = window_of(text, p, 1);
  if (!window.valid || part.size() > window.end - window.begin) return -1;
  std::size_t found =
      last ? last_position_in(text.bytes, window.end, part) : position_in(text.bytes, window.begin, part);
  if (found == std::string::npos || found < window.begin || found + part.size() > window.end) return -1;
  return static_cast<std::int64_t>(count_characters(std::string_view(text.bytes).substr(0, found)));
}

template <bool kLast, bool kMustBeThere>
Value find_method_of(const Value& self, const Arguments& arguments) {
  const Parameters p("find or index", arguments, {"sub", "start", "end"}, 1, Names::refused);
  const std::int64_t found = find_in(self, p, kLast);
  if (kMustBeThere && found < 0)
    fail(fmt::format("{} is not in {}", described(*p[0]), described(self)), "use find, which gives -1 then");
  return found;
}

Value count(const Value& self, const Arguments& arguments) {
  const Parameters p("the method count", arguments, {"sub", "start", "end"}, 1, Names::refused);
  const Text& text = *self.text();
  const std::string& part = p.text(0)->bytes;
  const Window window = window_of(text, p, 1);
  if (!window.valid) return 0;
  const std::string inside = text.bytes.substr(window.begin, window.end - window.begin);
  if (part.empty()) return static_cast<std::int64_t>(count_characters(inside) + 1);
  std::int64_t times = 0;
  for (std::size_t at = 0; (at = position_in(inside, at, part)) != std::string::npos; at += part.size()) ++times;
  return times;
}

template <bool kAtFront>
Value has_affix(const Value& self, const Arguments& arguments) {
  const std::string_view name = kAtFront ? "the method startswith" : "the method endswith";
  const Parameters p(name, arguments, {"prefix", "start", "end"}, 1, Names::refused);
  const Window window = window_of(*self.text(), p, 1);
  const auto has = [&](const Value& affix) {
    const std::string& part = require_text(affix, fmt::format("what {} looks for", name))->bytes;
    if (!window.valid) return false;
    const auto inside = std::string_view(self.text()->bytes).substr(window.begin, window.end - window.begin);
    return kAtFront ? inside.starts_with(part) : inside.ends_with(part);
  };
  if (!p[0]->is_sequence() || !p[0]->sequence()->tuple) return has(*p[0]);
  const auto& affixes = p[0]->sequence()->items;
  return std::any_of(affixes.begin(), affixes.end(), has);
}

template <bool kAtFront, bool kAtBack>
Value strip(const Value& self, const Arguments& arguments) {
  const Parameters p("the method strip", arguments, {"chars"}, 0, Names::refused);
  const TextPointer characters = p.set(0) ? p.text(0) : nullptr;
  return stripped(self.text(), characters.get(), kAtFront, kAtBack);
}

template <void (*kAppend)(const Text&, std::size_t, std::size_t, TextBuilder&)>
Value mapped_case(const Value& self, const Arguments& arguments) {
  no_arguments("the method lower or upper", arguments);
  TextBuilder out;
  kAppend(*self.text(), 0, self.text()->bytes.size(), out);
  return out.take(self.text()->markup);
}
template <void (*kAppend)(const Text&, TextBuilder&)>
Value mapped_title(const Value& self, const Arguments& arguments) {
  no_arguments("the method title or capitalize", arguments);
  TextBuilder out;
  kAppend(*self.text(), out);
  return out.take(self.text()->markup);
}
void append_swapped(const Text& text, std::size_t begin, std::size_t end, TextBuilder& out) {
  for (std::size_t at = begin; at < end;) {
    const auto [c, bytes] = decode(text.bytes, at);
    const auto flags = flags_of(c);
    const Mapped mapped = flags & kUpper ? to_lower(c) : flags & kLower ? to_upper(c) : Mapped{{c}, 1};
    for (int i = 0; i < mapped.count; ++i) out.append(mapped.code_points[i], text.from_user_at(at));
    at += bytes;
  }
}

// Whether the text is not empty and all its characters have one of these flags.
template <int kFlags>
Value all_are(const Value& self, const Arguments& arguments) {
  no_arguments("the method is...", arguments);
  const std::string& bytes = self.text()->bytes;
  for (std::size_t at = 0; at < bytes.size(); at += decode(bytes, at).bytes)
    if (!(flags_of(decode(bytes, at).code_point) & kFlags)) return false;
  return !bytes.empty() || kFlags == kPrintable;
}
Value is_space_only(const Value& self, const Arguments& arguments) {
  no_arguments("the method isspace", arguments);
  const std::string& bytes = self.text()->bytes;
  for (std::size_t at = 0; at < bytes.size(); at += decode(bytes, at).bytes)
    if (!is_space(decode(bytes, at).code_point)) return false;
  return !bytes.empty();
}
Value is_ascii(const Value& self, const Arguments& arguments) {
  no_arguments("the method isascii", arguments);
  return self.text()->ascii();
}
// Whether there is a letter of the wanted case, and none of another case.
template <int kWanted>
Value is_cased(const Value& self, const Arguments& arguments) {
  no_arguments("the method islower or isupper", arguments);
  bool any = false;
  const std::string& bytes = self.text()->bytes;
  for (std::size_t at = 0; at < bytes.size(); at += decode(bytes, at).bytes) {
    const auto flags = flags_of(decode(bytes, at).code_point);
    if (flags & kCased & ~kWanted) return false;
    any = any || flags & kWanted;
  }
  return any;
}
Value is_title(const Value& self, const Arguments& arguments) {
  no_arguments("the method istitle", arguments);
  bool any = false, inside_word = false;
  const std::string& bytes = self.text()->bytes;
  for (std::size_t at = 0; at < bytes.size(); at += decode(bytes, at).bytes) {
    const auto flags = flags_of(decode(bytes, at).code_point);
    if (flags & (kUpper | kTitle) ? inside_word : flags & kLower && !inside_word) return false;
    inside_word = flags & kCased;
    any = any || inside_word;
  }
  return any;
}

Value replace(const Value& self, const Arguments& arguments) {
  const Parameters p("the method replace", arguments, {"old", "new", "count"}, 2, Names::refused);
  return replaced(self.text(), *p.text(0), *inserted(*self.text(), p, 1), p.integer(2, -1));
}

Value join(const Value& self, const Arguments& arguments) {
  const Parameters p("the method join", arguments, {"iterable"}, 1, Names::refused);
  std::vector<TextPointer> parts;
  for (const Value& item : items_of(*p[0]))
    parts.push_back(self.text()->markup ? escape_html(item) : require_text(item, "an item to join"));
  return joined(*self.text(), parts);
}

template <bool kLast>
Value partition(const Value& self, const Arguments& arguments) {
  const Parameters p("the method partition", arguments, {"sep"}, 1, Names::refused);
  const TextPointer &text = self.text(), separator = separator_of(p.text(0));
  const std::size_t found = kLast ? last_position_in(text->bytes, text->bytes.size(), separator->bytes)
                                  : position_in(text->bytes, 0, separator->bytes);
  const Value empty(make_text("", false, text->markup));
  if (found == std::string::npos)
    return kLast ? Value::tuple({empty, empty, self}) : Value::tuple({self, empty, empty});
  const std::size_t end = found + separator->bytes.size();
  return Value::tuple(
      {Value(slice(text, 0, found)), Value(slice(text, found, end)), Value(slice(text, end, text->bytes.size()))});
}

template <Side kSide>
Value pad(const Value& self, const Arguments& arguments) {
  const Parameters p("the method center, ljust or rjust", arguments, {"width", "fillchar"}, 1, Names::refused);
  const TextPointer fill = p.given(1) ? inserted(*self.text(), p, 1) : make_text(" ");
  return padded(self.text(), p.integer(0, 0), *fill, kSide);
}

Value zfill(const Value& self, const Arguments& arguments) {
  const Parameters p("the method zfill", arguments, {"width"}, 1, Names::refused);
  const TextPointer& text = self.text();
  const std::size_t sign = text->bytes.starts_with('+') || text->bytes.starts_with('-') ? 1 : 0;
  const std::int64_t padding = p.integer(0, 0) - static_cast<std::int64_t>(text->characters);
  if (padding <= 0) return self;
  TextBuilder out;
  out.append(*text, 0, sign);
  out.repeat(*make_text("0"), static_cast<std::size_t>(padding));
  out.append(*text, sign, text->bytes.size());
  return out.take(text->markup);
}

Value splitlines(const Value& self, const Arguments& arguments) {
  const Parameters p("the method splitlines", arguments, {"keepends"});
  return Value::list(as_values(lines_of(self.text(), p.flag(0, false))));
}

template <bool kAtFront>
Value remove_affix(const Value& self, const Arguments& arguments) {
  const Parameters p("the method removeprefix or removesuffix", arguments, {"affix"}, 1, Names::refused);
  const TextPointer& text = self.text();
  const std::string& affix = p.text(0)->bytes;
  if (affix.empty() || !(kAtFront ? text->bytes.starts_with(affix) : text->bytes.ends_with(affix))) return self;
  return kAtFront ? slice(text, affix.size(), text->bytes.size()) : slice(text, 0, text->bytes.size() - affix.size());
}

Value expandtabs(const Value& self, const Arguments& arguments) {
  const Parameters p("the method expandtabs", arguments, {"tabsize"});
  const std::int64_t size = p.integer(0, 8);
  const Text& text = *self.text();
  TextBuilder out;
  const TextPointer space = make_text(" ");
  std::int64_t column = 0;
  for (std::size_t at = 0; at < text.bytes.size();) {
    const auto [c, bytes] = decode(text.bytes, at);
    if (c == '\t') {
      const std::int64_t spaces = size > 0 ? size - column % size : 0;
      out.repeat(*space, static_cast<std::size_t>(spaces));
      column += spaces;
    } else {
      out.append(text, at, at + bytes);
      column = c == '\n' || c == '\r' ? 0 : column + 1;
    }
    at += bytes;
  }
  return out.take(text.markup);
}

Value format(const Value& self, const Arguments& arguments) { return format_braces(self.text(), arguments); }

// ---- Lists, tuples, dicts ---------------------------------------------------------------------------------------------

Value count_items(const Value& self, const Arguments& arguments) {
  const Parameters p("the method count", arguments, {"value"}, 1, Names::refused);
  const auto& items = self.sequence()->items;
  return std::int64_t{std::count_if(items.begin(), items.end(), [&](const Value& item) { return equal(item, *p[0]); })};
}
Value index_of_item(const Value& self, const Arguments& arguments) {
  const Parameters p("the method index", arguments, {"value", "start", "stop"}, 1, Names::refused);
  const auto& items = self.sequence()->items;
  const auto length = static_cast<std::int64_t>(items.size());
  const auto bound = [&](std::size_t i, std::int64_t fallback) {
    const std::int64_t value = p.integer(i, fallback);
    return value < 0 ? (value < -length ? 0 : value + length) : std::min(value, length);
  };
  for (std::int64_t i = bound(1, 0), end = bound(2, length); i < end; ++i)
    if (equal(items[static_cast<std::size_t>(i)], *p[0])) return i;
  fail(fmt::format("{} is not in the {}", described(*p[0]), type_name(self)), "check it with 'in' first");
}
Value copy(const Value& self, const Arguments& arguments) {
  no_arguments("the method copy", arguments);
  return self;
}

Value get(const Value& self, const Arguments& arguments) {
  const Parameters p("the method get", arguments, {"key", "default"}, 1, Names::refused);
  const Value* found = self.dict()->find(*p[0]);
  return found ? *found : p.given(1) ? *p[1] : Value();
}
template <DictView::Part kPart>
Value view(const Value& self, const Arguments& arguments) {
  no_arguments("the method keys, values or items", arguments);
  return ObjectPointer(std::make_shared<DictView>(self.dict(), kPart));
}

Value is_integer(const Value& self, const Arguments& arguments) {
  no_arguments("the method is_integer", arguments);
  return std::isfinite(self.real()) && std::floor(self.real()) == self.real();
}

struct MethodRow {
  std::string_view name;
  Method method;
};

constexpr MethodRow kTextMethods[] = {
    {"capitalize", mapped_title<append_capitalized>},
    {"center", pad<Side::both>},
    {"count", count},
    {"endswith", has_affix<false>},
    {"expandtabs", expandtabs},
    {"find", find_method_of<false, false>},
    {"format", format},
    {"index", find_method_of<false, true>},
    {"isalnum", all_are<kAlpha | kDecimal | kDigit | kNumeric>},
    {"isalpha", all_are<kAlpha>},
    {"isascii", is_ascii},
    {"isdecimal", all_are<kDecimal>},
    {"isdigit", all_are<kDigit>},
    {"islower", is_cased<kLower>},
    {"isnumeric", all_are<kNumeric>},
    {"isprintable", all_are<kPrintable>},
    {"isspace", is_space_only},
    {"istitle", is_title},
    {"isupper", is_cased<kUpper>},
    {"join", join},
    {"ljust", pad<Side::right>},
    {"lower", mapped_case<append_lower>},
    {"lstrip", strip<true, false>},
    {"partition", partition<false>},
    {"removeprefix", remove_affix<true>},
    {"removesuffix", remove_affix<false>},
    {"replace", replace},
    {"rfind", find_method_of<true, false>},
    {"rindex", find_method_of<true, true>},
    {"rjust", pad<Side::left>},
    {"rpartition", partition<true>},
    {"rsplit", rsplit},
    {"rstrip", strip<false, true>},
    {"split", split},
    {"splitlines", splitlines},
    {"startswith", has_affix<true>},
    {"strip", strip<true, true>},
    {"swapcase", mapped_case<append_swapped>},
    {"title", mapped_title<append_title>},
    {"upper", mapped_case<append_upper>},
    {"zfill", zfill},
};
constexpr MethodRow kListMethods[] = {{"copy", copy}, {"count", count_items}, {"index", index_of_item}};
constexpr MethodRow kTupleMethods[] = {{"count", count_items}, {"index", index_of_item}};
constexpr MethodRow kDictMethods[] = {{"copy", copy},
                                      {"get", get},
                                      {"items", view<DictView::Part::items>},
                                      {"keys", view<DictView::Part::keys>},
                                      {"values", view<DictView::Part::values>}};
constexpr MethodRow kFloatMethods[] = {{"is_integer", is_integer}};

// Python also has these methods; using one is an error that says so, instead of an undefined value.
constexpr std::string_view kTextLeftOut[] = {"casefold",     "encode",    "format_map",
                                             "isidentifier", "maketrans", "translate"};

template <std::size_t kCount>
std::optional<Value> find_in_table(const MethodRow (&rows)[kCount], const Value& object, std::string_view name) {
  for (const MethodRow& row : rows)
    if (row.name == name) return ObjectPointer(std::make_shared<BoundMethod>(object, row.name, row.method));
  return std::nullopt;
}

}  // namespace

std::optional<Value> find_method(const Value& object, std::string_view name) {
  if (object.is_text()) {
    if (std::find(std::begin(kTextLeftOut), std::end(kTextLeftOut), name) != std::end(kTextLeftOut))
      fail(fmt::format("the method {} of strings is not supported", name), "do it before the template");
    return find_in_table(kTextMethods, object, name);
  }
  if (object.is_dict()) return find_in_table(kDictMethods, object, name);
  if (object.is_float()) return find_in_table(kFloatMethods, object, name);
  if (object.is_sequence())
    return object.sequence()->tuple ? find_in_table(kTupleMethods, object, name)
                                    : find_in_table(kListMethods, object, name);
  return std::nullopt;
}

}  // namespace weft::jinja
