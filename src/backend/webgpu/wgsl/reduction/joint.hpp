// Reductions that depend on another one over the same values, computed together with it in one pass.
#pragma once

#include <vector>

#include "compile/kernel.hpp"

namespace weft::webgpu {

/// What a reduction of the values x sums up.
enum class Joint : std::uint8_t {
  none,
  squares,              // (x - mean x)^2
  exponentials,         // e^(x - max x); NaN if the maximum is infinite
  finite_exponentials,  // the same, with 0 for an infinite maximum
};

/// The kernel with sums of squares and of exponentials as reductions of x itself, which do not wait for the mean or the maximum.
///
/// Squares: a thread keeps the count n of its values, the sum s of x - x0 (x0 is the first value of the row), and the sum q of
/// squares around the mean of its own values. Two such parts are joined by Chan's formula,
///   q = q1 + q2 + (s1 / n1 - s2 / n2)^2 n1 n2 / (n1 + n2),
/// which subtracts nothing large, whatever the mean and the first value are. Several values are joined at a time.
/// Exponentials: a thread keeps the maximum m of its values, and the sum of e^(x - m).
/// Source: Chan, Golub and LeVeque 1983; Milakov and Gimelshein 2018, arXiv:1805.02867.
struct JointReductions {
  kernel::LoopKernel kernel;
  std::vector<Joint> kinds;  // of each step
};
JointReductions joint_reductions(const kernel::LoopKernel& kernel);

}  // namespace weft::webgpu
