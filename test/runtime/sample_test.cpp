// The draw of tokens: against a plain reference in f64 that sorts everything, and its rules one by one.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <numeric>

#include "base/philox.hpp"
#include "weft/inference.hpp"

namespace weft {
namespace {

struct Settings {
  float temperature = 1, top_k = 0, typical = 1, top_p = 1, min_p = 0, repetition = 1, frequency = 0, presence = 0,
        log_probability = 0;
};

struct Drawn {
  std::int32_t token;
  float log_probability;
};
Drawn draw(const std::vector<float>& logits, const Settings& s, std::uint32_t position = 0,
           std::vector<std::int32_t> history = {-1}, std::vector<std::int32_t> bias_tokens = {-1},
           std::vector<float> bias = {0}) {
  const auto row = []<class T>(const std::vector<T>& v) {
    return tensor<T>(std::span<const T>(v), {1, static_cast<Extent>(v.size())});
  };
  const std::vector<float> settings = {s.temperature, s.top_k,     s.typical,  s.top_p,          s.min_p,
                                       s.repetition,  s.frequency, s.presence, s.log_probability};
  const auto result = sample_token(row(logits), row(settings), row(history), row(bias_tokens), row(bias),
                                   row(std::vector<std::uint32_t>{11, 22, position, 0}))
                          .to_vector<std::int32_t>();
  return {result[0], std::bit_cast<float>(result[1])};
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

TEST(Sample, DrawsWhatAPlainReferenceDraws) {
  const Settings cases[] = {{},
                            {.temperature = 0.3f},
                            {.top_k = 5},
                            {.top_p = 0.9f},
                            {.min_p = 0.2f},
                            {.typical = 0.6f},
                            {.temperature = 1.5f, .top_k = 40, .top_p = 0.8f, .min_p = 0.05f},
                            {.top_k = 20, .typical = 0.7f, .top_p = 0.9f},
                            {.top_k = 1000}};
  for (const Settings& s : cases)
    for (std::uint32_t position = 0; position < 40; ++position) {
      const auto logits = some_logits(position % 4, 300);
      EXPECT_EQ(draw(logits, s, position).token, reference(logits, s, position))
          << "temperature " << s.temperature << " k " << s.top_k << " p " << s.top_p << " position " << position;
    }
}

TEST(Sample, FrequenciesFollowProbabilities) {
  const std::vector<float> logits = {std::log(0.5f), std::log(0.3f), std::log(0.2f)};
  int counts[3] = {};
  for (std::uint32_t position = 0; position < 3000; ++position) ++counts[draw(logits, {}, position).token];
  const double wanted[] = {1500, 900, 600};
  double chi = 0;
  for (int i = 0; i < 3; ++i) chi += (counts[i] - wanted[i]) * (counts[i] - wanted[i]) / wanted[i];
  EXPECT_LT(chi, 13.8);  // 0.1 % of fair draws exceed it; the seed is fixed
}

TEST(Sample, GreedyTakesTheFirstLargest) {
  EXPECT_EQ(draw({1, 3, 2, 3}, {.temperature = 0}).token, 1);
  EXPECT_EQ(draw({-INFINITY, -INFINITY, -5}, {.temperature = 0}).token, 2);
  EXPECT_EQ(draw({1, NAN, 2}, {}).token, -1);
  EXPECT_EQ(draw({1, INFINITY, 2}, {}).token, 1);
}

TEST(Sample, PenaltiesLowerWhatTheHistoryHolds) {
  const std::vector<float> logits = {4, 3.5f, -1};
  EXPECT_EQ(draw(logits, {.temperature = 0}, 0, {0, 0}).token, 0);
  EXPECT_EQ(draw(logits, {.temperature = 0, .repetition = 1.2f}, 0, {0, -1}).token, 1);
  EXPECT_EQ(draw({-1, -1.5f}, {.temperature = 0, .repetition = 2}, 0, {0}).token, 1);
  EXPECT_EQ(draw(logits, {.temperature = 0, .presence = 0.6f}, 0, {0, 0}).token, 1);
  EXPECT_EQ(draw(logits, {.temperature = 0, .frequency = 0.3f}, 0, {0, -1}).token, 0);
  EXPECT_EQ(draw(logits, {.temperature = 0, .frequency = 0.3f}, 0, {0, 0}).token, 1);
  EXPECT_EQ(draw(logits, {.temperature = 0}, 0, {-1}, {2, -1, 0}, {9, 5, 0.5f}).token, 2);
}

TEST(Sample, LogProbabilityIsThatOfTheModel) {
  const std::vector<float> logits = {1, 2, 0.5f};
  const double total = std::exp(1.0) + std::exp(2.0) + std::exp(0.5);
  const Drawn drawn = draw(logits, {.temperature = 0, .repetition = 9, .log_probability = 1}, 0, {1});
  EXPECT_EQ(drawn.token, 0);
  EXPECT_NEAR(drawn.log_probability, 1 - std::log(total), 1e-6);
  EXPECT_EQ(draw(logits, {.temperature = 0}).log_probability, 0);
}

TEST(Sample, ErrorsNameTheOperand) {
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
