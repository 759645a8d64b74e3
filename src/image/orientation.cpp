// The orientation that cameras note in Exif data: a TIFF directory in the segment APP1 of a JPEG file.
#include <cstring>
#include <optional>

#include "image/codecs.hpp"

namespace weft::image {
namespace {

/// Numbers of a TIFF file in its byte order; nothing outside of it.
class TiffBytes {
 public:
  TiffBytes(std::span<const std::byte> bytes, bool is_little) : bytes_(bytes), is_little_(is_little) {}
  std::optional<std::uint32_t> number(std::size_t at, std::size_t size) const {
    if (at > bytes_.size() || bytes_.size() - at < size) return {};
    std::uint32_t value = 0;
    for (std::size_t i = 0; i < size; ++i)
      value = value << 8 | std::to_integer<std::uint32_t>(bytes_[at + (is_little_ ? size - 1 - i : i)]);
    return value;
  }

 private:
  std::span<const std::byte> bytes_;
  bool is_little_;
};

}  // namespace

int exif_orientation(std::span<const std::byte> segment) {
  constexpr std::size_t kHeader = 6, kEntry = 12;  // "Exif\0\0"; an entry of a directory
  constexpr std::uint32_t kOrientation = 0x0112, kShort = 3;
  if (segment.size() < kHeader + 8 || std::memcmp(segment.data(), "Exif\0\0", kHeader) != 0) return 1;
  const auto tiff = segment.subspan(kHeader);
  const bool is_little = tiff[0] == std::byte{'I'};
  const TiffBytes bytes(tiff, is_little);
  if (bytes.number(2, 2) != 42u) return 1;
  const std::uint32_t directory = *bytes.number(4, 4);
  const std::uint32_t entries = bytes.number(directory, 2).value_or(0);
  for (std::uint32_t i = 0; i < entries; ++i) {
    const std::size_t at = std::size_t{directory} + 2 + kEntry * i;
    const auto tag = bytes.number(at, 2), type = bytes.number(at + 2, 2), value = bytes.number(at + 8, 2);
    if (!value) return 1;
    if (tag == kOrientation && type == kShort) return *value >= 1 && *value <= 8 ? static_cast<int>(*value) : 1;
  }
  return 1;
}

Pixels oriented(const Pixels& image, int orientation) {
  if (orientation < 2 || orientation > 8) return image;
  // Row and column of the result count rows and columns of the image, perhaps from its other end, perhaps exchanged.
  const bool exchanged = orientation >= 5;
  const bool rows_back = orientation == 3 || orientation == 4 || orientation == 7 || orientation == 6;
  const bool columns_back = orientation == 2 || orientation == 3 || orientation == 7 || orientation == 8;
  Pixels out = image;
  if (exchanged) std::swap(out.height, out.width);
  for (Extent y = 0; y < out.height; ++y)
    for (Extent x = 0; x < out.width; ++x) {
      Extent row = exchanged ? x : y, column = exchanged ? y : x;
      if (rows_back) row = image.height - 1 - row;
      if (columns_back) column = image.width - 1 - column;
      for (Extent k = 0; k < image.channels; ++k)
        out.values[static_cast<std::size_t>((y * out.width + x) * image.channels + k)] =
            image.values[static_cast<std::size_t>((row * image.width + column) * image.channels + k)];
    }
  return out;
}

}  // namespace weft::image
