// The exponential of matrices by scaling, a polynomial and squaring: what the graph and kernels share.
#pragma once

#include <algorithm>
#include <cmath>
#include <initializer_list>
#include <utility>

#include "graph/op.hpp"

namespace weft::graph {

const OpRow& matrix_exp_row();          // A -> e^A
const OpRow& matrix_exp_frechet_row();  // A, E -> the derivative of e^A in the direction E

/// A polynomial of this degree gives e^A to the rounding of the type if the sums of the columns' absolute values are at most `size`.
struct ExponentialDegree {
  int degree;
  double size;
};
/// Source    Bader, Blanes, Casas 2019, "Computing the matrix exponential with an optimized Taylor polynomial approximation".
/// For f32 degree 8 is the last: degree 18 would allow sums up to 3, where terms of different signs cancel.
inline constexpr ExponentialDegree kExponentialDegreesF32[] = {
    {2, 5.978858893805233e-04}, {4, 5.116619363445086e-02}, {8, 5.800524627688768e-01}};
inline constexpr ExponentialDegree kExponentialDegreesF64[] = {
    {2, 2.580956802971767e-08}, {4, 3.397168839976962e-04}, {8, 4.991228871115323e-02}, {18, 1.090863719290036e+00}};

/// How often a matrix is squared at most. What is then neither 0 nor infinite came from parts of A so small beside the rest that the
/// type could not tell their exponential from 1, so that further squarings tell nothing.
inline constexpr int exponential_squarings_max(bool is_double) { return is_double ? 64 : 32; }

/// What the truncated part of the series sees of a matrix with columns' sums `size`, `size2` of its square and `size3` of its cube.
/// Powers may be far smaller than the matrix suggests ([[1, 1e6], [0, -1]]), and each needless squaring costs digits.
/// Source    Al-Mohy and Higham 2009, "A new scaling and squaring algorithm for the matrix exponential", theorem 4.2
inline double exponential_size(double size, double size2, double size3) {
  return std::min(size, std::max(std::sqrt(size2), std::cbrt(size3)));
}

/// The same limit for the derivative of the polynomial, which has a term less.
inline double frechet_size(const ExponentialDegree& each) {
  return each.size / std::pow(each.degree + 1.0, 1.0 / each.degree);
}

/// Taylor's polynomial of e^A: degree 2 with one product, 4 with two, 8 with three, 18 with five. `algebra` has
/// product(a, b) and sum(unit, {{factor, a}, ...}), which adds unit times the unit matrix.
template <class Matrix, class Algebra>
Matrix exponential_polynomial(Algebra& algebra, const Matrix& a, int degree) {
  const auto product = [&](const Matrix& x, const Matrix& y) { return algebra.product(x, y); };
  const auto sum = [&](double unit, std::initializer_list<std::pair<double, const Matrix*>> terms) {
    return algebra.sum(unit, terms);
  };
  const Matrix a2 = product(a, a);
  if (degree == 2) return sum(1, {{1, &a}, {1.0 / 2, &a2}});
  if (degree == 4) {
    const Matrix rest = product(a2, sum(1.0 / 2, {{1.0 / 6, &a}, {1.0 / 24, &a2}}));
    return sum(1, {{1, &a}, {1, &rest}});
  }
  if (degree == 8) {
    constexpr double root = 13.304134695650070;  // of 177
    constexpr double x3 = 2.0 / 3, x1 = x3 * (1 + root) / 88, x2 = x3 * (1 + root) / 352;
    constexpr double x4 = (29 * root - 271) / (315 * x3), x5 = 11 * (root - 1) / (1260 * x3);
    constexpr double x6 = 11 * (root - 9) / (5040 * x3), x7 = (89 - root) / (5040 * x3 * x3),
                     y2 = (857 - 58 * root) / 630;
    const Matrix a4 = product(a2, sum(0, {{x1, &a}, {x2, &a2}}));
    const Matrix a8 = product(sum(0, {{x3, &a2}, {1, &a4}}), sum(x4, {{x5, &a}, {x6, &a2}, {x7, &a4}}));
    return sum(1, {{1, &a}, {y2, &a2}, {1, &a8}});
  }
  const Matrix a3 = product(a2, a), a6 = product(a3, a3);
  const Matrix b1 = sum(
      0, {{-1.00365581030144618291e-01, &a}, {-8.02924648241156932449e-03, &a2}, {-8.92138498045729985177e-04, &a3}});
  const Matrix b5 = sum(
      0, {{-9.23364619367118555360e-02, &a2}, {-1.69364939002081722752e-02, &a3}, {-1.40086798182036094347e-05, &a6}});
  const Matrix b15 = product(b1, b5);
  const Matrix a9 = sum(-9.04316832390810593223e-02, {{-6.76404519071381882256e-02, &a},
                                                      {6.75961301770459654925e-02, &a2},
                                                      {2.95552570429315521194e-02, &a3},
                                                      {-1.39180257516060693404e-05, &a6},
                                                      {1, &b15}});
  const Matrix b3 = sum(-1.09676396052962061844e+01, {{1.68015813878906206114e+00, &a},
                                                      {5.71779846478865511061e-02, &a2},
                                                      {-6.98210122488052056106e-03, &a3},
                                                      {3.34975017086070470649e-05, &a6},
                                                      {1, &a9}});
  const Matrix b39 = product(b3, a9);
  return sum(0, {{3.97849749499645077844e-01, &a},
                 {1.36783778460411720168e+00, &a2},
                 {4.98289622525382669416e-01, &a3},
                 {-6.37898194594723280150e-04, &a6},
                 {1, &b39}});
}

}  // namespace weft::graph
