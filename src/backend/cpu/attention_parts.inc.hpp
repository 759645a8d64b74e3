// The parts of attention for one instruction set; see AttentionParts in tile.hpp.
#pragma once

#include "backend/cpu/loop/tile_kernels.inc.hpp"

namespace weft::cpu {
namespace {

template <class T>
inline Reader<T, kNative<T>> read_row(const T* data) {
  Reader<T, kNative<T>> reader;
  reader.data = data;
  return reader;
}

/// Visits a row in whole vectors and one partial vector: visit(vector, lanes).
template <class T, class Visit>
inline void each_vector(std::int64_t count, Visit visit) {
  constexpr int N = kNative<T>;
  std::int64_t i = 0;
  for (; i + N <= count; i += N) visit(i, std::int64_t{N});
  if (i < count) visit(i, count - i);
}
template <class T>
inline Native<T> load_some(const T* p, std::int64_t lanes) {
  return lanes == kNative<T> ? load<kNative<T>>(p) : load_first<kNative<T>>(p, lanes);
}
template <class T>
inline void store_some(T* p, Native<T> x, std::int64_t lanes) {
  if (lanes == kNative<T>)
    store<kNative<T>>(p, x);
  else
    store_first<kNative<T>>(p, x, lanes);
}

template <class T>
inline void clear(T* x, std::int64_t count) {
  each_vector<T>(count, [&](std::int64_t j, std::int64_t lanes) { store_some<T>(x + j, Native<T>{}, lanes); });
}

/// Makes passes over all rows, so that the other rows hide the latencies of one; takes the logarithms of all rows together.
template <class T>
void attention_softmax(T* x, std::int64_t rows, std::int64_t size, const std::int64_t* visible, T scale, T* total,
                       T* logsumexp) {
  for (std::int64_t r = 0; r < rows; ++r) {
    // With a negative scale the smallest score gives the largest exponent.
    const auto reader = read_row(x + r * size);
    const double extreme = scale < 0 ? reduce_row<Reduction::min, T>(reader, visible[r])
                                     : reduce_row<Reduction::max, T>(reader, visible[r]);
    // Where a mask hides all scores the extreme is -infinity, and every exponential has to be 0.
    const T top = static_cast<T>(extreme) * scale;
    logsumexp[r] = top == static_cast<T>(-__builtin_inf()) ? T{0} : top;
  }
  const auto factor = splat(scale);
  for (std::int64_t r = 0; r < rows; ++r) {
    T* row = x + r * size;
    const auto shift = splat(-logsumexp[r]);
    Native<T> sums = {};
    each_vector<T>(visible[r], [&](std::int64_t j, std::int64_t lanes) {
      const Native<T> e = exp(fma(load_some<T>(row + j, lanes), factor, shift));
      store_some<T>(row + j, e, lanes);
      sums += lanes == kNative<T> ? e : pad<Reduction::sum, T>(e, lanes);
    });
    clear(row + visible[r], size - visible[r]);
    total[r] = static_cast<T>(across<Reduction::sum, T>(sums));
  }
  each_vector<T>(rows, [&](std::int64_t r, std::int64_t lanes) {
    const Native<T> sums = load_some<T>(total + r, lanes);
    const Native<T> none = splat(static_cast<T>(-__builtin_inf()));
    store_some<T>(logsumexp + r, sums == T{0} ? none : load_some<T>(logsumexp + r, lanes) + log(sums), lanes);
  });
}

template <class T>
void attention_divide(T* x, std::int64_t rows, std::int64_t row, std::int64_t width, const T* total) {
  for (std::int64_t r = 0; r < rows; ++r) {
    const auto inverse = splat(total[r] > 0 ? 1 / total[r] : T{0});
    each_vector<T>(width, [&](std::int64_t c, std::int64_t lanes) {
      store_some<T>(x + r * row + c, load_some<T>(x + r * row + c, lanes) * inverse, lanes);
    });
  }
}

template <class T>
void attention_gradient(T* p, T* d, std::int64_t visible, std::int64_t size, T p_scale, T scale, T logsumexp,
                        const T* o, const T* d_o, std::int64_t width) {
  clear(p + visible, size - visible);
  clear(d + visible, size - visible);
  Native<T> dots = {};
  each_vector<T>(width, [&](std::int64_t c, std::int64_t lanes) {
    dots = fma(load_some<T>(o + c, lanes), load_some<T>(d_o + c, lanes), dots);
  });
  const auto dot = splat(static_cast<T>(across<Reduction::sum, T>(dots))), factor = splat(scale),
             of_score = splat(p_scale),
             shift = splat(logsumexp == static_cast<T>(-__builtin_inf()) ? T{0} : -logsumexp);
  each_vector<T>(visible, [&](std::int64_t j, std::int64_t lanes) {
    const Native<T> probability = exp(fma(load_some<T>(p + j, lanes), of_score, shift));
    store_some<T>(p + j, probability, lanes);
    store_some<T>(d + j, probability * (load_some<T>(d + j, lanes) - dot) * factor, lanes);
  });
}

template <class T>
inline V<Byte, kNative<T>> load_bools(const Byte* p, std::int64_t lanes) {
  return lanes == kNative<T> ? load<kNative<T>>(p) : load_first<kNative<T>>(p, lanes);
}

template <class T>
void attention_mask(T* x, std::int64_t size, T scale, const AttentionMaskRow& mask) {
  const auto factor = splat(scale), none = splat(static_cast<T>(-__builtin_inf()));
  const auto hide = [&](T* from, std::int64_t count) {
    each_vector<T>(count, [&](std::int64_t j, std::int64_t lanes) { store_some<T>(from + j, none, lanes); });
  };
  hide(x, mask.first);
  hide(x + mask.end, size - mask.end);
  T* const seen = x + mask.first;
  const auto all = [&](auto masked) {
    each_vector<T>(mask.end - mask.first, [&](std::int64_t j, std::int64_t lanes) {
      store_some<T>(seen + j, masked(load_some<T>(seen + j, lanes) * factor, j, lanes), lanes);
    });
  };
  const auto hidden = splat(static_cast<T>(mask.hidden));
  const auto* bools = static_cast<const Byte*>(mask.values);
  const auto* values = static_cast<const T*>(mask.values);
  const auto add = [&](Native<T> s, Native<T> b) { return (Native<T>)(b > hidden ? s + b : none); };
  if (!mask.values) {
    all([](Native<T> s, std::int64_t, std::int64_t) { return s; });
  } else if (mask.are_bools && mask.is_one) {
    if (*bools == 0)
      hide(seen, mask.end - mask.first);
    else
      all([](Native<T> s, std::int64_t, std::int64_t) { return s; });
  } else if (mask.are_bools) {
    all([&](Native<T> s, std::int64_t j, std::int64_t lanes) {
      return (Native<T>)(to_mask<T>(load_bools<T>(bools + mask.first + j, lanes)) ? s : none);
    });
  } else if (mask.is_one) {
    const auto value = splat(*values);
    all([&](Native<T> s, std::int64_t, std::int64_t) { return add(s, value); });
  } else {
    all([&](Native<T> s, std::int64_t j, std::int64_t lanes) {
      return add(s, load_some<T>(values + mask.first + j, lanes));
    });
  }
}

inline void attention_keep(Byte* keep, std::int64_t size, const AttentionKeepRow& row) {
  constexpr int N = kNative<std::uint32_t>;
  const auto seed = splat<N>(row.seed), stream = splat<N>(row.stream);
  Native<std::uint32_t> lane;
  for (int i = 0; i < N; ++i) lane[i] = static_cast<std::uint32_t>(i);
  std::uint32_t words[N];
  const std::int64_t end = row.first_key + size;
  for (std::int64_t word = row.first_key / 2; 2 * word < end; word += N) {
    store<N>(words, philox(seed, stream, lane + splat<N>(row.word + static_cast<std::uint32_t>(word))));
    const std::int64_t from = 2 * word < row.first_key ? row.first_key : 2 * word,
                       to = 2 * (word + N) < end ? 2 * (word + N) : end;
    for (std::int64_t key = from; key < to; ++key)
      keep[key - row.first_key] = (words[key / 2 - word] >> (row.place + (key % 2) * 8) & 255) >= row.dropped;
  }
}

template <class T>
void attention_drop(T* x, const Byte* keep, std::int64_t size, T by) {
  const auto factor = splat(by);
  each_vector<T>(size, [&](std::int64_t j, std::int64_t lanes) {
    const Native<T> kept = load_some<T>(x + j, lanes) * factor;
    store_some<T>(x + j, (Native<T>)(to_mask<T>(load_bools<T>(keep + j, lanes)) ? kept : Native<T>{}), lanes);
  });
}

template <class T>
AttentionParts<T> attention_parts_of() {
  return {attention_softmax<T>, attention_divide<T>, attention_gradient<T>, attention_mask<T>, attention_drop<T>};
}

}  // namespace
}  // namespace weft::cpu
