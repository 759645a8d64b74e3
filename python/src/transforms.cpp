// Gradients and other transforms of Python functions, hooks, and the scopes that change how ops are recorded.
#include <nanobind/stl/function.h>

#include "callable.hpp"
#include "weft/anomaly.hpp"
#include "weft/autocast.hpp"
#include "weft/checkpoint.hpp"
#include "weft/error.hpp"
#include "weft/grad.hpp"
#include "weft/gradcheck.hpp"
#include "weft/hooks.hpp"
#include "weft/transforms.hpp"

namespace weft::python {

std::vector<Tensor> values_or_none(const nb::object& sequence, const char* what) {
  const nb::object items = nb::steal(PySequence_Tuple(sequence.ptr()));
  if (!items.is_valid()) raise();
  std::vector<Tensor> values;
  for (Py_ssize_t i = 0; i < PyTuple_Size(items.ptr()); ++i)
    values.push_back(value_or_none(nb::borrow(PyTuple_GetItem(items.ptr(), i)), what));
  return values;
}

TensorFunction tensor_function(nb::object function, const char* what) {
  return [call = Callable(std::move(function)), what](std::span<const Tensor> given) {
    const nb::gil_scoped_acquire gil;
    const nb::object results = call.get()(list_of(given));
    return values_from(results.ptr(), what);
  };
}

Tensor PythonHook::operator()(const Tensor& gradient) const {
  const nb::gil_scoped_acquire gil;
  return value_or_none(call.get()(wrapped(gradient)), "hooks: what the hook returns");
}

namespace {

// The same for one tensor.
std::function<Tensor(const Tensor&)> function_of_one(nb::object function, const char* what) {
  return [call = Callable(std::move(function)), what](const Tensor& x) {
    const nb::gil_scoped_acquire gil;
    const nb::object result = call.get()(wrapped(x));
    return value_from(result.ptr(), what);
  };
}

GradientHook gradient_hook(nb::object function) {
  if (!PyCallable_Check(function.ptr())) raise(PyExc_TypeError, "hooks: the hook is not a function");
  return PythonHook{Callable(std::move(function))};
}

// A scope of C++ as a context manager, which may be entered several times.
class Scope {
 public:
  explicit Scope(std::function<std::shared_ptr<void>()> enter) : enter_(std::move(enter)) {}
  Scope(const Scope&) = delete;
  Scope(Scope&&) = default;
  void enter() { entered_.push_back(enter_()); }
  void leave() {
    if (!entered_.empty()) entered_.pop_back();
  }

 private:
  std::function<std::shared_ptr<void>()> enter_;
  std::vector<std::shared_ptr<void>> entered_;
};

void bind_scopes(nb::module_& m) {
  nb::class_<Scope>(m, "_Scope").def("__enter__", &Scope::enter).def("__exit__", [](Scope& self, nb::args) {
    self.leave();
  });
  m.def("_no_grad", [] { return Scope([] { return std::make_shared<NoGrad>(); }); });
  m.def("_enable_grad", [] { return Scope([] { return std::make_shared<EnableGrad>(); }); });
  m.def("_keep_history", [] { return Scope([] { return std::make_shared<KeepHistory>(); }); });
  m.def("_autocast", [](nb::object dtype) {
    return Scope([type = dtype_from(dtype.ptr())] { return std::make_shared<Autocast>(type); });
  });
  m.def("_detect_anomaly", [] { return Scope([] { return std::make_shared<DetectAnomaly>(); }); });
  m.def("is_grad_enabled", [] { return grad_enabled(); });
}

void bind_hooks(nb::module_& m) {
  nb::class_<HookHandle>(m, "HookHandle", "A registered hook. It stays until remove(), or as long as its Variable.")
      .def("remove", &HookHandle::remove);
  m.def(
      "with_gradient_hook",
      [](nb::object x, nb::object hook) {
        return wrapped(with_gradient_hook(value_from(x.ptr(), "with_gradient_hook"), gradient_hook(std::move(hook))));
      },
      nb::arg("x"), nb::arg("hook"),
      nb::sig("def with_gradient_hook(x: Tensor, hook: Callable[[Tensor], Tensor | None]) -> Tensor"),
      "The same value; gradients on their way to x pass the hook, which returns what goes on in their place, or None.");
  m.def(
      "register_hook",
      [](nb::object variable, nb::object hook) {
        if (!is_tensor(variable.ptr()) || !handle_of(variable.ptr()).variable.defined())
          raise(
              PyExc_TypeError,
              "register_hook: takes a Variable; of a tensor, x = weft.with_gradient_hook(x, hook) gives a hooked one");
        return register_hook(handle_of(variable.ptr()).variable, gradient_hook(std::move(hook)));
      },
      nb::arg("variable"), nb::arg("hook"),
      nb::sig("def register_hook(variable: Variable, hook: Callable[[Tensor], Tensor | None]) -> HookHandle"),
      "Calls the hook with each gradient that backward() adds to variable.grad; what it returns is added in its place, "
      "unless "
      "that is None.");
}

}  // namespace

void bind_transforms(nb::module_& m) {
  bind_scopes(m);
  bind_hooks(m);
  m.def(
      "_grad",
      [](nb::object output, nb::object inputs, nb::object seed) {
        const Tensor y = value_from(output.ptr(), "grad");
        return list_of(grad(y, values_from(inputs.ptr(), "grad"), value_or_none(seed, "grad: seed")));
      },
      nb::arg("output"), nb::arg("inputs"), nb::arg("seed").none(),
      nb::sig("def _grad(output: Tensor, inputs: Sequence[Tensor], seed: Tensor | None) -> list[Tensor]"));
  m.def(
      "checkpoint",
      [](nb::object function, nb::args inputs) {
        return wrapped(checkpoint(
            [&](std::span<const Tensor> given) {
              const nb::object result = function(*nb::tuple(list_of(given)));
              return value_from(result.ptr(), "checkpoint: the result");
            },
            values_from(inputs.ptr(), "checkpoint")));
      },
      nb::arg("function"), nb::arg("inputs"),
      nb::sig("def checkpoint(function: Callable[..., Tensor], *inputs: Tensor) -> Tensor"),
      "function(*inputs), whose inside is computed once more for gradients, so that only the inputs are kept.");

  // Functions below are given lists of tensors and return lists; _transforms.py makes them what users write.
  m.def("_vjp", [](nb::object function, nb::object inputs) {
    Pullback made = vjp(tensor_function(std::move(function), "vjp: a result"), values_from(inputs.ptr(), "vjp"));
    const nb::object pull = nb::cpp_function([gradients = std::move(made.gradients)](nb::object seeds) {
      return list_of(gradients(values_or_none(seeds, "vjp: a seed")));
    });
    return nb::make_tuple(list_of(made.results), pull);
  });
  m.def("_jvp", [](nb::object function, nb::object inputs, nb::object tangents) {
    const Pushforward made = jvp(tensor_function(std::move(function), "jvp: a result"),
                                 values_from(inputs.ptr(), "jvp"), values_or_none(tangents, "jvp: a tangent"));
    return nb::make_tuple(list_of(made.results), list_of(made.tangents));
  });
  m.def(
      "jacobian",
      [](nb::object function, nb::object x, bool forward) {
        return wrapped(jacobian(function_of_one(std::move(function), "jacobian: the result"),
                                value_from(x.ptr(), "jacobian"), forward));
      },
      nb::arg("function"), nb::arg("x"), nb::arg("forward") = false,
      nb::sig("def jacobian(function: Callable[[Tensor], Tensor], x: Tensor, forward: bool = False) -> Tensor"),
      "d function(x) / dx for every element: [the result's shape..., x's shape...]. `forward` computes columns instead "
      "of "
      "rows, which takes less if x has fewer elements than the result.");
  m.def(
      "hessian",
      [](nb::object function, nb::object x) {
        return wrapped(
            hessian(function_of_one(std::move(function), "hessian: the result"), value_from(x.ptr(), "hessian")));
      },
      nb::arg("function"), nb::arg("x"),
      nb::sig("def hessian(function: Callable[[Tensor], Tensor], x: Tensor) -> Tensor"),
      "Second derivatives of a function with one element as its result: [x's shape..., x's shape...].");
  m.def("_vmap", [](nb::object function, nb::object arguments, std::vector<std::optional<int>> in_axes, int out_axis) {
    const std::vector<Tensor> given = values_from(arguments.ptr(), "vmap: an argument");
    return list_of(vmap(tensor_function(std::move(function), "vmap: a result"), std::span<const Tensor>(given),
                        {.in_axes = std::move(in_axes), .out_axis = out_axis}));
  });
  m.def("_custom_gradient", [](nb::object forward, nb::object backward) -> nb::object {
    TensorFunction made =
        custom_gradient(tensor_function(std::move(forward), "custom_gradient: a result"),
                        [call = Callable(std::move(backward))](const CustomGradient& g) {
                          const nb::gil_scoped_acquire gil;
                          return values_or_none(call.get()(list_of(g.inputs), list_of(g.results), list_of(g.gradients)),
                                                "custom_gradient: a gradient");
                        });
    return nb::cpp_function([made = std::move(made)](nb::object inputs) {
      return list_of(made(values_from(inputs.ptr(), "custom_gradient: an input")));
    });
  });
  m.def("_gradcheck", [](nb::object function, nb::object inputs, double step, double relative, double absolute,
                         bool second_order, bool forward) {
    const std::vector<Tensor> given = values_from(inputs.ptr(), "gradcheck: an input");
    const TensorFunction f = tensor_function(std::move(function), "gradcheck: a result");
    const GradcheckReport report = without_gil([&] {
      return gradcheck(f, given, {step, relative, absolute, second_order, forward});
    });
    return nb::make_tuple(report.agrees, report.worst, report.message);
  });
}

}  // namespace weft::python
