// A matrix of integers with scales for groups of inputs, as GPTQ, AWQ and MLX store one: what it holds, and its values in a
// type of this project.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "io/tensor_source.hpp"

namespace weft::io {

/// How a layer's integers q, scales s, zero points z and offsets b are laid out, for a matrix of n rows (outputs) and k
/// columns (inputs) with G groups of columns. Integers of B bits are a little-endian stream of bits in words of 32 bits.
///
///   gptq_v1, gptq_v2  qweight [k B/32, n], a stream down each column; qzeros [G, n B/32], a stream along each row;
///                     scales [G, n]; g_idx [k], the group of each input. s (q - z); v1 stores z - 1, modulo 2^B
///   awq               qweight [k, n/8] and qzeros [G, n/8] of 4 bits, in which the eight places of a word, from the lowest,
///                     hold the outputs 0, 2, 4, 6, 1, 3, 5, 7; scales [G, n]. s (q - z)
///   mlx               weight [n, k B/32], a stream along each row; scales and biases [n, G]. s q + b
///   mlx_mxfp4         weight [n, k/8], elements of e2m1; scales [n, k/32], exponents e: 2^(e - 127) q
enum class IntegerPacking : std::uint8_t { gptq_v1, gptq_v2, awq, mlx, mlx_mxfp4 };

struct IntegerFormat {
  IntegerPacking packing = IntegerPacking::gptq_v1;
  int bits = 4;           ///< of MLX, whose tensors leave it open; the other packings tell it by their shapes
  Extent group_size = 0;  ///< columns that share a scale; 0: all
};

/// The tensors of a layer; `zeros` are MLX's biases. Null where a packing has none.
struct IntegerTensors {
  const SourceTensor *codes = nullptr, *scales = nullptr, *zeros = nullptr, *group_of_input = nullptr;
};

class IntegerLayer {
 public:
  /// `source` opens messages. Errors: FileError for tensors that are missing, or have types or shapes that do not fit each
  /// other, for groups outside of those with scales, and for scales that are NaN or infinite.
  IntegerLayer(const IntegerFormat& format, const IntegerTensors& tensors, std::string source);

  Shape shape() const { return {rows_, columns_}; }
  int bits() const { return format_.bits; }
  /// The smallest type that holds every value exactly: Q4_0, Q5_0 and Q8_0 if all q - z are within 4, 5 or 8 bits, Q4_1
  /// and Q5_1 for s q + b, MXFP4. F16 where there is none, which rounds each value to 11 bits; F32 if F16 would overflow.
  BlockType type() const { return type_; }
  /// Why no type of blocks holds the values; "" if one does.
  std::string_view reason() const { return reason_; }
  /// Writes the blocks of the matrix [rows, columns], on all threads.
  void write(std::span<std::byte> blocks) const;

 private:
  struct Tile;
  [[noreturn]] void fail(const SourceTensor& tensor, const std::string& fact) const;
  void check_types() const;
  void read_shape();
  void check_groups();
  void choose_type();
  bool is_mlx() const { return format_.packing == IntegerPacking::mlx || format_.packing == IntegerPacking::mlx_mxfp4; }
  bool has_offsets() const { return format_.packing == IntegerPacking::mlx; }
  /// Of the group and row, from the tensors.
  float number(const SourceTensor& tensor, std::size_t group, std::size_t row) const;
  int zero(std::size_t group, std::size_t row) const;
  std::size_t group_of(std::size_t column) const;
  void read(Tile& tile, std::size_t first_row, std::size_t row_count) const;
  void write_row(const Tile& tile, std::size_t row, std::byte* to) const;

  IntegerFormat format_;
  SourceTensor codes_, scales_, zeros_, group_of_input_;  // their data is in mapped files
  bool is_in_order_ = true;                               // columns of a group follow each other
  std::string source_;
  Extent rows_ = 0, columns_ = 0, groups_ = 0;
  BlockType type_ = BlockType::f32;
  std::string_view reason_;
};

}  // namespace weft::io
