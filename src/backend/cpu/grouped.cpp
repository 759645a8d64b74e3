#include "backend/cpu/grouped.hpp"

#include <algorithm>

#include "backend/cpu/gemm.hpp"
#include "compile/call_attributes.hpp"
#include "graph/grouped.hpp"

namespace weft::cpu {
namespace {

/// f(group, first row, number of rows) for each group. Ends that decrease give no rows; no end is beyond `rows`.
template <class F>
void for_each_group(const char* ends, Extent groups, Extent rows, F&& f) {
  const auto* end = reinterpret_cast<const std::int32_t*>(ends);
  Extent first = 0;
  for (Extent g = 0; g < groups; ++g) {
    const Extent last = std::clamp<Extent>(end[g], first, rows);
    f(g, first, last - first);
    first = last;
  }
}

template <class F>
void with_float(DType type, F&& f) {
  if (type == DType::f64)
    f(double{});
  else
    f(float{});
}

}  // namespace

void run_grouped_matmul(const kernel::CallKernel& kernel, std::span<char* const> reads, std::span<char* const> outs) {
  const bool transposed = kernel::attributes_of<graph::GroupedAttributes>(kernel).transposed;
  const Extent n = kernel.shape()[0], m = kernel.shape()[1], k = kernel.shapes[0][1], groups = kernel.shapes[2][0];
  with_float(kernel.out().type, [&]<class T>(T) {
    const auto* x = reinterpret_cast<const T*>(reads[0]);
    const auto* weights = reinterpret_cast<const T*>(reads[1]);
    auto* y = reinterpret_cast<T*>(outs[0]);
    Extent done = 0;
    for_each_group(reads[2], groups, n, [&](Extent g, Extent first, Extent count) {
      done = first + count;
      if (count == 0) return;
      gemm<T>({.m = count,
               .n = m,
               .k = k,
               .a = {.data = x + first * k, .row = k, .column = 1},
               .b = {.data = weights + g * k * m, .row = transposed ? 1 : m, .column = transposed ? k : 1},
               .c = {.data = y + first * m, .row = m}});
    });
    std::fill(y + done * m, y + n * m, T{0});
  });
}

void run_grouped_outer(const kernel::CallKernel& kernel, std::span<char* const> reads, std::span<char* const> outs) {
  const Extent groups = kernel.shape()[0], k = kernel.shape()[1], m = kernel.shape()[2], n = kernel.shapes[0][0];
  with_float(kernel.out().type, [&]<class T>(T) {
    const auto* x = reinterpret_cast<const T*>(reads[0]);
    const auto* y = reinterpret_cast<const T*>(reads[1]);
    auto* sums = reinterpret_cast<T*>(outs[0]);
    for_each_group(reads[2], groups, n, [&](Extent g, Extent first, Extent count) {
      gemm<T>({.m = k,
               .n = m,
               .k = count,
               .a = {.data = x + first * k, .row = 1, .column = k},
               .b = {.data = y + first * m, .row = m, .column = 1},
               .c = {.data = sums + g * k * m, .row = m}});
    });
  });
}

}  // namespace weft::cpu
