#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <tuple>

#include "llm/engine.hpp"
#include "llm/mixture.hpp"
#include "tune/parameters.hpp"
#include "tune/preference.hpp"
#include "tune/rows.hpp"
#include "tune/steps.hpp"
#include "weft/autocast.hpp"
#include "weft/error.hpp"
#include "weft/ops.hpp"

namespace weft::tune {
namespace {

using llm::ModelGraph;
using llm::detail::on_device;

void check(const TunerOptions& o) {
  struct Bound {
    const char* name;
    double value, least, most;
  };
  const Bound bounds[] = {{"rank", static_cast<double>(o.rank), 1, 4096},
                          {"alpha", o.alpha, 1e-6, 1e6},
                          {"dropout", o.dropout, 0, 0.95},
                          {"beta of preferences", o.preference.beta, 1e-6, 1e6},
                          {"label_smoothing", o.preference.label_smoothing, 0, 0.499999},
                          {"balance", o.balance, 0, 1e3}};
  for (const Bound& b : bounds)
    if (!(b.value >= b.least && b.value <= b.most))
      throw UsageError(fmt::format("tune: {} is {}; give {} to {}", b.name, b.value, b.least, b.most));
  if (o.preference.loss != PreferenceLoss::sigmoid && o.preference.label_smoothing > 0)
    throw UsageError("tune: label_smoothing is a part of the sigmoid loss; leave it at 0 for others");
  if (o.full && (o.dora || o.dropout > 0 || !o.targets.empty() || !o.saved.empty() || !o.from.empty()))
    throw UsageError(
        "tune: all weights train (full), so there is no adapter; leave out dora, dropout, targets, saved and from");
}

}  // namespace

struct Tuner::State {
  State(const llm::Model& model, const TunerOptions& given)
      : engine(llm::detail::engine_of(model)), options(given), device(model.device()) {
    check(options);
    if (engine->stages().size() > 1)
      throw UsageError("tune: the model is divided over several devices; load it on one");
    const ModelGraph& graph = engine->graph();
    if (std::any_of(graph.tensors.begin(), graph.tensors.end(),
                    [](const auto& t) { return t.storage == llm::TensorStorage::adapter; }))
      throw UsageError(
          "tune: the model was loaded with an adapter; load it alone, and name the adapter to go on with as `from`");
    for (const llm::OpNode& node : graph.nodes)
      if (node.op == llm::OpType::experts) experts_of_token = node.integer("used");
    if (options.balance > 0 && experts_of_token == 0)
      throw UsageError("tune: balance is for models with experts, and this one has none; leave it out");
    parameters = options.full ? full_parameters(*engine, options) : adapter_parameters(*engine, options);
    const auto& settings = engine->settings();
    frequencies = on_device(settings.frequencies, settings.frequencies_shape, device);
    local_frequencies = on_device(settings.local_frequencies, settings.local_frequencies_shape, device);
    if (!settings.axes.empty()) axes = on_device(settings.axes, {3, settings.frequencies_shape[1]}, device);
    steps.emplace(parameters->variables(), options, device,
                  [this](std::span<const Tensor> given, bool trains) { return measured(given, trains); });
    manual_seed(static_cast<std::uint32_t>(options.seed));
  }

  /// tokens, positions, texts, targets, lengths, of rows; of preferences also which of them there are, and the reference.
  std::vector<Tensor> arguments(const Rows& rows) const {
    check_texts(rows);
    const Shape all{rows.rows * rows.context};
    std::vector<Tensor> given;
    for (const auto* list : {&rows.tokens, &rows.positions, &rows.texts, &rows.targets})
      given.push_back(on_device(*list, all, device));
    given.push_back(on_device(rows.lengths, {rows.rows, Rows::kTextsMax}, device));
    if (rows.pairs.empty()) return given;
    given.push_back(on_device(rows.pairs, {rows.rows / 2, Rows::kTextsMax}, device));
    given.push_back(on_device(rows.reference, {rows.rows, Rows::kTextsMax}, device));
    return given;
  }

  void check_texts(const Rows& rows) const {
    if (!engine->has_states()) return;
    constexpr auto kMost = static_cast<std::size_t>(Rows::kTextsMax);
    for (std::size_t i = 0; i < rows.lengths.size(); ++i)
      if (i % kMost > 0 && rows.lengths[i] > 0)
        throw UsageError(fmt::format(
            "tune: row {} has several texts, and layers of this model keep states, which a second text would see; "
            "make rows with one text (texts_of_row)",
            i / kMost));
  }

  Tensor logits(std::span<const Tensor> given, bool trains, std::vector<Tensor>* router_logits = nullptr) const {
    const std::map<std::string, Tensor> trained = parameters->values();  // in f32, as they are kept
    const Autocast scope(options.precision);
    llm::PassInputs inputs{.tokens = given[0], .positions = given[1]};
    const Extent rows = given[4].dim(0), context = given[0].dim(0) / rows;
    inputs.whole = llm::WholeRows{rows, given[4], given[2]};
    const auto& settings = engine->settings();
    if (settings.has_two_factors) {
      const bool is_long = context > engine->positions_by_short_factors().value_or(context);
      inputs.factors = full({rows * context}, is_long ? 1.0 : 0.0, DType::i32, device);
    }
    std::map<std::string, Variable> no_caches;
    const llm::LowerContext lowering{.graph = parameters->graph(),
                                     .weights = engine->stages()[0]->weights(),
                                     .caches = no_caches,
                                     .frequencies = frequencies,
                                     .local_frequencies = local_frequencies,
                                     .magnitude = settings.magnitude,
                                     .axes = axes,
                                     .trained = &trained,
                                     .adapter_dropout = trains ? options.dropout : 0,
                                     .recomputes = trains && options.recompute,
                                     .router_logits = router_logits};
    return cast(llm::lower(lowering, inputs), DType::f32);
  }
  TextScores scores(std::span<const Tensor> given, bool trains, std::vector<Tensor>* router_logits = nullptr) const {
    return text_scores(logits(given, trains, router_logits), given[3], given[2], given[4].dim(0));
  }
  using Measure =
      Steps::Measure;  // of preferences the results are loss, accuracy and margin; with `balance` its loss is the last
  Measure measured(std::span<const Tensor> given, bool trains) const {
    std::vector<Tensor> routers;
    std::vector<Tensor>* const wanted = trains && options.balance > 0 ? &routers : nullptr;
    Measure measure;
    if (given.size() == 5)
      measure.results = {cross_entropy(logits(given, trains, wanted), given[3], Rows::kIgnored)};
    else
      measure.results = preference_loss(scores(given, trains, wanted), given[6], given[5], options.preference);
    measure.objective = measure.results[0];
    if (!wanted) return measure;
    const Tensor balance = llm::balance_loss(routers, is_of_text(given), experts_of_token);
    measure.objective = measure.objective + balance * options.balance;
    measure.results.push_back(balance);
    return measure;
  }
  /// 1 for tokens of texts, 0 for the padding behind them, [rows * context].
  Tensor is_of_text(std::span<const Tensor> given) const {
    const Extent rows = given[4].dim(0), context = given[0].dim(0) / rows;
    const Tensor place = unsqueeze(Tensor(arange(context, DType::i32, device)), 0),
                 length = weft::sum(given[4], {1}, {.keepdims = true});
    return reshape(cast(cast(place, DType::f32) < cast(length, DType::f32), DType::f32), {rows * context});
  }

  const std::shared_ptr<llm::detail::Engine> engine;
  TunerOptions options;
  const Device device;
  std::unique_ptr<Parameters> parameters;
  Extent experts_of_token = 0;
  Tensor frequencies, local_frequencies, axes;
  std::optional<Steps> steps;
  Compiled compiled_scores{
      [this](std::span<const Tensor> given) { return std::vector<Tensor>{scores(given, false).log_probabilities}; }};
  Compiled compiled_logits{[this](std::span<const Tensor> given) { return std::vector<Tensor>{logits(given, false)}; }};
};

Tuner::Tuner(const llm::Model& model, const TunerOptions& options) : state_(std::make_unique<State>(model, options)) {}
Tuner::~Tuner() = default;
Tuner::Tuner(Tuner&&) noexcept = default;

Tuner::StepResult Tuner::step(std::span<const Rows> batches, double learning_rate) {
  State& s = *state_;
  std::vector<Steps::Arguments> given;
  for (const Rows& batch : batches) given.push_back(s.arguments(batch));
  Steps::Result made = s.steps->step(given, learning_rate);
  StepResult result{.loss = made.results[0], .grad_norm = made.norm};
  if (s.options.balance > 0) {
    result.balance = made.results.back();
    made.results.pop_back();
  }
  if (made.results.size() > 1) std::tie(result.accuracy, result.margin) = std::tie(made.results[1], made.results[2]);
  return result;
}

Tuner::Measured Tuner::measure(const Rows& rows) {
  const std::vector<Tensor> results = state_->steps->measure(state_->arguments(rows));
  const auto number = [&](std::size_t i) { return static_cast<double>(results[i].item<float>()); };
  if (results.size() == 1) return {number(0), {}, {}};
  return {number(0), number(1), number(2)};
}

double Tuner::loss(const Rows& rows) { return measure(rows).loss; }

std::vector<float> Tuner::log_probabilities(const Rows& rows) {
  Rows alone = rows;
  alone.pairs.clear();
  const std::vector<Tensor> given = state_->arguments(alone);
  return state_->compiled_scores(given)[0].to_vector<float>();
}

Tensor Tuner::logits(const Rows& rows) {
  const std::vector<Tensor> given = state_->arguments(rows);
  return state_->compiled_logits(given)[0];
}

std::vector<std::string> Tuner::products() const { return state_->parameters->products(); }

Extent Tuner::texts_of_row() const { return state_->engine->has_states() ? 1 : Rows::kTextsMax; }

std::int64_t Tuner::parameter_count() const { return state_->parameters->count(); }

double Tuner::loss_scale() const { return state_->steps->loss_scale(); }

std::uint64_t Tuner::planned_bytes(Extent rows, Extent context, bool of_preferences) {
  return state_->steps->planned_bytes(state_->arguments(no_rows(rows, context, of_preferences)));
}

std::uint64_t Tuner::planned_measure_bytes(Extent rows, Extent context, bool of_preferences) {
  return state_->steps->planned_measure_bytes(state_->arguments(no_rows(rows, context, of_preferences)));
}

std::uint64_t Tuner::trained_bytes() const { return state_->steps->trained_bytes(); }

void Tuner::save(const std::filesystem::path& path) const { state_->parameters->save(path); }

nn::StateDict Tuner::state_dict() const { return state_->steps->state_dict(state_->parameters->named()); }

void Tuner::load_state_dict(const nn::StateDict& state) {
  state_->steps->load_state_dict(state_->parameters->named(), state);
}

}  // namespace weft::tune
