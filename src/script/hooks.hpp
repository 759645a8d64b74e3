// Functions of the script that the graph holds: hooks on gradients.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "script/engine.hpp"
#include "weft/hooks.hpp"

namespace weft::script {

/// Values of the script that C++ functions hold. The functions may be freed on any thread, during a collection of the script's
/// garbage, and after the isolate's end; the values are freed on the isolate's thread.
class KeptValues {
 public:
  explicit KeptValues(Engine& engine) : engine_(&engine) {}
  /// Holds the value while the result lives.
  static std::shared_ptr<const std::uint64_t> keep(Engine& engine, JSValueConst value);
  /// Errors: UsageError once the isolate has ended.
  Engine& engine() const;
  JSValueConst operator[](std::uint64_t number);
  /// Frees what nobody holds. On the isolate's thread.
  void collect();
  /// Frees everything, at the isolate's end.
  void end();

 private:
  Engine* engine_;
  std::mutex mutex_;
  std::uint64_t last_ = 0;
  std::map<std::uint64_t, JSValue> alive_;
  std::vector<JSValue> dead_;
};

/// hook(gradient), or hook(module, gradient) if there is a module, as C++ calls it. `what` names it in errors. Errors: UsageError if it
/// is not a function.
GradientHook gradient_hook(Engine& engine, JSValueConst hook, JSValueConst module, const char* what);
/// What a registration returns: an object with the method remove().
Local hook_handle(Engine& engine, Local remove);

}  // namespace weft::script
