// Running sums and products of floats of each instruction set, beside a scan in f64 one element after another.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "backend/cpu/isa.hpp"
#include "backend/cpu/loop/tile.hpp"
#include "backend/cpu/run_writer.hpp"

namespace weft::cpu {
namespace {

struct ScanCase {
  bool is_product, exclusive, reverse, streams;
  std::int64_t shift;  // of the result from a cache line
};

void check_scan(Isa isa, const ScanCase& c, const std::vector<float>& x, double carry) {
  const TileTable& table = tile_table(isa);
  const ScanParts& parts =
      (c.is_product ? table.running_product : table.running_sum)[static_cast<std::size_t>(DType::f32)];
  if (c.streams && !parts.streams) return;
  constexpr float kUntouched = 12345;
  const auto count = static_cast<std::int64_t>(x.size());
  std::vector<float> memory(x.size() + 64, kUntouched);
  const auto to_line = static_cast<std::int64_t>((0 - reinterpret_cast<std::uintptr_t>(memory.data())) / 4 % 16);
  float* const y = memory.data() + 16 + to_line + c.shift;
  double total = carry;
  parts.run[c.exclusive][c.reverse](x.data(), x.data(), y, count, &total, c.streams);
  fence_streams();
  double expected = carry;
  for (std::int64_t i = 0; i < count; ++i) {
    const auto at = static_cast<std::size_t>(c.reverse ? count - 1 - i : i);
    const double next = c.is_product ? expected * double{x[at]} : expected + double{x[at]};
    const auto want = static_cast<float>(c.exclusive ? expected : next);
    if (std::isnan(want))
      ASSERT_TRUE(std::isnan(y[at])) << i << " of " << count;
    else
      ASSERT_TRUE(y[at] == want || y[at] == std::nextafter(want, y[at]))
          << i << " of " << count << ": " << y[at] << " " << want;
    expected = next;
  }
  if (std::isnan(expected))
    ASSERT_TRUE(std::isnan(total));
  else
    ASSERT_TRUE(total == expected || std::fabs(total - expected) <= 1e-12 * std::fabs(expected) + 1e-12)
        << total << " " << expected;
  for (const float& f : memory)
    if (&f < y || &f >= y + count) {
      ASSERT_EQ(f, kUntouched) << "beside the result, at " << &f - y;
    }
}

TEST(Scans, OfFloats) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  std::mt19937 random(1);
  std::normal_distribution<float> normal;
  for (const Isa isa : {Isa::baseline, Isa::avx2, Isa::avx512}) {
    if (isa > best_isa()) continue;
    for (const std::int64_t count : {0, 1, 7, 31, 32, 33, 64, 95, 128, 159, 200, 300, 1000})
      for (int options = 0; options < 16; ++options)
        for (const std::int64_t shift : {0, 1, 15}) {
          const ScanCase c{(options & 1) != 0, (options & 2) != 0, (options & 4) != 0, (options & 8) != 0, shift};
          std::vector<float> x(static_cast<std::size_t>(count));
          for (float& f : x) f = normal(random);
          check_scan(isa, c, x, c.is_product ? 1.5 : -3);
          if (count < 30) continue;
          // Numbers that products leave the range of a double with, and numbers that are none.
          for (const float special : {0.0f, 3e38f, 1e-38f, 1e-45f, -0.0f, kInfinity, -kInfinity, std::nanf("")}) {
            std::vector<float> changed = x;
            changed[x.size() / 2] = special;
            check_scan(isa, c, changed, c.is_product ? 1.5 : -3);
            for (std::size_t i = x.size() / 3; i < x.size(); i += 2) changed[i] = special;
            check_scan(isa, c, changed, c.is_product ? 1.5 : -3);
            if (HasFatalFailure())
              FAIL() << name(isa) << ", options " << options << ", shift " << shift << ", special " << special;
          }
          // Zeros at both ends of 32 numbers whose products leave the range of a double, and at both ends of the line.
          for (std::size_t i = 0; i < x.size(); ++i) x[i] = i % 32 == 0 || i % 32 == 31 ? 0 : 3e38f;
          x.back() = 0;
          check_scan(isa, c, x, c.is_product ? 1.5 : -3);
          if (HasFatalFailure()) FAIL() << name(isa) << ", options " << options << ", shift " << shift;
        }
  }
}

TEST(Scans, OfFloatsSideBySide) {
  std::mt19937 random(3);
  std::normal_distribution<float> normal;
  for (const Isa isa : {Isa::baseline, Isa::avx2, Isa::avx512}) {
    if (isa > best_isa()) continue;
    for (const bool is_product : {false, true}) {
      const TileTable& table = tile_table(isa);
      const ScanParts& parts =
          (is_product ? table.running_product : table.running_sum)[static_cast<std::size_t>(DType::f32)];
      for (const bool exclusive : {false, true})
        for (const bool streams : {false, true})
          for (const std::size_t count : {0u, 1u, 15u, 16u, 50u, 64u})
            for (const std::size_t shift : {0u, 1u}) {
              if (streams && !parts.streams) continue;
              std::vector<float> x(count + 1), memory(count + 64, -77);
              std::vector<double> totals(count), expected(count);
              for (float& f : x) f = normal(random);
              for (std::size_t c = 0; c < count; ++c) expected[c] = totals[c] = 1.25 * static_cast<double>(c);
              float* const y = memory.data() + (0 - reinterpret_cast<std::uintptr_t>(memory.data())) / 4 % 16 + shift;
              parts.step[exclusive](x.data(), x.data(), y, static_cast<std::int64_t>(count), totals.data(), streams);
              fence_streams();
              for (std::size_t c = 0; c < count; ++c) {
                const double next = is_product ? expected[c] * double{x[c]} : expected[c] + double{x[c]};
                ASSERT_EQ(totals[c], next) << c << " of " << count;
                ASSERT_EQ(y[c], static_cast<float>(exclusive ? expected[c] : next)) << c << " of " << count;
              }
              for (const float& f : memory)
                if (&f < y || &f >= y + count) {
                  ASSERT_EQ(f, -77);
                }
            }
    }
  }
}

TEST(Scans, ExtremesWithPositions) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity(), kNaN = std::numeric_limits<float>::quiet_NaN();
  std::mt19937 random(2);
  for (const Isa isa : {Isa::baseline, Isa::avx2, Isa::avx512}) {
    if (isa > best_isa()) continue;
    for (const bool is_largest : {false, true}) {
      const ExtremeFunction run = is_largest ? tile_table(isa).running_max : tile_table(isa).running_min;
      if (run == nullptr) continue;
      for (const std::int64_t count : {0, 1, 15, 16, 17, 100, 1000})
        for (const std::int64_t shift : {0, 1, 15})
          for (const bool streams : {false, true})
            for (const int kind : {0, 1, 2, 3}) {
              // Few different numbers, so that many are equal; some NaN; infinities at first; positions that begin elsewhere.
              std::vector<float> x(static_cast<std::size_t>(count));
              for (float& f : x) f = static_cast<float>(random() % (kind == 0 ? 5 : 100000));
              if (kind == 1)
                for (std::size_t i = x.size() / 2; i < x.size(); i += 7) x[i] = kNaN;
              if (kind == 2 && count > 0) x[0] = is_largest ? -kInfinity : kInfinity;
              constexpr std::int64_t kBeside = 32;
              std::vector<float> values(x.size() + 2 * kBeside, -77);
              std::vector<std::int32_t> positions(x.size() + 2 * kBeside, -77);
              const auto place = [&](auto& memory) {
                return memory.data() + (0 - reinterpret_cast<std::uintptr_t>(memory.data())) / 4 % 16 + shift;
              };
              ExtremeRun one{x.data(), place(values), place(positions), count, streams, kind == 3 ? 500 : 0};
              run(one);
              fence_streams();
              float value = 0;
              std::int32_t position = -1;
              for (std::int64_t i = 0; i < count; ++i) {
                const float at = x[static_cast<std::size_t>(i)];
                if (position < 0 || at != at || (is_largest ? at >= value : at <= value))
                  value = at, position = static_cast<std::int32_t>(i + one.begin);
                ASSERT_TRUE(one.values[i] == value || (value != value && one.values[i] != one.values[i])) << i;
                ASSERT_EQ(one.positions[i], position) << i << " of " << count << ", kind " << kind;
              }
              ASSERT_EQ(one.position, position);
              for (std::int64_t i = -shift; i < count + kBeside / 2; ++i)
                if (i < 0 || i >= count) {
                  ASSERT_TRUE(one.values[i] == -77 && one.positions[i] == -77) << i;
                }
            }
    }
  }
}

}  // namespace
}  // namespace weft::cpu
