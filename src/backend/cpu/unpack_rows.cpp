#include "backend/cpu/unpack_rows.hpp"

#include <algorithm>
#include <cstdint>

#include "backend/cpu/quant/matmul.hpp"
#include "compile/call_attributes.hpp"
#include "graph/cache.hpp"

namespace weft::cpu {

void run_unpack_rows(const kernel::CallKernel& kernel, std::span<char* const> reads, std::span<char* const> outs) {
  const auto a = kernel::attributes_of<graph::UnpackRows>(kernel);
  const Extent count = kernel.shape()[0], width = kernel.shape()[1];
  const QuantisedMatrix matrix = QuantisedMatrix::view(
      static_cast<BlockType>(a.block_type),
      {reinterpret_cast<const std::byte*>(reads[0]), static_cast<std::size_t>(kernel.shapes[0].numel()) * 4}, a.n,
      width);
  const auto* rows = reinterpret_cast<const std::int32_t*>(reads[1]);
  auto* to = reinterpret_cast<float*>(outs[0]);
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
