// Softmax down columns, a strip of neighbouring columns after another; see ColumnSoftmaxCall in tile.hpp.
//
// Terms are exp(x - shift), where the shift of a column is not above its largest value so far, and below it by at most kSlack.
// Where a value is further above, the shift rises: from then on terms are relative to the new one, and each group of rows keeps
// its own shift. So the values are read once, and what is kept of them is written once.
#pragma once

#include <limits>
#include <utility>

#include "backend/cpu/loop/tile.hpp"
#include "backend/cpu/loop/turn.inc.hpp"
#include "backend/cpu/vector_math.inc.hpp"

namespace weft::cpu {
namespace {

constexpr float kSlack = 16;  // exp(kSlack) times the number of rows is far from the largest float

/// What is known of the columns of a strip, one for each.
struct StripColumns {
  float* shifts;  // so far
  double* sums;   // of the terms
  float* rests;   // 1 / sum or log(sum), when the whole strip has been read
};

template <bool is_log, bool streams>
class SoftmaxStrips {
 public:
  explicit SoftmaxStrips(const ColumnSoftmaxCall& call) : call_(call) {
    auto* at = static_cast<char*>(call.scratch);
    const auto take = [&](std::int64_t bytes) { return std::exchange(at, at + (bytes + 63) / 64 * 64); };
    const std::int64_t row = 4 * kept_width(call.width);
    for (StripColumns* columns : {&read_, &written_})
      *columns = {reinterpret_cast<float*>(take(row)), reinterpret_cast<double*>(take(2 * row)),
                  reinterpret_cast<float*>(take(row))};
    shifts_ = reinterpret_cast<float*>(take(row * groups(call.rows)));
    kept_ = reinterpret_cast<float*>(take(row * call.rows));
    const std::int64_t vectors = row / kVectorBytes, lines = (row + 63) / 64;
    ahead_ = reinterpret_cast<std::int64_t*>(take(vectors * kSoftmaxGroup * 8));
    for (std::int64_t i = 0; i < vectors * kSoftmaxGroup; ++i)
      ahead_[i] = i < lines * kSoftmaxGroup ? i / lines * call.x_row + i % lines * 16 : 0;
  }

  /// A strip is read while the one before it is written, so that memory is busy in both directions all the time. A group of rows
  /// takes the place of the same rows of the strip before.
  void run() {
    for (std::int64_t i = 0; i <= call_.count; ++i) {
      reads_ = i < call_.count ? call_.strips + i : nullptr;
      next_ = i + 1 < call_.count ? call_.strips + i + 1 : nullptr;
      writes_ = i > 0 ? call_.strips + i - 1 : nullptr;
      if (reads_ != nullptr) begin();
      std::int64_t r = 0, group = 0;
      for (; r + kSoftmaxGroup <= call_.rows; r += kSoftmaxGroup) rows<kSoftmaxGroup>(r, group++);
      for (; r < call_.rows; ++r) rows<1>(r, group++);
      if (reads_ != nullptr) end();
      std::swap(read_, written_);
    }
  }

 private:
  static constexpr int kOfLine = 16 / kFloats;  // vectors of a cache line

  static std::int64_t kept_width(std::int64_t width) { return (width + kFloats - 1) / kFloats * kFloats; }
  static std::int64_t groups(std::int64_t rows) { return rows / kSoftmaxGroup + rows % kSoftmaxGroup; }

  void begin() {
    for (std::int64_t c = 0; c < kept_width(reads_->width); ++c) {
      read_.shifts[c] = std::numeric_limits<float>::lowest();  // finite, so that a term of -infinity is zero
      read_.sums[c] = 0;
    }
  }
  void end() {
    for (std::int64_t c = 0; c < kept_width(reads_->width); ++c)
      read_.rests[c] =
          is_log ? static_cast<float>(__builtin_log(read_.sums[c])) : static_cast<float>(1 / read_.sums[c]);
  }

  /// `count` rows from `r` on, of the strip that is written and then of the one that is read.
  template <int count>
  void rows(std::int64_t r, std::int64_t group) {
    const auto vectors = [](const SoftmaxStrip* strip) {
      return strip == nullptr ? 0 : kept_width(strip->width) / kFloats;
    };
    const std::int64_t reading = vectors(reads_), writing = vectors(writes_),
                       both = reading < writing ? reading : writing;
    const float* const ahead = row_ahead(r);
    // Strips of one task are equally wide but for the last ones of a row.
    if constexpr (streams && kOfLine > 1) {
      for (std::int64_t v = 0; v < writing; v += kOfLine) {
        write_lines<count>(r, group, v);
        for (std::int64_t k = v; k < v + kOfLine && k < reading; ++k) vector<count, true, false>(r, group, k, ahead);
      }
      for (std::int64_t v = writing; v < reading; ++v) vector<count, true, false>(r, group, v, ahead);
      return;
    }
    for (std::int64_t v = 0; v < both; ++v) vector<count, true, true>(r, group, v, ahead);
    for (std::int64_t v = both; v < writing; ++v) vector<count, false, true>(r, group, v, ahead);
    for (std::int64_t v = both; v < reading; ++v) vector<count, true, false>(r, group, v, ahead);
  }

  /// Vectors of a cache line, from number `v` on. Past the caches memory takes parts of a line slowly, unless they come together.
  template <int count>
  void write_lines(std::int64_t r, std::int64_t group, std::int64_t v) const {
    const std::int64_t at = v * kFloats, row = kept_width(call_.width);
    F factors[kOfLine], shifts[kOfLine];
    for (int i = 0; i < kOfLine; ++i) {
      factors[i] = load<kFloats>(written_.rests + at + i * kFloats);
      shifts[i] = load<kFloats>(written_.shifts + at + i * kFloats);
      if constexpr (is_log) continue;
      const F shift = load<kFloats>(shifts_ + group * row + at + i * kFloats);
      if (any(shift != shifts[i])) factors[i] *= exp(shift - shifts[i]);
    }
    for (int k = 0; k < count; ++k)
      for (int i = 0; i < kOfLine; ++i) {
        const F term = load<kFloats>(kept_ + (r + k) * row + at + i * kFloats);
        store_past<streams, float, kFloats>(writes_->y + (r + k) * call_.y_row + at + i * kFloats,
                                            is_log ? (term - shifts[i]) - factors[i] : term * factors[i]);
      }
  }

  /// The first of the rows that are prefetched meanwhile; at the end, one that is in the cache.
  const float* row_ahead(std::int64_t r) const {
    const std::int64_t row = r + (kSoftmaxAhead < call_.rows ? kSoftmaxAhead : call_.rows);
    if (row < call_.rows && reads_ != nullptr) return reads_->x + row * call_.x_row;
    return next_ == nullptr ? call_.strips->x : next_->x + (row - call_.rows) * call_.x_row;
  }

  /// One vector of columns; `v` counts them.
  template <int count, bool reads, bool writes>
  void vector(std::int64_t r, std::int64_t group, std::int64_t v, const float* ahead) {
    const std::int64_t at = v * kFloats, row = kept_width(call_.width);
    float *const kept = kept_ + r * row + at, *const shifts = shifts_ + group * row + at;
    // The last vector of a strip overlaps the one before it where the width is odd: it gives the same values.
    const auto column = [&](const SoftmaxStrip* strip) {
      return at + kFloats <= strip->width ? at : strip->width - kFloats;
    };
    F factor, last;
    float* y = nullptr;
    if constexpr (writes) {
      factor = load<kFloats>(written_.rests + at);
      last = load<kFloats>(written_.shifts + at);
      if constexpr (!is_log) {
        const F shift = load<kFloats>(shifts);
        if (any(shift != last)) factor *= exp(shift - last);
      }
      y = writes_->y + r * call_.y_row + column(writes_);
    }
    const auto write = [&](int k) {
      const F term = load<kFloats>(kept + k * row);
      store_past<streams, float, kFloats>(y + k * call_.y_row, is_log ? (term - last) - factor : term * factor);
    };
    if constexpr (!reads) {
      for (int k = 0; k < count; ++k) write(k);
      return;
    } else {
      const float* const x = reads_->x + r * call_.x_row + column(reads_);
      F values[count], most = load<kFloats>(x);
      for (int k = 0; k < count; ++k) {
        values[k] = load<kFloats>(x + k * call_.x_row);
        most = greater(values[k], most);
      }
      F shift = load<kFloats>(read_.shifts + at);
      if (const auto above = most > shift + kSlack; any(above)) {
        const F risen = above ? most : shift, factors = exp(shift - risen);
        double* const sums = read_.sums + at;
        store<kDoubles>(sums, load<kDoubles>(sums) * lower(factors));
        store<kDoubles>(sums + kDoubles, load<kDoubles>(sums + kDoubles) * upper(factors));
        store<kFloats>(read_.shifts + at, risen);
        shift = risen;
      }
      const std::int64_t* const lines_ahead = ahead_ + v * kSoftmaxGroup;
      F sum = {};
      for (int k = 0; k < count; ++k) {
        __builtin_prefetch(ahead + lines_ahead[k], 0, 2);
        if constexpr (writes) write(k);
        const F term = exp(values[k] - shift);
        store<kFloats>(kept + k * row, is_log ? values[k] : term);
        sum += term;
      }
      store<kFloats>(shifts, shift);
      double* const sums = read_.sums + at;
      store<kDoubles>(sums, load<kDoubles>(sums) + lower(sum));
      store<kDoubles>(sums + kDoubles, load<kDoubles>(sums + kDoubles) + upper(sum));
    }
  }

  const ColumnSoftmaxCall& call_;
  const SoftmaxStrip *reads_ = nullptr, *next_ = nullptr, *writes_ = nullptr;
  StripColumns read_, written_;
  float *shifts_, *kept_;  // by group of rows, and by row
  std::int64_t* ahead_;    // by vector and row of a group: the distance of the line that is prefetched meanwhile
};

void column_softmax(const ColumnSoftmaxCall& call) {
  const auto run = [&]<bool is_log, bool streams>() { SoftmaxStrips<is_log, streams>(call).run(); };
  if (call.is_log)
    call.streams ? run.template operator()<true, true>() : run.template operator()<true, false>();
  else
    call.streams ? run.template operator()<false, true>() : run.template operator()<false, false>();
}

}  // namespace
}  // namespace weft::cpu
