#include "backend/cpu/ctc.hpp"

#include <algorithm>
#include <cmath>
#include <vector>

#include "base/threads.hpp"
#include "graph/ctc.hpp"

namespace weft::cpu {
namespace {

// The operands that both directions have.
template <class T>
struct CtcOperands {
  CtcOperands(const kernel::CallKernel& kernel, std::span<char* const> reads)
      : count(kernel.shapes[0][0]),
        sequences(kernel.shapes[0][1]),
        classes(kernel.shapes[0][2]),
        places(kernel.shapes[1][1]),
        x(reinterpret_cast<const T*>(reads[0])),
        at(reinterpret_cast<const std::int32_t*>(reads[1])),
        skips(reinterpret_cast<const std::int32_t*>(reads[2])),
        steps(reinterpret_cast<const std::int32_t*>(reads[3])),
        labels(reinterpret_cast<const std::int32_t*>(reads[4])) {}

  static constexpr T kNever = static_cast<T>(graph::kNeverLog);

  /// The log-probability of the class at a place; 0 for a class that does not exist, as a gather reads it.
  T read(Extent t, Extent n, Extent p) const {
    const Extent c = at[n * places + p];
    return c >= 0 && c < classes ? x[(t * sequences + n) * classes + c] : T{0};
  }
  bool may_skip(Extent n, Extent p) const { return p >= 2 && skips[n * places + p] != 0; }
  Extent row(Extent t, Extent n) const { return (t * sequences + n) * places; }
  /// Places where an alignment of sequence n may end, and log-probabilities there; kNever where there is none.
  T ended(const T* reached, Extent n, Extent before_last) const {
    const Extent place = Extent{2} * labels[n] - before_last;
    if (before_last == 1 && labels[n] <= 0) return kNever;
    return place >= 0 && place < places ? reached[place] : T{0};
  }
  bool is_end(Extent n, Extent p) const { return p == Extent{2} * labels[n] || p == Extent{2} * labels[n] - 1; }

  Extent count, sequences, classes, places;
  const T* x;
  const std::int32_t *at, *skips, *steps, *labels;
};

template <class T>
T log_sum_of(T a, T b, T c) {
  const T top = std::max(a, std::max(b, c));
  return std::log(std::exp(a - top) + std::exp(b - top) + std::exp(c - top)) + top;
}
template <class T>
T log_sum_of(T a, T b) {
  const T top = std::max(a, b);
  return std::log(std::exp(a - top) + std::exp(b - top)) + top;
}

template <class T>
void align(const kernel::CallKernel& kernel, std::span<char* const> reads, std::span<char* const> outs) {
  const CtcOperands<T> c(kernel, reads);
  T *totals = reinterpret_cast<T*>(outs[0]), *all = reinterpret_cast<T*>(outs[1]);
  parallel_for(c.sequences, [&](Extent n) {
    T* reached = all + c.row(0, n);
    for (Extent p = 0; p < c.places; ++p)
      reached[p] = p < 2 && p <= Extent{2} * c.labels[n] ? c.read(0, n, p) : c.kNever;
    for (Extent t = 1; t < c.count; ++t) {
      const T* before = reached;
      reached = all + c.row(t, n);
      if (t >= c.steps[n]) {
        std::copy_n(before, c.places, reached);
        continue;
      }
      for (Extent p = 0; p < c.places; ++p)
        reached[p] =
            log_sum_of(before[p], p >= 1 ? before[p - 1] : c.kNever, c.may_skip(n, p) ? before[p - 2] : c.kNever) +
            c.read(t, n, p);
    }
    totals[n] = log_sum_of(c.ended(reached, n, 0), c.ended(reached, n, 1));
  });
}

template <class T>
void align_backward(const kernel::CallKernel& kernel, std::span<char* const> reads, std::span<char* const> outs) {
  const CtcOperands<T> c(kernel, reads);
  const T *all = reinterpret_cast<const T*>(reads[5]), *gradients = reinterpret_cast<const T*>(reads[6]);
  T* d_x = reinterpret_cast<T*>(outs[0]);
  parallel_for(c.sequences, [&](Extent n) {
    const T* last = all + c.row(c.count - 1, n);
    const T total = log_sum_of(c.ended(last, n, 0), c.ended(last, n, 1));
    // Gradients of the probabilities at each place: after step t, and after step t - 1.
    std::vector<T> flowing(static_cast<std::size_t>(c.places), T{0}), earlier(flowing);
    for (Extent p = 0; p < c.places; ++p)
      if (c.is_end(n, p)) flowing[static_cast<std::size_t>(p)] = gradients[n] * std::exp(last[p] - total);
    for (Extent t = c.count; t-- > 0;) {
      T* to = d_x + (t * c.sequences + n) * c.classes;
      std::fill_n(to, c.classes, T{0});
      if (t > 0 && t >= c.steps[n]) continue;
      for (Extent p = 0; p < c.places; ++p)
        if (const Extent k = c.at[n * c.places + p]; k >= 0 && k < c.classes)
          to[k] += flowing[static_cast<std::size_t>(p)];
      if (t == 0) break;
      const T *before = all + c.row(t - 1, n), *after = all + c.row(t, n);
      std::fill(earlier.begin(), earlier.end(), T{0});
      for (Extent p = 0; p < c.places; ++p) {
        const T flow = flowing[static_cast<std::size_t>(p)];
        if (flow == 0) continue;
        const T entered = after[p] - c.read(t, n, p);
        for (Extent by = 0; by <= std::min<Extent>(p, 2); ++by)
          if (by < 2 || c.may_skip(n, p))
            earlier[static_cast<std::size_t>(p - by)] += flow * std::exp(before[p - by] - entered);
      }
      flowing.swap(earlier);
    }
  });
}

}  // namespace

void run_ctc_alignment(const kernel::CallKernel& kernel, std::span<char* const> reads, std::span<char* const> outs) {
  if (kernel.types[0] == DType::f64)
    align<double>(kernel, reads, outs);
  else
    align<float>(kernel, reads, outs);
}
void run_ctc_alignment_backward(const kernel::CallKernel& kernel, std::span<char* const> reads,
                                std::span<char* const> outs) {
  if (kernel.types[0] == DType::f64)
    align_backward<double>(kernel, reads, outs);
  else
    align_backward<float>(kernel, reads, outs);
}

}  // namespace weft::cpu
