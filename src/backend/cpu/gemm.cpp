// The matrix product: which kernels compute it, in pieces or whole; and products of integers.
#include "backend/cpu/gemm.hpp"

#include <algorithm>
#include <memory>
#include <string>
#include <type_traits>

#include "backend/cpu/gemm_kernels.hpp"
#include "backend/cpu/gemm_pieces.hpp"
#include "backend/cpu/gemm_product.hpp"
#include "backend/cpu/window_product.hpp"
#include "base/threads.hpp"
#include "weft/error.hpp"

namespace weft::cpu {
namespace {

using blocked::Product;
using std::int64_t;

const GemmKernels<float>* kernels_for([[maybe_unused]] Isa isa, float) {
#if defined(__x86_64__)
  if (isa >= Isa::avx512) return &avx512::kGemmF32;
  if (isa == Isa::avx2) return &avx2::kGemmF32;
#endif
  return &baseline::kGemmF32;
}
/// Whether the product runs on pairs of bf16.
bool takes_pairs(const GemmArgs<float>& args) {
  return args.a.narrow.is_bf16 && args.b.narrow.is_bf16 && has_bf16_dot(isa());
}

const GemmKernels<double>* kernels_for([[maybe_unused]] Isa isa, double) {
#if defined(__x86_64__)
  if (isa >= Isa::avx512) return &avx512::kGemmF64;
  if (isa == Isa::avx2) return &avx2::kGemmF64;
#endif
  return &baseline::kGemmF64;
}

const GemmKernels<float>& kernels_for(const GemmArgs<float>& args) {
#if defined(__x86_64__)
  if (takes_pairs(args)) return isa() >= Isa::amx && args.a.view == nullptr ? avx512::gemm_amx() : avx512::kGemmBf16;
#elif defined(__aarch64__)
  if (takes_pairs(args)) return neon::kGemmBf16;
#endif
  return *kernels_for(isa(), float{});
}
const GemmKernels<double>& kernels_for(const GemmArgs<double>&) { return *kernels_for(isa(), double{}); }

/// A dimension of extent 1 may have any stride: choose the one that makes the source regular.
template <class T>
void normalise(GemmSource<T>& source, int64_t rows, int64_t columns, const char* name) {
  if (source.view != nullptr) return;
  if (columns == 1 && source.row != 1)
    source.column = 1;
  else if (rows == 1 && source.column != 1)
    source.row = 1;
  if (source.row != 1 && source.column != 1)
    throw InternalError(std::string("gemm: neither stride of ") + name + " is 1; copy it first");
}

/// A batch whose products share B and stack up in A and C is one product.
template <class T>
void fold_batch(GemmArgs<T>& args) {
  if (args.a.view != nullptr || args.b.view != nullptr) return;
  const auto follows = [&](const BatchOffsets& offsets, int64_t stride) {
    return offsets.each == nullptr && offsets.stride == stride;
  };
  if (args.batch == 1 || args.after_block || !follows(args.b.batch, 0) || !follows(args.a.batch, args.m * args.a.row) ||
      !follows(args.c.batch, args.m * args.c.row))
    return;
  args.m *= args.batch;
  args.batch = 1;
}

template <class T>
GemmArgs<T> regular(GemmArgs<T> args) {
  if (args.k <= 0) {
    args.k = 0;
    args.a = {.data = args.c.data, .row = 1, .column = 1};  // never read; a null one could not be offset
    args.b = {.data = args.c.data, .row = 1, .column = 1};
  }
  normalise(args.a, args.m, args.k, "A");
  normalise(args.b, args.k, args.n, "B");
  fold_batch(args);
  return args;
}

template <class T>
void gemm_vectorised(const GemmArgs<T>& given) {
  if (given.batch <= 0 || given.m <= 0 || given.n <= 0) return;
  const GemmArgs<T> args = regular(given);
  const GemmKernels<T>& kernels = kernels_for(args);
  if constexpr (std::is_same_v<T, float>)
    if (const auto windows = WindowProduct::of(args, kernels)) return windows->run();
  const Product<T> product(args, kernels);
  const int64_t pieces = blocked::pieces_of(args, product.tiles());
  if (pieces > 1) {
    blocked::run_in_pieces(args, kernels, pieces);
  } else {
    product.run();
  }
}

/// Row by row, in unsigned numbers, whose overflow is defined.
template <class T>
void gemm_plain(const GemmArgs<T>& args) {
  using Wrapping = std::make_unsigned_t<T>;
  parallel_for(args.batch * args.m, [&](int64_t task) {
    const int64_t batch = task / args.m, i = task % args.m;
    const T* a = args.a.data + args.a.batch[batch] + i * args.a.row;
    const T* b = args.b.data + args.b.batch[batch];
    T* c = args.c.data + args.c.batch[batch] + i * args.c.row;
    if (!args.accumulate) std::fill_n(c, args.n, T{0});
    for (int64_t k = 0; k < args.k; ++k) {
      const auto left = static_cast<Wrapping>(a[k * args.a.column]);
      const T* right = b + k * args.b.row;
      for (int64_t j = 0; j < args.n; ++j)
        c[j] = static_cast<T>(static_cast<Wrapping>(c[j]) + left * static_cast<Wrapping>(right[j * args.b.column]));
    }
    if (args.after_block) args.after_block(batch, i, i + 1, 0, args.n);
  });
}

}  // namespace

template <>
void gemm<float>(const GemmArgs<float>& args) {
  gemm_vectorised(args);
}
template <>
void gemm<double>(const GemmArgs<double>& args) {
  gemm_vectorised(args);
}
template <>
void gemm<std::int32_t>(const GemmArgs<std::int32_t>& args) {
  if (args.batch > 0 && args.m > 0 && args.n > 0) gemm_plain(args);
}
template <>
void gemm<std::int64_t>(const GemmArgs<std::int64_t>& args) {
  if (args.batch > 0 && args.m > 0 && args.n > 0) gemm_plain(args);
}

template <class T>
struct GemmTasks<T>::State {
  GemmArgs<T> args;
  Product<T> product;

  bool has_steps = false;

  explicit State(const GemmArgs<T>& given) : args(regular(given)), product(args, kernels_for(args)) {
    if constexpr (std::is_same_v<T, float>) has_steps = WindowProduct::of(args, kernels_for(args)).has_value();
  }
};
template <class T>
GemmTasks<T>::GemmTasks(const GemmArgs<T>& args) : state_(std::make_unique<State>(args)) {}
template <class T>
GemmTasks<T>::~GemmTasks() = default;
template <class T>
GemmTasks<T>::GemmTasks(GemmTasks&&) noexcept = default;
template <class T>
GemmTasks<T>& GemmTasks<T>::operator=(GemmTasks&&) noexcept = default;
template <class T>
int64_t GemmTasks<T>::count() const {
  const GemmArgs<T>& args = state_->args;
  if (args.batch <= 0 || args.m <= 0 || args.n <= 0) return 0;
  return state_->has_steps || blocked::pieces_of(args, state_->product.tiles()) > 1 ? 0 : state_->product.tasks();
}
template <class T>
void GemmTasks<T>::run(int64_t task) const {
  state_->product.run_task(task);
}

template <class T>
const GemmKernels<T>& gemm_kernels_in_use() {
  return *kernels_for(isa(), T{});
}
template const GemmKernels<float>& gemm_kernels_in_use<float>();
template const GemmKernels<double>& gemm_kernels_in_use<double>();

template class GemmTasks<float>;

}  // namespace weft::cpu
