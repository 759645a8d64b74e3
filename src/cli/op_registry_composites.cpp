// Entries of the op registry: products, gathers, composites, losses, random numbers, updates of optimisers.
#include "cli/op_registry.hpp"
#include "weft/grad.hpp"
#include "weft/nn/losses.hpp"
#include "weft/optim/optimizer.hpp"

namespace weft::cli {
namespace {

using Results = std::vector<Tensor>;

constexpr const char* kFloats = "f32 f64";

AttributeSpec axis_or(Json fallback) { return {"axis", AttributeType::integer, std::move(fallback), "axis", {"dim"}}; }
AttributeSpec number(std::string name, double fallback, std::string doc, std::vector<std::string> aliases = {}) {
  return {std::move(name), AttributeType::number, fallback, std::move(doc), std::move(aliases)};
}
AttributeSpec integer(std::string name, std::optional<Json> fallback, std::string doc,
                      std::vector<std::string> aliases = {}) {
  return {std::move(name), AttributeType::integer, std::move(fallback), std::move(doc), std::move(aliases)};
}
AttributeSpec flag(std::string name, bool fallback, std::string doc, std::vector<std::string> aliases = {}) {
  return {std::move(name), AttributeType::boolean, fallback, std::move(doc), std::move(aliases)};
}
AttributeSpec float_dtype() { return {"dtype", AttributeType::dtype, Json("f32"), "dtype of the result"}; }

std::vector<OpSpec> products() {
  return {
      {.name = "matmul",
       .family = "product",
       .inputs = {{"a"}, {"b"}},
       .dtypes = "f32 f64 i32",
       .result = "that of the inputs",
       .doc = "Matrix product over the last two axes, batch axes broadcast; of rank 1, dot product or matrix times "
              "vector.",
       .apply = [](const Arguments& a) { return Results{matmul(a.input(0), a.input(1))}; }},
      {.name = "linear",
       .family = "product",
       .inputs = {{"x"}, {"weight"}, {.name = "bias", .optional = true}},
       .dtypes = "f32 f64 i32",
       .result = kSameAsX,
       .doc = "x W^T + b, with W [out, in].",
       .apply = [](const Arguments& a) { return Results{linear(a.input(0), a.input(1), a.input(2))}; }},
      {.name = "embedding",
       .family = "gather",
       .inputs = {{"table"}, {"indices"}},
       .dtypes = "table: any; indices: i32 u32",
       .result = "that of table",
       .doc = "Rows of table [rows, columns] by index; an index outside reads zeros.",
       .apply = [](const Arguments& a) { return Results{embedding(a.input(0), a.input(1))}; }},
      {.name = "take_along_axis",
       .family = "gather",
       .inputs = {{"x"}, {"indices"}},
       .attributes = {axis_or(-1)},
       .dtypes = "x: any; indices: i32 u32",
       .result = kSameAsX,
       .doc = "out[..., i, ...] = x[..., indices[..., i, ...], ...] along an axis; other extents equal those of x.",
       .apply = [](const Arguments& a) { return Results{take_along_axis(a.input(0), a.input(1), a.small("axis"))}; }},
      {.name = "scatter_add",
       .family = "gather",
       .inputs = {{"indices"}, {"updates"}},
       .attributes = {integer("rows", {}, "extent 0 of the result")},
       .dtypes = "indices: i32 u32; updates: f32 f64 i32 u32",
       .result = "that of updates",
       .doc = "out[r, ...] = sum of updates[i, ...] with indices[i] = r; indices [n], updates [n, ...].",
       .apply = [](const Arguments& a) { return Results{scatter_add(a.input(0), a.input(1), a.integer("rows"))}; }},
      {.name = "one_hot",
       .family = "gather",
       .inputs = {{"indices"}},
       .attributes = {integer("classes", {}, "extent of the new last axis", {"num_classes"}), float_dtype()},
       .dtypes = "i32 u32",
       .result = "as given",
       .differentiable = false,
       .doc = "1 where the new last axis equals the index, else 0.",
       .apply =
           [](const Arguments& a) { return Results{one_hot(a.input(0), a.integer("classes"), a.dtype("dtype"))}; }},
  };
}

std::vector<OpSpec> composites() {
  return {
      {.name = "softmax",
       .family = "composite",
       .inputs = {{"x"}},
       .attributes = {axis_or(-1)},
       .dtypes = kFloats,
       .result = kSameAsX,
       .doc = "exp(x_i - max x) / sum_j exp(x_j - max x) along an axis.",
       .apply = [](const Arguments& a) { return Results{softmax(a.input(0), a.small("axis"))}; }},
      {.name = "log_softmax",
       .family = "composite",
       .inputs = {{"x"}},
       .attributes = {axis_or(-1)},
       .dtypes = kFloats,
       .result = kSameAsX,
       .doc = "x_i - max x - log sum_j exp(x_j - max x) along an axis.",
       .apply = [](const Arguments& a) { return Results{log_softmax(a.input(0), a.small("axis"))}; }},
      {.name = "layer_norm",
       .family = "composite",
       .inputs = {{"x"}, {.name = "weight", .optional = true}, {.name = "bias", .optional = true}},
       .attributes = {number("eps", 1e-5, "added to the variance", {"epsilon"})},
       .dtypes = kFloats,
       .result = kSameAsX,
       .doc = "(x - mean) / sqrt(var + eps) * weight + bias over the last axis, with the population variance.",
       .apply =
           [](const Arguments& a) { return Results{layer_norm(a.input(0), a.input(1), a.input(2), a.number("eps"))}; }},
      {.name = "rms_norm",
       .family = "composite",
       .inputs = {{"x"}, {.name = "weight", .optional = true}},
       .attributes = {number("eps", 1e-6, "added to the mean square", {"epsilon"})},
       .dtypes = kFloats,
       .result = kSameAsX,
       .doc = "x / sqrt(mean(x^2) + eps) * weight over the last axis.",
       .apply = [](const Arguments& a) { return Results{rms_norm(a.input(0), a.input(1), a.number("eps"))}; }},
      {.name = "rope",
       .family = "composite",
       .inputs = {{"x"}},
       .attributes = {number("base", 10000, "of the angles"), integer("offset", 0, "position of the first row")},
       .dtypes = kFloats,
       .result = kSameAsX,
       .doc = "Rotary positions, rotate-half form, x [..., T, D]: the pair (x[d], x[d + D/2]) at position p turns by p "
              "base^(-2d/D).",
       .apply = [](const Arguments& a) { return Results{rope(a.input(0), a.number("base"), a.integer("offset"))}; }},
      {.name = "attention",
       .aliases = {"scaled_dot_product_attention"},
       .family = "composite",
       .inputs = {{"q"}, {"k"}, {"v"}},
       .attributes = {flag("causal", true, "whether query i sees keys j <= i + (keys - queries) only", {"is_causal"}),
                      number("scale", 0, "factor of the scores; 0: 1/sqrt(D)"),
                      integer("window", 0, "keys that a query sees to either side, its own included; 0: all")},
       .dtypes = kFloats,
       .result = "that of q",
       .doc = "softmax(scale q k^T) v; q [B, H, T, D], k and v [B, Hkv, S, D] with Hkv a whole fraction of H.",
       .apply =
           [](const Arguments& a) {
             return Results{attention(a.input(0), a.input(1), a.input(2), a.boolean("causal"), a.number("scale"),
                                      a.integer("window"))};
           }},
      {.name = "swiglu",
       .family = "composite",
       .inputs = {{"gate"}, {"up"}},
       .dtypes = kFloats,
       .result = "that of the inputs",
       .doc = "silu(gate) up.",
       .apply = [](const Arguments& a) { return Results{swiglu(a.input(0), a.input(1))}; }},
  };
}

nn::Reduction reduction_of(const Arguments& a) {
  const std::string word = a.word("reduction");
  return word == "mean" ? nn::Reduction::mean : word == "sum" ? nn::Reduction::sum : nn::Reduction::none;
}

std::vector<OpSpec> losses() {
  const AttributeSpec reduction{"reduction", AttributeType::choice,  Json("mean"), "of the losses of single elements",
                                {},          {"mean", "sum", "none"}};
  const std::vector<InputSpec> pair = {{"prediction"}, {"target"}};
  constexpr const char* kResult = "that of prediction";
  return {
      {.name = "cross_entropy",
       .family = "loss",
       .inputs = {{"logits"}, {"targets"}},
       .attributes = {integer("ignore_index", -100, "rows with this target do not count")},
       .dtypes = "logits: f32 f64; targets: i32 u32",
       .result = "that of logits",
       .doc = "Mean over rows of -log softmax(logits)[target]; logits [..., classes], targets [...].",
       .apply =
           [](const Arguments& a) { return Results{cross_entropy(a.input(0), a.input(1), a.small("ignore_index"))}; }},
      {.name = "mse_loss",
       .aliases = {"mse"},
       .family = "loss",
       .inputs = pair,
       .attributes = {reduction},
       .dtypes = kFloats,
       .result = kResult,
       .doc = "(prediction - target)^2.",
       .apply = [](const Arguments& a) { return Results{nn::mse(a.input(0), a.input(1), reduction_of(a))}; }},
      {.name = "l1_loss",
       .aliases = {"l1"},
       .family = "loss",
       .inputs = pair,
       .attributes = {reduction},
       .dtypes = kFloats,
       .result = kResult,
       .doc = "|prediction - target|.",
       .apply = [](const Arguments& a) { return Results{nn::l1(a.input(0), a.input(1), reduction_of(a))}; }},
      {.name = "huber_loss",
       .aliases = {"huber"},
       .family = "loss",
       .inputs = pair,
       .attributes = {number("delta", 1, "where the parabola ends"), reduction},
       .dtypes = kFloats,
       .result = kResult,
       .doc = "d^2 / 2 where |d| < delta, else delta (|d| - delta / 2), with d = prediction - target.",
       .apply =
           [](const Arguments& a) {
             return Results{nn::huber(a.input(0), a.input(1), a.number("delta"), reduction_of(a))};
           }},
      {.name = "binary_cross_entropy",
       .aliases = {"binary_cross_entropy_with_logits"},
       .family = "loss",
       .inputs = {{"logits"}, {"targets"}},
       .attributes = {reduction},
       .dtypes = kFloats,
       .result = "that of logits",
       .doc = "-(t log s(x) + (1 - t) log(1 - s(x))) with s the sigmoid.",
       .apply =
           [](const Arguments& a) {
             return Results{nn::binary_cross_entropy(a.input(0), a.input(1), reduction_of(a))};
           }},
      {.name = "nll_loss",
       .aliases = {"nll"},
       .family = "loss",
       .inputs = {{"log_probabilities"}, {"targets"}},
       .attributes = {reduction},
       .dtypes = "log_probabilities: f32 f64; targets: i32 u32",
       .result = "that of log_probabilities",
       .doc = "-log_probabilities[target] of the last axis.",
       .apply = [](const Arguments& a) { return Results{nn::nll(a.input(0), a.input(1), reduction_of(a))}; }},
  };
}

std::vector<OpSpec> random() {
  const AttributeSpec shape{"shape", AttributeType::integers, {}, "extents", {"size"}};
  const AttributeSpec seed = integer("seed", Json(nullptr), "seeds the generator before this draw; null: it goes on");
  auto seeded = [](const Arguments& a) {
    const Extent given = a.integer_or("seed", -1);
    if (given < -1 || given > UINT32_MAX) throw UsageError(a.spec().name + ": seed is outside of [0, 2^32)");
    if (given >= 0) manual_seed(static_cast<std::uint32_t>(given));
  };
  return {
      {.name = "rand",
       .family = "random",
       .attributes = {shape, number("low", 0, "lower bound"), number("high", 1, "upper bound, never reached"),
                      float_dtype(), seed},
       .dtypes = "",
       .result = "as given",
       .differentiable = false,
       .doc = "Uniform in [low, high), by Philox: the same bits on every device.",
       .apply =
           [seeded](const Arguments& a) {
             return seeded(a), Results{rand(a.shape("shape"), a.number("low"), a.number("high"), a.dtype("dtype"))};
           }},
      {.name = "randn",
       .family = "random",
       .attributes = {shape, number("mean", 0, "of the distribution"),
                      number("deviation", 1, "of the distribution", {"std"}), float_dtype(), seed},
       .dtypes = "",
       .result = "as given",
       .differentiable = false,
       .doc = "Normal, by Box and Muller.",
       .apply =
           [seeded](const Arguments& a) {
             return seeded(a),
                    Results{randn(a.shape("shape"), a.number("mean"), a.number("deviation"), a.dtype("dtype"))};
           }},
      {.name = "dropout",
       .family = "random",
       .inputs = {{"x"}},
       .attributes = {{"p", AttributeType::number, {}, "probability of a 0"}, seed},
       .dtypes = kFloats,
       .result = kSameAsX,
       .doc = "Each element kept with probability 1-p and then divided by 1-p, else 0.",
       .apply = [seeded](const Arguments& a) { return seeded(a), Results{dropout(a.input(0), a.number("p"))}; }},
  };
}

// Optimisers keep their state themselves, so an update by name makes several with the same gradient, from fresh state.
template <class Optimizer, class Options>
Results updated(const Arguments& a, const Options& options) {
  NoGrad no_grad;
  const Extent steps = a.integer("steps");
  if (steps < 0 || steps > 10000) throw UsageError(a.spec().name + ": steps is outside of [0, 10000]");
  Variable parameter(a.input(0), "parameter");
  Optimizer optimizer(std::vector<nn::NamedParameter>{{"parameter", parameter, true}}, options);
  for (Extent i = 0; i < steps; ++i) optimizer.step(std::vector<Tensor>{a.input(1)});
  return {parameter.value().eval()};
}

std::vector<OpSpec> updates() {
  const AttributeSpec steps = integer("steps", 1, "updates made, all with the same gradient");
  const std::vector<InputSpec> pair = {{"parameter"}, {"gradient"}};
  return {
      {.name = "sgd",
       .family = "update",
       .inputs = pair,
       .attributes = {number("learning_rate", 1e-2, "step length", {"lr"}),
                      number("momentum", 0, "share of the last direction kept"),
                      number("dampening", 0, "share of the gradient left out of it"),
                      flag("nesterov", false, "looks ahead"),
                      number("weight_decay", 0, "times the parameter, added to the gradient"),
                      flag("maximize", false, "climbs"), steps},
       .dtypes = kFloats,
       .result = "that of parameter",
       .differentiable = false,
       .doc = "The parameter after updates by stochastic gradient descent.",
       .apply =
           [](const Arguments& a) {
             return updated<optim::SGD>(a, optim::SgdOptions{.learning_rate = a.number("learning_rate"),
                                                             .momentum = a.number("momentum"),
                                                             .dampening = a.number("dampening"),
                                                             .nesterov = a.boolean("nesterov"),
                                                             .weight_decay = a.number("weight_decay"),
                                                             .maximize = a.boolean("maximize")});
           }},
      {.name = "adam",
       .family = "update",
       .inputs = pair,
       .attributes = {number("learning_rate", 1e-3, "step length", {"lr"}), number("beta_1", 0.9, "of the mean"),
                      number("beta_2", 0.999, "of the mean square"),
                      number("epsilon", 1e-8, "added to the root", {"eps"}),
                      number("weight_decay", 0, "times the parameter, added to the gradient"), steps},
       .dtypes = kFloats,
       .result = "that of parameter",
       .differentiable = false,
       .doc = "The parameter after updates by Adam.",
       .apply =
           [](const Arguments& a) {
             return updated<optim::Adam>(a, optim::AdamOptions{.learning_rate = a.number("learning_rate"),
                                                               .beta_1 = a.number("beta_1"),
                                                               .beta_2 = a.number("beta_2"),
                                                               .epsilon = a.number("epsilon"),
                                                               .weight_decay = a.number("weight_decay")});
           }},
      {.name = "adamw",
       .family = "update",
       .inputs = pair,
       .attributes = {number("learning_rate", 1e-3, "step length", {"lr"}), number("beta_1", 0.9, "of the mean"),
                      number("beta_2", 0.999, "of the mean square"),
                      number("epsilon", 1e-8, "added to the root", {"eps"}),
                      number("weight_decay", 0.01, "decoupled decay"), steps},
       .dtypes = kFloats,
       .result = "that of parameter",
       .differentiable = false,
       .doc = "The parameter after updates by AdamW.",
       .apply =
           [](const Arguments& a) {
             return updated<optim::AdamW>(a, optim::AdamWOptions{.learning_rate = a.number("learning_rate"),
                                                                 .beta_1 = a.number("beta_1"),
                                                                 .beta_2 = a.number("beta_2"),
                                                                 .epsilon = a.number("epsilon"),
                                                                 .weight_decay = a.number("weight_decay")});
           }},
  };
}

}  // namespace

std::vector<OpSpec> composite_ops() {
  std::vector<OpSpec> specs;
  for (auto* family : {&products, &composites, &losses, &random, &updates})
    for (OpSpec& spec : family()) specs.push_back(std::move(spec));
  return specs;
}

}  // namespace weft::cli
