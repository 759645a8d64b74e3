// A borrowed callable: two words, no allocation. For parameters that are called before the function returns.
#pragma once

#include <cstddef>
#include <memory>
#include <type_traits>
#include <utility>

namespace weft {

template <class Signature>
class FunctionRef;

/// Refers to a callable that outlives it. Empty by default; calling an empty one is undefined, so test it first.
template <class Result, class... Arguments>
class FunctionRef<Result(Arguments...)> {
 public:
  FunctionRef() = default;
  FunctionRef(std::nullptr_t) {}

  template <class Callable>
  requires(!std::is_same_v<std::remove_cvref_t<Callable>, FunctionRef> &&
           std::is_invocable_r_v<Result, Callable&, Arguments...>)
      FunctionRef(Callable&& callable)  // NOLINT: implicit, so that callers can pass a lambda
      : object_(const_cast<void*>(static_cast<const void*>(std::addressof(callable)))),
        call_([](void* object, Arguments... arguments) -> Result {
          return (*static_cast<std::remove_reference_t<Callable>*>(object))(std::forward<Arguments>(arguments)...);
        }) {}

  Result operator()(Arguments... arguments) const { return call_(object_, std::forward<Arguments>(arguments)...); }
  explicit operator bool() const { return call_ != nullptr; }

 private:
  void* object_ = nullptr;
  Result (*call_)(void*, Arguments...) = nullptr;
};

}  // namespace weft
