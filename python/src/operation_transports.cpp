// Operations of other places, and this place's operations for a client of the Model Context Protocol.
#include <fmt/format.h>

#include <stop_token>

#include "catalogue/frame.hpp"
#include "interrupt.hpp"
#include "operations.hpp"
#include "serve/mcp.hpp"
#include "serve/mcp_client.hpp"
#include "values.hpp"

namespace weft::python {
namespace {

namespace op = operations;

// A transport that is written in Python (weft/_http.py). It has operations(), a list of specifications as dictionaries, and
// open(), which gives a connection for one call: connection.run(id, type, body, timeout, request_id, via, take), and
// connection.close() from any thread, which ends it.
class PythonCaller final : public serve::Caller {
 public:
  explicit PythonCaller(nb::object transport) : transport_(std::move(transport)) {}

  std::vector<op::Specification> operations() override {
    Value::Array all;
    {
      const nb::gil_scoped_acquire gil;
      all = python([&] { return value_of(transport_.get().attr("operations")().ptr()); }).elements();
    }
    std::vector<op::Specification> made;
    for (const Value& each : all) made.push_back(op::specification_from(each));
    return made;
  }

  void run(std::string_view id, const Value& input, const serve::RemoteCallOptions& options,
           const std::function<bool(op::Envelope)>& take) override {
    const op::Frame frame(input, op::WireTensors::data, handles_, kOwner);
    const std::string body = frame.has_tensors() ? frame.to_string() : frame.json();
    std::optional<double> timeout;
    if (options.deadline) timeout = std::chrono::duration<double>(*options.deadline - op::Clock::now()).count();
    const nb::gil_scoped_acquire gil;
    python([&] {
      const nb::object connection = transport_.get().attr("open")();
      const auto leave = [&] {
        const nb::gil_scoped_acquire again;
        try {
          connection.attr("close")();
        } catch (nb::python_error& error) {
          error.discard_as_unraisable("closing a connection");
        }
      };
      using Leaving = std::stop_callback<decltype(leave)>;
      std::optional<Leaving> leaving;
      {
        const nb::gil_scoped_release free;  // it is called at once if the call has ended already
        leaving.emplace(options.stop, leave);
      }
      struct Stay {
        std::optional<Leaving>& leaving;
        ~Stay() {
          const nb::gil_scoped_release free;  // waits for a call of it on another thread
          leaving.reset();
        }
      } const stay{leaving};
      const auto received = [&](nb::bytes bytes) {
        const std::string_view view(bytes.c_str(), bytes.size());
        const nb::gil_scoped_release free;
        return take(op::envelope_from(op::from_frame(view, handles_, kOwner)));
      };
      connection.attr("run")(std::string(id), frame.has_tensors() ? std::string(op::kFrameType) : "application/json",
                             nb::bytes(body.data(), body.size()), timeout ? nb::cast(*timeout) : nb::none(),
                             options.request_id, serve::via_text(options.via), nb::cpp_function(received));
      return Value();
    });
  }

 private:
  static constexpr const char* kOwner = "python";
  template <class F>
  static Value python(const F& function) {
    try {
      return function();
    } catch (nb::python_error& error) {
      throw operation_error(error);
    }
  }
  Callable transport_;
  op::Handles handles_;
};

std::size_t import_from(PythonExchange& self, const std::function<std::shared_ptr<serve::Caller>()>& connect) {
  const auto parts = self.parts();
  const nb::gil_scoped_release free;
  const std::size_t count = serve::from_call(*parts->registry, connect());
  parts->forget_owner();
  return count;
}

}  // namespace

void bind_operation_transports(nb::module_& m) {
  m.def("_import_transport", [](PythonExchange& self, nb::object transport) {
    const auto caller = std::make_shared<PythonCaller>(std::move(transport));
    return import_from(self, [&] { return caller; });
  });
  m.def("_import_mcp_program", [](PythonExchange& self, const std::string& command) {
    return import_from(self, [&] {
      return std::make_shared<serve::McpClient>(serve::mcp_program(command),
                                                serve::McpClientOptions{.version = WEFT_VERSION});
    });
  });
  // read() gives a line, or None at the end; write(line) is False when the client has gone.
  m.def(
      "_serve_mcp",
      [](PythonExchange& self, nb::object identity, nb::object read, nb::object write) {
        const auto parts = self.parts();
        const serve::Service service{*parts->exchange, parts->held()};
        const serve::McpOptions options{
            .identity = identity.is_none() ? parts->owner() : nb::cast<op::Identity>(identity),
            .version = WEFT_VERSION};
        const Callable reader(std::move(read)), writer(std::move(write));
        const nb::gil_scoped_release free;
        serve::serve_mcp(
            service, options,
            [&]() -> std::optional<std::string> {
              const nb::gil_scoped_acquire gil;
              const nb::object line = reader.get()();
              if (line.is_none()) return std::nullopt;
              const auto bytes = nb::cast<nb::bytes>(line);
              return std::string(bytes.c_str(), bytes.size());
            },
            [&](std::string_view line) {
              const nb::gil_scoped_acquire gil;
              try {
                return nb::cast<bool>(writer.get()(nb::bytes(line.data(), line.size())));
              } catch (nb::python_error& error) {
                error.discard_as_unraisable("weft.operations: writing to the client");
                return false;
              }
            });
      },
      nb::arg("exchange"), nb::arg("identity").none(), nb::arg("read"), nb::arg("write"));
}

}  // namespace weft::python
