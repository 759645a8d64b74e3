// The tests of Jinja2, which follow `is`.
#include <fmt/format.h>

#include <cmath>

#include "base/quote.hpp"
#include "jinja/arguments.hpp"
#include "jinja/library.hpp"

namespace weft::jinja {
namespace {

void alone(const Arguments& arguments) { Parameters("this test", arguments, {}); }
const Value& other_of(const Arguments& arguments) { return *Parameters("this test", arguments, {"other"}, 1)[0]; }

bool test_defined(const Value& value, const Arguments& arguments) {
  alone(arguments);
  return !value.is_undefined();
}
bool test_undefined(const Value& value, const Arguments& arguments) { return !test_defined(value, arguments); }
bool test_none(const Value& value, const Arguments& arguments) {
  alone(arguments);
  return value.is_none();
}
bool test_boolean(const Value& value, const Arguments& arguments) {
  alone(arguments);
  return value.is_bool();
}
bool test_true(const Value& value, const Arguments& arguments) {
  return test_boolean(value, arguments) && truth(value);
}
bool test_false(const Value& value, const Arguments& arguments) {
  return test_boolean(value, arguments) && !truth(value);
}
bool test_integer(const Value& value, const Arguments& arguments) {
  alone(arguments);
  return value.integer() && !value.is_bool();
}
bool test_float(const Value& value, const Arguments& arguments) {
  alone(arguments);
  return value.is_float();
}
bool test_number(const Value& value, const Arguments& arguments) {
  alone(arguments);
  return value.number().has_value();
}
bool test_string(const Value& value, const Arguments& arguments) {
  alone(arguments);
  return value.is_text();
}
bool test_mapping(const Value& value, const Arguments& arguments) {
  alone(arguments);
  return value.is_dict();
}
bool test_iterable(const Value& value, const Arguments& arguments) {
  alone(arguments);
  return try_iterate(value) != nullptr;
}
bool test_sequence(const Value& value, const Arguments& arguments) {
  alone(arguments);
  return value.is_undefined() || value.is_text() || value.is_sequence() || value.is_dict() || value.object_as<Range>();
}
bool test_callable(const Value& value, const Arguments& arguments) {
  alone(arguments);
  // Undefined values count as callable: only the call fails.
  return value.is_undefined() || (value.is_object() && value.object()->callable());
}
bool test_escaped(const Value& value, const Arguments& arguments) {
  alone(arguments);
  return value.is_text() && value.text()->markup;
}

bool has_case(const Value& value, std::string_view method) {
  return truth(call(*find_method(Value(to_text(value)), method), {}));
}
bool test_lower(const Value& value, const Arguments& arguments) {
  alone(arguments);
  return has_case(value, "islower");
}
bool test_upper(const Value& value, const Arguments& arguments) {
  alone(arguments);
  return has_case(value, "isupper");
}

bool test_odd(const Value& value, const Arguments& arguments) {
  alone(arguments);
  return equal(modulo(value, Value(2)), Value(1));
}
bool test_even(const Value& value, const Arguments& arguments) {
  alone(arguments);
  return equal(modulo(value, Value(2)), Value(0));
}
bool test_divisibleby(const Value& value, const Arguments& arguments) {
  const Parameters p("the test divisibleby", arguments, {"num"}, 1);
  return equal(modulo(value, *p[0]), Value(0));
}

bool test_in(const Value& value, const Arguments& arguments) {
  return contains(*Parameters("the test in", arguments, {"seq"}, 1)[0], value);
}
bool test_eq(const Value& value, const Arguments& arguments) { return equal(value, other_of(arguments)); }
bool test_ne(const Value& value, const Arguments& arguments) { return !equal(value, other_of(arguments)); }
bool test_lt(const Value& value, const Arguments& arguments) { return compare(value, other_of(arguments), "<") < 0; }
bool test_le(const Value& value, const Arguments& arguments) { return compare(value, other_of(arguments), "<=") <= 0; }
bool test_gt(const Value& value, const Arguments& arguments) { return compare(value, other_of(arguments), ">") > 0; }
bool test_ge(const Value& value, const Arguments& arguments) { return compare(value, other_of(arguments), ">=") >= 0; }

// Scalars are the same if they are equal and of the same type; containers and objects if they are the same object.
bool test_sameas(const Value& value, const Arguments& arguments) {
  const Value& other = other_of(arguments);
  if (value.is_sequence() && other.is_sequence()) return value.sequence() == other.sequence();
  if (value.is_dict() && other.is_dict()) return value.dict() == other.dict();
  if (value.is_object() && other.is_object()) return value.object() == other.object();
  if (value.is_undefined() && other.is_undefined()) return value.undefined() == other.undefined();
  return type_name(value) == type_name(other) && equal(value, other);
}

// A name to look up in a table.
std::string_view name_in(const Value& value, const Arguments& arguments) {
  alone(arguments);
  if (!is_hashable(value)) fail(fmt::format("a {} is not a name", type_name(value)), "give a string");
  return value.is_text() ? std::string_view(value.text()->bytes) : std::string_view();
}
bool test_filter(const Value& value, const Arguments& arguments) {
  return find_filter(name_in(value, arguments)) != nullptr;
}
bool test_test(const Value& value, const Arguments& arguments) {
  return find_test(name_in(value, arguments)) != nullptr;
}

struct TestRow {
  std::string_view name;
  TestFunction function;
};
constexpr TestRow kTests[] = {
    {"!=", test_ne},
    {"<", test_lt},
    {"<=", test_le},
    {"==", test_eq},
    {">", test_gt},
    {">=", test_ge},
    {"boolean", test_boolean},
    {"callable", test_callable},
    {"defined", test_defined},
    {"divisibleby", test_divisibleby},
    {"eq", test_eq},
    {"equalto", test_eq},
    {"escaped", test_escaped},
    {"even", test_even},
    {"false", test_false},
    {"filter", test_filter},
    {"float", test_float},
    {"ge", test_ge},
    {"greaterthan", test_gt},
    {"gt", test_gt},
    {"in", test_in},
    {"integer", test_integer},
    {"iterable", test_iterable},
    {"le", test_le},
    {"lessthan", test_lt},
    {"lower", test_lower},
    {"lt", test_lt},
    {"mapping", test_mapping},
    {"ne", test_ne},
    {"none", test_none},
    {"number", test_number},
    {"odd", test_odd},
    {"sameas", test_sameas},
    {"sequence", test_sequence},
    {"string", test_string},
    {"test", test_test},
    {"true", test_true},
    {"undefined", test_undefined},
    {"upper", test_upper},
};

}  // namespace

TestFunction find_test(std::string_view name) {
  for (const TestRow& row : kTests)
    if (row.name == name) return row.function;
  return nullptr;
}

UnknownName unknown_test(std::string_view name) {
  std::string names;
  for (const TestRow& row : kTests) names += (names.empty() ? "" : ", ") + std::string(row.name);
  return {fmt::format("no test is called {}", quote(name, 40)), "there are " + names};
}

}  // namespace weft::jinja
