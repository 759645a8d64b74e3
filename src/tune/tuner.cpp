#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "base/philox.hpp"
#include "base/quote.hpp"
#include "llm/adapter_file.hpp"
#include "llm/adapter_modules.hpp"
#include "llm/engine.hpp"
#include "weft/autocast.hpp"
#include "weft/error.hpp"
#include "weft/grad.hpp"
#include "weft/ops.hpp"
#include "weft/optim/gradient_sum.hpp"
#include "weft/optim/optimizer.hpp"
#include "weft/tune.hpp"

namespace weft::tune {
namespace {

using llm::LowRank;
using llm::ModelGraph;
using llm::OpNode;
using llm::detail::on_device;

void check(const TunerOptions& o) {
  struct Bound {
    const char* name;
    double value, least, most;
  };
  const Bound bounds[] = {{"rank", static_cast<double>(o.rank), 1, 4096},
                          {"alpha", o.alpha, 1e-6, 1e6},
                          {"dropout", o.dropout, 0, 0.95},
                          {"accumulate", static_cast<double>(o.accumulate), 1, 1 << 16},
                          {"weight_decay", o.weight_decay, 0, 1e3},
                          {"beta_1", o.beta_1, 0, 0.999999},
                          {"beta_2", o.beta_2, 0, 0.999999},
                          {"clip_norm", o.clip_norm, 0, 1e6}};
  for (const Bound& b : bounds)
    if (!(b.value >= b.least && b.value <= b.most))
      throw UsageError(fmt::format("tune: {} is {}; give {} to {}", b.name, b.value, b.least, b.most));
  if (o.precision != DType::f32 && o.precision != DType::f16 && o.precision != DType::bf16)
    throw UsageError(fmt::format("tune: a precision of {}; choose f32, f16 or bf16", weft::name_of(o.precision)));
}

/// The names by which a product can be chosen: "q" of the node layer0_q, "q_proj" of its tensor.
std::vector<std::string> names_of(const std::string& node, const std::string& module) {
  const std::size_t line = node.starts_with("layer") ? node.find('_') : std::string::npos;
  return {line == std::string::npos ? node : node.substr(line + 1), module.substr(module.rfind('.') + 1)};
}

/// The products that get an adapter, in the order of the graph. UsageError for a target that is none.
std::vector<std::string> chosen_products(const ModelGraph& graph, const std::vector<std::string>& targets) {
  std::map<std::string, std::string> modules;
  for (const auto& [module, target] : llm::module_targets(graph)) modules.emplace(target.node, module);
  std::set<std::string> unused(targets.begin(), targets.end()), known;
  std::vector<std::string> products;
  for (const OpNode& node : graph.nodes) {
    const auto found = modules.find(node.id);
    if (found == modules.end()) continue;
    bool is_chosen = targets.empty() && node.layer >= 0;
    for (const std::string& name : names_of(node.id, found->second)) {
      known.insert(name);
      if (std::find(targets.begin(), targets.end(), name) == targets.end()) continue;
      is_chosen = true;
      unused.erase(name);
    }
    if (is_chosen) products.push_back(node.id);
  }
  if (!unused.empty())
    throw UsageError(fmt::format("tune: no product of the model is called {}; it has {}", quote(*unused.begin(), 60),
                                 fmt::join(known, ", ")));
  if (products.empty()) throw UsageError("tune: the layers of this model have no products that an adapter can change");
  return products;
}

/// Uniform in +-1/sqrt(in), as PEFT draws A; B begins at zero, so the model is unchanged at first.
std::vector<float> drawn(Extent rank, Extent in, std::uint64_t seed, std::uint32_t product) {
  std::vector<float> values(static_cast<std::size_t>(rank * in));
  const double bound = 1 / std::sqrt(static_cast<double>(in));
  const philox::Key key{static_cast<std::uint32_t>(seed), static_cast<std::uint32_t>(seed >> 32)};
  for (std::size_t i = 0; i < values.size(); i += 4) {
    const philox::Block words = philox::block(
        key, {static_cast<std::uint32_t>(i), product, 2, static_cast<std::uint32_t>(philox::Use::parameters)});
    for (std::size_t j = i; j < std::min(values.size(), i + 4); ++j)
      values[j] = static_cast<float>((2.0 * static_cast<double>(philox::to_unit_float(words[j - i])) - 1) * bound);
  }
  return values;
}

}  // namespace

struct Tuner::State {
  /// A product with an adapter that trains.
  struct Pair {
    std::string node;
    Extent rank, in, out;
    double scale;
    Variable a, b;
  };

  State(const llm::Model& model, const TunerOptions& given)
      : engine(llm::detail::engine_of(model)), options(given), device(model.device()) {
    check(options);
    if (engine->stages().size() > 1)
      throw UsageError("tune: the model is divided over several devices; load it on one");
    if (engine->has_states())
      throw UsageError("tune: layers of this model keep states of their texts; adapters of such models do not train");
    plain = engine->graph();
    if (std::any_of(plain.tensors.begin(), plain.tensors.end(),
                    [](const auto& t) { return t.storage == llm::TensorStorage::adapter; }))
      throw UsageError(
          "tune: the model was loaded with an adapter; load it alone, and name the adapter to go on with as `from`");
    make_pairs();
    const auto& settings = engine->settings();
    frequencies = on_device(settings.frequencies, settings.frequencies_shape, device);
    local_frequencies = on_device(settings.local_frequencies, settings.frequencies_shape, device);
    if (!settings.axes.empty()) axes = on_device(settings.axes, {3, settings.frequencies_shape[1]}, device);
    std::vector<Variable> parameters;
    for (const Pair& pair : pairs) parameters.insert(parameters.end(), {pair.a, pair.b});
    optimizer.emplace(parameters, optim::AdamWOptions{.beta_1 = options.beta_1,
                                                      .beta_2 = options.beta_2,
                                                      .weight_decay = options.weight_decay,
                                                      .clip_norm = options.clip_norm});
    if (options.precision == DType::f16) scale.emplace(optim::LossScaleOptions{}, device);
    if (options.accumulate > 1) sum.emplace(optimizer->parameters());
    manual_seed(static_cast<std::uint32_t>(options.seed));
  }

  void make_pairs() {
    graph = plain;
    std::vector<LowRank> changes;
    if (!options.from.empty()) {
      changes = llm::read_adapter(options.from, 1, plain);
      for (const LowRank& change : changes)
        if (change.scale == 0)
          throw UsageError(fmt::format("{}: the changes of {} are multiplied by 0, so they cannot train",
                                       options.from.string(), change.node));
    } else {
      for (const std::string& id : chosen_products(plain, options.targets)) {
        const OpNode& node =
            *std::find_if(plain.nodes.begin(), plain.nodes.end(), [&](const OpNode& n) { return n.id == id; });
        const auto& weight = plain.at(node.inputs[1]).shape;
        LowRank change{id, options.rank, weight[1].value, weight[0].value, {}, {}};
        change.a = drawn(change.rank, change.in, options.seed, static_cast<std::uint32_t>(changes.size()));
        change.b.assign(static_cast<std::size_t>(change.out * change.rank), 0.0F);
        change.scale = options.alpha / static_cast<double>(options.rank);
        changes.push_back(std::move(change));
      }
    }
    for (const LowRank& change : changes) {
      llm::add_low_rank(graph, change.node, change.rank);
      const std::string a = llm::low_rank_a(change.node), b = llm::low_rank_b(change.node);
      pairs.push_back({change.node, change.rank, change.in, change.out, change.scale,
                       Variable(on_device(change.a, {change.rank, change.in}, device), a, true),
                       Variable(on_device(change.b, {change.out, change.rank}, device), b, true)});
    }
    graph.validate();
  }

  /// tokens, positions, texts, lengths, targets, of rows.
  std::vector<Tensor> arguments(const Rows& rows) const {
    const Shape all{rows.rows * rows.context};
    std::vector<Tensor> given;
    for (const auto* list : {&rows.tokens, &rows.positions, &rows.texts, &rows.targets})
      given.push_back(on_device(*list, all, device));
    given.push_back(on_device(rows.lengths, {rows.rows, Rows::kTextsMax}, device));
    return given;
  }

  Tensor logits(std::span<const Tensor> given, bool trains) const {
    const Autocast scope(options.precision);
    std::map<std::string, Tensor> trained;
    for (const Pair& pair : pairs) {
      trained[llm::low_rank_a(pair.node)] = pair.a.value();
      trained[llm::low_rank_b(pair.node)] = pair.b.value() * pair.scale;
    }
    llm::PassInputs inputs{.tokens = given[0], .positions = given[1]};
    const Extent rows = given[4].dim(0), context = given[0].dim(0) / rows;
    inputs.whole = llm::WholeRows{rows, given[4], given[2]};
    const auto& settings = engine->settings();
    if (settings.has_two_factors) {
      const bool is_long = context > engine->positions_by_short_factors().value_or(context);
      inputs.factors = full({rows * context}, is_long ? 1.0 : 0.0, DType::i32, device);
    }
    std::map<std::string, Variable> no_caches;
    const llm::LowerContext lowering{.graph = graph,
                                     .weights = engine->stages()[0]->weights(),
                                     .caches = no_caches,
                                     .frequencies = frequencies,
                                     .local_frequencies = local_frequencies,
                                     .magnitude = settings.magnitude,
                                     .axes = axes,
                                     .trained = &trained,
                                     .adapter_dropout = trains ? options.dropout : 0,
                                     .recomputes = trains && options.recompute};
    return cast(llm::lower(lowering, inputs), DType::f32);
  }
  Tensor loss(std::span<const Tensor> given, bool trains) const {
    return cross_entropy(logits(given, trains), given[3], Rows::kIgnored);
  }

  std::vector<Tensor> gradients(const Tensor& loss) const {
    return grad(scale ? scale->apply(loss) : loss, optimizer->parameters());
  }
  Tensor update(std::span<const Tensor> gradients, const Tensor& rate) {
    return scale ? optimizer->step(gradients, rate, *scale) : optimizer->step(gradients, rate);
  }

  std::vector<LowRank> changes() const {
    std::vector<LowRank> all;
    for (const Pair& pair : pairs)
      all.push_back({pair.node, pair.rank, pair.in, pair.out, pair.a.value().to_vector<float>(),
                     pair.b.value().to_vector<float>(), pair.scale});
    return all;
  }

  std::vector<nn::NamedVariable> variables() const {
    std::vector<nn::NamedVariable> all;
    for (const Pair& pair : pairs) {
      all.push_back({pair.a.name(), pair.a});
      all.push_back({pair.b.name(), pair.b});
    }
    return all;
  }

  const std::shared_ptr<llm::detail::Engine> engine;
  TunerOptions options;
  const Device device;
  ModelGraph plain, graph;  // without and with the adapter
  std::vector<Pair> pairs;
  Tensor frequencies, local_frequencies, axes;
  std::optional<optim::AdamW> optimizer;
  std::optional<optim::LossScale> scale;
  std::optional<optim::GradientSum> sum;
  Compiled compiled_step{[this](std::span<const Tensor> given) {
    if (sum) return std::vector<Tensor>{update(sum->take_mean(), given[0])};
    const Tensor value = loss(given.subspan(1), true);
    return std::vector<Tensor>{update(gradients(value), given[0]), value};
  }};
  Compiled compiled_add{[this](std::span<const Tensor> given) {
    const Tensor value = loss(given, true);
    sum->add(gradients(value));
    return std::vector<Tensor>{value};
  }};
  Compiled compiled_loss{[this](std::span<const Tensor> given) { return std::vector<Tensor>{loss(given, false)}; }};
  Compiled compiled_logits{[this](std::span<const Tensor> given) { return std::vector<Tensor>{logits(given, false)}; }};
};

Tuner::Tuner(const llm::Model& model, const TunerOptions& options) : state_(std::make_unique<State>(model, options)) {}
Tuner::~Tuner() = default;
Tuner::Tuner(Tuner&&) noexcept = default;

Tuner::StepResult Tuner::step(std::span<const Rows> batches, double learning_rate) {
  State& s = *state_;
  if (static_cast<Extent>(batches.size()) != s.options.accumulate)
    throw UsageError(
        fmt::format("tune: a step of {} batches; the tuner accumulates {}", batches.size(), s.options.accumulate));
  const Tensor rate = on_device(std::vector<float>{static_cast<float>(learning_rate)}, {}, s.device);
  if (!s.sum) {
    std::vector<Tensor> given = s.arguments(batches[0]);
    given.insert(given.begin(), rate);
    const std::vector<Tensor> results = s.compiled_step(given);
    return {results[1], results[0]};
  }
  Tensor loss;
  for (const Rows& batch : batches) {
    const std::vector<Tensor> given = s.arguments(batch);
    const Tensor one = s.compiled_add(given)[0];
    loss = loss.defined() ? loss + one : one;
  }
  return {loss / static_cast<double>(batches.size()), s.compiled_step(std::span(&rate, 1))[0]};
}

double Tuner::loss(const Rows& rows) {
  const std::vector<Tensor> given = state_->arguments(rows);
  return static_cast<double>(state_->compiled_loss(given)[0].item<float>());
}

Tensor Tuner::logits(const Rows& rows) {
  const std::vector<Tensor> given = state_->arguments(rows);
  return state_->compiled_logits(given)[0];
}

std::vector<std::string> Tuner::products() const {
  std::vector<std::string> ids;
  for (const State::Pair& pair : state_->pairs) ids.push_back(pair.node);
  return ids;
}

std::int64_t Tuner::parameter_count() const {
  std::int64_t count = 0;
  for (const State::Pair& pair : state_->pairs) count += pair.rank * (pair.in + pair.out);
  return count;
}

double Tuner::loss_scale() const { return state_->scale ? state_->scale->value() : 1; }

std::uint64_t Tuner::planned_bytes(Extent rows, Extent context) {
  State& s = *state_;
  const auto size = static_cast<std::size_t>(rows * context);
  Rows none{rows, context};
  none.tokens = none.positions = none.texts = none.targets = std::vector<std::int32_t>(size, 0);
  none.lengths.assign(static_cast<std::size_t>(rows * Rows::kTextsMax), 0);
  std::vector<Tensor> given = s.arguments(none);
  if (!s.sum) given.insert(given.begin(), on_device(std::vector<float>{0}, {}, s.device));
  Compiled& pass = s.sum ? s.compiled_add : s.compiled_step;
  pass.prepare(given);
  return pass.scratch_bytes();
}

void Tuner::save(const std::filesystem::path& path) const {
  const State& s = *state_;
  llm::write_adapter(path, s.changes(), s.plain, {s.plain.config.source, s.options.dropout});
}

nn::StateDict Tuner::state_dict() const {
  const State& s = *state_;
  nn::StateDict all;
  const auto add = [&](const char* prefix, const nn::StateDict& part) {
    for (const nn::NamedArray& array : part) {
      all.push_back(array);
      all.back().name.insert(0, prefix);
    }
  };
  add("adapter.", nn::read_state(s.variables()));
  add("optimizer.", s.optimizer->state_dict());
  if (s.scale) add("loss_scale.", s.scale->state_dict());
  add("", nn::read_state(std::vector<nn::NamedVariable>{{"random_state", random_state()}}));
  return all;
}

void Tuner::load_state_dict(const nn::StateDict& state) {
  State& s = *state_;
  std::map<std::string, nn::StateDict> parts;
  for (const nn::NamedArray& array : state) {
    const std::size_t dot = array.name.find('.');
    nn::StateDict& part = parts[array.name.substr(0, dot)];
    part.push_back(array);
    if (dot != std::string::npos) part.back().name.erase(0, dot + 1);
  }
  nn::write_state(s.variables(), parts["adapter"], true, "adapter");
  s.optimizer->load_state_dict(parts["optimizer"]);
  if (s.scale) s.scale->load_state_dict(parts["loss_scale"]);
  nn::write_state(std::vector<nn::NamedVariable>{{"random_state", random_state()}}, parts["random_state"], true,
                  "random numbers");
}

}  // namespace weft::tune
