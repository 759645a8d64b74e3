// Short-time Fourier transforms as matrix products.
#include <fmt/format.h>

#include <cmath>
#include <numbers>
#include <span>

#include "tensor/element.hpp"
#include "weft/audio/features.hpp"
#include "weft/error.hpp"
#include "weft/ops.hpp"
#include "weft/ops/layout.hpp"

namespace weft::audio {
namespace {

constexpr Extent kTransformMax = 1 << 14;  // a basis has N^2 elements

struct Transform {
  Extent size, hop, bins;
  std::vector<double> window;  // [size]
};

double window_at(WindowKind kind, double turn) {
  const double c = std::cos(2 * std::numbers::pi * turn);
  switch (kind) {
    case WindowKind::hann: return 0.5 - 0.5 * c;
    case WindowKind::hamming: return 0.54 - 0.46 * c;
    case WindowKind::blackman: return 0.42 - 0.5 * c + 0.08 * std::cos(4 * std::numbers::pi * turn);
    case WindowKind::rectangular: return 1;
  }
  throw InternalError("stft: an unknown window");
}

Transform transform_of(const StftOptions& o, std::string_view op) {
  if (o.size < 1 || o.size > kTransformMax)
    throw UsageError(fmt::format("{}: a transform of {} samples; it must have 1 to {}", op, o.size, kTransformMax));
  if (o.hop < 1) throw UsageError(fmt::format("{}: a hop of {} samples; it must be at least 1", op, o.hop));
  const Extent width = o.window_size == 0 ? o.size : o.window_size;
  if (width < 1 || width > o.size)
    throw UsageError(fmt::format("{}: a window of {} samples in a frame of {}", op, o.window_size, o.size));
  Transform t{o.size, o.hop, o.size / 2 + 1, std::vector<double>(static_cast<std::size_t>(o.size), 0)};
  for (Extent i = 0; i < width; ++i)
    t.window[static_cast<std::size_t>((o.size - width) / 2 + i)] =
        window_at(o.window, static_cast<double>(i) / static_cast<double>(width));
  return t;
}

/// Cosine and sine of 2 pi k n / N; the product is reduced as an integer, so that large ones lose nothing.
struct Turn {
  double cosine, sine;
};
Turn turn_of(Extent k, Extent n, Extent size) {
  const double angle = 2 * std::numbers::pi * static_cast<double>(k * n % size) / static_cast<double>(size);
  return {std::cos(angle), std::sin(angle)};
}

Tensor matrix_like(const Tensor& like, const std::vector<double>& values, const Shape& shape) {
  const std::size_t size = size_bytes(like.dtype());
  std::vector<std::byte> bytes(values.size() * size);
  for (std::size_t i = 0; i < values.size(); ++i)
    write_element(like.dtype(), rounded_to(like.dtype(), values[i]), bytes.data() + i * size);
  return tensor_from_bytes(bytes.data(), shape, like.dtype(), like.device());
}

void require_float(const Tensor& x, std::string_view op, Where where) {
  if (!is_float(x.dtype(where)))
    throw DTypeError(fmt::format("{}: {} is not a float; cast it to f32 first", op, name_of(x.dtype())));
}

}  // namespace

Spectrum stft(const Tensor& x, const StftOptions& options, Where where) {
  const Transform t = transform_of(options, "stft");
  require_float(x, "stft", where);
  const Extent margin = options.centred ? t.size / 2 : 0;
  if (x.rank() == 0 || x.dim(-1) + 2 * margin < t.size || x.dim(-1) <= margin)
    throw ShapeError(fmt::format("stft: x {} is too short for frames of {} samples; give at least {}",
                                 x.shape().to_string(), t.size, options.centred ? margin + 1 : t.size));
  Tensor signal = x;
  if (margin > 0) {
    std::vector<std::pair<Extent, Extent>> around(static_cast<std::size_t>(x.rank()), {0, 0});
    around.back() = {margin, margin};
    signal = pad(x, around, PadMode::reflect, 0, where);
  }
  const auto columns = static_cast<std::size_t>(2 * t.bins);
  std::vector<double> basis(t.window.size() * columns);
  for (Extent n = 0; n < t.size; ++n)
    for (Extent k = 0; k < t.bins; ++k) {
      const auto [cosine, sine] = turn_of(k, n, t.size);
      double* at = basis.data() + static_cast<std::size_t>(n) * columns + k;
      at[0] = t.window[static_cast<std::size_t>(n)] * cosine;
      at[t.bins] = -t.window[static_cast<std::size_t>(n)] * sine;
    }
  const Tensor frames = unfold(signal, -1, t.size, t.hop, 1, where);
  const Tensor both = matmul(frames, matrix_like(x, basis, {t.size, 2 * t.bins}), where);
  return {narrow(both, -1, 0, t.bins), narrow(both, -1, t.bins, t.bins)};
}

Tensor istft(const Spectrum& spectrum, const StftOptions& options, Extent length, Where where) {
  const Transform t = transform_of(options, "istft");
  const Tensor &re = spectrum.real, &im = spectrum.imaginary;
  require_float(re, "istft", where);
  if (re.shape() != im.shape(where) || re.rank() < 2 || re.dim(-1) != t.bins || re.dim(-2) < 1)
    throw ShapeError(fmt::format("istft: parts {} and {}; both must be [..., frames, {}]", re.shape().to_string(),
                                 im.shape().to_string(), t.bins));
  const Extent frames = re.dim(-2), margin = options.centred ? t.size / 2 : 0;
  const Extent whole = (frames - 1) * t.hop + t.size;
  const Extent wanted = length == 0 ? whole - 2 * margin : length;
  if (wanted < 1 || wanted > whole - margin)
    throw ShapeError(fmt::format("istft: {} frames give up to {} samples, not {}", frames, whole - margin, wanted));

  // All bins but the first, and the last of an even size, occur twice in the whole transform, once conjugated.
  std::vector<double> basis(static_cast<std::size_t>(2 * t.bins * t.size));
  for (Extent k = 0; k < t.bins; ++k) {
    const double weight = (k == 0 || 2 * k == t.size ? 1.0 : 2.0) / static_cast<double>(t.size);
    for (Extent n = 0; n < t.size; ++n) {
      const auto [cosine, sine] = turn_of(k, n, t.size);
      const double w = weight * t.window[static_cast<std::size_t>(n)];
      basis[static_cast<std::size_t>(k * t.size + n)] = w * cosine;
      basis[static_cast<std::size_t>((t.bins + k) * t.size + n)] = -w * sine;
    }
  }
  std::vector<double> squares(static_cast<std::size_t>(whole), 0);
  for (Extent f = 0; f < frames; ++f)
    for (Extent n = 0; n < t.size; ++n)
      squares[static_cast<std::size_t>(f * t.hop + n)] += std::pow(t.window[static_cast<std::size_t>(n)], 2);
  for (double& square : squares) square = square > 1e-11 ? 1 / square : 0;

  const Tensor pieces = matmul(concat({re, im}, -1, where), matrix_like(re, basis, {2 * t.bins, t.size}), where);
  const Tensor sum = overlap_add(pieces, -1, whole, t.hop, 1, where);
  return narrow(sum * matrix_like(re, squares, {whole}), -1, margin, wanted);
}

Tensor power(const Spectrum& s, Where where) {
  s.real.shape(where);
  return s.real * s.real + s.imaginary * s.imaginary;
}

}  // namespace weft::audio
