// Attention by blocks of queries: the scores of a block against all keys it sees stay in the cache between the products.
#include "backend/cpu/attention.hpp"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <memory>

#include <fmt/format.h>

#include "backend/cpu/gemm.hpp"
#include "backend/cpu/tile.hpp"
#include "base/threads.hpp"
#include "weft/error.hpp"

namespace weft::cpu {
namespace {

constexpr Extent kQueriesOfBlock = 64;
constexpr Extent kCausalBlocks = 8;  // of one head at least: more blocks compute fewer scores that the mask throws away
constexpr Extent kQueriesOfSmallBlock = 16;
constexpr Extent kScoresBytes = 512 << 10;  // of a block: half of the second cache

/// Queries of a block, so that its scores fit; at least 8, however many keys there are.
template <class T>
Extent block_of(const kernel::AttentionKernel& kernel) {
  const Extent fitting = kScoresBytes / static_cast<Extent>(sizeof(T)) / std::max<Extent>(kernel.keys, 1) / 8 * 8;
  const Extent wanted = std::clamp(kernel.queries / kCausalBlocks / 8 * 8, kQueriesOfSmallBlock, kQueriesOfBlock);
  return std::clamp<Extent>(fitting, 8, kernel.causal ? wanted : kQueriesOfBlock);
}

/// Memory of a thread, kept for its next block.
template <class T>
T* scratch(std::size_t count) {
  struct Free {
    void operator()(T* memory) const { std::free(memory); }
  };
  thread_local std::unique_ptr<T, Free> memory;
  thread_local std::size_t size = 0;
  if (count > size) {
    memory.reset();
    memory.reset(static_cast<T*>(std::aligned_alloc(4096, (count * sizeof(T) + 4095) / 4096 * 4096)));
    if (memory == nullptr) throw std::bad_alloc();
    size = count;
  }
  return memory.get();
}

/// C[m, n] (+)= A B with A[m, k] and B[k, n] given by their strides.
template <class T>
void multiply(Extent m, Extent n, Extent k, const T* a, Extent a_row, Extent a_column, const T* b, Extent b_row,
              Extent b_column, T* c, Extent c_row, bool accumulate = false) {
  GemmArgs<T> args;
  args.m = m, args.n = n, args.k = k;
  args.a = {a, a_row, a_column, {}};
  args.b = {b, b_row, b_column, {}};
  args.c = {c, c_row, {}};
  args.accumulate = accumulate;
  gemm(args);
}

template <class T>
class Attention {
 public:
  Attention(const kernel::AttentionKernel& kernel, const AttentionBinding& binding)
      : kernel_(kernel), binding_(binding), block_(block_of<T>(kernel)), parts_(attention_parts<T>()) {}

  void forward() const {
    const Extent blocks = (kernel_.queries + block_ - 1) / block_;
    // Later blocks see more keys: the longest go first, so that the last tasks are short.
    parallel_for(kernel_.batch * kernel_.heads * blocks, [&](Extent t) {
      const Extent heads = kernel_.batch * kernel_.heads;
      forward_block(t % heads, blocks - 1 - t / heads);
    });
  }
  void backward() const {
    parallel_for(kernel_.batch * kernel_.heads, [&](Extent head) { backward_head(head); });
  }

 private:
  using Tensor = kernel::AttentionKernel::Tensor;
  template <class Pointer>
  auto at(Pointer* data, const Tensor& tensor, Extent head) const {
    using Element = std::conditional_t<std::is_const_v<Pointer>, const T, T>;
    return static_cast<Element*>(data) + head / kernel_.heads * tensor.batch_stride +
           head % kernel_.heads * tensor.head_stride;
  }
  /// Keys that query i sees.
  Extent visible(Extent i) const {
    return kernel_.causal ? std::clamp<Extent>(i + kernel_.keys - kernel_.queries + 1, 0, kernel_.keys) : kernel_.keys;
  }

  void forward_block(Extent head, Extent block) const {
    const Extent begin = block * block_, end = std::min(begin + block_, kernel_.queries), rows = end - begin;
    const Extent seen = visible(end - 1), width = kernel_.width;
    T* scores = scratch<T>(static_cast<std::size_t>(rows * seen));
    T* o = at(binding_.o, kernel_.o, head) + begin * kernel_.o.row_stride;
    T* logsumexp = static_cast<T*>(binding_.logsumexp) + head * kernel_.queries;
    multiply(rows, seen, width, at(binding_.q, kernel_.q, head) + begin * kernel_.q.row_stride, kernel_.q.row_stride,
             Extent{1}, at(binding_.k, kernel_.k, head), Extent{1}, kernel_.k.row_stride, scores, seen);
    T total[kQueriesOfBlock];
    Extent visible_of[kQueriesOfBlock];
    for (Extent r = 0; r < rows; ++r) visible_of[r] = visible(begin + r);
    parts_.softmax(scores, rows, seen, visible_of, static_cast<T>(kernel_.scale), total, logsumexp + begin);
    multiply(rows, width, seen, scores, seen, Extent{1}, at(binding_.v, kernel_.v, head), kernel_.v.row_stride,
             Extent{1}, o, kernel_.o.row_stride);
    for (Extent r = 0; r < rows; ++r) {
      const T inverse = total[r] > 0 ? 1 / total[r] : 0;
      for (Extent c = 0; c < width; ++c) o[r * kernel_.o.row_stride + c] *= inverse;
    }
  }

  void backward_head(Extent head) const {
    const Extent width = kernel_.width, keys = kernel_.keys;
    const T *k = at(binding_.k, kernel_.k, head), *v = at(binding_.v, kernel_.v, head);
    T *d_k = at(binding_.d_k, kernel_.d_k, head), *d_v = at(binding_.d_v, kernel_.d_v, head);
    const T* logsumexp = static_cast<const T*>(binding_.logsumexp) + head * kernel_.queries;
    for (Extent j = 0; j < keys; ++j) {
      std::fill_n(d_k + j * kernel_.d_k.row_stride, width, T{0});
      std::fill_n(d_v + j * kernel_.d_v.row_stride, width, T{0});
    }
    for (Extent begin = 0; begin < kernel_.queries; begin += block_) {
      const Extent end = std::min(begin + block_, kernel_.queries), rows = end - begin, seen = visible(end - 1);
      const T* q = at(binding_.q, kernel_.q, head) + begin * kernel_.q.row_stride;
      const T* o = at(static_cast<const void*>(binding_.o), kernel_.o, head) + begin * kernel_.o.row_stride;
      const T* d_o = at(binding_.d_o, kernel_.d_o, head) + begin * kernel_.d_o.row_stride;
      T* p = scratch<T>(static_cast<std::size_t>(2 * rows * seen));
      T* d_p = p + rows * seen;
      multiply(rows, seen, width, q, kernel_.q.row_stride, Extent{1}, k, Extent{1}, kernel_.k.row_stride, p, seen);
      multiply(rows, seen, width, d_o, kernel_.d_o.row_stride, Extent{1}, v, Extent{1}, kernel_.v.row_stride, d_p,
               seen);
      for (Extent r = 0; r < rows; ++r)
        parts_.gradient(p + r * seen, d_p + r * seen, visible(begin + r), seen, static_cast<T>(kernel_.scale),
                        logsumexp[begin + r], o + r * kernel_.o.row_stride, d_o + r * kernel_.d_o.row_stride, width);
      multiply(seen, width, rows, p, Extent{1}, seen, d_o, kernel_.d_o.row_stride, Extent{1}, d_v,
               kernel_.d_v.row_stride, true);
      multiply(seen, width, rows, d_p, Extent{1}, seen, q, kernel_.q.row_stride, Extent{1}, d_k, kernel_.d_k.row_stride,
               true);
      multiply(rows, width, seen, d_p, seen, Extent{1}, k, kernel_.k.row_stride, Extent{1},
               at(binding_.d_q, kernel_.d_q, head) + begin * kernel_.d_q.row_stride, kernel_.d_q.row_stride);
    }
  }

  const kernel::AttentionKernel& kernel_;
  const AttentionBinding& binding_;
  Extent block_;
  const AttentionParts<T>& parts_;
};

}  // namespace

void run_attention(const kernel::AttentionKernel& kernel, const AttentionBinding& binding) {
  const auto run = [&]<class T>(T) {
    const Attention<T> attention(kernel, binding);
    kernel.backward ? attention.backward() : attention.forward();
  };
  switch (kernel.q.operand.type) {
    case DType::f32: return run(float{});
    case DType::f64: return run(double{});
    default:
      throw DTypeError(fmt::format("{}: attention is of f32 or f64, not {}; cast first", kernel.name,
                                   name_of(kernel.q.operand.type)));
  }
}

}  // namespace weft::cpu
