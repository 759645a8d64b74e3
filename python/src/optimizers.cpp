// Optimisers, and files of tensors.
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <functional>

#include "handle.hpp"
#include "nanobind/stl/filesystem.h"
#include "nanobind/stl/map.h"
#include "weft/io.hpp"
#include "weft/nn/state.hpp"
#include "weft/ops.hpp"
#include "weft/optim/average.hpp"
#include "weft/optim/gradient_sum.hpp"
#include "weft/optim/lbfgs.hpp"
#include "weft/optim/loss_scale.hpp"
#include "weft/optim/optimizer.hpp"
#include "weft/optim/schedule.hpp"

namespace weft::python {
namespace {

using Given = std::vector<std::tuple<std::string, nb::object, bool>>;

optim::ParameterList parameters_from(const nb::object& given) {
  std::vector<nn::NamedParameter> list;
  const nb::object items = nb::steal(PySequence_Tuple(given.ptr()));
  if (!items.is_valid()) raise();
  for (Py_ssize_t i = 0; i < PyTuple_Size(items.ptr()); ++i) {
    PyObject* entry = PyTuple_GetItem(items.ptr(), i);
    if (!PyTuple_Check(entry) || PyTuple_Size(entry) != 3)
      raise(PyExc_TypeError, "a parameter is (name, Variable, decay)");
    PyObject* variable = PyTuple_GetItem(entry, 1);
    if (!is_tensor(variable) || !handle_of(variable).variable.defined())
      raise(PyExc_TypeError, "an optimiser trains Variables; got something else");
    list.push_back({nb::cast<std::string>(nb::borrow(PyTuple_GetItem(entry, 0))), handle_of(variable).variable,
                    nb::cast<bool>(nb::borrow(PyTuple_GetItem(entry, 2)))});
  }
  if (list.empty()) throw UsageError("an optimiser without parameters");
  return optim::ParameterList(std::move(list));
}

nb::dict dict_of(const nn::StateDict& state) {
  nb::dict result;
  for (const nn::NamedArray& each : state)
    result[each.name.c_str()] = wrapped(tensor_from_bytes(each.bytes.data(), each.shape, each.dtype, kCpu));
  return result;
}
nn::StateDict state_from(const nb::dict& given) {
  nn::StateDict state;
  for (const auto& [key, value] : given) {
    const Tensor x = tensor_from(value.ptr(), {}, false);  // read at once
    nn::NamedArray entry{nb::cast<std::string>(key), x.dtype(), x.shape(), {}};
    entry.bytes.resize(bytes_of(x.dtype(), static_cast<std::size_t>(x.numel())));
    {
      const nb::gil_scoped_release free;
      x.copy_to(entry.bytes.data(), entry.bytes.size());
    }
    state.push_back(std::move(entry));
  }
  return state;
}

}  // namespace

NamedTensors named_from(const nb::dict& given, bool copy) {
  NamedTensors tensors;
  for (const auto& [key, value] : given)
    tensors.emplace(nb::cast<std::string>(key), tensor_from(value.ptr(), {}, copy));
  return tensors;
}
nb::dict dict_of(const NamedTensors& tensors) {
  nb::dict result;
  for (const auto& [name, tensor] : tensors) result[name.c_str()] = wrapped(tensor);
  return result;
}

namespace {

void bind_lbfgs(nb::module_& m) {
  nb::class_<optim::LBFGS>(m, "_LBFGS")
      .def("__init__",
           [](optim::LBFGS* self, nb::object parameters, double learning_rate, Extent iterations, Extent evaluations,
              double gradient_tolerance, double change_tolerance, Extent history, bool strong_wolfe) {
             new (self) optim::LBFGS(
                 parameters_from(parameters),
                 {learning_rate, iterations, evaluations, gradient_tolerance, change_tolerance, history, strong_wolfe});
           })
      // evaluate() -> (loss as a float, gradients)
      .def("step",
           [](optim::LBFGS& self, nb::object evaluate) {
             return self.step([&] {
               const auto found = nb::cast<nb::tuple>(evaluate());
               return optim::LBFGS::Evaluation{nb::cast<double>(found[0]),
                                               values_from(nb::object(found[1]).ptr(), "LBFGS: a gradient")};
             });
           })
      .def_prop_rw("learning_rate", &optim::LBFGS::learning_rate, &optim::LBFGS::set_learning_rate)
      .def_prop_ro("step_count", &optim::LBFGS::iteration_count)
      .def_prop_ro("evaluation_count", &optim::LBFGS::evaluation_count)
      .def("reset", &optim::LBFGS::reset)
      .def("state_dict", [](const optim::LBFGS& self) { return dict_of(self.state_dict()); })
      .def("load_state_dict",
           [](optim::LBFGS& self, const nb::dict& state) { self.load_state_dict(state_from(state)); });
}

}  // namespace

void bind_optimizers(nb::module_& m) {
  nb::class_<optim::Optimizer>(m, "_Optimizer")
      .def(
          "_step",
          [](optim::Optimizer& self, nb::object gradients, nb::object rate, optim::LossScale* scale) {
            const std::vector<Tensor> list = values_from(gradients.ptr(), "step: a gradient");
            // Numbers keep their digits where parameters are f64.
            bool wide = false;
            for (const Variable& each : self.parameters()) wide |= each.dtype() == DType::f64;
            Tensor now;
            if (!rate.is_none())
              now = is_tensor(rate.ptr()) ? value_from(rate.ptr(), "step: the learning rate")
                                          : tensor_from(rate.ptr(), wide ? DType::f64 : DType::f32);
            if (now.defined() && !is_float(now.dtype())) now = cast(now, DType::f32);
            Tensor norm;
            {
              const nb::gil_scoped_release free;
              if (scale)
                norm = now.defined() ? self.step(list, now, *scale) : self.step(list, *scale);
              else
                norm = now.defined() ? self.step(list, now) : self.step(list);
            }
            return wrapped(norm);
          },
          nb::arg("gradients"), nb::arg("learning_rate").none(), nb::arg("scale").none())
      .def_prop_rw(
          "learning_rate",
          [](const optim::Optimizer& self) {
            const nb::gil_scoped_release free;
            return self.learning_rate();
          },
          &optim::Optimizer::set_learning_rate)
      .def("_group_rate",
           [](const optim::Optimizer& self, std::size_t group) {
             const nb::gil_scoped_release free;
             return self.group_learning_rate(group);
           })
      .def("_set_group_option",
           [](optim::Optimizer& self, std::size_t group, const std::string& name, nb::object value) {
             if (nb::isinstance<nb::bool_>(value))
               self.set_group_option(group, name, nb::cast<bool>(value));
             else
               self.set_group_option(group, name, nb::cast<double>(value));
           })
      .def_prop_ro(
          "step_count",
          [](const optim::Optimizer& self) {
            const nb::gil_scoped_release free;
            return self.step_count();
          },
          "Updates made so far.")
      .def("reset",
           [](optim::Optimizer& self) {
             const nb::gil_scoped_release free;
             self.reset();
           })
      .def(
          "state_dict",
          [](const optim::Optimizer& self) {
            nn::StateDict state;
            {
              const nb::gil_scoped_release free;
              state = self.state_dict();
            }
            return dict_of(state);
          },
          nb::sig("def state_dict(self) -> dict[str, Tensor]"))
      .def(
          "load_state_dict",
          [](optim::Optimizer& self, const nb::dict& state) {
            const nn::StateDict values = state_from(state);
            const nb::gil_scoped_release free;
            self.load_state_dict(values);
          },
          nb::arg("state"), nb::sig("def load_state_dict(self, state: dict[str, Tensor]) -> None"));
  m.def("_optimizer_rules", [] {
    nb::list rules;
    for (const optim::RuleInfo& rule : optim::rules()) {
      nb::dict options;
      for (const optim::OptionInfo& option : rule.options)
        options[option.name.c_str()] =
            std::visit([](const auto v) { return nb::object(nb::cast(v)); }, option.standard);
      rules.append(nb::make_tuple(rule.name, rule.title, rule.doc, options));
    }
    return rules;
  });
  // groups: (entries, options) each; matrices: the names of Muon's matrices, or None for all.
  m.def(
      "_make_optimizer",
      [](const std::string& rule, nb::list groups, std::optional<std::vector<std::string>> matrices) {
        std::vector<optim::RuleInfo::Group> list;
        for (const nb::handle each : groups) {
          const auto group = nb::cast<nb::tuple>(each);
          optim::OptionValues options;
          for (const auto& [key, value] : nb::cast<nb::dict>(group[1])) {
            const auto name = nb::cast<std::string>(key);
            if (nb::isinstance<nb::bool_>(value))
              options[name] = nb::cast<bool>(value);
            else
              options[name] = nb::cast<double>(value);
          }
          list.push_back({parameters_from(nb::object(group[0])), std::move(options)});
        }
        std::function<bool(std::string_view)> filter;
        if (matrices)
          filter = [names = *matrices](std::string_view name) {
            return std::find(names.begin(), names.end(), name) != names.end();
          };
        return optim::rule_named(rule).make(std::move(list), std::move(filter)).release();
      },
      nb::arg("rule"), nb::arg("groups"), nb::arg("matrices").none(), nb::rv_policy::take_ownership);
  bind_lbfgs(m);
  nb::class_<optim::AveragedWeights>(m, "_AveragedWeights")
      .def("__init__", [](optim::AveragedWeights* self, nb::object parameters,
                          double decay) { new (self) optim::AveragedWeights(parameters_from(parameters), {decay}); })
      .def("update", &optim::AveragedWeights::update)
      .def("swap",
           [](optim::AveragedWeights& self) {
             const nb::gil_scoped_release free;
             self.swap();
           })
      .def("values",
           [](const optim::AveragedWeights& self) {
             nb::list values;
             for (const Tensor& each : self.values()) values.append(wrapped(each));
             return values;
           })
      .def_prop_ro("update_count",
                   [](const optim::AveragedWeights& self) {
                     const nb::gil_scoped_release free;
                     return self.update_count();
                   })
      .def("state_dict", [](const optim::AveragedWeights& self) { return dict_of(self.state_dict()); })
      .def("load_state_dict",
           [](optim::AveragedWeights& self, const nb::dict& state) { self.load_state_dict(state_from(state)); });
  nb::class_<optim::LossScale>(
      m, "LossScale",
      "A factor of the loss, and so of all gradients, that adapts to them, so that small gradients "
      "survive f16: optimizer.step(weft.grad(scale.apply(loss), net), scale=scale).")
      .def(
          "__init__",
          [](optim::LossScale* self, double initial, double growth_factor, double backoff_factor,
             std::int64_t growth_interval) {
            new (self) optim::LossScale({initial, growth_factor, backoff_factor, growth_interval});
          },
          nb::arg("initial") = 65536.0, nb::arg("growth_factor") = 2.0, nb::arg("backoff_factor") = 0.5,
          nb::arg("growth_interval") = 2000)
      .def(
          "apply",
          [](const optim::LossScale& self, nb::object loss) {
            return wrapped(self.apply(value_from(loss.ptr(), "LossScale: the loss")));
          },
          nb::arg("loss"), nb::sig("def apply(self, loss: Tensor) -> Tensor"), "loss * factor, as f32 or wider.")
      .def_prop_ro(
          "value",
          [](const optim::LossScale& self) {
            const nb::gil_scoped_release free;
            return self.value();
          },
          "The factor.")
      .def_prop_ro(
          "skipped_steps",
          [](const optim::LossScale& self) {
            const nb::gil_scoped_release free;
            return self.skipped_steps();
          },
          "Steps left out so far, because their gradients were not finite.")
      .def(
          "state_dict", [](const optim::LossScale& self) { return dict_of(self.state_dict()); },
          nb::sig("def state_dict(self) -> dict[str, Tensor]"))
      .def(
          "load_state_dict",
          [](optim::LossScale& self, const nb::dict& state) { self.load_state_dict(state_from(state)); },
          nb::arg("state"), nb::sig("def load_state_dict(self, state: dict[str, Tensor]) -> None"));
  m.def("_gradient_sum", [](nb::object variables) {
    std::vector<Variable> list;
    for (const nn::NamedParameter& each : parameters_from(variables).parameters) list.push_back(each.variable);
    return optim::GradientSum(list);
  });
  nb::class_<optim::GradientSum>(m, "_GradientSum")
      .def("add", [](optim::GradientSum& self,
                     nb::object gradients) { self.add(values_from(gradients.ptr(), "GradientSum: a gradient")); })
      .def("take_mean", [](optim::GradientSum& self) {
        nb::list means;
        for (const Tensor& each : self.take_mean()) means.append(wrapped(each));
        return means;
      });
  m.def("_clip_grad_norm", [](nb::object gradients, double max_norm) {
    const std::vector<Tensor> list = values_from(gradients.ptr(), "clip_grad_norm");
    optim::Clipped clipped = optim::clip_grad_norm(list, max_norm);
    nb::list result;
    for (const Tensor& each : clipped.gradients) result.append(wrapped(each));
    return nb::make_tuple(result, wrapped(clipped.norm));
  });
  using optim::Schedule;
  nb::class_<Schedule>(m, "Schedule", "A learning rate as a function of the step.")
      .def_static("constant", &Schedule::constant, nb::arg("rate"))
      .def_static("linear", &Schedule::linear, nb::arg("rate"), nb::arg("final_rate"), nb::arg("steps"))
      .def_static("cosine", &Schedule::cosine, nb::arg("rate"), nb::arg("final_rate"), nb::arg("steps"))
      .def_static("staircase", &Schedule::staircase, nb::arg("rate"), nb::arg("factor"), nb::arg("every"))
      .def_static("multi_step", &Schedule::multi_step, nb::arg("rate"), nb::arg("factor"), nb::arg("milestones"))
      .def_static("exponential", &Schedule::exponential, nb::arg("rate"), nb::arg("factor"))
      .def_static("polynomial", &Schedule::polynomial, nb::arg("rate"), nb::arg("final_rate"), nb::arg("steps"),
                  nb::arg("power"))
      .def_static("restarts", &Schedule::restarts, nb::arg("rate"), nb::arg("final_rate"), nb::arg("period"),
                  nb::arg("growth") = 1.0)
      .def_static("one_cycle", &Schedule::one_cycle, nb::arg("rate"), nb::arg("steps"), nb::arg("rise"),
                  nb::arg("first_rate"), nb::arg("final_rate"), nb::arg("straight") = false)
      .def_static("cyclic", &Schedule::cyclic, nb::arg("low"), nb::arg("rate"), nb::arg("rise"), nb::arg("fall"),
                  nb::arg("factor") = 1.0)
      .def("then", &Schedule::then, nb::arg("step"), nb::arg("other"),
           "This schedule until `step`, and then another, which counts its steps from there.")
      .def("with_warm_up", &Schedule::with_warm_up, nb::arg("steps"), "The same with a rise before it.")
      .def(
          "at",
          [](const Schedule& self, double step) {
            self.check();
            return self.at(step);
          },
          nb::arg("step"), "The learning rate of that step.");
  nb::class_<optim::Plateau>(m, "_Plateau")
      .def("__init__",
           [](optim::Plateau* self, double rate, bool maximize, double factor, std::int64_t patience, double threshold,
              bool absolute, std::int64_t cooldown, double least_rate, double least_change) {
             new (self) optim::Plateau(
                 {rate, maximize, factor, patience, threshold, absolute, cooldown, least_rate, least_change});
           })
      .def("update", &optim::Plateau::update)
      .def_prop_rw(
          "state",
          [](const optim::Plateau& self) {
            const optim::Plateau::State& s = self.state();
            return nb::make_tuple(s.rate, s.best, s.bad, s.cooldown);
          },
          [](optim::Plateau& self, const nb::tuple& given) {
            self.set_state({nb::cast<double>(given[0]), nb::cast<double>(given[1]), nb::cast<std::int64_t>(given[2]),
                            nb::cast<std::int64_t>(given[3])});
          });
}

void bind_files(nb::module_& m) {
  using Path = std::filesystem::path;
  m.def("_load_npy", [](const Path& path) {
    const nb::gil_scoped_release free;
    Tensor x = load_npy(path);
    const nb::gil_scoped_acquire again;
    return wrapped(x);
  });
  m.def("_save_npy", [](const Path& path, nb::object tensor) {
    const Tensor x = tensor_from(tensor.ptr(), {}, false);
    const nb::gil_scoped_release free;
    save_npy(path, x);
  });
  m.def("_load", [](const Path& path, const std::string& format) {
    NamedTensors tensors;
    std::map<std::string, std::string> metadata;
    {
      const nb::gil_scoped_release free;
      if (format == "npz") {
        tensors = load_npz(path);
      } else if (format == "safetensors") {
        auto file = load_safetensors(path);
        tensors = std::move(file.tensors), metadata = std::move(file.metadata);
      } else {
        auto file = load_gguf(path);
        tensors = std::move(file.tensors), metadata = std::move(file.metadata);
      }
    }
    return nb::make_tuple(dict_of(tensors), metadata);
  });
  m.def("_save", [](const Path& path, const std::string& format, const nb::dict& given,
                    const std::map<std::string, std::string>& metadata) {
    const NamedTensors tensors = named_from(given, false);  // written at once
    const nb::gil_scoped_release free;
    if (format == "npz")
      save_npz(path, tensors);
    else if (format == "safetensors")
      save_safetensors(path, tensors, metadata);
    else
      save_gguf(path, tensors, metadata);
  });
}

}  // namespace weft::python
