// Spectra and mel spectrograms against a plain sum, against transformers and PyTorch (make.py), on both devices, and their gradients.
#include <gtest/gtest.h>

#include <cmath>
#include <complex>
#include <numbers>

#include "audio/signals.hpp"
#include "base/json.hpp"
#include "runtime/devices.hpp"
#include "webgpu_driver.hpp"
#include "weft/audio/features.hpp"
#include "weft/compile.hpp"
#include "weft/error.hpp"
#include "weft/gradcheck.hpp"
#include "weft/ops.hpp"
#include "weft/ops/making.hpp"

namespace weft::audio {
namespace {

Json golden() { return read_json_file(WEFT_TEST_FEATURES); }

Tensor signal(std::size_t frames, DType type = DType::f32, Device device = kCpu) {
  const std::vector<float> x = test::chirp(frames, 16000);
  return cast(tensor_from_bytes(x.data(), {static_cast<Extent>(frames)}, DType::f32, device), type);
}

void expect_elements(const Tensor& x, const Json& wanted, double tolerance) {
  const std::vector<float> values = cast(x, DType::f32).to_vector<float>();
  const Extent columns = x.dim(-1);
  double worst = 0;
  for (const Json& e : wanted)
    worst =
        std::max(worst, std::abs(values[static_cast<std::size_t>(e[0].get<Extent>() * columns + e[1].get<Extent>())] -
                                 e[2].get<double>()));
  EXPECT_LT(worst, tolerance);
}

TEST(Stft, IsTheSumOfItsFormula) {
  const StftOptions options{.size = 15, .hop = 4, .window_size = 11, .centred = false};
  const std::vector<double> x = signal(50, DType::f64).to_vector<double>();
  const Spectrum s = stft(signal(50, DType::f64), options);
  ASSERT_EQ(s.real.shape(), (Shape{9, 8}));
  const std::vector<double> re = s.real.to_vector<double>(), im = s.imaginary.to_vector<double>();
  for (int f = 0; f < 9; ++f)
    for (int k = 0; k < 8; ++k) {
      std::complex<double> sum = 0;
      for (int n = 0; n < 11; ++n)
        sum += (0.5 - 0.5 * std::cos(2 * std::numbers::pi * n / 11)) * x[static_cast<std::size_t>(4 * f + 2 + n)] *
               std::polar(1.0, -2 * std::numbers::pi * k * (n + 2) / 15);
      EXPECT_NEAR(re[static_cast<std::size_t>(8 * f + k)], sum.real(), 1e-12);
      EXPECT_NEAR(im[static_cast<std::size_t>(8 * f + k)], sum.imag(), 1e-12);
    }
}

TEST(Stft, AgreesWithPyTorch) {
  const Json wanted = golden();
  const Spectrum s = stft(signal(16000), {.size = 256, .hop = 100, .window_size = 200, .window = WindowKind::hamming});
  expect_elements(s.real, wanted["stft_real"], 2e-5);
  expect_elements(s.imaginary, wanted["stft_imaginary"], 2e-5);
}

TEST(Istft, GivesTheSignalBack) {
  for (const StftOptions& o :
       {StftOptions{.size = 64, .hop = 16}, StftOptions{.size = 63, .hop = 20, .window = WindowKind::hamming},
        StftOptions{.size = 32, .hop = 8, .window_size = 24, .window = WindowKind::blackman}}) {
    const Tensor x = signal(400, DType::f64);
    const std::vector<double> y = istft(stft(x, o), o, 380).to_vector<double>(), wanted = x.to_vector<double>();
    ASSERT_EQ(y.size(), 380u);
    for (std::size_t i = 0; i < y.size(); ++i) EXPECT_NEAR(y[i], wanted[i], 1e-12) << i;
  }
}

TEST(MelFilters, AgreeWithTransformers) {
  const Json all = golden();
  for (const Json& c : all["filters"]) {
    SCOPED_TRACE(c["scale"].get<std::string>());
    const MelOptions options{c["mels"].get<Extent>(),    c["size"].get<Extent>(),
                             c["rate"].get<double>(),    c["low"].get<double>(),
                             c["high"].get<double>(),    c["scale"] == "htk" ? MelScale::htk : MelScale::slaney,
                             c["normalized"].get<bool>()};
    const Tensor filters = mel_filters(options, DType::f64, kCpu);
    const std::vector<double> values = filters.to_vector<double>();
    double sum = 0;
    for (const double v : values) sum += v;
    EXPECT_NEAR(sum, c["sum"].get<double>(), 1e-6 * c["sum"].get<double>());
    EXPECT_EQ(std::count_if(values.begin(), values.end(), [](double v) { return v > 1e-12; }),
              c["nonzero"].get<Extent>());
    expect_elements(filters, c["elements"], 1e-6);
  }
  for (const MelScale scale : {MelScale::slaney, MelScale::htk})
    for (const double hz : {0.0, 440.0, 1000.0, 7000.0}) EXPECT_NEAR(mel_to_hz(hz_to_mel(hz, scale), scale), hz, 1e-9);
}

TEST(LogMel, AgreesWithTransformers) {
  const Json wanted = golden();
  for (const Extent mels : {80, 128}) {
    const Tensor y = log_mel_spectrogram(signal(16000), mels);
    ASSERT_EQ(y.shape(), (Shape{mels, 100}));
    expect_elements(y, wanted["log_mel_" + std::to_string(mels)], 2e-4);
  }
}

TEST(LogMel, IsTheSameOnWebGpu) {
  if (test::choose_driver().empty()) GTEST_SKIP() << "no driver";
  const Device gpu = parse_device("webgpu:0");
  runtime::backend_of(gpu);
  auto features = compile([](const Tensor& x) { return log_mel_spectrogram(x); });
  const std::vector<float> a = features(signal(3200)).to_vector<float>();
  const std::vector<float> b = features(signal(3200, DType::f32, gpu)).to_vector<float>();
  ASSERT_EQ(a.size(), b.size());
  for (std::size_t i = 0; i < a.size(); ++i) EXPECT_NEAR(a[i], b[i], 1e-3) << i;
}

TEST(Features, HaveGradients) {
  const Tensor x = signal(24, DType::f64).eval();
  const auto spectra = [](std::span<const Tensor> in) {
    const StftOptions o{.size = 8, .hop = 3};
    const Spectrum s = stft(in[0], o);
    return std::vector<Tensor>{power(s), istft({s.real * s.real, s.imaginary}, o)};
  };
  const auto report = gradcheck(spectra, {x});
  EXPECT_TRUE(report.agrees) << report.message;
}

TEST(Features, RefuseWhatDoesNotFit) {
  EXPECT_THROW(stft(signal(200), {.size = 400}), ShapeError);
  EXPECT_THROW(stft(signal(399), {.size = 400, .centred = false}), ShapeError);
  EXPECT_THROW(stft(signal(500), {.hop = 0}), UsageError);
  EXPECT_THROW(stft(signal(500), {.size = Extent{1} << 40}), UsageError);
  EXPECT_THROW(stft(signal(500), {.window_size = 401}), UsageError);
  EXPECT_THROW(stft(cast(signal(500), DType::i32)), DTypeError);
  EXPECT_THROW(stft(tensor(1.0f)), ShapeError);
  const Spectrum s = stft(signal(500));
  EXPECT_THROW(istft(s, {.size = 402}), ShapeError);
  EXPECT_THROW(istft(s, {}, 1000000), ShapeError);
  EXPECT_THROW(istft({s.real, s.real[0]}), ShapeError);
  EXPECT_THROW(mel_filters({.mels = 0}), UsageError);
  EXPECT_THROW(mel_filters({.low = 9000}), UsageError);
  EXPECT_THROW(mel_filters({.rate = NAN}), UsageError);
  EXPECT_THROW(mel_filters({}, DType::i32), DTypeError);
}

}  // namespace
}  // namespace weft::audio
