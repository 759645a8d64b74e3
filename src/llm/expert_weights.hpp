// Mixtures of experts: which experts a router chooses, and their gated units with limits.
#pragma once

#include "weft/tensor.hpp"

namespace weft::llm {

/// As the attributes of OpType::experts say.
struct ExpertChoice {
  Extent used = 1;
  bool are_shares = false, is_sigmoid = false;
  Extent groups = 1, groups_used = 1;
  double factor = 1;
};

/// The weights of experts [T, E] from a router's logits, zero for those that are not chosen. `correction` [E] counts only where experts
/// are chosen; undefined: there is none.
Tensor expert_weights(const Tensor& logits, const Tensor& correction, const ExpertChoice& choice);

/// x in [-limit, limit].
Tensor clamped(const Tensor& x, double limit);
/// g sigmoid(alpha g) (clamped(up) + 1), with g the gate, at most `limit`.
Tensor clamped_swiglu(const Tensor& gate, const Tensor& up, double alpha, double limit);

}  // namespace weft::llm
