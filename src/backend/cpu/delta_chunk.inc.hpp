// The gated delta rule by chunks of steps, for one instruction set. What the steps of a chunk add to a state follows from a triangular
// system of products of their keys, so numbers of the state are read once for some steps together. The state is copied to panels of
// some columns, which fit into the first cache. See DeltaScanRun in state_scan_run.hpp.
// Source: Yang et al. 2024, arXiv:2406.06484 (the form by chunks) and arXiv:2412.06464 (with decays).
#pragma once

#include <algorithm>

#include "backend/cpu/attention_parts.inc.hpp"
#include "backend/cpu/state_scan_run.hpp"

namespace weft::cpu {
namespace {

/// sums[i][j] += sum_n a[i, n] b[n, vector j]; rows of a are `row` apart, and its columns `column`.
template <class T, int kRows, int kVectors>
inline void add_delta_products(const T* a, std::int64_t row, std::int64_t column, std::int64_t depth, const T* b,
                               std::int64_t b_row, std::int64_t lanes, Native<T> (&sums)[kRows][kVectors]) {
  constexpr std::int64_t N = kNative<T>;
  for (std::int64_t n = 0; n < depth; ++n) {
    Native<T> of_b[kVectors];
    for (int j = 0; j < kVectors; ++j) of_b[j] = load_some<T>(b + n * b_row + j * N, lanes);
    for (int i = 0; i < kRows; ++i) {
      const Native<T> x = splat(a[i * row + n * column]);
      for (int j = 0; j < kVectors; ++j) sums[i][j] = fma(x, of_b[j], sums[i][j]);
    }
  }
}

/// Calls visit.operator()<rows, vectors>(row, column, lanes) for blocks of a matrix, those of earlier rows first.
template <class T, class Visit>
inline void each_delta_block(std::int64_t rows, std::int64_t columns, Visit visit) {
  constexpr std::int64_t N = kNative<T>;
  constexpr int kRows = kNative<float> >= 16 ? 8 : 4, kVectors = 2;
  const auto of_rows = [&]<int kSome>(std::int64_t row) {
    std::int64_t c = 0;
    for (; c + kVectors * N <= columns; c += kVectors * N) visit.template operator()<kSome, kVectors>(row, c, N);
    for (; c < columns; c += N) visit.template operator()<kSome, 1>(row, c, columns - c < N ? columns - c : N);
  };
  std::int64_t row = 0;
  for (; row + kRows <= rows; row += kRows) of_rows.template operator()<kRows>(row);
  for (; row < rows; ++row) of_rows.template operator()<1>(row);
}

template <class T>
class DeltaChunks {
 public:
  explicit DeltaChunks(const DeltaScanRun<T>& run)
      : r_(run),
        panels_(run.scratch),
        keys_across_(panels_ + delta_panels(run.columns) * run.keys * kDeltaPanel),
        minus_(keys_across_ + run.keys * kDeltaChunk),
        scores_(minus_ + kDeltaChunk * kDeltaChunk),
        added_(scores_ + kDeltaChunk * kDeltaChunk),
        decay_(added_ + kDeltaChunk * kDeltaPanel),
        kept_(decay_ + kDeltaChunk),
        left_(kept_ + kDeltaChunk) {}

  void run() {
    copy_state(true);
    const std::int64_t steps = r_.steps;
    for (std::int64_t t = 0; t < steps; t += kDeltaChunk) {
      r_.steps = steps - t < kDeltaChunk ? steps - t : kDeltaChunk;
      add_up_decays();
      weigh_steps();
      for (first_ = 0; first_ < r_.columns; first_ += kDeltaPanel) {
        panel_ = panel_of(first_);
        const std::int64_t columns = columns_of(first_);
        each_delta_block<T>(r_.steps, columns, [&]<int kRows, int kVectors>(auto... at) {
          this->template add_steps<kRows, kVectors>(at...);
          this->template read_steps<kRows, kVectors>(at...);
        });
        advance(columns);
      }
      r_.q += kDeltaChunk * r_.key_step, r_.k += kDeltaChunk * r_.key_step;
      r_.v += kDeltaChunk * r_.value_step, r_.y += kDeltaChunk * r_.value_step;
      r_.decay += kDeltaChunk * r_.head_step, r_.beta += kDeltaChunk * r_.head_step;
    }
    copy_state(false);
  }

 private:
  static constexpr std::int64_t N = kNative<T>;

  T* panel_of(std::int64_t first) const { return panels_ + first * r_.keys; }
  std::int64_t columns_of(std::int64_t first) const {
    return r_.columns - first < kDeltaPanel ? r_.columns - first : kDeltaPanel;
  }
  void copy_state(bool in) {
    for (std::int64_t first = 0; first < r_.columns; first += kDeltaPanel)
      for (std::int64_t n = 0; n < r_.keys; ++n) {
        T *const there = panel_of(first) + n * kDeltaPanel, *const here = r_.state + n * r_.state_row + first;
        std::copy_n(in ? here : there, columns_of(first), in ? there : here);
      }
  }

  void add_up_decays() {
    T sum = 0;
    for (std::int64_t t = 0; t < kDeltaChunk; ++t) {
      if (t < r_.steps) sum += r_.decay[t * r_.head_step];
      decay_[t] = sum;
    }
    each_vector<T>(kDeltaChunk, [&](std::int64_t t, std::int64_t lanes) {
      const Native<T> decay = load_some<T>(decay_ + t, lanes);
      store_some<T>(kept_ + t, exp(decay), lanes);
      store_some<T>(left_ + t, exp(splat(sum) - decay), lanes);
    });
    for (std::int64_t n = 0; n < r_.keys; ++n)
      for (std::int64_t t = 0; t < kDeltaChunk; ++t)
        keys_across_[n * kDeltaChunk + t] = t < r_.steps ? r_.k[t * r_.key_step + n] : T{0};
  }

  /// For steps j before i: -beta_i (k_i . k_j) and, with j = i too, q_i . k_j, each times what is left of j at i.
  void weigh_steps() {
    for (std::int64_t first = 0; first < r_.steps; first += kSteps)
      for (std::int64_t c = 0; c < first + kSteps && c < kDeltaChunk; c += N) {
        if (first + kSteps <= r_.steps)
          weigh_block<kSteps>(first, c);
        else
          for (std::int64_t i = first; i < r_.steps; ++i) weigh_block<1>(i, c);
      }
  }
  template <int kRows>
  void weigh_block(std::int64_t first, std::int64_t c) {
    Native<T> of_keys[kRows][1] = {}, of_queries[kRows][1] = {};
    const std::int64_t begin = first * r_.key_step;
    add_delta_products(r_.k + begin, r_.key_step, 1, r_.keys, keys_across_ + c, kDeltaChunk, N, of_keys);
    add_delta_products(r_.q + begin, r_.key_step, 1, r_.keys, keys_across_ + c, kDeltaChunk, N, of_queries);
    for (int row = 0; row < kRows; ++row) {
      const std::int64_t i = first + row;
      const Native<T> since = splat(decay_[i]) - load_some<T>(decay_ + c, N), none = splat(T{0});
      const Native<T> left = exp(since < none ? since : none);  // later steps would overflow, and do not count
      store_some<T>(minus_ + i * kDeltaChunk + c, left * of_keys[row][0] * splat(-r_.beta[i * r_.head_step]), N);
      store_some<T>(scores_ + i * kDeltaChunk + c, left * of_queries[row][0], N);
      for (std::int64_t j = c > i ? c : i + 1; j < c + N; ++j) scores_[i * kDeltaChunk + j] = T{0};
    }
  }

  /// u_i = beta_i (v_i - what the state before the chunk knows) - what earlier steps of the chunk know.
  template <int kRows, int kVectors>
  void add_steps(std::int64_t first, std::int64_t c, std::int64_t lanes) {
    Native<T> u[kRows][kVectors] = {};
    add_delta_products(r_.k + first * r_.key_step, r_.key_step, 1, r_.keys, panel_ + c, kDeltaPanel, lanes, u);
    for (int i = 0; i < kRows; ++i) {
      const std::int64_t step = first + i;
      const Native<T> kept = splat(kept_[step]), beta = splat(r_.beta[step * r_.head_step]);
      const T* const v = r_.v + step * r_.value_step + first_ + c;
      for (int j = 0; j < kVectors; ++j) u[i][j] = beta * (load_some<T>(v + j * N, lanes) - kept * u[i][j]);
    }
    const T* const minus = minus_ + first * kDeltaChunk;
    add_delta_products(minus, kDeltaChunk, 1, first, added_ + c, kDeltaPanel, lanes, u);
    for (int i = 0; i < kRows; ++i) {
      for (int before = 0; before < i; ++before)
        for (int j = 0; j < kVectors; ++j)
          u[i][j] = fma(splat(minus[i * kDeltaChunk + first + before]), u[before][j], u[i][j]);
      for (int j = 0; j < kVectors; ++j) store_some<T>(added_ + (first + i) * kDeltaPanel + c + j * N, u[i][j], lanes);
    }
  }

  /// y_i: what the query finds in the state before the chunk, and in what steps up to i have added.
  template <int kRows, int kVectors>
  void read_steps(std::int64_t first, std::int64_t c, std::int64_t lanes) {
    Native<T> y[kRows][kVectors] = {};
    add_delta_products(r_.q + first * r_.key_step, r_.key_step, 1, r_.keys, panel_ + c, kDeltaPanel, lanes, y);
    for (int i = 0; i < kRows; ++i)
      for (int j = 0; j < kVectors; ++j) y[i][j] *= splat(kept_[first + i]);
    add_delta_products(scores_ + first * kDeltaChunk, kDeltaChunk, 1, first + kRows, added_ + c, kDeltaPanel, lanes, y);
    for (int i = 0; i < kRows; ++i)
      for (int j = 0; j < kVectors; ++j)
        store_some<T>(r_.y + (first + i) * r_.value_step + first_ + c + j * N, y[i][j], lanes);
  }

  /// The panel behind the chunk.
  void advance(std::int64_t columns) {
    for (std::int64_t t = 0; t < r_.steps; ++t)
      each_vector<T>(columns, [&](std::int64_t c, std::int64_t lanes) {
        T* const at = added_ + t * kDeltaPanel + c;
        store_some<T>(at, load_some<T>(at, lanes) * splat(left_[t]), lanes);
      });
    const Native<T> all = splat(kept_[r_.steps - 1]);
    each_delta_block<T>(r_.keys, columns,
                        [&]<int kRows, int kVectors>(std::int64_t key, std::int64_t c, std::int64_t lanes) {
                          T* const state = panel_ + key * kDeltaPanel + c;
                          Native<T> s[kRows][kVectors];
                          for (int i = 0; i < kRows; ++i)
                            for (int j = 0; j < kVectors; ++j)
                              s[i][j] = load_some<T>(state + i * kDeltaPanel + j * N, lanes) * all;
                          add_delta_products(keys_across_ + key * kDeltaChunk, kDeltaChunk, 1, r_.steps, added_ + c,
                                             kDeltaPanel, lanes, s);
                          for (int i = 0; i < kRows; ++i)
                            for (int j = 0; j < kVectors; ++j)
                              store_some<T>(state + i * kDeltaPanel + j * N, s[i][j], lanes);
                        });
  }

  static constexpr int kSteps = 4;
  DeltaScanRun<T> r_;  // of the chunk
  T *panels_, *keys_across_, *minus_, *scores_, *added_, *decay_, *kept_, *left_;
  T* panel_ = nullptr;
  std::int64_t first_ = 0;  // column of the panel
};

template <class T>
void scan_delta_chunks(const DeltaScanRun<T>& r) {
  DeltaChunks<T>(r).run();
}

}  // namespace
}  // namespace weft::cpu
