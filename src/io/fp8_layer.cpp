#include "io/fp8_layer.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "base/half.hpp"
#include "base/quote.hpp"
#include "base/threads.hpp"
#include "tensor/block_codec.hpp"
#include "tensor/element.hpp"
#include "weft/error.hpp"

namespace weft::io {
namespace {

constexpr Extent kBandRows = 32;  // of a task of a thread
constexpr float kCodeMax = 448, kF16Max = 65504, kF16NormalMin = 0x1p-14f;

const std::array<float, 256>& values_of_codes() {
  static const std::array<float, 256> values = [] {
    std::array<float, 256> all{};
    for (std::uint32_t code = 0; code < 256; ++code)
      all[code] = static_cast<float>(decode_float(DType::fp8_e4m3, code));
    return all;
  }();
  return values;
}

Extent tiles_along(Extent size, Extent tile) { return tile == 0 ? 1 : (size + tile - 1) / tile; }

std::string tile_text(const Fp8Tile& tile) {
  const auto side = [](Extent n) { return n == 0 ? std::string("all") : std::to_string(n); };
  return fmt::format("{} rows by {} columns", side(tile.rows), side(tile.columns));
}

}  // namespace

Fp8Layer::Fp8Layer(const std::vector<Fp8Tile>& tiles, const SourceTensor& codes, const SourceTensor& scales,
                   std::string source)
    : codes_(codes), scales_tensor_(scales), source_(std::move(source)) {
  if (codes_.shape.rank() != 2 || codes_.shape.numel() == 0) fail(codes_, "Weft reads FP8 in matrices");
  choose_tile(tiles);
  read_scales();
}

void Fp8Layer::fail(const SourceTensor& tensor, const std::string& fact) const {
  throw FileError(fmt::format("{}: {} is {} {}; {}", source_, quote(tensor.name), tensor.type_name,
                              tensor.shape.to_string(), fact));
}

void Fp8Layer::choose_tile(const std::vector<Fp8Tile>& tiles) {
  const auto without_ones = [](const Shape& shape) {
    std::vector<Extent> extents;
    for (int axis = 0; axis < shape.rank(); ++axis)
      if (shape[axis] != 1) extents.push_back(shape[axis]);
    return extents;
  };
  std::string wanted;
  for (const Fp8Tile& tile : tiles) {
    const Shape shape{tiles_along(codes_.shape[0], tile.rows), tiles_along(codes_.shape[1], tile.columns)};
    if (without_ones(shape) == without_ones(scales_tensor_.shape)) {
      tile_ = tile;
      tiles_of_row_ = shape[1];
      return;
    }
    wanted += fmt::format("{}{} for tiles of {}", wanted.empty() ? "" : ", or ", shape.to_string(), tile_text(tile));
  }
  fail(scales_tensor_, fmt::format("config.json says that the scales of {} are {}; is it of this model?",
                                   codes_.shape.to_string(), wanted));
}

void Fp8Layer::read_scales() {
  const std::byte* data = scales_tensor_.data.data();
  const std::string& type = scales_tensor_.type_name;
  const auto scale_at = [&](std::size_t i) -> float {
    if (type == "F32") return codec::load<float>(data + 4 * i);
    if (type == "BF16") return f32_from_bf16(codec::load<std::uint16_t>(data + 2 * i));
    if (type == "F16") return f32_from_f16(codec::load<std::uint16_t>(data + 2 * i));
    // Exponents e of 2^(e - 127); 255 is NaN.
    const auto exponent = static_cast<int>(data[i]);
    return exponent == 255 ? NAN : std::ldexp(1.0f, exponent - 127);
  };
  if (type != "F32" && type != "BF16" && type != "F16" && type != "F8_E8M0")
    fail(scales_tensor_, "scales are F32, F16, BF16 or F8_E8M0");
  scales_.resize(static_cast<std::size_t>(scales_tensor_.shape.numel()));
  for (std::size_t i = 0; i < scales_.size(); ++i) {
    scales_[i] = scale_at(i);
    if (!std::isfinite(scales_[i]))
      fail(scales_tensor_, fmt::format("scale {} is NaN or infinite; the file is damaged: fetch it again", i));
    const float largest = std::abs(scales_[i]) * kCodeMax;
    if (scales_[i] != 0 && (largest > kF16Max || largest < kF16NormalMin)) type_ = BlockType::bf16;
  }
}

void Fp8Layer::write(std::span<std::byte> values) const {
  if (values.size() != bytes_for(type_, shape(), source_))
    throw UsageError(
        fmt::format("{}: {} bytes for {} {}", source_, values.size(), file_name_of(type_), shape().to_string()));
  const Extent rows = codes_.shape[0], columns = codes_.shape[1];
  const Extent width = tile_.columns == 0 ? columns : tile_.columns, height = tile_.rows == 0 ? rows : tile_.rows;
  parallel_for((rows + kBandRows - 1) / kBandRows, [&](std::int64_t band) {
    const Extent first = band * kBandRows, last = std::min(rows, first + kBandRows);
    std::array<std::uint16_t, 256> rounded;  // of each code, with the scale of the tile at hand
    for (Extent column = 0; column < columns; column += width) {
      const Extent count = std::min(width, columns - column);
      Extent tile = -1;
      for (Extent row = first; row < last; ++row) {
        if (const Extent own = row / height * tiles_of_row_ + column / width; own != tile) {
          tile = own;
          const float scale = scales_[static_cast<std::size_t>(tile)];
          for (std::size_t code = 0; code < 256; ++code) {
            const float value = values_of_codes()[code] * scale;
            rounded[code] = type_ == BlockType::f16 ? f16_from_f32(value) : bf16_from_f32(value);
          }
        }
        const std::byte* from = codes_.data.data() + row * columns + column;
        std::byte* to = values.data() + 2 * (row * columns + column);
        for (Extent i = 0; i < count; ++i) codec::store(to + 2 * i, rounded[static_cast<std::size_t>(from[i])]);
      }
    }
  });
}

}  // namespace weft::io
