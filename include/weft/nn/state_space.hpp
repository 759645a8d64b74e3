// Layers with a selective state space.
#pragma once

#include "weft/nn/layers.hpp"
#include "weft/nn/module.hpp"
#include "weft/ops/state_space.hpp"

namespace weft::nn {

struct Mamba2Options {
  Extent states = 128;     ///< N, of each channel
  Extent head_width = 64;  ///< P, channels that share a rate
  Extent expand = 2;       ///< channels inside, as a multiple of the width
  Extent groups = 1;       ///< G, of heads that share b and c
  Extent kernel = 4;       ///< inputs that the convolution sees
  Extent chunk = 256;      ///< steps that the scan computes at once
  double norm_eps = 1e-5;
  double dt_least = 0.001, dt_most = 0.1;  ///< the first steps are drawn between them, uniform in their logarithm
};

/// What a layer keeps of the steps before.
struct Mamba2State {
  Tensor convolution;  ///< [B, K-1, I + 2 G N]
  Tensor scan;         ///< [B, H, P, N]
};

/// The layer of Mamba-2, with I = expand C channels in H = I / P heads:
///
///   z, xbc, d = in_proj(u);   x, b, c = silu(conv(xbc));   dt = softplus(d + dt_bias)
///   y = state_space_scan(x, dt, -exp(A_log), b, c) + D x;   out_proj(rms_norm(y silu(z)))
///
/// Shapes    u [B, T, C] -> [B, T, C]
/// Parameters  in_proj.weight [2 I + 2 G N + H, C], conv1d.weight [I + 2 G N, 1, K], conv1d.bias, dt_bias, A_log and D [H],
///             norm.weight [I], out_proj.weight [C, I]: the names of Hugging Face's models. Rates are drawn between 1 and 16.
/// Errors    ShapeError for extents below 1, heads that do not divide the channels, or groups that do not divide the heads
/// Source    Dao and Gu 2024, arXiv:2405.21060
class Mamba2 : public Module {
 public:
  explicit Mamba2(Extent width, Mamba2Options options = {});
  /// A sequence from its start; or, with a state, the steps after those that the state has seen, which `state` then has seen too.
  Tensor operator()(const Tensor& u, Mamba2State* state = nullptr, Where where = Where::current()) const;
  std::string describe() const override;

  bool runs_hooks() const override { return false; }

 private:
  // Depthwise; its parameters alone are a module, for their names.
  struct Kernel : Module {
    Kernel(Extent channels, Extent size);
    Parameter weight, bias;
  };
  Extent width_;
  Mamba2Options options_;
  Extent inner_, heads_;
  Linear in_, out_;
  Kernel kernel_;
  RMSNorm norm_;
  Parameter dt_bias_, a_log_, d_;
};

}  // namespace weft::nn
