// Mixtures of experts: which experts a router chooses, and what these make of a token.
#pragma once

#include <span>

#include "weft/tensor.hpp"

namespace weft::llm {

/// As the attributes of OpType::experts say.
struct ExpertChoice {
  Extent used = 1;
  bool are_shares = false, is_sigmoid = false;
  Extent groups = 1, groups_used = 1;
  double factor = 1;
};
struct ChosenExperts {
  Tensor numbers;  // i32 [T, used], the best first
  Tensor weights;  // [T, used]
};
/// From a router's logits [T, E]. `correction` [E] counts only where experts are chosen; undefined: there is none.
ChosenExperts choose_experts(const Tensor& logits, const Tensor& correction, const ExpertChoice& choice);

/// A matrix of each expert [E, n, k], of which the first `rows` of n count, and a bias of each [E, rows] or none.
struct Expert {
  Tensor weight, bias;
  Extent rows = 0;
};
/// Low-rank matrices of each expert, A [E, r, k] and B [E, n, r] with its factor, of which the first rows of n count; or none.
struct ExpertChange {
  Tensor a, b;
};
struct MixtureWeights {
  Expert gate, up, down;
  ExpertChange gate_up, down_change;  // of gates, and behind them ups, by one A
  double alpha = 0, limit = 0;        // of the gated unit, if alpha is positive (gpt-oss)
  bool are_plain = false;             // down(max(up x, 0)^2), without gates (Nemotron-H)
  bool are_inputs_weighted = false;   // an expert sees x times its weight, and its result counts as it is (Llama 4)
  bool is_gelu = false;               // of gates, in its form by tanh, instead of SiLU (Gemma 4)
};
/// sum over the chosen experts of weight * down(act(gate x) * up x), for x [T, C]; changes B A x are added to what the products give.
/// Weights and changes are all in blocks, which have no gradients, or plain.
Tensor mixture(const Tensor& x, const ChosenExperts& chosen, const MixtureWeights& weights, bool exact);

/// E sum_e f_e P_e over all tokens of all routers: f_e is the mean number of times that a token chooses expert e among its `used` best
/// logits, P_e the mean of softmax(logits)_e. It is smallest, `used`, where the experts have equal shares.
/// Shapes    logits of each router [T, E], counted [T]: 1 for tokens that count, else 0 -> a scalar in f32
/// Gradient  through P alone
/// Source    Fedus, Zoph and Shazeer 2021, arXiv:2101.03961, over several choices and layers as transformers computes it
Tensor balance_loss(std::span<const Tensor> logits, const Tensor& counted, Extent used);

/// x in [-limit, limit].
Tensor clamped(const Tensor& x, double limit);

}  // namespace weft::llm
