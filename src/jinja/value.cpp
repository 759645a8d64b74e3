#include "jinja/value.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>

#include "base/quote.hpp"
#include "jinja/float.hpp"
#include "jinja/unicode.hpp"

namespace weft::jinja {
namespace {

// Destroying and printing are recursive; Python's limit has a similar size.
constexpr int kDepthMax = 200;
constexpr std::size_t kSmallDict = 8;

}  // namespace

int checked_depth(int depth) {
  if (depth > kDepthMax) fail(fmt::format("a value is nested deeper than {} levels", kDepthMax));
  return depth;
}

Sequence::Sequence(std::vector<Value> items_, bool tuple_)
    : items(std::move(items_)), tuple(tuple_), depth(1), charge(sizeof(Sequence) + items.size() * sizeof(Value)) {
  for (const Value& item : items) depth = std::max(depth, item.depth() + 1);
  checked_depth(depth);
}
Sequence::~Sequence() = default;

Value Value::undefined(std::string reason, std::string cure) {
  return Value(UndefinedPointer(std::make_shared<const Undefined>(Undefined{std::move(reason), std::move(cure)})));
}

std::optional<std::int64_t> Value::integer() const {
  if (const auto* i = std::get_if<std::int64_t>(&data_)) return *i;
  if (const auto* b = std::get_if<bool>(&data_)) return *b ? 1 : 0;
  return std::nullopt;
}
std::optional<double> Value::number() const {
  if (const auto i = integer()) return static_cast<double>(*i);
  if (is_float()) return real();
  return std::nullopt;
}
int Value::depth() const {
  if (is_sequence()) return sequence()->depth;
  if (is_dict()) return dict()->depth();
  if (is_object()) return object()->depth();
  return 0;
}

// ---- Keys and dicts ---------------------------------------------------------------------------------------------------

std::size_t KeyHash::operator()(const Value& key) const {
  work();  // items of tuples may be shared, so a walk can meet more items than memory holds
  const Level level;
  if (key.is_text()) return std::hash<std::string_view>()(key.text()->bytes);
  if (const auto i = key.integer()) return std::hash<std::int64_t>()(*i);
  if (key.is_float()) {
    // A whole float is the same key as its integer.
    const double real = key.real();
    if (std::abs(real) < 9e18 && real == std::floor(real))
      return std::hash<std::int64_t>()(static_cast<std::int64_t>(real));
    return std::hash<double>()(real);
  }
  if (key.is_none() || key.is_undefined()) return key.is_none() ? 1 : 2;
  if (key.is_sequence() && key.sequence()->tuple) {
    std::size_t hash = 3;
    for (const Value& item : key.sequence()->items) hash = hash * 1000003 + (*this)(item);
    return hash;
  }
  if (key.is_object()) return std::hash<const void*>()(key.object().get());
  fail(fmt::format("a {} cannot be a key or a member of a set", type_name(key)), "use a string");
}

bool is_hashable(const Value& value) {
  work();
  if (value.is_dict()) return false;
  if (!value.is_sequence()) return true;
  const Level level;
  const auto& items = value.sequence()->items;
  return value.sequence()->tuple && std::all_of(items.begin(), items.end(), is_hashable);
}

bool KeyEqual::operator()(const Value& a, const Value& b) const { return equal(a, b); }

std::optional<std::size_t> Dict::position_of(const Value& key) const {
  if (items_.size() > kSmallDict) {
    const auto found = index_.find(key);
    if (found == index_.end()) return std::nullopt;
    return found->second;
  }
  KeyHash()(key);  // refuses keys that cannot be hashed
  for (std::size_t i = 0; i < items_.size(); ++i)
    if (equal(items_[i].first, key)) return i;
  return std::nullopt;
}

void Dict::set(Value key, Value value) {
  depth_ = checked_depth(std::max({depth_, key.depth() + 1, value.depth() + 1}));
  if (const auto position = position_of(key)) {
    items_[*position].second = std::move(value);
    return;
  }
  charge_.add(4 * sizeof(Value));
  items_.emplace_back(std::move(key), std::move(value));
  if (items_.size() == kSmallDict + 1) {
    for (std::size_t i = 0; i < items_.size(); ++i) index_.emplace(items_[i].first, i);
  } else if (items_.size() > kSmallDict) {
    index_.emplace(items_.back().first, items_.size() - 1);
  }
}

const Value* Dict::find(const Value& key) const {
  const auto position = position_of(key);
  return position ? &items_[*position].second : nullptr;
}
const Value* Dict::find(std::string_view key) const {
  if (items_.size() > kSmallDict) return find(Value(key));
  for (const auto& [name, value] : items_)
    if (name.is_text() && name.text()->bytes == key) return &value;
  return nullptr;
}
void Dict::clear() {
  index_.clear();
  items_.clear();
}

// ---- Names of types and values ----------------------------------------------------------------------------------------

std::string type_name(const Value& value) {
  if (value.is_undefined()) return "Undefined";
  if (value.is_none()) return "NoneType";
  if (value.is_bool()) return "bool";
  if (value.is_float()) return "float";
  if (value.is_text()) return value.text()->markup ? "Markup" : "str";
  if (value.is_sequence()) return value.sequence()->tuple ? "tuple" : "list";
  if (value.is_dict()) return "dict";
  if (value.is_object()) return std::string(value.object()->type_name());
  return "int";
}

std::string described(const Value& value) {
  if (value.is_none()) return "none";
  if (value.is_undefined()) return "an undefined value";
  if (value.is_text()) return fmt::format("the string {}", quote(value.text()->bytes, 40));
  if (const auto integer = value.integer())
    return value.is_bool() ? (*integer ? "true" : "false") : std::to_string(*integer);
  if (value.is_float()) return float_text(value.real());
  return fmt::format("a {}", type_name(value));
}

void fail_undefined(const Value& value) {
  const Undefined& undefined = *value.undefined();
  fail(undefined.reason, undefined.cure);
}

// ---- Truth, equality, order -------------------------------------------------------------------------------------------

bool truth(const Value& value) {
  if (const auto number = value.number()) return *number != 0;
  if (value.is_text()) return !value.text()->bytes.empty();
  if (value.is_sequence()) return !value.sequence()->items.empty();
  if (value.is_dict()) return value.dict()->size() > 0;
  return value.is_object() && value.object()->truth();
}

namespace {

// Exact: an int and a float are compared as numbers of the wider type.
std::partial_ordering compare_numbers(const Value& a, const Value& b) {
  if (!a.is_float() && !b.is_float()) return *a.integer() <=> *b.integer();
  const auto wide = [](const Value& v) -> long double {
    return v.is_float() ? static_cast<long double>(v.real()) : static_cast<long double>(*v.integer());
  };
  return wide(a) <=> wide(b);
}

bool equal_dicts(const Dict& a, const Dict& b) {
  if (a.size() != b.size()) return false;
  return std::all_of(a.items().begin(), a.items().end(), [&](const auto& item) {
    const Value* other = b.find(item.first);
    return other && equal(item.second, *other);
  });
}

}  // namespace

bool equal(const Value& a, const Value& b) {
  work();
  if (a.number() && b.number()) return compare_numbers(a, b) == 0;
  if (a.is_text() && b.is_text()) return a.text()->bytes == b.text()->bytes;
  if (a.is_none() || b.is_none()) return a.is_none() && b.is_none();
  if (a.is_undefined() || b.is_undefined()) return a.is_undefined() && b.is_undefined();
  const Level level;
  if (a.is_sequence() && b.is_sequence()) {
    const Sequence &x = *a.sequence(), &y = *b.sequence();
    return x.tuple == y.tuple && (&x == &y || std::equal(x.items.begin(), x.items.end(), y.items.begin(), y.items.end(),
                                                         [](const Value& p, const Value& q) { return equal(p, q); }));
  }
  if (a.is_dict() && b.is_dict()) return a.dict() == b.dict() || equal_dicts(*a.dict(), *b.dict());
  return a.is_object() && b.is_object() && a.object()->equals(*b.object());
}

std::partial_ordering compare(const Value& a, const Value& b, std::string_view operation) {
  work();
  if (a.is_undefined()) fail_undefined(a);
  if (b.is_undefined()) fail_undefined(b);
  if (a.number() && b.number()) return compare_numbers(a, b);
  if (a.is_text() && b.is_text()) return a.text()->bytes <=> b.text()->bytes;  // UTF-8 keeps the order of code points
  if (a.is_sequence() && b.is_sequence() && a.sequence()->tuple == b.sequence()->tuple) {
    const Level level;
    const auto &x = a.sequence()->items, &y = b.sequence()->items;
    for (std::size_t i = 0; i < std::min(x.size(), y.size()); ++i)
      if (!equal(x[i], y[i])) return compare(x[i], y[i], operation);
    return x.size() <=> y.size();
  }
  fail(fmt::format("{}: {} and {} have no order", operation, described(a), described(b)),
       "convert one of them, as with | int or | string");
}

bool contains(const Value& container, const Value& item) {
  if (container.is_text()) {
    if (item.is_undefined()) fail_undefined(item);
    if (!item.is_text())
      fail(fmt::format("'in' looks for a string in a string, not for {}", described(item)), "use | string");
    const std::string &text = container.text()->bytes, &part = item.text()->bytes;
    work(text.size() / 1024);
    // memmem is linear; find is not linear on hostile texts.
    return memmem(text.data(), text.size(), part.data(), part.size()) != nullptr;
  }
  if (container.is_dict()) return container.dict()->find(item) != nullptr;
  if (container.is_object())
    if (const auto answer = container.object()->contains(item)) return *answer;
  const auto iteration = try_iterate(container);
  if (!iteration) fail(fmt::format("'in' needs a container on its right, not {}", described(container)));
  for (Value each; iteration->next(each);)
    if (equal(each, item)) return true;
  return false;
}

std::optional<std::size_t> length_of(const Value& value) {
  if (value.is_undefined()) return 0;
  if (value.is_text()) return value.text()->characters;
  if (value.is_sequence()) return value.sequence()->items.size();
  if (value.is_dict()) return value.dict()->size();
  if (value.is_object()) return value.object()->length();
  return std::nullopt;
}

// ---- Text -------------------------------------------------------------------------------------------------------------

std::string float_text(double value) { return python_repr(value); }

namespace {

void represent_text(const Text& text, TextBuilder& out) {
  const std::string& bytes = text.bytes;
  const bool single = bytes.find('\'') == std::string::npos || bytes.find('"') != std::string::npos;
  const char quote_char = single ? '\'' : '"';
  const std::string_view quote_text(&quote_char, 1);
  if (text.markup) out.append("Markup(");
  out.append(quote_text);
  std::size_t plain = 0;  // begin of a stretch that needs no escapes
  for (std::size_t at = 0; at < bytes.size();) {
    const auto [c, length] = decode(bytes, at);
    std::string escape;
    if (c == '\\' || c == static_cast<char32_t>(quote_char)) {
      escape = fmt::format("\\{}", static_cast<char>(c));
    } else if (c == '\n' || c == '\r' || c == '\t') {
      escape = std::string("\\") + (c == '\n' ? 'n' : c == '\r' ? 'r' : 't');
    } else if (!(flags_of(c) & kPrintable)) {
      const auto n = static_cast<std::uint32_t>(c);
      escape = n < 0x100     ? fmt::format("\\x{:02x}", n)
               : n < 0x10000 ? fmt::format("\\u{:04x}", n)
                             : fmt::format("\\U{:08x}", n);
    }
    if (!escape.empty()) {
      out.append(text, plain, at);
      out.append(escape, text.from_user_at(at));
      plain = at + length;
    }
    at += length;
  }
  out.append(text, plain, bytes.size());
  out.append(quote_text);
  if (text.markup) out.append(")");
}

}  // namespace

void represent(const Value& value, TextBuilder& out) {
  work();
  const Level level;
  if (value.is_text()) {
    represent_text(*value.text(), out);
  } else if (value.is_undefined()) {
    out.append("Undefined");
  } else if (value.is_sequence()) {
    const Sequence& sequence = *value.sequence();
    out.append(sequence.tuple ? "(" : "[");
    for (std::size_t i = 0; i < sequence.items.size(); ++i) {
      if (i > 0) out.append(", ");
      represent(sequence.items[i], out);
    }
    out.append(sequence.tuple ? (sequence.items.size() == 1 ? ",)" : ")") : "]");
  } else if (value.is_dict()) {
    out.append("{");
    bool first = true;
    for (const auto& [key, item] : value.dict()->items()) {
      if (!first) out.append(", ");
      first = false;
      represent(key, out);
      out.append(": ");
      represent(item, out);
    }
    out.append("}");
  } else if (value.is_object()) {
    value.object()->represent(out);
  } else if (value.is_none()) {
    out.append("None");
  } else if (value.is_bool()) {
    out.append(truth(value) ? "True" : "False");
  } else if (value.is_float()) {
    out.append(float_text(value.real()));
  } else {
    out.append(std::to_string(*value.integer()));
  }
}

TextPointer to_text(const Value& value) {
  if (value.is_text()) return with_markup(value.text(), false);
  TextBuilder out;
  if (!value.is_undefined()) represent(value, out);
  return out.take();
}

}  // namespace weft::jinja
