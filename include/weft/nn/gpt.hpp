// GPT: a decoder-only transformer as in GPT-2 (Radford et al. 2019). Letters: B batch, T positions, C width, H heads,
// D = C / H, V vocabulary.
#pragma once

#include "weft/nn/layers.hpp"

namespace weft::nn {

struct GptConfig {
  Extent vocabulary = 256;
  Extent context = 64;
  Extent layers = 4;
  Extent heads = 4;
  Extent width = 128;
  double dropout = 0;
  bool bias = true;
  /// Whether the head shares its weights with the token embedding.
  bool tied = true;
  /// Deviation of the initial weights. 0: 0.02 * sqrt(768 / width), which is GPT-2's 0.02 at its own width.
  double init_deviation = 0;

  double deviation() const;
  /// Errors  UsageError: an extent below 1, heads that do not divide the width, a dropout outside [0, 1).
  void check() const;
  bool operator==(const GptConfig&) const = default;
};

/// softmax(q k^T / sqrt(D), causal) v for H heads, then a projection. In training, shares of keys are dropped as well as results. One matrix product computes q, k and v, which attention
/// reads as strided views. Shapes: x [B, T, C] -> [B, T, C].
class CausalSelfAttention : public Module {
 public:
  explicit CausalSelfAttention(const GptConfig& config);
  Tensor operator()(const Tensor& x) const;
  std::string describe() const override;
  double own_flops() const override;

 private:
  Extent heads_, width_, context_;
  double dropped_shares_;
  Linear qkv_, output_;
  Dropout dropout_;
};

/// down(gelu_tanh(up(x))), four times as wide inside. Shapes: x [..., C] -> [..., C].
class MLP : public Module {
 public:
  explicit MLP(const GptConfig& config);
  Tensor operator()(const Tensor& x) const;
  std::string describe() const override { return "MLP"; }

 private:
  Linear up_, down_;
  Dropout dropout_;
};

/// x + attention(norm(x)), then x + mlp(norm(x)).
class Block : public Module {
 public:
  explicit Block(const GptConfig& config);
  Tensor operator()(const Tensor& x) const;
  std::string describe() const override { return "Block"; }

 private:
  LayerNorm norm_1_;
  CausalSelfAttention attention_;
  LayerNorm norm_2_;
  MLP mlp_;
};

/// Initial weights are normal with config.deviation(), or 1/sqrt(2 layers) of it for projections into the residual stream.
/// Initial biases are 0.
class GPT : public Module {
 public:
  explicit GPT(const GptConfig& config);
  /// Logits of the next token at every position. Shapes: tokens i32 [B, T], T <= context -> [B, T, V].
  Tensor operator()(const Tensor& tokens, Where where = Where::current()) const;
  /// The input of the head: [B, T, C].
  Tensor hidden(const Tensor& tokens, Where where = Where::current()) const;
  /// Shapes: hidden [..., C] -> [..., V].
  Tensor head(const Tensor& hidden) const;
  /// The parts of `hidden`, for models that are divided over devices: what enters the first block, [B, T] -> [B, T, C]; and x behind
  /// the blocks [first, last). Parameters of parts that are not called are never made.
  Tensor embed(const Tensor& tokens, Where where = Where::current()) const;
  Tensor run_blocks(const Tensor& x, Extent first, Extent last) const;
  /// The mean cross-entropy of the logits of `tokens` to `targets` [B, T], without those that are `ignore_index`:
  /// cross_entropy(model(tokens), targets, ignore_index). Inside an Autocast scope of f16 or bf16 the head is padded with a few
  /// extra classes, so that its rows fill whole vectors. Their logits are -infinity, so the loss and its gradients stay the same.
  /// A target outside the vocabulary may then give infinity or NaN.
  Tensor loss(const Tensor& tokens, const Tensor& targets, int ignore_index = -100,
              Where where = Where::current()) const;
  /// The same from what the last block gives.
  Tensor loss_behind_blocks(const Tensor& x, const Tensor& targets, int ignore_index = -100,
                            Where where = Where::current()) const;
  const GptConfig& config() const { return config_; }
  /// Whether gradients compute what is inside of blocks again (weft::checkpoint), so that training keeps one value of
  /// [B, T, C] a block.
  void set_recompute(bool recompute) { recompute_ = recompute; }
  std::string describe() const override;
  double own_flops() const override;
  /// Floating-point operations of a training step for each token: three times those of the forward pass.
  double training_flops_per_token() const;

 private:
  /// The loss of logits whose classes are padded.
  Tensor padded_loss(const Tensor& hidden, const Tensor& targets, int ignore_index, Where where) const;
  bool pads_head() const;

  GptConfig config_;
  Embedding token_embedding_, position_embedding_;
  Dropout dropout_;
  ModuleList<Block> blocks_;
  LayerNorm norm_;
  std::optional<Linear> head_;
  bool recompute_ = false;
};

}  // namespace weft::nn
