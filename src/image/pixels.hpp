// An image in memory of the host, and what may be done with it without a device.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "weft/image.hpp"

namespace weft::image {

/// Row by row, the channels of a pixel side by side.
template <class T>
struct Raster {
  Extent height = 0, width = 0, channels = 3;
  std::vector<T> values;

  std::size_t row_size() const { return static_cast<std::size_t>(width * channels); }
};
using Pixels = Raster<std::uint8_t>;

Pixels decode_pixels(std::span<const std::byte> file, const std::string& name, const Limits& limits);
/// UsageError "CALLER: ..." unless it is u8 [height, width, 3].
Pixels pixels_of(const Tensor& image, std::string_view caller);

/// Sizes must be at least 1. The weights are those of image::resize.
Pixels resized(const Pixels& image, Extent height, Extent width, Filter filter);
Raster<float> resized(const Raster<float>& image, Extent height, Extent width, Filter filter);

/// Rows from `top` and columns from `left` on, zero outside of the image; both may be negative.
template <class T>
Raster<T> cropped(const Raster<T>& image, Extent top, Extent left, Extent height, Extent width) {
  Raster<T> part{height, width, image.channels,
                 std::vector<T>(static_cast<std::size_t>(height * width * image.channels), T{})};
  const Extent first = std::max<Extent>(0, -left), last = std::min(width, image.width - left);
  for (Extent y = std::max<Extent>(0, -top); y < std::min(height, image.height - top) && first < last; ++y)
    std::copy_n(image.values.begin() + ((y + top) * image.width + left + first) * image.channels,
                (last - first) * image.channels, part.values.begin() + (y * width + first) * image.channels);
  return part;
}
/// The middle; where a margin is odd, the left or upper part of it is the smaller one.
template <class T>
Raster<T> center_cropped(const Raster<T>& image, Extent height, Extent width) {
  const auto margin = [](Extent have, Extent wanted) {
    return have >= wanted ? (have - wanted) / 2 : -((wanted - have + 1) / 2);
  };
  return cropped(image, margin(image.height, height), margin(image.width, width), height, width);
}

}  // namespace weft::image
