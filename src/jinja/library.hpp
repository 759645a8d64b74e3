// The filters, tests, methods and functions of templates, by name.
#pragma once

#include <ctime>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "jinja/value.hpp"

namespace weft::jinja {

using FilterFunction = Value (*)(const Value& subject, const Arguments& arguments);
using TestFunction = bool (*)(const Value& subject, const Arguments& arguments);

/// nullptr for an unknown name.
FilterFunction find_filter(std::string_view name);
TestFunction find_test(std::string_view name);

/// The message for an unknown name: the fact, and the nearest name or the reason why it is not supported.
struct UnknownName {
  std::string fact, cure;
};
UnknownName unknown_filter(std::string_view name);
UnknownName unknown_test(std::string_view name);
[[noreturn]] void fail_unknown(const UnknownName& unknown);

/// object.name: a method or an attribute before a key. Undefined if it does not exist; Fault for attributes of an undefined
/// object.
Value get_attribute(const Value& object, std::string_view name);
/// object[index]: a key before a method or an attribute.
Value get_item(const Value& object, const Value& index);
/// object[start:stop:step]; none for parts that are left out.
Value get_slice(const Value& object, const Value& start, const Value& stop, const Value& step);
/// Looks up a path such as "function.name" or "0.content", like filters with an attribute.
Value get_path(const Value& object, const Value& path, const Value* fallback = nullptr);
/// The method of a string, list, tuple, dict or number, if it has one of that name.
std::optional<Value> find_method(const Value& object, std::string_view name);

Value call(const Value& callee, Arguments&& arguments);

/// a + b and so on, as in Python, with 64-bit integers.
Value add(const Value& a, const Value& b);
Value subtract(const Value& a, const Value& b);
Value multiply(const Value& a, const Value& b);
Value divide(const Value& a, const Value& b);
Value floor_divide(const Value& a, const Value& b);
Value modulo(const Value& a, const Value& b);
Value power(const Value& a, const Value& b);
Value negative(const Value& a);
Value positive(const Value& a);

/// "pattern" % values, and "pattern".format(...).
Value format_percent(const TextPointer& pattern, const Value& values);
Value format_braces(const TextPointer& pattern, const Arguments& arguments);
/// format(value, specification) of the latter.
void format_value(const Value& value, const Text& specification, TextBuilder& out);

/// & < > ' " as HTML entities; Markup unchanged.
TextPointer escape_html(const Value& value);

/// str.lower(), upper(), title() and capitalize() of bytes [begin, end).
void append_lower(const Text& text, std::size_t begin, std::size_t end, TextBuilder& out);
void append_upper(const Text& text, std::size_t begin, std::size_t end, TextBuilder& out);
void append_title(const Text& text, TextBuilder& out);
void append_capitalized(const Text& text, TextBuilder& out);
TextPointer lowered(const TextPointer& text);
/// The lines of a text, as slices.
std::vector<TextPointer> lines_of(const TextPointer& text, bool keep_ends = false);
/// str.strip(characters) at the given ends; without characters, strips white space.
TextPointer stripped(const TextPointer& text, const Text* characters, bool at_front, bool at_back);
/// str.replace; a negative count: all.
TextPointer replaced(const TextPointer& text, const Text& before, const Text& after, std::int64_t count);
/// str.join.
TextPointer joined(const Text& separator, const std::vector<TextPointer>& parts);
/// str.center and, with all padding on one side, ljust and rjust.
enum class Side { left, right, both };
TextPointer padded(const TextPointer& text, std::int64_t width, const Text& fill, Side side);

/// A namespace(): the only value that templates can change.
class Namespace : public Object {
 public:
  std::string_view type_name() const override { return "Namespace"; }
  void represent(TextBuilder& out) const override;
  std::optional<Value> attribute(std::string_view name) override;
  void set(std::string_view name, Value value);
  void clear() { attributes_.clear(); }

 private:
  Dict attributes_;
};

/// The state of a render that functions need.
struct FunctionContext {
  std::tm now;
  /// Namespaces made so far; they are emptied at the end, since they can hold each other.
  std::vector<std::shared_ptr<Namespace>> namespaces;
};
/// range, dict, namespace, cycler, joiner, raise_exception, strftime_now; nothing for other names. `context` outlives
/// the value.
std::optional<Value> find_function(std::string_view name, FunctionContext& context);

}  // namespace weft::jinja
