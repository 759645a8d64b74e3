// The filters of templates by family: each has a table in a file of its own.
#pragma once

#include <span>

#include "jinja/library.hpp"

namespace weft::jinja {

struct FilterRow {
  std::string_view name;
  FilterFunction function;
};

std::span<const FilterRow> text_filters();
std::span<const FilterRow> number_filters();
std::span<const FilterRow> sequence_filters();

/// The nesting depth of values that a filter keeps for later.
int depth_of(const Value& value, const Arguments& arguments);

}  // namespace weft::jinja
