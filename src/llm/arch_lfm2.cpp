// LFM2: most layers are a short convolution between two gates, the others attention with norms of heads.
#include "llm/builder.hpp"

namespace weft::llm {
namespace {

/// out(c * convolution(b * x)), where b, c and x are one product of the input.
std::string gated_convolution(GraphBuilder& b, const std::string& h) {
  const Extent width = b.config().hidden;
  const std::string all = b.linear("conv_in", h, 3 * width, Bias::if_present);
  const std::string inner = b.binary("conv_gated", OpType::mul, b.columns("conv_b", all, 0, width),
                                     b.columns("conv_x", all, 2 * width, width));
  const std::string seen = b.short_convolution("conv", inner);
  return b.linear("conv_out", b.binary("conv_seen", OpType::mul, b.columns("conv_c", all, width, width), seen), width,
                  Bias::if_present);
}

std::string mlp_or_experts(GraphBuilder& b, const std::string& x) {
  return b.has_experts() ? b.mixture(x) : b.gated_mlp(x, OpType::silu);
}

}  // namespace

ModelGraph build_lfm2(const BuildInput& input) {
  GraphBuilder b(input);
  const ModelConfig& c = b.config();
  std::string x = b.embedding();
  for (Extent i = 0; i < c.layers; ++i) {
    b.set_layer(i);
    const std::string h = b.rms_norm("norm1", x);
    std::string mixed;
    if (c.state_space.layers[static_cast<std::size_t>(i)]) {
      mixed = gated_convolution(b, h);
    } else {
      const auto [q, k, v] = b.queries_keys_values(h);
      mixed = b.attention(q, k, v, {.head_norms = 0.0});
    }
    x = b.binary("resid1", OpType::add, x, mixed);
    x = b.binary("resid2", OpType::add, x, mlp_or_experts(b, b.rms_norm("norm2", x)));
  }
  b.set_layer(-1);
  return b.finish(b.rms_norm("final_norm", x));
}

}  // namespace weft::llm
