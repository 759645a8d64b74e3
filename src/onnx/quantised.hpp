// What operators on quantised integers share.
#pragma once

#include "onnx/apply.hpp"

namespace weft::onnx {

/// The type of 2 or 4 bits that the file has for an input which is stored; 0 for other types, and for other inputs.
std::int64_t narrow_type(const Application& a, std::size_t i);
/// x clamped to the range of an integer type, and cast to it.
Tensor saturated(const Tensor& x, DType type);
/// (q - zero point) scale of input `x`, in the scale's type. A scale of one element, or one for each slice along `axis`.
Tensor real_values(const Application& a, std::size_t x, std::size_t scale, std::size_t zero, int axis = 0);
/// round(x / scale) + zero point in the type of the zero point (u8 if it is left out), of inputs of one element.
Tensor integer_values(const Application& a, const Tensor& x, std::size_t scale, std::size_t zero);
/// The product in i32 of two matrices of integers less their zero points, which may be undefined. The left ones are of rows.
Tensor centred_product(const Tensor& left, const Tensor& left_zero, const Tensor& right, const Tensor& right_zero);
/// A scale, a zero point and the integers [0, 255] of all elements: the results of DynamicQuantizeLinear.
struct DynamicIntegers {
  Tensor values, scale, zero;
};
DynamicIntegers dynamic_integers(const Tensor& x);
/// DynamicQuantizeLSTM.
void lstm_of_integers(Application& a);

}  // namespace weft::onnx
