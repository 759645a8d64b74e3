// What the files of the module share: objects that JavaScript names by numbers, beside those of weft/c.h.
#pragma once

#include "capi/guard.hpp"

// A function that the module exports under its own name.
#define WEFT_EXPORT(name) extern "C" __attribute__((export_name(#name), used))

namespace weft::browser {

/// Kinds of handles after those of the C interface.
enum class Kind : std::uint8_t { optimizer = 64, trainer, model, generation };

template <class T, Kind kKind>
capi::Handles<std::shared_ptr<T>, static_cast<capi::HandleKind>(kKind)>& objects() {
  static auto& table = *new capi::Handles<std::shared_ptr<T>, static_cast<capi::HandleKind>(kKind)>;
  return table;
}

/// Errors: BadHandle.
template <class T, Kind kKind>
T& object_of(std::uint64_t id, const char* kind) {
  const auto object = objects<T, kKind>().find(id);
  if (!object) throw capi::BadHandle(fmt::format("a handle that is not that of a living {}: was it released?", kind));
  return **object;
}

template <class T, Kind kKind>
weft_status release(std::uint64_t id, const char* kind) {
  return capi::guarded([&] {
    object_of<T, kKind>(id, kind);
    objects<T, kKind>().remove(id);
  });
}

/// What a JavaScript program says about a number that it leaves out.
inline bool is_given(double number) { return number == number; }

}  // namespace weft::browser
