// Spectra. ONNX has complex numbers as pairs: the last axis of a tensor is the real and the imaginary part.
#include <fmt/format.h>

#include <cmath>
#include <functional>
#include <numbers>
#include <utility>
#include <vector>

#include "onnx/apply.hpp"
#include "weft/ops/layout.hpp"

namespace weft::onnx {
namespace {

using A = Application;

constexpr Extent kDirectMost = 512;        // points that are transformed by one matrix
constexpr Extent kPrimeMost = 1024;        // the same where their number has no factors
constexpr Extent kPointsMost = 1LL << 24;  // of a transform

/// Points along the last axis. `im` is undefined where all are real.
struct Points {
  Tensor re, im;

  Extent count() const { return re.dim(-1); }
};
Points each(const Points& x, const std::function<Tensor(const Tensor&)>& f) {
  return {f(x.re), x.im.defined() ? f(x.im) : Tensor()};
}
Points product(const Points& x, const Points& y) {
  if (!x.im.defined()) return {x.re * y.re, x.re * y.im};
  return {x.re * y.re - x.im * y.im, x.re * y.im + x.im * y.re};
}

/// With zeros behind, up to n.
Tensor padded(const Tensor& x, Extent n) {
  std::vector<std::pair<Extent, Extent>> around(static_cast<std::size_t>(x.rank()));
  around.back().second = n - x.dim(-1);
  return pad(x, around);
}

/// exp(sign 2 pi i j k / n) for j < rows and k < columns.
struct Table {
  std::vector<double> cosines, sines;
};
Table table_of(Extent rows, Extent columns, Extent n, int sign) {
  Table t;
  for (Extent j = 0; j < rows; ++j)
    for (Extent k = 0; k < columns; ++k) {
      const double angle = 2 * std::numbers::pi * static_cast<double>(j * k % n) / static_cast<double>(n);
      t.cosines.push_back(std::cos(angle));
      t.sines.push_back(sign * std::sin(angle));
    }
  return t;
}

/// A factor of n near its root; 1 for primes.
Extent factor_of(Extent n) {
  for (Extent p = static_cast<Extent>(std::sqrt(static_cast<double>(n))); p > 1; --p)
    if (n % p == 0) return p;
  return 1;
}

class Transform {
 public:
  Transform(const A& a, int sign) : a_(a), sign_(sign) {}

  /// X[k] = sum over j of x[j] exp(sign 2 pi i j k / n).
  Points operator()(const Points& x) const {
    const Extent n = x.count(), p = factor_of(n);
    if (n <= kDirectMost || (p == 1 && n <= kPrimeMost)) return by_matrix(x);
    return p == 1 ? by_chirps(x) : by_factors(x, p);
  }

 private:
  Points by_matrix(const Points& x) const {
    const Extent n = x.count();
    const Table t = table_of(n, n, n, sign_);
    const Tensor c = make(t.cosines, {n, n}, x), s = make(t.sines, {n, n}, x);
    if (!x.im.defined()) return {matmul(x.re, c), matmul(x.re, s)};
    return {matmul(x.re, c) - matmul(x.im, s), matmul(x.re, s) + matmul(x.im, c)};
  }

  // Cooley and Tukey: with n = p q and j = p b + a, transforms of length q over b, and of length p over a.
  Points by_factors(const Points& x, Extent p) const {
    const Extent q = x.count() / p;
    const Shape joined = x.re.shape();
    const Points inner = (*this)(each(x, [&](const Tensor& t) { return transpose(unflatten(t, -1, {q, p}), -2, -1); }));
    const Table turns = table_of(p, q, p * q, sign_);
    const Points turned = product(inner, {make(turns.cosines, {p, q}, x), make(turns.sines, {p, q}, x)});
    const Points outer = (*this)(each(turned, [](const Tensor& t) { return transpose(t, -2, -1); }));
    return each(outer, [&](const Tensor& t) { return reshape(transpose(t, -2, -1), joined); });
  }

  // Bluestein: j k = (j^2 + k^2 - (k - j)^2) / 2 makes a convolution with chirps of a transform, whose length is free.
  Points by_chirps(const Points& x) const {
    const Extent n = x.count();
    Extent m = 1;
    while (m < 2 * n - 1) m *= 2;
    std::vector<double> cosines, sines;
    for (Extent j = 0; j < n; ++j) {  // exp(sign pi i j^2 / n)
      const double angle = std::numbers::pi * static_cast<double>(j * j % (2 * n)) / static_cast<double>(n);
      cosines.push_back(std::cos(angle));
      sines.push_back(sign_ * std::sin(angle));
    }
    std::vector<double> kernel_re(static_cast<std::size_t>(m)), kernel_im(static_cast<std::size_t>(m));
    for (std::size_t j = 0; j < static_cast<std::size_t>(n); ++j)
      for (const std::size_t at : {j, (static_cast<std::size_t>(m) - j) % static_cast<std::size_t>(m)})
        kernel_re[at] = cosines[j], kernel_im[at] = -sines[j];
    const Points chirp{make(cosines, {n}, x), make(sines, {n}, x)};
    const Points kernel{make(kernel_re, {m}, x), make(kernel_im, {m}, x)};
    const Transform forward(a_, -1), inverse(a_, 1);
    const Points turned = each(product(x, chirp), [&](const Tensor& t) { return padded(t, m); });
    const Points sum = inverse(product(forward(turned), forward(kernel)));
    return product(each(sum, [&](const Tensor& t) { return narrow(t, -1, 0, n) / static_cast<double>(m); }), chirp);
  }

  Tensor make(const std::vector<double>& values, const Shape& shape, const Points& like) const {
    return a_.make(values, shape, like.re.dtype());
  }

  const A& a_;
  int sign_;
};

/// The pairs of the last axis as points, with `axis` as the last one. Narrow types compute in f32.
Points points_of(const A& a, const Tensor& x, int axis) {
  if (x.rank() < 2 || x.dim(-1) < 1 || x.dim(-1) > 2 || axis == x.rank() - 1)
    a.shape_error("the signal's last axis must have the real part, or also the imaginary one, of another axis");
  const DType type = x.dtype() == DType::f64 ? DType::f64 : DType::f32;
  const auto part = [&](Extent i) { return movedim(cast(select(x, -1, i), type), {axis}, {-1}); };
  return {part(0), x.dim(-1) == 2 ? part(1) : Tensor()};
}
Tensor pairs_of(const Points& x, int axis, DType type) {
  const auto back = [&](const Tensor& t) { return movedim(t, {-1}, {axis}); };
  const Tensor im = x.im.defined() ? x.im : zeros_like(x.re);
  return cast(stack({back(x.re), back(im)}, -1), type);
}

Points first_of(const Points& x, Extent n) {
  const Extent has = x.count();
  if (has == n) return x;
  return each(x, [&](const Tensor& t) { return has > n ? narrow(t, -1, 0, n) : padded(t, n); });
}

/// All n points of a spectrum of real numbers, from those up to the middle.
Points whole_spectrum(const Points& half, Extent n) {
  const Extent m = n / 2 + 1, mirrored = n - m;
  const Points x = first_of(half, m);
  const auto behind = [&](const Tensor& t) { return flip(narrow(t, -1, 1, mirrored), {-1}); };
  const Tensor im = x.im.defined() ? x.im : zeros_like(x.re);
  if (mirrored == 0) return {x.re, zeros_like(im)};
  // The imaginary part of the first point, and of the middle of an even number of points, has no meaning.
  Tensor known = narrow(im, -1, 1, mirrored);
  std::vector<Tensor> parts = {zeros_like(narrow(im, -1, 0, 1)), known};
  if (n % 2 == 0) parts.push_back(zeros_like(narrow(im, -1, 0, 1)));
  parts.push_back(-flip(known, {-1}));
  return {concat({x.re, behind(x.re)}, -1), concat(parts, -1)};
}

Extent checked_length(const A& a, Extent n) {
  if (n < 1 || n > kPointsMost) a.usage_error(fmt::format("{} points; 1 to {} are possible", n, kPointsMost));
  return n;
}

void fourier_transform(A& a) {
  const Tensor& x = a[0];
  const bool inverse = a.flag("inverse", false), onesided = a.flag("onesided", false);
  const Extent given = a.opset() >= 20 ? (a.has(2) ? a.integer_of(2) : -2) : a.integer("axis", 1);
  const int axis = a.axis(given, x.rank());
  const Points points = points_of(a, x, axis);
  const Extent has = points.count();
  const Extent n = checked_length(a, a.has(1) ? a.integer_of(1) : inverse && onesided ? 2 * (has - 1) : has);
  if (!inverse) {
    Points y = Transform(a, -1)(first_of(points, n));
    if (onesided) y = first_of(y, n / 2 + 1);
    return a.give(pairs_of(y, axis, x.dtype()));
  }
  Points y = Transform(a, 1)(onesided ? whole_spectrum(points, n) : first_of(points, n));
  y = each(y, [&](const Tensor& t) { return t / static_cast<double>(n); });
  if (!onesided) return a.give(pairs_of(y, axis, x.dtype()));
  a.give(unsqueeze(movedim(cast(y.re, x.dtype()), {-1}, {axis}), -1));
}

// Transforms of windows of a signal [N, samples, 1 or 2]: [N, windows, points, 2]. ONNX Runtime, and so its users, also take [N, samples].
void short_time_transform(A& a) {
  const Tensor x = a[0].rank() == 2 ? unsqueeze(a[0], -1) : a[0];
  if (x.rank() != 3) a.shape_error("the signal must be [batch, samples, 1 or 2]");
  const Extent step = a.integer_of(1);
  const Tensor window = a.optional(2);
  const Extent n = checked_length(a, a.has(3) ? a.integer_of(3) : window.defined() ? window.numel() : x.dim(1));
  if (step < 1) a.usage_error(fmt::format("a step of {}", step));
  if (x.dim(1) < n) a.shape_error(fmt::format("{} samples are fewer than a window of {}", x.dim(1), n));
  if (window.defined() && window.numel() != n) a.shape_error(fmt::format("the window does not have {} samples", n));
  const bool onesided = a.flag("onesided", true);
  if (onesided && x.dim(2) == 2) a.usage_error("complex signals have no onesided spectrum");
  const Points frames = each(points_of(a, x, 1), [&](const Tensor& t) {
    const Tensor windows = unfold(t, -1, n, step);
    return window.defined() ? windows * reshape(cast(window, t.dtype()), {n}) : windows;
  });
  Points y = Transform(a, -1)(frames);
  if (onesided) y = first_of(y, n / 2 + 1);
  a.give(pairs_of(y, 2, x.dtype()));
}

// Triangles on the mel scale, 2595 log10(1 + f / 700), over the points of a spectrum: [points, triangles].
void mel_weights(A& a) {
  const Extent triangles = a.integer_of(0), length = checked_length(a, a.integer_of(1)), rate = a.integer_of(2);
  const double low = a.number_of(3), high = a.number_of(4);
  const Extent points = length / 2 + 1;
  if (triangles < 1 || rate < 1 || triangles > kMaxMadeElements / points)
    a.usage_error(fmt::format("{} triangles over {} points at {} Hz", triangles, points, rate));
  if (!(low >= 0 && high >= low && high <= static_cast<double>(rate) / 2))
    a.usage_error(
        fmt::format("edges of {} and {} Hz; they must rise, up to half of the rate of {} Hz", low, high, rate));
  const auto mel = [](double f) { return 2595 * std::log10(1 + f / 700); };
  const double first = mel(low), step = (mel(high) - first) / static_cast<double>(triangles + 2);
  const auto edge = [&](Extent i) {
    const double f = 700 * (std::pow(10, (first + step * static_cast<double>(i)) / 2595) - 1);
    return static_cast<Extent>(std::floor(static_cast<double>(length + 1) * f / static_cast<double>(rate)));
  };
  std::vector<double> weights(static_cast<std::size_t>(points * triangles));
  for (Extent i = 0; i < triangles; ++i) {
    const Extent left = edge(i), middle = edge(i + 1), right = edge(i + 2);
    const auto put = [&](Extent point, Extent part, Extent of) {
      if (point < points)
        weights[static_cast<std::size_t>(point * triangles + i)] = static_cast<double>(part) / static_cast<double>(of);
    };
    if (left == middle) put(middle, 1, 1);
    for (Extent p = left; p <= middle && left < middle; ++p) put(p, p - left, middle - left);
    for (Extent p = middle; p < right; ++p) put(p, right - p, right - middle);
  }
  a.give(a.make(weights, {points, triangles}, dtype_of_element(a.integer("output_datatype", 1))));
}

constexpr Operator kSpectralOperators[] = {
    {"DFT", fourier_transform},
    {"STFT", short_time_transform},
    {"MelWeightMatrix", mel_weights},
};

}  // namespace

std::span<const Operator> spectral_operators() { return kSpectralOperators; }

}  // namespace weft::onnx
