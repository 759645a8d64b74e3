// The C++ types in which scatters add up.
#pragma once

#include <cstdint>
#include <string_view>

#include <fmt/format.h>

#include "weft/dtype.hpp"
#include "weft/error.hpp"

namespace weft::cpu {

/// Calls run with a zero of the type in which values of `type` are added up.
template <class Run>
void with_sum_type(DType type, std::string_view name, Run run) {
  switch (type) {
    case DType::f32: return run(float{});
    case DType::f64: return run(double{});
    case DType::i32:  // wraps as u32 does
    case DType::u32: return run(std::uint32_t{});
    case DType::i64:
    case DType::u64: return run(std::uint64_t{});
    default: throw DTypeError(fmt::format("{}: scatter-add has no sums of {}; cast first", name, name_of(type)));
  }
}

}  // namespace weft::cpu
