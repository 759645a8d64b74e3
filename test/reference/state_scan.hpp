// The meaning of scans of states, of their gradient and of short convolutions, element by element in double.
#pragma once

#include <cmath>

#include "compile/call_attributes.hpp"
#include "graph/delta_scan.hpp"
#include "graph/state_scan.hpp"
#include "reference/values.hpp"

namespace weft::reference {

/// Reads operands of a scan and walks over its states.
struct StateScanReader {
  const kernel::CallKernel& k;
  std::vector<Values>& buffers;
  Extent batch = k.shapes[0][0], steps = k.shapes[0][1], heads = k.shapes[0][2], width = k.shapes[0][3],
         groups = k.shapes[3][2], states = k.shapes[3][3], rates = k.shapes[2][1];

  double in(std::size_t operand, Extent i) const { return read(k.reads[operand], i, buffers); }
  Extent channel(Extent s, Extent t, Extent h, Extent p) const { return ((s * steps + t) * heads + h) * width + p; }
  Extent head(Extent s, Extent t, Extent h) const { return (s * steps + t) * heads + h; }
  Extent rate(Extent h, Extent n) const { return rates == 1 ? h : h * states + n; }
  Extent shared(Extent s, Extent t, Extent h, Extent n) const {
    return ((s * steps + t) * groups + h * groups / heads) * states + n;
  }
  Extent state(Extent s, Extent h, Extent p, Extent n) const { return ((s * heads + h) * width + p) * states + n; }
  double kept(Extent s, Extent t, Extent h, Extent n) const {
    return std::exp(in(1, head(s, t, h)) * in(2, rate(h, n)));
  }
  double moved(Extent s, Extent t, Extent h, Extent p) const {
    return in(0, channel(s, t, h, p)) * in(1, head(s, t, h));
  }
  template <class Visit>
  void each_channel(Visit visit) const {
    for (Extent s = 0; s < batch; ++s)
      for (Extent h = 0; h < heads; ++h)
        for (Extent p = 0; p < width; ++p) visit(s, h, p);
  }
};

/// The row of sequence s in a cache of `rows`; -1: none.
inline Extent cache_row(const kernel::CallKernel& k, std::size_t operand, Extent s, Extent rows,
                        std::vector<Values>& buffers) {
  const auto row = static_cast<Extent>(read(k.reads[operand], s, buffers));
  return row >= 0 && row < rows ? row : -1;
}

inline void run_state_scan(const kernel::CallKernel& k, std::vector<Values>& buffers) {
  const StateScanReader r{k, buffers};
  const bool cached = kernel::attributes_of<graph::StateScanAttributes>(k).cached;
  for (Extent i = 0; cached && i < k.shapes[5].numel(); ++i) write(k.outs[0], i, r.in(5, i), buffers);
  r.each_channel([&](Extent s, Extent h, Extent p) {
    const Extent row = cached ? cache_row(k, 6, s, k.shapes[5][0], buffers) : s;
    const bool begins = row < 0 || (cached && r.in(7, s) > 0);
    Values state;
    for (Extent n = 0; n < r.states; ++n) state.push_back(begins ? 0 : r.in(5, r.state(row, h, p, n)));
    for (Extent t = 0; t < r.steps; ++t) {
      double y = 0;
      for (Extent n = 0; n < r.states; ++n) {
        double& v = state[static_cast<std::size_t>(n)];
        v = r.kept(s, t, h, n) * v + r.moved(s, t, h, p) * r.in(3, r.shared(s, t, h, n));
        y += v * r.in(4, r.shared(s, t, h, n));
      }
      write(k.outs[1], r.channel(s, t, h, p), y, buffers);
    }
    for (Extent n = 0; n < r.states && row >= 0; ++n)
      write(k.outs[0], r.state(row, h, p, n), state[static_cast<std::size_t>(n)], buffers);
  });
}

inline void run_state_scan_backward(const kernel::CallKernel& k, std::vector<Values>& buffers) {
  const StateScanReader r{k, buffers};
  std::vector<Values> sums;
  for (const Shape& shape : k.out_shapes) sums.emplace_back(static_cast<std::size_t>(shape.numel()), 0.0);
  const auto sum = [&](std::size_t out, Extent i) -> double& { return sums[out][static_cast<std::size_t>(i)]; };
  r.each_channel([&](Extent s, Extent h, Extent p) {
    for (Extent n = 0; n < r.states; ++n) {
      Values all{r.in(5, r.state(s, h, p, n))};
      for (Extent t = 0; t < r.steps; ++t)
        all.push_back(r.kept(s, t, h, n) * all.back() + r.moved(s, t, h, p) * r.in(3, r.shared(s, t, h, n)));
      double g = r.in(6, r.state(s, h, p, n));
      for (Extent t = r.steps; t-- > 0;) {
        const auto at = static_cast<std::size_t>(t);
        const Extent shared = r.shared(s, t, h, n), channel = r.channel(s, t, h, p), head = r.head(s, t, h);
        const double d_y = r.in(7, channel), dt = r.in(1, head), a = r.in(2, r.rate(h, n)), kept = r.kept(s, t, h, n);
        g += d_y * r.in(4, shared);
        sum(4, shared) += d_y * all[at + 1];
        sum(3, shared) += g * r.moved(s, t, h, p);
        sum(0, channel) += g * r.in(3, shared) * dt;
        sum(1, head) += g * r.in(3, shared) * r.in(0, channel) + g * all[at] * kept * a;
        sum(2, r.rate(h, n)) += g * all[at] * kept * dt;
        g *= kept;
      }
      sum(5, r.state(s, h, p, n)) = g;
    }
  });
  for (std::size_t out = 0; out < sums.size(); ++out)
    for (std::size_t i = 0; i < sums[out].size(); ++i)
      write(k.outs[out], static_cast<Extent>(i), sums[out][i], buffers);
}

inline void run_state_convolution(const kernel::CallKernel& k, std::vector<Values>& buffers) {
  const bool cached = kernel::attributes_of<graph::StateConvolutionAttributes>(k).cached;
  const Extent batch = k.shapes[0][0], steps = k.shapes[0][1], width = k.shapes[0][2], size = k.shapes[1][1],
               kept = size - 1;
  const auto in = [&](std::size_t operand, Extent i) { return read(k.reads[operand], i, buffers); };
  std::vector<Values> all(static_cast<std::size_t>(batch));  // [kept + steps, W] of each sequence
  for (Extent s = 0; s < batch; ++s) {
    const Extent row = cached ? cache_row(k, 4, s, k.shapes[3][0], buffers) : s;
    const bool begins = row < 0 || (cached && in(5, s) > 0);
    Values& list = all[static_cast<std::size_t>(s)];
    for (Extent i = 0; i < kept * width; ++i) list.push_back(begins ? 0 : in(3, row * kept * width + i));
    for (Extent i = 0; i < steps * width; ++i) list.push_back(in(0, s * steps * width + i));
  }
  for (Extent i = 0; cached && i < k.shapes[3].numel(); ++i) write(k.outs[0], i, in(3, i), buffers);
  for (Extent s = 0; s < batch; ++s) {
    const Values& list = all[static_cast<std::size_t>(s)];
    for (Extent i = 0; i < steps * width; ++i) {
      double y = in(2, i % width);
      for (Extent c = 0; c < size; ++c)
        y += in(1, i % width * size + c) * list[static_cast<std::size_t>(i + c * width)];
      write(k.outs[1], s * steps * width + i, y, buffers);
    }
    const Extent row = cached ? cache_row(k, 4, s, k.shapes[3][0], buffers) : s;
    const Extent counted = cached ? static_cast<Extent>(in(6, 0)) : steps;
    for (Extent i = 0; i < kept * width && row >= 0; ++i)
      write(k.outs[0], row * kept * width + i, list[static_cast<std::size_t>(counted * width + i)], buffers);
  }
}

inline void run_delta_scan(const kernel::CallKernel& k, std::vector<Values>& buffers) {
  const bool cached = kernel::attributes_of<graph::DeltaScanAttributes>(k).cached;
  const Extent batch = k.shapes[0][0], steps = k.shapes[0][1], groups = k.shapes[0][2], keys = k.shapes[0][3],
               heads = k.shapes[2][2], width = k.shapes[2][3];
  const auto in = [&](std::size_t operand, Extent i) { return read(k.reads[operand], i, buffers); };
  for (Extent i = 0; cached && i < k.shapes[5].numel(); ++i) write(k.outs[0], i, in(5, i), buffers);
  for (Extent i = 0; i < batch * heads * width; ++i) {
    const Extent s = i / width / heads, h = i / width % heads, c = i % width;
    const Extent row = cached ? cache_row(k, 6, s, k.shapes[5][0], buffers) : s;
    const bool begins = row < 0 || (cached && in(7, s) > 0);
    const auto place = [&](Extent n) { return ((row * heads + h) * keys + n) * width + c; };
    Values state;
    for (Extent n = 0; n < keys; ++n) state.push_back(begins ? 0 : in(5, place(n)));
    for (Extent t = 0; t < steps; ++t) {
      const Extent step = s * steps + t, head = step * heads + h, key = (step * groups + h * groups / heads) * keys;
      double known = 0, y = 0;
      for (Extent n = 0; n < keys; ++n) {
        state[static_cast<std::size_t>(n)] *= std::exp(in(3, head));
        known += state[static_cast<std::size_t>(n)] * in(1, key + n);
      }
      const double added = in(4, head) * (in(2, head * width + c) - known);
      for (Extent n = 0; n < keys; ++n) {
        state[static_cast<std::size_t>(n)] += in(1, key + n) * added;
        y += state[static_cast<std::size_t>(n)] * in(0, key + n);
      }
      write(k.outs[1], head * width + c, y, buffers);
    }
    for (Extent n = 0; n < keys && row >= 0; ++n)
      write(k.outs[0], place(n), state[static_cast<std::size_t>(n)], buffers);
  }
}

}  // namespace weft::reference
