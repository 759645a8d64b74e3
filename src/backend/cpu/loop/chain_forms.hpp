// The ops that chains support, and the instructions for them.
#pragma once

#include <cstdint>

#include "backend/cpu/loop/vector_assembler.hpp"
#include "ops/scalar.hpp"

namespace weft::cpu::emitting {

/// How an op is emitted. This is the list of all ops that chains support.
struct Form {
  enum class Kind : std::uint8_t { none, binary, extreme, masked, rounded, sqrt, rsqrt, copysign, function };
  Kind kind = Kind::none;
  Code code = nullptr;
  std::uint32_t bits = 0;  // masked: what x is combined with; rounded: how
};
inline Form form_of(scalar::Op op) {
  using scalar::Op;
  using Kind = Form::Kind;
  switch (op) {
    case Op::neg: return {Kind::masked, kXorInt, kSignBit};
    case Op::abs: return {Kind::masked, kAndInt, kOtherBits};
    case Op::floor: return {Kind::rounded, {}, kDown};
    case Op::ceil: return {Kind::rounded, {}, kUp};
    case Op::round: return {Kind::rounded, {}, kNearestEven};
    case Op::trunc: return {Kind::rounded, {}, kToZero};
    case Op::sqrt: return {Kind::sqrt};
    case Op::rsqrt: return {Kind::rsqrt};
    case Op::exp:
    case Op::log:
    case Op::tanh:
    case Op::erf: return {Kind::function};
    case Op::add: return {Kind::binary, kAddPs};
    case Op::sub: return {Kind::binary, kSubPs};
    case Op::mul: return {Kind::binary, kMulPs};
    case Op::div: return {Kind::binary, kDivPs};
    case Op::min: return {Kind::extreme, kMinPs};
    case Op::max: return {Kind::extreme, kMaxPs};
    case Op::copysign: return {Kind::copysign};
    default: return {};
  }
}

/// The predicate of a comparison that a selection follows.
inline std::uint8_t comparison_of(scalar::Op op) {
  using scalar::Op;
  switch (op) {
    case Op::eq: return kEqual;
    case Op::ne: return kNotEqual;
    case Op::lt: return kLess;
    case Op::le: return kLessOrEqual;
    case Op::gt: return kGreater;
    default: return kGreaterOrEqual;
  }
}

}  // namespace weft::cpu::emitting
