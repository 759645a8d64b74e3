// Values of operations as Python objects: JSON and tensors.
#pragma once

#include "handle.hpp"
#include "weft/value.hpp"

namespace weft::python {

/// None, bools, numbers, strings, paths, lists, tuples and dictionaries as JSON; a Tensor and anything with __array__ or
/// __dlpack__ as a tensor. Errors: TypeError for other objects and for keys that are not strings; OverflowError for integers
/// beyond 64 bits; UsageError for objects that are nested deeper than 64, as those that contain themselves.
Value value_of(PyObject* object);
/// The inverse, with a Tensor for each tensor.
nb::object object_of(const Value& value);

}  // namespace weft::python
