// Plain numbers as rows of the table of block formats: blocks of one element.
#include "tensor/block_codec.hpp"

namespace weft::codec {
namespace {

template <class T>
void convert(const std::byte* from, float* to, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) to[i] = static_cast<float>(load<T>(from + i * sizeof(T)));
}

}  // namespace

void dequantise_f32(const std::byte* from, float* to, std::size_t count) {
  if (count > 0) std::memcpy(to, from, count * sizeof *to);  // without elements the pointers may be null
}
void quantise_f32(const float* from, std::byte* to, std::size_t count) {
  if (count > 0) std::memcpy(to, from, count * sizeof *from);
}

void dequantise_f16(const std::byte* from, float* to, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) to[i] = f32_from_f16(load<std::uint16_t>(from + 2 * i));
}
void quantise_f16(const float* from, std::byte* to, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) store(to + 2 * i, f16_from_f32(from[i]));
}

void dequantise_bf16(const std::byte* from, float* to, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) to[i] = f32_from_bf16(load<std::uint16_t>(from + 2 * i));
}
void quantise_bf16(const float* from, std::byte* to, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) store(to + 2 * i, bf16_from_f32(from[i]));
}

void dequantise_f64(const std::byte* from, float* to, std::size_t count) { convert<double>(from, to, count); }
void quantise_f64(const float* from, std::byte* to, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) store(to + 8 * i, static_cast<double>(from[i]));
}

void dequantise_i8(const std::byte* from, float* to, std::size_t count) { convert<std::int8_t>(from, to, count); }
void dequantise_i16(const std::byte* from, float* to, std::size_t count) { convert<std::int16_t>(from, to, count); }
void dequantise_i32(const std::byte* from, float* to, std::size_t count) { convert<std::int32_t>(from, to, count); }
void dequantise_i64(const std::byte* from, float* to, std::size_t count) { convert<std::int64_t>(from, to, count); }

}  // namespace weft::codec
