#include "io/integer_layer.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "base/half.hpp"
#include "base/quote.hpp"
#include "base/threads.hpp"
#include "tensor/block_codec.hpp"
#include "tensor/block_read.hpp"
#include "weft/error.hpp"

namespace weft::io {
namespace {

constexpr std::size_t kTileRows =
    32;  // whole words of every packing, and a line of a processor's cache of those across rows
constexpr std::size_t kBlockColumns = 32;
constexpr int kAwqPlaces[8] = {0, 4, 1, 5, 2, 6, 3, 7};  // of each output within a word

std::uint32_t word_at(std::span<const std::byte> words, std::size_t index) {
  return codec::load<std::uint32_t>(words.data() + 4 * index);
}

/// Integer i of a stream of words `stride` apart.
unsigned integer_at(std::span<const std::byte> words, std::size_t first, std::size_t stride, std::size_t i, int bits) {
  const std::size_t bit = i * static_cast<std::size_t>(bits), at = bit / 32, shift = bit % 32;
  std::uint64_t pair = word_at(words, first + at * stride);
  if (shift + static_cast<std::size_t>(bits) > 32)
    pair |= std::uint64_t{word_at(words, first + (at + 1) * stride)} << 32;
  return static_cast<unsigned>(pair >> shift) & ((1u << bits) - 1);
}

/// Output `row` of a row of AWQ's words that begins at `first`.
unsigned awq_integer_at(std::span<const std::byte> words, std::size_t first, std::size_t row) {
  return word_at(words, first + row / 8) >> 4 * kAwqPlaces[row % 8] & 15;
}

bool is_exact_f16(float value) { return f32_from_f16(f16_from_f32(value)) == value; }

}  // namespace

/// Some rows of a layer: integers by column; scales, and offsets or zero points, by group.
struct IntegerLayer::Tile {
  std::vector<std::uint8_t> q;
  std::vector<float> scales, offsets;
  std::vector<int> zeros;
};

IntegerLayer::IntegerLayer(const IntegerFormat& format, const IntegerTensors& tensors, std::string source)
    : format_(format), source_(std::move(source)) {
  const char* missing = !tensors.codes    ? "packed integers"
                        : !tensors.scales ? "scales"
                        : tensors.zeros || format.packing == IntegerPacking::mlx_mxfp4
                            ? nullptr
                            : (has_offsets() ? "biases" : "zero points (qzeros)");
  if (missing) throw FileError(fmt::format("{}: the layer has no {}; is the file whole?", source_, missing));
  codes_ = *tensors.codes;
  scales_ = *tensors.scales;
  if (tensors.zeros) zeros_ = *tensors.zeros;
  if (tensors.group_of_input) group_of_input_ = *tensors.group_of_input;
  check_types();
  read_shape();
  check_groups();
  choose_type();
}

void IntegerLayer::fail(const SourceTensor& tensor, const std::string& fact) const {
  throw FileError(fmt::format("{}: {} is {} {}; {}", source_, quote(tensor.name), tensor.type_name,
                              tensor.shape.to_string(), fact));
}

void IntegerLayer::check_types() const {
  const auto is_float = [](const SourceTensor& t) {
    return t.type == BlockType::f16 || t.type == BlockType::bf16 || t.type == BlockType::f32;
  };
  const auto is_words = [](const SourceTensor& t) { return t.type_name == "I32" || t.type_name == "U32"; };
  for (const SourceTensor* tensor : {&codes_, &scales_, zeros_.type_name.empty() ? nullptr : &zeros_})
    if (tensor && (tensor->shape.rank() != 2 || tensor->shape.numel() == 0)) fail(*tensor, "it must be a matrix");
  if (!is_words(codes_)) fail(codes_, "packed integers are I32 or U32");
  if (format_.packing == IntegerPacking::mlx_mxfp4) {
    if (scales_.type_name != "U8") fail(scales_, "scales of mxfp4 are U8");
    return;
  }
  if (!is_float(scales_)) fail(scales_, "scales are F16, BF16 or F32");
  if (has_offsets() ? !is_float(zeros_) : !is_words(zeros_))
    fail(zeros_, has_offsets() ? "biases are F16, BF16 or F32" : "packed zero points are I32 or U32");
}

void IntegerLayer::read_shape() {
  const bool is_awq = format_.packing == IntegerPacking::awq;
  const int output_axis = is_mlx() ? 0 : 1;
  rows_ = scales_.shape[output_axis];
  groups_ = scales_.shape[1 - output_axis];
  if (has_offsets() && zeros_.shape != scales_.shape)
    fail(zeros_, fmt::format("biases have the shape of scales, {}", scales_.shape.to_string()));
  if (!is_mlx()) {
    // A word of zero points holds those of 32 / bits outputs.
    const Extent words = zeros_.shape[1], bits = words > rows_ ? 0 : words * 32 / rows_;
    const bool is_known = is_awq ? bits == 4 : bits == 2 || bits == 3 || bits == 4 || bits == 8;
    if (!is_known || words * 32 != rows_ * bits || zeros_.shape[0] != groups_)
      fail(zeros_, fmt::format("beside scales {} that is not {} bits for each", scales_.shape.to_string(),
                               is_awq ? "4" : "2, 3, 4 or 8"));
    format_.bits = static_cast<int>(bits);
  }
  const Extent outputs = codes_.shape[output_axis], words = codes_.shape[1 - output_axis];
  if ((is_awq ? 8 * outputs : outputs) != rows_)
    fail(codes_, fmt::format("it has other outputs than its scales {}", scales_.shape.to_string()));
  columns_ = is_awq ? words : words * 32 / format_.bits;
  if (!is_awq && columns_ * format_.bits != words * 32)
    fail(codes_, fmt::format("{} words do not divide into integers of {} bits", words, format_.bits));
}

void IntegerLayer::check_groups() {
  if (format_.group_size <= 0) format_.group_size = columns_;
  // The last group may be incomplete.
  if ((columns_ + format_.group_size - 1) / format_.group_size != groups_)
    fail(scales_, fmt::format("{} inputs in groups of {} have other scales; does config.json belong to the file?",
                              columns_, format_.group_size));
  if (group_of_input_.data.empty()) return;
  if (group_of_input_.type_name != "I32" || group_of_input_.shape != Shape{columns_})
    fail(group_of_input_, fmt::format("the groups of inputs are I32 [{}]", columns_));
  for (std::size_t c = 0; c < static_cast<std::size_t>(columns_); ++c) {
    const auto group = codec::load<std::int32_t>(group_of_input_.data.data() + 4 * c);
    if (group < 0 || group >= groups_)
      fail(group_of_input_, fmt::format("input {} is of group {}, and there are {}", c, group, groups_));
    is_in_order_ = is_in_order_ && group == static_cast<Extent>(c) / format_.group_size;
  }
}

void IntegerLayer::choose_type() {
  if (format_.packing == IntegerPacking::mlx_mxfp4) {
    type_ = BlockType::mxfp4;
    if (format_.bits != 4 || format_.group_size != static_cast<Extent>(kBlockColumns))
      fail(codes_,
           fmt::format("mxfp4 has 4 bits and groups of 32, not {} bits and {}", format_.bits, format_.group_size));
    return;
  }
  const auto groups = static_cast<std::size_t>(groups_), rows = static_cast<std::size_t>(rows_);
  const int most = (1 << format_.bits) - 1;
  bool is_exact = true;
  int least_zero = most, largest_zero = 0;
  float largest = 0;
  for (std::size_t group = 0; group < groups; ++group)
    for (std::size_t row = 0; row < rows; ++row) {
      const float s = number(scales_, group, row), b = has_offsets() ? number(zeros_, group, row) : 0;
      if (!std::isfinite(s) || !std::isfinite(b))
        throw FileError(
            fmt::format("{}: {}: the scale of group {} of output {} is NaN or infinite; the file is damaged: "
                        "fetch it again",
                        source_, quote(scales_.name), group, row));
      is_exact = is_exact && is_exact_f16(s) && is_exact_f16(b);
      largest = std::max(largest, std::abs(s) * static_cast<float>(most) + std::abs(b));
      if (has_offsets()) continue;
      const int z = zero(group, row);
      least_zero = std::min(least_zero, z);
      largest_zero = std::max(largest_zero, z);
    }
  // q - z within [-2^(n-1), 2^(n-1)).
  const auto fits = [&](int bits) { return largest_zero <= 1 << (bits - 1) && most - least_zero < 1 << (bits - 1); };
  if (!is_in_order_)
    reason_ = "their inputs are grouped in another order (act-order)";
  else if (format_.group_size % static_cast<Extent>(kBlockColumns) != 0 && groups_ > 1)
    reason_ = "their groups do not divide into blocks of 32";
  else if (columns_ % static_cast<Extent>(kBlockColumns) != 0)
    reason_ = "their rows do not divide into blocks of 32";
  else if (!is_exact)
    reason_ = "their scales have no exact values in F16";
  else if (has_offsets() ? format_.bits > 5 : !fits(8))
    reason_ = "no type of blocks has so many bits with an offset";
  if (!reason_.empty())
    type_ = largest < 65504 ? BlockType::f16 : BlockType::f32;
  else if (has_offsets())
    type_ = format_.bits <= 4 ? BlockType::q4_1 : BlockType::q5_1;
  else
    type_ = fits(4) ? BlockType::q4_0 : fits(5) ? BlockType::q5_0 : BlockType::q8_0;
}

float IntegerLayer::number(const SourceTensor& tensor, std::size_t group, std::size_t row) const {
  const std::size_t index =
      is_mlx() ? row * static_cast<std::size_t>(groups_) + group : group * static_cast<std::size_t>(rows_) + row;
  switch (*tensor.type) {
    case BlockType::f16: return f32_from_f16(codec::load<std::uint16_t>(tensor.data.data() + 2 * index));
    case BlockType::bf16: return f32_from_bf16(codec::load<std::uint16_t>(tensor.data.data() + 2 * index));
    default: return codec::load<float>(tensor.data.data() + 4 * index);
  }
}

int IntegerLayer::zero(std::size_t group, std::size_t row) const {
  const std::size_t first = group * static_cast<std::size_t>(zeros_.shape[1]);
  if (format_.packing == IntegerPacking::awq) return static_cast<int>(awq_integer_at(zeros_.data, first, row));
  const unsigned stored = integer_at(zeros_.data, first, 1, row, format_.bits);
  if (format_.packing == IntegerPacking::gptq_v2) return static_cast<int>(stored);
  return static_cast<int>((stored + 1) & ((1u << format_.bits) - 1));
}

std::size_t IntegerLayer::group_of(std::size_t column) const {
  if (is_in_order_) return column / static_cast<std::size_t>(format_.group_size);
  return static_cast<std::size_t>(codec::load<std::int32_t>(group_of_input_.data.data() + 4 * column));
}

void IntegerLayer::read(Tile& tile, std::size_t first_row, std::size_t row_count) const {
  const auto columns = static_cast<std::size_t>(columns_), groups = static_cast<std::size_t>(groups_);
  const auto stride = static_cast<std::size_t>(codes_.shape[1]);
  tile.q.resize(row_count * columns);
  // Down the columns of the file's matrix, so that a line of it is read once.
  if (is_mlx()) {
    for (std::size_t r = 0; r < row_count; ++r)
      for (std::size_t c = 0; c < columns; ++c)
        tile.q[r * columns + c] =
            static_cast<std::uint8_t>(integer_at(codes_.data, (first_row + r) * stride, 1, c, format_.bits));
  } else {
    for (std::size_t c = 0; c < columns; ++c)
      for (std::size_t r = 0; r < row_count; ++r)
        tile.q[r * columns + c] = static_cast<std::uint8_t>(
            format_.packing == IntegerPacking::awq ? awq_integer_at(codes_.data, c * stride, first_row + r)
                                                   : integer_at(codes_.data, first_row + r, stride, c, format_.bits));
  }
  tile.scales.assign(row_count * groups, 0);
  tile.offsets.assign(row_count * groups, 0);
  tile.zeros.assign(row_count * groups, 0);
  for (std::size_t r = 0; r < row_count; ++r)
    for (std::size_t g = 0; g < groups; ++g) {
      const std::size_t at = r * groups + g;
      if (format_.packing == IntegerPacking::mlx_mxfp4) {
        // The table of e2m1 is doubled, so its scales are halved.
        tile.scales[at] = codec::half_scale(static_cast<unsigned>(scales_.data[(first_row + r) * groups + g]));
        continue;
      }
      tile.scales[at] = number(scales_, g, first_row + r);
      if (has_offsets())
        tile.offsets[at] = number(zeros_, g, first_row + r);
      else
        tile.zeros[at] = zero(g, first_row + r);
    }
}

void IntegerLayer::write_row(const Tile& tile, std::size_t row, std::byte* to) const {
  const auto columns = static_cast<std::size_t>(columns_), groups = static_cast<std::size_t>(groups_);
  const std::uint8_t* q = tile.q.data() + row * columns;
  const BlockFormat& format = block_format(type_);
  if (format.is_plain()) {
    for (std::size_t c = 0; c < columns; ++c) {
      const std::size_t at = row * groups + group_of(c);
      const float value = tile.scales[at] * static_cast<float>(q[c] - tile.zeros[at]) + tile.offsets[at];
      if (type_ == BlockType::f16)
        codec::store(to + 2 * c, f16_from_f32(value));
      else
        codec::store(to + 4 * c, value);
    }
    return;
  }
  const int centre = type_ == BlockType::q4_0 ? 8 : type_ == BlockType::q5_0 ? 16 : 0;
  UnpackedBlock block;
  for (std::size_t c = 0; c < columns; c += kBlockColumns, to += format.block_bytes) {
    const std::size_t at = row * groups + group_of(c);
    block.single = tile.scales[at];
    block.scale = f16_from_f32(tile.scales[at]);
    block.minimum = f16_from_f32(tile.offsets[at]);
    for (std::size_t i = 0; i < kBlockColumns; ++i)
      block.q[i] = static_cast<std::uint8_t>(q[c + i] - tile.zeros[at] + centre);
    write_block(type_, block, to);
  }
}

void IntegerLayer::write(std::span<std::byte> blocks) const {
  const auto rows = static_cast<std::size_t>(rows_);
  const std::size_t row_bytes = blocks.size() / rows;
  if (blocks.size() != bytes_for(type_, shape(), source_))
    throw UsageError(
        fmt::format("{}: {} bytes for {} {}", source_, blocks.size(), file_name_of(type_), shape().to_string()));
  parallel_for(static_cast<std::int64_t>((rows + kTileRows - 1) / kTileRows), [&](std::int64_t task) {
    const std::size_t first = static_cast<std::size_t>(task) * kTileRows, count = std::min(kTileRows, rows - first);
    thread_local Tile tile;
    read(tile, first, count);
    for (std::size_t r = 0; r < count; ++r) write_row(tile, r, blocks.data() + (first + r) * row_bytes);
  });
}

}  // namespace weft::io
