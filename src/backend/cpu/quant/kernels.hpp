// The functions of an instruction set for matmul.cpp: packing of activations, and kernels over panels of their rows.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "backend/cpu/quant/format.hpp"

namespace weft::cpu {

/// A panel is some rows of x, in the order in which a kernel of that height reads them: block after block along k; for each
/// block the values, row after row, and then the numbers below as [kind][row].
///
/// Eight bits: 32 signed bytes a row; the scale (f32); minus the sums (i32) of the first 16, the last 16 and all; the
/// scale times those sums (f32), not negated. Exact: 32 floats a row; their sums as floats, likewise three.
constexpr std::int64_t eight_bit_panel_bytes(std::int64_t height, std::int64_t blocks) { return 60 * height * blocks; }
constexpr std::int64_t exact_panel_bytes(std::int64_t height, std::int64_t blocks) { return 140 * height * blocks; }

struct QuantTile {
  const std::byte* weights;  // the first group of 16 columns of y
  std::int64_t group_bytes;
  std::int64_t blocks;
  std::int64_t columns;  // of y, in all groups; the last group may have fewer than 16
  const std::byte* x;    // a panel
  float* y;
  std::int64_t y_row;
  int rows;  // existing rows of the panel
  // For kernels that take panels together:
  std::int64_t panels = 1, panel_bytes = 0;  // x has this many, one after another; `rows` exist of all
  std::byte* scratch = nullptr;              // `kQuantScratchBytes` for each block, at a multiple of 64
};

/// A block of a group as bytes, with scales and minimums as floats.
inline constexpr std::int64_t kQuantScratchBytes = kQuantGroup * (kQuantBlock + 4 * 4);

inline constexpr int kQuantHeights = 5;

struct QuantKernels {
  using Tile = void (*)(const QuantTile&);
  using Pack = void (*)(const float* x, std::int64_t x_row, int rows, int height, std::int64_t k, std::byte* panel);

  const char* name;
  /// Heights that panels may have, ascending, 0 after the last. Each row's result is the same in all of them.
  int eight_bit_heights[kQuantHeights], exact_heights[kQuantHeights];
  Tile eight_bit[kQuantTypeCount][kQuantHeights];  // by `quant_index` and height; none for plain formats
  bool panels_together;                            // eight-bit kernels of the greatest height take several panels
  Tile exact[kQuantTypeCount][kQuantHeights];
  /// Panels of `rows` rows of k elements; rows up to `height` and k up to whole blocks are filled with zeros. In eight bits, a
  /// block that is not finite makes every product with it NaN.
  Pack pack_eight_bit[2], pack_exact;  // [1]: with the integer -128
  bool has_dot;

  /// Whether products with this format accept -128. If pairs of products are summed in 16 bits, it would overflow with
  /// eight-bit weights.
  bool takes_full_range(const QuantFormat& format) const { return has_dot || format.max <= 127; }
};

namespace baseline {
extern const QuantKernels kQuant;
}
namespace neon {
const QuantKernels& quant_dot();  // only its eight-bit kernels are others
}
namespace avx2 {
extern const QuantKernels kQuant;
const QuantKernels& quant_vnni();  // only its eight-bit kernels are others
}  // namespace avx2
namespace avx512 {
extern const QuantKernels kQuant;
const QuantKernels& quant_vnni();
const QuantKernels& quant_amx();
}  // namespace avx512

/// The best for `isa()`.
const QuantKernels& quant_kernels();
/// All kernels that this processor can run, for tests.
std::span<const QuantKernels* const> runnable_quant_kernels();

}  // namespace weft::cpu
