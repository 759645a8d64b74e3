// Spectra and mel spectrograms, as ordinary ops: they run on every device, and have gradients.
#pragma once

#include <string_view>

#include "weft/tensor.hpp"

namespace weft::audio {

enum class WindowKind : std::uint8_t { hann, hamming, blackman, rectangular };
/// That of a name, as it stands here. Errors: UsageError.
WindowKind window_kind(std::string_view name);

/// Frames of a short-time Fourier transform.
struct StftOptions {
  Extent size = 400;                     ///< N: samples of a frame, and of its transform
  Extent hop = 160;                      ///< samples between the beginnings of neighbouring frames
  Extent window_size = 0;                ///< samples of the window, in the middle of a frame; 0: N
  WindowKind window = WindowKind::hann;  ///< periodic: as weft/ops/making.hpp defines it
  /// Frame f is centred at sample f hop: x is mirrored by N / 2 samples at both ends. Otherwise it begins there.
  bool centred = true;
};

/// Real and imaginary part, each [..., frames, bins], where bins = N / 2 + 1.
struct Spectrum {
  Tensor real, imaginary;
};

/// The short-time Fourier transform, as one matrix product of the frames with a basis:
///
///   X[f, k] = sum_n w[n] x[f hop + n] exp(-2 pi i k n / N)
///
/// Shapes    x [..., T] -> [..., floor((T - N) / hop) + 1, N / 2 + 1]; centred: with T + 2 floor(N / 2) in place of T
/// Dtypes    floats; the result has the dtype of x
/// Errors    ShapeError: x of rank 0, or shorter than a frame (centred: than N / 2 + 1); UsageError: options out of range
/// Gradient  that of the product
/// Accuracy  of f32: within 2^-20 of the sum of |w x|
[[nodiscard]] Spectrum stft(const Tensor& x, const StftOptions& options = {}, Where where = Where::current());

/// The signal whose transform is nearest to the spectrum: frames are transformed back, multiplied by the window, added, and divided
/// by the sum of squared windows. Samples that no window reaches become 0.
/// Shapes    [..., frames, N / 2 + 1] -> [..., length]; length 0: all samples of the frames (centred: without N / 2 at both ends)
/// Errors    ShapeError: parts of different shapes, of other bins than the options say, or too few frames for `length`; UsageError
/// Source    Griffin and Lim 1984, doi:10.1109/TASSP.1984.1164317
[[nodiscard]] Tensor istft(const Spectrum& spectrum, const StftOptions& options = {}, Extent length = 0,
                           Where where = Where::current());

/// real^2 + imaginary^2.
[[nodiscard]] Tensor power(const Spectrum& spectrum, Where where = Where::current());

/// Frequencies in Hz to mels. Slaney's scale is linear up to 1 kHz (3 mels for 200 Hz) and logarithmic above (27 mels for a factor of
/// 6.4); HTK's is 2595 log10(1 + f / 700).
enum class MelScale : std::uint8_t { slaney, htk };
/// That of a name, as it stands here. Errors: UsageError.
MelScale mel_scale(std::string_view name);
double hz_to_mel(double hz, MelScale scale);
double mel_to_hz(double mel, MelScale scale);

struct MelOptions {
  Extent mels = 80;
  Extent size = 400;  ///< N of the transform
  double rate = 16000;
  double low = 0, high = 0;  ///< Hz, the ends of the first and last triangle; high 0: rate / 2
  MelScale scale = MelScale::slaney;
  bool normalized = true;  ///< each triangle has area 1 over frequency in Hz; otherwise height 1
};

/// Triangles over the bins of a spectrum whose corners are equally spaced in mels.
/// Shapes    -> [mels, N / 2 + 1]
/// Errors    UsageError: options out of range
[[nodiscard]] Tensor mel_filters(const MelOptions& options = {}, DType type = DType::f32,
                                 Device device = default_device());

/// The features that Whisper reads: filters (Slaney, 0 to 8 kHz) on the power of a centred transform of 400 samples every 160, without
/// its last frame, then
///
///   y = (max(log10 max(m, 10^-10), M - 8) + 4) / 4,   M the largest logarithm of the signal
///
/// Shapes    x [..., T] at 16 kHz -> [..., mels, floor(T / 160)]
/// Dtypes    floats
/// Errors    ShapeError: x of rank 0, or shorter than 201 samples; UsageError: mels out of range
/// Source    Radford et al. 2022, arXiv:2212.04356
[[nodiscard]] Tensor log_mel_spectrogram(const Tensor& x, Extent mels = 80, Where where = Where::current());

}  // namespace weft::audio
