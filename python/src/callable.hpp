// Python functions that C++ keeps and calls.
#pragma once

#include <functional>
#include <memory>
#include <span>

#include "handle.hpp"

namespace weft::python {

/// A Python function that C++ keeps: it may be called and freed on any thread.
class Callable {
 public:
  explicit Callable(nb::object function)
      : function_(new nb::object(std::move(function)), [](nb::object* kept) {
          if (!Py_IsInitialized()) return;
          const nb::gil_scoped_acquire gil;
          delete kept;
        }) {}
  const nb::object& get() const { return *function_; }

 private:
  std::shared_ptr<nb::object> function_;
};

/// A Python function as a hook on gradients.
struct PythonHook {
  Callable call;
  Tensor operator()(const Tensor& gradient) const;
};

/// A tensor without a value is None.
inline nb::object wrapped_or_none(const Tensor& tensor) { return tensor.defined() ? wrapped(tensor) : nb::none(); }
/// None is a tensor without a value; TypeError for what is neither.
inline Tensor value_or_none(const nb::object& object, const char* what) {
  return object.is_none() ? Tensor() : value_from(object.ptr(), what);
}

inline nb::list list_of(std::span<const Tensor> tensors) {
  nb::list list;
  for (const Tensor& each : tensors) list.append(wrapped_or_none(each));
  return list;
}
/// The tensors of a sequence, of which some may be None.
std::vector<Tensor> values_or_none(const nb::object& sequence, const char* what);

/// A Python function from a list of tensors to a sequence of tensors, as C++ calls it.
std::function<std::vector<Tensor>(std::span<const Tensor>)> tensor_function(nb::object function, const char* what);

}  // namespace weft::python
