#include "backend/cpu/gemm_pieces.hpp"

#include <algorithm>

#include "backend/cpu/gemm_product.hpp"
#include "backend/cpu/scratch_block.hpp"
#include "base/threads.hpp"

namespace weft::cpu::blocked {
namespace {

constexpr int64_t kPieceDepth = 1024;                 // of k at least, when k is cut into pieces
constexpr int64_t kPiecesBytesMax = 4 * 1024 * 1024;  // of the products of all pieces

thread_local ScratchBlock partial_results;

template <class T>
void skip(GemmSource<T>& source, int64_t elements) {
  if (source.narrow)
    source.narrow.first += elements;
  else
    source.data += elements;
}

}  // namespace

template <class T>
int64_t pieces_of(const GemmArgs<T>& args, int64_t tiles) {
  if (args.batch > 1 || tiles >= kTasks) return 1;
  const int64_t bytes = args.m * args.n * static_cast<int64_t>(sizeof(T));
  return std::max<int64_t>(1, std::min({kTasks, args.k / kPieceDepth, kPiecesBytesMax / bytes}));
}

template <class T>
void run_in_pieces(const GemmArgs<T>& args, const GemmKernels<T>& kernels, int64_t pieces) {
  const int64_t unit = unit_of(kernels), depth = args.k / unit / pieces * unit, rest = args.k - depth * pieces;
  const int64_t size = args.m * args.n;
  partial_results.grow(pieces * size * static_cast<int64_t>(sizeof(T)));
  T* const partial = static_cast<T*>(partial_results.data());
  GemmArgs<T> parts{.batch = pieces, .m = args.m, .n = args.n, .k = depth};
  const auto part_of = [&](const GemmSource<T>& source, int64_t k_stride) {
    GemmSource<T> part = source;
    if (source.view == nullptr) {
      skip(part, source.batch[0]);
      part.batch = {.stride = depth * k_stride};
      return part;
    }
    part.first_step = depth;
    return part;
  };
  parts.a = part_of(args.a, args.a.column);
  parts.b = part_of(args.b, args.b.row);
  parts.c = {.data = partial, .row = args.n, .batch = {.stride = size}};
  Product<T>(parts, kernels).run();

  T* const c = args.c.data + args.c.batch[0];
  const bool is_final = args.after_block && rest == 0;
  parallel_for(kTasks, [&](int64_t task) {
    const int64_t begin = args.m * task / kTasks, end = args.m * (task + 1) / kTasks;
    for (int64_t i = begin; i < end; ++i) {
      T* to = c + i * args.c.row;
      if (!args.accumulate) std::fill_n(to, args.n, T{0});
      for (int64_t piece = 0; piece < pieces; ++piece) {
        const T* from = partial + piece * size + i * args.n;
        for (int64_t j = 0; j < args.n; ++j) to[j] += from[j];
      }
    }
    if (is_final && begin < end) args.after_block(0, begin, end, 0, args.n);
  });
  if (rest == 0) return;
  GemmArgs<T> last = args;
  const auto go_on = [&](GemmSource<T>& source, int64_t k_stride) {
    if (source.view == nullptr)
      skip(source, (args.k - rest) * k_stride);
    else
      source.first += args.k - rest;
  };
  go_on(last.a, args.a.column);
  go_on(last.b, args.b.row);
  last.k = rest;
  last.accumulate = true;
  Product<T>(last, kernels).run();
}

template int64_t pieces_of(const GemmArgs<float>& args, int64_t tiles);
template int64_t pieces_of(const GemmArgs<double>& args, int64_t tiles);
template void run_in_pieces(const GemmArgs<float>& args, const GemmKernels<float>& kernels, int64_t pieces);
template void run_in_pieces(const GemmArgs<double>& args, const GemmKernels<double>& kernels, int64_t pieces);

}  // namespace weft::cpu::blocked
