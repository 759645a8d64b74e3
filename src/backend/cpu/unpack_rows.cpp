#include "backend/cpu/unpack_rows.hpp"

#include <algorithm>
#include <cstdint>
#include <vector>

#include "backend/cpu/quant/matmul.hpp"
#include "base/threads.hpp"
#include "graph/node.hpp"

namespace weft::cpu {

void run_unpack_rows(const kernel::CallKernel& kernel, std::span<char* const> reads, std::span<char* const> outs) {
  const Extent count = kernel.shape()[0], width = kernel.shape()[1];
  const Extent rows_in = graph::rows_of(kernel.shapes[0]);
  const QuantisedMatrix matrix = QuantisedMatrix::view(
      kernel.types[0],
      {reinterpret_cast<const std::byte*>(reads[0]), static_cast<std::size_t>(kernel.reads[0].count) * 4}, rows_in,
      width);
  const auto* rows = reinterpret_cast<const std::int32_t*>(reads[1]);
  auto* to = reinterpret_cast<float*>(outs[0]);
  // Consecutive valid rows are unpacked together.
  for (Extent t = 0; t < count;) {
    Extent end = t;
    while (end < count && rows[end] >= 0 && rows[end] < rows_in) ++end;
    if (end > t) quant_gather(matrix, {rows + t, static_cast<std::size_t>(end - t)}, to + t * width, width);
    if (end < count) std::fill_n(to + end++ * width, width, 0.0f);
    t = end;
  }
}

void run_pack_rows(const kernel::CallKernel& kernel, std::span<char* const> reads, std::span<char* const> outs) {
  const DType type = kernel.out_types[0];
  const Extent rows = graph::rows_of(kernel.shape()), columns = graph::columns_of(kernel.shape());
  if (rows * columns == 0) return;
  const std::size_t row_bytes = bytes_of(type, static_cast<std::size_t>(columns));
  const auto* values = reinterpret_cast<const float*>(reads[0]);
  std::vector<std::byte> blocks(static_cast<std::size_t>(rows) * row_bytes);
  parallel_for(rows, [&](Extent row) {
    quantise(type, {values + row * columns, static_cast<std::size_t>(columns)},
             std::span(blocks).subspan(static_cast<std::size_t>(row) * row_bytes, row_bytes));
  });
  QuantisedMatrix::pack_into(
      type, blocks, rows, columns,
      {reinterpret_cast<std::byte*>(outs[0]), static_cast<std::size_t>(kernel.outs[0].count) * 4});
}

}  // namespace weft::cpu
