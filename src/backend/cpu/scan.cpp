#include "backend/cpu/scan.hpp"

#include <type_traits>

#include "base/threads.hpp"
#include "compile/call_attributes.hpp"
#include "graph/scan.hpp"
#include "weft/error.hpp"

namespace weft::cpu {
namespace {

// [outer, n, inner]: scans of n elements that are `inner` apart.
struct Space {
  Extent outer = 1, n = 1, inner = 1;
};

Space space_of(const Shape& shape, int axis) {
  Space space;
  for (int d = 0; d < shape.rank(); ++d) (d < axis ? space.outer : d == axis ? space.n : space.inner) *= shape[d];
  return space;
}

// `Sum` is what the elements are added in: wide enough for floats, unsigned for integers, which wrap.
template <class In, class Out, class Sum>
void scan(const Space& space, const graph::CumsumAttributes& a, const char* from, char* to) {
  const auto* x = reinterpret_cast<const In*>(from);
  auto* y = reinterpret_cast<Out*>(to);
  constexpr Extent kBlock = 64;  // neighbouring scans of a task: they share cache lines
  const Extent blocks = (space.inner + kBlock - 1) / kBlock;
  parallel_for(space.outer * blocks, [&](Extent task) {
    const Extent first = task % blocks * kBlock, count = std::min(kBlock, space.inner - first);
    const Extent base = task / blocks * space.n * space.inner + first;
    Sum sums[kBlock] = {};
    for (Extent i = 0; i < space.n; ++i) {
      const Extent row = base + (a.reverse ? space.n - 1 - i : i) * space.inner;
      for (Extent c = 0; c < count; ++c) {
        const Sum value = static_cast<Sum>(x[row + c]);
        if (a.exclusive) y[row + c] = static_cast<Out>(sums[c]);
        sums[c] += value;
        if (!a.exclusive) y[row + c] = static_cast<Out>(sums[c]);
      }
    }
  });
}

}  // namespace

void run_cumsum(const kernel::CallKernel& kernel, std::span<char* const> reads, std::span<char* const> outs) {
  const auto a = kernel::attributes_of<graph::CumsumAttributes>(kernel);
  const Shape& shape = kernel.shape();
  const Space space = space_of(shape, static_cast<int>(a.axis < 0 ? a.axis + shape.rank() : a.axis));
  switch (kernel.reads[0].type) {
    case DType::f32: return scan<float, float, double>(space, a, reads[0], outs[0]);
    case DType::f64: return scan<double, double, double>(space, a, reads[0], outs[0]);
    case DType::i32: return scan<std::int32_t, std::int32_t, std::uint32_t>(space, a, reads[0], outs[0]);
    case DType::u32: return scan<std::uint32_t, std::uint32_t, std::uint32_t>(space, a, reads[0], outs[0]);
    case DType::boolean: return scan<std::uint8_t, std::int32_t, std::int32_t>(space, a, reads[0], outs[0]);
    default: break;
  }
  throw DTypeError("cumsum: there is no kernel for this dtype; cast to f32");
}

}  // namespace weft::cpu
