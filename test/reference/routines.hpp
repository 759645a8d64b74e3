// The meaning of routines: caches that keep rows in three types, attention over them, rows of packed weights, the draw of
// tokens, scans, sorting, convolutions, recurrent layers, alignments of labels, and counts. Everything is computed from
// its definition, in double.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <map>
#include <numeric>

#include "base/half.hpp"
#include "base/philox.hpp"
#include "compile/call_attributes.hpp"
#include "graph/cache.hpp"
#include "graph/convolution.hpp"
#include "graph/order.hpp"
#include "graph/packed.hpp"
#include "graph/scan.hpp"
#include "graph/scatter.hpp"
#include "reference/alignment.hpp"
#include "reference/grouped.hpp"
#include "reference/matrix_exponential.hpp"
#include "reference/packed.hpp"
#include "reference/poisson.hpp"
#include "reference/polynomials.hpp"
#include "reference/recurrence.hpp"
#include "reference/state_scan.hpp"
#include "reference/values.hpp"

namespace weft::reference {

inline std::uint32_t bits_of_f32(double value) { return std::bit_cast<std::uint32_t>(static_cast<float>(value)); }
inline double f32_of_bits(double word) { return std::bit_cast<float>(static_cast<std::uint32_t>(word)); }

/// A row of a cache as elements of its buffer.
inline Values packed_row(CacheType type, const Values& row) {
  Values elements;
  switch (type) {
    case CacheType::f32: return row;
    case CacheType::f16:
      for (const double value : row) elements.push_back(to_type(value, DType::f16));
      break;
    case CacheType::q8:
      for (std::size_t block = 0; block < row.size(); block += 32) {
        double largest = 0;
        for (std::size_t i = 0; i < 32; ++i) largest = std::max(largest, std::fabs(row[block + i]));
        const std::uint32_t scale = bits_of_f32(largest / 127);
        for (int byte = 0; byte < 4; ++byte) elements.push_back(static_cast<std::int8_t>(scale >> 8 * byte));
        for (std::size_t i = 0; i < 32; ++i)
          elements.push_back(largest > 0 ? std::nearbyint(row[block + i] * 127 / largest) : 0);
      }
      break;
  }
  return elements;
}

/// Element `e` of a row of a cache, whose buffer's elements `at(i)` gives.
template <class At>
double cached_element(CacheType type, Extent e, At at) {
  if (type != CacheType::q8) return at(e);
  const Extent block = e / 32 * 36;
  std::uint32_t scale = 0;
  for (int byte = 0; byte < 4; ++byte)
    scale |= static_cast<std::uint32_t>(static_cast<std::uint8_t>(static_cast<std::int8_t>(at(block + byte))))
             << 8 * byte;
  return f32_of_bits(scale) * at(block + 4 + e % 32);
}

inline void run_write_rows(const kernel::CallKernel& k, std::vector<Values>& buffers) {
  const CacheType type = kernel::attributes_of<graph::WriteRows>(k).type;
  const Extent rows = k.shape()[0], words = k.shape()[1], width = k.shapes[1][1];
  Values cache;
  for (Extent i = 0; i < rows * words; ++i) cache.push_back(read(k.reads[0], i, buffers));
  for (Extent t = 0; t < k.shapes[1][0]; ++t) {
    const auto at = static_cast<Extent>(read(k.reads[2], t, buffers));
    if (at < 0 || at >= rows) continue;
    Values row;
    for (Extent e = 0; e < width; ++e) row.push_back(read(k.reads[1], t * width + e, buffers));
    const Values packed = packed_row(type, row);
    std::copy(packed.begin(), packed.end(), cache.begin() + at * words);
  }
  for (Extent i = 0; i < rows * words; ++i) write(k.out(), i, cache[static_cast<std::size_t>(i)], buffers);
}

inline void run_cache_attention(const kernel::CallKernel& k, std::vector<Values>& buffers) {
  const graph::CacheAttention a = kernel::attributes_of<graph::CacheAttention>(k);
  const Extent tokens = k.shape()[0], heads = k.shape()[1], width = k.shape()[2], rows = k.shapes[1][0],
               words = k.shapes[1][1];
  const auto cached = [&](std::size_t operand, Extent row, Extent e) {
    return cached_element(a.type, e, [&](Extent i) { return read(k.reads[operand], row * words + i, buffers); });
  };
  for (Extent t = 0; t < tokens; ++t) {
    const auto first = static_cast<Extent>(read(k.reads[3], t, buffers)),
               length = static_cast<Extent>(read(k.reads[4], t, buffers));
    // The rows that the token sees: position p of its sequence is in row first + p, or in a ring first + p % ring.
    std::vector<Extent> seen;
    const Extent begin = a.window > 0 ? std::max<Extent>(0, length - a.window) : 0;
    for (Extent position = begin; position < length; ++position) {
      const Extent row = first + (a.ring > 0 ? position % a.ring : position);
      if (row >= 0 && row < rows) seen.push_back(row);
    }
    for (Extent h = 0; h < heads; ++h) {
      const Extent kv = h / (heads / a.kv_heads) * width;
      std::vector<double> score;
      for (const Extent row : seen) {
        double s = 0;
        for (Extent e = 0; e < width; ++e)
          s += read(k.reads[0], (t * heads + h) * width + e, buffers) * cached(1, row, kv + e);
        s *= a.scale;
        score.push_back(a.soft_cap > 0 ? a.soft_cap * std::tanh(s / a.soft_cap) : s);
      }
      if (const auto* slopes = k.input(6))
        for (std::size_t j = 0; j < score.size(); ++j)
          score[j] -= read(*slopes, h, buffers) * static_cast<double>(score.size() - 1 - j);
      double top = score.empty() ? 0 : *std::max_element(score.begin(), score.end()), total = 0;
      if (const auto* sinks = k.input(5)) {
        top = std::max(top, read(*sinks, h, buffers));
        total = std::exp(read(*sinks, h, buffers) - top);
      }
      for (double& s : score) total += s = std::exp(s - top);
      for (Extent e = 0; e < width; ++e) {
        double sum = 0;
        for (std::size_t j = 0; j < seen.size(); ++j) sum += score[j] / total * cached(2, seen[j], kv + e);
        write(k.out(), (t * heads + h) * width + e, to_type(sum, DType::f32), buffers);
      }
    }
  }
}

/// A row outside of the matrix is zeros.
inline void run_unpack_rows(const kernel::CallKernel& k, std::vector<Values>& buffers) {
  const Extent width = k.shape()[1], rows = graph::rows_of(k.shapes[0]);
  const Values weights = unpacked(k.types[0], rows, width, k.reads[0], buffers);
  for (Extent t = 0; t < k.shape()[0]; ++t) {
    const auto row = static_cast<Extent>(read(k.reads[1], t, buffers));
    for (Extent e = 0; e < width; ++e)
      write(k.out(), t * width + e, row >= 0 && row < rows ? weights[static_cast<std::size_t>(row * width + e)] : 0,
            buffers);
  }
}

inline void run_pack_rows(const kernel::CallKernel& k, std::vector<Values>& buffers) {
  std::vector<float> values;
  for (Extent i = 0; i < k.shape().numel(); ++i) values.push_back(static_cast<float>(read(k.reads[0], i, buffers)));
  std::vector<std::byte> blocks(bytes_of(k.out_types[0], values.size()));
  quantise(k.out_types[0], values, blocks);
  const Values words = words_of(blocks);
  for (std::size_t w = 0; w < words.size(); ++w) write(k.out(), static_cast<Extent>(w), words[w], buffers);
}

struct DrawSettings {
  double temperature, top_k, typical, top_p, min_p, repetition, frequency, presence, log_probability;
};

/// The token that a row of logits, bias and penalties included, draws with a number in [0, 1).
inline Extent drawn_token(const Values& logits, const DrawSettings& s, double unit) {
  struct Candidate {
    double probability;
    Extent id;
  };
  const auto best_first = [](const Candidate& x, const Candidate& y) {
    return x.probability != y.probability ? x.probability > y.probability : x.id < y.id;
  };
  std::size_t best = 0;
  for (std::size_t i = 0; i < logits.size(); ++i) {
    if (std::isnan(logits[i])) return -1;
    if (logits[i] > logits[best]) best = i;
  }
  if (!(s.temperature > 0) || std::isinf(logits[best])) return static_cast<Extent>(best);
  std::vector<Candidate> left;
  for (std::size_t i = 0; i < logits.size(); ++i)
    left.push_back({std::exp((logits[i] - logits[best]) / s.temperature), static_cast<Extent>(i)});
  const auto mass = [&] {
    double sum = 0;
    for (const Candidate& c : left) sum += c.probability;
    return sum;
  };
  const auto keep_mass = [&](double share) {
    const double goal = share * mass();
    double sum = 0;
    std::size_t count = 0;
    while (count < left.size() && (count == 0 || sum < goal)) sum += left[count++].probability;
    left.resize(count);
  };
  std::sort(left.begin(), left.end(), best_first);
  if (s.top_k > 0) left.resize(std::min(left.size(), static_cast<std::size_t>(s.top_k)));
  if (s.typical < 1) {
    const double total = mass();
    const auto surprise = [&](const Candidate& c) { return -std::log(c.probability / total); };
    double entropy = 0;
    for (const Candidate& c : left)
      if (c.probability > 0) entropy += c.probability / total * surprise(c);
    std::stable_sort(left.begin(), left.end(), [&](const Candidate& x, const Candidate& y) {
      return std::fabs(surprise(x) - entropy) < std::fabs(surprise(y) - entropy);
    });
    keep_mass(s.typical);
    std::sort(left.begin(), left.end(), best_first);
  }
  if (s.top_p < 1) keep_mass(s.top_p);
  if (s.min_p > 0)
    std::erase_if(left, [least = std::min(s.min_p, 1.0) * left[0].probability](const Candidate& c) {
      return c.probability < least;
    });
  // Without a filter that ranks, the draw goes through the tokens by id.
  if (s.top_k <= 0 && s.typical >= 1 && s.top_p >= 1)
    std::sort(left.begin(), left.end(), [](const Candidate& x, const Candidate& y) { return x.id < y.id; });
  const double goal = unit * mass();
  double sum = 0;
  for (const Candidate& c : left)
    if (goal < (sum += c.probability)) return c.id;
  return left.back().id;
}

inline void run_sample_token(const kernel::CallKernel& k, std::vector<Values>& buffers) {
  const auto row_of = [&](std::size_t operand, Extent b) {
    Values row;
    const Extent columns = k.shapes[operand][1];
    for (Extent i = 0; i < columns; ++i) row.push_back(read(k.reads[operand], b * columns + i, buffers));
    return row;
  };
  for (Extent b = 0; b < k.shape()[0]; ++b) {
    const Values raw = row_of(0, b), settings = row_of(1, b), history = row_of(2, b), tokens = row_of(3, b),
                 bias = row_of(4, b), draw = row_of(5, b);
    const DrawSettings s{settings[0], settings[1], settings[2], settings[3], settings[4],
                         settings[5], settings[6], settings[7], settings[8]};
    const auto inside = [&](double token) { return token >= 0 && token < static_cast<double>(raw.size()); };
    Values logits = raw;
    for (std::size_t i = 0; i < tokens.size(); ++i)
      if (inside(tokens[i])) logits[static_cast<std::size_t>(tokens[i])] += bias[i];
    std::map<double, int> times;
    for (const double token : history)
      if (inside(token)) ++times[token];
    for (const auto& [token, count] : times) {
      double& l = logits[static_cast<std::size_t>(token)];
      l = (l > 0 ? l / s.repetition : l * s.repetition) - s.frequency * count - s.presence;
    }
    const auto word = [&](std::size_t i) { return static_cast<std::uint32_t>(draw[i]); };
    const philox::Block random =
        philox::block({word(0), word(1)}, {word(2), word(3), 0, static_cast<std::uint32_t>(philox::Use::sampling)});
    const Extent token = drawn_token(logits, s, philox::to_unit_double(random[0], random[1]));
    double log_probability = 0;
    if (s.log_probability != 0 && token >= 0) {
      const double top = *std::max_element(raw.begin(), raw.end());
      double total = 0;
      for (const double l : raw) total += std::exp(l - top);
      log_probability = raw[static_cast<std::size_t>(token)] - top - std::log(total);
    }
    write(k.out(), 2 * b, static_cast<double>(token), buffers);
    write(k.out(), 2 * b + 1, static_cast<std::int32_t>(bits_of_f32(log_probability)), buffers);
  }
}

/// Lines along an axis: element i of a line is at place(line, i).
struct Lines {
  Lines(const Shape& shape, Extent axis) {
    const int a = static_cast<int>(axis < 0 ? axis + shape.rank() : axis);
    for (int d = a + 1; d < shape.rank(); ++d) inner *= shape[d];
    n = shape[a];
    count = n == 0 ? 0 : shape.numel() / n;
  }
  Extent place(Extent line, Extent i) const { return (line / inner * n + i) * inner + line % inner; }
  Extent n = 0, count = 0, inner = 1;
};

/// One result of a scan after another, from the values so far: next(before, place of the element).
template <class Next>
void run_scan(const kernel::CallKernel& k, std::vector<Values>& buffers, double start, Next next) {
  const auto a = kernel::attributes_of<graph::ScanAttributes>(k);
  const Lines lines(k.shapes[0], a.axis);
  const DType type = k.out().type;
  for (Extent line = 0; line < lines.count; ++line) {
    double sum = start;
    for (Extent i = 0; i < lines.n; ++i) {
      const Extent place = lines.place(line, a.reverse ? lines.n - 1 - i : i);
      const double before = sum;
      sum = next(before, place);
      if (!is_float(type)) sum = to_type(sum, type);
      write(k.out(), place, to_type(a.exclusive ? before : sum, type), buffers);
    }
  }
}
inline void run_cumsum(const kernel::CallKernel& k, std::vector<Values>& buffers) {
  run_scan(k, buffers, 0, [&](double sum, Extent at) { return sum + read(k.reads[0], at, buffers); });
}
inline void run_cumprod(const kernel::CallKernel& k, std::vector<Values>& buffers) {
  run_scan(k, buffers, 1, [&](double product, Extent at) { return product * read(k.reads[0], at, buffers); });
}
inline void run_logcumsumexp(const kernel::CallKernel& k, std::vector<Values>& buffers) {
  run_scan(k, buffers, -std::numeric_limits<double>::infinity(), [&](double sum, Extent at) {
    const double x = read(k.reads[0], at, buffers), top = std::max(sum, x);
    return top + std::log(std::exp(sum - top) + std::exp(x - top));
  });
}
inline void run_linear_recurrence(const kernel::CallKernel& k, std::vector<Values>& buffers) {
  run_scan(k, buffers, 0,
           [&](double y, Extent at) { return read(k.reads[0], at, buffers) * y + read(k.reads[1], at, buffers); });
}

/// Numbers in order; NaN is larger than all, and equal ones keep their order.
inline bool is_less(double x, double y) { return std::isnan(y) ? !std::isnan(x) : x < y; }

inline void run_extremes(const kernel::CallKernel& k, std::vector<Values>& buffers, bool largest) {
  const auto a = kernel::attributes_of<graph::ScanAttributes>(k);
  const Lines lines(k.shapes[0], a.axis);
  for (Extent line = 0; line < lines.count; ++line) {
    double best = 0;
    Extent position = -1;
    for (Extent i = 0; i < lines.n; ++i) {
      const Extent along = a.reverse ? lines.n - 1 - i : i, place = lines.place(line, along);
      const double x = read(k.reads[0], place, buffers);
      if (position < 0 || std::isnan(x) || (!std::isnan(best) && (largest ? x >= best : x <= best))) {
        best = x;
        position = along;
      }
      write(k.outs[0], place, best, buffers);
      write(k.outs[1], place, static_cast<double>(position), buffers);
    }
  }
}
inline void run_cummax(const kernel::CallKernel& k, std::vector<Values>& buffers) { run_extremes(k, buffers, true); }
inline void run_cummin(const kernel::CallKernel& k, std::vector<Values>& buffers) { run_extremes(k, buffers, false); }

inline void run_sort(const kernel::CallKernel& k, std::vector<Values>& buffers) {
  const auto a = kernel::attributes_of<graph::SortAttributes>(k);
  const Lines lines(k.shapes[0], a.axis), results(k.shape(), a.axis);
  for (Extent line = 0; line < lines.count; ++line) {
    std::vector<Extent> order(static_cast<std::size_t>(lines.n));
    std::iota(order.begin(), order.end(), Extent{0});
    const auto x = [&](Extent i) { return read(k.reads[0], lines.place(line, i), buffers); };
    std::stable_sort(order.begin(), order.end(),
                     [&](Extent i, Extent j) { return a.descending ? is_less(x(j), x(i)) : is_less(x(i), x(j)); });
    for (Extent i = 0; i < results.n; ++i) {
      const Extent from = order[static_cast<std::size_t>(a.first + i)];
      write(k.outs[0], results.place(line, i), x(from), buffers);
      write(k.outs[1], results.place(line, i), static_cast<double>(from), buffers);
    }
  }
}

/// Calls put(value, t, i) for each element i of operand `indices` whose index is a place along the axis: `t` counts along the axis,
/// and `value` is what the result has at the place. The result begins as `values`.
template <class Put>
void scatter_lines(const kernel::CallKernel& k, std::size_t indices, Extent axis_or_negative, Values values,
                   std::vector<Values>& buffers, Put put) {
  const Shape& shape = k.shape();
  const int axis = static_cast<int>(axis_or_negative < 0 ? axis_or_negative + shape.rank() : axis_or_negative);
  Extent inner = 1;
  for (int d = axis + 1; d < shape.rank(); ++d) inner *= shape[d];
  const Extent extent = shape[axis], taken = k.shapes[indices][axis];
  for (Extent i = 0; i < k.shapes[indices].numel(); ++i) {
    const double row = read(k.reads[indices], i, buffers);
    if (row < 0 || row >= static_cast<double>(extent)) continue;
    const Extent line = i / inner / taken;
    put(values[static_cast<std::size_t>((line * extent + static_cast<Extent>(row)) * inner + i % inner)],
        i / inner % taken, i);
  }
  for (Extent i = 0; i < shape.numel(); ++i)
    write(k.out(), i, to_type(values[static_cast<std::size_t>(i)], k.out().type), buffers);
}
inline Values zeros_of(const kernel::CallKernel& k) { return Values(static_cast<std::size_t>(k.shape().numel()), 0.0); }

inline void run_scatter_along(const kernel::CallKernel& k, std::vector<Values>& buffers) {
  const DType type = k.out().type;
  scatter_lines(k, 0, kernel::attributes_of<graph::ScatterAlongAttributes>(k).axis, zeros_of(k), buffers,
                [&](double& sum, Extent, Extent i) {
                  sum += read(k.reads[1], i, buffers);
                  if (!is_float(type)) sum = to_type(sum, type);
                });
}
inline void run_last_along(const kernel::CallKernel& k, std::vector<Values>& buffers) {
  scatter_lines(k, 0, kernel::attributes_of<graph::ScatterAlongAttributes>(k).axis, zeros_of(k), buffers,
                [](double& last, Extent t, Extent) { last = static_cast<double>(t + 1); });
}
inline void run_put_along(const kernel::CallKernel& k, std::vector<Values>& buffers) {
  Values values = zeros_of(k);
  for (Extent i = 0; i < k.shape().numel(); ++i) values[static_cast<std::size_t>(i)] = read(k.reads[0], i, buffers);
  scatter_lines(k, 1, k.attributes[0], std::move(values), buffers,
                [&](double& place, Extent, Extent i) { place = read(k.reads[2], i, buffers); });
}

/// Every product of an element of x and one of the weights is added to its place.
inline void run_conv_adjoint(const kernel::CallKernel& k, std::vector<Values>& buffers) {
  const auto a = kernel::attributes_of<graph::ConvAdjointAttributes>(k);
  const Shape &x = k.shapes[0], &weight = k.shapes[1], &y = k.shape();
  Values sums = zeros_of(k);
  const auto coordinates = [](const Shape& shape, Extent i) {
    std::vector<Extent> at(static_cast<std::size_t>(shape.rank()));
    for (std::size_t d = at.size(); d-- > 0; i /= shape[static_cast<int>(d)]) at[d] = i % shape[static_cast<int>(d)];
    return at;
  };
  const Extent of_group = x[1] / a.groups, taps = weight.numel() / weight[0];
  for (Extent i = 0; i < x.numel(); ++i) {
    const std::vector<Extent> p = coordinates(x, i);
    const double value = read(k.reads[0], i, buffers);
    for (Extent t = 0; t < taps; ++t) {
      const std::vector<Extent> w = coordinates(weight, p[1] * taps + t);
      Extent place = p[0] * y[1] + p[1] / of_group * weight[1] + w[1];
      bool inside = true;
      for (std::size_t d = 2; d < p.size(); ++d) {
        const Extent at = a.stride[d - 2] * p[d] + w[d] - a.before[d - 2], extent = y[static_cast<int>(d)];
        inside = inside && at >= 0 && at < extent;
        place = place * extent + at;
      }
      if (inside) sums[static_cast<std::size_t>(place)] += value * read(k.reads[1], p[1] * taps + t, buffers);
    }
  }
  for (Extent i = 0; i < y.numel(); ++i)
    write(k.out(), i, to_type(sums[static_cast<std::size_t>(i)], k.out().type), buffers);
}

struct RoutineReference {
  const graph::OpRow* row;
  void (*run)(const kernel::CallKernel&, std::vector<Values>&);
};
/// Every row that devices compute by a routine.
inline std::vector<RoutineReference> routine_references() {
  return {{&graph::write_rows_row(), run_write_rows},
          {&graph::cache_attention_row(), run_cache_attention},
          {&graph::sample_token_row(), run_sample_token},
          {&graph::unpack_rows_row(), run_unpack_rows},
          {&graph::pack_rows_row(), run_pack_rows},
          {&graph::cumsum_row(), run_cumsum},
          {&graph::cumprod_row(), run_cumprod},
          {&graph::logcumsumexp_row(), run_logcumsumexp},
          {&graph::cummax_row(), run_cummax},
          {&graph::cummin_row(), run_cummin},
          {&graph::sort_row(), run_sort},
          {&graph::linear_recurrence_row(), run_linear_recurrence},
          {&graph::scatter_along_row(), run_scatter_along},
          {&graph::last_along_row(), run_last_along},
          {&graph::put_along_row(), run_put_along},
          {&graph::conv_adjoint_row(), run_conv_adjoint},
          {&graph::grouped_matmul_row(), run_grouped_matmul},
          {&graph::grouped_outer_row(), run_grouped_outer},
          {&graph::recurrence_row(), run_recurrence},
          {&graph::recurrence_backward_row(), run_recurrence_backward},
          {&graph::delta_scan_row(), run_delta_scan},
          {&graph::state_scan_row(), run_state_scan},
          {&graph::state_scan_backward_row(), run_state_scan_backward},
          {&graph::state_convolution_row(), run_state_convolution},
          {&graph::ctc_alignment_row(), run_ctc_alignment},
          {&graph::ctc_alignment_backward_row(), run_ctc_alignment_backward},
          {&graph::poisson_quantile_row(), run_poisson_quantile},
          {&graph::orthogonal_polynomial_row(), run_orthogonal_polynomial},
          {&graph::matrix_exp_row(), run_matrix_exp},
          {&graph::matrix_exp_frechet_row(), run_matrix_exp}};
}

inline void run(const kernel::CallKernel& kernel, std::vector<Values>& buffers) {
  for (const RoutineReference& reference : routine_references())
    if (reference.row == kernel.op) return reference.run(kernel, buffers);
  throw std::logic_error("reference: " + kernel.name + " has no entry in routine_references()");
}

}  // namespace weft::reference
