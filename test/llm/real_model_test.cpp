// A real model, SmolLM2-135M-Instruct in Q4_1, against an exact evaluation of its de-quantised weights in f64. Needs the
// file (script/setup --model), and is skipped without it.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>

#include "base/threads.hpp"
#include "io/tensor_source.hpp"
#include "weft/llm.hpp"

namespace weft::llm {
namespace {

std::filesystem::path model_file() {
  if (const char* path = std::getenv("WEFT_TEST_MODEL")) return path;
  return std::filesystem::path(WEFT_TEST_CACHE) / "data" / "SmolLM2-135M-Instruct.Q4_1.gguf";
}

/// Rows of doubles.
struct Rows {
  std::size_t count = 0, width = 0;
  std::vector<double> values;
  Rows(std::size_t count, std::size_t width) : count(count), width(width), values(count * width, 0.0) {}
  double* at(std::size_t row) { return values.data() + row * width; }
  const double* at(std::size_t row) const { return values.data() + row * width; }
};

/// The Llama architecture with its numbers for this model, written out.
class ExactSmolLM2 {
 public:
  explicit ExactSmolLM2(const std::filesystem::path& path) : source_(io::TensorSource::open(path)) {}

  Rows logits(std::span<const std::int32_t> tokens) {
    const std::size_t count = tokens.size();
    const std::vector<float> table = source_.read_f32("token_embd.weight");
    Rows x(count, 576);
    for (std::size_t t = 0; t < count; ++t) std::copy_n(table.begin() + tokens[t] * 576, 576, x.at(t));
    for (int layer = 0; layer < 30; ++layer) {
      const std::string l = "blk." + std::to_string(layer) + ".";
      const Rows h = norm(x, l + "attn_norm.weight");
      Rows q = times(h, l + "attn_q.weight", 576), k = times(h, l + "attn_k.weight", 192);
      const Rows v = times(h, l + "attn_v.weight", 192);
      for (Rows* r : {&q, &k})
        for (std::size_t t = 0; t < count; ++t)
          for (std::size_t i = 0; i < r->width; i += 2) {
            const double angle = static_cast<double>(t) * std::pow(100000.0, -static_cast<double>(i % 64) / 64);
            double &a = r->at(t)[i], &b = r->at(t)[i + 1];
            const double turned = a * std::cos(angle) - b * std::sin(angle);
            b = b * std::cos(angle) + a * std::sin(angle);
            a = turned;
          }
      Rows mixed(count, 576);
      for (std::size_t t = 0; t < count; ++t)
        for (std::size_t head = 0; head < 9; ++head) {
          std::vector<double> weights;
          double total = 0;
          for (std::size_t j = 0; j <= t; ++j) {
            double dot = 0;
            for (std::size_t c = 0; c < 64; ++c) dot += q.at(t)[head * 64 + c] * k.at(j)[head / 3 * 64 + c];
            weights.push_back(std::exp(dot / 8));
            total += weights.back();
          }
          for (std::size_t j = 0; j <= t; ++j)
            for (std::size_t c = 0; c < 64; ++c)
              mixed.at(t)[head * 64 + c] += weights[j] / total * v.at(j)[head / 3 * 64 + c];
        }
      add(x, times(mixed, l + "attn_output.weight", 576));
      const Rows m = norm(x, l + "ffn_norm.weight");
      Rows gate = times(m, l + "ffn_gate.weight", 1536);
      const Rows up = times(m, l + "ffn_up.weight", 1536);
      for (std::size_t i = 0; i < gate.values.size(); ++i)
        gate.values[i] *= up.values[i] / (1 + std::exp(-gate.values[i]));
      add(x, times(gate, l + "ffn_down.weight", 576));
    }
    return times(norm(x, "output_norm.weight"), "token_embd.weight", 49152);
  }

 private:
  static void add(Rows& x, const Rows& y) {
    for (std::size_t i = 0; i < x.values.size(); ++i) x.values[i] += y.values[i];
  }
  Rows norm(const Rows& x, const std::string& name) {
    const std::vector<float> weight = source_.read_f32(name);
    Rows y(x.count, x.width);
    for (std::size_t t = 0; t < x.count; ++t) {
      double squares = 0;
      for (std::size_t i = 0; i < x.width; ++i) squares += x.at(t)[i] * x.at(t)[i];
      const double factor = 1 / std::sqrt(squares / static_cast<double>(x.width) + 9.999999747378752e-06);
      for (std::size_t i = 0; i < x.width; ++i) y.at(t)[i] = x.at(t)[i] * factor * weight[i];
    }
    return y;
  }
  /// x W^T, W [rows, width of x].
  Rows times(const Rows& x, const std::string& name, std::size_t rows) {
    const std::vector<float> weight = source_.read_f32(name);
    Rows y(x.count, rows);
    constexpr std::size_t kRows = 64;
    parallel_for(static_cast<std::int64_t>((rows + kRows - 1) / kRows), [&](std::int64_t task) {
      const std::size_t first = static_cast<std::size_t>(task) * kRows;
      for (std::size_t o = first; o < std::min(first + kRows, rows); ++o) {
        const float* w = weight.data() + o * x.width;
        for (std::size_t t = 0; t < x.count; ++t) {
          double sums[8] = {};
          const double* row = x.at(t);
          for (std::size_t i = 0; i < x.width; i += 8)
            for (std::size_t j = 0; j < 8; ++j) sums[j] += row[i + j] * w[i + j];
          y.at(t)[o] = ((sums[0] + sums[1]) + (sums[2] + sums[3])) + ((sums[4] + sums[5]) + (sums[6] + sums[7]));
        }
      }
    });
    return y;
  }
  io::TensorSource source_;
};

std::string prose() {
  std::ifstream file(std::filesystem::path(WEFT_TEST_PROSE));
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

TEST(RealModel, LogitsFollowTheExactEvaluation) {
  if (!std::filesystem::exists(model_file())) GTEST_SKIP() << "no model; run script/setup --model";
  const char* asked = std::getenv("WEFT_TEST_PROMPTS");
  const std::size_t prompts = asked ? std::strtoul(asked, nullptr, 10) : 10;
  ExactSmolLM2 exact(model_file());
  const Model plain = load(model_file(), {.context = 128, .exact = true, .device = kCpu});
  const Model rounded = load(model_file(), {.context = 128, .device = kCpu});
  const std::vector<std::int32_t> tokens = plain.encode(prose(), false);
  ASSERT_GE(tokens.size(), prompts * 160 + 64);
  double squares[2] = {}, count = 0;
  int same_best[2] = {};
  for (std::size_t p = 0; p < prompts; ++p) {
    const auto part = std::span(tokens).subspan(p * 160, 64);
    const Rows wanted = exact.logits(part);
    const Model* models[] = {&plain, &rounded};
    for (std::size_t m = 0; m < 2; ++m) {
      const std::vector<float> got = models[m]->forward(part);
      ASSERT_EQ(got.size(), wanted.values.size());
      for (std::size_t i = 0; i < got.size(); ++i)
        squares[m] += (got[i] - wanted.values[i]) * (got[i] - wanted.values[i]);
      for (std::size_t t = 0; t < 64; ++t)
        same_best[m] += std::max_element(got.begin() + static_cast<std::ptrdiff_t>(t * 49152),
                                         got.begin() + static_cast<std::ptrdiff_t>((t + 1) * 49152)) -
                            (got.begin() + static_cast<std::ptrdiff_t>(t * 49152)) ==
                        std::max_element(wanted.at(t), wanted.at(t) + 49152) - wanted.at(t);
    }
    count += static_cast<double>(wanted.values.size());
  }
  const double plain_rms = std::sqrt(squares[0] / count), rounded_rms = std::sqrt(squares[1] / count);
  RecordProperty("rms_f32_activations", std::to_string(plain_rms));
  RecordProperty("rms_8_bit_activations", std::to_string(rounded_rms));
  std::printf(
      "rms difference of logits over %zu prompts of 64 tokens: %.5f with f32 activations, %.5f with 8 bits; "
      "same best token %d and %d of %zu\n",
      prompts, plain_rms, rounded_rms, same_best[0], same_best[1], prompts * 64);
  EXPECT_LE(plain_rms, 0.02);
  EXPECT_LE(rounded_rms, 0.212);  // how far llama.cpp is off over the same ten; of two, either may be further off
}

TEST(RealModel, ChatsAndStopsAtTheEndOfItsTurn) {
  if (!std::filesystem::exists(model_file())) GTEST_SKIP() << "no model; run script/setup --model";
  const Model model = load(model_file(), {.context = 256, .exact = true, .device = kCpu});
  const GenerateOptions greedy{.max_tokens = 40, .sampling = {.temperature = 0}};
  Generation g = model.chat({{"user", "What is the capital of France? Answer in one short sentence."}}, greedy);
  const Result first = g.result();
  EXPECT_NE(first.text.find("Paris"), std::string::npos) << first.text;
  EXPECT_EQ(first.finish, Finish::end_of_text);
  EXPECT_EQ(first.text.find("<|"), std::string::npos) << first.text;
}

}  // namespace
}  // namespace weft::llm
