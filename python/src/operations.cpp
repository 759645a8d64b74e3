// Operations: registries, handlers in Python, and calls.
#include "operations.hpp"

#include <fmt/format.h>

#include <cmath>
#include <filesystem>
#include <shared_mutex>
#include <thread>

#include "interrupt.hpp"
#include "nanobind/stl/filesystem.h"
#include "nanobind/stl/map.h"
#include "values.hpp"

namespace weft::python {

namespace op = operations;

// ---- Errors -------------------------------------------------------------------------------------------------------------

namespace {

nb::object error_type() { return nb::module_::import_("weft.operations").attr("OperationError"); }

}  // namespace

void set_operation_error(const op::OperationError& error) {
  try {
    const nb::object type = error_type();
    const nb::object made = type(error.code(), std::string(error.what()), object_of(error.details()));
    PyErr_SetObject(type.ptr(), made.ptr());
  } catch (nb::python_error& other) {
    other.restore();
  }
}

op::OperationError operation_error(nb::python_error& error) {
  try {
    if (error.matches(error_type())) {
      const nb::object e = nb::borrow(error.value());
      return {nb::cast<std::string>(e.attr("code")), nb::cast<std::string>(e.attr("message")),
              value_of(e.attr("details").ptr())};
    }
    if (!error.matches(PyExc_Exception)) {  // KeyboardInterrupt, SystemExit
      note_interrupt();
      return {op::kAborted, "the handler was interrupted"};
    }
    return {op::kExecutionError, fmt::format("{}: {}", nb::cast<std::string>(error.type().attr("__name__")),
                                             nb::cast<std::string>(nb::str(error.value())))};
  } catch (...) {
    return {op::kExecutionError, "the handler failed, and its exception cannot be read"};
  }
}

// ---- The exchange -------------------------------------------------------------------------------------------------------

namespace {

thread_local int handlers_here = 0;

}  // namespace

InHandler::InHandler() { ++handlers_here; }
InHandler::~InHandler() { --handlers_here; }

std::shared_ptr<PythonExchange::Parts> PythonExchange::Parts::make() {
  const auto promise = std::make_shared<std::promise<void>>();
  const auto destroy = [promise](Parts* parts) {
    std::thread([promise, parts] {
      delete parts;
      promise->set_value();
    }).detach();
  };
  std::shared_ptr<Parts> parts(new Parts, destroy);
  parts->ended = promise->get_future().share();
  return parts;
}

op::Identity PythonExchange::Parts::owner() {
  const std::lock_guard lock(mutex_);
  if (!owner_) owner_ = registry->owner();
  return *owner_;
}
void PythonExchange::Parts::forget_owner() {
  const std::lock_guard lock(mutex_);
  owner_.reset();
}

void PythonExchange::Parts::end_with(const std::shared_ptr<EndsWithExchange>& work) {
  const std::lock_guard lock(mutex_);
  std::erase_if(work_, [](const auto& each) { return each.expired(); });
  work_.push_back(work);
}
void PythonExchange::Parts::end_work() {
  std::vector<std::weak_ptr<EndsWithExchange>> work;
  {
    const std::lock_guard lock(mutex_);
    work.swap(work_);
  }
  for (const auto& each : work)
    if (const auto held = each.lock()) held->end();
}

std::shared_ptr<PythonExchange::Parts> PythonExchange::parts() const {
  const std::lock_guard lock(mutex_);
  if (!parts_) throw UsageError("the Exchange is closed");
  return parts_;
}

void PythonExchange::close() {
  if (handlers_here > 0) throw UsageError("an operation cannot close an Exchange: closing waits for operations to end");
  std::shared_ptr<Parts> parts;
  {
    const std::lock_guard lock(mutex_);
    parts.swap(parts_);
  }
  if (!parts) return;
  const nb::gil_scoped_release free;  // handlers need it to end
  parts->end_work();
  const std::shared_future<void> ended = parts->ended;
  parts.reset();
  while (ended.wait_for(kSignalPause) != std::future_status::ready) check_signals();
}

namespace {

// ---- What a handler sees of its call --------------------------------------------------------------------------------------

// Ends with the handler; a Context that Python keeps is an error from then on.
class LiveContext {
 public:
  explicit LiveContext(op::Context& call) : call_(&call) {}
  void end() {
    const std::unique_lock lock(mutex_);
    call_ = nullptr;
  }
  template <class F>
  auto use(const F& function) {
    const std::shared_lock lock(mutex_);
    if (!call_) throw UsageError("the call of this Context has ended");
    return function(*call_);
  }

 private:
  std::shared_mutex mutex_;
  op::Context* call_;
};

std::optional<op::Clock::time_point> deadline_after(std::optional<double> timeout) {
  if (!timeout) return std::nullopt;
  if (!(*timeout >= 0)) throw UsageError(fmt::format("a timeout of {} s; it is 0 or more", *timeout));
  const std::chrono::duration<double> seconds(std::min(*timeout, 1e8));
  return op::Clock::now() + std::chrono::duration_cast<op::Clock::duration>(seconds);
}

struct ContextObject {
  std::shared_ptr<LiveContext> live;

  void emit(nb::object value) const {
    Value data = value_of(value.ptr());
    const nb::gil_scoped_release free;
    live->use([&](op::Context& call) { call.emit(std::move(data)); });
  }
  nb::object call(const std::string& id, nb::object input, std::optional<double> timeout) const {
    Value given = input.is_none() ? Value(Value::Object()) : value_of(input.ptr());
    const op::CallOptions options{.deadline = deadline_after(timeout)};
    Value data;
    {
      const nb::gil_scoped_release free;
      data = live->use([&](op::Context& call) { return call.call(id, std::move(given), options); });
    }
    return object_of(data);
  }
};

nb::object identity_or_none(const op::Identity* identity) { return identity ? nb::cast(*identity) : nb::none(); }

void bind_context(nb::module_& m) {
  const auto with_call = [](const auto& read) {
    return [read](const ContextObject& self) { return self.live->use(read); };
  };
  nb::class_<ContextObject>(m, "Context", "A running call, for its handler. Valid until the handler returns.")
      .def_prop_ro("input", with_call([](op::Context& call) { return object_of(call.input()); }),
                   nb::sig("def input(self) -> Any"), "The whole input.")
      .def_prop_ro("identity", with_call([](op::Context& call) { return identity_or_none(call.identity()); }),
                   nb::sig("def identity(self) -> Identity | None"), "The caller, or None.")
      .def_prop_ro("request_id", with_call([](op::Context& call) { return call.request_id(); }))
      .def_prop_ro("client_request_id", with_call([](op::Context& call) { return call.client_request_id(); }),
                   "What the caller itself calls the request; empty if it does not say.")
      .def_prop_ro("remaining", with_call([](op::Context& call) -> std::optional<double> {
                     if (!call.deadline()) return std::nullopt;
                     return std::chrono::duration<double>(*call.deadline() - op::Clock::now()).count();
                   }),
                   "Seconds until the deadline, or None.")
      .def_prop_ro("stopped", with_call([](op::Context& call) { return call.stop().stop_requested(); }),
                   "Whether the call was aborted or its deadline has passed.")
      .def(
          "check", [](const ContextObject& self) { self.live->use([](op::Context& call) { call.check(); }); },
          "Raises OperationError ABORTED or TIMEOUT if the handler should stop.")
      .def("emit", &ContextObject::emit, nb::arg("value").none(),
           "Sends an answer of a subscription. Waits while the subscriber's buffer is full.")
      .def("call", &ContextObject::call, nb::arg("id"), nb::arg("input").none() = nb::none(),
           nb::arg("timeout").none() = nb::none(),
           nb::sig("def call(self, id: str, input: Any = None, timeout: float | None = None) -> Any"),
           "Calls another operation within the handler's reach, with the handler's authority, and no longer than this "
           "call.");
}

// A function of Python as a handler: function(input, context).
std::function<Value(op::Context&)> handler_of(nb::object function) {
  return [callable = Callable(std::move(function))](op::Context& call) {
    const InHandler inside;
    const nb::gil_scoped_acquire gil;
    const auto live = std::make_shared<LiveContext>(call);
    struct End {
      LiveContext& live;
      ~End() {
        const nb::gil_scoped_release free;  // another thread may use the Context just now
        live.end();
      }
    } const end{*live};
    try {
      return value_of(callable.get()(object_of(call.input()), ContextObject{live}).ptr());
    } catch (nb::python_error& error) {
      throw operation_error(error);
    }
  };
}

op::AccessFunction access_function(nb::object function) {
  return [callable = Callable(std::move(function))](const op::Identity* identity, const Value& input) {
    const nb::gil_scoped_acquire gil;
    return nb::cast<bool>(callable.get()(identity_or_none(identity), object_of(input)));
  };
}

// ---- Calls --------------------------------------------------------------------------------------------------------------

// KeyboardInterrupt instead of the error that the exchange made of it.
template <class F>
auto interruptible(const F& function) {
  take_interrupt();
  try {
    const nb::gil_scoped_release free;
    return function();
  } catch (const op::OperationError&) {
    if (!take_interrupt()) throw;
  }
  PyErr_SetNone(PyExc_KeyboardInterrupt);
  raise();
}

// The data of an answer and its warnings, or all of it.
nb::object answer_object(const op::Envelope& envelope, bool whole) {
  if (whole) return object_of(op::to_value(envelope));
  for (const std::string& each : envelope.warnings)
    if (PyErr_WarnEx(PyExc_RuntimeWarning, each.c_str(), 1) != 0) raise();
  return object_of(envelope.data);
}

struct PendingObject {
  std::weak_ptr<PythonExchange::Parts> exchange;
  op::PendingCall call;
  bool whole;
  std::optional<op::Envelope> answer = {};

  bool abort() const {
    const nb::gil_scoped_release free;
    const auto parts = exchange.lock();
    return parts && parts->exchange->abort(call.request_id());
  }
  bool done() {
    if (answer) return true;
    try {
      answer = call.get_until(op::Clock::now());
    } catch (const op::OperationError&) {
      return true;
    }
    return answer.has_value();
  }
  nb::object result(std::optional<double> timeout) {
    const auto end = deadline_after(timeout);
    bool late = false;
    if (!answer)
      answer = interruptible([&] {
        return wait_for<op::Clock>(
            [&](op::Clock::time_point time) -> std::optional<std::optional<op::Envelope>> {
              if (auto found = call.get_until(end ? std::min(time, *end) : time)) return found;
              late = end && op::Clock::now() >= *end;
              if (late) return std::optional<op::Envelope>();
              return std::nullopt;
            },
            [] {});
      });
    if (late) raise(PyExc_TimeoutError, fmt::format("no answer within {} s; the call goes on", *timeout));
    return answer_object(*answer, whole);
  }
};

struct SubscriptionObject {
  op::Subscription answers;
  bool whole;
  bool busy = false, ended = false;

  nb::object next() {
    if (busy) throw UsageError("another thread takes the next answer of this subscription");
    if (ended) throw nb::stop_iteration();
    struct Busy {
      bool& busy;
      ~Busy() { busy = false; }
    } const taken{busy = true};
    std::optional<op::Envelope> envelope;
    try {
      envelope = interruptible([&] {
        return wait_for<op::Clock>(
            [&](op::Clock::time_point time) -> std::optional<std::optional<op::Envelope>> {
              bool is_waiting = false;
              auto found = answers.next_until(time, is_waiting);
              if (is_waiting) return std::nullopt;
              return found;
            },
            [&] { answers.abort(); });
      });
    } catch (...) {
      ended = true;
      throw;
    }
    ended = !envelope;
    if (ended) throw nb::stop_iteration();
    return answer_object(*envelope, whole);
  }
  void abort() {
    const nb::gil_scoped_release free;
    answers.abort();
  }
};

struct CallArguments {
  std::string id;
  Value input;
  op::CallOptions options;
  bool whole;
};
// `identity`: True for the owner, None for nobody, or an Identity.
CallArguments arguments_from(PythonExchange::Parts& parts, const std::string& id, nb::object input, nb::object identity,
                             std::optional<double> timeout, const std::string& request_id, bool whole) {
  CallArguments made{.id = id, .input = value_of(input.ptr()), .options = {}, .whole = whole};
  if (identity.ptr() == Py_True)
    made.options.identity = parts.owner();
  else if (!identity.is_none())
    made.options.identity = nb::cast<op::Identity>(identity);
  made.options.deadline = deadline_after(timeout);
  made.options.request_id = request_id;
  made.options.client_request_id = request_id;
  return made;
}

// Binds a way to call: method(id, input, identity, timeout, request_id, envelope).
template <class F>
void bind_call(nb::class_<PythonExchange>& type, const char* name, const F& call) {
  const auto method = [call](PythonExchange& self, const std::string& id, nb::object input, nb::object identity,
                             std::optional<double> timeout, const std::string& request_id, bool envelope) {
    const std::shared_ptr<PythonExchange::Parts> parts = self.parts();
    return call(parts,
                arguments_from(*parts, id, std::move(input), std::move(identity), timeout, request_id, envelope));
  };
  type.def(name, method, nb::arg("id"), nb::arg("input").none(), nb::arg("identity").none(), nb::arg("timeout").none(),
           nb::arg("request_id"), nb::arg("envelope"));
}

nb::object call_and_wait(const std::shared_ptr<PythonExchange::Parts>& parts, CallArguments a) {
  op::Exchange& exchange = *parts->exchange;
  const op::Envelope answer = interruptible([&] {
    if (!a.options.deadline) return exchange.call(a.id, std::move(a.input), a.options);
    op::PendingCall call = exchange.start(a.id, std::move(a.input), a.options);
    return wait_for<op::Clock>([&](op::Clock::time_point time) { return call.get_until(time); },
                               [&] { exchange.abort(call.request_id()); });
  });
  return answer_object(answer, a.whole);
}

nb::object event_object(const op::Event& event) { return object_of(op::to_value(event)); }

}  // namespace

void bind_operations(nb::module_& m) {
  nb::class_<op::Identity>(m, "Identity",
                           "A caller: its id, its scopes, and the actions allowed on each resource \"type:id\".")
      .def(
          "__init__",
          [](op::Identity* self, std::string id, std::vector<std::string> scopes,
             std::map<std::string, std::vector<std::string>> resources) {
            new (self) op::Identity{std::move(id), std::move(scopes), std::move(resources)};
          },
          nb::arg("id"), nb::arg("scopes") = std::vector<std::string>(),
          nb::arg("resources") = std::map<std::string, std::vector<std::string>>())
      .def_ro("id", &op::Identity::id)
      .def_ro("scopes", &op::Identity::scopes)
      .def_ro("resources", &op::Identity::resources)
      .def("__repr__", [](const op::Identity& self) {
        return fmt::format("Identity({}, {} scopes, {} resources)", self.id, self.scopes.size(), self.resources.size());
      });
  bind_context(m);
  nb::class_<PendingObject>(m, "PendingCall", "A call that was started.")
      .def_prop_ro("request_id", [](const PendingObject& self) { return self.call.request_id(); })
      .def("result", &PendingObject::result, nb::arg("timeout").none() = nb::none(),
           nb::sig("def result(self, timeout: float | None = None) -> Any"),
           "Waits for the answer. Raises OperationError; TimeoutError if there is no answer within `timeout` seconds.")
      .def("done", &PendingObject::done, "Whether there is an answer or an error.")
      .def("abort", &PendingObject::abort, "Aborts the call. False if it has ended.");
  nb::class_<SubscriptionObject>(m, "Subscription", "The answers of a subscription, to iterate over.")
      .def_prop_ro("request_id", [](const SubscriptionObject& self) { return self.answers.request_id(); })
      .def(
          "__iter__", [](nb::object self) { return self; }, nb::sig("def __iter__(self) -> Subscription"))
      .def("__next__", &SubscriptionObject::next, nb::sig("def __next__(self) -> Any"))
      .def("abort", &SubscriptionObject::abort, "Ends the call; the handler is told to stop.");
  nb::class_<PythonExchange> exchange(m, "_Exchange");
  exchange
      .def(
          "__init__",
          [](PythonExchange* self, bool catalogue, std::vector<std::filesystem::path> read,
             std::vector<std::filesystem::path> write, std::size_t calls, bool may_fetch) {
            const auto parts = PythonExchange::Parts::make();
            op::CatalogueOptions options{
                .read_folders = std::move(read), .write_folders = std::move(write), .may_fetch = may_fetch};
            if (catalogue)
              parts->catalogue = std::make_unique<op::Catalogue>(parts->registry, options);
            else
              parts->handles = std::make_unique<op::Handles>(options);
            parts->exchange =
                std::make_unique<op::Exchange>(parts->registry, op::ExchangeOptions{.calls_per_identity_max = calls});
            new (self) PythonExchange(parts);
          },
          nb::arg("catalogue"), nb::arg("read"), nb::arg("write"), nb::arg("calls"), nb::arg("may_fetch"))
      .def("close", &PythonExchange::close)
      .def("owner", [](PythonExchange& self) { return self.parts()->owner(); })
      .def(
          "register",
          [](PythonExchange& self, nb::dict specification, nb::object function, nb::object allow, bool internal,
             op::Identity authority, std::vector<std::string> reach) {
            op::Specification s = op::specification_from(value_of(specification.ptr()));
            if (internal) s.visibility = op::Visibility::internal;
            const auto parts = self.parts();
            if (!allow.is_none()) {
              s.access.function = s.id();
              op::AccessFunction made = access_function(std::move(allow));
              const nb::gil_scoped_release free;
              parts->registry->add_access_function(s.access.function, std::move(made));
            }
            op::Handler handler{
                .run = handler_of(std::move(function)), .authority = std::move(authority), .reach = std::move(reach)};
            const nb::gil_scoped_release free;
            parts->registry->add(std::move(s), std::move(handler));
            parts->forget_owner();
          },
          nb::arg("specification"), nb::arg("function"), nb::arg("allow").none(), nb::arg("internal"),
          nb::arg("authority"), nb::arg("reach"))
      .def("remove",
           [](PythonExchange& self, const std::string& id) {
             const auto parts = self.parts();
             const nb::gil_scoped_release free;  // the handler's function may be freed
             const bool found = parts->registry->find(id, true) != nullptr;
             parts->registry->remove(id);
             parts->forget_owner();
             return found;
           })
      .def("list",
           [](PythonExchange& self, bool internal) {
             nb::list all;
             for (const auto& each : self.parts()->registry->list(internal)) all.append(each->id());
             return all;
           })
      .def("describe",
           [](PythonExchange& self, const std::string& id) -> nb::object {
             const auto found = self.parts()->registry->find(id, true);
             return found ? object_of(op::to_value(*found)) : nb::none();
           })
      .def("abort",
           [](PythonExchange& self, const std::string& request_id) {
             const auto parts = self.parts();
             const nb::gil_scoped_release free;
             return parts->exchange->abort(request_id);
           })
      .def("pending",
           [](PythonExchange& self) {
             const auto parts = self.parts();
             const nb::gil_scoped_release free;
             return parts->exchange->pending();
           })
      .def("observe",
           [](PythonExchange& self, nb::object function) {
             const auto parts = self.parts();
             const auto observer = [callable = Callable(std::move(function))](const op::Event& event) {
               const nb::gil_scoped_acquire gil;
               try {
                 callable.get()(event_object(event));
               } catch (nb::python_error& error) {
                 error.discard_as_unraisable(callable.get());
               }
             };
             const nb::gil_scoped_release free;
             return parts->exchange->observe(observer);
           })
      .def("forget", [](PythonExchange& self, std::size_t observer) {
        const auto parts = self.parts();
        const nb::gil_scoped_release free;
        parts->exchange->forget(observer);
      });
  bind_call(exchange, "call", call_and_wait);
  bind_call(exchange, "start", [](const std::shared_ptr<PythonExchange::Parts>& parts, CallArguments a) {
    const nb::gil_scoped_release free;
    return PendingObject{parts, parts->exchange->start(a.id, std::move(a.input), a.options), a.whole};
  });
  bind_call(exchange, "subscribe", [](const std::shared_ptr<PythonExchange::Parts>& parts, CallArguments a) {
    const nb::gil_scoped_release free;
    return SubscriptionObject{parts->exchange->subscribe(a.id, std::move(a.input), a.options), a.whole};
  });
  bind_operation_transports(m);
}

}  // namespace weft::python
