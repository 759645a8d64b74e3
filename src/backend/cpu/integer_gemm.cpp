// Both operands are packed once, by all threads: A in panels (the rows of one kernel call), B in strips (its columns), both with
// words of neighbours along k. Then tasks make blocks of C, over blocks of k whose panel of A stays in L1 and whose strips of B
// stay in L2.
//
// Kernels for bytes take those of B as signed, and those of A as unsigned on x86-64 and as signed on aarch64: with a = a' - 128 where
// A is signed and must not be, a = a' + 128 where it is not and must be, and b = b' + 128 where B is not, the product is that of a'
// and b', corrected by sums of rows and columns.
#include "backend/cpu/integer_gemm.hpp"

#include <algorithm>
#include <cstring>
#include <memory>
#include <vector>

#include "backend/cpu/gemm_view.hpp"
#include "backend/cpu/integer_kernels.hpp"
#include "backend/cpu/isa.hpp"
#include "backend/cpu/scratch_block.hpp"
#include "backend/cpu/turn_words.hpp"
#include "base/threads.hpp"

namespace weft::cpu {
namespace {

using std::int64_t;

constexpr int64_t kIntegerDepth = 256;                // words of a block of k
constexpr int64_t kIntegerStrips = 16;                // of a task
constexpr int64_t kIntegerPanels = 16;                // of a task
constexpr int64_t kIntegerPacked = 64 * 1024 * 1024;  // bytes of operands that are packed together
constexpr int64_t kIntegerPackRows = 128;             // of A in a packing task
constexpr int64_t kIntegerTasks = 16;                 // at least, of a large product, for threads to end together
constexpr int64_t kIntegerTaskWords = 1 << 20;        // multiplied at least in each of them
constexpr int64_t kVectorLanes = 16;                  // rows side by side in a packed panel are whole vectors
constexpr std::uint8_t kSign = 0x80;

constexpr int64_t parts(int64_t count, int64_t of) { return (count + of - 1) / of; }

const IntegerKernels& kernels_in_use() {
#if defined(__x86_64__)
  if (isa() >= Isa::amx) return avx512::integers_amx();
  if (isa() >= Isa::avx512_bf16) return avx512::kIntegers;
  if (isa() >= Isa::avx2) return avx2::kIntegers;
#endif
#if defined(__aarch64__)
  if (isa() >= Isa::neon_dot) return neon::kIntegers;
#endif
  return baseline::kIntegers;
}

thread_local ScratchBlock integer_words;

const kernel::View& lane_of(const kernel::MatrixView::Sum& sum, MatrixAxis axis) {
  return axis == MatrixAxis::rows ? sum.rows : sum.columns;
}
const kernel::View& depth_of(const kernel::MatrixView::Sum& sum, MatrixAxis axis) {
  return axis == MatrixAxis::rows ? sum.columns : sum.rows;
}

/// Reads the numbers of some lanes for one k after another, wherever a view has them. Lanes with one distance, in memory and from the
/// edges, are read together.
class Gather {
 public:
  Gather(const IntegerSource& source, MatrixAxis axis, int64_t batch, MatrixRange lanes, int64_t k)
      : data_(static_cast<const std::uint8_t*>(source.data)), edges_(source.view->edges) {
    const auto add = [&](const kernel::MatrixView::Sum& sum) {
      Places& places = places_.emplace_back();
      places.lanes.resize(static_cast<std::size_t>(lanes.count));
      places.depth.resize(static_cast<std::size_t>(k));
      offsets_of(lane_of(sum, axis), lanes, places.lanes.data());
      offsets_of(depth_of(sum, axis), {0, k}, places.depth.data());
      for (int64_t& at : places.lanes) at += offset_at(sum.batch, batch);
    };
    add(source.view->at);
    for (const kernel::MatrixView::Edge& edge : edges_) add(edge.value);
    for (int64_t lane = 0; lane < lanes.count;) {
      Run run{lane, 1, {}};
      for (std::size_t p = 0; p < places_.size(); ++p) run.steps.push_back(lane + 1 < lanes.count ? step(p, lane) : 0);
      const bool falls = std::any_of(run.steps.begin() + 1, run.steps.end(), [](int64_t step) { return step < 0; });
      while (!falls && lane + run.count < lanes.count && goes_on(run)) ++run.count;
      lane += run.count;
      runs_.push_back(std::move(run));
    }
  }

  /// An element outside of an edge is 0, and not read: it may be outside of the memory.
  void row(int64_t k, std::uint8_t* to) const {
    for (const Run& run : runs_) {
      const auto lane = static_cast<std::size_t>(run.lane), depth = static_cast<std::size_t>(k);
      int64_t begin = 0, end = run.count;
      for (std::size_t v = 0; v < edges_.size(); ++v) {
        const int64_t x = places_[v + 1].lanes[lane] + places_[v + 1].depth[depth], step = run.steps[v + 1];
        const int64_t lo = edges_[v].lo - x, hi = edges_[v].hi - x;  // of step times a number
        if (step > 0) {
          if (lo > 0) begin = std::max(begin, parts(lo, step));
          end = std::min(end, hi > 0 ? parts(hi, step) : 0);
        } else if (lo > 0 || hi <= 0) {
          end = 0;
        }
      }
      std::uint8_t* const own = to + run.lane;
      if (begin >= end) {
        std::memset(own, 0, static_cast<std::size_t>(run.count));
        continue;
      }
      std::memset(own, 0, static_cast<std::size_t>(begin));
      std::memset(own + end, 0, static_cast<std::size_t>(run.count - end));
      const std::uint8_t* const from = data_ + places_[0].lanes[lane] + places_[0].depth[depth];
      if (const int64_t step = run.steps[0]; step == 1)
        std::memcpy(own + begin, from + begin, static_cast<std::size_t>(end - begin));
      else
        for (int64_t i = begin; i < end; ++i) own[i] = from[i * step];
    }
  }

 private:
  struct Places {
    std::vector<int64_t> lanes, depth;
  };
  struct Run {
    int64_t lane, count;
    std::vector<int64_t> steps;  // from one lane to the next: in memory, then of each edge's value
  };
  int64_t step(std::size_t p, int64_t lane) const {
    const auto at = static_cast<std::size_t>(lane);
    return places_[p].lanes[at + 1] - places_[p].lanes[at];
  }
  bool goes_on(const Run& run) const {
    for (std::size_t p = 0; p < places_.size(); ++p)
      if (step(p, run.lane + run.count - 1) != run.steps[p]) return false;
    return true;
  }

  const std::uint8_t* data_;
  const std::vector<kernel::MatrixView::Edge>& edges_;
  std::vector<Places> places_;  // of elements, and of the values of edges
  std::vector<Run> runs_;
};

/// The lanes (rows of A, columns of B) of one matrix as words. `depth` words of `lanes` lanes: word k of lane i is at
/// to[k * width + i], or in blocks as IntegerKernels says. Lanes up to `width` are zeros, except in blocks.
class IntegerPacking {
 public:
  IntegerPacking(const IntegerSource& source, MatrixAxis axis, int64_t k, const IntegerKernels& kernels)
      : source_(source),
        axis_(axis),
        k_(k),
        each_(kernels.each),
        block_(axis == MatrixAxis::rows ? kernels.block : 1),
        words_(parts(parts(k, kernels.each), kernels.block) * kernels.block),
        bytes_(kernels.bytes),
        is_signed_(axis == MatrixAxis::columns || kernels.a_is_signed) {
    // The flip of the sign adds 128 to signed numbers, and takes 128 from unsigned ones.
    if (each_ == 4 && source.is_signed != is_signed_) flip_ = kSign;
  }
  /// Of all k; words behind the k-th number are zeros.
  int64_t words() const { return words_; }
  /// What was added to each number, and is to be taken from it again.
  std::int32_t shift() const { return flip_ == 0 ? 0 : is_signed_ ? -128 : 128; }

  /// `sums`: of each lane, where kernels take bytes.
  void pack(int64_t batch, int64_t first, int64_t lanes, int64_t width, std::int32_t* to, std::int32_t* sums) const {
    std::fill(sums, sums + lanes, 0);
    if (words_ == 0) return;
    if (each_ != 4) return pack_pairs(batch, first, lanes, width, to);
    if (const std::uint8_t* const rows = neighbours(batch, first, lanes)) {
      const int64_t step = depth_of(source_.view->at).strides[0];
      return pack_rows([&](int64_t k, std::uint8_t*) { return rows + k * step; }, lanes, width, to, sums);
    }
    if (in_runs()) return pack_runs(batch, first, lanes, width, to, sums);
    const Gather gather(source_, axis_, batch, {first, lanes}, k_);
    pack_rows(
        [&](int64_t k, std::uint8_t* room) {
          gather.row(k, room);
          return static_cast<const std::uint8_t*>(room);
        },
        lanes, width, to, sums);
  }

 private:
  const kernel::View& lane_of(const kernel::MatrixView::Sum& sum) const { return weft::cpu::lane_of(sum, axis_); }
  const kernel::View& depth_of(const kernel::MatrixView::Sum& sum) const { return weft::cpu::depth_of(sum, axis_); }

  /// The first number of the lanes if they are neighbours in memory and have one stride along k, else null.
  const std::uint8_t* neighbours(int64_t batch, int64_t first, int64_t lanes) const {
    const kernel::MatrixView& view = *source_.view;
    if (!view.edges.empty() || lane_of(view.at).extents.size() != 1 || depth_of(view.at).extents.size() != 1 ||
        (lanes > 1 && lane_of(view.at).strides[0] != 1))
      return nullptr;
    return static_cast<const std::uint8_t*>(source_.data) + offset_at(view.at.batch, batch) +
           offset_at(lane_of(view.at), first) + offset_at(depth_of(view.at), 0);
  }

  /// `row`: the numbers of all lanes for one k, which may use the room that it gets.
  template <class Row>
  void pack_rows(const Row& row, int64_t lanes, int64_t width, std::int32_t* to, std::int32_t* sums) const {
    std::vector<std::int32_t> across(static_cast<std::size_t>(block_ > 1 ? words_ * width : 0));
    std::int32_t* word = block_ > 1 ? across.data() : to;
    std::int32_t* const end = word + words_ * width;
    std::vector<std::uint8_t> room(static_cast<std::size_t>(4 * lanes));
    // The last word has zeros, which are not flipped, behind the k-th number.
    const std::vector<std::uint8_t> flipped_zeros(static_cast<std::size_t>(k_ % 4 != 0 ? lanes : 0), flip_);
    for (int64_t k = 0; k < k_; k += 4, word += width) {
      const std::uint8_t* rows[4];
      for (int64_t e = 0; e < 4; ++e) rows[e] = k + e < k_ ? row(k + e, room.data() + e * lanes) : flipped_zeros.data();
      bytes_->interleave(rows, lanes, flip_, is_signed_, word, sums);
      std::fill(word + lanes, word + width, 0);
    }
    std::fill(word, end, 0);
    if (block_ > 1) turn_blocks(across.data(), lanes, width, to);
  }

  /// Lanes along memory, which go into blocks directly.
  void pack_runs(int64_t batch, int64_t first, int64_t lanes, int64_t width, std::int32_t* to,
                 std::int32_t* sums) const {
    const int64_t pitch = parts(words_ * each_, kIntegerPiece) * kIntegerPiece;
    const auto stage =
        std::make_unique_for_overwrite<std::uint8_t[]>(static_cast<std::size_t>(block_ > 1 ? 0 : pitch * lanes));
    for (int64_t i = 0; i < lanes; ++i) {
      auto* const own = reinterpret_cast<std::uint8_t*>(to + i * block_);
      sums[i] = bytes_->copy(run(batch, first + i), k_, flip_, is_signed_, block_ > 1 ? own : stage.get() + i * pitch,
                             block_ > 1 ? 4 * width * block_ : kIntegerPiece);
    }
    if (block_ > 1) return;
    turn_words(reinterpret_cast<const std::int32_t*>(stage.get()), pitch / 4, lanes, words_, to, width);
    clear_lanes(lanes, width, to);
  }

  void pack_pairs(int64_t batch, int64_t first, int64_t lanes, int64_t width, std::int32_t* to) const {
    const int64_t pitch = words_ * each_;
    const auto stage = std::make_unique<std::uint8_t[]>(static_cast<std::size_t>(pitch * lanes));
    read(batch, first, lanes, stage.get(), pitch);
    for (int64_t i = 0; i < lanes; ++i) {
      if (source_.is_signed)
        pack_pairs<std::int8_t>(stage.get() + i * pitch, words_, to + i, width);
      else
        pack_pairs<std::uint8_t>(stage.get() + i * pitch, words_, to + i, width);
    }
    clear_lanes(lanes, width, to);
  }

  void clear_lanes(int64_t lanes, int64_t width, std::int32_t* to) const {
    for (int64_t i = lanes; i < width; ++i)
      for (int64_t w = 0; w < words_; ++w) to[w * width + i] = 0;
  }

  /// From word k of lane i at across[k * width + i] to blocks.
  void turn_blocks(const std::int32_t* across, int64_t lanes, int64_t width, std::int32_t* to) const {
    for (int64_t w = 0; w < words_; w += block_)
      for (int64_t i = 0; i < lanes; i += kVectorLanes)
        turn_words(across + w * width + i, width, block_, std::min(kVectorLanes, lanes - i),
                   to + w * width + i * block_, block_);
  }

  template <class T>
  static void pack_pairs(const std::uint8_t* from, int64_t words, std::int32_t* to, int64_t width) {
    for (int64_t w = 0; w < words; ++w, from += 2, to += width) {
      const auto low = static_cast<std::int16_t>(static_cast<T>(from[0]));
      const auto high = static_cast<std::int16_t>(static_cast<T>(from[1]));
      *to = static_cast<std::int32_t>(static_cast<std::uint16_t>(low) |
                                      static_cast<std::uint32_t>(static_cast<std::uint16_t>(high)) << 16);
    }
  }
  /// Whether the numbers of a lane are neighbours in memory.
  bool in_runs() const {
    const kernel::View& depth = depth_of(source_.view->at);
    return source_.view->edges.empty() && depth.extents.size() == 1 && depth.strides[0] == 1;
  }
  /// The first number of a lane in runs.
  const std::uint8_t* run(int64_t batch, int64_t lane) const {
    const kernel::MatrixView& view = *source_.view;
    return static_cast<const std::uint8_t*>(source_.data) + offset_at(view.at.batch, batch) +
           offset_at(depth_of(view.at), 0) + offset_at(lane_of(view.at), lane);
  }
  /// The numbers of some lanes, each lane's in a row of `pitch`; what is behind them stays.
  void read(int64_t batch, int64_t first, int64_t lanes, std::uint8_t* to, int64_t pitch) const {
    if (in_runs()) {
      for (int64_t i = 0; i < lanes; ++i)
        std::memcpy(to + i * pitch, run(batch, first + i), static_cast<std::size_t>(k_));
    } else {
      const Gather gather(source_, axis_, batch, {first, lanes}, k_);
      std::vector<std::uint8_t> row(static_cast<std::size_t>(lanes));
      for (int64_t e = 0; e < k_; ++e) {
        gather.row(e, row.data());
        for (int64_t i = 0; i < lanes; ++i) to[i * pitch + e] = row[static_cast<std::size_t>(i)];
      }
    }
  }

  const IntegerSource& source_;
  MatrixAxis axis_;
  int64_t k_;
  int each_;
  int64_t block_, words_;
  const IntegerBytes* bytes_;
  bool is_signed_;  // as the kernels take bytes
  std::uint8_t flip_ = 0;
};

/// Some matrices of a product.
class IntegerProduct {
 public:
  IntegerProduct(const IntegerGemm& p, const IntegerKernels& kernels)
      : p_(p),
        kernels_(kernels),
        strip_(kernels.lanes * kIntegerVectors),
        panel_(parts(kernels.rows, kVectorLanes) * kVectorLanes),
        panels_(parts(p.m, kernels.rows)),
        strips_(parts(p.n, strip_)),
        a_(p.a, MatrixAxis::rows, p.k, kernels),
        b_(p.b, MatrixAxis::columns, p.k, kernels),
        words_(a_.words()) {}

  void run() {
    const int64_t each = a_size() + b_size() + p_.m + p_.n;
    const int64_t together = std::clamp<int64_t>(kIntegerPacked / std::max<int64_t>(4 * each, 1), 1, p_.batch);
    for (int64_t first = 0; first < p_.batch; first += together)
      run_some(first, std::min(together, p_.batch - first), integer_words.as<std::int32_t>(together * each));
  }

 private:
  int64_t a_size() const { return panels_ * panel_ * words_; }
  int64_t b_size() const { return strips_ * strip_ * words_; }
  int64_t row_of(int64_t panel) const { return p_.m * panel / panels_; }

  void run_some(int64_t first, int64_t count, std::int32_t* memory) {
    std::int32_t* const a = memory;
    std::int32_t* const b = a + count * a_size();
    std::int32_t* const a_sums = b + count * b_size();
    std::int32_t* const b_sums = a_sums + count * p_.m;
    const int64_t a_tasks = std::min(panels_, parts(p_.m, kIntegerPackRows)), tasks = a_tasks + strips_;
    parallel_for(count * tasks, [&](int64_t task) {
      const int64_t n = task / tasks, at = task % tasks;
      if (at >= a_tasks) {
        const int64_t strip = at - a_tasks, column = strip * strip_;
        const int64_t columns = std::min<int64_t>(strip_, p_.n - column);
        b_.pack(first + n, column, columns, strip_, b + n * b_size() + column * words_, b_sums + n * p_.n + column);
        return;
      }
      for (int64_t panel = panels_ * at / a_tasks; panel < panels_ * (at + 1) / a_tasks; ++panel) {
        const int64_t row = row_of(panel), rows = row_of(panel + 1) - row;
        a_.pack(first + n, row, rows, panel_, a + n * a_size() + panel * panel_ * words_, a_sums + n * p_.m + row);
      }
    });
    const int64_t wanted = std::clamp<int64_t>(count * p_.m * p_.n * words_ / kIntegerTaskWords, 1, kIntegerTasks);
    int64_t across = parts(strips_, kIntegerStrips);
    const int64_t down =
        std::clamp(parts(wanted, count * across), parts(panels_, kIntegerPanels), std::max<int64_t>(1, panels_ / 2));
    across = std::clamp(parts(wanted, count * down), across, std::max<int64_t>(across, strips_ / 2));
    parallel_for(count * down * across, [&](int64_t task) {
      const int64_t n = task / (down * across), i = task / across % down, j = task % across;
      const Block block{panels_ * i / down, panels_ * (i + 1) / down, strips_ * j / across, strips_ * (j + 1) / across};
      run_block(first + n, block, a + n * a_size(), b + n * b_size());
      const int64_t row = row_of(block.panel), row_end = row_of(block.panel_end);
      const int64_t column = block.strip * strip_, column_end = std::min(p_.n, block.strip_end * strip_);
      if (kernels_.each == 4)
        for (int64_t r = row; r < row_end; ++r)
          correct(first + n, r, column, column_end, a_sums[n * p_.m + r], b_sums + n * p_.n);
      if (p_.after_block) p_.after_block(first + n, row, row_end, column, column_end);
    });
  }

  struct Block {
    int64_t panel, panel_end, strip, strip_end;
  };

  void run_block(int64_t batch, const Block& block, const std::int32_t* a, const std::int32_t* b) const {
    std::int32_t* const c = p_.c + batch * p_.m * p_.n;
    ConfiguredPanels configured(kernels_.setup);
    int64_t done = 0;
    do {
      const int64_t depth = std::min(kIntegerDepth, words_ - done);
      for (int64_t panel = block.panel; panel < block.panel_end; ++panel) {
        const int64_t row = row_of(panel), rows = row_of(panel + 1) - row;
        configured.set_rows(static_cast<int>(rows));
        for (int64_t strip = block.strip; strip < block.strip_end; ++strip) {
          const int64_t column = strip * strip_, columns = std::min<int64_t>(strip_, p_.n - column);
          const int64_t vectors = parts(columns, kernels_.lanes);
          const auto last = static_cast<int>(columns - (vectors - 1) * kernels_.lanes);
          kernels_.tiles[last == kernels_.lanes][rows - 1][vectors - 1](
              depth, a + (panel * words_ + done) * panel_, panel_ * kernels_.block, b + column * words_ + done * strip_,
              strip_, c + row * p_.n + column, p_.n, last, done > 0);
        }
      }
      done += depth;
    } while (done < words_);
  }

  // (a' - s)(b' - t) = a' b' - t a' - s b' + s t, summed over k.
  void correct(int64_t batch, int64_t row, int64_t column, int64_t column_end, std::int32_t a_sum,
               const std::int32_t* b_sums) const {
    const auto s = static_cast<std::uint32_t>(a_.shift()), t = static_cast<std::uint32_t>(b_.shift());
    const std::uint32_t same = s * t * static_cast<std::uint32_t>(p_.k) - t * static_cast<std::uint32_t>(a_sum);
    std::int32_t* const c = p_.c + (batch * p_.m + row) * p_.n;
    for (int64_t j = column; j < column_end; ++j)
      c[j] = static_cast<std::int32_t>(static_cast<std::uint32_t>(c[j]) + same -
                                       s * static_cast<std::uint32_t>(b_sums[j]));
  }

  const IntegerGemm& p_;
  const IntegerKernels& kernels_;
  int64_t strip_, panel_, panels_, strips_;  // strip_, panel_: words of k side by side
  IntegerPacking a_, b_;
  int64_t words_;
};

}  // namespace

void integer_gemm(const IntegerGemm& product, const IntegerKernels* kernels) {
  if (product.batch <= 0 || product.m <= 0 || product.n <= 0) return;
  IntegerProduct(product, kernels != nullptr ? *kernels : kernels_in_use()).run();
}

}  // namespace weft::cpu
