// weft.operations in C++: an exchange with its registry, and what handlers and transports share.
#pragma once

#include <functional>
#include <future>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "callable.hpp"
#include "weft/catalogue.hpp"

namespace weft::python {

/// Sets the Python error weft.OperationError.
void set_operation_error(const operations::OperationError& error);
/// What a function of Python threw, as an error of an operation. Needs the GIL.
operations::OperationError operation_error(nb::python_error& error);

/// Work that holds an exchange. Closing the exchange ends it first, without the GIL.
class EndsWithExchange {
 public:
  virtual ~EndsWithExchange() = default;
  virtual void end() = 0;
};

/// weft.operations.Exchange in Python.
class PythonExchange {
 public:
  /// Destroyed from the last member on: calls end before what they use. That waits for handlers, which need the GIL and may be the
  /// ones that let go of the exchange, so a thread of its own does it.
  struct Parts {
    static std::shared_ptr<Parts> make();
    std::shared_ptr<operations::Registry> registry = std::make_shared<operations::Registry>();
    std::unique_ptr<operations::Catalogue> catalogue;  // null: `handles` instead
    std::unique_ptr<operations::Handles> handles;
    std::unique_ptr<operations::Exchange> exchange;
    operations::Handles& held() const { return catalogue ? catalogue->handles() : *handles; }

    /// The identity of the owner, who has every scope of the registry.
    operations::Identity owner();
    void forget_owner();

    void end_with(const std::shared_ptr<EndsWithExchange>& work);
    void end_work();

    std::shared_future<void> ended;

   private:
    std::mutex mutex_;
    std::vector<std::weak_ptr<EndsWithExchange>> work_;
    std::optional<operations::Identity> owner_;
  };

  explicit PythonExchange(std::shared_ptr<Parts> parts) : parts_(std::move(parts)) {}
  PythonExchange(const PythonExchange&) = delete;

  /// Errors: UsageError once it is closed.
  std::shared_ptr<Parts> parts() const;
  /// Aborts calls that other threads run for it, and waits until all handlers have ended. Needs the GIL. Errors: UsageError in a handler.
  void close();

 private:
  mutable std::mutex mutex_;
  std::shared_ptr<Parts> parts_;
};

/// Marks this thread as one that runs a handler, which cannot wait for its exchange to end.
struct InHandler {
  InHandler();
  ~InHandler();
};

}  // namespace weft::python
