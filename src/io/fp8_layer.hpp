// A matrix in FP8 with scales for tiles of it, as fp8, fbgemm_fp8, compressed-tensors and ModelOpt store one.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "io/tensor_source.hpp"

namespace weft::io {

/// The rows and columns of a matrix that share a scale; 0: all of them. Tiles at the end may be incomplete.
struct Fp8Tile {
  Extent rows = 0, columns = 0;
};

class Fp8Layer {
 public:
  /// `codes`: F8_E4M3 [n, k]. `scales`: one for each tile, [ceil(n / rows), ceil(k / columns)]; axes of length 1 may be left out.
  /// The first of `tiles` that fits the shape of the scales is used. `source` opens messages.
  /// Errors: FileError for other shapes and types, and for scales that are NaN or infinite.
  Fp8Layer(const std::vector<Fp8Tile>& tiles, const SourceTensor& codes, const SourceTensor& scales,
           std::string source);

  Shape shape() const { return codes_.shape; }
  /// F16, which rounds to 11 bits, where the largest number of each tile, 448 times its scale, is a normal number of F16 (or
  /// all of the tile is 0). Else BF16, which rounds to 8 bits and has the range of F32.
  BlockType type() const { return type_; }
  /// Writes the matrix in that type on all threads: each code times its scale, in f32, rounded once more.
  void write(std::span<std::byte> values) const;

 private:
  [[noreturn]] void fail(const SourceTensor& tensor, const std::string& fact) const;
  void read_scales();
  void choose_tile(const std::vector<Fp8Tile>& tiles);

  SourceTensor codes_, scales_tensor_;  // their data is in mapped files
  std::string source_;
  Fp8Tile tile_;
  Extent tiles_of_row_ = 1;
  std::vector<float> scales_;
  BlockType type_ = BlockType::f16;
};

}  // namespace weft::io
