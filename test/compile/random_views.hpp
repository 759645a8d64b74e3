// Random views of a tensor: what is read in another order, in part, or repeated. Whether a draw fits depends on shapes only.
#pragma once

#include <algorithm>
#include <random>
#include <utility>
#include <vector>

#include "weft/ops.hpp"

namespace weft::test {

class RandomViews {
 public:
  explicit RandomViews(std::uint64_t seed) : random_(seed) {}
  int pick(int low, int high) { return std::uniform_int_distribution<int>(low, high)(random_); }
  /// Windows along axes are views that are drawn too, and what adds them up again.
  void draw_windows() { with_windows_ = true; }

  Axes some_axes(int rank) {
    Axes axes;
    for (int i = 0; i < rank; ++i)
      if (pick(0, 1)) axes.push_back(pick(0, 1) ? i : i - rank);
    return axes;
  }
  /// A part along an axis, or one place of it.
  Tensor part_of(const Tensor& x) {
    const int axis = pick(0, x.rank() - 1);
    const auto n = static_cast<int>(x.dim(axis));
    if (n == 0) return x;
    const int start = pick(0, n - 1);
    switch (pick(0, 2)) {
      case 0: return narrow(x, axis, start, pick(0, n - start));
      case 1: return select(x, axis, pick(0, 1) ? start : start - n);
      default: {
        const Extent lengths[] = {start, n - start};
        return split(x, lengths, axis)[static_cast<std::size_t>(pick(0, 1))];
      }
    }
  }

  /// Windows along any axis: beside each other, apart, or overlapping. Some are added up at their places, or at others.
  Tensor windows_of(const Tensor& x) {
    const int axis = pick(0, x.rank() - 1);
    const auto n = static_cast<int>(x.dim(axis));
    if (n == 0) return x;
    const int dilation = pick(1, 2), size = pick(1, std::min(4, (n - 1) / dilation + 1)), step = pick(1, 3);
    const Tensor windows = unfold(x, pick(0, 1) ? axis : axis - x.rank(), size, step, dilation);
    if (pick(0, 2)) return windows;
    const int other = pick(1, 3);
    const Extent extent = (windows.dim(axis) - 1) * other + (size - 1) * dilation + 1 + pick(0, 2);
    return overlap_add(windows, axis, extent, other, dilation);
  }

  Tensor view_of(const Tensor& x) {
    const int rank = x.rank();
    if (with_windows_ && rank > 0 && pick(0, 4) == 0) return windows_of(x);
    switch (rank == 0 ? pick(0, 1) : pick(0, 8)) {
      case 0: {
        Axes order(static_cast<std::size_t>(rank));
        for (int i = 0; i < rank; ++i) order[static_cast<std::size_t>(i)] = i;
        std::shuffle(order.begin(), order.end(), random_);
        return permute(x, order);
      }
      case 1: return rank > 1 && pick(0, 1) ? flatten(x, 0, 1) : unsqueeze(x, pick(0, rank));
      case 2: return sliced(x);
      case 3: return padded(x);
      case 6: return flip(x, some_axes(rank));
      case 7: return part_of(x);
      case 4: {
        Shape shape = x.shape();
        for (int i = 0; i < rank; ++i)
          if (shape[i] == 1) shape[i] = pick(1, 3);
        if (pick(0, 1))
          shape = [&] {
            std::vector<Extent> e = shape.vector();
            e.insert(e.begin(), pick(1, 2));
            return Shape(e);
          }();
        return expand(x, shape);
      }
      case 5: {  // another factorisation of the same elements
        if (x.numel() == 0) return x;
        Shape shape;
        Extent left = x.numel();
        while (left > 1) {
          Extent f = 2;
          while (left % f) ++f;
          if (pick(0, 1) && left / f > 1) {
            Extent second = 2;
            while ((left / f) % second) ++second;
            f *= second;
          }
          shape.push_back(f);
          left /= f;
          if (shape.rank() == 4) break;
        }
        if (left > 1) shape.push_back(left);
        return reshape(x, shape);
      }
      default: return rank < 2 ? x : pick(0, 1) ? tril(x, pick(-1, 1)) : triu(x, pick(-1, 1));
    }
  }

 protected:
  std::mt19937_64 random_;

 private:
  /// Of an axis with any begin, end and step; seldom of no elements, which would be all that follows.
  Tensor sliced(const Tensor& x) {
    for (int tries = 0; tries < 4; ++tries) {
      const int axis = pick(0, x.rank() - 1), n = static_cast<int>(x.dim(axis));
      const int step = pick(0, 1) ? pick(1, 4) : -pick(1, 4);
      // Positions outside are clipped; a negative place counts from the end.
      const Extent start = pick(0, 3) ? pick(-n - 2, n + 2) : step > 0 ? 0 : kEnd;
      const Extent stop = pick(0, 1) ? pick(-n - 2, n + 2) : kEnd;
      const Tensor y = slice(x, pick(0, 1) ? axis : axis - x.rank(), start, stop, step);
      if (y.numel() > 0 || pick(0, 9) == 0) return y;
    }
    return flip(x, some_axes(x.rank()));
  }
  Tensor padded(const Tensor& x) {
    std::vector<std::pair<Extent, Extent>> padding;
    const int width_max = pick(0, 2) ? 2 : 9;  // seldom wider than the axis
    for (int i = 0; i < x.rank(); ++i)
      padding.emplace_back(pick(0, 2) ? 0 : pick(1, width_max), pick(0, 2) ? 0 : pick(1, width_max));
    return pad(x, padding);
  }

  bool with_windows_ = false;
};

}  // namespace weft::test
