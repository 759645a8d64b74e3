// Decompositions: that they are what their names say, for awkward matrices too, and gradients of all of their results.
#include <gtest/gtest.h>

#include <atomic>
#include <cmath>
#include <functional>
#include <numbers>

#include "base/interrupt.hpp"
#include "base/threads.hpp"
#include "runtime/gradient_check.hpp"
#include "runtime/open_device.hpp"
#include "weft/grad.hpp"
#include "weft/ops.hpp"
#include "weft/ops/contraction.hpp"
#include "weft/ops/layout.hpp"
#include "weft/ops/linear_algebra.hpp"
#include "weft/ops/statistics.hpp"

namespace weft::test {
namespace {

Tensor random_matrix(const Shape& shape, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  const Leaf leaf = random_leaf(shape, random, -2, 2);
  return tensor<double>(std::span<const double>(leaf.values), shape);
}

void expect_close(const Tensor& a, const Tensor& b, double tolerance = 1e-12) {
  ASSERT_EQ(a.shape(), b.shape());
  const auto x = a.to_vector<double>(), y = b.to_vector<double>();
  for (std::size_t i = 0; i < x.size(); ++i) ASSERT_NEAR(x[i], y[i], tolerance) << i;
}

Tensor unit(Extent n) { return cast(eq(reshape(arange(n), {n, 1}), reshape(arange(n), {1, n})), DType::f64); }

TEST(LinearAlgebra, FactorsMultiplyToTheMatrix) {
  for (const auto& [m, n] : {std::pair<Extent, Extent>{1, 1}, {5, 5}, {7, 3}, {3, 7}, {40, 40}, {60, 20}}) {
    SCOPED_TRACE(std::to_string(m) + " by " + std::to_string(n));
    const Tensor a = random_matrix({2, m, n}, static_cast<std::uint64_t>(m * 100 + n));
    const Extent k = std::min(m, n);
    const auto [q, r] = qr(a);
    expect_close(matmul(q, r), a);
    expect_close(matmul(transpose(q), q), expand(unit(k), {2, k, k}));
    expect_close(triu(r), r, 0);
    const auto [u, s, vh] = svd(a);
    expect_close(matmul(u * unsqueeze(s, -2), vh), a, 1e-11);
    expect_close(matmul(transpose(u), u), expand(unit(k), {2, k, k}), 1e-11);
    expect_close(matmul(vh, transpose(vh)), expand(unit(k), {2, k, k}), 1e-11);
    const auto values = s.to_vector<double>();
    for (Extent i = 1; i < k; ++i)
      EXPECT_GE(values[static_cast<std::size_t>(i - 1)], values[static_cast<std::size_t>(i)]);
    if (m != n) continue;
    const Tensor definite = matmul(a, transpose(a)) + expand(unit(n), {2, n, n}), l = cholesky(definite);
    expect_close(matmul(l, transpose(l)), definite, 1e-11);
    expect_close(tril(l), l, 0);
    const auto [w, v] = eigh(definite);
    expect_close(matmul(v * unsqueeze(w, -2), transpose(v)), definite, 1e-10);
    expect_close(matmul(a, solve(a, random_matrix({2, n, 3}, 5))), random_matrix({2, n, 3}, 5), 1e-9);
    expect_close(matmul(a, inverse(a)), expand(unit(n), {2, n, n}), 1e-9);
  }
}

TEST(LinearAlgebra, MatricesWithoutFullRank) {
  const Tensor a = tensor({1.0, 2.0, 3.0, 2.0, 4.0, 6.0, 0.0, 0.0, 0.0}, {3, 3});
  EXPECT_EQ(det(a).item<double>(), 0);
  const auto [sign, log] = slogdet(a);
  EXPECT_EQ(sign.item<double>(), 0);
  EXPECT_EQ(log.item<double>(), -std::numeric_limits<double>::infinity());
  for (const double x : solve(a, ones({3, 1}, DType::f64)).to_vector<double>()) EXPECT_TRUE(std::isnan(x));
  const auto [u, s, vh] = svd(a);
  expect_close(matmul(u * unsqueeze(s, -2), vh), a);
  expect_close(matmul(transpose(u), u), unit(3), 1e-12);
  expect_close(matmul(matmul(a, pinv(a)), a), a);
  expect_close(svd(zeros({3, 2}, DType::f64)).s, zeros({2}, DType::f64), 0);
  EXPECT_TRUE(std::isnan(cholesky(tensor({1.0, 2.0, 2.0, 1.0}, {2, 2})).to_vector<double>()[3]));
  EXPECT_TRUE(std::isnan(logdet(tensor({0.0, 1.0, 1.0, 0.0}, {2, 2})).item<double>()));
  expect_close(eigh(unit(4)).values, ones({4}, DType::f64), 0);
  EXPECT_EQ(det(zeros({0, 0}, DType::f64)).item<double>(), 1);
  EXPECT_EQ(qr(zeros({0, 2, 2}, DType::f64)).q.shape(), (Shape{0, 2, 2}));
}

// A matrix that is known by its singular values: Q diag(s) R^T.
Tensor with_singular_values(Extent m, const std::vector<double>& s, std::uint64_t seed) {
  const Extent n = static_cast<Extent>(s.size());
  const Tensor q = qr(random_matrix({m, n}, seed)).q, r = qr(random_matrix({n, n}, seed + 1)).q;
  return matmul(q * tensor<double>(std::span<const double>(s), {n}), transpose(r));
}

void expect_decomposes(const Tensor& a, const std::vector<double>& s, double scale) {
  const Extent n = static_cast<Extent>(s.size());
  const auto [u, values, vh] = svd(a);
  expect_close(matmul(u * values, vh), a, 1e-13 * scale);
  expect_close(matmul(transpose(u), u), unit(n), 1e-12);
  expect_close(matmul(vh, transpose(vh)), unit(n), 1e-12);
  expect_close(values, tensor<double>(std::span<const double>(s), {n}), 1e-13 * scale);
}

TEST(LinearAlgebra, LargeMatricesDecomposeToo) {
  constexpr Extent kSize = 150;
  std::vector<double> even, steep, few, equal(kSize, 3.0);
  for (Extent i = 0; i < kSize; ++i) {
    even.push_back(10 - 0.05 * static_cast<double>(i));
    steep.push_back(std::pow(10.0, -0.1 * static_cast<double>(i)));  // down to 1e-15
    few.push_back(i < 20 ? 20.0 - static_cast<double>(i) : 0.0);
  }
  for (const auto* s : {&even, &steep, &few, &equal})
    for (const Extent m : {kSize, kSize + 37}) expect_decomposes(with_singular_values(m, *s, 41), *s, 100);
  std::vector<double> huge = even;
  for (double& x : huge) x *= 1e200;
  expect_decomposes(with_singular_values(kSize, huge, 43), huge, 1e202);
  expect_decomposes(zeros({kSize, kSize}, DType::f64), std::vector<double>(kSize, 0.0), 1);
  EXPECT_TRUE(std::isnan(svd(full({kSize, kSize}, std::nan(""), DType::f64)).s.to_vector<double>()[0]));
}

TEST(LinearAlgebra, LargeSymmetricMatricesToo) {
  constexpr Extent kSize = 150;
  std::vector<double> even, equal(kSize, -2.0), two;
  for (Extent i = 0; i < kSize; ++i) {
    even.push_back(0.1 * static_cast<double>(i) - 7);
    two.push_back(i < 50 ? -1.0 : 1e6);
  }
  const Tensor q = qr(random_matrix({kSize, kSize}, 51)).q;
  const auto check = [&](const Tensor& a, const std::vector<double>& w, double scale) {
    const auto [values, v] = eigh(a);
    expect_close(values, tensor<double>(std::span<const double>(w), {kSize}), 1e-13 * scale);
    expect_close(matmul(v * values, transpose(v)), a, 1e-13 * scale);
    expect_close(matmul(transpose(v), v), unit(kSize), 1e-12);
  };
  for (const auto& [w, scale] : {std::pair{&even, 100.0}, {&equal, 100.0}, {&two, 1e8}})
    check(matmul(q * tensor<double>(std::span<const double>(*w), {kSize}), transpose(q)), *w, scale);
  check(unit(kSize), std::vector<double>(kSize, 1.0), 1);
  check(zeros({kSize, kSize}, DType::f64), std::vector<double>(kSize, 0.0), 1);
  // The second difference, which is tridiagonal from the start: 2 - 2 cos(pi j / (n + 1)).
  std::vector<double> waves;
  for (Extent i = 0; i < kSize; ++i)
    waves.push_back(2 - 2 * std::cos(std::numbers::pi * static_cast<double>(i + 1) / static_cast<double>(kSize + 1)));
  const Tensor i = reshape(arange(kSize), {kSize, 1}), j = reshape(arange(kSize), {1, kSize});
  const Tensor beside = cast(eq(i, j + 1), DType::f64) + cast(eq(i + 1, j), DType::f64);
  check(unit(kSize) * 2.0 - beside, waves, 10);
  EXPECT_TRUE(std::isnan(eigh(full({kSize, kSize}, std::nan(""), DType::f64)).values.to_vector<double>()[0]));
}

TEST(LinearAlgebra, OneOfABatchHasTheBitsOfOneAlone) {
  const Tensor a = random_matrix({2, 90, 80}, 61), one = slice(a, 0, 1, 2);
  const auto both = svd(a), alone = svd(one);
  expect_close(slice(both.u, 0, 1, 2), alone.u, 0);
  expect_close(slice(both.s, 0, 1, 2), alone.s, 0);
  const int before = thread_count();
  set_thread_count(3);
  expect_close(svd(one * 1.0).vh, alone.vh, 0);
  set_thread_count(before);
}

std::atomic<int> looks;

TEST(LinearAlgebra, LongWorkLooksForInterrupts) {
  struct Interrupted {};
  const Tensor a = random_matrix({300, 300}, 71), definite = matmul(a, transpose(a)) + unit(300);
  definite.eval();
  const std::pair<const char*, std::function<Tensor()>> all[] = {{"eigh", [&] { return eigh(definite).values; }},
                                                                 {"svd", [&] { return svd(a).s; }},
                                                                 {"qr", [&] { return qr(a).q; }},
                                                                 {"solve", [&] { return solve(a, a); }},
                                                                 {"cholesky", [&] { return cholesky(definite); }},
                                                                 {"det", [&] { return slogdet(a).log; }}};
  for (const auto& [name, call] : all) {
    looks = 0;
    set_interrupt_check([] {
      if (++looks > 150) throw Interrupted();
    });
    EXPECT_THROW(call().eval(), Interrupted) << name;
    set_interrupt_check(nullptr);
  }
}

// The op table checks gradients of first results.
TEST(LinearAlgebra, GradientsOfAllResults) {
  GradientCheck check;
  std::mt19937_64 random(11);
  const Leaf square = random_leaf({4, 4}, random, -2, 2), tall = random_leaf({5, 3}, random, -2, 2),
             wide = random_leaf({3, 5}, random, -2, 2);
  check("log of the determinant", [](std::span<const Tensor> x) { return slogdet(x[0]).log; }, {square});
  check("eigenvectors", [](std::span<const Tensor> x) { return eigh(x[0]).vectors; }, {square});
  check("eigenvalues and vectors",
        [](std::span<const Tensor> x) {
          const auto [w, v] = eigh(x[0]);
          return v * w;
        },
        {square});
  check("R", [](std::span<const Tensor> x) { return qr(x[0]).r; }, {tall});
  for (const Leaf& leaf : {square, tall, wide})
    check("L and U",
          [](std::span<const Tensor> x) {
            const auto [p, l, u] = lu(x[0]);
            return concat({reshape(l * l, {l.numel()}), reshape(u * u, {u.numel()})}, 0);
          },
          {leaf});
  for (const Leaf& leaf : {square, tall, wide}) {
    check("singular values", [](std::span<const Tensor> x) { return svd(x[0]).s; }, {leaf});
    check("Vh", [](std::span<const Tensor> x) { return svd(x[0]).vh; }, {leaf});
    check("U, s and Vh",
          [](std::span<const Tensor> x) {
            const auto [u, s, vh] = svd(x[0]);
            return matmul(u * s * s, vh);
          },
          {leaf});
  }
}

TEST(LinearAlgebra, RowsAreExchangedForTheLargestPivot) {
  for (const auto& [m, n] : {std::pair<Extent, Extent>{1, 1}, {5, 5}, {7, 3}, {3, 7}, {30, 30}}) {
    SCOPED_TRACE(std::to_string(m) + " by " + std::to_string(n));
    const Tensor a = random_matrix({2, m, n}, static_cast<std::uint64_t>(m * 100 + n + 1));
    const auto [p, l, u] = lu(a);
    expect_close(matmul(matmul(p, l), u), a);
    expect_close(matmul(transpose(p), p), expand(unit(m), {2, m, m}), 0);
    expect_close(triu(u), u, 0);
    expect_close(tril(l), l, 0);
    expect_close(diagonal(l, 0, -2, -1), ones({2, std::min(m, n)}, DType::f64), 0);
    for (const double x : l.to_vector<double>()) EXPECT_LE(std::fabs(x), 1);
    const auto [packed, pivots] = lu_factor(a);
    const auto [again_p, again_l, again_u] = lu_unpack(packed, pivots);
    expect_close(again_p, p, 0);
    expect_close(again_l, l, 0);
    expect_close(again_u, u, 0);
  }
}

TEST(LinearAlgebra, SolvesFromFactorsThatAreKnown) {
  const Tensor a = random_matrix({2, 5, 5}, 31), b = random_matrix({5, 3}, 32), c = random_matrix({2, 3, 5}, 33);
  const auto [packed, pivots] = lu_factor(a);
  expect_close(matmul(a, lu_solve(packed, pivots, b)), expand(b, {2, 5, 3}), 1e-10);
  expect_close(matmul(transpose(a), lu_solve(packed, pivots, b, {.adjoint = true})), expand(b, {2, 5, 3}), 1e-10);
  expect_close(matmul(lu_solve(packed, pivots, c, {.left = false}), a), c, 1e-10);
  expect_close(matmul(lu_solve(packed, pivots, c, {.left = false, .adjoint = true}), transpose(a)), c, 1e-10);
  const Tensor definite = matmul(a, transpose(a)) + unit(5), l = cholesky(definite);
  expect_close(matmul(definite, cholesky_solve(b, l)), expand(b, {2, 5, 3}), 1e-9);
  expect_close(cholesky_solve(b, transpose(l), true), cholesky_solve(b, l), 1e-12);
  expect_close(cholesky_inverse(l), inverse(definite), 1e-9);
  expect_close(matmul(triu(a), solve_triangular(a, b, true)), expand(b, {2, 5, 3}), 1e-8);
}

TEST(LinearAlgebra, ReflectionsMultiply) {
  const Tensor a = random_matrix({6, 4}, 41), tau = random_matrix({3}, 42);
  Tensor q = unit(6);
  for (Extent i = 0; i < 3; ++i) {
    const Tensor below = where(reshape(arange(6), {6, 1}) > static_cast<double>(i), narrow(a, 1, i, 1), 0.0);
    const Tensor v = below + narrow(unit(6), 1, i, 1);
    q = matmul(q, unit(6) - matmul(v, transpose(v)) * narrow(tau, 0, i, 1));
  }
  expect_close(householder_product(a, tau), narrow(q, 1, 0, 4));
  expect_close(householder_product(a, zeros({3}, DType::f64)), narrow(unit(6), 1, 0, 4), 0);
}

TEST(LinearAlgebra, ExponentialsOfMatrices) {
  const Tensor turn = tensor({0.0, -1.0, 1.0, 0.0}, {2, 2});
  for (const double angle : {1e-9, 0.3, 3.0, 1000.0}) {
    const double c = std::cos(angle), s = std::sin(angle);
    expect_close(matrix_exp(turn * angle), tensor({c, -s, s, c}, {2, 2}), 1e-16 * std::max(1.0, angle) * 100);
  }
  expect_close(matrix_exp(zeros({3, 3}, DType::f64)), unit(3), 0);
  expect_close(matrix_exp(tensor({-745.0, 0.0, 0.0, 2.0}, {2, 2})),
               tensor({std::exp(-745.0), 0.0, 0.0, std::exp(2.0)}, {2, 2}), 1e-11);
  EXPECT_EQ(matrix_exp(tensor({1e6}, {1, 1})).item<double>(), INFINITY);
  const Tensor a = random_matrix({3, 4, 4}, 51);
  expect_close(matmul(matrix_exp(a), matrix_exp(-a)), expand(unit(4), {3, 4, 4}), 1e-10);
  expect_close(log(det(matrix_exp(a))), sum(diagonal(a, 0, -2, -1), -1), 1e-11);
}

TEST(LinearAlgebra, NumbersOfMatrices) {
  const Tensor a = tensor({1.0, -2.0, 3.0, 4.0}, {2, 2}), singular = tensor({1.0, 2.0, 2.0, 4.0}, {2, 2});
  EXPECT_DOUBLE_EQ(matrix_norm(a).item<double>(), std::sqrt(30.0));
  EXPECT_DOUBLE_EQ(matrix_norm(a, MatrixNorm::one).item<double>(), 6);
  EXPECT_DOUBLE_EQ(matrix_norm(a, MatrixNorm::minus_one).item<double>(), 4);
  EXPECT_DOUBLE_EQ(matrix_norm(a, MatrixNorm::infinity).item<double>(), 7);
  EXPECT_DOUBLE_EQ(matrix_norm(a, MatrixNorm::minus_infinity, {0, 1}, {.keepdims = true}).item<double>(), 3);
  EXPECT_NEAR(matrix_norm(a, MatrixNorm::two).item<double>() * matrix_norm(a, MatrixNorm::minus_two).item<double>(), 10,
              1e-13);
  EXPECT_EQ(matrix_norm(random_matrix({2, 3, 4}, 1), MatrixNorm::one, {0, 2}, {.keepdims = true}).shape(),
            (Shape{1, 3, 1}));
  EXPECT_EQ(matrix_rank(singular).item<std::int32_t>(), 1);
  EXPECT_EQ(matrix_rank(a).item<std::int32_t>(), 2);
  EXPECT_EQ(matrix_rank(a, {.atol = 3}).item<std::int32_t>(), 1);
  EXPECT_EQ(matrix_rank(zeros({0, 3}, DType::f64)).item<std::int32_t>(), 0);
  EXPECT_EQ(cond(singular, MatrixNorm::one).item<double>(), std::numeric_limits<double>::infinity());
  EXPECT_TRUE(std::isnan(cond(a / 0.0 * 0.0, MatrixNorm::one).item<double>()));
  EXPECT_NEAR(cond(a, MatrixNorm::one).item<double>(), 6 * 0.7, 1e-13);
}

TEST(LinearAlgebra, NormsOfLowOrdersHaveNoInfiniteGradients) {
  const Tensor nothing = tensor({0.0, 0.0});
  EXPECT_EQ(grad(vector_norm(nothing, 0.5), nothing).to_vector<double>(), std::vector<double>(2, 0.0));
  const Tensor half = tensor({0.0, 4.0});
  EXPECT_EQ(grad(vector_norm(half, 0.5), half).to_vector<double>(), (std::vector<double>{0, 1}));

  for (const auto& values : {std::vector<double>{0, 2}, std::vector<double>{0, 0}}) {
    const Tensor x = tensor(values);
    EXPECT_EQ(vector_norm(x, -2).item<double>(), 0);
    for (const double slope : grad(vector_norm(x, -2), x).to_vector<double>()) EXPECT_EQ(slope, 0);
  }
  EXPECT_NEAR(vector_norm(tensor({3.0, 4.0}), -2).item<double>(), 2.4, 1e-15);
}

TEST(LinearAlgebra, ChainsTakeTheCheapOrder) {
  const Tensor a = random_matrix({20, 2}, 1), b = random_matrix({2, 30}, 2), c = random_matrix({30, 1}, 3);
  expect_close(multi_dot({a, b, c}), matmul(matmul(a, b), c), 1e-11);
  // The other order overflows on the way.
  const auto filled = [](const Shape& shape, double value) { return full(shape, value, DType::f64); };
  for (const auto& [first, second, third] :
       {std::tuple{filled({2, 2}, 1e200), filled({2, 3}, 1e200), filled({3, 1}, 1e-200)},
        std::tuple{filled({1, 3}, 1e-200), filled({3, 2}, 1e200), filled({2, 2}, 1e200)}})
    for (const double x : multi_dot({first, second, third}).to_vector<double>()) EXPECT_NEAR(x / 6e200, 1, 1e-14);
  EXPECT_EQ(multi_dot({reshape(c, {30}), transpose(b), reshape(transpose(b), {60})[Slice{0, 2}]}).shape(), Shape{});
}

struct LinearAlgebraOnGpu : testing::Test {
  void SetUp() override { open_device("webgpu:0", device); }
  Device device = kCpu;
};

TEST_F(LinearAlgebraOnGpu, RefusesDecompositionsByName) {
  const Tensor a = tensor({1.f, 0.f, 0.f, 1.f}, {2, 2}).to(device);
  try {
    cholesky(a).eval();
    FAIL() << "nothing was thrown";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("cholesky"), std::string::npos) << error.what();
    EXPECT_NE(std::string(error.what()).find("use the CPU"), std::string::npos) << error.what();
  }
}

TEST(Einsum, SubscriptsSayWhatIsSummed) {
  const Tensor a = random_matrix({2, 3, 4}, 1), b = random_matrix({2, 4, 5}, 2), square = random_matrix({3, 3}, 3);
  expect_close(einsum("bij,bjk->bik", {a, b}), matmul(a, b));
  expect_close(einsum("bij,bjk", {a, b}), sum(matmul(a, b), 0));
  expect_close(einsum(" b i j -> j i b ", {a}), permute(a, {2, 1, 0}), 0);
  expect_close(einsum("ii", {square}), matrix_trace(square));
  expect_close(einsum("...ij->...ji", {a}), transpose(a), 0);
  expect_close(einsum("...ij,...jk", {a, unsqueeze(select(b, 0, 0), 0)}),
               matmul(a, expand(select(b, 0, 0), {2, 4, 5})));
  expect_close(einsum("...j,j->...", {a, arange(4, DType::f64)}), sum(a * arange(4, DType::f64), -1));
  expect_close(einsum("ij,kl->", {square, square}), sum(square) * sum(square), 1e-10);
  expect_close(tensordot(a, b, {2}, {1}), einsum("bij,cjk->bick", {a, b}));
  expect_close(tensordot(square, square), sum(square * square), 1e-12);
  const auto message = [](std::string_view text, std::initializer_list<Tensor> operands) -> std::string {
    try {
      (void)einsum(text, operands);
      return "";
    } catch (const Error& error) {
      return error.what();
    }
  };
  EXPECT_NE(message("ij,jk->ik", {square}).find("1 operands are given and 2 named"), std::string::npos);
  EXPECT_NE(message("i-j", {square}).find("'-' is neither a letter"), std::string::npos);
  EXPECT_NE(message("ijk", {square}).find("an operand of 2 axes has 3 subscripts"), std::string::npos);
  EXPECT_NE(message("ij->ijk", {square}).find("which no operand has"), std::string::npos);
  EXPECT_NE(message("bij,bji->b", {a, b}).find("an axis has"), std::string::npos);
}

// (A B) C with a narrow middle: the order that multiplies little is taken, whatever the order given.
TEST(Einsum, TakesTheCheapOrder) {
  const Tensor a = random_matrix({60, 2}, 1), b = random_matrix({2, 60}, 2), c = random_matrix({60, 3}, 3);
  const Tensor cheap = matmul(a, matmul(b, c));
  expect_close(einsum("ij,jk,kl->il", {a, b, c}), cheap, 1e-10);
  expect_close(einsum("jk,kl,ij->il", {b, c, a}), cheap, 1e-10);
  std::vector<Tensor> many(12, random_matrix({3, 3}, 4));
  Tensor product = many[0];
  for (std::size_t i = 1; i < many.size(); ++i) product = matmul(product, many[i]);
  const Tensor chained = einsum("ab,bc,cd,de,ef,fg,gh,hi,ij,jk,kl,lm->am", many);
  expect_close(chained / amax(product), product / amax(product), 1e-9);
}

}  // namespace
}  // namespace weft::test
