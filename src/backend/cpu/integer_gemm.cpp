// Both operands are packed once, by all threads: A in panels (the rows of one kernel call), B in strips (its columns), both with
// words of neighbours along k. Then tasks make blocks of C, over blocks of k whose panel of A stays in L1 and whose strips of B
// stay in L2.
//
// Kernels for bytes take those of A as unsigned and those of B as signed: with a = a' - 128 where A is signed, and b = b' + 128
// where B is not, the product is that of a' and b', corrected by sums of rows and columns.
#include "backend/cpu/integer_gemm.hpp"

#include <algorithm>
#include <cstring>
#include <vector>

#include "backend/cpu/gemm_view.hpp"
#include "backend/cpu/integer_kernels.hpp"
#include "backend/cpu/isa.hpp"
#include "backend/cpu/scratch_block.hpp"
#include "base/threads.hpp"

namespace weft::cpu {
namespace {

using std::int64_t;

constexpr int64_t kIntegerDepth = 512;                // words of a block of k
constexpr int64_t kIntegerStrips = 16;                // of a task
constexpr int64_t kIntegerPanels = 16;                // of a task
constexpr int64_t kIntegerPacked = 64 * 1024 * 1024;  // bytes of operands that are packed together
constexpr int64_t kIntegerPanelsMost = 32;            // of a packing task
constexpr std::uint8_t kSign = 0x80;

constexpr int64_t parts(int64_t count, int64_t of) { return (count + of - 1) / of; }

const IntegerKernels& kernels_in_use() {
#if defined(__x86_64__)
  if (isa() >= Isa::avx512_bf16) return avx512::kIntegers;
  if (isa() >= Isa::avx2) return avx2::kIntegers;
#endif
  return baseline::kIntegers;
}

thread_local ScratchBlock integer_words;

/// The lanes (rows of A, columns of B) of one matrix as words. `depth` words of `lanes` lanes: word k of lane i is at
/// to[k * width + i]. Lanes up to `width` are zeros.
class IntegerPacking {
 public:
  IntegerPacking(const IntegerSource& source, MatrixAxis axis, int64_t k, int each)
      : source_(source), axis_(axis), k_(k), each_(each) {
    const bool is_a = axis == MatrixAxis::rows;
    // The flip of the sign adds 128 to signed numbers of A, and takes 128 from unsigned ones of B.
    if (each == 4 && source.is_signed == is_a) flip_ = kSign;
  }
  /// What was added to each number, and is to be taken from it again.
  std::int32_t shift() const { return flip_ == 0 ? 0 : axis_ == MatrixAxis::rows ? 128 : -128; }

  /// `sums`: of each lane, where kernels take bytes.
  void pack(int64_t batch, int64_t first, int64_t lanes, int64_t width, std::int32_t* to, std::int32_t* sums) const {
    const int64_t words = parts(k_, each_);
    std::vector<std::uint8_t> stage(static_cast<std::size_t>(words * each_ * lanes));
    read(batch, first, lanes, stage.data(), words * each_);
    for (int64_t i = 0; i < lanes; ++i) {
      const std::uint8_t* from = stage.data() + i * words * each_;
      if (each_ == 4)
        pack_bytes(from, words, to + i, width);
      else if (source_.is_signed)
        pack_pairs<std::int8_t>(from, words, to + i, width);
      else
        pack_pairs<std::uint8_t>(from, words, to + i, width);
      if (each_ == 4) sums[i] = sum_of(from);
    }
    for (int64_t i = lanes; i < width; ++i)
      for (int64_t w = 0; w < words; ++w) to[w * width + i] = 0;
  }

 private:
  static void pack_bytes(const std::uint8_t* from, int64_t words, std::int32_t* to, int64_t width) {
    for (int64_t w = 0; w < words; ++w, from += 4, to += width) std::memcpy(to, from, 4);
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
  std::int32_t sum_of(const std::uint8_t* from) const {
    std::int32_t sum = 0;
    const bool is_signed = axis_ == MatrixAxis::columns;
    for (int64_t e = 0; e < k_; ++e) sum += is_signed ? static_cast<std::int8_t>(from[e]) : from[e];
    return sum;
  }

  /// The numbers of some lanes, each lane's in a row of `pitch`, with zeros behind the k-th.
  void read(int64_t batch, int64_t first, int64_t lanes, std::uint8_t* to, int64_t pitch) const {
    const kernel::MatrixView& view = *source_.view;
    const auto lane_of = [&](const kernel::MatrixView::Sum& sum) -> const kernel::View& {
      return axis_ == MatrixAxis::rows ? sum.rows : sum.columns;
    };
    const auto depth_of = [&](const kernel::MatrixView::Sum& sum) -> const kernel::View& {
      return axis_ == MatrixAxis::rows ? sum.columns : sum.rows;
    };
    struct Places {
      std::vector<int64_t> lanes, depth;
    };
    const auto places_of = [&](const kernel::MatrixView::Sum& sum) {
      Places places{std::vector<int64_t>(static_cast<std::size_t>(lanes)),
                    std::vector<int64_t>(static_cast<std::size_t>(k_))};
      offsets_of(lane_of(sum), {first, lanes}, places.lanes.data());
      offsets_of(depth_of(sum), {0, k_}, places.depth.data());
      for (int64_t& at : places.lanes) at += offset_at(sum.batch, batch);
      return places;
    };
    const Places at = places_of(view.at);
    const auto* data = static_cast<const std::uint8_t*>(source_.data);
    const bool along_k = k_ < 2 || (at.depth[static_cast<std::size_t>(k_ - 1)] - at.depth[0] == k_ - 1 &&
                                    std::is_sorted(at.depth.begin(), at.depth.end()));
    if (along_k) {
      for (int64_t i = 0; i < lanes; ++i)
        std::memcpy(to + i * pitch, data + at.lanes[static_cast<std::size_t>(i)] + (k_ > 0 ? at.depth[0] : 0),
                    static_cast<std::size_t>(k_));
    } else {
      for (int64_t e = 0; e < k_; ++e) {
        const std::uint8_t* from = data + at.depth[static_cast<std::size_t>(e)];
        for (int64_t i = 0; i < lanes; ++i) to[i * pitch + e] = from[at.lanes[static_cast<std::size_t>(i)]];
      }
    }
    for (const kernel::MatrixView::Edge& edge : view.edges) {
      const Places value = places_of(edge.value);
      for (int64_t i = 0; i < lanes; ++i)
        for (int64_t e = 0; e < k_; ++e) {
          const int64_t x = value.lanes[static_cast<std::size_t>(i)] + value.depth[static_cast<std::size_t>(e)];
          if (x < edge.lo || x >= edge.hi) to[i * pitch + e] = 0;
        }
    }
    for (int64_t i = 0; i < lanes; ++i) {
      for (int64_t e = 0; e < k_; ++e) to[i * pitch + e] ^= flip_;
      for (int64_t e = k_; e < pitch; ++e) to[i * pitch + e] = 0;
    }
  }

  const IntegerSource& source_;
  MatrixAxis axis_;
  int64_t k_;
  int each_;
  std::uint8_t flip_ = 0;
};

/// Some matrices of a product.
class IntegerProduct {
 public:
  IntegerProduct(const IntegerGemm& p, const IntegerKernels& kernels)
      : p_(p),
        kernels_(kernels),
        strip_(kernels.lanes * kIntegerVectors),
        words_(parts(p.k, kernels.each)),
        panels_(parts(p.m, kernels.rows)),
        strips_(parts(p.n, strip_)),
        a_(p.a, MatrixAxis::rows, p.k, kernels.each),
        b_(p.b, MatrixAxis::columns, p.k, kernels.each) {}

  void run() {
    const int64_t each = a_size() + b_size() + p_.m + p_.n;
    const int64_t together = std::clamp<int64_t>(kIntegerPacked / std::max<int64_t>(4 * each, 1), 1, p_.batch);
    for (int64_t first = 0; first < p_.batch; first += together)
      run_some(first, std::min(together, p_.batch - first), integer_words.as<std::int32_t>(together * each));
  }

 private:
  int64_t a_size() const { return p_.m * words_; }
  int64_t b_size() const { return strips_ * strip_ * words_; }
  int64_t row_of(int64_t panel) const { return p_.m * panel / panels_; }

  void run_some(int64_t first, int64_t count, std::int32_t* memory) {
    std::int32_t* const a = memory;
    std::int32_t* const b = a + count * a_size();
    std::int32_t* const a_sums = b + count * b_size();
    std::int32_t* const b_sums = a_sums + count * p_.m;
    const int64_t a_tasks = parts(panels_, kIntegerPanelsMost), tasks = a_tasks + strips_;
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
        a_.pack(first + n, row, rows, rows, a + n * a_size() + row * words_, a_sums + n * p_.m + row);
      }
    });
    const int64_t down = parts(panels_, kIntegerPanels), across = parts(strips_, kIntegerStrips);
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
    int64_t done = 0;
    do {
      const int64_t depth = std::min(kIntegerDepth, words_ - done);
      for (int64_t panel = block.panel; panel < block.panel_end; ++panel) {
        const int64_t row = row_of(panel), rows = row_of(panel + 1) - row;
        for (int64_t strip = block.strip; strip < block.strip_end; ++strip) {
          const int64_t column = strip * strip_, columns = std::min<int64_t>(strip_, p_.n - column);
          const int64_t vectors = parts(columns, kernels_.lanes);
          const auto last = static_cast<int>(columns - (vectors - 1) * kernels_.lanes);
          kernels_.tiles[last == kernels_.lanes][rows - 1][vectors - 1](depth, a + row * words_ + done * rows, rows,
                                                                        b + column * words_ + done * strip_, strip_,
                                                                        c + row * p_.n + column, p_.n, last, done > 0);
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
  int64_t strip_, words_, panels_, strips_;
  IntegerPacking a_, b_;
};

}  // namespace

void integer_gemm(const IntegerGemm& product) {
  if (product.batch <= 0 || product.m <= 0 || product.n <= 0) return;
  IntegerProduct(product, kernels_in_use()).run();
}

}  // namespace weft::cpu
