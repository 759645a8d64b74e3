// The registry: specifications and handlers of operations, kept apart.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "weft/operations/specification.hpp"
#include "weft/schema.hpp"
#include "weft/value.hpp"

namespace weft::operations {

class Context;

/// The function that runs when an operation is called. Operations that it calls are checked against its own authority, not
/// against the caller's: the caller neither needs rights for them nor gains any.
struct Handler {
  /// Returns the answer of a query or mutation. A subscription answers through `Context::emit`; its result is ignored.
  std::function<Value(Context&)> run;
  /// The identity that its calls have.
  Identity authority = {};
  /// Operations that it may call: ids, or "tensor.*" for a namespace. Others are not found. Empty: none.
  std::vector<std::string> reach = {};
};

/// Allows or refuses a call, in addition to scopes and resources. `identity` is null for a caller without one.
using AccessFunction = std::function<bool(const Identity* identity, const Value& input)>;

/// Thread safety: any thread may call any function.
class Registry {
 public:
  Registry();
  ~Registry();
  Registry(const Registry&) = delete;
  Registry& operator=(const Registry&) = delete;

  /// Adds a specification, perhaps with its handler. A specification without a handler can be listed and described. Errors:
  /// UsageError for a name that is not [A-Za-z_][A-Za-z0-9_-]*, or an id that is taken; SchemaError.
  void add(Specification specification);
  void add(Specification specification, Handler handler);
  void add(Specification specification, std::function<Value(Context&)> run);
  /// Gives a specification its handler. Errors: UsageError if there is no such specification, or it has a handler.
  void set_handler(std::string_view id, Handler handler);
  /// Removes an operation, if it exists. Running calls finish.
  void remove(std::string_view id);
  /// Adds a function that specifications name in `Access::function`. Errors: UsageError for a name that is taken.
  void add_access_function(std::string_view name, AccessFunction function);

  /// Calls the function after an external operation was added or removed, on the thread that did it. The function must not throw, and
  /// must not add or remove operations. Returns a number for `forget`.
  std::size_t observe(std::function<void()> observer);
  /// Removes an observer. It is not called once this returns.
  void forget(std::size_t observer);
  /// Keeps an object as long as the registry lives. At the registry's end it is destroyed before the operations are.
  void keep(std::shared_ptr<const void> object);

  /// External operations in the order of their ids; with `internal` all.
  std::vector<std::shared_ptr<const Specification>> list(bool internal = false) const;
  /// Null if there is none, or if it is internal and `internal` is false.
  std::shared_ptr<const Specification> find(std::string_view id, bool internal = false) const;

  /// Why the identity (null: nobody) may not call with this input, as text for people; nothing if it may.
  std::optional<std::string> refusal(const Specification& specification, const Identity* identity,
                                     const Value& input) const;

  /// An identity with every scope that a specification names and every action on every resource, for the owner of the
  /// process.
  Identity owner() const;

  struct Entry;
  /// For the exchange: the entry with schemas and handler, or null.
  std::shared_ptr<const Entry> entry(std::string_view id) const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace weft::operations
