// Attention by blocks of queries: the scores of a block against all keys it sees stay in the cache between the products.
#include "backend/cpu/attention.hpp"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <memory>
#include <optional>

#include <fmt/format.h>

#include "backend/cpu/gemm.hpp"
#include "backend/cpu/loop/tile.hpp"
#include "base/threads.hpp"
#include "weft/error.hpp"

namespace weft::cpu {
namespace {

constexpr Extent kQueriesOfBlock = 64;
constexpr Extent kCausalBlocks = 8;  // least number for a head: more blocks compute fewer masked scores
constexpr Extent kQueriesOfSmallBlock = 16;
constexpr Extent kTasks = 16;               // enough to balance the threads
constexpr Extent kScoresBytes = 512 << 10;  // for a block: half of the L2 cache

/// Number of queries of a block, so that its scores fit; at least 8, whatever the number of keys.
template <class T>
Extent block_of(const kernel::AttentionKernel& kernel) {
  const Extent fitting = kScoresBytes / static_cast<Extent>(sizeof(T)) / std::max<Extent>(kernel.keys, 1) / 8 * 8;
  const Extent wanted = std::clamp(kernel.queries / kCausalBlocks / 8 * 8, kQueriesOfSmallBlock, kQueriesOfBlock);
  return std::clamp<Extent>(fitting, 8, kernel.causal ? wanted : kQueriesOfBlock);
}

/// A thread's memory, kept for its next block.
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

template <class T>
class Attention {
 public:
  Attention(const kernel::AttentionKernel& kernel, const AttentionBinding& binding)
      : kernel_(kernel),
        binding_(binding),
        block_(block_of<T>(kernel)),
        parts_(attention_parts<T>()),
        scores_(in_pairs(binding.q, kernel.q) && in_pairs(binding.k, kernel.k)),
        gradients_(kernel.backward && in_pairs(binding.d_o, kernel.d_o) && in_pairs(binding.v, kernel.v)) {}

  Extent tasks() const { return kernel_.batch * kernel_.heads * (kernel_.backward ? 1 : parts()); }
  void run(Extent task) const {
    if (kernel_.backward) return backward_head(task);
    const Extent heads = kernel_.batch * kernel_.heads, part = parts() - 1 - task / heads;
    forward_blocks(task % heads, part * blocks() / parts(), (part + 1) * blocks() / parts());
  }

 private:
  using Tensor = kernel::AttentionKernel::Tensor;
  Extent blocks() const { return (kernel_.queries + block_ - 1) / block_; }
  /// Tasks of a head in the forward pass. If all blocks of a head are one task, its keys are transposed once. Later blocks see
  /// more keys, so with few heads the longest blocks go first, and the last tasks are short.
  Extent parts() const { return kernel_.batch * kernel_.heads >= kTasks ? 1 : blocks(); }
  Extent first_of(const Tensor& tensor, Extent head) const {
    return head / kernel_.heads * tensor.batch_stride + head % kernel_.heads * tensor.head_stride;
  }
  T* at(void* data, const Tensor& tensor, Extent head) const { return static_cast<T*>(data) + first_of(tensor, head); }

  /// Rows of a head to read.
  struct Rows {
    const T* data;
    Extent row;
  };
  static bool is_narrow(const Tensor& tensor) { return tensor.operand.type != dtype_of<T>; }
  /// Elements of `rows` rows in scratch memory.
  Extent scratch_for(const Tensor& tensor, Extent rows) const { return is_narrow(tensor) ? rows * kernel_.width : 0; }
  /// Rows [begin, begin + count): in place, or converted to `to`, which is advanced past them.
  Rows read(const void* data, const Tensor& tensor, Extent head, Extent begin, Extent count, T*& to) const {
    const Extent first = first_of(tensor, head) + begin * tensor.row_stride;
    if constexpr (std::is_same_v<T, float>)
      if (is_narrow(tensor)) {
        widen_function(tensor.operand.type)(data, first, tensor.row_stride, count, kernel_.width, to, kernel_.width);
        T* const converted = to;
        to += count * kernel_.width;
        return {converted, kernel_.width};
      }
    return {static_cast<const T*>(data) + first, tensor.row_stride};
  }
  /// Whether every row is made of whole pairs of bf16.
  bool in_pairs(const void* data, const Tensor& tensor) const {
    bool whole = tensor.operand.type == DType::bf16 && reinterpret_cast<std::uintptr_t>(data) % sizeof(float) == 0;
    for (const Extent x : {kernel_.width, tensor.row_stride, tensor.head_stride, tensor.batch_stride})
      whole = whole && x % 2 == 0;
    return whole;
  }
  /// The product of rows of queries and of keys, or of d_o and of values, over the width: of pairs of bf16 if the processor has
  /// instructions for them.
  struct RowProduct {
    explicit RowProduct(bool may_use_pairs) : pairs(may_use_pairs ? SmallGemm<T>::of_pairs() : std::nullopt) {}
    std::optional<SmallGemm<T>> pairs;
    SmallGemm<T> plain;

    const SmallGemm<T>& gemm() const { return pairs ? *pairs : plain; }
    Extent depth(Extent width) const { return pairs ? width / 2 : width; }
  };
  /// Rows for such a product: pairs where they are, or else as `read` gives them.
  Rows read_for(const RowProduct& product, const void* data, const Tensor& tensor, Extent head, Extent begin,
                Extent count, T*& to) const {
    if (!product.pairs) return read(data, tensor, head, begin, count, to);
    return pairs_of(data, tensor, head, begin);
  }
  Rows pairs_of(const void* data, const Tensor& tensor, Extent head, Extent begin) const {
    const auto* first = static_cast<const std::uint16_t*>(data) + first_of(tensor, head) + begin * tensor.row_stride;
    return {reinterpret_cast<const T*>(first), tensor.row_stride / 2};
  }

  /// Keys that query i sees.
  Extent visible(Extent i) const {
    return kernel_.causal ? std::clamp<Extent>(i + kernel_.keys - kernel_.queries + 1, 0, kernel_.keys) : kernel_.keys;
  }

  void forward_blocks(Extent head, Extent first, Extent last) const {
    const Extent width = kernel_.width, most = visible(std::min(last * block_, kernel_.queries) - 1);
    const Extent narrow =
        scratch_for(kernel_.v, most) + std::max(scratch_for(kernel_.k, most), scratch_for(kernel_.q, block_));
    T* keys = scratch<T>(static_cast<std::size_t>(gemm_.packed_size(width, most) + block_ * most + narrow));
    T* scores = keys + gemm_.packed_size(width, most);
    T* converted = scores + block_ * most;
    const Rows v = read(binding_.v, kernel_.v, head, 0, most, converted);
    T* const for_queries = converted;  // and before that for keys
    const Rows k = read_for(scores_, binding_.k, kernel_.k, head, 0, most, converted);
    const Extent depth = scores_.depth(width);
    scores_.gemm().pack_transposed(depth, most, k.data, k.row, keys);
    for (Extent begin = first * block_; begin < std::min(last * block_, kernel_.queries); begin += block_) {
      const Extent end = std::min(begin + block_, kernel_.queries), rows = end - begin, seen = visible(end - 1);
      T* o = at(binding_.o, kernel_.o, head) + begin * kernel_.o.row_stride;
      T* logsumexp = static_cast<T*>(binding_.logsumexp) + head * kernel_.queries;
      converted = for_queries;
      const Rows q = read_for(scores_, binding_.q, kernel_.q, head, begin, rows, converted);
      scores_.gemm().multiply_packed(rows, seen, depth, q.data, q.row, keys, scores, seen);
      T total[kQueriesOfBlock];
      Extent visible_of[kQueriesOfBlock];
      for (Extent r = 0; r < rows; ++r) visible_of[r] = visible(begin + r);
      parts_.softmax(scores, rows, seen, visible_of, static_cast<T>(kernel_.scale), total, logsumexp + begin);
      gemm_.multiply(rows, width, seen, scores, seen, 1, v.data, v.row, o, kernel_.o.row_stride);
      parts_.divide(o, rows, kernel_.o.row_stride, width, total);
    }
  }

  void backward_head(Extent head) const {
    const Extent width = kernel_.width, keys = kernel_.keys;
    T *d_k = at(binding_.d_k, kernel_.d_k, head), *d_v = at(binding_.d_v, kernel_.d_v, head);
    const T* logsumexp = static_cast<const T*>(binding_.logsumexp) + head * kernel_.queries;
    const Extent packed = gemm_.packed_size(width, keys);
    const Extent of_block =
        scratch_for(kernel_.q, block_) + scratch_for(kernel_.o, block_) + scratch_for(kernel_.d_o, block_);
    const Extent narrow = scratch_for(kernel_.k, keys) + std::max(scratch_for(kernel_.v, keys), of_block);
    T* turned_k = scratch<T>(static_cast<std::size_t>(2 * packed + 2 * block_ * keys + narrow));
    T* turned_v = turned_k + packed;
    T* p = turned_v + packed;
    T* converted = p + 2 * block_ * keys;
    const Rows k = read(binding_.k, kernel_.k, head, 0, keys, converted);
    T* const for_block = converted;  // and before that for values
    const Rows v = read_for(gradients_, binding_.v, kernel_.v, head, 0, keys, converted);
    const Rows k_rows = scores_.pairs ? pairs_of(binding_.k, kernel_.k, head, 0) : k;
    const Extent score_depth = scores_.depth(width), gradient_depth = gradients_.depth(width);
    scores_.gemm().pack_transposed(score_depth, keys, k_rows.data, k_rows.row, turned_k);
    gradients_.gemm().pack_transposed(gradient_depth, keys, v.data, v.row, turned_v);
    // The last queries see all keys, so their gradients come first, and those of the others are added.
    for (Extent block = blocks(); block-- > 0;) {
      const Extent begin = block * block_, end = std::min(begin + block_, kernel_.queries), rows = end - begin,
                   seen = visible(end - 1);
      const bool adds = block + 1 < blocks();
      converted = for_block;
      const Rows q = read(binding_.q, kernel_.q, head, begin, rows, converted);
      const Rows o = read(binding_.o, kernel_.o, head, begin, rows, converted);
      const Rows d_o = read(binding_.d_o, kernel_.d_o, head, begin, rows, converted);
      T* d_p = p + rows * seen;
      const Rows q_rows = scores_.pairs ? pairs_of(binding_.q, kernel_.q, head, begin) : q;
      const Rows d_o_rows = gradients_.pairs ? pairs_of(binding_.d_o, kernel_.d_o, head, begin) : d_o;
      scores_.gemm().multiply_packed(rows, seen, score_depth, q_rows.data, q_rows.row, turned_k, p, seen);
      gradients_.gemm().multiply_packed(rows, seen, gradient_depth, d_o_rows.data, d_o_rows.row, turned_v, d_p, seen);
      for (Extent r = 0; r < rows; ++r)
        parts_.gradient(p + r * seen, d_p + r * seen, visible(begin + r), seen, static_cast<T>(kernel_.scale),
                        logsumexp[begin + r], o.data + r * o.row, d_o.data + r * d_o.row, width);
      gemm_.multiply(seen, width, rows, p, 1, seen, d_o.data, d_o.row, d_v, kernel_.d_v.row_stride, adds);
      gemm_.multiply(seen, width, rows, d_p, 1, seen, q.data, q.row, d_k, kernel_.d_k.row_stride, adds);
      gemm_.multiply(rows, width, seen, d_p, seen, 1, k.data, k.row,
                     at(binding_.d_q, kernel_.d_q, head) + begin * kernel_.d_q.row_stride, kernel_.d_q.row_stride);
    }
  }

  const kernel::AttentionKernel& kernel_;
  const AttentionBinding& binding_;
  Extent block_;
  const AttentionParts<T>& parts_;
  RowProduct scores_, gradients_;
  SmallGemm<T> gemm_;
};

/// Calls `use` with the attention in the type of its operands.
template <class Use>
auto with_attention(const kernel::AttentionKernel& kernel, const AttentionBinding& binding, Use use) {
  if (kernel.kv_heads != kernel.heads || kernel.window != 0)
    throw InternalError(fmt::format("cpu: kernel {}: attention with shared heads or a window", kernel.name));
  const DType type = kernel.type();
  kernel::visit_operands(kernel, [&](const kernel::Operand& operand, bool is_written) {
    const bool is_read = !is_written && type == DType::f32 && widen_function(operand.type) != nullptr;
    if ((type != DType::f32 && type != DType::f64) || (operand.type != type && !is_read))
      throw DTypeError(
          fmt::format("{}: attention is of f32 or f64, with operands of that type or narrower, not {}; cast first",
                      kernel.name, name_of(operand.type)));
  });
  if (type == DType::f64) return use(Attention<double>(kernel, binding));
  return use(Attention<float>(kernel, binding));
}

}  // namespace

Extent attention_tasks(const kernel::AttentionKernel& kernel) {
  return with_attention(kernel, {}, [](const auto& attention) { return attention.tasks(); });
}
void run_attention_task(const kernel::AttentionKernel& kernel, const AttentionBinding& binding, Extent task) {
  with_attention(kernel, binding, [&](const auto& attention) { attention.run(task); });
}
void run_attention(const kernel::AttentionKernel& kernel, const AttentionBinding& binding) {
  with_attention(kernel, binding, [&](const auto& attention) {
    parallel_for(attention.tasks(), [&](Extent task) { attention.run(task); });
  });
}

}  // namespace weft::cpu
