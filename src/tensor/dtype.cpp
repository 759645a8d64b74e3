#include "weft/dtype.hpp"

#include <algorithm>

namespace weft {

std::optional<DType> dtype_from_name(std::string_view name) {
  for (DType type : kAllDTypes)
    if (name_of(type) == name) return type;
  return std::nullopt;
}

DType promote(DType a, DType b) {
  if (a == b) return a;
  auto rank = [](DType t) {
    switch (t) {
      case DType::boolean: return 0;
      case DType::u32: return 1;
      case DType::i32: return 2;
      case DType::f32: return 3;
      case DType::f64: return 4;
    }
    return 4;
  };
  return rank(a) > rank(b) ? a : b;
}

}  // namespace weft
