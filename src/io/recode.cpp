#include "io/recode.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "base/quote.hpp"
#include "base/threads.hpp"
#include "weft/error.hpp"

namespace weft::io {
namespace {

// Whole blocks of every format. A task is some milliseconds of work, a piece enough tasks for any number of cores.
constexpr std::size_t kRecodeElements = 1 << 14;
constexpr std::size_t kPieceElements = 256 * kRecodeElements;

}  // namespace

void recode(const TensorSource& source, const SourceTensor& given, BlockType type,
            FunctionRef<void(std::span<const std::byte>)> put) {
  const LoadedTensor whole = TensorSource::loaded(given);
  const SourceTensor& tensor = whole.tensor;
  source.require_finite(tensor);
  if (*tensor.type == type) return put(tensor.data);
  const BlockType from = *tensor.type;
  const std::size_t total = static_cast<std::size_t>(tensor.shape.numel());
  std::vector<std::byte> piece;
  for (std::size_t begin = 0; begin < total; begin += kPieceElements) {
    const std::size_t count = std::min(kPieceElements, total - begin);
    const std::span<const std::byte> data = tensor.data.subspan(bytes_of(from, begin), bytes_of(from, count));
    piece.resize(bytes_of(type, count));
    parallel_for(static_cast<std::int64_t>((count + kRecodeElements - 1) / kRecodeElements), [&](std::int64_t task) {
      const std::size_t first = static_cast<std::size_t>(task) * kRecodeElements;
      const std::size_t n = std::min(kRecodeElements, count - first);
      thread_local std::vector<float> values;
      values.resize(n);
      dequantise(from, data.subspan(bytes_of(from, first), bytes_of(from, n)), values);
      quantise(type, values, std::span(piece).subspan(bytes_of(type, first), bytes_of(type, n)));
    });
    if (const auto bad = find_not_finite(type, piece))
      throw FileError(
          fmt::format("{}: tensor {}: element {} is too large for {}; keep its type or take one of a wider range",
                      source.path().string(), quote(tensor.name), begin + *bad, file_name_of(type)));
    put(piece);
  }
}

}  // namespace weft::io
