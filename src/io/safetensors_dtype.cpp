// The dtypes of the safetensors format, in the order of its specification: by alignment, which is the order of writing.
#include "io/safetensors_dtype.hpp"

#include <fmt/format.h>

#include <iterator>

#include "io/safetensors.hpp"
#include "weft/error.hpp"

namespace weft::io {
namespace {

struct Row {
  std::string_view name;
  int bits;
};

constexpr Row kRows[] = {
    {"BOOL", 8},    {"F4", 4},      {"F6_E2M3", 6}, {"F6_E3M2", 6},     {"U8", 8},          {"I8", 8},
    {"F8_E5M2", 8}, {"F8_E4M3", 8}, {"F8_E8M0", 8}, {"F8_E4M3FNUZ", 8}, {"F8_E5M2FNUZ", 8}, {"I16", 16},
    {"U16", 16},    {"F16", 16},    {"BF16", 16},   {"I32", 32},        {"U32", 32},        {"F32", 32},
    {"C64", 64},    {"F64", 64},    {"I64", 64},    {"U64", 64},
};

}  // namespace

std::optional<int> safetensors_dtype_rank(std::string_view dtype) {
  for (int i = 0; i < static_cast<int>(std::size(kRows)); ++i)
    if (kRows[i].name == dtype) return i;
  return std::nullopt;
}

std::string safetensors_dtype_list() {
  std::string list;
  for (const Row& row : kRows) list += (list.empty() ? "" : ", ") + std::string(row.name);
  return list;
}

std::optional<int> safetensors_dtype_bits(std::string_view dtype) {
  const auto rank = safetensors_dtype_rank(dtype);
  return rank ? std::optional<int>(kRows[*rank].bits) : std::nullopt;
}

std::optional<DType> dtype_from_safetensors(std::string_view dtype) {
  for (const Element& row : kElements)
    if (!dtype.empty() && row.safetensors == dtype) return row.type;
  return std::nullopt;
}

std::string_view safetensors_dtype(DType type) {
  if (!element(type).safetensors.empty()) return element(type).safetensors;
  throw UsageError(fmt::format("safetensors: the format has no {}; cast it to a type that it has", name_of(type)));
}

}  // namespace weft::io
