// Filters of texts, and tojson as configured in transformers.
#include <fmt/format.h>

#include <algorithm>

#include "base/quote.hpp"
#include "jinja/arguments.hpp"
#include "jinja/filters.hpp"
#include "jinja/json.hpp"
#include "jinja/unicode.hpp"

namespace weft::jinja {
namespace {

template <void (*kAppend)(const Text&, std::size_t, std::size_t, TextBuilder&)>
Value filter_case(const Value& value, const Arguments& arguments) {
  Parameters("the filter upper or lower", arguments, {});
  const TextPointer text = soft_text(value);
  TextBuilder out;
  kAppend(*text, 0, text->bytes.size(), out);
  return out.take(text->markup);
}

Value filter_capitalize(const Value& value, const Arguments& arguments) {
  Parameters("the filter capitalize", arguments, {});
  const TextPointer text = soft_text(value);
  TextBuilder out;
  append_capitalized(*text, out);
  return out.take(text->markup);
}

// Words begin after white space, brackets, < and -.
Value filter_title(const Value& value, const Arguments& arguments) {
  Parameters("the filter title", arguments, {});
  const TextPointer text = soft_text(value);
  const std::string& bytes = text->bytes;
  const auto separates = [](char32_t c) {
    return is_space(c) || c == '-' || c == '(' || c == '{' || c == '[' || c == '<';
  };
  TextBuilder out;
  for (std::size_t begin = 0; begin < bytes.size();) {
    const auto [first, length] = decode(bytes, begin);
    const bool separator = separates(first);
    std::size_t end = begin + length;
    while (end < bytes.size() && separates(decode(bytes, end).code_point) == separator) end += decode(bytes, end).bytes;
    append_upper(*text, begin, begin + length, out);
    append_lower(*text, begin + length, end, out);
    begin = end;
  }
  return out.take();
}

Value filter_trim(const Value& value, const Arguments& arguments) {
  const Parameters p("the filter trim", arguments, {"chars"});
  const TextPointer characters = p.set(0) ? p.text(0) : nullptr;
  return stripped(soft_text(value), characters.get(), true, true);
}

Value filter_replace(const Value& value, const Arguments& arguments) {
  const Parameters p("the filter replace", arguments, {"old", "new", "count"}, 2);
  return replaced(to_text(value), *to_text(*p[0]), *to_text(*p[1]), p.set(2) ? p.integer(2, -1) : -1);
}

Value filter_center(const Value& value, const Arguments& arguments) {
  const Parameters p("the filter center", arguments, {"width"});
  return padded(soft_text(value), p.integer(0, 80), *make_text(" "), Side::both);
}

Value filter_indent(const Value& value, const Arguments& arguments) {
  const Parameters p("the filter indent", arguments, {"width", "first", "blank"});
  const TextPointer text = require_text(value, "the subject of indent");
  TextPointer indent;
  if (p.given(0) && p[0]->is_text()) {
    indent = p.text(0);
  } else {
    TextBuilder spaces;
    spaces.repeat(*make_text(" "), static_cast<std::size_t>(std::max<std::int64_t>(p.integer(0, 4), 0)));
    indent = spaces.take();
  }
  if (text->markup) indent = with_markup(indent, true);
  TextBuilder with_newline;
  with_newline.append(*text);
  with_newline.append("\n");
  const auto lines = lines_of(with_newline.take());
  TextBuilder out;
  for (std::size_t i = 0; i < lines.size(); ++i) {
    if (i > 0) out.append("\n");
    if (i == 0 ? p.flag(1, false) : p.flag(2, false) || !lines[i]->bytes.empty()) out.append(*indent);
    out.append(*lines[i]);
  }
  return out.take(text->markup);
}

Value filter_truncate(const Value& value, const Arguments& arguments) {
  const Parameters p("the filter truncate", arguments, {"length", "killwords", "end", "leeway"});
  const std::int64_t length = p.integer(0, 255), leeway = p.set(3) ? p.integer(3, 5) : 5;
  const TextPointer end = p.given(2) ? p.text(2) : make_text("...");
  const auto kept = length - static_cast<std::int64_t>(end->characters);
  if (kept < 0 || leeway < 0)
    fail("truncate: the length is below that of the end, or the leeway below 0", "give a larger length");
  const auto size = length_of(value);
  if (size && static_cast<std::int64_t>(*size) <= length + leeway) return value;
  const TextPointer text = require_text(value, "the subject of truncate");
  TextPointer head = slice(text, 0, byte_of_character(*text, static_cast<std::size_t>(kept)));
  if (!p.flag(1, false)) {
    const auto space = head->bytes.rfind(' ');
    if (space != std::string::npos) head = slice(head, 0, space);
  }
  return add(Value(head), Value(end));
}

Value filter_wordcount(const Value& value, const Arguments& arguments) {
  Parameters("the filter wordcount", arguments, {});
  const TextPointer text = soft_text(value);
  std::int64_t words = 0;
  bool inside = false;
  for (std::size_t at = 0; at < text->bytes.size();) {
    const auto [c, bytes] = decode(text->bytes, at);
    const bool word = c == '_' || flags_of(c) & (kAlpha | kDecimal | kDigit | kNumeric);
    words += word && !inside;
    inside = word;
    at += bytes;
  }
  return words;
}

Value filter_string(const Value& value, const Arguments& arguments) {
  Parameters("the filter string", arguments, {});
  return soft_text(value);
}
Value filter_safe(const Value& value, const Arguments& arguments) {
  Parameters("the filter safe", arguments, {});
  return with_markup(soft_text(value), true);
}
Value filter_escape(const Value& value, const Arguments& arguments) {
  Parameters("the filter escape", arguments, {});
  return escape_html(value);
}
Value filter_forceescape(const Value& value, const Arguments& arguments) {
  Parameters("the filter forceescape", arguments, {});
  return escape_html(Value(to_text(value)));
}

Value filter_format(const Value& value, const Arguments& arguments) {
  if (!arguments.named.empty() && !arguments.positional.empty())
    fail("format: values with and without names are mixed", "give all with names, or none");
  Value values = Value::tuple(arguments.positional);
  if (!arguments.named.empty()) {
    auto dict = std::make_shared<Dict>();
    for (const auto& [name, each] : arguments.named) dict->set(std::string_view(name), each);
    values = DictPointer(std::move(dict));
  }
  return format_percent(soft_text(value), values);
}

void append_quoted(const Text& text, bool for_query, TextBuilder& out) {
  for (std::size_t i = 0; i < text.bytes.size(); ++i) {
    const auto c = static_cast<unsigned char>(text.bytes[i]);
    const bool user = text.from_user_at(i);
    const bool plain = (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
                       std::string_view("_.-~").find(static_cast<char>(c)) != std::string_view::npos;
    if (plain || (c == '/' && !for_query)) {
      out.append(text, i, i + 1);
    } else {
      out.append(c == ' ' && for_query ? "+" : fmt::format("%{:02X}", c), user);
    }
  }
}
Value filter_urlencode(const Value& value, const Arguments& arguments) {
  Parameters("the filter urlencode", arguments, {});
  TextBuilder out;
  const auto iteration = value.is_text() ? nullptr : try_iterate(value);
  if (!iteration) {
    append_quoted(*to_text(value), false, out);
    return out.take();
  }
  const Value pairs =
      value.is_dict() ? ObjectPointer(std::make_shared<DictView>(value.dict(), DictView::Part::items)) : value;
  bool first = true;
  for (const Value& pair : items_of(pairs)) {
    const auto parts = items_of(pair);
    if (parts.size() != 2) fail("urlencode: an item is not a pair", "give a dict, or a list of pairs");
    if (!first) out.append("&");
    first = false;
    append_quoted(*to_text(parts[0]), true, out);
    out.append("=");
    append_quoted(*to_text(parts[1]), true, out);
  }
  return out.take();
}

Value filter_xmlattr(const Value& value, const Arguments& arguments) {
  const Parameters p("the filter xmlattr", arguments, {"autospace"});
  if (!value.is_dict()) fail(fmt::format("xmlattr: {} is not a dict", described(value)), "give a dict");
  TextBuilder out;
  for (const auto& [key, item] : value.dict()->items()) {
    if (item.is_none() || item.is_undefined()) continue;
    const TextPointer name = require_text(key, "a key of xmlattr");
    if (name->bytes.find_first_of(" \t\n\r\f\v/>=") != std::string::npos)
      fail(fmt::format("xmlattr: {} is not the name of an attribute", described(key)), "leave out spaces, / > and =");
    if (out.size() > 0 || p.flag(0, true)) out.append(" ");
    out.append(*escape_html(key));
    out.append("=\"");
    out.append(*escape_html(item));
    out.append("\"");
  }
  return out.take();
}

Value filter_tojson(const Value& value, const Arguments& arguments) {
  const Parameters p("the filter tojson", arguments, {"ensure_ascii", "indent", "separators", "sort_keys"});
  JsonStyle style;
  style.ascii = p.flag(0, false);
  style.sorted = p.flag(3, false);
  if (p.set(1)) {
    style.indented = true;
    style.between = ",";
    constexpr std::int64_t kIndentMax = 1000;
    style.indent =
        p[1]->is_text()
            ? p.text(1)->bytes
            : std::string(static_cast<std::size_t>(std::clamp<std::int64_t>(p.integer(1, 0), 0, kIndentMax)), ' ');
  }
  if (p.set(2)) {
    const auto parts = items_of(*p[2]);
    if (parts.size() != 2) fail("tojson: separators are not two strings", "give (between, behind_key)");
    style.between = require_text(parts[0], "a separator of tojson")->bytes;
    style.behind_key = require_text(parts[1], "a separator of tojson")->bytes;
  }
  return to_json(value, style);
}

bool any_user(const Text& text) { return !text.user.empty(); }

// Not in Jinja2, but in other engines for chat templates.
Value filter_fromjson(const Value& value, const Arguments& arguments) {
  Parameters("the filter from_json", arguments, {});
  const TextPointer text = require_text(value, "the subject of from_json");
  constexpr int kDepthMax = 64;
  OrderedJson json;
  try {
    json = parse_ordered_json(text->bytes, "from_json", {.max_depth = kDepthMax, .max_values = text->bytes.size() + 1});
  } catch (const std::exception& error) {
    fail(error.what());
  }
  return from_json(json, any_user(*text), "from_json");
}

constexpr FilterRow kTextFilters[] = {
    {"capitalize", filter_capitalize},
    {"center", filter_center},
    {"e", filter_escape},
    {"escape", filter_escape},
    {"forceescape", filter_forceescape},
    {"format", filter_format},
    {"from_json", filter_fromjson},
    {"indent", filter_indent},
    {"lower", filter_case<append_lower>},
    {"replace", filter_replace},
    {"safe", filter_safe},
    {"string", filter_string},
    {"title", filter_title},
    {"tojson", filter_tojson},
    {"trim", filter_trim},
    {"truncate", filter_truncate},
    {"upper", filter_case<append_upper>},
    {"urlencode", filter_urlencode},
    {"wordcount", filter_wordcount},
    {"xmlattr", filter_xmlattr},
};

}  // namespace

std::span<const FilterRow> text_filters() { return kTextFilters; }

}  // namespace weft::jinja
