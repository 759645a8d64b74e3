// Attention over a cache. Consecutive tokens of a sequence make a run. A long run is cut into blocks of queries, which are
// multiplied with the keys in matrix products; a short run is cut into stretches of keys, each a pass over memory.
#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <deque>
#include <limits>
#include <vector>

#include "backend/cpu/cache.hpp"
#include "backend/cpu/gemm.hpp"
#include "backend/cpu/loop/tile.hpp"
#include "base/threads.hpp"
#include "compile/call_attributes.hpp"
#include "graph/cache.hpp"

namespace weft::cpu {
namespace {

// The most queries for passes: a token and the guesses that are checked with it (at most 15), which then have the bits of
// single tokens. With rounding to eight bits, sums in another order could lead to another text.
constexpr Extent kShortRun = 16;
constexpr Extent kStretch = 128;        // keys of a task
constexpr Extent kTasksPerThread = 2;   // for a schedule
constexpr Extent kStepBytes = 8192;     // of rows that are prefetched while the rows before them are used
constexpr Extent kRowsOfBlock = 96;     // queries times the heads that share keys
constexpr Extent kScoresMax = 1 << 17;  // of a block: half a megabyte

/// Keys that a query sees: positions of its sequence if the cache is a ring, else rows of the cache.
struct Slot {
  Extent begin = 0, end = 0;
  Extent first = 0;  // row of key 0
};

class CacheAttention final : public Prepared {
 public:
  explicit CacheAttention(kernel::CallKernel kernel)
      : kernel_(std::move(kernel)),
        a_(kernel::attributes_of<graph::CacheAttention>(kernel_)),
        tokens_(kernel_.shapes[0][0]),
        heads_(kernel_.shapes[0][1]),
        width_(kernel_.shapes[0][2]),
        rows_(kernel_.shapes[1][0]),
        words_(kernel_.shapes[1][1]),
        group_(heads_ / a_.kv_heads),
        ring_(a_.ring > 0 ? a_.ring : std::max<Extent>(rows_, 1)),
        hands_(std::min<Extent>(tokens_ * a_.kv_heads * ((rows_ + kStretch - 1) / kStretch),
                                kTasksPerThread * thread_count())),
        cache_(tile_table().cache),
        softmax_(tile_table().attention_f32.softmax) {}

  void bind(const Memory& memory) override {
    q_ = reinterpret_cast<const float*>(memory.at(kernel_.reads[0]));
    k_ = reinterpret_cast<const std::uint32_t*>(memory.at(kernel_.reads[1]));
    v_ = reinterpret_cast<const std::uint32_t*>(memory.at(kernel_.reads[2]));
    first_ = reinterpret_cast<const std::int32_t*>(memory.at(kernel_.reads[3]));
    length_ = reinterpret_cast<const std::int32_t*>(memory.at(kernel_.reads[4]));
    const auto of_heads = [&](std::size_t input) {
      const kernel::Operand* operand = kernel_.input(input);
      return operand ? reinterpret_cast<const float*>(memory.at(*operand)) : nullptr;
    };
    sinks_ = of_heads(5);
    slopes_ = of_heads(6);
    out_ = reinterpret_cast<float*>(memory.at(kernel_.out()));
  }
  void run() override {
    start();
    parallel_for(static_cast<Extent>(tasks_.size()), [&](Extent i) { run_one(tasks_[static_cast<std::size_t>(i)]); });
  }
  /// The number of tasks is known only when a run begins. A schedule needs a number before, so its tasks are workers that take
  /// the real tasks in turn.
  int stages() const override { return 1; }
  Extent tasks(int) const override { return hands_; }
  std::vector<kernel::Operand> read_at_start() const override { return {kernel_.reads[3], kernel_.reads[4]}; }
  void start() override {
    seen_.clear();
    tasks_.clear();
    joins_.clear();
    parts_memory_ = 0;
    const bool turns = a_.ring > 0;
    for (Extent t = 0; t < tokens_; ++t) {
      const Extent end =
          turns ? std::max<Extent>(length_[t], 0) : std::clamp<Extent>(Extent{first_[t]} + length_[t], 0, rows_);
      Extent begin = turns ? 0 : std::clamp<Extent>(first_[t], 0, end);
      if (a_.window > 0) begin = std::max(begin, end - a_.window);
      seen_.push_back(
          {begin, length_[t] > 0 ? end : begin, turns ? std::clamp<Extent>(first_[t], 0, rows_ - ring_) : 0});
    }
    for (Extent t = 0; t < tokens_;) {
      Extent end = t + 1;
      while (end < tokens_ && first_[end] == first_[t] && (length_[end] > 0) == (length_[t] > 0)) ++end;
      if (length_[t] <= 0)
        tasks_.push_back({.kind = Kind::nothing_seen, .token = t, .token_end = end});
      else if (end - t <= kShortRun)
        for (; t < end; ++t) add_stretches(t);
      else
        add_blocks(t, end);
      t = end;
    }
    parts_.resize(static_cast<std::size_t>(parts_memory_));
    // Tasks differ in length; the longest first, so that the last are short.
    std::stable_sort(tasks_.begin(), tasks_.end(), [](const Task& x, const Task& y) { return x.work > y.work; });
  }
  void run_task(int, Extent hand) override {
    for (auto i = static_cast<std::size_t>(hand); i < tasks_.size(); i += static_cast<std::size_t>(hands_))
      run_one(tasks_[i]);
  }
  std::string to_string() const override { return call_text(kernel_); }

 private:
  enum class Kind : std::uint8_t { nothing_seen, stretch, block };
  struct Task {
    Kind kind = Kind::block;
    Extent kv_head = 0, kv_heads = 1;  // a block has one
    Extent work = 0;
    Extent token = 0, token_end = 0;  // its queries; a stretch has one
    Extent begin = 0, end = 0;        // a stretch's keys
    Extent part = -1;                 // the stretch's part of the sums; -1: the whole
    std::size_t join = 0;             // the join of these parts
  };
  /// Parts of one query's sums for some heads, each [heads, width] and a logsumexp for each head, from `memory` on.
  struct Join {
    Extent token, first_head, heads, count, memory;
    std::atomic<Extent> left;  // parts that are not made yet

    Join(Extent of_token, Extent first, Extent of_heads, Extent parts, Extent begin)
        : token(of_token), first_head(first), heads(of_heads), count(parts), memory(begin), left(parts) {}
  };

  void run_one(const Task& task) {
    switch (task.kind) {
      case Kind::nothing_seen:
        std::fill_n(out_ + task.token * heads_ * width_, (task.token_end - task.token) * heads_ * width_, 0.0f);
        return;
      case Kind::block: return run_block(task);
      case Kind::stretch: break;
    }
    run_stretch(task);
    if (task.part < 0) return;
    // The thread that made the last part joins them, in order.
    Join& join = joins_[task.join];
    if (join.left.fetch_sub(1, std::memory_order_acq_rel) == 1) run_join(join);
  }
  /// A stretch takes all heads, because their parts of a row are adjacent, unless there would be too few stretches.
  void add_stretches(Extent token) {
    const Slot seen = seen_[static_cast<std::size_t>(token)];
    const Extent keys = seen.end - seen.begin, stretches = (keys + kStretch - 1) / kStretch;
    const Extent cuts = std::clamp<Extent>(hands_ / (stretches * tokens_), 1, a_.kv_heads);
    const Extent kv_heads = (a_.kv_heads + cuts - 1) / cuts;
    for (Extent h = 0; h < a_.kv_heads; h += kv_heads) {
      const Extent some = std::min(kv_heads, a_.kv_heads - h);
      if (stretches > 1) {
        joins_.emplace_back(token, h * group_, some * group_, stretches, parts_memory_);
        parts_memory_ += stretches * some * group_ * (width_ + 1);
      }
      for (Extent s = 0; s < stretches; ++s) {
        const Extent begin = seen.begin + keys * s / stretches, end = seen.begin + keys * (s + 1) / stretches;
        tasks_.push_back({.kind = Kind::stretch,
                          .kv_head = h,
                          .kv_heads = some,
                          .work = (end - begin) * some,
                          .token = token,
                          .token_end = token + 1,
                          .begin = begin,
                          .end = end});
        if (stretches > 1) tasks_.back().part = s, tasks_.back().join = joins_.size() - 1;
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
        tasks_.push_back({.kv_head = h,
                          .work = (last - t) * seen_[static_cast<std::size_t>(last - 1)].end,
                          .token = t,
                          .token_end = last});
      }
  }

  /// Calls `each` with the rows of keys [begin, end), which wrap around at the ring's end.
  template <class Each>
  void each_row(const std::uint32_t* cache, Extent first, Extent begin, Extent end, Each each) const {
    Extent place = begin % ring_;
    for (Extent key = begin; key < end; ++key) {
      each(cache + (first + place) * words_);
      if (++place == ring_) place = 0;
    }
  }
  /// Keys [begin, end) of a head as floats: in place, or unpacked into `memory`. `token` is a token that sees them.
  const float* rows_of(const std::uint32_t* cache, Extent token, Extent head, Extent begin, Extent end,
                       std::vector<float>& memory, Extent* row) const {
    const Extent first = seen_[static_cast<std::size_t>(token)].first, place = begin % ring_;
    if (a_.type == CacheType::f32 && place + (end - begin) <= ring_) {
      *row = words_;
      return reinterpret_cast<const float*>(cache) + (first + place) * words_ + head * width_;
    }
    *row = width_;
    memory.resize(std::max(memory.size(), static_cast<std::size_t>((end - begin) * width_)));
    float* to = memory.data();
    each_row(cache, first, begin, end, [&](const std::uint32_t* from) {
      if (a_.type == CacheType::f32)
        std::memcpy(to, from + head * width_, static_cast<std::size_t>(width_) * sizeof(float));
      else if (a_.type == CacheType::f16)
        cache_.unpack_f16(reinterpret_cast<const std::uint16_t*>(from) + head * width_, to, width_);
      else
        cache_.unpack_q8(from + head * width_ / 32 * 9, to, width_);
      to += width_;
    });
    return memory.data();
  }
  /// Prefetches the next rows, which are too short for the processor to detect a stream.
  void fetch_ahead(const std::uint32_t* cache, const Task& task, Extent from, Extent count) const {
    const Extent words = words_ / a_.kv_heads, end = std::min(task.end, task.begin + from + count),
                 first = seen_[static_cast<std::size_t>(task.token)].first;
    each_row(cache, first, task.begin + from, end, [&](const std::uint32_t* row) {
      for (Extent w = 0; w < task.kv_heads * words; w += 16) __builtin_prefetch(row + task.kv_head * words + w);
    });
  }
  /// What happens to scores between products and softmax, which scales them if nothing does. `key` is the first key's place,
  /// `own` that of the query.
  void adjust(float* scores, Extent head, Extent key, Extent count, Extent own) const {
    if (a_.soft_cap > 0) {
      const float soft_cap = static_cast<float>(a_.soft_cap), factor = static_cast<float>(a_.scale) / soft_cap;
      for (Extent i = 0; i < count; ++i) scores[i] = soft_cap * std::tanh(scores[i] * factor);
    }
    if (!slopes_) return;
    const float slope = slopes_[head], scale = a_.soft_cap > 0 ? 1.0f : static_cast<float>(a_.scale);
    for (Extent i = 0; i < count; ++i) scores[i] = scores[i] * scale + slope * static_cast<float>(key + i - own);
  }
  bool adjusts() const { return a_.soft_cap > 0 || slopes_; }
  float scale_of_softmax() const { return adjusts() ? 1.0f : static_cast<float>(a_.scale); }
  /// What the sums of a row are multiplied with. The sink's share is 1 / (1 + exp(sink - logsumexp)) of the row's weight.
  float share_of_sum(float total, float logsumexp, Extent head) const {
    return 1 / (sinks_ ? total * (1 + std::exp(sinks_[head] - logsumexp)) : total);
  }

  void run_stretch(const Task& task) {
    thread_local std::vector<float> scores, memory, totals;
    const Extent keys = task.end - task.begin, heads = task.kv_heads * group_, first_head = task.kv_head * group_;
    scores.resize(std::max(scores.size(), static_cast<std::size_t>(heads * keys)));
    totals.resize(std::max(totals.size(), static_cast<std::size_t>(2 * heads)));
    const float* q = q_ + (task.token * heads_ + first_head) * width_;
    const Extent row_bytes = words_ / a_.kv_heads * task.kv_heads * 4;
    const Extent step = std::clamp<Extent>(kStepBytes / row_bytes, 4, kStretch);
    const auto each_head = [&](const std::uint32_t* cache, Extent j, Extent n, auto use) {
      for (Extent h = 0; h < task.kv_heads; ++h) {
        Extent row = 0;
        const float* rows =
            rows_of(cache, task.token, task.kv_head + h, task.begin + j, task.begin + j + n, memory, &row);
        use(h * group_, rows, row);
      }
    };
    for (Extent j = 0; j < keys; j += step) {
      const Extent n = std::min(step, keys - j);
      if (j + n < keys)
        fetch_ahead(k_, task, j + n, step);
      else
        fetch_ahead(v_, task, 0, step);
      each_head(k_, j, n, [&](Extent head, const float* rows, Extent row) {
        cache_.dots(q + head * width_, group_, width_, rows, row, n, scores.data() + head * keys + j, keys);
      });
    }
    if (adjusts()) {
      const Extent own = seen_[static_cast<std::size_t>(task.token)].end - 1;
      for (Extent h = 0; h < heads; ++h) adjust(scores.data() + h * keys, first_head + h, task.begin, keys, own);
    }
    visible().assign(static_cast<std::size_t>(heads), keys);
    float *total = totals.data(), *logsumexp = total + heads;
    softmax_(scores.data(), heads, keys, visible().data(), scale_of_softmax(), total, logsumexp);
    float* out =
        task.part < 0 ? out_ + (task.token * heads_ + first_head) * width_ : part_of(joins_[task.join], task.part);
    std::fill_n(out, heads * width_, 0.0f);
    for (Extent j = 0; j < keys; j += step) {
      const Extent n = std::min(step, keys - j);
      if (j + n < keys) fetch_ahead(v_, task, j + n, step);
      each_head(v_, j, n, [&](Extent head, const float* rows, Extent row) {
        cache_.mix(scores.data() + head * keys + j, group_, keys, width_, rows, row, n, out + head * width_);
      });
    }
    for (Extent h = 0; h < heads; ++h) {
      // Sinks belong to the whole row; the join of its parts adds them.
      const float inverse = task.part < 0 ? share_of_sum(total[h], logsumexp[h], first_head + h) : 1 / total[h];
      for (Extent c = 0; c < width_; ++c) out[h * width_ + c] *= inverse;
      if (task.part >= 0) out[heads * width_ + h] = logsumexp[h];
    }
  }
  /// The softmax takes a count for each row.
  static std::vector<std::int64_t>& visible() {
    thread_local std::vector<std::int64_t> counts;
    return counts;
  }

  float* part_of(const Join& join, Extent part) {
    return parts_.data() + join.memory + part * join.heads * (width_ + 1);
  }
  /// Parts weigh as much as their sums of exponentials.
  void run_join(const Join& join) {
    for (Extent h = 0; h < join.heads; ++h) {
      const auto logsumexp = [&](Extent i) { return part_of(join, i)[join.heads * width_ + h]; };
      float top = -std::numeric_limits<float>::infinity(), total = 0;
      for (Extent i = 0; i < join.count; ++i) top = std::max(top, logsumexp(i));
      for (Extent i = 0; i < join.count; ++i) total += std::exp(logsumexp(i) - top);
      if (sinks_) total += std::exp(sinks_[join.first_head + h] - top);
      float* out = out_ + (join.token * heads_ + join.first_head + h) * width_;
      std::fill_n(out, width_, 0.0f);
      for (Extent i = 0; i < join.count; ++i) {
        const float weight = std::exp(logsumexp(i) - top) / total;
        const float* from = part_of(join, i) + h * width_;
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
    const float* k = rows_of(k_, task.token, task.kv_head, begin, end, memory, &row);
    multiply(rows, keys, width_, q.data(), width_, k, 1, row, scores.data());
    const auto seen_by = [&](Extent r) { return seen_[static_cast<std::size_t>(task.token + r / group_)]; };
    const auto head_of = [&](Extent r) { return task.kv_head * group_ + r % group_; };
    if (adjusts())
      for (Extent r = 0; r < rows; ++r) adjust(scores.data() + r * keys, head_of(r), begin, keys, seen_by(r).end - 1);
    float *total = totals.data(), *logsumexp = total + rows;
    if (a_.window == 0) {
      std::vector<std::int64_t>& counts = visible();
      counts.resize(static_cast<std::size_t>(rows));
      for (Extent r = 0; r < rows; ++r) counts[static_cast<std::size_t>(r)] = seen_by(r).end - begin;
      softmax_(scores.data(), rows, keys, counts.data(), scale_of_softmax(), total, logsumexp);
    } else {
      for (Extent r = 0; r < rows; ++r) {
        const Slot seen = seen_by(r);
        const Extent before = seen.begin - begin;
        const std::int64_t count = seen.end - seen.begin;
        std::fill_n(scores.data() + r * keys, before, 0.0f);
        softmax_(scores.data() + r * keys + before, 1, keys - before, &count, scale_of_softmax(), total + r,
                 logsumexp + r);
      }
    }
    const float* v = rows_of(v_, task.token, task.kv_head, begin, end, memory, &row);
    multiply(rows, width_, keys, scores.data(), keys, v, row, 1, out.data());
    for (Extent r = 0; r < rows; ++r) {
      const float inverse = share_of_sum(total[r], logsumexp[r], head_of(r));
      float* to = out_ + ((task.token + r / group_) * heads_ + head_of(r)) * width_;
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

  kernel::CallKernel kernel_;
  graph::CacheAttention a_;
  Extent tokens_, heads_, width_, rows_, words_, group_;
  Extent ring_;  // rows that keys use in turn; the whole cache if it is not a ring
  Extent hands_;
  const CacheParts& cache_;
  decltype(AttentionParts<float>::softmax) softmax_;
  // Of this run.
  const float* q_ = nullptr;
  const std::uint32_t *k_ = nullptr, *v_ = nullptr;
  const std::int32_t *first_ = nullptr, *length_ = nullptr;
  const float *sinks_ = nullptr, *slopes_ = nullptr;  // of each head; null: none
  float* out_ = nullptr;
  std::vector<Slot> seen_;  // for each token
  std::vector<Task> tasks_;
  std::deque<Join> joins_;
  Extent parts_memory_ = 0;
  std::vector<float> parts_;  // of all joins
};

}  // namespace

std::unique_ptr<Prepared> prepare_cache_attention(const kernel::CallKernel& kernel) {
  return std::make_unique<CacheAttention>(kernel);
}

}  // namespace weft::cpu
