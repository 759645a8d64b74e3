#include "backend/cpu/gemm_packing.hpp"

#include <algorithm>
#include <cstring>
#include <type_traits>

namespace weft::cpu::blocked {
namespace {

constexpr int64_t kPackRows = 8;  // copied at a time across a block

}  // namespace

template <class T>
Packing<T>::Packing(const GemmArgs<T>& args, const GemmKernels<T>& kernels, int64_t panels)
    : args_(args), kernels_(kernels), unit_(unit_of(kernels)), depth_(ceil_divide(args.k, unit_)), panels_(panels) {
  if constexpr (std::is_same_v<T, float>)
    if (unit_ > 1 && is_whole_pairs(args.a)) pairs_of_a_ = reinterpret_cast<const T*>(halves_of(args.a));
}

template <class T>
bool Packing<T>::is_whole_pairs(const GemmSource<T>& a) const {
  bool whole = a.view == nullptr && a.column == 1 && args_.k % 2 == 0 && a.row % 2 == 0 &&
               reinterpret_cast<std::uintptr_t>(halves_of(a)) % sizeof(T) == 0;
  for (int64_t batch = 0; whole && batch < args_.batch; ++batch) whole = a.batch[batch] % 2 == 0;
  return whole;
}

template <class T>
void Packing<T>::copy_pairs(const std::uint16_t* from, int64_t stride, int64_t rows, int64_t pairs, int64_t elements,
                            T* to, int64_t to_stride) {
  const auto bytes = static_cast<std::size_t>(2 * std::min(2 * pairs, elements));
  const bool is_odd = elements < 2 * pairs;
  for (int64_t r = 0; r < rows; ++r, from += stride, to += to_stride) {
    if (is_odd) to[pairs - 1] = T{0};
    std::memcpy(to, from, bytes);
  }
}

template <class T>
void Packing<T>::pack(const GemmSource<T>& source, int64_t k, int64_t depth, int64_t count, int64_t from,
                      int64_t stride, T* to, int64_t to_stride) const {
  if constexpr (std::is_same_v<T, float>) {
    if (unit_ > 1)
      return kernels_.interleave(depth, args_.k - k * unit_, static_cast<int>(count), halves_of(source) + from, stride,
                                 to, to_stride);
    if (source.narrow) return source.narrow.copy_rows(from, stride, depth, count, to, to_stride);
  }
  kernels_.pack(depth, static_cast<int>(count), source.data + from, stride, to, static_cast<int>(to_stride));
}

template <class T>
void Packing<T>::copy(const GemmSource<T>& source, int64_t k, int64_t rows, int64_t depth, int64_t from, int64_t stride,
                      T* to, int64_t to_stride) const {
  if constexpr (std::is_same_v<T, float>) {
    if (unit_ > 1) return copy_pairs(halves_of(source) + from, stride, rows, depth, args_.k - k * unit_, to, to_stride);
    return source.narrow.copy_rows(from, stride, rows, depth, to, to_stride);
  }
}

template <class T>
void Packing<T>::pack_transposed(const GemmSource<T>& source, int64_t k, int64_t depth, int64_t count, int64_t from,
                                 int64_t stride, T* to, int64_t to_stride) const {
  const T* data = source.data + from;
  if constexpr (std::is_same_v<T, float>) {
    if (source.narrow) {
      const std::uint16_t* halves = unit_ > 1 ? halves_of(source) + from : nullptr;
      const bool are_pairs = unit_ > 1 && (k + depth) * unit_ <= args_.k && stride % unit_ == 0 &&
                             reinterpret_cast<std::uintptr_t>(halves) % sizeof(T) == 0;
      if (!are_pairs) return pack_narrow_transposed(source, k, depth, count, from, stride, to, to_stride);
      data = reinterpret_cast<const T*>(halves), stride /= unit_;
    }
  }
  kernels_.pack_transposed(depth, static_cast<int>(count), data, stride, to, static_cast<int>(to_stride));
}

template <class T>
void Packing<T>::pack_narrow_transposed(const GemmSource<T>& source, int64_t k, int64_t depth, int64_t count,
                                        int64_t from, int64_t stride, T* to, int64_t to_stride) const {
  constexpr int64_t kDepth = 64, kPitch = kDepth + 16;  // rows fall on different sets of the cache
  alignas(64) T stage[kGemmVectors * 16 * kPitch];
  for (int64_t done = 0; done < depth; done += kDepth, to += kDepth * to_stride) {
    const int64_t size = std::min(kDepth, depth - done);
    copy(source, k + done, count, size, from + done * unit_, stride, stage, kPitch);
    kernels_.pack_transposed(size, static_cast<int>(count), stage, kPitch, to, static_cast<int>(to_stride));
  }
}

template <class T>
template <MatrixAxis kAxis>
void Packing<T>::pack_view_of(const GemmSource<T>& source, int64_t batch, MatrixRange lanes, Range depth, T* to,
                              int64_t width) const {
  const int64_t matrix = matrix_of(source, batch), begin = depth.begin * unit_;
  const MatrixRange range{source.first + batch * source.first_step + begin,
                          std::min(depth.size() * unit_, args_.k - begin)};
  if constexpr (std::is_same_v<T, float>) {
    if (unit_ > 1) {
      PackedPairs target{kernels_, to, width, {}};
      return pack_view<kAxis>(target, PlainElements<std::uint16_t>{halves_of(source)}, *source.view, matrix, lanes,
                              range);
    }
  }
  PackedElements<T> target{kernels_, to, width};
  if constexpr (std::is_same_v<T, float>)
    if (source.narrow) return pack_view<kAxis>(target, source.narrow, *source.view, matrix, lanes, range);
  pack_view<kAxis>(target, PlainElements<T>{source.data}, *source.view, matrix, lanes, range);
}

template <class T>
void Packing<T>::pack_blocks(int64_t batch, Range depth, Range rows, T* to) const {
  const int64_t step = kernels_.depth_step;
  for (int64_t k = depth.begin; k < depth.end; k += step, to += panel_stride()) {
    const int64_t size = std::min(step, depth.end - k);
    if (args_.a.column == 1) {
      copy(args_.a, k, rows.size(), size, place_in_a(batch, rows.begin, k), args_.a.row, to, step);
      continue;
    }
    for (int64_t row = rows.begin; row < rows.end; row += kernels_.lanes)
      kernels_.interleave_block(
          size, args_.k - k * unit_, static_cast<int>(std::min<int64_t>(kernels_.lanes, rows.end - row)),
          halves_of(args_.a) + place_in_a(batch, row, k), args_.a.column, to + (row - rows.begin) * step);
  }
}

template <class T>
void Packing<T>::pack_b(int64_t batch, Range depth, Range rows_of_b, Range columns, T* to) const {
  const int64_t strip = kernels_.lanes * kGemmVectors;
  if (args_.b.view != nullptr) {
    for (int64_t j = columns.begin; j < columns.end; j += strip) {
      const int64_t count = std::min(strip, columns.end - j), width = packed_width(count);
      pack_view_of<MatrixAxis::columns>(args_.b, batch, {j, count}, rows_of_b,
                                        to + (rows_of_b.begin - depth.begin) * width, width);
      to += width * depth.size();
    }
    return;
  }
  // Plain rows are copied a few at a time across all strips: long runs of memory, and few pages at once.
  const int64_t step = args_.b.column == 1 ? kPackRows : rows_of_b.size();
  for (int64_t k = rows_of_b.begin; k < rows_of_b.end; k += step) {
    const int64_t rows = std::min(step, rows_of_b.end - k);
    T* strip_to = to;
    for (int64_t j = columns.begin; j < columns.end; j += strip) {
      const int64_t count = std::min(strip, columns.end - j), width = packed_width(count);
      const int64_t from = place_in_b(batch, k, j);
      T* rows_to = strip_to + (k - depth.begin) * width;
      if (args_.b.column == 1) {
        pack(args_.b, k, rows, count, from, args_.b.row, rows_to, width);
      } else {
        pack_transposed(args_.b, k, rows, count, from, args_.b.column, rows_to, width);
      }
      strip_to += width * depth.size();
    }
  }
}

template <class T>
void Packing<T>::pack_a(int64_t batch, Range depth, Range columns_of_a, Range panels, T* to) const {
  const int64_t width = packed_width(kernels_.rows);
  if (args_.a.view != nullptr) {
    for (int64_t panel = panels.begin; panel < panels.end; ++panel, to += width * depth.size())
      pack_view_of<MatrixAxis::rows>(args_.a, batch, {rows_of(panel).begin, rows_of(panel).size()}, columns_of_a,
                                     to + (columns_of_a.begin - depth.begin) * width, width);
    return;
  }
  // Columns of A are read a few at a time across all panels: long runs of memory.
  const int64_t step = args_.a.column == 1 ? columns_of_a.size() : kernels_.reads_blocks() ? kPackDepth : kPackRows;
  for (int64_t k = columns_of_a.begin; k < columns_of_a.end; k += step) {
    const int64_t size = std::min(step, columns_of_a.end - k);
    T* panel_to = to + (k - depth.begin) * width;
    for (int64_t panel = panels.begin; panel < panels.end; ++panel, panel_to += panel_size(depth.size())) {
      const Range rows = rows_of(panel);
      const int64_t from = place_in_a(batch, rows.begin, k);
      if (kernels_.reads_blocks())
        pack_blocks(batch, {k, k + size}, rows, panel_to);
      else if (args_.a.column == 1)
        pack_transposed(args_.a, k, size, rows.size(), from, args_.a.row, panel_to, width);
      else
        pack(args_.a, k, size, rows.size(), from, args_.a.column, panel_to, width);
    }
  }
}

template <class T>
void Packing<T>::convert_a(int64_t batch, Range depth, Range panels, T* to, int64_t stride) const {
  const Range rows{rows_of(panels.begin).begin, rows_of(panels.end - 1).end};
  const int64_t from = place_in_a(batch, rows.begin, depth.begin);
  if (args_.a.column == 1)
    copy(args_.a, depth.begin, rows.size(), depth.size(), from, args_.a.row, to, stride);
  else
    pack(args_.a, depth.begin, depth.size(), rows.size(), from, args_.a.column, to, stride);
}

template class Packing<float>;
template class Packing<double>;

}  // namespace weft::cpu::blocked
