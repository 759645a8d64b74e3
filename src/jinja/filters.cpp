// The filters of Jinja2 that work without host objects: their names, and those that apply filters and tests.
#include "jinja/filters.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "base/quote.hpp"
#include "jinja/arguments.hpp"

namespace weft::jinja {

int depth_of(const Value& value, const Arguments& arguments) {
  int depth = value.depth();
  for (const Value& each : arguments.positional) depth = std::max(depth, each.depth());
  for (const auto& [name, each] : arguments.named) depth = std::max(depth, each.depth());
  return depth;
}

void fail_unknown(const UnknownName& unknown) { fail(unknown.fact, unknown.cure); }

namespace {

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

constexpr FilterRow kFilters[] = {
    {"attr", filter_attr},
    {"d", filter_default},
    {"default", filter_default},
    {"map", filter_map},
    {"reject", filter_select<false, false>},
    {"rejectattr", filter_select<false, true>},
    {"select", filter_select<true, false>},
    {"selectattr", filter_select<true, true>},
};

std::array<std::span<const FilterRow>, 4> families() {
  return {text_filters(), number_filters(), sequence_filters(), kFilters};
}

}  // namespace

FilterFunction find_filter(std::string_view name) {
  for (const auto& family : families())
    for (const FilterRow& row : family)
      if (row.name == name) return row.function;
  return nullptr;
}

UnknownName unknown_filter(std::string_view name) {
  for (const std::string_view left_out : {"pprint", "random", "striptags", "urlize", "wordwrap"})
    if (name == left_out) return {fmt::format("the filter {} is not supported", name), "do it before the template"};
  std::vector<std::string_view> names;
  for (const auto& family : families())
    for (const FilterRow& row : family) names.push_back(row.name);
  std::sort(names.begin(), names.end());
  return {fmt::format("no filter is called {}", quote(name, 40)), fmt::format("there are {}", fmt::join(names, ", "))};
}

}  // namespace weft::jinja
