#include "backend/cpu/matrix_exponential.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "backend/cpu/gemm.hpp"
#include "base/threads.hpp"
#include "graph/matrix_exponential.hpp"

namespace weft::cpu {
namespace {

constexpr Extent kSmall = 64;  // matrices up to here are computed by one thread each

/// A square matrix, and its derivative in a direction, or nothing.
template <class T>
struct Jet {
  std::vector<T> value, slope;
};

template <class T>
class Exponential {
 public:
  explicit Exponential(Extent n) : n_(n) {}

  /// e^A, or with a direction the derivative.
  std::vector<T> operator()(Jet<T> y) {
    const bool has_slope = !y.slope.empty();
    if (!std::all_of(y.value.begin(), y.value.end(), [](T x) { return std::isfinite(x); }))
      return std::vector<T>(y.value.size(), std::numeric_limits<T>::quiet_NaN());
    const Triangles zero = has_slope ? Triangles{} : zero_triangles(y.value);
    const std::vector<T> diagonal = zero.above || zero.below ? exponentials_of_diagonal(y.value) : std::vector<T>();
    if (zero.above && zero.below) return with_diagonal(std::vector<T>(y.value.size(), 0), diagonal);
    const auto [degree, halvings] = chosen(y.value, has_slope);
    const int squarings = std::min(halvings, graph::exponential_squarings_max(kIsDouble));
    for (T& x : y.value) x = std::ldexp(x, -halvings);
    for (T& x : y.slope) x = std::ldexp(x, -squarings);
    y = graph::exponential_polynomial(*this, y, degree);
    for (int step = 0; step < squarings; ++step) y = product(y, y);
    return has_slope ? std::move(y.slope) : with_diagonal(std::move(y.value), diagonal);
  }

  Jet<T> product(const Jet<T>& x, const Jet<T>& y) {
    Jet<T> out;
    out.value.resize(x.value.size());
    multiply(x.value, y.value, out.value, false);
    if (!x.slope.empty()) {
      out.slope.resize(x.value.size());
      multiply(x.value, y.slope, out.slope, false);
      multiply(x.slope, y.value, out.slope, true);
    }
    return out;
  }
  Jet<T> sum(double unit, std::initializer_list<std::pair<double, const Jet<T>*>> terms) const {
    Jet<T> total;
    for (const auto& [factor, term] : terms) {
      add(total.value, term->value, factor);
      if (!term->slope.empty()) add(total.slope, term->slope, factor);
    }
    for (Extent i = 0; i < n_; ++i) total.value[static_cast<std::size_t>(i * (n_ + 1))] += static_cast<T>(unit);
    return total;
  }

 private:
  static constexpr bool kIsDouble = sizeof(T) == 8;

  struct Choice {
    int degree, halvings;
  };
  Choice chosen(const std::vector<T>& a, bool has_direction) {
    const std::span<const graph::ExponentialDegree> degrees =
        kIsDouble ? std::span<const graph::ExponentialDegree>(graph::kExponentialDegreesF64)
                  : std::span<const graph::ExponentialDegree>(graph::kExponentialDegreesF32);
    double size = size_of(a), most = 0;
    for (const graph::ExponentialDegree& each : degrees) {
      most = has_direction ? graph::frechet_size(each) : each.size;
      if (size <= most) return {each.degree, 0};
    }
    // Powers are those of a matrix with elements of about 1, which do not overflow.
    const T greatest =
        std::fabs(*std::max_element(a.begin(), a.end(), [](T x, T y) { return std::fabs(x) < std::fabs(y); }));
    const int exponent = std::ilogb(greatest);
    std::vector<T> unit = a, square(a.size()), cube(a.size());
    for (T& x : unit) x = std::ldexp(x, -exponent);
    size = size_of(unit);
    if (!has_direction) {
      multiply(unit, unit, square, false);
      multiply(square, unit, cube, false);
      size = graph::exponential_size(size, size_of(square), size_of(cube));
    }
    const double halvings = size == 0 ? 0 : std::ceil(std::log2(size / most)) + exponent;
    return {degrees.back().degree, std::max(0, static_cast<int>(halvings))};
  }

  /// Where all elements beside the diagonal are 0. The diagonal of e^A is then known without squarings.
  struct Triangles {
    bool above = false, below = false;
  };
  Triangles zero_triangles(const std::vector<T>& a) const {
    Triangles zero{true, true};
    for (Extent i = 0; i < n_; ++i)
      for (Extent j = 0; j < n_; ++j)
        if (i != j && a[static_cast<std::size_t>(i * n_ + j)] != 0) (i < j ? zero.above : zero.below) = false;
    return zero;
  }
  std::vector<T> exponentials_of_diagonal(const std::vector<T>& a) const {
    std::vector<T> diagonal;
    for (Extent i = 0; i < n_; ++i) diagonal.push_back(std::exp(a[static_cast<std::size_t>(i * (n_ + 1))]));
    return diagonal;
  }
  std::vector<T> with_diagonal(std::vector<T> a, const std::vector<T>& diagonal) const {
    for (std::size_t i = 0; i < diagonal.size(); ++i) a[i * (diagonal.size() + 1)] = diagonal[i];
    return a;
  }

  double size_of(const std::vector<T>& a) const {
    std::vector<double> sums(static_cast<std::size_t>(n_), 0.0);
    for (Extent i = 0; i < n_; ++i)
      for (Extent j = 0; j < n_; ++j)
        sums[static_cast<std::size_t>(j)] += std::fabs(static_cast<double>(a[static_cast<std::size_t>(i * n_ + j)]));
    double most = 0;
    for (const double sum : sums) most = std::max(most, sum);
    return most;
  }

  static void add(std::vector<T>& total, const std::vector<T>& term, double factor) {
    const T f = static_cast<T>(factor);
    if (total.empty()) {
      total.resize(term.size());
      for (std::size_t i = 0; i < term.size(); ++i) total[i] = f * term[i];
    } else {
      for (std::size_t i = 0; i < term.size(); ++i) total[i] += f * term[i];
    }
  }

  void multiply(const std::vector<T>& x, const std::vector<T>& y, std::vector<T>& out, bool accumulate) {
    if (n_ <= kSmall)
      small_.multiply(n_, n_, n_, x.data(), n_, 1, y.data(), n_, out.data(), n_, accumulate);
    else
      gemm<T>({.m = n_,
               .n = n_,
               .k = n_,
               .a = {.data = x.data(), .row = n_, .column = 1},
               .b = {.data = y.data(), .row = n_, .column = 1},
               .c = {.data = out.data(), .row = n_},
               .accumulate = accumulate});
  }

  Extent n_;
  SmallGemm<T> small_;
};

/// The matrices of the batch, which are of T, in the type Computed.
template <class T, class Computed>
void run(const kernel::CallKernel& kernel, const char* a, const char* direction, char* out) {
  const Shape& shape = kernel.shapes[0];
  const Extent n = shape.dim(-1), size = n * n;
  if (size == 0) return;
  const Extent batch = shape.numel() / size;
  const auto read = [&](const char* from, Extent index) {
    const T* begin = reinterpret_cast<const T*>(from) + index * size;
    return from == nullptr ? std::vector<Computed>() : std::vector<Computed>(begin, begin + size);
  };
  const auto one = [&](Extent index) {
    const std::vector<Computed> result = Exponential<Computed>(n)({read(a, index), read(direction, index)});
    std::transform(result.begin(), result.end(), reinterpret_cast<T*>(out) + index * size,
                   [](Computed x) { return static_cast<T>(x); });
  };
  if (n > kSmall) {  // products use all threads
    for (Extent index = 0; index < batch; ++index) one(index);
    return;
  }
  const Extent together = std::max<Extent>(1, 4096 / size);
  parallel_for((batch + together - 1) / together, [&](Extent task) {
    for (Extent index = task * together; index < std::min(batch, (task + 1) * together); ++index) one(index);
  });
}

// Each squaring doubles the error, so f32 computes in f64 where that costs little.
void run(const kernel::CallKernel& kernel, const char* a, const char* direction, char* out) {
  if (kernel.reads[0].type == DType::f64)
    run<double, double>(kernel, a, direction, out);
  else if (kernel.shapes[0].dim(-1) <= kSmall)
    run<float, double>(kernel, a, direction, out);
  else
    run<float, float>(kernel, a, direction, out);
}

}  // namespace

void run_matrix_exp(const kernel::CallKernel& kernel, std::span<char* const> reads, std::span<char* const> outs) {
  run(kernel, reads[0], nullptr, outs[0]);
}

void run_matrix_exp_frechet(const kernel::CallKernel& kernel, std::span<char* const> reads,
                            std::span<char* const> outs) {
  run(kernel, reads[0], reads[1], outs[0]);
}

}  // namespace weft::cpu
