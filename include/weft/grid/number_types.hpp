// The types that a layer may see its parameters in: values rounded to the type and back, their packed form, and their size.
#pragma once

#include <array>
#include <cstddef>
#include <span>
#include <string_view>
#include <vector>

#include "weft/dtype.hpp"
#include "weft/tensor.hpp"

namespace weft::grid {

/// All of them, in the order of their numbers in other systems' files.
inline constexpr std::array kNumberTypes = {
    DType::f64,  DType::f32,   DType::f16,      DType::bf16, DType::fp8_e4m3, DType::fp8_e5m2, DType::i64,
    DType::i32,  DType::i16,   DType::i8,       DType::u64,  DType::u32,      DType::u16,      DType::u8,
    DType::int4, DType::uint4, DType::fp4_e2m1, DType::int2, DType::uint2,    DType::ternary,  DType::binary};

bool is_number_type(DType type);
/// By name: "i8", and also "int8", "float16", "fp8e4m3", "fp4". Errors: UsageError that lists the names.
DType number_type(std::string_view name);

/// The f32 values w rounded to numbers of `type`, as f32: Q(w). One scale s for all of w.
///
///     f64, f32             w
///     f16, bf16            the nearest number of the type; values beyond its range become its largest
///     fp8, fp4             s times the nearest number of the type to w / s, s = max |w| / its largest number
///     i8, u8, (u)int4, 2   s round(w / s), s = max |w| / M with M = 127, 7, 1
///     i16, u16 and wider   s round(w / s), s = the power of two 2^(e - bits + 1), where 2^e is the first one above max |w|
///     ternary              s sign(w) where |w| > 0.7 mean |w|, else 0; s = the mean of those |w|
///     binary               s where w > 0, else -s; s = mean |w|
///
/// Scales that are not powers of two are rounded to bf16, so that products with them are exact. Unsigned types keep a value v as
/// v / s + 2^(bits - 1): their zero point is in the middle. Rounding is to the nearest, ties to even.
///
/// Q(Q(w)) = Q(w) bit for bit, on every device. So values that were packed and unpacked give the same forward pass.
///
/// Shapes    any
/// Dtypes    f32
/// Gradient  that of the result, unchanged ("straight through"), so that w can be trained
/// Source    ternary: Li et al. 2016, arXiv:1605.04711; binary: Rastegari et al. 2016, arXiv:1603.05279; gradient: Bengio et al.
///           2013, arXiv:1308.3432
/// Errors    DTypeError: w is not f32, or `type` is not one of kNumberTypes
[[nodiscard]] Tensor quantised(const Tensor& w, DType type);

/// Values in the storage of their type.
struct PackedValues {
  DType type = DType::f32;
  float scale = 1;
  std::size_t count = 0;
  std::vector<std::byte> bytes;  ///< as `tensor_from_bytes` takes them; elements below 8 bits share bytes
};
/// Packs values that `quantised` gave. Errors: UsageError for values that are not numbers of the type at one scale, or not finite.
PackedValues pack(std::span<const float> values, DType type);
/// The same values, bit for bit. Errors: UsageError for a number of bytes that does not fit, or a scale that is not finite.
std::vector<float> unpack(const PackedValues& packed);

/// Bytes of `count` values in the storage of the type, with their scale.
std::size_t packed_bytes(DType type, std::size_t count);

}  // namespace weft::grid
