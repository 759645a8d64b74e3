// Gemma 3n: several states of a token, of which one goes through a layer and corrects the others (AltUp); a product of low rank beside
// attention (LAuReL); inputs that each layer has of its own; and last layers that read the keys of earlier ones.
#include <cmath>

#include "llm/gemma_parts.hpp"

namespace weft::llm {
namespace {

class StreamedLayer {
 public:
  explicit StreamedLayer(GraphBuilder& b) : b_(b), c_(b.config()), attention_(b) {}

  /// The states before the first layer: the embeddings, and products of them that are made as large.
  std::string all_streams(const std::string& x) {
    std::string others;
    for (Extent i = 1; i < c_.streams.count; ++i)
      others = joined_with(others, product("altup_in", i, x), "altup_in_joined", i);
    if (others.empty()) return x;
    return b_.group_concat("streams", x, b_.binary("altup_in_matched", OpType::match_magnitude, others, x), 1);
  }
  /// The mean of all states behind the last layer, but for the first of products of them that are made as large as that.
  std::string one_stream(const std::string& streams) {
    const Extent count = c_.streams.count;
    const std::string first = stream("altup_first", streams, 0);
    std::string sum = first;
    for (Extent i = 1; i < count; ++i) {
      const std::string at = std::to_string(i), part = product("altup_out", i, stream("altup_last" + at, streams, i));
      sum = b_.binary("altup_sum" + at, OpType::add, sum,
                      b_.binary("altup_out_matched" + at, OpType::match_magnitude, part, first));
    }
    return scaled("altup_mean", sum, 1 / static_cast<double>(count));
  }

  std::string run(const std::string& streams, const std::string& inputs) {
    const Streams& s = c_.streams;
    const std::string predicted =
        b_.binary("altup_predicted", OpType::add, streams, mixed("altup_mixed", streams, predictions(streams)));
    const std::string active = stream("altup_active", predicted, s.active);
    const std::string h = b_.rms_norm("norm1", active);
    const std::string laurel = b_.binary(
        "laurel", OpType::add, h,
        b_.rms_norm("laurel_norm", b_.linear("laurel_right", b_.linear("laurel_left", h, s.rank), c_.hidden)));
    const std::string a = b_.binary("resid1", OpType::add, active, b_.rms_norm("norm1_after", attention_.of(h)));
    const std::string x = scaled("laurel_mean", b_.binary("laurel_added", OpType::add, a, laurel), std::sqrt(0.5));
    const std::string y = b_.binary("resid2", OpType::add, x, b_.rms_norm("norm2_after", mlp(b_.rms_norm("norm2", x))));
    const std::string corrected = correct(predicted, active, y);
    std::string first = stream("altup_corrected_active", corrected, s.active);
    if (s.are_scaled)
      first = b_.binary("altup_scaled", OpType::mul, first, b_.constant("altup_scale", {c_.hidden}, Element::f32));
    return b_.node("streams", OpType::add_to_streams, {corrected, layer_input_added(b_, first, inputs)},
                   {Symbol::tokens, s.count * c_.hidden}, {{"first", Extent{1}}});
  }

 private:
  std::string scaled(std::string_view id, const std::string& x, double factor) {
    return b_.unary(id, OpType::scale, x, {{"factor", factor}});
  }
  std::string stream(std::string_view id, const std::string& streams, Extent i) {
    return b_.columns(id, streams, i * c_.hidden, c_.hidden);
  }
  std::string joined_with(const std::string& before, const std::string& x, const std::string& id, Extent i) {
    return before.empty() ? x : b_.group_concat(id + std::to_string(i), before, x, 1);
  }
  /// GGUF files have the matrices of all states but the first in one tensor.
  std::string product(const std::string& name, Extent i, const std::string& x) {
    const std::string id = name + std::to_string(i);
    if (!c_.from_gguf) return b_.linear(id, x, c_.hidden);
    const Extent others = c_.streams.count - 1, rows = c_.hidden;
    return b_.linear_part(
        id, x, rows,
        {.file = {others, rows, rows}, .rows = others * rows, .columns = rows, .begin = (i - 1) * rows, .count = rows});
  }
  /// Numbers in (-1, 1), one for each state, by which a token mixes them.
  std::string modes(const std::string& id, const std::string& x) {
    // The layer has one norm and one matrix, which both mixtures read.
    const std::string norm =
        b_.node(id + "_norm", OpType::rms_norm, {x, b_.constant("altup_router_norm.weight", {c_.hidden}, Element::f32)},
                {Symbol::tokens, c_.hidden}, {{"eps", c_.norm_eps}, {"weight_offset", 0.0}, {"width", c_.hidden}});
    const std::string routed = b_.node(id + "_routed", OpType::matmul,
                                       {scaled(id + "_scaled", norm, 1 / static_cast<double>(c_.hidden)),
                                        b_.constant("altup_router.weight", {c_.streams.count, c_.hidden})},
                                       {Symbol::tokens, c_.streams.count});
    return b_.unary(id, OpType::tanh, routed);
  }
  std::string predictions(const std::string& streams) {
    const Extent n = c_.streams.count;
    return b_.linear("altup_predict", modes("altup_modes", stream("altup_before", streams, c_.streams.active)), n * n);
  }
  std::string mixed(std::string_view id, const std::string& x, const std::string& numbers) {
    return b_.node(id, OpType::mix_streams, {x, numbers}, {Symbol::tokens, c_.streams.count * c_.hidden},
                   {{"streams", c_.streams.count}, {"offset", 0.0}});
  }
  /// Each state moves by what the layer changed in the active one, times a number of its own.
  std::string correct(const std::string& predicted, const std::string& active, const std::string& y) {
    const std::string change = b_.binary("altup_change", OpType::add, y, scaled("altup_minus", active, -1));
    const std::string numbers = b_.linear("altup_correct", modes("altup_new_modes", y), c_.streams.count);
    const std::string moves =
        b_.node("altup_moves", OpType::mix_streams, {change, numbers}, {Symbol::tokens, c_.streams.count * c_.hidden},
                {{"streams", Extent{1}}, {"offset", 1.0}});
    return b_.binary("altup_corrected", OpType::add, predicted, moves);
  }

  std::string mlp(const std::string& x) {
    std::string gate = b_.linear("gate", x, c_.intermediate);
    const double deviations =
        c_.streams.deviations.empty() ? INFINITY : c_.streams.deviations[static_cast<std::size_t>(b_.layer())];
    if (std::isfinite(deviations)) gate = b_.unary("gate_cut", OpType::cut_below, gate, {{"deviations", deviations}});
    return b_.gate_and_up(gate, b_.linear("up", x, c_.intermediate), activation_of(c_, "gelu_tanh"));
  }

  GraphBuilder& b_;
  const ModelConfig& c_;
  AttentionOfTwoKinds attention_;
};

}  // namespace

ModelGraph build_gemma3n(const BuildInput& input) {
  GraphBuilder b(input);
  StreamedLayer layer(b);
  const std::string x = b.embedding(std::sqrt(static_cast<double>(b.config().hidden)));
  const std::string inputs = layer_inputs(b, x);
  std::string streams = layer.all_streams(x);
  for (Extent i = 0; i < b.config().layers; ++i) {
    b.set_layer(i);
    streams = layer.run(streams, inputs);
  }
  b.set_layer(-1);
  return b.finish(b.rms_norm("final_norm", layer.one_stream(streams)));
}

}  // namespace weft::llm
