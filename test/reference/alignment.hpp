// Slow references of alignments of labels with steps (CTC), in probabilities.
#pragma once

#include "compile/call_attributes.hpp"
#include "graph/ctc.hpp"
#include "reference/values.hpp"

namespace weft::reference {

/// What both directions read, of one sequence n.
struct AlignedSequence {
  AlignedSequence(const kernel::CallKernel& kernel, Extent sequence, std::vector<Values>& all)
      : k(kernel),
        n(sequence),
        buffers(all),
        count(k.shapes[0][0]),
        sequences(k.shapes[0][1]),
        classes(k.shapes[0][2]),
        places(k.shapes[1][1]) {
    steps = std::clamp<Extent>(static_cast<Extent>(read(k.reads[3], n, buffers)), 1, count);
    labels = static_cast<Extent>(read(k.reads[4], n, buffers));
  }

  Extent class_at(Extent p) const { return static_cast<Extent>(read(k.reads[1], n * places + p, buffers)); }
  bool may_skip(Extent p) const { return p >= 2 && read(k.reads[2], n * places + p, buffers) != 0; }
  double chance(Extent t, Extent p) const {
    return std::exp(read(k.reads[0], (t * sequences + n) * classes + class_at(p), buffers));
  }
  bool is_end(Extent p) const { return p == 2 * labels || p == 2 * labels - 1; }

  /// [step][place]: the probability of all beginnings of alignments that are at the place after the step.
  std::vector<Values> reached() const {
    std::vector<Values> all(static_cast<std::size_t>(steps), Values(static_cast<std::size_t>(places)));
    for (Extent t = 0; t < steps; ++t)
      for (Extent p = 0; p < places; ++p) {
        double sum = t == 0 && p < 2 && p <= 2 * labels ? 1 : 0;
        for (Extent by = 0; t > 0 && by <= std::min<Extent>(p, 2); ++by)
          if (by < 2 || may_skip(p)) sum += all[static_cast<std::size_t>(t - 1)][static_cast<std::size_t>(p - by)];
        all[static_cast<std::size_t>(t)][static_cast<std::size_t>(p)] = sum * chance(t, p);
      }
    return all;
  }
  /// [step][place]: the probability of all ends of alignments after the step, from that place on.
  std::vector<Values> ahead() const {
    std::vector<Values> all(static_cast<std::size_t>(steps), Values(static_cast<std::size_t>(places)));
    for (Extent t = steps; t-- > 0;)
      for (Extent p = 0; p < places; ++p) {
        double sum = t + 1 == steps && is_end(p) ? 1 : 0;
        for (Extent by = 0; t + 1 < steps && by <= 2 && p + by < places; ++by)
          if (by < 2 || may_skip(p + by))
            sum += all[static_cast<std::size_t>(t + 1)][static_cast<std::size_t>(p + by)] * chance(t + 1, p + by);
        all[static_cast<std::size_t>(t)][static_cast<std::size_t>(p)] = sum;
      }
    return all;
  }
  double total(const std::vector<Values>& reached) const {
    double sum = 0;
    for (Extent p = 0; p < places; ++p)
      if (is_end(p)) sum += reached.back()[static_cast<std::size_t>(p)];
    return sum;
  }

  const kernel::CallKernel& k;
  Extent n;
  std::vector<Values>& buffers;
  Extent count, sequences, classes, places, steps = 0, labels = 0;
};

inline void run_ctc_alignment(const kernel::CallKernel& k, std::vector<Values>& buffers) {
  const auto log_of = [](double p) { return p > 0 ? std::log(p) : graph::kNeverLog; };
  for (Extent n = 0; n < k.shapes[0][1]; ++n) {
    const AlignedSequence s(k, n, buffers);
    const std::vector<Values> reached = s.reached();
    write(k.outs[0], n, to_type(log_of(s.total(reached)), k.outs[0].type), buffers);
    for (Extent t = 0; t < s.count; ++t)
      for (Extent p = 0; p < s.places; ++p) {
        const auto step = static_cast<std::size_t>(std::min(t, s.steps - 1));
        write(k.outs[1], (t * s.sequences + n) * s.places + p,
              to_type(log_of(reached[step][static_cast<std::size_t>(p)]), k.outs[1].type), buffers);
      }
  }
}

/// The gradient to the log-probability of a class is the share of all alignments that are at a place of that class.
inline void run_ctc_alignment_backward(const kernel::CallKernel& k, std::vector<Values>& buffers) {
  for (Extent n = 0; n < k.shapes[0][1]; ++n) {
    const AlignedSequence s(k, n, buffers);
    const std::vector<Values> reached = s.reached(), ahead = s.ahead();
    const double total = s.total(reached), gradient = read(k.reads[6], n, buffers);
    for (Extent t = 0; t < s.count; ++t)
      for (Extent c = 0; c < s.classes; ++c) {
        double sum = 0;
        for (Extent p = 0; t < s.steps && p < s.places; ++p)
          if (s.class_at(p) == c)
            sum += reached[static_cast<std::size_t>(t)][static_cast<std::size_t>(p)] *
                   ahead[static_cast<std::size_t>(t)][static_cast<std::size_t>(p)];
        write(k.out(), (t * s.sequences + n) * s.classes + c, to_type(gradient * sum / total, k.out().type), buffers);
      }
  }
}

}  // namespace weft::reference
