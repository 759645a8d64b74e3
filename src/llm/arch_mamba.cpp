// Models whose layers keep a state instead of keys and values: Mamba, Falcon-Mamba and Mamba-2. And what hybrids take of them.
#include <fmt/format.h>

#include "llm/state_layers.hpp"

namespace weft::llm {
namespace {

/// A factor of a part; 1 leaves it as it is.
std::string times(GraphBuilder& b, std::string_view id, const std::string& x, double factor) {
  return factor == 1 ? x : b.unary(id, OpType::scale, x, {{"factor", factor}});
}

/// Jamba's norms of the parts that steps, b and c are made of, and those of Falcon-Mamba, which have no weights.
std::string normed_part(GraphBuilder& b, std::string_view id, const std::string& x) {
  if (b.has(fmt::format("{}.weight", id))) return b.rms_norm(id, x);
  const double eps = b.config().state_space.part_eps;
  return eps > 0 ? b.unit_norm(id, x, eps) : x;
}

/// The input of the convolution: x, b and c, each with its factor.
std::string scaled_parts(GraphBuilder& b, const std::string& all, Extent begin) {
  const StateSpace& s = b.config().state_space;
  const Extent shared = s.groups * s.states;
  if (s.part_factors.empty()) return b.columns("ssm_xbc", all, begin, s.inner + 2 * shared);
  const auto part = [&](std::string_view id, Extent from, Extent count, std::size_t factor) {
    return times(b, fmt::format("{}_scaled", id), b.columns(id, all, begin + from, count), s.part_factors[factor]);
  };
  return b.group_concat(
      "ssm_xbc", b.group_concat("ssm_xb", part("ssm_x_in", 0, s.inner, 1), part("ssm_b_in", s.inner, shared, 2), 1),
      part("ssm_c_in", s.inner + shared, shared, 3), 1);
}

}  // namespace

std::string mamba_mixer(GraphBuilder& b, const std::string& x) {
  const StateSpace& s = b.config().state_space;
  const std::string both = b.linear("ssm_in", x, 2 * s.inner, Bias::if_present);
  const std::string gate = b.unary("ssm_gate", OpType::silu, b.columns("ssm_z", both, s.inner, s.inner));
  const std::string h =
      b.unary("ssm_act", OpType::silu, b.short_convolution("ssm_conv", b.columns("ssm_x", both, 0, s.inner)));
  const std::string parts = b.linear("ssm_xp", h, s.rank + 2 * s.states);
  const auto part = [&](std::string_view id, std::string_view norm, Extent begin, Extent count) {
    return normed_part(b, norm, b.columns(id, parts, begin, count));
  };
  const std::string dt = b.linear("ssm_dt", part("ssm_dt_in", "ssm_dt_norm", 0, s.rank), s.inner, Bias::required);
  const std::string y = b.selective_scan(h, dt, part("ssm_b", "ssm_b_norm", s.rank, s.states),
                                         part("ssm_c", "ssm_c_norm", s.rank + s.states, s.states));
  return b.linear("ssm_out", b.binary("ssm_gated", OpType::mul, y, gate), b.config().hidden, Bias::if_present);
}

std::string mamba2_mixer(GraphBuilder& b, const std::string& x) {
  const StateSpace& s = b.config().state_space;
  const Extent shared = s.groups * s.states, convolved = s.inner + 2 * shared;
  const std::string all = b.linear("ssm_in", x, s.inner + convolved + s.heads, Bias::if_present);
  const auto factor = [&](std::size_t part) { return s.part_factors.empty() ? 1.0 : s.part_factors[part]; };
  const std::string gate =
      b.unary("ssm_gate", OpType::silu, times(b, "ssm_z_scaled", b.columns("ssm_z", all, 0, s.inner), factor(0)));
  const std::string h =
      b.unary("ssm_act", OpType::silu, b.short_convolution("ssm_conv", scaled_parts(b, all, s.inner)));
  const std::string dt =
      times(b, "ssm_dt_scaled", b.columns("ssm_dt_in", all, s.inner + convolved, s.heads), factor(4));
  std::string y = b.state_space_scan(b.columns("ssm_x", h, 0, s.inner), dt, b.columns("ssm_b", h, s.inner, shared),
                                     b.columns("ssm_c", h, s.inner + shared, shared));
  const auto norm = [&](const std::string& of) {
    return b.has("ssm_norm.weight") ? b.group_norm("ssm_norm", of, s.groups) : of;
  };
  if (s.norms_before_gate) y = norm(y);
  y = b.binary("ssm_gated", OpType::mul, y, gate);
  if (!s.norms_before_gate) y = norm(y);
  return b.linear("ssm_out", y, b.config().hidden, Bias::if_present);
}

ModelGraph build_mamba(const BuildInput& input) {
  GraphBuilder b(input);
  const bool second = b.config().state_space.heads > 0;
  std::string x = b.embedding();
  for (Extent i = 0; i < b.config().layers; ++i) {
    b.set_layer(i);
    const std::string h = b.rms_norm("norm1", x);
    x = b.binary("resid1", OpType::add, x, second ? mamba2_mixer(b, h) : mamba_mixer(b, h));
  }
  b.set_layer(-1);
  return b.finish(b.rms_norm("final_norm", x));
}

}  // namespace weft::llm
