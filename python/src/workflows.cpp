// Workflows: trees of operations, checked and run on an exchange.
#include "weft/workflow.hpp"

#include "interrupt.hpp"
#include "operations.hpp"
#include "values.hpp"
#include "weft/error.hpp"

namespace weft::python {
namespace {

namespace op = operations;

workflow::Template template_of(const nb::object& given) { return workflow::template_from(value_of(given.ptr())); }

nb::dict event_of(const workflow::NodeEvent& event) {
  nb::dict made;
  made["node"] = event.node;
  made["operation"] = event.operation;
  made["name"] = event.name;
  made["status"] = std::string(name_of(event.status));
  made["request_id"] = event.request_id;
  made["code"] = event.code;
  made["message"] = event.message;
  return made;
}

// A run, which keeps its exchange until the exchange is closed. No function needs the GIL, and all wait without it: handlers need it.
class HeldRun final : public EndsWithExchange {
 public:
  HeldRun(std::shared_ptr<PythonExchange::Parts> parts, workflow::Run started)
      : exchange_(std::move(parts)), run_(std::move(started)) {}

  void end() override {
    const std::lock_guard lock(mutex_);
    if (!run_) return;
    run_->abort();
    try {
      while (!result_) result_ = run_->get_until(op::Clock::now() + kSignalPause);
    } catch (...) {
      error_ = std::current_exception();
    }
    status_ = run_->status();
    graph_ = to_value(run_->graph());
    run_.reset();
    exchange_.reset();
  }
  std::optional<Value> result_until(op::Clock::time_point time) {
    const std::lock_guard lock(mutex_);
    if (error_) std::rethrow_exception(error_);
    if (!result_) result_ = run_->get_until(time);
    return result_;
  }
  void abort() {
    const std::lock_guard lock(mutex_);
    if (run_) run_->abort();
  }
  workflow::Status status() {
    const std::lock_guard lock(mutex_);
    return run_ ? run_->status() : status_;
  }
  Value graph() {
    const std::lock_guard lock(mutex_);
    return run_ ? to_value(run_->graph()) : graph_;
  }

 private:
  std::mutex mutex_;
  std::shared_ptr<PythonExchange::Parts> exchange_;
  std::optional<workflow::Run> run_;  // destroyed before its exchange
  std::optional<Value> result_;
  std::exception_ptr error_;
  workflow::Status status_ = workflow::Status::idle;
  Value graph_;
};

struct PythonRun {
  std::shared_ptr<HeldRun> held;

  explicit PythonRun(std::shared_ptr<HeldRun> run) : held(std::move(run)) {}
  PythonRun(PythonRun&&) = default;
  ~PythonRun() {
    const nb::gil_scoped_release free;
    held.reset();
  }
  template <class F>
  auto use(const F& function) const {
    const nb::gil_scoped_release free;
    return function(*held);
  }

  nb::object get() const {
    return object_of(use([](HeldRun& run) {
      return wait_for<op::Clock>([&](op::Clock::time_point time) { return run.result_until(time); },
                                 [&] { run.abort(); });
    }));
  }
};

// The graph of the calls of an exchange, from the moment when it is made.
struct CallRecorder {
  struct State {
    std::mutex mutex;
    workflow::CallGraph graph;
  };
  std::shared_ptr<State> state = std::make_shared<State>();
  std::weak_ptr<PythonExchange::Parts> exchange;
  std::optional<std::size_t> observer;

  explicit CallRecorder(const std::shared_ptr<PythonExchange::Parts>& parts) : exchange(parts) {
    observer = parts->exchange->observe([state = state](const op::Event& event) {
      const std::lock_guard lock(state->mutex);
      state->graph.add(event);
    });
  }
  CallRecorder(const CallRecorder&) = delete;
  ~CallRecorder() { close(); }
  void close() {
    const auto number = std::exchange(observer, std::nullopt);
    const nb::gil_scoped_release free;
    if (const auto parts = exchange.lock(); parts && number) parts->exchange->forget(*number);
  }
};

workflow::RunOptions run_options(PythonExchange::Parts& parts, const nb::object& identity,
                                 std::optional<double> timeout, std::size_t threads, const nb::object& observer) {
  workflow::RunOptions options{.threads_max = threads};
  if (identity.ptr() == Py_True)
    options.call.identity = parts.owner();
  else if (!identity.is_none())
    options.call.identity = nb::cast<op::Identity>(identity);
  if (timeout) {
    if (!(*timeout >= 0)) throw UsageError("a timeout is 0 or more seconds");
    options.call.deadline = op::Clock::now() + std::chrono::duration_cast<op::Clock::duration>(
                                                   std::chrono::duration<double>(std::min(*timeout, 1e8)));
  }
  if (!observer.is_none())
    options.observer = [callable = Callable(observer)](const workflow::NodeEvent& event) {
      const nb::gil_scoped_acquire gil;
      try {
        callable.get()(event_of(event));
      } catch (nb::python_error& error) {
        error.discard_as_unraisable(callable.get());
      }
    };
  return options;
}

}  // namespace

void bind_workflows(nb::module_& m) {
  nb::class_<PythonRun>(m, "_WorkflowRun")
      .def("result", &PythonRun::get)
      .def("abort", [](const PythonRun& self) { self.use([](HeldRun& run) { run.abort(); }); })
      .def("status",
           [](const PythonRun& self) {
             return std::string(name_of(self.use([](HeldRun& run) { return run.status(); })));
           })
      .def("graph",
           [](const PythonRun& self) { return object_of(self.use([](HeldRun& run) { return run.graph(); })); });
  m.def("_workflow_template", [](nb::object given) { return object_of(to_value(template_of(given))); });
  m.def("_workflow_check", [](nb::object given, PythonExchange& exchange, bool internal) {
    nb::list list;
    for (const workflow::Problem& each : workflow::check(template_of(given), *exchange.parts()->registry, internal))
      list.append(nb::make_tuple(each.code, each.path, each.message));
    return list;
  });
  m.def("_workflow_operations", [](nb::object given, PythonExchange& exchange) {
    return object_of(to_value(workflow::operation_graph(template_of(given), *exchange.parts()->registry)));
  });
  m.def(
      "_workflow_start",
      [](nb::object given, PythonExchange& exchange, nb::object input, nb::object identity,
         std::optional<double> timeout, std::size_t threads, nb::object observer) {
        const auto parts = exchange.parts();
        const workflow::Template made = template_of(given);
        Value value = value_of(input.ptr());
        const workflow::RunOptions options = run_options(*parts, identity, timeout, threads, observer);
        const nb::gil_scoped_release free;
        workflow::Run run = workflow::start(*parts->exchange, made, std::move(value), options);
        const auto held = std::make_shared<HeldRun>(parts, std::move(run));
        parts->end_with(held);
        return PythonRun(held);
      },
      nb::arg("template"), nb::arg("exchange"), nb::arg("input").none(), nb::arg("identity").none(),
      nb::arg("timeout").none(), nb::arg("threads"), nb::arg("observer").none());
  m.def("_workflow_add",
        [](nb::object given, PythonExchange& exchange, nb::dict specification, op::Identity authority) {
          const auto parts = exchange.parts();
          workflow::add(*parts->registry, op::specification_from(value_of(specification.ptr())), template_of(given),
                        std::move(authority));
          parts->forget_owner();
        });
  nb::class_<CallRecorder>(m, "_CallRecorder")
      .def("__init__", [](CallRecorder* self, PythonExchange& exchange) { new (self) CallRecorder(exchange.parts()); })
      .def("graph",
           [](const CallRecorder& self) {
             Value graph;
             {
               const nb::gil_scoped_release free;  // an event may be on its way
               const std::lock_guard lock(self.state->mutex);
               graph = to_value(self.state->graph);
             }
             return object_of(graph);
           })
      .def("close", &CallRecorder::close);
}

}  // namespace weft::python
