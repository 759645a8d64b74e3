// The draw of tokens on the CPU and on lavapipe: against a plain reference in f64 that sorts everything, its rules one by
// one, and one device against the other.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdlib>
#include <numeric>

#include "base/philox.hpp"
#include "runtime/open_device.hpp"
#include "weft/compile.hpp"
#include "weft/inference.hpp"

namespace weft {
namespace {

/// Each test runs on each of these devices.
class Sample : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override { test::open_device(GetParam(), device_); }
  Device device_ = kCpu;
};
INSTANTIATE_TEST_SUITE_P(, Sample, testing::Values("cpu", "webgpu:0"));

struct Settings {
  float temperature = 1, top_k = 0, typical = 1, top_p = 1, min_p = 0, repetition = 1, frequency = 0, presence = 0,
        log_probability = 0;
};

struct Drawn {
  std::int32_t token;
  float log_probability;
};
/// Rows that are drawn together; what all share comes once.
struct Rows {
  std::vector<std::vector<float>> logits;
  std::vector<Settings> settings;
  std::vector<std::int32_t> history = {-1}, bias_tokens = {-1};
  std::vector<float> bias = {0};
  std::uint32_t position = 0;  // of the first; the others follow
};

// Shorter rows become as long, so that all of them are drawn from by one program: drivers take seconds to compile it.
constexpr std::size_t kSmallVocabulary = 300;

std::vector<Drawn> draw(const Rows& rows, Device device) {
  const auto count = static_cast<Extent>(rows.logits.size());
  const auto of = [&]<class T>(const std::vector<T>& values) {
    return tensor_from_bytes(values.data(), {count, static_cast<Extent>(values.size()) / count}, dtype_of<T>, device);
  };
  const auto repeated = [&]<class T>(const std::vector<T>& values) {
    std::vector<T> all;
    for (Extent i = 0; i < count; ++i) all.insert(all.end(), values.begin(), values.end());
    return of(all);
  };
  std::vector<float> logits, settings;
  std::vector<std::uint32_t> state;
  for (std::size_t i = 0; i < rows.logits.size(); ++i) {
    logits.insert(logits.end(), rows.logits[i].begin(), rows.logits[i].end());
    if (logits.size() < (i + 1) * kSmallVocabulary) logits.resize((i + 1) * kSmallVocabulary, -INFINITY);
    const Settings& s = rows.settings[i % rows.settings.size()];
    settings.insert(settings.end(), {s.temperature, s.top_k, s.typical, s.top_p, s.min_p, s.repetition, s.frequency,
                                     s.presence, s.log_probability});
    state.insert(state.end(), {11, 22, rows.position + static_cast<std::uint32_t>(i), 0});
  }
  const auto result = sample_token(of(logits), of(settings), repeated(rows.history), repeated(rows.bias_tokens),
                                   repeated(rows.bias), of(state))
                          .to_vector<std::int32_t>();
  std::vector<Drawn> drawn;
  for (std::size_t i = 0; i < rows.logits.size(); ++i)
    drawn.push_back({result[2 * i], std::bit_cast<float>(result[2 * i + 1])});
  return drawn;
}

std::vector<float> some_logits(std::uint32_t stream, int count) {
  std::vector<float> logits;
  for (int i = 0; i < count; ++i)
    logits.push_back(8 *
                     philox::to_unit_float(philox::block({3, stream}, {static_cast<std::uint32_t>(i), 0, 0, 0})[0]));
  return logits;
}

/// Every filter on a list sorted by probability.
std::int32_t reference(const std::vector<float>& logits, const Settings& s, std::uint32_t position) {
  std::vector<std::pair<double, std::int32_t>> p;
  const double top = *std::max_element(logits.begin(), logits.end());
  for (std::size_t i = 0; i < logits.size(); ++i)
    p.emplace_back(std::exp((logits[i] - top) / s.temperature), static_cast<std::int32_t>(i));
  const auto best_first = [](const auto& x, const auto& y) {
    return x.first != y.first ? x.first > y.first : x.second < y.second;
  };
  std::sort(p.begin(), p.end(), best_first);
  const auto mass = [&] {
    return std::accumulate(p.begin(), p.end(), 0.0, [](double sum, auto& x) { return sum + x.first; });
  };
  const auto keep_mass = [&](double share) {
    const double goal = share * mass();
    double sum = 0;
    std::size_t count = 0;
    while (count < p.size() && (count == 0 || sum < goal)) sum += p[count++].first;
    p.resize(count);
  };
  if (s.top_k > 0) p.resize(std::min(p.size(), static_cast<std::size_t>(s.top_k)));
  if (s.typical < 1) {
    const double total = mass();
    double entropy = 0;
    for (const auto& x : p) entropy -= x.first / total * std::log(x.first / total);
    std::sort(p.begin(), p.end(), [&](const auto& x, const auto& y) {
      return std::abs(-std::log(x.first / total) - entropy) < std::abs(-std::log(y.first / total) - entropy);
    });
    keep_mass(s.typical);
    std::sort(p.begin(), p.end(), best_first);
  }
  if (s.top_p < 1) keep_mass(s.top_p);
  if (s.min_p > 0) std::erase_if(p, [least = s.min_p * p[0].first](const auto& x) { return x.first < least; });
  if (s.top_k <= 0 && s.typical >= 1 && s.top_p >= 1)  // nothing ranks: by id
    std::sort(p.begin(), p.end(), [](const auto& x, const auto& y) { return x.second < y.second; });
  const auto words = philox::block({11, 22}, {position, 0, 0, static_cast<std::uint32_t>(philox::Use::sampling)});
  const double goal = philox::to_unit_double(words[0], words[1]) * mass();
  double sum = 0;
  for (const auto& x : p)
    if (goal < (sum += x.first)) return x.second;
  return p.back().second;
}

TEST_P(Sample, DrawsWhatAPlainReferenceDraws) {
  const Settings cases[] = {{},
                            {.temperature = 0.3f},
                            {.top_k = 5},
                            {.top_p = 0.9f},
                            {.min_p = 0.2f},
                            {.min_p = 1},
                            {.typical = 0.6f},
                            {.temperature = 1.5f, .top_k = 40, .top_p = 0.8f, .min_p = 0.05f},
                            {.top_k = 20, .typical = 0.7f, .top_p = 0.9f},
                            {.top_k = 1000},
                            {.typical = 0.2f, .top_p = 0, .min_p = 0.5f}};
  for (const Settings& s : cases) {
    Rows rows{.settings = {s}};
    for (std::uint32_t position = 0; position < 40; ++position) rows.logits.push_back(some_logits(position % 4, 300));
    const std::vector<Drawn> drawn = draw(rows, device_);
    for (std::uint32_t position = 0; position < 40; ++position)
      EXPECT_EQ(drawn[position].token, reference(rows.logits[position], s, position))
          << "temperature " << s.temperature << " k " << s.top_k << " p " << s.top_p << " position " << position;
  }
}

TEST_P(Sample, FrequenciesFollowProbabilities) {
  const std::vector<float> probabilities = {0.5f, 0.3f, 0.2f};
  Rows rows{.settings = {{}}};
  rows.logits.assign(3000, {std::log(0.5f), std::log(0.3f), std::log(0.2f)});
  int counts[3] = {};
  for (const Drawn& each : draw(rows, device_)) ++counts[each.token];
  double chi = 0;
  for (std::size_t i = 0; i < 3; ++i) {
    const double wanted = 3000 * static_cast<double>(probabilities[i]);
    chi += (counts[i] - wanted) * (counts[i] - wanted) / wanted;
  }
  EXPECT_LT(chi, 13.8);  // 0.1 % of fair draws exceed it; the seed is fixed
}

TEST_P(Sample, GreedyTakesTheFirstLargest) {
  const auto token = [&](const std::vector<float>& logits, const Settings& s) {
    return draw({{logits}, {s}}, device_)[0].token;
  };
  EXPECT_EQ(token({1, 3, 2, 3}, {.temperature = 0}), 1);
  EXPECT_EQ(token({-1, -0.0f, 0, -2}, {.temperature = 0}), 1);
  EXPECT_EQ(token({-INFINITY, -INFINITY, -5}, {.temperature = 0}), 2);
  EXPECT_EQ(token({-INFINITY, -INFINITY}, {.temperature = 0}), 0);
  EXPECT_EQ(token({-INFINITY, -INFINITY}, {}), 0);
  EXPECT_EQ(token({1, NAN, 2}, {}), -1);
  EXPECT_EQ(token({1, -NAN, 2}, {.temperature = 0, .log_probability = 1}), -1);
  EXPECT_EQ(token({1, INFINITY, 2}, {}), 1);
  std::vector<float> many(49'152, -3);  // over many workgroups
  many[49'150] = many[40'000] = many[40'001] = 2;
  EXPECT_EQ(token(many, {.temperature = 0}), 40'000);
  many[49'151] = NAN;
  EXPECT_EQ(token(many, {.temperature = 0}), -1);
}

TEST_P(Sample, PenaltiesLowerWhatTheHistoryHolds) {
  const auto token = [&](const std::vector<float>& logits, const Settings& s, std::vector<std::int32_t> history,
                         std::vector<std::int32_t> bias_tokens = {-1}, std::vector<float> bias = {0}) {
    return draw({{logits}, {s}, std::move(history), std::move(bias_tokens), std::move(bias)}, device_)[0].token;
  };
  const std::vector<float> logits = {4, 3.5f, -1};
  EXPECT_EQ(token(logits, {.temperature = 0}, {0, 0}), 0);
  EXPECT_EQ(token(logits, {.temperature = 0, .repetition = 1.2f}, {0, -1}), 1);
  EXPECT_EQ(token({-1, -1.5f}, {.temperature = 0, .repetition = 2}, {0}), 1);
  EXPECT_EQ(token(logits, {.temperature = 0, .presence = 0.6f}, {0, 0}), 1);
  EXPECT_EQ(token(logits, {.temperature = 0, .frequency = 0.3f}, {0, -1}), 0);
  EXPECT_EQ(token(logits, {.temperature = 0, .frequency = 0.3f}, {0, 0}), 1);
  EXPECT_EQ(token(logits, {.temperature = 0}, {-1}, {2, -1, 0}, {9, 5, 0.5f}), 2);
  EXPECT_EQ(token(logits, {.temperature = 0}, {-1}, {1, 300, 1}, {0.3f, 99, 0.3f}), 1);  // twice the same; 300 is none
}

TEST_P(Sample, LogProbabilityIsThatOfTheModel) {
  const std::vector<float> logits = {1, 2, 0.5f};
  const double total = std::exp(1.0) + std::exp(2.0) + std::exp(0.5);
  const Rows penalised{{logits}, {{.temperature = 0, .repetition = 9, .log_probability = 1}}, {1}};
  const Drawn drawn = draw(penalised, device_)[0];
  EXPECT_EQ(drawn.token, 0);
  EXPECT_NEAR(drawn.log_probability, 1 - std::log(total), 1e-6);
  EXPECT_EQ(draw({{logits}, {{.temperature = 0}}}, device_)[0].log_probability, 0);
}

/// Rows like those of a model (a few logits stand out), flat ones, rounded ones with many ties, and ones with a single
/// token or a single value.
std::vector<std::vector<float>> rows_of_all_kinds(std::size_t count, int vocabulary, std::uint32_t seed) {
  std::vector<std::vector<float>> rows;
  for (std::uint32_t r = 0; r < count; ++r) {
    std::vector<float> row;
    for (int i = 0; i < vocabulary; ++i) {
      const auto w = philox::block({seed, r}, {static_cast<std::uint32_t>(i), 0, 0, 0});
      const float u = philox::to_unit_float(w[0]), v = philox::to_unit_float(w[1]);
      const float normal = std::sqrt(-2 * std::log(u + 1e-9f)) * std::cos(6.2831853f * v);
      switch (r % 5) {
        case 0: row.push_back(3 * normal + (w[2] % 4096 == 0 ? 9.0f : 0.0f)); break;
        case 1: row.push_back(8 * u - 3); break;
        case 2: row.push_back(std::round(2 * normal) / 2); break;
        case 3: row.push_back(w[2] % 8 == 0 ? -INFINITY : 0.01f * normal); break;
        default: row.push_back(r % 2 == 0 ? 1.5f : i == 5 ? 40.0f : -normal * normal); break;
      }
    }
    rows.push_back(std::move(row));
  }
  return rows;
}

TEST_P(Sample, DrawsWhatTheCpuDraws) {
  if (device_ == kCpu) GTEST_SKIP() << "the CPU is what it is compared with";
  const Settings cases[] = {{.temperature = 0},
                            {.temperature = 0, .repetition = 1.3f, .frequency = 0.1f, .log_probability = 1},
                            {.log_probability = 1},
                            {.temperature = 0.7f},
                            {.min_p = 0.05f},
                            {.temperature = 0.8f, .top_k = 40, .top_p = 0.95f, .min_p = 0.05f, .log_probability = 1},
                            {.top_k = 1},
                            {.temperature = 1.7f, .top_k = 3000},
                            {.top_p = 0.1f},
                            {.temperature = 0.6f, .top_p = 0.95f},
                            {.temperature = 3, .top_p = 0.99f, .repetition = 1.1f, .presence = 0.5f},
                            {.typical = 0.3f},
                            {.temperature = 1.3f, .typical = 0.9f, .top_p = 0.9f},
                            {.temperature = 0.9f, .top_k = 500, .typical = 0.8f, .top_p = 0.9f, .min_p = 0.1f}};
  int all = 0, different = 0;
  for (const int vocabulary : {300, 49'152}) {
    const std::size_t count = vocabulary > 10'000 ? 10 : 20;
    Rows rows{.logits = rows_of_all_kinds(count, vocabulary, 7),
              .history = {3, 9, 3, 16, -1, 300, 4001, 5, 5, 5},
              .bias_tokens = {2, 4999, -1, 2},
              .bias = {0.25f, 1, 7, 0.125f}};
    for (const Settings& s : cases)
      for (std::uint32_t seed = 0; seed < (vocabulary > 10'000 ? 1 : 3); ++seed) {
        rows.settings = {s};
        rows.position = 100 * seed;
        const std::vector<Drawn> got = draw(rows, device_), wanted = draw(rows, kCpu);
        for (std::size_t r = 0; r < count; ++r) {
          SCOPED_TRACE(testing::Message() << vocabulary << " tokens, row " << r << ", temperature " << s.temperature
                                          << ", k " << s.top_k << ", typical " << s.typical << ", p " << s.top_p
                                          << ", min " << s.min_p << ", draw " << rows.position + r);
          ++all;
          if (s.temperature == 0 || s.top_k == 1) {
            EXPECT_EQ(got[r].token, wanted[r].token);
          }
          if (got[r].token != wanted[r].token) {
            ++different;
            continue;
          }
          const float p = wanted[r].log_probability;
          EXPECT_NEAR(got[r].log_probability, p, 1e-5 * std::abs(p) + 1e-9);
        }
      }
  }
  // A border between two tokens may move by a rounding.
  EXPECT_LE(different, all / 200) << "of " << all;
}

TEST_P(Sample, RowsOfABatchKeepToTheirSettings) {
  Rows rows{.logits = rows_of_all_kinds(7, 300, 3),
            .settings = {{.temperature = 0}, {.top_k = 3}, {}, {.typical = 0.5f}, {.min_p = 0.5f}}};
  const std::vector<Drawn> together = draw(rows, device_);
  for (std::size_t r = 0; r < 7; ++r) {
    const Rows alone{
        .logits = {rows.logits[r]}, .settings = {rows.settings[r % 5]}, .position = static_cast<std::uint32_t>(r)};
    EXPECT_EQ(draw(alone, device_)[0].token, together[r].token) << "row " << r;
  }
}

TEST(SampleErrors, NameTheOperand) {
  const Tensor logits = zeros({2, 9}), settings = zeros({2, kSampleSettings}), tokens = zeros({2, 1}, DType::i32),
               bias = zeros({2, 1}), state = zeros({2, 4}, DType::u32);
  try {
    (void)sample_token(logits, zeros({1, kSampleSettings}), tokens, tokens, bias, state);
    FAIL();
  } catch (const ShapeError& error) {
    EXPECT_NE(std::string(error.what()).find("settings is not one row for each row of logits"), std::string::npos);
  }
  EXPECT_THROW((void)sample_token(logits, settings, tokens, tokens, bias, tokens), DTypeError);
  EXPECT_THROW((void)sample_token(logits, settings, tokens, tokens, bias, zeros({2, 3}, DType::u32)), ShapeError);
  EXPECT_THROW((void)sample_token(zeros({2, 0}), settings, tokens, tokens, bias, state), ShapeError);
}

}  // namespace
}  // namespace weft
