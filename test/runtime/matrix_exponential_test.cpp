// The exponential of matrices: digits at every size, the same from kernels and from the parts, and derivatives of every order.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <random>

#include "runtime/open_device.hpp"
#include "weft/compile.hpp"
#include "weft/grad.hpp"
#include "weft/ops.hpp"
#include "weft/ops/layout.hpp"
#include "weft/ops/linear_algebra.hpp"

namespace weft::test::matrix_exponential {
namespace {

using Numbers = std::vector<double>;

/// Matrices [batch, n, n] whose greatest sum of a column's absolute values is `size`, as they are in `type`.
Numbers matrices(Extent batch, Extent n, double size, DType type, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  std::uniform_real_distribution<double> uniform(-1, 1);
  Numbers all;
  for (Extent b = 0; b < batch; ++b) {
    Numbers a(static_cast<std::size_t>(n * n));
    for (double& x : a) x = uniform(random);
    double most = 0;
    for (Extent j = 0; j < n; ++j) {
      double sum = 0;
      for (Extent i = 0; i < n; ++i) sum += std::fabs(a[static_cast<std::size_t>(i * n + j)]);
      most = std::max(most, sum);
    }
    for (const double x : a) all.push_back(type == DType::f32 ? static_cast<float>(x / most * size) : x / most * size);
  }
  return all;
}

/// e^A by 25 terms of the series of A / 2^k, which is below 1, in long doubles.
Numbers exact_exponential(const Numbers& a, Extent n) {
  using Wide = std::vector<long double>;
  const auto at = [n](Extent i, Extent j) { return static_cast<std::size_t>(i * n + j); };
  const auto product = [&](const Wide& x, const Wide& y) {
    Wide z(x.size(), 0);
    for (Extent i = 0; i < n; ++i)
      for (Extent k = 0; k < n; ++k)
        for (Extent j = 0; j < n; ++j) z[at(i, j)] += x[at(i, k)] * y[at(k, j)];
    return z;
  };
  int halvings = 0;
  long double most = 0;
  for (const double x : a) most = std::max(most, std::fabs(static_cast<long double>(x)) * n);
  for (; most > 1; most /= 2) ++halvings;
  Wide x(a.begin(), a.end()), term(a.size(), 0), sum;
  for (long double& value : x) value = std::ldexp(value, -halvings);
  for (Extent i = 0; i < n; ++i) term[at(i, i)] = 1;
  sum = term;
  for (int k = 1; k < 25; ++k) {
    term = product(term, x);
    for (std::size_t i = 0; i < term.size(); ++i) sum[i] += term[i] /= k;
  }
  for (; halvings > 0; --halvings) sum = product(sum, sum);
  return {sum.begin(), sum.end()};
}

/// The Frobenius norm of the difference over that of the exact matrix.
double error_of(const Numbers& got, const Numbers& exact) {
  double difference = 0, size = 0;
  for (std::size_t i = 0; i < exact.size(); ++i) {
    difference += (got[i] - exact[i]) * (got[i] - exact[i]);
    size += exact[i] * exact[i];
  }
  return std::sqrt(difference / size);
}

Numbers values_of(const Tensor& x) { return cast(x.to(kCpu), DType::f64).to_vector<double>(); }

/// From its parts, which a device without a kernel computes.
Numbers from_parts(const Tensor& x) {
  compile_settings().fused_composites = false;
  const Numbers numbers = values_of(x);
  compile_settings().fused_composites = true;
  return numbers;
}

TEST(MatrixExponential, HasAllDigitsAtEverySize) {
  for (const DType type : {DType::f32, DType::f64})
    for (const Extent n : {1, 5, 66})
      for (const double size : {1e-12, 1e-4, 1e-3, 1e-2, 0.05, 0.3, 1.0, 1.1, 10.0, 80.0}) {
        if (n > 64 && size != 0.05 && size != 10.0) continue;  // the reference is slow
        SCOPED_TRACE(std::string(name_of(type)) + ", " + std::to_string(n) + ", " + std::to_string(size));
        const Numbers values = matrices(1, n, size, type, 7);
        const Tensor a = cast(tensor<double>(values, {n, n}), type);
        const Numbers exact = exact_exponential(values, n);
        const double epsilon = type == DType::f32 ? 0x1p-23 : 0x1p-52;
        // The condition of e^A grows as A does, so that the last bit of A counts as often. Small f32 matrices compute in f64.
        EXPECT_LE(error_of(values_of(matrix_exp(a)), exact),
                  epsilon * (type == DType::f32 && n < 64 ? 1 : 4 + 4 * size));
        EXPECT_LE(error_of(from_parts(matrix_exp(a)), exact), epsilon * (4 + 4 * size));
      }
}

TEST(MatrixExponential, EachMatrixOfABatchIsAsAlone) {
  for (const DType type : {DType::f32, DType::f64}) {
    std::vector<Tensor> alone;
    for (const double size : {1e-9, 1e-3, 0.04, 0.5, 3.0, 50.0, 1e3, 0.0})
      alone.push_back(cast(tensor<double>(matrices(1, 4, size, type, 11), {4, 4}), type));
    const Tensor together = matrix_exp(stack(alone, 0));
    for (std::size_t i = 0; i < alone.size(); ++i)
      EXPECT_EQ(values_of(select(together, 0, static_cast<Extent>(i))), values_of(matrix_exp(alone[i]))) << i;
  }
}

TEST(MatrixExponential, OfInfiniteMatricesIsNan) {
  for (const auto& f : {values_of, from_parts}) {
    for (const double x : {static_cast<double>(INFINITY), static_cast<double>(NAN)}) {
      EXPECT_TRUE(std::isnan(f(matrix_exp(tensor({x, 0.0, 0.0, 1.0}, {2, 2})))[3])) << x;
      const Tensor one = tensor({1.0, 0.0, 0.0, 1.0}, {2, 2});
      EXPECT_TRUE(std::isnan(f(matrix_exp_frechet(tensor({x, 0.0, 0.0, 1.0}, {2, 2}), one))[3])) << x;
    }
    EXPECT_TRUE(f(matrix_exp(zeros({2, 0, 0}, DType::f64))).empty());
  }
}

/// A matrix of 2 x 2 with a known exponential, and how far each element may be from it.
struct Known {
  Numbers a, exponential;
  double relative, absolute = 0;
};
const double kE = std::exp(1.0);
const Known kHuge[] = {
    {{-2e10, 1e10, 1e10, -2e10}, {0, 0, 0, 0}, 0},
    {{-2e30, 1e30, 1e30, -2e30}, {0, 0, 0, 0}, 0},
    {{-3e38, 3e38, 1e38, -3e38}, {0, 0, 0, 0}, 0},
    {{-1e6, 0, 0, -1}, {0, 0, 0, 1 / kE}, 1e-6},
    {{-1e20, 0, 0, 1}, {0, 0, 0, kE}, 1e-6},
    {{1e10, 0, 0, -1e10}, {INFINITY, 0, 0, 0}, 0},
    {{0, 1e30, 0, 0}, {1, 1e30, 0, 1}, 1e-6},
    {{1, 1e6, 0, -1}, {kE, std::sinh(1.0) * 1e6, 0, 1 / kE}, 1e-5},  // as its square is the unit matrix
    {{1e3, -1e3, 1e3, -1e3}, {1001, -1e3, 1e3, -999}, 0.02},         // and 0
    {{-1e5, 1e5, 1e5, -1e5}, {0.5, 0.5, 0.5, 0.5}, 0.05},
    {{1e-30, 1e-38, 0, 1e-30}, {1, 1e-38, 0, 1}, 1e-6, 2e-38},  // a GPU may take the least numbers as 0
};

void expect_known(const std::function<Numbers(const Tensor&)>& f, const Known& known, const Device& device) {
  SCOPED_TRACE(testing::PrintToString(known.a));
  const Numbers got = f(matrix_exp(cast(tensor<double>(known.a, {2, 2}), DType::f32).to(device)));
  for (std::size_t i = 0; i < 4; ++i) {
    const double exact = known.exponential[i];
    if (std::isinf(exact))
      EXPECT_EQ(got[i], exact) << i;
    else
      EXPECT_NEAR(got[i], exact, known.relative * std::fabs(exact) + known.absolute) << i;
  }
}

TEST(MatrixExponential, HugeMatricesHaveFiniteExponentials) {
  for (const Known& known : kHuge) {
    expect_known(values_of, known, kCpu);
    expect_known(from_parts, known, kCpu);
  }
}

// Where e^A is zero, so is its derivative, also for matrices so large that the squarings stop at their limit.
TEST(MatrixExponential, DerivativesOfVanishedExponentialsAreZero) {
  for (const auto& f : {values_of, from_parts})
    for (const DType type : {DType::f32, DType::f64})
      for (const double x : {1e7, 1e20, 1e37}) {
        const Tensor a = cast(tensor({-2.0, 1.0, 1.0, -2.0}, {2, 2}) * x, type);
        EXPECT_EQ(f(matrix_exp_frechet(a, ones_like(a))), Numbers(4, 0.0)) << x;
      }
}

// The derivative of e^(c A) to c is A e^(c A), which is that in the direction A.
TEST(MatrixExponential, DerivativesAlongTheMatrixItself) {
  for (const DType type : {DType::f32, DType::f64})
    for (const double size : {1e-6, 1e-3, 0.03, 0.5, 2.0, 40.0}) {
      const Numbers values = matrices(3, 4, size, type, 13);
      const Tensor a = cast(tensor<double>(values, {3, 4, 4}), type), wide = tensor<double>(values, {3, 4, 4});
      const Numbers exact = values_of(matmul(wide, matrix_exp(wide)));
      const double epsilon = type == DType::f32 ? 0x1p-23 : 0x1p-52;
      EXPECT_LE(error_of(values_of(matrix_exp_frechet(a, a)), exact), epsilon * (8 + 8 * size)) << size;
      EXPECT_LE(error_of(from_parts(matrix_exp_frechet(a, a)), exact), epsilon * (8 + 8 * size)) << size;
    }
}

// All derivatives of e^x are e^x, for a matrix of one number and for the trace of a diagonal one.
TEST(MatrixExponential, DerivativesOfEveryOrder) {
  for (const double x : {-2.0, 1e-5, 0.7, 3.0}) {
    const Tensor one = tensor({x}, {1, 1}), both = tensor({x, 0.0, 0.0, -x}, {2, 2});
    Tensor y = sum(matrix_exp(one)), z = matrix_trace(matrix_exp(both));
    for (int order = 1; order <= 4; ++order) {
      SCOPED_TRACE(std::to_string(x) + ", order " + std::to_string(order));
      y = sum(grad(y, one));
      EXPECT_NEAR(y.item<double>(), std::exp(x), 1e-13 * std::exp(x));
      z = select(select(grad(z, both), -1, 0), -1, 0);
      EXPECT_NEAR(z.item<double>(), std::exp(x), 1e-12 * std::exp(std::fabs(x)));
    }
  }
}

TEST(MatrixExponential, DirectionsOfAnyLengthHaveGradients) {
  const Tensor a = tensor<double>(matrices(1, 3, 0.8, DType::f64, 17), {3, 3});
  const Tensor e = tensor<double>(matrices(1, 3, 1, DType::f64, 19), {3, 3});
  const Numbers expected = values_of(grad(sum(square(matrix_exp_frechet(a, e))), a));
  for (const double length : {0x1p-100, 0x1p60}) {
    const Tensor scaled = matrix_exp_frechet(a, e * length) / length;
    EXPECT_LE(error_of(values_of(grad(sum(square(scaled)), a)), expected), 1e-14) << length;
  }
  for (const double x : values_of(grad(sum(matrix_exp_frechet(a, e * 0.0)), a))) EXPECT_EQ(x, 0);
}

struct MatrixExponentialOnGpu : testing::Test {
  void SetUp() override { open_device("webgpu:0", device); }
  Device device = kCpu;
};

TEST_F(MatrixExponentialOnGpu, AgreesWithTheCpu) {
  for (const double size : {1e-3, 0.5, 20.0}) {
    const Tensor a = cast(tensor<double>(matrices(3, 5, size, DType::f32, 23), {3, 5, 5}), DType::f32);
    const Tensor far = a.to(device);
    const double tolerance = 0x1p-23 * (4 + 4 * size);
    EXPECT_LE(error_of(values_of(matrix_exp(far)), values_of(matrix_exp(a))), tolerance) << size;
    const auto gradient = [](const Tensor& x) { return grad(sum(square(matrix_exp(x))), x); };
    EXPECT_LE(error_of(values_of(gradient(far)), values_of(gradient(a))), 8 * tolerance) << size;
  }
}

TEST_F(MatrixExponentialOnGpu, HugeMatricesHaveFiniteExponentials) {
  for (const Known& known : kHuge) expect_known(values_of, known, device);
}

}  // namespace
}  // namespace weft::test::matrix_exponential
