// From images to the pictures that a tower reads: resized, cropped, and cut into squares.
#include <cmath>
#include <limits>

#include "vision/preprocess.hpp"
#include "weft/error.hpp"

namespace weft::vision {
namespace {

/// Python's int(): towards zero.
Extent whole(double value) { return static_cast<Extent>(value); }
Extent rounded_up(Extent value, Extent step) { return (value + step - 1) / step * step; }

struct Size {
  Extent height, width;
};
double aspect_of(const Size& s) { return static_cast<double>(s.width) / static_cast<double>(s.height); }

/// The longer side to `longest`, the other to an even number, and neither above kSideMax.
Size with_longest(const Size& s, Extent longest) {
  const double aspect = aspect_of(s);
  const auto even = [](Extent n) { return n + n % 2; };
  Size to = s.width >= s.height ? Size{even(whole(static_cast<double>(longest) / aspect)), longest}
                                : Size{longest, even(whole(static_cast<double>(longest) * aspect))};
  return {std::max<Extent>(to.height, 1), std::max<Extent>(to.width, 1)};
}

/// Both sides up to multiples of a tile's.
Size whole_tiles(const Size& s, Extent tile) {
  const double aspect = aspect_of(s);
  if (s.width >= s.height) {
    const Extent width = rounded_up(s.width, tile);
    return {rounded_up(whole(static_cast<double>(width) / aspect), tile), width};
  }
  const Extent height = rounded_up(s.height, tile);
  return {height, rounded_up(whole(static_cast<double>(height) * aspect), tile)};
}

double longer_by(Extent height, Extent width) {
  return static_cast<double>(std::max(height, width)) / static_cast<double>(std::min(height, width));
}
/// Multiples of the step, near to the size, with least to most pixels in all.
Size in_area(const Size& s, Extent step, Extent least, Extent most) {
  const auto of = [&](double value, auto round) {
    return std::max(step, static_cast<Extent>(round(value / static_cast<double>(step))) * step);
  };
  const auto height = static_cast<double>(s.height), width = static_cast<double>(s.width);
  const auto even = [](double v) { return std::nearbyint(v); };  // halves to even, as Python's round
  const Size near{static_cast<Extent>(even(height / static_cast<double>(step))) * step,
                  static_cast<Extent>(even(width / static_cast<double>(step))) * step};
  if (near.height * near.width > most) {
    const double by = std::sqrt(height * width / static_cast<double>(most));
    const auto down = [](double v) { return std::floor(v); };
    return {of(height / by, down), of(width / by, down)};
  }
  if (near.height * near.width < least) {
    const double by = std::sqrt(static_cast<double>(least) / (height * width));
    const auto up = [](double v) { return std::ceil(v); };
    return {of(height * by, up), of(width * by, up)};
  }
  return near;
}

/// Made smaller until it fits a square of `longest`, then up to multiples of the step.
Size within(const Size& s, Extent step, Extent longest) {
  const auto most = static_cast<double>(longest);
  const double ratio = std::max(static_cast<double>(s.height) / most, static_cast<double>(s.width) / most);
  const auto fitted = [&](Extent side) {
    const Extent smaller = ratio > 1 ? static_cast<Extent>(std::floor(static_cast<double>(side) / ratio)) : side;
    return rounded_up(std::max<Extent>(smaller, 1), step);
  };
  return {fitted(s.height), fitted(s.width)};
}

/// Of the sizes the one in which most of the image's pixels are left, and least is black. None: the image is too narrow a strip.
const std::array<Extent, 2>* best_of(const std::vector<std::array<Extent, 2>>& sizes, const Size& s) {
  const auto height = static_cast<double>(s.height), width = static_cast<double>(s.width);
  const std::array<Extent, 2>* best = nullptr;
  Extent most = 0, least_black = 0;
  for (const auto& size : sizes) {
    const double scale = std::min(static_cast<double>(size[1]) / width, static_cast<double>(size[0]) / height);
    const Extent left = std::min(whole(width * scale) * whole(height * scale), s.height * s.width);
    const Extent black = size[0] * size[1] - left;
    if (left > most || (best && left == most && black < least_black)) {
      best = &size;
      most = left;
      least_black = black;
    }
  }
  return best;
}

/// Of the shapes of least to most squares the one whose sides are most like the image's. Of shapes of one proportion, larger ones are
/// taken while the image has more than half of their pixels.
Size nearest_shape(const Size& s, Extent tile, Extent least, Extent most) {
  Size best{1, 1};
  double nearest = std::numeric_limits<double>::infinity();
  for (Extent count = least; count <= most; ++count)
    for (Extent columns = 1; columns <= count; ++columns) {
      if (count % columns != 0) continue;
      const Size shape{count / columns, columns};
      const double apart = std::abs(aspect_of(s) - aspect_of(shape));
      const bool is_filled = 2 * s.height * s.width > tile * tile * count;
      if (apart < nearest || (apart == nearest && is_filled)) best = shape;
      nearest = std::min(nearest, apart);
    }
  return best;
}

void append_parts_of(const image::Pixels& whole, Extent tile, PreparedImage& prepared) {
  for (Extent y = 0; y < prepared.rows; ++y)
    for (Extent x = 0; x < prepared.columns; ++x)
      prepared.tiles.push_back(image::cropped(whole, y * tile, x * tile, tile, tile));
}

}  // namespace

image::Pixels ImageProcessor::fitted(const image::Pixels& image) const {
  if (fit_ == Fit::stretch) return resized(image, height_, width_, filter_);
  if (keeps_proportions()) {
    constexpr double kRatioMax = 200;  // transformers refuses longer images for Qwen's models
    if (longer_by(image.height, image.width) > kRatioMax)
      throw UsageError(fmt::format("vision: an image of {} x {} pixels is too narrow a strip; crop it first",
                                   image.height, image.width));
    const Size own{image.height, image.width};
    const Size size = fit_ == Fit::area ? in_area(own, step_, height_, longest_) : within(own, step_, longest_);
    return resized(image, size.height, size.width, filter_);
  }
  if (fit_ != Fit::shortest) return image;
  const bool is_wide = image.width > image.height;
  const Extent shorter = is_wide ? image.height : image.width, longer = is_wide ? image.width : image.height;
  const Extent other = height_ * longer / shorter;
  // A strip whose long side would be cropped away all the same.
  if (other > 16 * kSideMax)
    throw UsageError(fmt::format("vision: an image of {} x {} pixels is too narrow a strip; crop it first",
                                 image.height, image.width));
  return is_wide ? resized(image, height_, other, filter_) : resized(image, other, height_, filter_);
}

PreparedImage ImageProcessor::prepare(const image::Pixels& image) const {
  if (fit_ == Fit::tiles) return in_tiles(image);
  if (fit_ == Fit::padded) return in_padded(image);
  if (fit_ == Fit::canvas) return in_canvas(image);
  image::Pixels whole = fitted(image);
  if (crop_height_ > 0) whole = center_cropped(whole, crop_height_, crop_width_);
  PreparedImage prepared{{std::move(whole)}, 0, 0};
  for (const image::Pixels& crop : crops_of(image)) prepared.tiles.push_back(fitted(crop));
  return prepared;
}

std::vector<image::Pixels> ImageProcessor::crops_of(const image::Pixels& image) const {
  const PanAndScan& s = pan_and_scan_;
  if (!s.is_on || longer_by(image.height, image.width) < s.least_ratio) return {};
  const bool is_wide = image.width >= image.height;
  const Extent longer = std::max(image.height, image.width), shorter = std::min(image.height, image.width);
  Extent count = static_cast<Extent>(std::floor(longer_by(image.height, image.width) + 0.5));
  count = std::min(s.crops_max, std::max<Extent>(2, std::min(longer / s.least_side, count)));
  const Extent side = rounded_up(longer, count) / count;
  if (std::min(side, shorter) < s.least_side) return {};
  std::vector<image::Pixels> crops;
  for (Extent i = 0; i < count && i * side < longer; ++i) {
    const Extent at = i * side, size = std::min(side, longer - at);
    crops.push_back(is_wide ? image::cropped(image, 0, at, shorter, size)
                            : image::cropped(image, at, 0, size, shorter));
  }
  return crops;
}

PreparedImage ImageProcessor::in_tiles(const image::Pixels& image) const {
  const Extent tile = height_;
  const Size size = with_longest({image.height, image.width}, longest_);
  image::Pixels whole = resized(image, size.height, size.width, filter_);
  if (!splits_) return {{resized(whole, tile, tile, filter_)}, 0, 0};
  const Size tiled = whole_tiles(size, tile);
  whole = resized(whole, tiled.height, tiled.width, filter_);
  PreparedImage prepared;
  if (tiled.height == tile && tiled.width == tile) return {{std::move(whole)}, 0, 0};
  prepared.rows = tiled.height / tile;
  prepared.columns = tiled.width / tile;
  append_parts_of(whole, tile, prepared);
  prepared.tiles.push_back(resized(whole, tile, tile, filter_));
  return prepared;
}

PreparedImage ImageProcessor::in_padded(const image::Pixels& image) const {
  const std::array<Extent, 2>* size = best_of(sizes_, {image.height, image.width});
  if (!size)
    throw UsageError(fmt::format("vision: an image of {} x {} pixels is too narrow a strip; crop it first",
                                 image.height, image.width));
  const auto [height, width] = *size;
  const double by_width = static_cast<double>(width) / static_cast<double>(image.width),
               by_height = static_cast<double>(height) / static_cast<double>(image.height);
  const auto up = [](Extent side, double scale, Extent most) {
    return std::min(static_cast<Extent>(std::ceil(static_cast<double>(side) * scale)), most);
  };
  const Size fits = by_width < by_height ? Size{up(image.height, by_width, height), width}
                                         : Size{height, up(image.width, by_height, width)};
  image::Pixels in_proportion = resized(image, fits.height, fits.width, filter_);
  in_proportion =
      image::cropped(in_proportion, -((height - fits.height) / 2), -((width - fits.width) / 2), height, width);
  PreparedImage prepared{
      {resized(image, height_, height_, filter_)}, height / height_, width / height_, image.height, image.width};
  append_parts_of(in_proportion, height_, prepared);
  return prepared;
}

PreparedImage ImageProcessor::in_canvas(const image::Pixels& image) const {
  const Extent tile = height_;
  if (most_parts_ == 1) return {{resized(image, tile, tile, filter_)}};
  const Size shape = nearest_shape({image.height, image.width}, tile, least_parts_, most_parts_);
  PreparedImage prepared;
  prepared.rows = shape.height;
  prepared.columns = shape.width;
  append_parts_of(resized(image, shape.height * tile, shape.width * tile, filter_), tile, prepared);
  if (prepared.tiles.size() > 1) prepared.tiles.push_back(resized(image, tile, tile, filter_));
  return prepared;
}

}  // namespace weft::vision
