#include <algorithm>
#include <memory>

#include "snapshot/cases.hpp"
#include "snapshot/inputs.hpp"

namespace weft::snapshot {
namespace {

/// A step as `weft train text` makes it, and its loss on validation text. Layers repeat and a vocabulary only counts rows,
/// so that fewer of them leave the text of the kernels as it is.
void preset_step(const train::Preset& preset, double dropout) {
  train::RunConfig config;
  config.preset = preset.name;
  config.model = preset.model;
  config.model.layers = std::min<Extent>(config.model.layers, 2);
  config.model.vocabulary = std::clamp<Extent>(config.model.vocabulary, 256, 1031);
  config.model.dropout = dropout;
  config.batch = preset.batch;
  config.steps = preset.steps;
  train::TextData data;
  data.vocabulary = train::Alphabet::bytes();
  data.tokens.assign(static_cast<std::size_t>(4 * config.model.context + 100), 0);
  data.training_count = static_cast<std::size_t>(2 * config.model.context + 50);
  train::Trainer trainer(config, data);
  trainer.step(0).loss.eval();
  trainer.evaluate(1);
}

struct Network : nn::Module {
  nn::Embedding table{30, 16};
  nn::Linear hidden{16, 24}, output{24, 30};
  nn::LayerNorm norm{24};
  nn::RMSNorm last{30};
  Network() { add("table", table), add("hidden", hidden), add("output", output), add("norm", norm), add("last", last); }
  Tensor operator()(const Tensor& tokens) const { return last(output(norm(gelu(hidden(table(tokens)))))); }
};

template <class Optimizer, class Options>
void optimizer_step(const Options& options) {
  Network network;
  Optimizer optimizer(network, options);
  auto step = compile([&](const Tensor& tokens, const Tensor& wanted) {
    const Tensor loss = cross_entropy(network(tokens), wanted);
    optimizer.step(grad(loss, optimizer.parameters()));
    return loss;
  });
  step(indices({12}), indices({12}));
}

void eager_step() {  // without `compile`: the same graph, found by structure
  Network network;
  optim::SGD optimizer(network, {.learning_rate = 0.1});
  const Tensor loss = cross_entropy(network(indices({5})), indices({5}));
  optimizer.step(grad(loss, optimizer.parameters()));
  loss.eval();
  eval_pending();
}

}  // namespace

std::vector<Case> training_cases() {
  std::vector<Case> cases;
  for (const train::Preset& preset : train::presets())
    cases.push_back({"train_" + std::string(preset.name), [&preset] { preset_step(preset, 0); }, true});
  cases.push_back({"train_tiny_dropout", [] { preset_step(train::preset("tiny"), 0.1); }});
  using namespace optim;
  cases.push_back({"optim_sgd", [] { optimizer_step<SGD>(SgdOptions{}); }});
  cases.push_back({"optim_sgd_momentum",
                   [] { optimizer_step<SGD>(SgdOptions{.momentum = 0.9, .nesterov = true, .weight_decay = 0.01}); }});
  cases.push_back({"optim_adam", [] { optimizer_step<Adam>(AdamOptions{.weight_decay = 0.01}); }});
  cases.push_back({"optim_adamw", [] { optimizer_step<AdamW>(AdamWOptions{}); }, true});
  cases.push_back({"optim_adamw_clip", [] { optimizer_step<AdamW>(AdamWOptions{.clip_norm = 1}); }, true});
  cases.push_back({"optim_eager", eager_step});
  return cases;
}

}  // namespace weft::snapshot
