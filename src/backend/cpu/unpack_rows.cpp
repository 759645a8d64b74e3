#include "backend/cpu/unpack_rows.hpp"

#include <algorithm>
#include <cstdint>

#include "backend/cpu/quant/matmul.hpp"

namespace weft::cpu {

void run_unpack_rows(const kernel::RoutineKernel& kernel, std::span<char* const> reads, char* out) {
  const ops::UnpackRows a = ops::unpack_rows_of(kernel.attributes);
  const Extent count = kernel.shape[0], width = kernel.shape[1];
  const QuantisedMatrix matrix = QuantisedMatrix::view(
      static_cast<BlockType>(a.block_type),
      {reinterpret_cast<const std::byte*>(reads[0]), static_cast<std::size_t>(kernel.shapes[0].numel()) * 4}, a.n,
      width);
  const auto* rows = reinterpret_cast<const std::int32_t*>(reads[1]);
  auto* to = reinterpret_cast<float*>(out);
  // Runs of rows inside go together.
  for (Extent t = 0; t < count;) {
    Extent end = t;
    while (end < count && rows[end] >= 0 && rows[end] < a.n) ++end;
    if (end > t) quant_gather(matrix, {rows + t, static_cast<std::size_t>(end - t)}, to + t * width, width);
    if (end < count) std::fill_n(to + end++ * width, width, 0.0f);
    t = end;
  }
}

}  // namespace weft::cpu
