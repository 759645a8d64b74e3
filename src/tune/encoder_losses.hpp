// What text encoders are trained by, and how good they are.
#pragma once

#include <span>
#include <vector>

#include "weft/tune_encoder.hpp"

namespace weft::tune {

/// A loss of rank 0, and what measures are made of, on the device.
struct Scored {
  Tensor loss, scores;
};
/// scores f32 [texts, classes]; targets i32 [texts]. -100 does not count.
Scored class_loss(const Tensor& scores, const Tensor& targets);
/// Targets f32 of the scores' shape, in [0, 1].
Scored label_loss(const Tensor& scores, const Tensor& targets);
/// scores f32 [texts, 1]; targets f32 [texts].
Scored value_loss(const Tensor& scores, const Tensor& targets);
/// rows f32 [(1 + candidates) anchors, width]: the anchors, their positives, and hard negatives. Scores are cosines, [anchors, candidates
/// of all].
Scored ranking_loss(const Tensor& rows, Extent anchors, double scale);
/// rows f32 [2 pairs, width]: first texts, then second ones; targets f32 [pairs]. Scores are cosines, [pairs].
Scored cosine_loss(const Tensor& rows, const Tensor& targets);
Scored cosent_loss(const Tensor& rows, const Tensor& targets, double scale);

/// What is measured of an objective, from the scores of one batch after another.
class Measures {
 public:
  Measures(Objective objective, const std::vector<std::string>& classes) : objective_(objective), classes_(classes) {}
  /// `firsts`: of `tokens` the places of the first tokens of each example's words in its row of `length`; -1: not there.
  void add(std::span<const EncoderExample> examples, double loss, const std::vector<float>& scores,
           const std::vector<std::vector<std::int32_t>>& firsts, Extent length);
  Measured result() const;

 private:
  struct Counts {
    double right = 0, made = 0, wanted = 0;
  };
  void add_words(const EncoderExample& example, const std::vector<std::int32_t>& made);
  void count_class(std::int32_t made, std::int32_t wanted);

  const Objective objective_;
  const std::vector<std::string>& classes_;
  double loss_ = 0, weight_ = 0, right_ = 0, count_ = 0;
  std::vector<Counts> counts_;  // of each class, or one of all
  std::vector<double> values_, wanted_;
};

/// Spearman's correlation of two lists: Pearson's of their ranks, where equal values share the mean of theirs. 0 where a list is constant.
double spearman(std::span<const double> x, std::span<const double> y);

}  // namespace weft::tune
