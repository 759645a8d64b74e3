// Types of storage as tensors, on the CPU and through WebGPU: every code, rounding, views that cut through bytes, fusion, errors.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>

#include "runtime/open_device.hpp"
#include "tensor/element.hpp"
#include "weft/weft.hpp"

namespace weft {
namespace {

constexpr DType kStorage[] = {DType::fp8_e4m3, DType::fp8_e5m2, DType::fp4_e2m1, DType::int4,  DType::uint4,
                              DType::int2,     DType::uint2,    DType::ternary,  DType::binary};
constexpr double kNan = std::numeric_limits<double>::quiet_NaN(), kInf = std::numeric_limits<double>::infinity();

/// The value of a code, straight from the definition of the type.
double value_of(DType type, int code) {
  const auto small_float = [&](int fraction_bits, int bias) {
    const int sign = 1 << (element(type).bits - 1), rest = code & (sign - 1);
    const int exponent = rest >> fraction_bits, fraction = rest & ((1 << fraction_bits) - 1);
    const double unit = std::ldexp(1.0, -fraction_bits);
    const double magnitude =
        exponent == 0 ? std::ldexp(fraction * unit, 1 - bias) : std::ldexp(1 + fraction * unit, exponent - bias);
    return code & sign ? -magnitude : magnitude;
  };
  switch (type) {
    case DType::fp8_e4m3: return (code & 127) == 127 ? kNan : small_float(3, 7);
    case DType::fp8_e5m2:
      if ((code & 127) == 124) return code & 128 ? -kInf : kInf;
      return (code & 127) > 124 ? kNan : small_float(2, 15);
    case DType::fp4_e2m1: return small_float(1, 1);
    case DType::int4: return code < 8 ? code : code - 16;
    case DType::int2:
    case DType::ternary: return code < 2 ? code : code - 4;
    case DType::binary: return code ? 1 : -1;
    default: return code;
  }
}
std::vector<int> codes_of(DType type) {
  std::vector<int> codes;
  for (int code = 0; code < 1 << element(type).bits; ++code)
    if (type != DType::ternary || code != 2) codes.push_back(code);  // ternary has no -2
  return codes;
}

/// The nearest value, by looking at all of them; of two as near the one with the even code.
double nearest(DType type, double x) {
  if (type == DType::binary) return x > 0 ? 1 : -1;
  if (std::isnan(x)) return type == DType::fp8_e4m3 || type == DType::fp8_e5m2 ? kNan : 0;
  if (std::isinf(x) && type == DType::fp8_e5m2) return x;
  x = std::clamp(x, -1e6, 1e6);  // beyond all of them, and near enough for differences
  double best = kNan;
  int best_code = 0;
  for (const int code : codes_of(type)) {
    const double value = value_of(type, code);
    if (!std::isfinite(value) || (value == 0 && std::signbit(value))) continue;
    const double far = std::fabs(value - x), least = std::fabs(best - x);
    if (std::isnan(best) || far < least || (far == least && code % 2 == 0 && best_code % 2 != 0))
      best = value, best_code = code;
  }
  return best;
}

Tensor of_codes(DType type, const std::vector<int>& codes, const Shape& shape) {
  const auto bits = static_cast<std::size_t>(element(type).bits);
  std::vector<unsigned char> bytes((codes.size() * bits + 7) / 8, 0);
  for (std::size_t i = 0; i < codes.size(); ++i)
    bytes[i * bits / 8] = static_cast<unsigned char>(bytes[i * bits / 8] | codes[i] << (i * bits % 8));
  return tensor_from_bytes(bytes.data(), shape, type);
}
std::vector<double> values_of(const Tensor& t) {
  const std::vector<float> values = cast(t, DType::f32).to_vector<float>();
  return {values.begin(), values.end()};
}
/// What is in memory, byte by byte.
std::vector<double> stored(const Tensor& t) {
  const auto bits = static_cast<std::size_t>(element(t.dtype()).bits), count = static_cast<std::size_t>(t.numel());
  std::vector<unsigned char> bytes((count * bits + 7) / 8);
  t.copy_to(bytes.data(), bytes.size());
  std::vector<double> values;
  for (std::size_t i = 0; i < count; ++i)
    values.push_back(value_of(t.dtype(), bytes[i * bits / 8] >> (i * bits % 8) & ((1 << bits) - 1)));
  if (count * bits % 8 != 0) {
    EXPECT_EQ(bytes.back() >> (count * bits % 8), 0) << "unused bits are not 0";
  }
  return values;
}
bool same(double a, double b) { return a == b || (std::isnan(a) && std::isnan(b)); }
void expect_same(const std::vector<double>& got, const std::vector<double>& want) {
  ASSERT_EQ(got.size(), want.size());
  int shown = 0;
  for (std::size_t i = 0; i < got.size() && shown < 5; ++i)
    if (!same(got[i], want[i])) {
      ++shown;
      ADD_FAILURE() << "element " << i << " is " << got[i] << ", not " << want[i];
    }
}

class StorageTypes : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    Device device = kCpu;
    test::open_device(GetParam(), device);
    set_default_device(device);
  }
  void TearDown() override { set_default_device(before_); }
  bool is_cpu() const { return default_device() == kCpu; }
  /// Random codes, and their values.
  Tensor random(DType type, const Shape& shape, std::vector<double>& values) {
    const std::vector<int> all = codes_of(type);
    std::vector<int> codes;
    values.clear();
    for (Extent i = 0; i < shape.numel(); ++i) {
      int code = all[generator_() % all.size()];
      while (std::isnan(value_of(type, code))) code = all[generator_() % all.size()];
      codes.push_back(code);
      values.push_back(value_of(type, code));
    }
    return of_codes(type, codes, shape);
  }
  std::mt19937 generator_{11};

 private:
  Device before_ = default_device();
};

TEST_P(StorageTypes, EveryCodeIsUnpackedToEveryType) {
  for (const DType type : kStorage) {
    SCOPED_TRACE(std::string(name_of(type)));
    const std::vector<int> codes = codes_of(type);
    std::vector<double> want;
    for (const int code : codes) want.push_back(value_of(type, code));
    const Tensor x = of_codes(type, codes, {static_cast<Extent>(codes.size())});
    expect_same(values_of(x), want);
    expect_same(stored(x), want);
    for (const DType to : kComputeDTypes) {
      if (!is_cpu() && !element(to).on_gpu) continue;
      SCOPED_TRACE(std::string(name_of(to)));
      std::vector<double> rounded;
      for (const double v : want) rounded.push_back(rounded_to(to, v));
      const Tensor y = cast(x, to);
      std::vector<std::byte> bytes(bytes_of(to, codes.size()));
      y.copy_to(bytes.data(), bytes.size());
      for (std::size_t i = 0; i < codes.size(); ++i) {
        if (is_integer(to) && !element(to).is_signed && want[i] < 0) continue;  // as casts of floats: tested with them
        EXPECT_TRUE(same(read_element(to, bytes.data(), i), rounded[i]))
            << want[i] << " becomes " << read_element(to, bytes.data(), i);
      }
    }
  }
}

TEST_P(StorageTypes, CastsRoundToTheNearestAndSaturate) {
  std::vector<float> values = {0,
                               -0.0f,
                               0.5f,
                               -0.5f,
                               1.5f,
                               2.5f,
                               -2.5f,
                               7.5f,
                               -8.5f,
                               15.5f,
                               447,
                               448,
                               463,
                               464,
                               465,
                               1e9f,
                               -1e9f,
                               57344,
                               61439,
                               61440,
                               61441,
                               -70000,
                               1e-9f,
                               1e38f,
                               -1e38f,
                               1e-40f,
                               static_cast<float>(kInf),
                               static_cast<float>(-kInf),
                               static_cast<float>(kNan)};
  for (int i = 0; i < 600; ++i) values.push_back(std::ldexp(float(i % 100 - 50) / 16, i / 100 * 3 - 12));
  for (const DType type : kStorage)  // halfway between neighbours
    for (const int code : codes_of(type)) {
      const double v = value_of(type, code), next = value_of(type, code + 1);
      if (std::isfinite(v) && std::isfinite(next) && std::fabs(next) > std::fabs(v))
        values.push_back(static_cast<float>((v + next) / 2));
    }
  if (!is_cpu()) std::replace(values.begin(), values.end(), 1e-40f, 0.0f);  // a GPU may flush denormals, or not
  const Tensor x = tensor<float>(values, {static_cast<Extent>(values.size())});
  for (const DType type : kStorage) {
    SCOPED_TRACE(std::string(name_of(type)));
    std::vector<double> want;
    for (const float v : values) want.push_back(nearest(type, v));
    expect_same(stored(cast(x, type)), want);
    expect_same(values_of(cast(x, type)), want);  // in one kernel: never packed
    for (std::size_t i = 0; i < values.size(); ++i)
      EXPECT_TRUE(same(rounded_to(type, values[i]), nearest(type, values[i]))) << "on the host: " << values[i];
    std::vector<double> whole, halves;
    std::vector<std::int32_t> integers;
    for (int i = -40; i < 40; ++i) integers.push_back(i), whole.push_back(nearest(type, i));
    integers.push_back(2147483647), whole.push_back(nearest(type, 2147483647));
    expect_same(stored(cast(tensor<std::int32_t>(integers, {81}), type)), whole);
    const Tensor half = cast(x, DType::f16);
    for (const double v : values_of(half)) halves.push_back(nearest(type, v));
    expect_same(stored(cast(half.eval(), type)), halves);
    if (!is_cpu()) continue;
    // f64 is rounded once: just above a tie is not the tie.
    const double tie = type == DType::fp8_e4m3   ? 17
                       : type == DType::fp8_e5m2 ? 18
                       : type == DType::fp4_e2m1 ? 2.5
                                                 : 0.5;
    const std::vector<double> fine = {tie, tie + 1e-12, tie - 1e-12, -tie - 1e-12};
    std::vector<double> once;
    for (const double v : fine) once.push_back(nearest(type, v));
    expect_same(stored(cast(tensor<double>(fine, {4}), type)), once);
  }
}

TEST_P(StorageTypes, ViewsCutThroughBytes) {
  for (const DType type : kStorage) {
    const bool has_own_bits = type != DType::fp8_e4m3 && type != DType::uint4 && type != DType::ternary;
    if (!is_cpu() && !has_own_bits) continue;  // compiling shaders takes long
    SCOPED_TRACE(std::string(name_of(type)));
    std::vector<double> v;
    const Tensor x = random(type, {7, 13}, v);
    const auto at = [&](Extent r, Extent c) { return v[static_cast<std::size_t>(r * 13 + c)]; };
    const auto expect_view = [&](const Tensor& y, const std::vector<double>& want) {
      expect_same(values_of(y), want);
      expect_same(stored(y), want);
    };
    std::vector<double> turned, part, steps, back;
    for (Extent c = 0; c < 13; ++c)
      for (Extent r = 0; r < 7; ++r) turned.push_back(at(r, c));
    for (Extent r = 2; r < 5; ++r)
      for (Extent c = 3; c < 10; ++c) part.push_back(at(r, c));
    for (Extent c = 1; c < 13; c += 3) steps.push_back(at(3, c));
    for (Extent c = 13; c-- > 0;) back.push_back(at(6, c));
    expect_view(permute(x, {1, 0}), turned);
    expect_view(slice(slice(x, 0, 2, 5), 1, 3, 10), part);
    expect_same(stored(slice(slice(x, 0, 3, 4), 1, 1, 13, 3)), steps);
    expect_same(stored(flip(slice(x, 0, 6, 7), {1})), back);
    expect_same(stored(slice(slice(x, 0, 4, 5), 1, 5, 8)), {at(4, 5), at(4, 6), at(4, 7)});  // read in place
    expect_same(stored(expand(slice(x, 1, 5, 6), {7, 3})), [&] {
      std::vector<double> want;
      for (Extent r = 0; r < 7; ++r) want.insert(want.end(), 3, at(r, 5));
      return want;
    }());
    const Tensor parts[] = {slice(x, 0, 0, 3), slice(x, 0, 1, 2), x};
    std::vector<double> joined(v.begin(), v.begin() + 39);
    joined.insert(joined.end(), v.begin() + 13, v.begin() + 26);
    joined.insert(joined.end(), v.begin(), v.end());
    expect_view(concat(parts, 0), joined);
    const Tensor rows = embedding(x, tensor<std::int32_t>({5, 0, 2}));
    std::vector<double> taken;
    for (const Extent r : {5, 0, 2})
      for (Extent c = 0; c < 13; ++c) taken.push_back(at(r, c));
    expect_view(rows, taken);
    if (type == DType::binary) {
      EXPECT_THROW(pad(x, {{1, 0}, {0, 0}}), DTypeError);
    } else {
      std::vector<double> padded(13, 0.0);
      padded.insert(padded.end(), v.begin(), v.end());
      expect_same(stored(pad(x, {{1, 0}, {0, 0}})), padded);
      expect_same(values_of(pad(x, {{1, 0}, {0, 0}})), padded);
    }
  }
}

// Threads write neighbours in one byte.
TEST_P(StorageTypes, LargeTensorsOfOddRows) {
  for (const DType type : {DType::fp4_e2m1, DType::int2, DType::binary}) {
    SCOPED_TRACE(std::string(name_of(type)));
    const Extent rows = is_cpu() ? 701 : 101, columns = 1013;
    std::vector<float> values;
    std::vector<double> want;
    for (Extent i = 0; i < rows * columns; ++i) {
      values.push_back(static_cast<float>(static_cast<int>(generator_() % 13) - 6) / 2);
      want.push_back(nearest(type, values.back()));
    }
    const Tensor x = tensor<float>(values, {rows, columns});
    expect_same(stored(cast(x * 1.0, type)), want);
    std::vector<double> turned;
    for (Extent c = 0; c < columns; ++c)
      for (Extent r = 0; r < rows; ++r) turned.push_back(want[static_cast<std::size_t>(r * columns + c)]);
    expect_same(stored(permute(cast(x, type).eval(), {1, 0})), turned);
    std::vector<Tensor> pieces;
    for (Extent r = 0; r < rows; r += 50) pieces.push_back(cast(slice(x, 0, r, std::min(r + 50, rows)), type));
    expect_same(stored(concat(pieces, 0)), want);
  }
}

TEST_P(StorageTypes, CastsFuseWithWhatReadsThem) {
  std::vector<double> v;
  const Tensor x = random(DType::int4, {5, 9}, v), scale = tensor<float>({0.5f, 2, 1, 4, 0.25f});
  const Tensor y = sum(cast(x, DType::f32) * reshape(scale, {5, 1}), {1});
  EXPECT_NE(explain(y).find("1 kernels"), std::string::npos) << explain(y);
  const std::vector<float> got = y.to_vector<float>();
  for (std::size_t r = 0; r < 5; ++r) {
    double want = 0;
    for (std::size_t c = 0; c < 9; ++c) want += v[r * 9 + c] * std::vector<double>{0.5, 2, 1, 4, 0.25}[r];
    EXPECT_FLOAT_EQ(got[r], static_cast<float>(want));
  }
}

TEST_P(StorageTypes, VariablesConstantsAndCompiledFunctions) {
  for (const DType type : kStorage) {
    SCOPED_TRACE(std::string(name_of(type)));
    std::vector<double> v;
    Variable state(random(type, {11}, v));
    const auto step = compile([&](Tensor x) {
      Tensor wide = cast(state.value(), DType::f32) + x;
      state.assign(cast(wide, type));
      return wide;
    });
    for (int i = 0; i < 3; ++i) {
      const std::vector<float> got = step(full({}, 0.75 * i)).to_vector<float>();
      for (std::size_t e = 0; e < v.size(); ++e) {
        const double want = v[e] + 0.75 * i;
        EXPECT_EQ(got[e], static_cast<float>(want)) << e;
        v[e] = nearest(type, static_cast<float>(want));
      }
      expect_same(stored(state.value()), v);
    }
    const Tensor ones_of = full({13}, 1.0, type);
    expect_same(stored(ones_of), std::vector<double>(13, 1.0));
    const Tensor two[] = {ones_of, zeros({3}, type)};
    std::vector<double> want(13, 1.0);
    want.insert(want.end(), 3, type == DType::binary ? -1.0 : 0.0);
    expect_same(stored(concat(two, 0)), want);
    expect_same(values_of(reshape(full({}, 1.0, type), {1})), {1});
    EXPECT_EQ(cast(zeros({0, 3}, DType::f32), type).eval().numel(), 0);
  }
}

TEST_P(StorageTypes, PrintingAndMoving) {
  EXPECT_EQ(of_codes(DType::int4, {1, 15, 8, 7, 0}, {5}).to_string(), "int4 [5] [1, -1, -8, 7, 0]");
  EXPECT_EQ(of_codes(DType::fp4_e2m1, {1, 7, 15}, {3}).to_string(), "fp4_e2m1 [3] [0.5, 6, -6]");
  EXPECT_EQ(of_codes(DType::binary, {1, 0, 1, 1}, {2, 2}).to_string(), "binary [2, 2] [[1, -1], [1, 1]]");
  std::vector<double> v;
  const Tensor x = random(DType::uint2, {3, 5}, v);
  expect_same(stored(x.to(kCpu)), v);
  expect_same(stored(x.to(kCpu).to(default_device())), v);
}

TEST_P(StorageTypes, ArithmeticAsksForACast) {
  const auto message = [](auto f) {
    try {
      f();
    } catch (const DTypeError& error) {
      return std::string(error.what());
    }
    return std::string("nothing");
  };
  const Tensor x = zeros({4, 4}, DType::int4), y = zeros({4, 4}, DType::f32);
  const auto asks = [&](auto f) { EXPECT_NE(message(f).find("cast"), std::string::npos) << message(f); };
  asks([&] { (void)(x + x); });
  asks([&] { (void)(x * y); });
  asks([&] { (void)(x + 1.0); });
  asks([&] { (void)exp(x); });
  asks([&] { (void)sum(x); });
  asks([&] { (void)matmul(x, x); });
  asks([&] { (void)where(y > y, x, x); });
  asks([&] { (void)softmax(x, -1); });
  asks([&] { (void)(x < y); });
  asks([&] { (void)cumsum(x, 0); });
  asks([&] { (void)embedding(y, x); });
  EXPECT_NE(message([&] { (void)(x + y); }).find("int4"), std::string::npos);
  EXPECT_THROW((void)x.to_vector<float>(), DTypeError);
}

TEST_P(StorageTypes, GradientsStopAtThem) {
  const Tensor x = tensor<float>({1, 2, 3});
  const std::vector<float> g = grad(sum(x * cast(cast(x, DType::fp8_e4m3), DType::f32)), x).to_vector<float>();
  EXPECT_EQ(g, (std::vector<float>{1, 2, 3}));
}

INSTANTIATE_TEST_SUITE_P(Devices, StorageTypes, ::testing::Values("cpu", "webgpu:0"),
                         [](const auto& info) { return std::string(info.param).substr(0, 3); });

}  // namespace
}  // namespace weft
