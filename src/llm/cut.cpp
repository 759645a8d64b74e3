#include "llm/cut.hpp"

#include <fmt/format.h>

#include <cstring>

#include "base/quote.hpp"
#include "base/threads.hpp"
#include "weft/error.hpp"

namespace weft::llm {

Extent Cut::place(Extent i) const {
  const Extent width = transposed ? part_rows() : part_columns();
  Extent row = i / width, column = i % width;
  if (transposed) std::swap(row, column);
  (of_columns ? column : row) = begin + step * (of_columns ? column : row);
  return row * columns + column;
}

io::SourceTensor cut_from(const io::SourceTensor& whole, const Cut& cut, Extent first, Extent count, Shape shape) {
  io::SourceTensor part{
      fmt::format("{} [groups {} to {}, {} {} by {}{}]", whole.name, first, first + count,
                  cut.of_columns ? "columns" : "rows", cut.begin, cut.step, cut.transposed ? ", transposed" : ""),
      std::move(shape),
      whole.type_name,
      whole.type,
      {}};
  if (!whole.type) return part;
  const bool by_rows = !cut.of_columns && !cut.transposed;
  // A unit is what is copied at once: a row, or an element.
  const Shape unit = by_rows ? Shape{1, cut.columns} : Shape{1, 1};
  if (block_format(*whole.type).block_elements > 1 && (!by_rows || !rows_divide(*whole.type, cut.columns)))
    throw FileError(
        fmt::format("{}: a part of it is needed that its blocks of {} do not divide into; take a copy of the model "
                    "in F16, BF16 or F32",
                    quote(whole.name), file_name_of(*whole.type)));
  const std::size_t bytes = bytes_for(*whole.type, unit, whole.name);
  const Extent units = by_rows ? cut.count : cut.numel(), of_group = by_rows ? cut.rows : cut.rows * cut.columns;
  part.make = [whole, cut, first, count, by_rows, bytes, units, of_group](std::span<std::byte> to) {
    const io::LoadedTensor loaded = io::TensorSource::loaded(whole);
    const std::byte* from = loaded.tensor.data.data();
    parallel_for(count, [&](Extent group) {
      const std::byte* source = from + static_cast<std::size_t>((first + group) * of_group) * bytes;
      std::byte* target = to.data() + static_cast<std::size_t>(group * units) * bytes;
      for (Extent i = 0; i < units; ++i, target += bytes) {
        const Extent at = by_rows ? cut.begin + cut.step * i : cut.place(i);
        std::memcpy(target, source + static_cast<std::size_t>(at) * bytes, bytes);
      }
    });
  };
  return part;
}

}  // namespace weft::llm
