// The registry: specifications and handlers of operations, apart.
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

/// What runs when an operation is called. Operations that it calls in turn are checked against its own authority, and not
/// against the caller's: a caller gains nothing, and loses nothing, by what the handler does for it.
struct Handler {
  /// Of a query or mutation: the answer. Of a subscription: answers through `Context::emit`; what it returns is ignored.
  std::function<Value(Context&)> run;
  /// The identity of its own calls.
  Identity authority = {};
  /// Operations that it may call: ids, or "tensor.*" for a namespace. Others are not found. Nothing: none.
  std::vector<std::string> reach = {};
};

/// Decides about a call, beside scopes and resources. `identity` is null for a caller without one.
using AccessFunction = std::function<bool(const Identity* identity, const Value& input)>;

/// Thread safety: all of it.
class Registry {
 public:
  Registry();
  ~Registry();
  Registry(const Registry&) = delete;
  Registry& operator=(const Registry&) = delete;

  /// Adds a specification, and with it a handler. A specification without one can be listed and described.
  /// Errors: UsageError for a name that is not [A-Za-z_][A-Za-z0-9_-]*, or an id that is taken; SchemaError.
  void add(Specification specification);
  void add(Specification specification, Handler handler);
  void add(Specification specification, std::function<Value(Context&)> run);
  /// Gives a specification its handler. Errors: UsageError if there is no such specification, or it has one.
  void set_handler(std::string_view id, Handler handler);
  /// Removes an operation, if it is there. Calls that run are finished.
  void remove(std::string_view id);
  /// A function that specifications name in `Access::function`. Errors: UsageError for a name that is taken.
  void add_access_function(std::string_view name, AccessFunction function);

  /// External operations in the order of their ids; with `internal` all.
  std::vector<std::shared_ptr<const Specification>> list(bool internal = false) const;
  /// Null where there is none, or an internal one and `internal` is false.
  std::shared_ptr<const Specification> find(std::string_view id, bool internal = false) const;

  /// Whether the identity (null: nobody) may call with this input. Null: yes; else the reason for people.
  std::optional<std::string> refusal(const Specification& specification, const Identity* identity,
                                     const Value& input) const;

  /// An identity with every scope that a specification names and every action on every resource: for the owner of the
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
