#include "weft/dtype.hpp"

#include <fmt/format.h>

#include <iterator>

#include "weft/error.hpp"

namespace weft {
namespace {

constexpr bool rows_are_in_order() {
  for (int i = 0; i < kDTypeCount; ++i)
    if (kElements[i].type != static_cast<DType>(i) || kAllDTypes[i] != static_cast<DType>(i)) return false;
  return std::size(kAllDTypes) == std::size(kElements);
}
static_assert(rows_are_in_order());

[[noreturn]] void no_common_type(DType a, DType b) {
  throw DTypeError(fmt::format("{} and {} have no common type; cast one of them", name_of(a), name_of(b)));
}

}  // namespace

std::optional<DType> dtype_from_name(std::string_view name) {
  for (const Element& row : kElements)
    if (row.name == name) return row.type;
  return std::nullopt;
}

std::string dtype_list(bool (*holds)(const Element&)) {
  std::string list;
  std::string_view last;
  for (const Element& row : kElements) {
    if (!holds(row)) continue;
    if (!last.empty()) list += (list.empty() ? "" : ", ") + std::string(last);
    last = row.name;
  }
  return list.empty() ? std::string(last) : fmt::format("{} and {}", list, last);
}

DType promote(DType a, DType b) {
  if (a == b) return a;
  const Element &x = element(a), &y = element(b);
  if (is_storage(a) || is_storage(b)) no_common_type(a, b);
  if (x.kind == ElementKind::boolean) return b;
  if (y.kind == ElementKind::boolean) return a;
  if (x.kind != y.kind) return x.kind == ElementKind::real ? a : b;
  if (x.kind == ElementKind::real) return x.bits == y.bits ? DType::f32 : x.bits > y.bits ? a : b;  // f16 with bf16
  if (x.is_signed == y.is_signed) return x.bits > y.bits ? a : b;
  const Element &with_sign = x.is_signed ? x : y, &without = x.is_signed ? y : x;
  if (with_sign.bits > without.bits) return with_sign.type;
  switch (without.bits) {
    case 8: return DType::i16;
    case 16: return DType::i32;
    case 32: return DType::i64;
    default: no_common_type(a, b);
  }
}

}  // namespace weft
