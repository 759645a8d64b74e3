// Operations in scripts: what an isolate shares with the exchange that it calls and that calls it.
#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "base/session_state.hpp"
#include "script/engine.hpp"
#include "weft/catalogue.hpp"

namespace weft::script {

/// Threads of the exchange reach the isolate through it.
struct Gate {
  std::mutex mutex;
  Engine* engine = nullptr;  // null once the isolate has ended
};

struct OperationsState {
  std::shared_ptr<operations::Exchange> exchange;
  std::shared_ptr<operations::Registry> own_registry;
  std::unique_ptr<operations::Catalogue> own_catalogue;
  SessionState* outer = nullptr;  // the session of the exchange
  SessionState* inner = nullptr;
  operations::Identity identity;
  std::shared_ptr<Gate> gate = std::make_shared<Gate>();
  std::vector<std::string> registered;

  /// Ends what waits for the script. Threads of the loop may still use the rest.
  void end();
};

/// Errors: AccessError if none were granted.
OperationsState& operations_of(Engine& engine);

/// Errors: AccessError unless the script may call the operation.
void require_granted(Engine& engine, const OperationsState& state, const std::string& id);

/// The value with its tensors in another session.
Value in_session(Value value, SessionState& to);
/// Computes the tensors of a value.
void evaluate(Engine& engine, const Value& value);

/// `operations.register`.
Local register_operation(Engine& engine, JSValueConst, Arguments arguments);

}  // namespace weft::script
