// Models whose layers keep a state instead of keys and values: Mamba and Mamba-2, and Bamba and Granite 4, in which a few layers
// have attention.
#include <fmt/format.h>

#include "llm/builder.hpp"

namespace weft::llm {
namespace {

/// Mamba's layer on normalised x: convolution and scan of one branch, gated by the other.
std::string mamba_mixer(GraphBuilder& b, const std::string& x) {
  const StateSpace& s = b.config().state_space;
  const std::string both = b.linear("ssm_in", x, 2 * s.inner, Bias::if_present);
  const std::string gate = b.unary("ssm_gate", OpType::silu, b.columns("ssm_z", both, s.inner, s.inner));
  const std::string h =
      b.unary("ssm_act", OpType::silu, b.short_convolution("ssm_conv", b.columns("ssm_x", both, 0, s.inner)));
  const std::string parts = b.linear("ssm_xp", h, s.rank + 2 * s.states);
  const std::string dt = b.linear("ssm_dt", b.columns("ssm_dt_in", parts, 0, s.rank), s.inner, Bias::required);
  const std::string y = b.selective_scan(h, dt, b.columns("ssm_b", parts, s.rank, s.states),
                                         b.columns("ssm_c", parts, s.rank + s.states, s.states));
  return b.linear("ssm_out", b.binary("ssm_gated", OpType::mul, y, gate), b.config().hidden, Bias::if_present);
}

/// Mamba-2's: one projection for all of gate, x, b, c and the steps, and a norm behind the gate.
std::string mamba2_mixer(GraphBuilder& b, const std::string& x) {
  const StateSpace& s = b.config().state_space;
  const Extent shared = s.groups * s.states, convolved = s.inner + 2 * shared;
  const std::string all = b.linear("ssm_in", x, s.inner + convolved + s.heads, Bias::if_present);
  const std::string gate = b.unary("ssm_gate", OpType::silu, b.columns("ssm_z", all, 0, s.inner));
  const std::string h =
      b.unary("ssm_act", OpType::silu, b.short_convolution("ssm_conv", b.columns("ssm_xbc", all, s.inner, convolved)));
  const std::string y =
      b.state_space_scan(b.columns("ssm_x", h, 0, s.inner), b.columns("ssm_dt_in", all, s.inner + convolved, s.heads),
                         b.columns("ssm_b", h, s.inner, shared), b.columns("ssm_c", h, s.inner + shared, shared));
  return b.linear("ssm_out", b.group_norm("ssm_norm", b.binary("ssm_gated", OpType::mul, y, gate), s.groups),
                  b.config().hidden, Bias::if_present);
}

std::string scaled(GraphBuilder& b, std::string_view id, const std::string& x, double factor) {
  return factor == 1 ? x : b.unary(id, OpType::scale, x, {{"factor", factor}});
}

}  // namespace

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

ModelGraph build_state_hybrid(const BuildInput& input) {
  GraphBuilder b(input);
  const ModelConfig& c = b.config();
  const double residual = c.residual_scale;
  std::string x = scaled(b, "embed_scaled", b.embedding(), c.embedding_scale);
  for (Extent i = 0; i < c.layers; ++i) {
    b.set_layer(i);
    const std::string h = b.rms_norm("norm1", x);
    std::string mixed;
    if (c.state_space.layers[static_cast<std::size_t>(i)]) {
      mixed = mamba2_mixer(b, h);
    } else {
      const std::string q = b.linear("q", h, c.heads * c.head_dim, Bias::if_present),
                        k = b.linear("k", h, c.kv_heads * c.head_dim, Bias::if_present),
                        v = b.linear("v", h, c.kv_heads * c.head_dim, Bias::if_present);
      mixed = b.attention(q, k, v, {.scale = c.attention_scale, .output_bias = Bias::if_present});
    }
    x = b.binary("resid1", OpType::add, x, scaled(b, "mixed_scaled", mixed, residual));
    const std::string n = b.rms_norm("norm2", x);
    std::string m;
    if (b.has("gate_up.weight")) {
      const std::string both = b.linear("gate_up", n, 2 * c.intermediate);
      m = b.gate_and_up(b.columns("gate", both, 0, c.intermediate),
                        b.columns("up", both, c.intermediate, c.intermediate), activation_of(c, "silu"));
    } else {
      m = b.gated_mlp(n, activation_of(c, "silu"), Bias::if_present);
    }
    x = b.binary("resid2", OpType::add, x, scaled(b, "mlp_scaled", m, residual));
  }
  b.set_layer(-1);
  return b.finish(b.rms_norm("final_norm", x));
}

}  // namespace weft::llm
