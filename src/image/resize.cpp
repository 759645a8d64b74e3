// Resampling with antialiasing: each pixel of the result is a weighted sum of the pixels around its centre, along columns first
// and then along rows. Weights and rounding of u8 are those of Pillow, so that preprocessing gives the pixels that models were
// trained on.
#include <algorithm>
#include <cmath>
#include <type_traits>

#include "base/threads.hpp"
#include "image/pixels.hpp"

namespace weft::image {
namespace {

double weight_at(Filter filter, double x) {
  x = std::abs(x);
  switch (filter) {
    case Filter::nearest: return x < 0.5 ? 1 : 0;  // not used: see `nearest`
    case Filter::bilinear: return std::max(0.0, 1 - x);
    case Filter::bicubic: {
      constexpr double a = -0.5;
      if (x < 1) return ((a + 2) * x - (a + 3)) * x * x + 1;
      return x < 2 ? (((x - 5) * x + 8) * x - 4) * a : 0;
    }
    case Filter::lanczos: {
      const auto sinc = [](double y) { return y == 0 ? 1 : std::sin(y * M_PI) / (y * M_PI); };
      return x < 3 ? sinc(x) * sinc(x / 3) : 0;
    }
  }
  return 0;
}
double support_of(Filter filter) { return filter == Filter::bilinear ? 1 : filter == Filter::bicubic ? 2 : 3; }

/// Which elements of a line make each element of the new line, and by which weights.
struct LinePlan {
  struct Window {
    Extent first = 0, count = 0;
  };
  std::vector<Window> windows;
  std::vector<double> weights;  // `width` for each window
  Extent width = 0;
};

LinePlan plan_line(Extent from, Extent to, Filter filter) {
  const double scale = static_cast<double>(from) / static_cast<double>(to), widening = std::max(scale, 1.0),
               support = support_of(filter) * widening;
  LinePlan plan;
  plan.width = std::min<Extent>(static_cast<Extent>(std::ceil(support)) * 2 + 1, from);
  plan.weights.resize(static_cast<std::size_t>(to * plan.width));
  for (Extent i = 0; i < to; ++i) {
    const double center = (static_cast<double>(i) + 0.5) * scale;
    const auto first = std::max<Extent>(static_cast<Extent>(center - support + 0.5), 0),
               last = std::min<Extent>(static_cast<Extent>(center + support + 0.5), from);
    double* weights = plan.weights.data() + i * plan.width;
    double total = 0;
    for (Extent j = first; j < last; ++j)
      total += weights[j - first] = weight_at(filter, (static_cast<double>(j) - center + 0.5) / widening);
    for (Extent j = 0; total != 0 && j < last - first; ++j) weights[j] /= total;
    plan.windows.push_back({first, last - first});
  }
  return plan;
}

/// Weights as numbers that sums are made with: fixed point for bytes, so that every machine gives the same bytes.
constexpr int kFractionBits = 32 - 8 - 2;
template <class T>
using Weight = std::conditional_t<std::is_same_v<T, std::uint8_t>, std::int32_t, double>;

template <class T>
std::vector<Weight<T>> rounded(const std::vector<double>& weights) {
  if constexpr (std::is_same_v<T, float>) {
    return weights;
  } else {
    std::vector<std::int32_t> fixed;
    for (const double w : weights)
      fixed.push_back(static_cast<std::int32_t>(std::trunc(w * (1 << kFractionBits) + (w < 0 ? -0.5 : 0.5))));
    return fixed;
  }
}

template <class T>
T weighted(const T* values, Extent stride, const Weight<T>* weights, Extent count) {
  if constexpr (std::is_same_v<T, float>) {
    double sum = 0;
    for (Extent j = 0; j < count; ++j) sum += weights[j] * static_cast<double>(values[j * stride]);
    return static_cast<float>(sum);
  } else {
    std::int32_t sum = 1 << (kFractionBits - 1);
    for (Extent j = 0; j < count; ++j) sum += weights[j] * values[j * stride];
    return static_cast<std::uint8_t>(std::clamp(sum >> kFractionBits, 0, 255));
  }
}

constexpr Extent kRowsOfTask = 16;

template <class Row>
void for_rows(Extent rows, const Row& row) {
  parallel_for((rows + kRowsOfTask - 1) / kRowsOfTask, [&](std::int64_t task) {
    for (Extent y = task * kRowsOfTask; y < std::min(rows, (task + 1) * kRowsOfTask); ++y) row(y);
  });
}

template <class T>
Raster<T> empty_raster(Extent height, Extent width, Extent channels) {
  return {height, width, channels, std::vector<T>(static_cast<std::size_t>(height * width * channels))};
}

template <class T>
Raster<T> columns_resized(const Raster<T>& image, Extent width, Filter filter) {
  const LinePlan plan = plan_line(image.width, width, filter);
  const auto weights = rounded<T>(plan.weights);
  const Extent c = image.channels;
  Raster<T> out = empty_raster<T>(image.height, width, c);
  for_rows(image.height, [&](Extent y) {
    const T* row = image.values.data() + y * image.width * c;
    T* to = out.values.data() + y * width * c;
    for (Extent x = 0; x < width; ++x) {
      const auto [first, count] = plan.windows[static_cast<std::size_t>(x)];
      for (Extent k = 0; k < c; ++k)
        to[x * c + k] = weighted(row + first * c + k, c, weights.data() + x * plan.width, count);
    }
  });
  return out;
}

template <class T>
Raster<T> rows_resized(const Raster<T>& image, Extent height, Filter filter) {
  const LinePlan plan = plan_line(image.height, height, filter);
  const auto weights = rounded<T>(plan.weights);
  const auto stride = static_cast<Extent>(image.row_size());
  Raster<T> out = empty_raster<T>(height, image.width, image.channels);
  for_rows(height, [&](Extent y) {
    const auto [first, count] = plan.windows[static_cast<std::size_t>(y)];
    const T* rows = image.values.data() + first * stride;
    for (Extent x = 0; x < stride; ++x)
      out.values[static_cast<std::size_t>(y * stride + x)] =
          weighted(rows + x, stride, weights.data() + y * plan.width, count);
  });
  return out;
}

template <class T>
Raster<T> nearest(const Raster<T>& image, Extent height, Extent width) {
  const Extent c = image.channels;
  // Sums of the scale, as in Pillow: a product would be rounded otherwise where a centre is at the edge of a pixel.
  const auto places = [](Extent from, Extent to) {
    const double scale = static_cast<double>(from) / static_cast<double>(to);
    std::vector<Extent> all;
    for (double at = scale * 0.5; static_cast<Extent>(all.size()) < to; at += scale)
      all.push_back(std::min(from - 1, static_cast<Extent>(at)));
    return all;
  };
  const std::vector<Extent> rows = places(image.height, height), columns = places(image.width, width);
  Raster<T> out = empty_raster<T>(height, width, c);
  auto to = out.values.begin();
  for (const Extent y : rows)
    for (const Extent x : columns) to = std::copy_n(image.values.begin() + (y * image.width + x) * c, c, to);
  return out;
}

template <class T>
Raster<T> any_resized(const Raster<T>& image, Extent height, Extent width, Filter filter) {
  if (height == image.height && width == image.width) return image;
  if (filter == Filter::nearest) return nearest(image, height, width);
  if (width == image.width) return rows_resized(image, height, filter);
  const Raster<T> narrow = columns_resized(image, width, filter);
  return height == image.height ? narrow : rows_resized(narrow, height, filter);
}

}  // namespace

Pixels resized(const Pixels& image, Extent height, Extent width, Filter filter) {
  return any_resized(image, height, width, filter);
}
Raster<float> resized(const Raster<float>& image, Extent height, Extent width, Filter filter) {
  return any_resized(image, height, width, filter);
}

}  // namespace weft::image
