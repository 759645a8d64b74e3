// Soft choices: draws from a softmax that carry gradients, and soft assignment to learnt centres.
#pragma once

#include <string>

#include "weft/nn/module.hpp"
#include "weft/ops/softmaxes.hpp"

namespace weft::nn {

/// weft::gumbel_softmax with noise drawn from the generator that `manual_seed` seeds.
Tensor gumbel_softmax(const Tensor& x, double temperature = 1, bool hard = false, int axis = -1,
                      Where where = Where::current());

/// Soft assignment of each row to K centres, or with `features` the centres weighted by it. Parameter: centres [K, I], normal
/// with deviation 1. Shapes: x [N, I] -> [N, K], or [N, I].
class KMeans : public Module {
 public:
  KMeans(Extent inputs, Extent centres, double temperature = 1, bool features = false);
  Tensor operator()(const Tensor& x, Where where = Where::current()) const;
  const Parameter& centres() const { return centres_; }
  std::string describe() const override;

 private:
  double temperature_;
  bool features_;
  Parameter centres_;
};

}  // namespace weft::nn
