#include "llm/convert_values.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "base/quote.hpp"
#include "weft/error.hpp"

namespace weft::llm {

void put_as(BlockType type, const std::vector<float>& values, const io::TensorSource& source, std::string_view name,
            const std::function<void(std::span<const std::byte>)>& put) {
  if (type == BlockType::f32) return put(std::as_bytes(std::span(values)));
  std::vector<std::byte> bytes(values.size() * 2);
  quantise(type, values, bytes);
  if (const auto bad = find_not_finite(type, bytes))
    throw FileError(fmt::format("{}: {}: element {} is too large for {}; take --type BF16 or F32",
                                source.path().string(), quote(name), *bad, file_name_of(type)));
  put(bytes);
}

std::vector<float> with_rows_turned(const std::vector<float>& values, Extent heads, Extent dims, std::size_t width,
                                    bool to_neighbours) {
  std::vector<float> turned = values;
  const std::size_t rows = values.size() / width, head_rows = rows / static_cast<std::size_t>(heads),
                    pairs = static_cast<std::size_t>(dims) / 2;
  for (std::size_t head = 0; head < rows; head += head_rows)
    for (std::size_t i = 0; i < pairs; ++i)
      for (std::size_t member = 0; member < 2; ++member) {
        const std::size_t half = head + i + member * pairs, neighbour = head + 2 * i + member;
        const std::size_t source = to_neighbours ? half : neighbour, target = to_neighbours ? neighbour : half;
        std::copy_n(values.begin() + static_cast<std::ptrdiff_t>(source * width), width,
                    turned.begin() + static_cast<std::ptrdiff_t>(target * width));
      }
  return turned;
}

}  // namespace weft::llm
