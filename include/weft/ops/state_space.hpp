// Linear recurrences of states whose coefficients depend on the input: selective state spaces (Mamba, Mamba-2) and the gated delta
// rule (Qwen3-Next).
#pragma once

#include "weft/tensor.hpp"

namespace weft {

/// The outputs of all steps, and the state after the last one.
struct StateSpaceScan {
  Tensor output, state;
};

/// The outputs of a convolution, and the inputs that the next step sees.
struct ShortConvolution {
  Tensor output, state;
};

/// A convolution of each channel with the K - 1 inputs before it, which come from `state` where x has none:
///
///   y_t[w] = sum_k weight[w, k] x_{t-K+1+k}[w] + bias[w]
///
/// Shapes    x [B, T, W], weight [W, K], bias [W] or undefined, state [B, K-1, W] or undefined for zeros
///           -> y [B, T, W], state [B, K-1, W]: the last K - 1 inputs
/// Dtypes    floats, of one dtype
/// Errors    ShapeError for operands that do not fit, and for no steps; DTypeError
/// Gradient  of all inputs
[[nodiscard]] ShortConvolution short_convolution(const Tensor& x, const Tensor& weight, const Tensor& bias = {},
                                                 const Tensor& state = {}, Where where = Where::current());

/// Mamba's scan. Each of D channels has N states with rates of their own:
///
///   s_t[d, n] = exp(dt_t[d] a[d, n]) s_{t-1}[d, n] + dt_t[d] x_t[d] b_t[n];   y_t[d] = sum_n s_t[d, n] c_t[n]
///
/// Shapes    x, dt [B, T, D], a [D, N], b, c [B, T, N], state [B, D, N] or undefined for zeros -> y [B, T, D], state [B, D, N]
/// Dtypes    floats, of one dtype
/// Errors    ShapeError for operands that do not fit, and for no steps; DTypeError
/// Gradient  of all inputs. States are kept for every 32nd step on the CPU, for every 8th on a GPU, and computed again in
///           between
/// Source    Gu and Dao 2023, arXiv:2312.00752
[[nodiscard]] StateSpaceScan selective_scan(const Tensor& x, const Tensor& dt, const Tensor& a, const Tensor& b,
                                            const Tensor& c, const Tensor& state = {}, Where where = Where::current());

/// Mamba-2's scan. Each of H heads of P channels has one rate and P N states; neighbouring heads share the b and c of a group:
///
///   s_t[h] = exp(dt_t[h] a[h]) s_{t-1}[h] + dt_t[h] x_t[h] b_t[g]^T;   y_t[h] = s_t[h] c_t[g],   g = h G / H
///
/// Where a device has no kernel (the types of 16 bits, gradients on a GPU), steps are taken in chunks of `chunk`. Within a chunk this
/// is attention without a softmax, [chunk, chunk] scores a head; between chunks only states are carried. The chunk changes the order of
/// sums, not what is computed.
///
/// Shapes    x [B, T, H, P], dt [B, T, H], a [H], b, c [B, T, G, N], state [B, H, P, N] or undefined for zeros
///           -> y [B, T, H, P], state [B, H, P, N]
/// Dtypes    floats, of one dtype
/// Errors    ShapeError for operands that do not fit, G that does not divide H, and no steps; UsageError for a chunk below 1
/// Gradient  of all inputs
/// Source    Dao and Gu 2024, arXiv:2405.21060
[[nodiscard]] StateSpaceScan state_space_scan(const Tensor& x, const Tensor& dt, const Tensor& a, const Tensor& b,
                                              const Tensor& c, const Tensor& state = {}, Extent chunk = 256,
                                              Where where = Where::current());

/// The gated delta rule. Each of H heads has a state of K keys and V columns. A step keeps a part of it, and moves what the state gives
/// for its key towards its value; neighbouring heads share the q and k of a group:
///
///   u_t[h] = beta_t[h] (v_t[h] - exp(decay_t[h]) s_{t-1}[h]^T k_t[g]);   s_t[h] = exp(decay_t[h]) s_{t-1}[h] + k_t[g] u_t[h]^T
///   y_t[h] = s_t[h]^T q_t[g],   g = h G / H
///
/// Where a device has no kernel (the types of 16 bits, gradients), steps are taken in chunks of `chunk`: products, and the solution of
/// a triangular system of that size. The chunk changes the order of sums, not what is computed.
///
/// Shapes    q, k [B, T, G, K], v [B, T, H, V], decay, beta [B, T, H], state [B, H, K, V] or undefined for zeros
///           -> y [B, T, H, V], state [B, H, K, V]
/// Dtypes    floats, of one dtype
/// Errors    ShapeError for operands that do not fit, G that does not divide H, and no steps; UsageError for a chunk below 1
/// Gradient  of all inputs
/// Source    Yang et al. 2024, arXiv:2412.06464
[[nodiscard]] StateSpaceScan gated_delta_rule(const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& decay,
                                              const Tensor& beta, const Tensor& state = {}, Extent chunk = 64,
                                              Where where = Where::current());

}  // namespace weft
