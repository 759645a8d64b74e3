// Alignments of labels with steps (CTC), as a call that devices have kernels for, and its gradient.
#pragma once

#include "graph/op.hpp"

namespace weft::graph {

/// log 0 in alignments. It is finite, so that differences of two such numbers, and their gradients, are not NaN.
inline constexpr double kNeverLog = -1e30;

/// Of (x, at, skips, steps, labels). x [T, N, classes] are log-probabilities. at [N, P] are the classes of the P = 2 S + 1 places:
/// a blank before, between and after the labels. skips [N, P] are 1 where a place may follow the one two before it. steps and
/// labels [N] are lengths. All but x are i32.
/// Results: the log-probability of all alignments [N], and that of all that have reached a place after a step [T, N, P], which
/// stays as it is after a sequence's last step.
const OpRow& ctc_alignment_row();
/// Of (x, at, skips, steps, labels, reached, gradient [N]): the gradient of x.
const OpRow& ctc_alignment_backward_row();

}  // namespace weft::graph
