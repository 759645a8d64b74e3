// Attention over a cache. Tokens that follow each other in one sequence make a run; a long run is cut into blocks of
// queries that meet the keys in matrix products, a short one into stretches of keys, each a pass over memory.
#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "backend/cpu/cache.hpp"
#include "backend/cpu/gemm.hpp"
#include "backend/cpu/tile.hpp"
#include "base/threads.hpp"

namespace weft::cpu {
namespace {

constexpr Extent kShortRun = 6;         // queries that take the passes
constexpr Extent kStretch = 256;        // keys of a task
constexpr Extent kFetched = 32;         // rows of f32 that are asked for while those before them are used
constexpr Extent kUnpacked = 64;        // rows unpacked at a time: with 64 channels half the nearest cache
constexpr Extent kRowsOfBlock = 96;     // queries times the heads that share keys
constexpr Extent kScoresMax = 1 << 17;  // of a block: half a megabyte

struct Slot {
  Extent begin = 0, end = 0;  // keys that a query sees
};

class CacheAttention {
 public:
  CacheAttention(const kernel::RoutineKernel& kernel, std::span<char* const> reads, char* out)
      : a_(ops::cache_attention_of(kernel.attributes)),
        tokens_(kernel.shapes[0][0]),
        heads_(kernel.shapes[0][1]),
        width_(kernel.shapes[0][2]),
        words_(kernel.shapes[1][1]),
        group_(heads_ / a_.kv_heads),
        q_(reinterpret_cast<const float*>(reads[0])),
        k_(reinterpret_cast<const std::uint32_t*>(reads[1])),
        v_(reinterpret_cast<const std::uint32_t*>(reads[2])),
        out_(reinterpret_cast<float*>(out)),
        cache_(tile_table().cache),
        softmax_(tile_table().attention_f32.softmax) {
    const auto* first = reinterpret_cast<const std::int32_t*>(reads[3]);
    const auto* length = reinterpret_cast<const std::int32_t*>(reads[4]);
    const Extent rows = kernel.shapes[1][0];
    for (Extent t = 0; t < tokens_; ++t) {
      const Extent end = std::clamp<Extent>(Extent{first[t]} + length[t], 0, rows);
      Extent begin = std::clamp<Extent>(first[t], 0, end);
      if (a_.window > 0) begin = std::max(begin, end - a_.window);
      seen_.push_back({begin, length[t] > 0 ? end : begin});
    }
    for (Extent t = 0; t < tokens_;) {
      Extent end = t + 1;
      while (end < tokens_ && first[end] == first[t] && (length[end] > 0) == (length[t] > 0)) ++end;
      if (length[t] <= 0)
        std::fill_n(out_ + t * heads_ * width_, (end - t) * heads_ * width_, 0.0f);
      else if (end - t <= kShortRun)
        for (; t < end; ++t) add_stretches(t);
      else
        add_blocks(t, end);
      t = end;
    }
  }

  void run() {
    partial_.resize(static_cast<std::size_t>(partials_ * group_) * static_cast<std::size_t>(width_ + 1));
    // Tasks differ in length; the longest first, so that the last are short.
    std::stable_sort(tasks_.begin(), tasks_.end(), [](const Task& x, const Task& y) { return x.work > y.work; });
    parallel_for(static_cast<Extent>(tasks_.size()), [&](Extent i) {
      const Task& task = tasks_[static_cast<std::size_t>(i)];
      if (task.stretch)
        run_stretch(task);
      else
        run_block(task);
    });
    for (const Join& join : joins_) run_join(join);
  }

 private:
  struct Task {
    bool stretch = false;
    Extent kv_head = 0, work = 0;
    Extent token = 0, token_end = 0;  // a block's queries, or a stretch's one
    Extent begin = 0, end = 0;        // a stretch's keys
    Extent partial = -1;              // where the stretch leaves its part; -1: it is the whole
  };
  struct Join {
    Extent token = 0, kv_head = 0, partial = 0, count = 0;
  };

  void add_stretches(Extent token) {
    const Slot seen = seen_[static_cast<std::size_t>(token)];
    const Extent keys = seen.end - seen.begin, stretches = (keys + kStretch - 1) / kStretch;
    for (Extent h = 0; h < a_.kv_heads; ++h) {
      if (stretches > 1) joins_.push_back({token, h, partials_, stretches});
      for (Extent s = 0; s < stretches; ++s) {
        const Extent begin = seen.begin + s * kStretch, end = std::min(begin + kStretch, seen.end);
        tasks_.push_back({true, h, end - begin, token, token + 1, begin, end, stretches > 1 ? partials_++ : -1});
      }
    }
  }
  void add_blocks(Extent begin, Extent end) {
    Extent longest = 1;
    for (Extent t = begin; t < end; ++t)
      longest = std::max(longest, seen_[static_cast<std::size_t>(t)].end - seen_[static_cast<std::size_t>(t)].begin);
    const Extent rows = std::clamp<Extent>(kScoresMax / longest, 8, kRowsOfBlock);
    const Extent block = std::max<Extent>(1, rows / group_);
    for (Extent h = 0; h < a_.kv_heads; ++h)
      for (Extent t = begin; t < end; t += block) {
        const Extent last = std::min(t + block, end);
        tasks_.push_back({false, h, (last - t) * seen_[static_cast<std::size_t>(last - 1)].end, t, last});
      }
  }

  /// Rows [begin, end) of a head as floats: where they lie, or unpacked into `memory`.
  const float* rows_of(const std::uint32_t* cache, Extent head, Extent begin, Extent end, std::vector<float>& memory,
                       Extent* row) const {
    if (a_.type == ops::CacheType::f32) {
      *row = words_;
      return reinterpret_cast<const float*>(cache) + begin * words_ + head * width_;
    }
    *row = width_;
    memory.resize(std::max(memory.size(), static_cast<std::size_t>((end - begin) * width_)));
    for (Extent r = begin; r < end; ++r) {
      float* to = memory.data() + (r - begin) * width_;
      const std::uint32_t* from = cache + r * words_;
      if (a_.type == ops::CacheType::f16)
        cache_.unpack_f16(reinterpret_cast<const std::uint16_t*>(from) + head * width_, to, width_);
      else
        cache_.unpack_q8(from + head * width_ / 32 * 9, to, width_);
    }
    return memory.data();
  }
  /// Asks memory for the rows that come next: a head's part of a row is too short for the processor to see a stream.
  void fetch_ahead(const std::uint32_t* cache, const Task& task, Extent from, Extent count) const {
    const Extent words = words_ / a_.kv_heads, end = std::min(task.end, task.begin + from + count);
    for (Extent r = task.begin + from; r < end; ++r) {
      const std::uint32_t* row = cache + r * words_ + task.kv_head * words;
      for (Extent w = 0; w < words; w += 16) __builtin_prefetch(row + w);
    }
  }
  void cap(float* scores, Extent count) const {
    const float soft_cap = static_cast<float>(a_.soft_cap), factor = static_cast<float>(a_.scale) / soft_cap;
    for (Extent i = 0; i < count; ++i) scores[i] = soft_cap * std::tanh(scores[i] * factor);
  }
  float scale_after_cap() const { return a_.soft_cap > 0 ? 1.0f : static_cast<float>(a_.scale); }

  void run_stretch(const Task& task) {
    thread_local std::vector<float> scores, memory, totals;
    const Extent keys = task.end - task.begin;
    scores.resize(std::max(scores.size(), static_cast<std::size_t>(group_ * keys)));
    totals.resize(std::max(totals.size(), static_cast<std::size_t>(2 * group_)));
    const float* q = q_ + (task.token * heads_ + task.kv_head * group_) * width_;
    const Extent step = a_.type == ops::CacheType::f32 ? kFetched : kUnpacked;
    Extent row = 0;
    for (Extent j = 0; j < keys; j += step) {
      const Extent n = std::min(step, keys - j);
      if (j + n < keys)
        fetch_ahead(k_, task, j + n, step);
      else
        fetch_ahead(v_, task, 0, step);
      const float* k = rows_of(k_, task.kv_head, task.begin + j, task.begin + j + n, memory, &row);
      cache_.dots(q, group_, width_, k, row, n, scores.data() + j, keys);
    }
    if (a_.soft_cap > 0) cap(scores.data(), group_ * keys);
    visible_of(keys);
    float *total = totals.data(), *logsumexp = total + group_;
    softmax_(scores.data(), group_, keys, visible().data(), scale_after_cap(), total, logsumexp);
    float* out = task.partial < 0 ? out_ + (task.token * heads_ + task.kv_head * group_) * width_
                                  : partial_.data() + task.partial * group_ * (width_ + 1);
    std::fill_n(out, group_ * width_, 0.0f);
    for (Extent j = 0; j < keys; j += step) {
      const Extent n = std::min(step, keys - j);
      if (j + n < keys) fetch_ahead(v_, task, j + n, step);
      const float* v = rows_of(v_, task.kv_head, task.begin + j, task.begin + j + n, memory, &row);
      cache_.mix(scores.data() + j, group_, keys, width_, v, row, n, out);
    }
    for (Extent g = 0; g < group_; ++g) {
      const float inverse = 1 / total[g];
      for (Extent c = 0; c < width_; ++c) out[g * width_ + c] *= inverse;
      if (task.partial >= 0) out[group_ * width_ + g] = logsumexp[g];
    }
  }
  /// The softmax takes a count for each row.
  static std::vector<std::int64_t>& visible() {
    thread_local std::vector<std::int64_t> counts;
    return counts;
  }
  void visible_of(Extent keys) const { visible().assign(static_cast<std::size_t>(group_), keys); }

  /// Parts weigh as much as their sums of exponentials.
  void run_join(const Join& join) {
    const auto part = [&](Extent i) { return partial_.data() + (join.partial + i) * group_ * (width_ + 1); };
    for (Extent g = 0; g < group_; ++g) {
      float top = -std::numeric_limits<float>::infinity(), total = 0;
      for (Extent i = 0; i < join.count; ++i) top = std::max(top, part(i)[group_ * width_ + g]);
      for (Extent i = 0; i < join.count; ++i) total += std::exp(part(i)[group_ * width_ + g] - top);
      float* out = out_ + (join.token * heads_ + join.kv_head * group_ + g) * width_;
      std::fill_n(out, width_, 0.0f);
      for (Extent i = 0; i < join.count; ++i) {
        const float weight = std::exp(part(i)[group_ * width_ + g] - top) / total;
        const float* from = part(i) + g * width_;
        for (Extent c = 0; c < width_; ++c) out[c] += weight * from[c];
      }
    }
  }

  void run_block(const Task& task) {
    thread_local std::vector<float> q, scores, memory, out, totals;
    const Extent queries = task.token_end - task.token, rows = queries * group_;
    Extent begin = std::numeric_limits<Extent>::max(), end = 0;
    for (Extent t = task.token; t < task.token_end; ++t) {
      begin = std::min(begin, seen_[static_cast<std::size_t>(t)].begin);
      end = std::max(end, seen_[static_cast<std::size_t>(t)].end);
    }
    const Extent keys = end - begin;
    for (auto* each : {&q, &out}) each->resize(std::max(each->size(), static_cast<std::size_t>(rows * width_)));
    scores.resize(std::max(scores.size(), static_cast<std::size_t>(rows * keys)));
    totals.resize(std::max(totals.size(), static_cast<std::size_t>(2 * rows)));
    for (Extent t = 0; t < queries; ++t)
      std::copy_n(q_ + ((task.token + t) * heads_ + task.kv_head * group_) * width_, group_ * width_,
                  q.data() + t * group_ * width_);
    Extent row = 0;
    const float* k = rows_of(k_, task.kv_head, begin, end, memory, &row);
    multiply(rows, keys, width_, q.data(), width_, k, 1, row, scores.data());
    if (a_.soft_cap > 0) cap(scores.data(), rows * keys);
    float *total = totals.data(), *logsumexp = total + rows;
    if (a_.window == 0) {
      std::vector<std::int64_t>& counts = visible();
      counts.resize(static_cast<std::size_t>(rows));
      for (Extent r = 0; r < rows; ++r)
        counts[static_cast<std::size_t>(r)] = seen_[static_cast<std::size_t>(task.token + r / group_)].end - begin;
      softmax_(scores.data(), rows, keys, counts.data(), scale_after_cap(), total, logsumexp);
    } else {
      for (Extent r = 0; r < rows; ++r) {
        const Slot seen = seen_[static_cast<std::size_t>(task.token + r / group_)];
        const Extent before = seen.begin - begin;
        const std::int64_t count = seen.end - seen.begin;
        std::fill_n(scores.data() + r * keys, before, 0.0f);
        softmax_(scores.data() + r * keys + before, 1, keys - before, &count, scale_after_cap(), total + r,
                 logsumexp + r);
      }
    }
    const float* v = rows_of(v_, task.kv_head, begin, end, memory, &row);
    multiply(rows, width_, keys, scores.data(), keys, v, row, 1, out.data());
    for (Extent r = 0; r < rows; ++r) {
      const float inverse = 1 / total[r];
      float* to = out_ + ((task.token + r / group_) * heads_ + task.kv_head * group_ + r % group_) * width_;
      for (Extent c = 0; c < width_; ++c) to[c] = out[static_cast<std::size_t>(r * width_ + c)] * inverse;
    }
  }
  /// C[m, n] = A[m, k] B[k, n].
  static void multiply(Extent m, Extent n, Extent k, const float* a, Extent a_row, const float* b, Extent b_row,
                       Extent b_column, float* c) {
    GemmArgs<float> args;
    args.m = m, args.n = n, args.k = k;
    args.a = {a, a_row, 1, {}};
    args.b = {b, b_row, b_column, {}};
    args.c = {c, n, {}};
    gemm(args);
  }

  ops::CacheAttention a_;
  Extent tokens_, heads_, width_, words_, group_;
  const float* q_;
  const std::uint32_t *k_, *v_;
  float* out_;
  const CacheParts& cache_;
  decltype(AttentionParts<float>::softmax) softmax_;
  std::vector<Slot> seen_;
  std::vector<Task> tasks_;
  std::vector<Join> joins_;
  Extent partials_ = 0;
  std::vector<float> partial_;  // of each stretch: [group, width] and a logsumexp each
};

}  // namespace

void run_cache_attention(const kernel::RoutineKernel& kernel, std::span<char* const> reads, char* out) {
  CacheAttention(kernel, reads, out).run();
}

}  // namespace weft::cpu
