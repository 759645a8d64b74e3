// Attention by blocks of queries: the scores of a block against all keys it sees stay in the cache between the products.
#include "backend/cpu/attention.hpp"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <memory>
#include <numeric>
#include <optional>

#include <fmt/format.h>

#include "backend/cpu/gemm.hpp"
#include "backend/cpu/loop/tile.hpp"
#include "base/threads.hpp"
#include "graph/attention.hpp"
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

  Extent tasks() const {
    return kernel_.backward ? kernel_.batch * kernel_.kv_heads : kernel_.batch * kernel_.heads * parts();
  }
  void run(Extent task) const {
    if (kernel_.backward) return backward_head(task);
    const Extent heads = kernel_.batch * kernel_.heads, part = parts() - 1 - task / heads;
    forward_blocks(task % heads, part * blocks() / parts(), (part + 1) * blocks() / parts());
  }

 private:
  using Tensor = kernel::AttentionKernel::Tensor;
  Extent blocks() const { return (kernel_.queries + block_ - 1) / block_; }
  Extent members() const { return kernel_.heads / kernel_.kv_heads; }
  /// Tasks of a head in the forward pass. If all blocks of a head are one task, its keys are transposed once. Later blocks see
  /// more keys, so with few heads the longest blocks go first, and the last tasks are short.
  Extent parts() const { return kernel_.batch * kernel_.heads >= kTasks ? 1 : blocks(); }
  Extent first_of(const Tensor& tensor, Extent head) const {
    const bool of_keys =
        &tensor == &kernel_.k || &tensor == &kernel_.v || &tensor == &kernel_.d_k || &tensor == &kernel_.d_v;
    return head / kernel_.heads * tensor.batch_stride +
           head % kernel_.heads / (of_keys ? members() : 1) * tensor.head_stride;
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

  /// A range of keys.
  struct Span {
    Extent first = 0, end = 0;
    Extent count() const { return end - first; }
  };
  /// Whether rows of scores have hidden keys elsewhere than at their end.
  bool is_masked() const { return kernel_.mask || kernel_.window > 0 || kernel_.key_spans; }
  /// The keys that query i may see, if no mask of values hides them.
  Span seen(Extent head, Extent i) const {
    const Extent position = i + kernel_.shift;
    Span span{0, kernel_.keys};
    if (kernel_.causal) span.end = position + 1;
    if (kernel_.window > 0) {
      span.first = position - kernel_.window + 1;
      if (!kernel_.causal) span.end = position + kernel_.window;
    }
    if (kernel_.key_spans) {
      const std::int32_t* given = binding_.key_spans + (head / kernel_.heads * kernel_.queries + i) * 2;
      span.first = std::max<Extent>(span.first, given[0]);
      span.end = std::min<Extent>(span.end, given[1]);
    }
    span.first = std::clamp<Extent>(span.first, 0, kernel_.keys);
    span.end = std::clamp<Extent>(span.end, span.first, kernel_.keys);
    return span;
  }
  /// The keys that any of the queries [begin, end) may see; `each`, if given, takes those of each.
  Span seen_by(Extent head, Extent begin, Extent end, Span* each = nullptr) const {
    Span all;
    for (Extent i = begin; i < end; ++i) {
      const Span span = seen(head, i);
      if (each) each[i - begin] = span;
      if (span.count() == 0) continue;
      all = all.count() == 0 ? span : Span{std::min(all.first, span.first), std::max(all.end, span.end)};
    }
    return all;
  }

  /// Scales the scores of queries [begin, begin + rows) with `seen` keys from `from` on, and hides those that the mask hides.
  void mask_scores(Extent head, Extent begin, Extent rows, Extent from, Extent seen, const Span* spans,
                   T* scores) const {
    AttentionMaskRow row;
    row.hidden = graph::kHiddenBias;
    for (Extent r = 0; r < rows; ++r) {
      row.first = std::clamp<Extent>(spans[r].first - from, 0, seen);
      row.end = std::clamp<Extent>(spans[r].end - from, row.first, seen);
      if (kernel_.mask) {
        const kernel::AttentionKernel::Mask& mask = *kernel_.mask;
        row.are_bools = mask.operand.type == DType::boolean;
        row.is_one = mask.key_stride == 0;
        const Extent at = head / kernel_.heads * mask.batch_stride + head % kernel_.heads * mask.head_stride +
                          (begin + r) * mask.row_stride + from * mask.key_stride;
        row.values =
            static_cast<const char*>(binding_.mask) + at * (row.are_bools ? 1 : static_cast<Extent>(sizeof(T)));
      }
      parts_.mask(scores + r * seen, seen, static_cast<T>(kernel_.scale), row);
    }
  }

  T grown() const { return static_cast<T>(256.0 / static_cast<double>(256 - kernel_.dropped)); }
  Extent keep_scratch(Extent scores) const {
    return kernel_.dropped > 0 ? scores / static_cast<Extent>(sizeof(T)) + 1 : 0;
  }
  /// Which shares of the rows are kept, by the position of each alone.
  void find_kept(Extent head, Extent begin, Extent rows, Extent from, Extent seen, std::uint8_t* keep) const {
    AttentionKeepRow row{binding_.seed[0], binding_.seed[1], 0, 0, from, static_cast<std::uint32_t>(kernel_.dropped)};
    for (Extent r = 0; r < rows; ++r) {
      const Extent query = begin + r;
      row.word =
          static_cast<std::uint32_t>((head * ((kernel_.queries + 1) / 2) + query / 2) * ((kernel_.keys + 1) / 2));
      row.place = query % 2 * 16;
      tile_table().attention_keep(keep + r * seen, seen, row);
    }
  }

  void forward_blocks(Extent head, Extent first, Extent last) const {
    const Extent width = kernel_.width, strip = scores_.gemm().strip(), queries = kernel_.queries;
    const Span all = seen_by(head, first * block_, std::min(last * block_, queries));
    const Extent most = all.count(), packed = gemm_.packed_size(width, most);
    const Extent narrow =
        scratch_for(kernel_.v, most) + std::max(scratch_for(kernel_.k, most), scratch_for(kernel_.q, block_));
    T* keys = scratch<T>(static_cast<std::size_t>(packed + block_ * most + narrow + keep_scratch(block_ * most)));
    T* scores = keys + packed;
    T* converted = scores + block_ * most;
    auto* const keep = reinterpret_cast<std::uint8_t*>(converted + narrow);
    const Rows v = read(binding_.v, kernel_.v, head, all.first, most, converted);
    T* const for_queries = converted;  // and before that for keys
    const Rows k = read_for(scores_, binding_.k, kernel_.k, head, all.first, most, converted);
    const Extent depth = scores_.depth(width);
    scores_.gemm().pack_transposed(depth, most, k.data, k.row, keys);
    for (Extent begin = first * block_; begin < std::min(last * block_, queries); begin += block_) {
      const Extent end = std::min(begin + block_, queries), rows = end - begin;
      Span spans[kQueriesOfBlock];
      const Span block = seen_by(head, begin, end, spans);
      // Packed keys begin at whole strips.
      const Extent skipped = block.count() == 0 ? 0 : (block.first - all.first) / strip * strip;
      const Extent from = all.first + skipped, seen = std::max<Extent>(block.end - from, 0);
      T* o = at(binding_.o, kernel_.o, head) + begin * kernel_.o.row_stride;
      T* logsumexp = static_cast<T*>(binding_.logsumexp) + head * queries;
      converted = for_queries;
      const Rows q = read_for(scores_, binding_.q, kernel_.q, head, begin, rows, converted);
      scores_.gemm().multiply_packed(rows, seen, depth, q.data, q.row, keys + skipped * depth, scores, seen);
      T total[kQueriesOfBlock];
      Extent visible_of[kQueriesOfBlock];
      for (Extent r = 0; r < rows; ++r) visible_of[r] = std::clamp<Extent>(spans[r].end - from, 0, seen);
      if (is_masked()) mask_scores(head, begin, rows, from, seen, spans, scores);
      const T scale = is_masked() ? T{1} : static_cast<T>(kernel_.scale);
      parts_.softmax(scores, rows, seen, visible_of, scale, total, logsumexp + begin);
      if (kernel_.dropped > 0) {
        find_kept(head, begin, rows, from, seen, keep);
        parts_.drop(scores, keep, rows * seen, grown());
      }
      gemm_.multiply(rows, width, seen, scores, seen, 1, v.data + skipped * v.row, v.row, o, kernel_.o.row_stride);
      parts_.divide(o, rows, kernel_.o.row_stride, width, total);
    }
  }

  /// All query heads that share one head of keys.
  void backward_head(Extent kv_head) const {
    const Extent width = kernel_.width, keys = kernel_.keys;
    const Extent strip = std::lcm(scores_.gemm().strip(), gradients_.gemm().strip());
    const Extent first_head = kv_head / kernel_.kv_heads * kernel_.heads + kv_head % kernel_.kv_heads * members();
    T *d_k = at(binding_.d_k, kernel_.d_k, first_head), *d_v = at(binding_.d_v, kernel_.d_v, first_head);
    const Extent packed = gemm_.packed_size(width, keys);
    const Extent of_block =
        scratch_for(kernel_.q, block_) + scratch_for(kernel_.o, block_) + scratch_for(kernel_.d_o, block_);
    const Extent narrow = scratch_for(kernel_.k, keys) + std::max(scratch_for(kernel_.v, keys), of_block);
    T* turned_k =
        scratch<T>(static_cast<std::size_t>(2 * packed + 2 * block_ * keys + narrow + keep_scratch(block_ * keys)));
    T* turned_v = turned_k + packed;
    T* p = turned_v + packed;
    T* converted = p + 2 * block_ * keys;
    auto* const keep = reinterpret_cast<std::uint8_t*>(converted + narrow);
    const Rows k = read(binding_.k, kernel_.k, first_head, 0, keys, converted);
    T* const for_block = converted;  // and before that for values
    const Rows v = read_for(gradients_, binding_.v, kernel_.v, first_head, 0, keys, converted);
    const Rows k_rows = scores_.pairs ? pairs_of(binding_.k, kernel_.k, first_head, 0) : k;
    const Extent score_depth = scores_.depth(width), gradient_depth = gradients_.depth(width);
    scores_.gemm().pack_transposed(score_depth, keys, k_rows.data, k_rows.row, turned_k);
    gradients_.gemm().pack_transposed(gradient_depth, keys, v.data, v.row, turned_v);
    // The block of the last queries comes first. If they see all keys, it writes the gradients, and those of the others are added.
    const Span last = seen_by(first_head, (blocks() - 1) * block_, kernel_.queries);
    bool adds = last.count() < keys;
    if (adds)
      for (Extent j = 0; j < keys; ++j) {
        std::fill_n(d_k + j * kernel_.d_k.row_stride, width, T{0});
        std::fill_n(d_v + j * kernel_.d_v.row_stride, width, T{0});
      }
    for (Extent head = first_head; head < first_head + members(); ++head)
      for (Extent block = blocks(); block-- > 0; adds = true) {
        const Extent begin = block * block_, end = std::min(begin + block_, kernel_.queries), rows = end - begin;
        Span spans[kQueriesOfBlock];
        const Span span = seen_by(head, begin, end, spans);
        const Extent from = span.first / strip * strip, seen = span.end - from;
        const T* logsumexp = static_cast<const T*>(binding_.logsumexp) + head * kernel_.queries;
        converted = for_block;
        const Rows q = read(binding_.q, kernel_.q, head, begin, rows, converted);
        const Rows o = read(binding_.o, kernel_.o, head, begin, rows, converted);
        const Rows d_o = read(binding_.d_o, kernel_.d_o, head, begin, rows, converted);
        T* d_p = p + rows * seen;
        const Rows q_rows = scores_.pairs ? pairs_of(binding_.q, kernel_.q, head, begin) : q;
        const Rows d_o_rows = gradients_.pairs ? pairs_of(binding_.d_o, kernel_.d_o, head, begin) : d_o;
        scores_.gemm().multiply_packed(rows, seen, score_depth, q_rows.data, q_rows.row, turned_k + from * score_depth,
                                       p, seen);
        gradients_.gemm().multiply_packed(rows, seen, gradient_depth, d_o_rows.data, d_o_rows.row,
                                          turned_v + from * gradient_depth, d_p, seen);
        if (is_masked()) mask_scores(head, begin, rows, from, seen, spans, p);
        if (kernel_.dropped > 0) {
          find_kept(head, begin, rows, from, seen, keep);
          parts_.drop(d_p, keep, rows * seen, grown());
        }
        const T scale = static_cast<T>(kernel_.scale);
        for (Extent r = 0; r < rows; ++r)
          parts_.gradient(p + r * seen, d_p + r * seen, std::clamp<Extent>(spans[r].end - from, 0, seen), seen,
                          is_masked() ? T{1} : scale, scale, logsumexp[begin + r], o.data + r * o.row,
                          d_o.data + r * d_o.row, width);
        if (kernel_.dropped > 0) parts_.drop(p, keep, rows * seen, grown());
        gemm_.multiply(seen, width, rows, p, 1, seen, d_o.data, d_o.row, d_v + from * kernel_.d_v.row_stride,
                       kernel_.d_v.row_stride, adds);
        gemm_.multiply(seen, width, rows, d_p, 1, seen, q.data, q.row, d_k + from * kernel_.d_k.row_stride,
                       kernel_.d_k.row_stride, adds);
        gemm_.multiply(rows, width, seen, d_p, seen, 1, k.data + from * k.row, k.row,
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
  using Tensor = kernel::AttentionKernel::Tensor;
  const DType type = kernel.type();
  const auto check = [&](const Tensor& tensor, bool is_written) {
    const kernel::Operand& operand = tensor.operand;
    const bool is_read = !is_written && type == DType::f32 && widen_function(operand.type) != nullptr;
    if ((type != DType::f32 && type != DType::f64) || (operand.type != type && !is_read))
      throw DTypeError(
          fmt::format("{}: attention is of f32 or f64, with operands of that type or narrower, not {}; cast first",
                      kernel.name, name_of(operand.type)));
  };
  for (const Tensor* tensor : {&kernel.q, &kernel.k, &kernel.v}) check(*tensor, false);
  check(kernel.o, !kernel.backward);
  if (kernel.backward) {
    check(kernel.d_o, false);
    for (const Tensor* tensor : {&kernel.d_q, &kernel.d_k, &kernel.d_v}) check(*tensor, true);
  }
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
