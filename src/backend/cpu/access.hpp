// Maps a view's elements to the rectangle of a loop, a `slow` by a `fast` axis, each a list of strided dimensions; and walks
// along the fast axis in runs of constant stride.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <vector>

#include "compile/kernel.hpp"

namespace weft::cpu {

struct Access {
  struct Dim {
    Extent extent, stride;
    Extent lo, hi;  // reads as 0 outside
    bool bounded() const { return lo > 0 || hi < extent; }
  };
  Extent offset = 0;
  std::vector<Dim> slow, fast;  // outermost first; neighbours that make one stride are joined
  bool by_runs = false;         // blocks of rows stay within one run of the last slow dimension
  bool fast_by_runs = false;    // tiles stay within one run of the last fast dimension
  bool separable = true;        // false: the dimensions do not divide between the axes, and `slow` holds all
  Extent linear_slow = 0, linear_fast = 0;  // when not separable

  bool uses_slow() const { return !separable || !slow.empty(); }
  bool uses_fast() const { return !separable || !fast.empty(); }
  /// Whether an axis is one stride without bounds (0 dimensions: stride 0).
  static bool plain(const std::vector<Dim>& axis) { return axis.empty() || (axis.size() == 1 && !axis[0].bounded()); }
  static Extent stride(const std::vector<Dim>& axis) { return axis.empty() ? 0 : axis.back().stride; }
  /// Whether the rows of a block are one stride apart.
  bool plain_slow() const { return separable && (by_runs || plain(slow)); }
  /// That stride, and the offset of row `s`. Only if `plain_slow`.
  Extent slow_stride() const { return slow.empty() ? 0 : slow.back().stride; }
  Extent row_offset(Extent s) const {
    if (!by_runs) return offset + s * slow_stride();
    Extent at = 0;
    locate_row(s, &at);
    return at;
  }
  bool plain_fast() const { return separable && (fast_by_runs || plain(fast)); }
  /// Whether each row is read from its end to its beginning.
  bool is_reversed() const { return plain_slow() && plain_fast() && stride(fast) == -1; }
  /// Offset of column `f` in its row. Only if `plain_fast`.
  Extent fast_offset(Extent f) const {
    if (!fast_by_runs) return f * stride(fast);
    Extent at = 0;
    for (std::size_t d = fast.size(); d-- > 0;) {
      at += (d == 0 ? f : f % fast[d].extent) * fast[d].stride;
      f /= fast[d].extent;
    }
    return at;
  }

  /// Offset of a row, and whether the row is within bounds. Only if separable.
  bool locate_row(Extent s, Extent* at) const {
    Extent where = offset;
    bool inside = true;
    for (std::size_t d = slow.size(); d-- > 0;) {
      const Dim& dim = slow[d];
      const Extent c = d == 0 ? s : s % dim.extent;
      if (d != 0) s /= dim.extent;
      where += c * dim.stride;
      inside = inside && dim.lo <= c && c < dim.hi;
    }
    *at = where;
    return inside;
  }
  /// Offset of one element, or -1 outside of bounds, by its linear index. Only if not separable.
  Extent locate(Extent linear) const {
    Extent where = offset;
    for (std::size_t d = slow.size(); d-- > 0;) {
      const Dim& dim = slow[d];
      const Extent c = linear % dim.extent;
      linear /= dim.extent;
      if (c < dim.lo || c >= dim.hi) return -1;
      where += c * dim.stride;
    }
    return where;
  }
};

/// The access of a view over a space of outer x inner (row-major). Columns: the inner axis is the slow one.
Access make_access(const kernel::View& view, Extent outer, Extent inner, bool columns);

/// Calls run(position, offset, stride, count) for stretches of row `s` from fast index `f0` on, `count` elements in all,
/// and gap(position, count) where bounds exclude them; positions count from `f0`.
template <class Run, class Gap>
void walk_row(const Access& access, Extent s, Extent f0, Extent count, Run run, Gap gap) {
  if (!access.separable) {
    for (Extent i = 0; i < count; ++i) {
      const Extent at = access.locate(s * access.linear_slow + (f0 + i) * access.linear_fast);
      if (at < 0)
        gap(i, Extent{1});
      else
        run(i, at, Extent{0}, Extent{1});
    }
    return;
  }
  Extent row;
  if (!access.locate_row(s, &row)) return gap(Extent{0}, count);
  if (access.fast.empty()) return run(Extent{0}, row, Extent{0}, count);
  const Access::Dim& last = access.fast.back();
  for (Extent done = 0; done < count;) {
    Extent rest = (f0 + done) / last.extent, at = row;
    const Extent begin = (f0 + done) % last.extent, end = std::min(last.extent, begin + count - done);
    bool inside = true;
    for (std::size_t d = access.fast.size() - 1; d-- > 0;) {
      const Access::Dim& dim = access.fast[d];
      const Extent c = rest % dim.extent;
      rest /= dim.extent;
      at += c * dim.stride;
      inside = inside && dim.lo <= c && c < dim.hi;
    }
    const Extent lo = inside ? std::clamp(last.lo, begin, end) : end, hi = inside ? std::clamp(last.hi, lo, end) : end;
    if (lo > begin) gap(done, lo - begin);
    if (hi > lo) run(done + lo - begin, at + lo * last.stride, last.stride, hi - lo);
    if (end > hi) gap(done + hi - begin, end - hi);
    done += end - begin;
  }
}

/// Whether runs of a row have two elements, because neighbours are swapped (rotary embeddings) or repeated. A walk would take
/// longer to find such runs than to copy them.
inline bool is_of_pairs(const Access& access, Extent f0, Extent count) {
  const std::size_t dims = access.fast.size();
  return access.separable && dims >= 2 && access.fast[dims - 1].extent == 2 && !access.fast[dims - 1].bounded() &&
         !access.fast[dims - 2].bounded() && f0 % 2 == 0 && count % 2 == 0;
}
template <class Word>
void copy_pairs(const Access& access, Extent s, Extent f0, Extent count, const Word* from, Word* to) {
  Extent row;
  if (!access.locate_row(s, &row)) return void(std::fill_n(to, count, Word{}));
  const std::size_t dims = access.fast.size();
  const Access::Dim& last = access.fast[dims - 1];
  const Access::Dim& pairs = access.fast[dims - 2];
  for (Extent done = 0; done < count;) {
    const Extent pair = (f0 + done) / 2, begin = pair % pairs.extent;
    const Extent n = std::min(pairs.extent - begin, (count - done) / 2);
    Extent rest = pair / pairs.extent, at = row + begin * pairs.stride;
    bool inside = true;
    for (std::size_t d = dims - 2; d-- > 0;) {
      const Access::Dim& dim = access.fast[d];
      const Extent c = d == 0 ? rest : rest % dim.extent;
      rest /= dim.extent;
      at += c * dim.stride;
      inside = inside && dim.lo <= c && c < dim.hi;
    }
    const Word* source = from + at;
    Word* target = to + done;
    if (!inside) {
      std::fill_n(target, 2 * n, Word{});
    } else if (pairs.stride == 2 && last.stride == -1) {
      for (Extent i = 0; i < 2 * n; i += 2) target[i] = source[i], target[i + 1] = source[i - 1];
    } else if (pairs.stride == 1 && last.stride == 0) {
      for (Extent i = 0; i < n; ++i) target[2 * i] = target[2 * i + 1] = source[i];
    } else {
      for (Extent i = 0; i < n; ++i)
        target[2 * i] = source[i * pairs.stride], target[2 * i + 1] = source[i * pairs.stride + last.stride];
    }
    done += 2 * n;
  }
}

/// Copies elements that lie before each other in the source, and asks for those before `next` (or no others: null).
template <class Word>
void copy_reversed(const Word* from, Word* to, Extent count, const Word* next) {
  constexpr Extent kLine = 64 / static_cast<Extent>(sizeof(Word));
  Extent i = 0;
  for (; i + kLine <= count; i += kLine) {
    if (next != nullptr) __builtin_prefetch(next - i, 0, 2);
    Word line[kLine];
    std::memcpy(line, from - i - (kLine - 1), sizeof line);
    if constexpr (sizeof(Word) == 4) {
      using Four = std::uint32_t __attribute__((vector_size(16)));
      for (Extent k = 0; k < kLine; k += 4) {
        Four four;
        std::memcpy(&four, line + kLine - 4 - k, sizeof four);
        four = __builtin_shufflevector(four, four, 3, 2, 1, 0);
        std::memcpy(to + i + k, &four, sizeof four);
      }
    } else {
      for (Extent k = 0; k < kLine; ++k) to[i + k] = line[kLine - 1 - k];
    }
  }
  for (; i < count; ++i) to[i] = from[-i];
}
/// Copies elements between strided places.
template <class Word>
void copy_strided(const Word* from, Extent from_stride, Word* to, Extent to_stride, Extent count) {
  if (from_stride == 1 && to_stride == 1 && count >= 16) {
    std::memcpy(to, from, static_cast<std::size_t>(count) * sizeof(Word));
    return;
  }
  if (from_stride == -1 && to_stride == 1) return copy_reversed<Word>(from, to, count, nullptr);
  for (Extent i = 0; i < count; ++i) to[i * to_stride] = from[i * from_stride];
}

}  // namespace weft::cpu
