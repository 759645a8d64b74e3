// Attributes, items and slices, by the rules of Jinja2's immutable sandbox.
#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "base/quote.hpp"
#include "jinja/arguments.hpp"
#include "jinja/library.hpp"
#include "jinja/unicode.hpp"

namespace weft::jinja {
namespace {

// Methods of Python's lists and dicts that change them: the sandbox hides these.
bool changes_object(const Value& object, std::string_view name) {
  static constexpr std::string_view kOfLists[] = {"append", "clear", "pop",    "reverse",
                                                  "insert", "sort",  "extend", "remove"};
  static constexpr std::string_view kOfDicts[] = {"clear", "pop", "popitem", "setdefault", "update"};
  if (object.is_sequence() && !object.sequence()->tuple)
    return std::find(std::begin(kOfLists), std::end(kOfLists), name) != std::end(kOfLists);
  if (object.is_dict()) return std::find(std::begin(kOfDicts), std::end(kOfDicts), name) != std::end(kOfDicts);
  return false;
}

Value forbidden(std::string reason, std::string cure) {
  return UndefinedPointer(std::make_shared<const Undefined>(Undefined{std::move(reason), std::move(cure), true}));
}

// Names of Python's own, such as __class__.
bool is_inside(std::string_view name) { return name.size() > 4 && name.starts_with("__") && name.ends_with("__"); }

std::optional<Value> own_attribute(const Value& object, std::string_view name) {
  if (is_inside(name))
    return forbidden(fmt::format("access to {} is refused: a template sees no insides of objects", quote(name, 40)),
                     {});
  if (changes_object(object, name))
    return forbidden(
        fmt::format("the method {} would change a {}, which templates cannot do", quote(name, 40), type_name(object)),
        "build a new one, as with x + [y], or keep it in a namespace");
  if (object.is_sequence() && object.sequence()->group && (name == "grouper" || name == "list"))
    return object.sequence()->items[name == "list" ? 1 : 0];
  if (!object.is_object()) return find_method(object, name);
  auto found = object.object()->attribute(name);
  if (found && name.starts_with("_"))
    return forbidden(fmt::format("access to {} is refused: names that begin with _ are private", quote(name, 40)),
                     "choose another name");
  return found;
}

std::optional<Value> own_item(const Value& object, const Value& index) {
  if (object.is_dict()) {
    if (!is_hashable(index)) return std::nullopt;
    const Value* found = object.dict()->find(index);
    return found ? std::optional<Value>(*found) : std::nullopt;
  }
  if (object.is_object()) return object.object()->item(index);
  if (!object.is_sequence() && !object.is_text()) return std::nullopt;
  auto i = index.integer();
  if (!i) return std::nullopt;
  const auto count = static_cast<std::int64_t>(*length_of(object));
  if (*i < 0) *i += count;
  if (*i < 0 || *i >= count) return std::nullopt;
  if (object.is_sequence()) return object.sequence()->items[static_cast<std::size_t>(*i)];
  const TextPointer& text = object.text();
  const std::size_t begin = byte_of_character(*text, static_cast<std::size_t>(*i));
  return Value(slice(text, begin, begin + decode(text->bytes, begin).bytes));
}

std::string key_text(const Value& key) {
  TextBuilder out;
  represent(key, out);
  return out.bytes().substr(0, 60);
}

// A slice's bounds clamped like Python's: the first position, the step, and the number of items.
struct Bounds {
  std::int64_t start, step, count;
};
Bounds bounds_of(const Value& start, const Value& stop, const Value& step_value, std::int64_t length) {
  const auto integer = [](const Value& v, std::string_view what) {
    return v.is_none() ? std::optional<std::int64_t>() : require_integer(v, what);
  };
  const std::int64_t step = integer(step_value, "the step of a slice").value_or(1);
  if (step == 0) fail("the step of a slice is 0", "give another, or leave it out");
  const std::int64_t lowest = step > 0 ? 0 : -1, highest = step > 0 ? length : length - 1;
  const auto clamped = [&](std::optional<std::int64_t> bound, std::int64_t fallback) {
    if (!bound) return fallback;
    if (*bound < 0) return *bound < -length ? lowest : std::max(*bound + length, lowest);
    return std::min(*bound, highest);
  };
  const std::int64_t from = clamped(integer(start, "the start of a slice"), step > 0 ? lowest : highest);
  const std::int64_t to = clamped(integer(stop, "the end of a slice"), step > 0 ? highest : lowest);
  std::int64_t count = 0;
  if (step > 0 && to > from) count = (to - from - 1) / step + 1;
  if (step < 0 && to < from) count = (from - to - 1) / (step == INT64_MIN ? INT64_MAX : -step) + 1;
  return {from, count > 1 ? step : (step > 0 ? 1 : -1), count};
}

Value slice_text(const TextPointer& text, const Bounds& bounds) {
  if (bounds.count == 0) return Value(make_text("", false, text->markup));
  const auto first = static_cast<std::size_t>(bounds.start);
  if (bounds.step == 1) {
    const std::size_t begin = byte_of_character(*text, first);
    const std::size_t end = byte_of_character(*text, first + static_cast<std::size_t>(bounds.count));
    return Value(slice(text, begin, end));
  }
  std::vector<std::size_t> begins;  // of every character
  const Charge charge(text->characters * sizeof(std::size_t));
  for (std::size_t at = 0; at < text->bytes.size(); at += decode(text->bytes, at).bytes) begins.push_back(at);
  TextBuilder out;
  for (std::int64_t i = 0; i < bounds.count; ++i) {
    const std::size_t at = begins[static_cast<std::size_t>(bounds.start + i * bounds.step)];
    out.append(*text, at, at + decode(text->bytes, at).bytes);
  }
  return Value(out.take(text->markup));
}

}  // namespace

Value get_attribute(const Value& object, std::string_view name) {
  if (object.is_undefined() && (object.undefined()->forbidden || !is_inside(name))) fail_undefined(object);
  if (auto found = own_attribute(object, name)) return *found;
  if (object.is_dict()) {
    if (const Value* found = object.dict()->find(name)) return *found;
  }
  return Value::undefined(fmt::format("{} has no attribute {}", described(object), quote(name, 60)),
                          "check it with 'is defined', or give a | default");
}

Value get_item(const Value& object, const Value& index) {
  if (object.is_undefined()) fail_undefined(object);
  if (auto found = own_item(object, index)) return *found;
  if (index.is_text())
    if (auto found = own_attribute(object, index.text()->bytes)) return *found;
  return Value::undefined(fmt::format("{} has no element {}", described(object), key_text(index)),
                          "check it with 'is defined', or give a | default");
}

Value get_slice(const Value& object, const Value& start, const Value& stop, const Value& step) {
  if (object.is_undefined()) fail_undefined(object);
  const auto range = object.object_as<Range>();
  if (!object.is_text() && !object.is_sequence() && !range)
    fail(fmt::format("{} cannot be sliced", described(object)), "slice strings, lists and tuples; use | list first");
  const Bounds bounds = bounds_of(start, stop, step, static_cast<std::int64_t>(*length_of(object)));
  if (range) return range->sliced(bounds.start, bounds.step, bounds.count);
  if (object.is_text()) return slice_text(object.text(), bounds);
  std::vector<Value> items;
  const Charge charge(static_cast<std::size_t>(bounds.count) * sizeof(Value));
  for (std::int64_t i = 0; i < bounds.count; ++i)
    items.push_back(object.sequence()->items[static_cast<std::size_t>(bounds.start + i * bounds.step)]);
  return object.sequence()->tuple ? Value::tuple(std::move(items)) : Value::list(std::move(items));
}

Value get_path(const Value& object, const Value& path, const Value* fallback) {
  if (path.is_none()) return object;
  Value found = object;
  const auto step = [&](const Value& part) {
    found = get_item(found, part);
    if (fallback && !fallback->is_none() && found.is_undefined()) found = *fallback;
  };
  if (!path.is_text()) {
    step(path);
    return found;
  }
  const std::string& text = path.text()->bytes;
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find('.', begin), text.size());
    const std::string_view part = std::string_view(text).substr(begin, end - begin);
    std::int64_t index = 0;
    const auto read = std::from_chars(part.data(), part.data() + part.size(), index);
    const bool is_index =
        !part.empty() && part.front() != '-' && read.ec == std::errc() && read.ptr == part.data() + part.size();
    step(is_index ? Value(index) : Value(part));
    begin = end + 1;
  }
  return found;
}

Value call(const Value& callee, Arguments&& arguments) {
  if (callee.is_undefined()) fail_undefined(callee);
  if (!callee.is_object()) fail(fmt::format("{} cannot be called", described(callee)), "leave out the parentheses");
  return callee.object()->call(std::move(arguments));
}

}  // namespace weft::jinja
