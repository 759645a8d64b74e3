// CTC against the sum over all alignments, and losses of several labels against a loop.
#include "weft/nn/label_losses.hpp"

#include <gtest/gtest.h>

#include <cmath>

#include "base/message_of.hpp"
#include "weft/weft.hpp"

namespace weft::nn {
namespace {

using test::message_of;

/// The sum over all paths of T classes that become `labels` once repeats and blanks are taken out.
double by_all_paths(const std::vector<double>& p, int steps, int classes, const std::vector<int>& labels) {
  double sum = 0;
  std::vector<int> path(static_cast<std::size_t>(steps), 0);
  while (true) {
    std::vector<int> read;
    double product = 1;
    for (int t = 0; t < steps; ++t) {
      const int c = path[static_cast<std::size_t>(t)];
      product *= std::exp(p[static_cast<std::size_t>(t * classes + c)]);
      if (c != 0 && (t == 0 || path[static_cast<std::size_t>(t - 1)] != c)) read.push_back(c);
    }
    if (read == labels) sum += product;
    int t = 0;
    while (t < steps && ++path[static_cast<std::size_t>(t)] == classes) path[static_cast<std::size_t>(t++)] = 0;
    if (t == steps) return -std::log(sum);
  }
}

TEST(Ctc, IsTheSumOverAllAlignments) {
  manual_seed(2);
  for (const std::vector<int>& labels : {std::vector<int>{1, 2}, {1, 1}, {2}, {}}) {
    const Tensor p = log_softmax(randn({5, 1, 3}, 0, 1, DType::f64), -1).eval();
    std::vector<std::int32_t> targets(labels.begin(), labels.end());
    targets.resize(2, 2);
    const Tensor loss =
        ctc(p, tensor<std::int32_t>(targets, {1, 2}), tensor<std::int32_t>({5}, {1}),
            tensor<std::int32_t>({static_cast<std::int32_t>(labels.size())}, {1}), {.reduction = Reduction::none});
    EXPECT_NEAR(loss.to_vector<double>()[0], by_all_paths(p.to_vector<double>(), 5, 3, labels), 1e-9) << labels.size();
  }
}

TEST(Ctc, GradientsAgreeWithDifferencesToSecondOrder) {
  manual_seed(4);
  const Tensor p = log_softmax(randn({4, 2, 3}, 0, 1, DType::f64), -1).eval();
  const Tensor targets = tensor<std::int32_t>({1, 2, 1, 1}, {2, 2}), steps = tensor<std::int32_t>({4, 3}, {2}),
               lengths = tensor<std::int32_t>({2, 1}, {2});
  const auto report =
      gradcheck([&](std::span<const Tensor> in) { return std::vector<Tensor>{ctc(in[0], targets, steps, lengths)}; },
                {p}, {.second_order = true});
  EXPECT_TRUE(report) << report.message;
}

TEST(Ctc, LabelsThatDoNotFitAreInfiniteOrZero) {
  const Tensor p = log_softmax(zeros({2, 1, 3}), -1);  // "11" needs a blank between: three steps
  const auto with = [&](bool zero) {
    return ctc(p, tensor<std::int32_t>({1, 1}, {1, 2}), tensor<std::int32_t>({2}, {1}), tensor<std::int32_t>({2}, {1}),
               {.zero_infinity = zero, .reduction = Reduction::sum});
  };
  EXPECT_EQ(with(false).item<float>(), INFINITY);
  EXPECT_EQ(with(true).item<float>(), 0);
  for (const float g : grad(with(true), p).to_vector<float>()) EXPECT_EQ(g, 0);
}

TEST(MultilabelMargin, IsTheSumOverLabelsAndOtherClasses) {
  const std::vector<float> x = {0.1f, 0.2f, 0.4f, 0.8f};
  const Tensor loss = multilabel_margin(tensor<float>(x, {1, 4}), tensor<std::int32_t>({3, 0, -1, 1}, {1, 4}));
  const double wanted = ((1 - (0.8 - 0.2)) + (1 - (0.8 - 0.4)) + (1 - (0.1 - 0.2)) + (1 - (0.1 - 0.4))) / 4;
  EXPECT_NEAR(loss.item<float>(), wanted, 1e-6);
}

TEST(LabelLosses, MistakesAreNamed) {
  EXPECT_NE(message_of<UsageError>([] {
              const Tensor one = ones({1}, DType::i32);
              (void)ctc(zeros({2, 1, 3}), ones({1, 1}, DType::i32), one, one, {.blank = 3});
            }).find("the blank 3 is not a class"),
            std::string::npos);
}

}  // namespace
}  // namespace weft::nn
