// The filters of Jinja2 that work without host objects, and tojson as configured in transformers.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <unordered_set>

#include "base/quote.hpp"
#include "jinja/arguments.hpp"
#include "jinja/float.hpp"
#include "jinja/json.hpp"
#include "jinja/library.hpp"
#include "jinja/unicode.hpp"

namespace weft::jinja {
namespace {

// ---- Text -------------------------------------------------------------------------------------------------------------

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

// ---- Numbers ----------------------------------------------------------------------------------------------------------

Value filter_abs(const Value& value, const Arguments& arguments) {
  Parameters("the filter abs", arguments, {});
  if (value.is_float()) return std::abs(value.real());
  if (value.is_undefined()) fail_undefined(value);
  const std::int64_t integer = require_integer(value, "the subject of abs");
  return integer < 0 ? negative(Value(integer)) : Value(integer);
}

std::optional<std::int64_t> truncated(double value) {
  if (!(std::abs(value) < 9223372036854775808.0)) return std::nullopt;
  return static_cast<std::int64_t>(value);
}

Value filter_int(const Value& value, const Arguments& arguments) {
  const Parameters p("the filter int", arguments, {"default", "base"});
  const Value fallback = p.given(0) ? *p[0] : Value(0);
  if (value.is_undefined()) fail_undefined(value);
  if (const auto integer = value.integer()) return *integer;
  if (value.is_float()) {
    if (std::isnan(value.real())) return fallback;
    if (const auto integer = truncated(value.real())) return *integer;
    fail(fmt::format("int: {} leaves 64 bits", described(value)), "keep it a float");
  }
  if (!value.is_text()) return fallback;
  const std::string& text = value.text()->bytes;
  const ParsedInteger parsed = parse_integer(text, p.integer(1, 10));
  if (parsed.value) return *parsed.value;
  if (parsed.too_large) fail(fmt::format("int: {} leaves 64 bits", described(value)), "use | float");
  const auto number = parse_float(text);
  if (!number || !std::isfinite(*number)) return fallback;
  if (const auto integer = truncated(*number)) return *integer;
  fail(fmt::format("int: {} leaves 64 bits", described(value)), "use | float");
}

Value filter_float(const Value& value, const Arguments& arguments) {
  const Parameters p("the filter float", arguments, {"default"});
  if (value.is_undefined()) fail_undefined(value);
  if (const auto number = value.number()) return *number;
  if (value.is_text())
    if (const auto number = parse_float(value.text()->bytes)) return *number;
  return p.given(0) ? *p[0] : Value(0.0);
}

// An integer to the nearest multiple of 10^digits, ties to even.
std::int64_t round_integer(std::int64_t value, std::int64_t digits) {
  if (digits > 18) return 0;
  __int128 unit = 1;
  for (std::int64_t i = 0; i < digits; ++i) unit *= 10;
  const __int128 wide = value;
  __int128 quotient = wide / unit, rest = wide % unit;
  if (rest < 0) {
    rest += unit;
    --quotient;
  }
  if (2 * rest > unit || (2 * rest == unit && quotient % 2 != 0)) ++quotient;
  const __int128 result = quotient * unit;
  if (result > INT64_MAX || result < INT64_MIN)
    fail("the result of round does not fit into 64 bits", "use | float first");
  return static_cast<std::int64_t>(result);
}

Value filter_round(const Value& value, const Arguments& arguments) {
  const Parameters p("the filter round", arguments, {"precision", "method"});
  const std::string method = p.given(1) ? p.text(1)->bytes : "common";
  if (method != "common" && method != "ceil" && method != "floor")
    fail(fmt::format("round: {} is not a method", quote(method, 40)), "use common, ceil or floor");
  if (value.is_undefined()) fail_undefined(value);
  if (!value.number()) fail(fmt::format("round: {} is not a number", described(value)), "convert it with | float");
  const std::int64_t precision = p.integer(0, 0);
  if (method == "common") {
    if (value.is_float()) return python_round(value.real(), precision);
    return precision >= 0 ? *value.integer()
                          : round_integer(*value.integer(), precision == INT64_MIN ? INT64_MAX : -precision);
  }
  const double scale = std::pow(10.0, static_cast<double>(precision));
  const double scaled = *value.number() * scale;
  if (!std::isfinite(scaled)) fail("round: the number is not finite, or the precision too large");
  return (method == "ceil" ? std::ceil(scaled) : std::floor(scaled)) / scale;
}

Value filter_filesizeformat(const Value& value, const Arguments& arguments) {
  const Parameters p("the filter filesizeformat", arguments, {"binary"});
  const bool binary = p.flag(0, false);
  std::optional<double> number = value.number();
  if (value.is_undefined()) fail_undefined(value);
  if (value.is_text()) number = parse_float(value.text()->bytes);
  if (!number) fail(fmt::format("filesizeformat: {} is not a number", described(value)), "convert it with | float");
  const double base = binary ? 1024 : 1000;
  if (*number == 1) return Value(std::string_view("1 Byte"));
  if (*number < base) return Value(std::string_view(fmt::format("{} Bytes", static_cast<std::int64_t>(*number))));
  static constexpr std::string_view kLetters = "kMGTPEZY";
  double unit = base;
  for (std::size_t i = 0; i < kLetters.size(); ++i) {
    unit *= base;
    if (*number < unit || i + 1 == kLetters.size()) {
      const char letter = binary && i == 0 ? 'K' : kLetters[i];
      return Value(std::string_view(fmt::format("{:.1f} {}{}B", base * *number / unit, letter, binary ? "i" : "")));
    }
  }
  return Value();
}

// The nesting depth of values that a filter keeps for later.
int depth_of(const Value& value, const Arguments& arguments) {
  int depth = value.depth();
  for (const Value& each : arguments.positional) depth = std::max(depth, each.depth());
  for (const auto& [name, each] : arguments.named) depth = std::max(depth, each.depth());
  return depth;
}

// ---- Sequences --------------------------------------------------------------------------------------------------------

Value filter_length(const Value& value, const Arguments& arguments) {
  Parameters("the filter length", arguments, {});
  const auto length = length_of(value);
  if (!length) fail(fmt::format("{} has no length", described(value)), "use | list first on what filters give");
  return static_cast<std::int64_t>(*length);
}

Value filter_list(const Value& value, const Arguments& arguments) {
  Parameters("the filter list", arguments, {});
  return Value::list(items_of(value));
}

Value filter_first(const Value& value, const Arguments& arguments) {
  Parameters("the filter first", arguments, {});
  Value item;
  if (iterate(value)->next(item)) return item;
  return Value::undefined("first: the sequence is empty", "test it with 'if' before");
}

// reversed(), for values that have an order from both ends.
std::optional<std::vector<Value>> reversed(const Value& value) {
  const bool is_view = value.object_as<DictView>() != nullptr, is_range = value.object_as<Range>() != nullptr;
  if (!value.is_undefined() && !value.is_text() && !value.is_sequence() && !value.is_dict() && !is_view && !is_range)
    return std::nullopt;
  auto items = items_of(value);
  std::reverse(items.begin(), items.end());
  return items;
}

Value walk(std::string_view name, std::vector<Value> items) {
  const Value list = Value::list(std::move(items));
  return generator(name, list.depth(), [list, i = std::size_t{0}](Value& item) mutable {
    if (i == list.sequence()->items.size()) return false;
    item = list.sequence()->items[i++];
    return true;
  });
}

Value filter_last(const Value& value, const Arguments& arguments) {
  Parameters("the filter last", arguments, {});
  const auto items = reversed(value);
  if (!items) fail(fmt::format("last: {} has no end to begin from", described(value)), "use | list first");
  if (items->empty()) return Value::undefined("last: the sequence is empty", "test it with 'if' before");
  return items->front();
}

Value filter_reverse(const Value& value, const Arguments& arguments) {
  Parameters("the filter reverse", arguments, {});
  if (value.is_text()) return get_slice(value, Value(), Value(), Value(-1));
  if (auto items = reversed(value)) return walk("list_reverseiterator", std::move(*items));
  auto items = items_of(value);
  std::reverse(items.begin(), items.end());
  return Value::list(std::move(items));
}

Value filter_items(const Value& value, const Arguments& arguments) {
  Parameters("the filter items", arguments, {});
  if (value.is_undefined()) return walk("generator", {});
  if (!value.is_dict())
    return generator("generator", value.depth(), [value](Value&) -> bool {
      fail(fmt::format("items: {} is not a dict", described(value)), "check it with 'is mapping'");
    });
  return walk("generator", DictView(value.dict(), DictView::Part::items).items());
}

Value filter_join(const Value& value, const Arguments& arguments) {
  const Parameters p("the filter join", arguments, {"d", "attribute"});
  const TextPointer separator = p.given(0) ? to_text(*p[0]) : make_text("");
  TextBuilder out;
  bool first = true;
  const auto iteration = iterate(value);
  for (Value item; iteration->next(item); first = false) {
    if (!first) out.append(*separator);
    out.append(*to_text(p.set(1) ? get_path(item, *p[1]) : item));
  }
  return out.take();
}

// The key that sort, unique, min and max compare: the attribute; strings in lower case unless case counts.
Value key_of(const Value& item, const Value& attribute, bool case_sensitive, const Value* fallback = nullptr) {
  Value key = get_path(item, attribute, fallback);
  return key.is_text() && !case_sensitive ? Value(lowered(key.text())) : key;
}

struct Keyed {
  Value key, item;
};
void sort_keyed(std::vector<Keyed>& keyed, bool reverse) {
  // Reversed before and after sorting, so that equal items keep their order.
  if (reverse) std::reverse(keyed.begin(), keyed.end());
  std::stable_sort(keyed.begin(), keyed.end(),
                   [](const Keyed& a, const Keyed& b) { return compare(a.key, b.key, "sorting") < 0; });
  if (reverse) std::reverse(keyed.begin(), keyed.end());
}

Value filter_sort(const Value& value, const Arguments& arguments) {
  const Parameters p("the filter sort", arguments, {"reverse", "case_sensitive", "attribute"});
  std::vector<Value> paths;
  if (p.set(2) && p[2]->is_text()) {
    paths = items_of(call(get_attribute(*p[2], "split"), Arguments{{Value(std::string_view(","))}, {}}));
  } else {
    paths.push_back(p.given(2) ? *p[2] : Value());
  }
  std::vector<Keyed> keyed;
  for (const Value& item : items_of(value)) {
    std::vector<Value> keys;
    for (const Value& path : paths) keys.push_back(key_of(item, path, p.flag(1, false)));
    keyed.push_back({Value::list(std::move(keys)), item});
  }
  sort_keyed(keyed, p.flag(0, false));
  std::vector<Value> items;
  for (Keyed& each : keyed) items.push_back(std::move(each.item));
  return Value::list(std::move(items));
}

Value filter_dictsort(const Value& value, const Arguments& arguments) {
  const Parameters p("the filter dictsort", arguments, {"case_sensitive", "by", "reverse"});
  const std::string by = p.given(1) && p[1]->is_text() ? p[1]->text()->bytes : p.given(1) ? "" : "key";
  if (by != "key" && by != "value") fail("dictsort sorts by \"key\" or by \"value\"", "give one of the two");
  if (value.is_undefined()) fail_undefined(value);
  if (!value.is_dict()) fail(fmt::format("dictsort: {} is not a dict", described(value)), "check it with 'is mapping'");
  std::vector<Keyed> keyed;
  for (const auto& [key, item] : value.dict()->items())
    keyed.push_back({key_of(by == "key" ? key : item, Value(), p.flag(0, false)), Value::tuple({key, item})});
  sort_keyed(keyed, p.flag(2, false));
  std::vector<Value> items;
  for (Keyed& each : keyed) items.push_back(std::move(each.item));
  return Value::list(std::move(items));
}

Value filter_unique(const Value& value, const Arguments& arguments) {
  const Parameters p("the filter unique", arguments, {"case_sensitive", "attribute"});
  const bool case_sensitive = p.flag(0, false);
  const Value attribute = p.given(1) ? *p[1] : Value();
  auto seen = std::make_shared<std::unordered_set<Value, KeyHash, KeyEqual>>();
  std::shared_ptr<Iteration> iteration;
  return generator("generator", value.depth(), [=](Value& item) mutable {
    if (!iteration) iteration = iterate(value);
    while (iteration->next(item))
      if (seen->insert(key_of(item, attribute, case_sensitive)).second) return true;
    return false;
  });
}

template <bool kLargest>
Value filter_extreme(const Value& value, const Arguments& arguments) {
  const Parameters p("the filter min or max", arguments, {"case_sensitive", "attribute"});
  const Value attribute = p.given(1) ? *p[1] : Value();
  const auto iteration = iterate(value);
  Value best;
  if (!iteration->next(best)) return Value::undefined("min or max: the sequence is empty", "test it with 'if' before");
  Value best_key = key_of(best, attribute, p.flag(0, false));
  for (Value item; iteration->next(item);) {
    Value key = key_of(item, attribute, p.flag(0, false));
    const auto order = compare(key, best_key, "min or max");
    if (kLargest ? order > 0 : order < 0) {
      best = item;
      best_key = std::move(key);
    }
  }
  return best;
}

Value filter_sum(const Value& value, const Arguments& arguments) {
  const Parameters p("the filter sum", arguments, {"attribute", "start"});
  Value total = p.given(1) ? *p[1] : Value(0);
  if (total.is_text()) fail("sum does not add strings", "use | join");
  const auto iteration = iterate(value);
  for (Value item; iteration->next(item);) total = add(total, p.set(0) ? get_path(item, *p[0]) : item);
  return total;
}

// A generator over the items of `make`, which is called when the first item is needed.
template <class F>
Value walk_later(int depth, F make) {
  std::optional<std::vector<Value>> items;
  return generator("generator", depth, [=, i = std::size_t{0}](Value& item) mutable {
    if (!items) items = make();
    if (i == items->size()) return false;
    item = (*items)[i++];
    return true;
  });
}

std::vector<Value> batches_of(const Value& value, const Arguments& arguments) {
  const Parameters p("the filter batch", arguments, {"linecount", "fill_with"}, 1);
  const std::int64_t size = p.integer(0, 1);
  std::vector<Value> batches, batch;
  for (const Value& item : items_of(value)) {
    if (static_cast<std::int64_t>(batch.size()) == size) batches.push_back(Value::list(std::exchange(batch, {})));
    batch.push_back(item);
  }
  if (!batch.empty()) {
    if (p.set(1) && size > static_cast<std::int64_t>(batch.size())) {
      const Charge charge(static_cast<std::size_t>(std::min<std::int64_t>(size, INT32_MAX)) * sizeof(Value));
      batch.resize(static_cast<std::size_t>(size), *p[1]);
    }
    batches.push_back(Value::list(std::move(batch)));
  }
  return batches;
}
Value filter_batch(const Value& value, const Arguments& arguments) {
  const Parameters p("the filter batch", arguments, {"linecount", "fill_with"}, 1);
  return walk_later(depth_of(value, arguments) + 1, [=] { return batches_of(value, arguments); });
}

std::vector<Value> slices_of(const Value& value, const Arguments& arguments) {
  const Parameters p("the filter slice", arguments, {"slices", "fill_with"}, 1);
  const auto items = items_of(value);
  const std::int64_t slices = p.integer(0, 1), length = static_cast<std::int64_t>(items.size());
  if (slices == 0) fail("slice: the number of slices is 0", "give another");
  std::vector<Value> out;
  for (std::int64_t i = 0, begin = 0; i < slices; ++i) {
    work();
    const Charge charge(sizeof(Value));
    const std::int64_t end = begin + length / slices + (i < length % slices ? 1 : 0);
    std::vector<Value> part(items.begin() + begin, items.begin() + end);
    if (p.set(1) && i >= length % slices) part.push_back(*p[1]);
    out.push_back(Value::list(std::move(part)));
    begin = end;
  }
  return out;
}
Value filter_slice(const Value& value, const Arguments& arguments) {
  const Parameters p("the filter slice", arguments, {"slices", "fill_with"}, 1);
  return walk_later(depth_of(value, arguments) + 1, [=] { return slices_of(value, arguments); });
}

Value filter_groupby(const Value& value, const Arguments& arguments) {
  const Parameters p("the filter groupby", arguments, {"attribute", "default", "case_sensitive"}, 1);
  const Value* fallback = p.set(1) ? p[1] : nullptr;
  std::vector<Keyed> keyed;
  for (const Value& item : items_of(value)) keyed.push_back({key_of(item, *p[0], p.flag(2, false), fallback), item});
  sort_keyed(keyed, false);
  std::vector<Value> groups;
  for (std::size_t begin = 0; begin < keyed.size();) {
    std::vector<Value> members;
    std::size_t end = begin;
    while (end < keyed.size() && equal(keyed[end].key, keyed[begin].key)) members.push_back(keyed[end++].item);
    Value key = get_path(members.front(), *p[0], fallback);
    auto pair = std::make_shared<Sequence>(std::vector<Value>{std::move(key), Value::list(std::move(members))}, true);
    pair->group = true;
    groups.push_back(SequencePointer(std::move(pair)));
    begin = end;
  }
  return Value::list(std::move(groups));
}

// ---- Filters that apply filters and tests -----------------------------------------------------------------------------

[[noreturn]] void fail_unknown(const UnknownName& unknown) { fail(unknown.fact, unknown.cure); }

std::string name_argument(const Value& value, std::string_view what) { return require_text(value, what)->bytes; }

// Applies map to an item.
Value map_item(const Value& item, const Arguments& arguments) {
  if (arguments.positional.empty()) {
    const Parameters p("the filter map", arguments, {"attribute", "default"});
    if (!p.given(0))
      fail("map is given neither a filter nor an attribute", "write map('upper') or map(attribute='name')");
    return get_path(item, *p[0], p.given(1) ? p[1] : nullptr);
  }
  const std::string name = name_argument(arguments.positional.front(), "the filter that map applies");
  const FilterFunction filter = find_filter(name);
  if (!filter) fail_unknown(unknown_filter(name));
  return filter(item, Arguments{{arguments.positional.begin() + 1, arguments.positional.end()}, arguments.named});
}

// Whether select or, with an attribute, selectattr keeps an item.
bool passes(const Value& item, const Arguments& arguments, bool by_attribute) {
  std::size_t next = 0;
  Value subject = item;
  if (by_attribute) {
    if (arguments.positional.empty()) fail("selectattr is not given an attribute", "write selectattr('name')");
    subject = get_path(item, arguments.positional[next++]);
  }
  if (next == arguments.positional.size()) return truth(subject);
  const std::string name = name_argument(arguments.positional[next++], "the test that select applies");
  const TestFunction test = find_test(name);
  if (!test) fail_unknown(unknown_test(name));
  return test(subject,
              Arguments{{arguments.positional.begin() + static_cast<std::ptrdiff_t>(next), arguments.positional.end()},
                        arguments.named});
}

Value filter_map(const Value& value, const Arguments& arguments) {
  std::shared_ptr<Iteration> iteration;
  return generator("generator", depth_of(value, arguments), [=](Value& item) mutable {
    if (!truth(value)) return false;
    if (!iteration) iteration = iterate(value);
    Value source;
    if (!iteration->next(source)) return false;
    item = map_item(source, arguments);
    return true;
  });
}

template <bool kKeep, bool kByAttribute>
Value filter_select(const Value& value, const Arguments& arguments) {
  std::shared_ptr<Iteration> iteration;
  return generator("generator", depth_of(value, arguments), [=](Value& item) mutable {
    if (!truth(value)) return false;
    if (!iteration) iteration = iterate(value);
    while (iteration->next(item))
      if (passes(item, arguments, kByAttribute) == kKeep) return true;
    return false;
  });
}

Value filter_default(const Value& value, const Arguments& arguments) {
  const Parameters p("the filter default", arguments, {"default_value", "boolean"});
  if (!value.is_undefined() && (!p.flag(1, false) || truth(value))) return value;
  return p.given(0) ? *p[0] : Value(std::string_view());
}

Value filter_attr(const Value& value, const Arguments& arguments) {
  const Parameters p("the filter attr", arguments, {"name"}, 1);
  const std::string name = p.text(0)->bytes;
  if (value.is_undefined()) fail_undefined(value);
  const Value found = get_attribute(value, name);
  // Keys of dicts are not attributes.
  const bool is_key = value.is_dict() && value.dict()->find(std::string_view(name)) && !find_method(value, name);
  return is_key && !found.is_undefined()
             ? Value::undefined(fmt::format("{} has no attribute {}", described(value), quote(name, 60)))
             : found;
}

struct FilterRow {
  std::string_view name;
  FilterFunction function;
};
constexpr FilterRow kFilters[] = {
    {"abs", filter_abs},
    {"attr", filter_attr},
    {"batch", filter_batch},
    {"capitalize", filter_capitalize},
    {"center", filter_center},
    {"count", filter_length},
    {"d", filter_default},
    {"default", filter_default},
    {"dictsort", filter_dictsort},
    {"e", filter_escape},
    {"escape", filter_escape},
    {"filesizeformat", filter_filesizeformat},
    {"first", filter_first},
    {"float", filter_float},
    {"forceescape", filter_forceescape},
    {"format", filter_format},
    {"from_json", filter_fromjson},
    {"groupby", filter_groupby},
    {"indent", filter_indent},
    {"int", filter_int},
    {"items", filter_items},
    {"join", filter_join},
    {"last", filter_last},
    {"length", filter_length},
    {"list", filter_list},
    {"lower", filter_case<append_lower>},
    {"map", filter_map},
    {"max", filter_extreme<true>},
    {"min", filter_extreme<false>},
    {"reject", filter_select<false, false>},
    {"rejectattr", filter_select<false, true>},
    {"replace", filter_replace},
    {"reverse", filter_reverse},
    {"round", filter_round},
    {"safe", filter_safe},
    {"select", filter_select<true, false>},
    {"selectattr", filter_select<true, true>},
    {"slice", filter_slice},
    {"sort", filter_sort},
    {"string", filter_string},
    {"sum", filter_sum},
    {"title", filter_title},
    {"tojson", filter_tojson},
    {"trim", filter_trim},
    {"truncate", filter_truncate},
    {"unique", filter_unique},
    {"upper", filter_case<append_upper>},
    {"urlencode", filter_urlencode},
    {"wordcount", filter_wordcount},
    {"xmlattr", filter_xmlattr},
};

}  // namespace

FilterFunction find_filter(std::string_view name) {
  for (const FilterRow& row : kFilters)
    if (row.name == name) return row.function;
  return nullptr;
}

UnknownName unknown_filter(std::string_view name) {
  for (const std::string_view left_out : {"pprint", "random", "striptags", "urlize", "wordwrap"})
    if (name == left_out) return {fmt::format("the filter {} is not supported", name), "do it before the template"};
  std::string names;
  for (const FilterRow& row : kFilters) names += (names.empty() ? "" : ", ") + std::string(row.name);
  return {fmt::format("no filter is called {}", quote(name, 40)), "there are " + names};
}

}  // namespace weft::jinja
