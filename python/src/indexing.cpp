// Indexing as in NumPy: integers, slices, None, an ellipsis, masks, arrays and lists of integers.
#include <fmt/format.h>

#include <algorithm>
#include <cstdint>

#include "handle.hpp"
#include "weft/device.hpp"
#include "weft/ops.hpp"
#include "weft/ops/indexing.hpp"
#include "weft/ops/layout.hpp"

namespace weft::python {
namespace {

// Integers, or a mask, for the places of an axis.
Tensor places_from(PyObject* object, const Tensor& x) {
  Tensor places = tensor_from(object);
  if (PyList_Check(object) && places.numel() == 0) places = cast(places, DType::i32);
  if (places.dtype() != DType::boolean && !is_integer(places.dtype()))
    raise(PyExc_IndexError,
          fmt::format("an index is {}; indices are integers, slices, None, ... and arrays of integers "
                      "or bools",
                      name_of(places.dtype())));
  return places.device() == x.device() ? places : places.to(x.device());
}

// One integer for each place that is chosen along axes [first, first + count), which `places` index together.
struct Chosen {
  int axis = 0;
  Tensor places;
};

Tensor gathered(const Tensor& given, const std::vector<Chosen>& chosen, bool to_front) {
  Tensor x = given;
  // The indexed axes go first and become one, in which the places are numbers.
  std::vector<int> order;
  for (const Chosen& each : chosen) order.push_back(each.axis);
  for (int axis = 0; axis < x.rank(); ++axis)
    if (std::none_of(chosen.begin(), chosen.end(), [&](const Chosen& each) { return each.axis == axis; }))
      order.push_back(axis);
  Extent rows = 1;
  Tensor place;
  for (const Chosen& each : chosen) {
    const Extent extent = x.dim(each.axis);
    Tensor own = cast(each.places, DType::i64);
    if (x.device() != kCpu) own = cast(each.places, DType::i32);
    own = where(own < 0.0, own + static_cast<double>(extent), own);
    // A place outside of its own axis must not become one of a neighbouring row.
    const Tensor inside = (own >= 0.0) & (own < static_cast<double>(extent));
    place = place.defined() ? place * static_cast<double>(extent) + own : own;
    rows *= extent;
    place = where(inside & (place >= 0.0), place, scalar_like(-1 - static_cast<double>(rows), place));
  }
  x = permute(x, Axes(order));
  std::vector<Extent> flat{rows};
  for (int axis = static_cast<int>(chosen.size()); axis < x.rank(); ++axis) flat.push_back(x.dim(axis));
  x = reshape(x, Shape(flat));
  place = where(place < 0.0, scalar_like(static_cast<double>(std::min<Extent>(rows, INT32_MAX)), place), place);
  Tensor y = x[Term(place)];
  const int rank = place.rank(), first = chosen.front().axis;
  if (to_front || first == 0 || rank == 0) return y;
  std::vector<int> back;  // [places, before, after] -> [before, places, after]
  for (int i = 0; i < first; ++i) back.push_back(rank + i);
  for (int i = 0; i < rank; ++i) back.push_back(i);
  for (int i = rank + first; i < y.rank(); ++i) back.push_back(i);
  return permute(y, Axes(back));
}

Extent slice_end(PyObject* object, Extent absent) { return object == Py_None ? absent : integer_from(object); }

Tensor sliced(const Tensor& x, int axis, PyObject* slice_object) {
  const nb::object start = nb::steal(PyObject_GetAttrString(slice_object, "start")),
                   stop = nb::steal(PyObject_GetAttrString(slice_object, "stop")),
                   step = nb::steal(PyObject_GetAttrString(slice_object, "step"));
  if (!start.is_valid() || !stop.is_valid() || !step.is_valid()) raise();
  // CPython's own rule for what lies outside, and for integers of any size.
  Py_ssize_t from = 0, to = 0, by = 0;
  if (PySlice_Unpack(slice_object, &from, &to, &by) < 0) raise();
  const Py_ssize_t length = PySlice_AdjustIndices(x.dim(axis), &from, &to, by);
  if (by == 1 && from == 0 && length == x.dim(axis)) return x;
  if (length == 0) return slice(x, axis, 0, 0, 1);
  if (by > 0) return slice(x, axis, from, std::min<Extent>(to, x.dim(axis)), by);
  // Backwards: the same places forwards, and then turned.
  const Extent last = from + (length - 1) * by;
  return flip(slice(x, axis, last, from + 1, -by), Axes{axis});
}

}  // namespace

PyObject* element_of(PyObject* self, PyObject* key) {
  return guarded([&]() -> PyObject* {
    Tensor x = handle_of(self).value();
    const nb::object keys = PyTuple_Check(key) ? nb::object(nb::borrow(key)) : nb::steal(PyTuple_Pack(1, key));
    if (!keys.is_valid()) return nullptr;
    const Py_ssize_t count = PyTuple_Size(keys.ptr());
    // Axes that the keys use, to know how many an ellipsis stands for.
    int used = 0, ellipses = 0;
    std::vector<Tensor> arrays(static_cast<std::size_t>(count));
    for (Py_ssize_t i = 0; i < count; ++i) {
      PyObject* each = PyTuple_GetItem(keys.ptr(), i);
      if (each == Py_Ellipsis) {
        ++ellipses;
      } else if (each != Py_None && PyBool_Check(each)) {
        arrays[static_cast<std::size_t>(i)] = tensor_from(each);
      } else if (each != Py_None) {
        const bool plain = PySlice_Check(each) || is_integer_like(each);
        if (!plain) arrays[static_cast<std::size_t>(i)] = places_from(each, x);
        const Tensor& array = arrays[static_cast<std::size_t>(i)];
        used += plain || array.dtype() != DType::boolean ? 1 : array.rank();
      }
    }
    if (ellipses > 1) raise(PyExc_IndexError, "an index has one ellipsis (...) at most");
    if (used > x.rank()) raise(PyExc_IndexError, fmt::format("{} indices for a tensor of rank {}", used, x.rank()));
    if (count == 1 && arrays[0].defined() && arrays[0].dtype() == DType::boolean && arrays[0].rank() > 0) {
      for (int k = 0; k < arrays[0].rank(); ++k)
        if (arrays[0].dim(k) != x.dim(k))
          raise(PyExc_IndexError,
                fmt::format("a mask {} does not fit {}", arrays[0].shape().to_string(), x.shape().to_string()));
      const nb::gil_scoped_release free;  // a mask is evaluated
      Tensor y = x[Term(arrays[0])];
      const nb::gil_scoped_acquire again;
      return wrap(std::move(y));
    }
    std::vector<Chosen> chosen;
    std::vector<Py_ssize_t> where_chosen;
    int axis = 0;
    const int hidden = x.rank() - used;
    for (Py_ssize_t i = 0; i < count; ++i) {
      PyObject* each = PyTuple_GetItem(keys.ptr(), i);
      const Tensor& array = arrays[static_cast<std::size_t>(i)];
      if (each == Py_Ellipsis) {
        axis += hidden;
      } else if (each == Py_None) {
        x = unsqueeze(x, axis++);
      } else if (PySlice_Check(each)) {
        x = sliced(x, axis, each);
        ++axis;
      } else if (!array.defined()) {
        const Extent place = PyNumber_AsSsize_t(each, PyExc_IndexError);
        if (place == -1 && PyErr_Occurred()) raise();
        const Extent extent = x.dim(axis);
        if (place < -extent || place >= extent)
          raise(PyExc_IndexError,
                fmt::format("index {} is out of range for axis {} with {} elements", place, axis, extent));
        x = select(x, axis, place < 0 ? place + extent : place);
        where_chosen.push_back(i);
      } else if (array.dtype() == DType::boolean && array.rank() == 0) {
        raise(PyExc_IndexError, "a single bool is not an index; use None, or a mask of the axis");
      } else if (array.dtype() == DType::boolean) {
        for (int k = 0; k < array.rank(); ++k)
          if (array.dim(k) != x.dim(axis + k))
            raise(PyExc_IndexError, fmt::format("a mask {} does not fit axis {} of {}", array.shape().to_string(), axis,
                                                x.shape().to_string()));
        const Tensor places = without_gil([&] { return nonzero(array); });
        for (int k = 0; k < array.rank(); ++k) {
          chosen.push_back({axis++, select(places, 1, k)});
          where_chosen.push_back(i);
        }
      } else {
        // Elements that are known now are checked, as in NumPy.
        if (!is_tensor(each) && array.numel() > 0 && array.numel() <= 4096) {
          const Extent extent = x.dim(axis);
          for (const std::int64_t place : cast(array.to(kCpu), DType::i64).to_vector<std::int64_t>())
            if (place < -extent || place >= extent)
              raise(PyExc_IndexError,
                    fmt::format("index {} is out of range for axis {} with {} elements", place, axis, extent));
        }
        chosen.push_back({axis++, array});
        where_chosen.push_back(i);
      }
    }
    if (chosen.empty()) {
      nb::object view = wrapped(std::move(x));
      set_origin(view.ptr(), self, nullptr, nb::borrow(key));
      return view.release().ptr();
    }
    // NumPy: index arrays that are not neighbours put their axes first; beside them an integer counts as an array.
    bool apart = false;
    for (std::size_t i = 1; i < where_chosen.size(); ++i) apart |= where_chosen[i] > where_chosen[i - 1] + 1;
    for (std::size_t i = 1; i < chosen.size(); ++i) {  // a place of each, broadcast
      if (chosen[i].places.shape() == chosen[0].places.shape()) continue;
      Tensor sum = cast(chosen[0].places, DType::i64) * 0.0;
      for (const Chosen& each : chosen) sum = sum + cast(each.places, DType::i64) * 0.0;
      for (Chosen& each : chosen) each.places = expand(each.places, sum.shape());
      break;
    }
    return wrap(gathered(x, chosen, apart));
  });
}

}  // namespace weft::python
