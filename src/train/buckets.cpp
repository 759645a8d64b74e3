#include "train/buckets.hpp"

#include <utility>

#include "weft/ops.hpp"

namespace weft::train {
namespace {

constexpr Extent kLargest = Extent(1) << 24;

/// Which values share a bucket: [first, last) for each.
std::vector<std::pair<std::size_t, std::size_t>> plan_buckets(std::span<const Shape> shapes) {
  std::vector<std::pair<std::size_t, std::size_t>> buckets;
  Extent filled = 0;
  for (std::size_t i = 0; i < shapes.size(); ++i) {
    const Extent count = shapes[i].numel();
    if (buckets.empty() || filled + count > kLargest) {
      buckets.emplace_back(i, i);
      filled = 0;
    }
    buckets.back().second = i + 1;
    filled += count;
  }
  return buckets;
}

}  // namespace

std::vector<Tensor> join_in_buckets(std::span<const Tensor> values, DType type) {
  std::vector<Shape> shapes;
  std::vector<Tensor> flat, buckets;
  for (const Tensor& value : values) {
    shapes.push_back(value.shape());
    flat.push_back(reshape(value, {value.numel()}));
  }
  for (const auto& [first, last] : plan_buckets(shapes))
    buckets.push_back(cast(concat(std::vector<Tensor>(flat.begin() + static_cast<std::ptrdiff_t>(first),
                                                      flat.begin() + static_cast<std::ptrdiff_t>(last)),
                                  0),
                           type));
  return buckets;
}

std::vector<Tensor> split_buckets(std::span<const Tensor> buckets, std::span<const Shape> shapes) {
  std::vector<Tensor> values;
  std::size_t bucket = 0;
  for (const auto& [first, last] : plan_buckets(shapes)) {
    Extent begin = 0;
    for (std::size_t i = first; i < last; ++i) {
      values.push_back(cast(reshape(narrow(buckets[bucket], 0, begin, shapes[i].numel()), shapes[i]), DType::f32));
      begin += shapes[i].numel();
    }
    ++bucket;
  }
  return values;
}

}  // namespace weft::train
