// Dictionaries of options, as Python's keyword arguments give them.
#pragma once

#include "handle.hpp"

namespace weft::python {

/// A member of a dictionary of options, if it is given and not None.
template <class T>
void take(const nb::dict& given, const char* name, T& field) {
  if (!given.contains(name)) return;
  const nb::object value = given[name];
  if (!value.is_none()) field = nb::cast<T>(value);
}

}  // namespace weft::python
