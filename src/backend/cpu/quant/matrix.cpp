// Packed weights: their memory, packing on all threads, rows read back.
#include <algorithm>
#include <cstdlib>
#include <new>
#include <vector>

#include <fmt/format.h>

#if defined(__linux__)
#include <sys/mman.h>
#endif

#include "backend/cpu/quant/matmul.hpp"
#include "backend/cpu/quant/pack.hpp"
#include "base/checked.hpp"
#include "base/threads.hpp"
#include "base/xxh64.hpp"
#include "weft/error.hpp"

namespace weft::cpu {
namespace {

using std::int64_t;

constexpr int64_t kLine = 64;
constexpr int64_t kHugePage = 2 * 1024 * 1024;
constexpr int64_t kPartBytes = 4 * 1024 * 1024;  // packed at a time: all threads are busy, and little is held twice

int64_t groups_of(int64_t n) { return (n + kQuantGroup - 1) / kQuantGroup; }
int64_t blocks_of(int64_t k) { return (k + kQuantBlock - 1) / kQuantBlock; }

std::shared_ptr<std::byte> allocate(int64_t bytes) {
  const int64_t page = bytes >= 2 * kHugePage ? kHugePage : kLine;
  const auto rounded = static_cast<std::size_t>((bytes + page - 1) / page * page);
  void* memory = std::aligned_alloc(static_cast<std::size_t>(page), rounded);
  if (memory == nullptr && rounded > 0) throw std::bad_alloc();
#if defined(__linux__)
  if (page == kHugePage) madvise(memory, rounded, MADV_HUGEPAGE);
#endif
  return {static_cast<std::byte*>(memory), [](std::byte* p) { std::free(p); }};
}

int64_t row_bytes(BlockType type, int64_t k) {
  const BlockFormat& format = block_format(type);
  return k / static_cast<int64_t>(format.block_elements) * static_cast<int64_t>(format.block_bytes);
}

}  // namespace

bool QuantisedMatrix::supports(BlockType type) { return quant_index(type) >= 0; }

int64_t QuantisedMatrix::packed_bytes(BlockType type, int64_t n, int64_t k) {
  const BlockFormat& format = block_format(type);
  if (!supports(type))
    throw DTypeError(fmt::format(
        "quantised matrix: the CPU has no products with weights of {}; convert them to F32 or F16", format.name));
  if (n < 0 || k < 0 || k % static_cast<int64_t>(format.block_elements) != 0)
    throw ShapeError(fmt::format("quantised matrix: [{}, {}] does not divide into rows of blocks of {} ({})", n, k,
                                 format.block_elements, format.name));
  // Padding to whole groups and blocks included, at most 4 bytes an element.
  constexpr int64_t kMost = 4 * kQuantGroup * kQuantBlock;
  const int64_t elements =
      checked_multiply<ShapeError>(std::max<int64_t>(n, 1), std::max<int64_t>(k, 1), "quantised matrix");
  checked_multiply<ShapeError>(elements, kMost, "quantised matrix");
  return groups_of(n) * quant_format(type).group_bytes(blocks_of(k));
}

void QuantisedMatrix::pack_into(BlockType type, std::span<const std::byte> blocks, int64_t n, int64_t k,
                                std::span<std::byte> packed,
                                FunctionRef<void(std::span<const std::byte> part)> before) {
  const int64_t bytes = packed_bytes(type, n, k), source_row = row_bytes(type, k);
  if (static_cast<int64_t>(blocks.size()) != n * source_row)
    throw ShapeError(fmt::format("quantised matrix: {} bytes are given for [{}, {}] of {}, which takes {}",
                                 blocks.size(), n, k, block_format(type).name, n * source_row));
  if (static_cast<int64_t>(packed.size()) < bytes || reinterpret_cast<std::uintptr_t>(packed.data()) % kLine != 0)
    throw UsageError(fmt::format("quantised matrix: {} bytes at {} are given to pack into; give {} at a multiple of {}",
                                 packed.size(), static_cast<const void*>(packed.data()), bytes, kLine));
  const int64_t group_bytes = quant_format(type).group_bytes(blocks_of(k));
  const int64_t groups = groups_of(n),
                part_groups = std::max<int64_t>(1, kPartBytes / std::max<int64_t>(1, group_bytes));
  for (int64_t part = 0; part < groups; part += part_groups) {
    const int64_t part_end = std::min(groups, part + part_groups);
    const int64_t from = part * kQuantGroup * source_row, to = std::min(n, part_end * kQuantGroup) * source_row;
    if (before) before(blocks.subspan(static_cast<std::size_t>(from), static_cast<std::size_t>(to - from)));
    parallel_for(part_end - part, [&](int64_t i) {
      const int64_t group = part + i, first = group * kQuantGroup;
      const int64_t rows = n - first < kQuantGroup ? n - first : kQuantGroup;
      quant_pack_group(type, blocks.data() + first * source_row, static_cast<int>(rows), k,
                       packed.data() + group * group_bytes);
    });
  }
}

void QuantisedMatrix::restore(BlockType type, std::span<const std::byte> packed, int64_t n, int64_t k,
                              std::span<std::byte> blocks) {
  const QuantisedMatrix matrix = view(type, packed, n, k);
  const int64_t to_row = row_bytes(type, k), group_bytes = quant_format(type).group_bytes(blocks_of(k));
  if (static_cast<int64_t>(blocks.size()) != n * to_row)
    throw ShapeError(fmt::format("quantised matrix: {} bytes are given for [{}, {}] of {}, which takes {}",
                                 blocks.size(), n, k, name_of(type), n * to_row));
  parallel_for(groups_of(n), [&](int64_t group) {
    const int64_t first = group * kQuantGroup;
    for (int64_t row = first; row < std::min(n, first + kQuantGroup); ++row)
      quant_restore_row(type, matrix.data() + group * group_bytes, static_cast<int>(row - first), k,
                        blocks.data() + row * to_row);
  });
}

QuantisedMatrix QuantisedMatrix::pack(BlockType type, std::span<const std::byte> blocks, int64_t n, int64_t k) {
  const int64_t bytes = packed_bytes(type, n, k);
  std::shared_ptr<std::byte> memory = allocate(bytes);
  const std::span<std::byte> packed(memory.get(), static_cast<std::size_t>(bytes));
  pack_into(type, blocks, n, k, packed);
  QuantisedMatrix matrix = view(type, packed, n, k);
  matrix.owner_ = std::move(memory);
  return matrix;
}

QuantisedMatrix QuantisedMatrix::rows(int64_t first, int64_t count) const {
  if (first % kQuantGroup != 0 || first + count > n_ || (count % kQuantGroup != 0 && first + count != n_))
    throw UsageError(fmt::format("quantised matrix: rows {} to {} of {} are no whole groups of {}", first,
                                 first + count, n_, kQuantGroup));
  QuantisedMatrix part = without_data(type_, count, k_);
  part.data_ = data_ + first / kQuantGroup * quant_format(type_).group_bytes(blocks_of(k_));
  return part;
}

QuantisedMatrix QuantisedMatrix::without_data(BlockType type, int64_t n, int64_t k) {
  QuantisedMatrix matrix;
  matrix.type_ = type, matrix.n_ = n, matrix.k_ = k;
  matrix.bytes_ = packed_bytes(type, n, k);
  return matrix;
}

QuantisedMatrix QuantisedMatrix::view(BlockType type, std::span<const std::byte> packed, int64_t n, int64_t k) {
  QuantisedMatrix matrix = without_data(type, n, k);
  if (static_cast<int64_t>(packed.size()) < matrix.bytes_ ||
      reinterpret_cast<std::uintptr_t>(packed.data()) % kLine != 0)
    throw UsageError(fmt::format("quantised matrix: {} packed bytes at {} are given; give {} at a multiple of {}",
                                 packed.size(), static_cast<const void*>(packed.data()), matrix.bytes_, kLine));
  matrix.data_ = packed.data();
  return matrix;
}

std::uint64_t QuantisedMatrix::layout_digest(BlockType type) {
  constexpr int64_t kRows = kQuantGroup + 4,
                    kColumns = 2 * kQuantBlock * kQuantSuper;  // a full and a partial group, two superblocks
  std::vector<std::byte> blocks(static_cast<std::size_t>(kRows * row_bytes(type, kColumns)));
  std::uint32_t state = 1;
  for (std::byte& byte : blocks) byte = static_cast<std::byte>((state = state * 1664525u + 1013904223u) >> 24);
  const QuantisedMatrix matrix = pack(type, blocks, kRows, kColumns);
  return xxh64({matrix.data(), static_cast<std::size_t>(matrix.bytes())});
}

void quant_gather(const QuantisedMatrix& weights, std::span<const std::int32_t> rows, float* y, int64_t y_row) {
  for (std::size_t i = 0; i < rows.size(); ++i)
    if (rows[i] < 0 || rows[i] >= weights.n())
      throw UsageError(
          fmt::format("gather of rows: row {} at {} is outside of the matrix's {} rows", rows[i], i, weights.n()));
  const int64_t group_bytes = quant_format(weights.type()).group_bytes(blocks_of(weights.k()));
  constexpr int64_t kTask = 16;  // rows: some microseconds
  const auto count = static_cast<int64_t>(rows.size());
  parallel_for((count + kTask - 1) / kTask, [&](int64_t task) {
    for (int64_t i = task * kTask; i < count && i < (task + 1) * kTask; ++i) {
      const int64_t row = rows[static_cast<std::size_t>(i)];
      quant_unpack_row(weights.type(), weights.data() + row / kQuantGroup * group_bytes,
                       static_cast<int>(row % kQuantGroup), weights.k(), y + i * y_row);
    }
  });
}

}  // namespace weft::cpu
