// A text encoder that trains.
#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "encoder/tuned_model.hpp"
#include "tune/encoder_losses.hpp"
#include "tune/steps.hpp"
#include "weft/autocast.hpp"
#include "weft/error.hpp"
#include "weft/ops.hpp"
#include "weft/tune_encoder.hpp"

namespace weft::tune {
namespace {

encoder::TunedHead head_of(const EncoderExamples& data) {
  switch (data.objective) {
    case Objective::single_label: return {encoder::Task::classify, data.classes, "single_label_classification"};
    case Objective::multi_label: return {encoder::Task::classify, data.classes, "multi_label_classification"};
    case Objective::regression: return {encoder::Task::classify, data.classes, "regression"};
    case Objective::cross_encoder: return {encoder::Task::classify, data.classes};
    case Objective::tokens: return {encoder::Task::label_tokens, data.classes};
    case Objective::ranking:
    case Objective::cosine:
    case Objective::cosent: return {encoder::Task::embed};
  }
  throw InternalError("an objective without a head");
}

void check_encoder(const TunerOptions& o, const EncoderOptions& encoder) {
  if (o.dora || o.dropout > 0 || !o.targets.empty() || !o.saved.empty() || !o.from.empty() || o.balance > 0)
    throw UsageError(
        "tune: all weights of a text encoder train; leave out dora, dropout of adapters, targets, saved, from and "
        "balance");
  if (!(encoder.scale > 0 && encoder.scale <= 1e4))
    throw UsageError(fmt::format("tune: a scale of {}; give a number above 0, as 20", encoder.scale));
}

template <class T>
Tensor placed(const std::vector<T>& values, const Shape& shape, DType type, Device device) {
  return tensor_from_bytes(values.data(), shape, type, device);
}

}  // namespace

struct EncoderTuner::State {
  State(const std::filesystem::path& path, const EncoderExamples& data, const TunerOptions& given,
        const EncoderOptions& learning, Extent length, Device device)
      : options(given), encoder(learning), objective(data.objective), classes(data.classes) {
    check_encoder(options, encoder);
    model.emplace(path, device, length, head_of(data), options.seed);
    steps.emplace(model->variables(), options, device,
                  [this](std::span<const Tensor> arguments, bool trains) { return measured(arguments, trains); });
  }

  /// A batch on the device: tokens, lengths, types where there are any, and targets. The texts of all examples come first by their
  /// place: all anchors, then all positives.
  struct Placed {
    Steps::Arguments arguments;
    std::vector<std::vector<std::int32_t>> firsts;  // of `tokens`
    Extent length = 0;
    std::int64_t tokens = 0;
  };
  Placed placed_batch(Batch batch) const {
    if (batch.empty()) throw UsageError("tune: a batch without examples");
    Placed made;
    std::vector<encoder::TokenText> texts = texts_of(batch, made.firsts);
    encoder::Pass pass;
    pass.texts.resize(texts.size());
    std::iota(pass.texts.begin(), pass.texts.end(), std::size_t{0});
    pass.rows = static_cast<Extent>(texts.size());
    for (const encoder::TokenText& text : texts) {
      made.tokens += static_cast<std::int64_t>(text.tokens.size());
      pass.length = std::max(pass.length, static_cast<Extent>(text.tokens.size()));
    }
    pass.length = made.length = encoder::rounded_length(pass.length, model->length());
    const encoder::Padded rows = encoder::padded(pass, texts, model->has_types(), model->device());
    made.arguments = {rows.tokens, rows.lengths};
    if (rows.types.defined()) made.arguments.push_back(rows.types);
    made.arguments.push_back(targets_of(batch, made));
    return made;
  }

  std::vector<encoder::TokenText> texts_of(Batch batch, std::vector<std::vector<std::int32_t>>& firsts) const {
    std::vector<encoder::TokenText> texts;
    const auto add = [&](std::string_view text, const std::string* pair) {
      texts.push_back(
          encoder::tokens_of(model->tokenizer(), model->config(), model->length(), text, pair, encoder::TooLong::cut));
    };
    if (objective == Objective::tokens) {
      for (const EncoderExample& example : batch) {
        if (example.classes.size() != example.texts.size())
          throw UsageError("tune: an example has not as many classes as words");
        encoder::TokenWords words =
            encoder::tokens_of_words(model->tokenizer(), model->config(), model->length(), example.texts);
        texts.push_back(std::move(words.text));
        firsts.push_back(std::move(words.firsts));
      }
      return texts;
    }
    const bool embeds =
        objective == Objective::ranking || objective == Objective::cosine || objective == Objective::cosent;
    const std::size_t columns = batch[0].texts.size(), least = embeds || objective == Objective::cross_encoder ? 2 : 1;
    for (const EncoderExample& example : batch)
      if (example.texts.size() != columns || columns < least || (columns > 2 && objective != Objective::ranking))
        throw UsageError(fmt::format("tune: an example of {} texts beside one of {}, to learn {}", example.texts.size(),
                                     columns, name_of(objective)));
    if (embeds) {
      for (std::size_t column = 0; column < columns; ++column)
        for (const EncoderExample& example : batch) add(example.texts[column], nullptr);
    } else {
      for (const EncoderExample& example : batch) add(example.texts[0], columns > 1 ? &example.texts[1] : nullptr);
    }
    return texts;
  }

  Tensor targets_of(Batch batch, const Placed& made) const {
    const auto count = static_cast<Extent>(batch.size()), width = static_cast<Extent>(classes.size());
    const auto checked = [&](std::int32_t each) {
      if (each >= 0 && each < width) return each;
      throw UsageError(fmt::format("tune: class {} of {}", each, width));
    };
    switch (objective) {
      case Objective::single_label: {
        std::vector<std::int32_t> ids;
        for (const EncoderExample& example : batch) {
          if (example.classes.size() != 1) throw UsageError("tune: an example has not one class");
          ids.push_back(checked(example.classes[0]));
        }
        return placed(ids, {count}, DType::i32, model->device());
      }
      case Objective::multi_label: {
        std::vector<float> hold(batch.size() * classes.size(), 0);
        for (std::size_t i = 0; i < batch.size(); ++i)
          for (const std::int32_t each : batch[i].classes)
            hold[i * classes.size() + static_cast<std::size_t>(checked(each))] = 1;
        return placed(hold, {count, width}, DType::f32, model->device());
      }
      case Objective::tokens: {
        std::vector<std::int32_t> ids(batch.size() * static_cast<std::size_t>(made.length), Rows::kIgnored);
        for (std::size_t i = 0; i < batch.size(); ++i)
          for (std::size_t w = 0; w < made.firsts[i].size(); ++w) {
            const std::int32_t at = made.firsts[i][w], id = batch[i].classes[w];
            if (at >= 0 && id != Rows::kIgnored)
              ids[i * static_cast<std::size_t>(made.length) + static_cast<std::size_t>(at)] = checked(id);
          }
        return placed(ids, {count * made.length}, DType::i32, model->device());
      }
      case Objective::ranking:  // its length says how many anchors there are
        return placed(std::vector<std::int32_t>(batch.size(), 0), {count}, DType::i32, model->device());
      case Objective::regression:
      case Objective::cosine:
      case Objective::cosent:
      case Objective::cross_encoder: {
        std::vector<float> values;
        for (const EncoderExample& example : batch) values.push_back(static_cast<float>(example.value));
        return placed(values, {count}, DType::f32, model->device());
      }
    }
    throw InternalError("an objective without targets");
  }

  /// What the model gives for the texts of a batch, in f32.
  Tensor made_of(std::span<const Tensor> given, bool trains) const {
    const encoder::Padded texts{given[0], model->has_types() ? given[2] : Tensor(), given[1]};
    const encoder::PassMode mode{trains && encoder.dropout, trains && options.recompute};
    const Autocast scope(options.precision);
    const auto f32 = [](const Tensor& made) { return cast(made, DType::f32); };
    switch (objective) {
      case Objective::tokens: return f32(model->token_scores(texts, mode));
      case Objective::ranking:
      case Objective::cosine:
      case Objective::cosent: return f32(model->embedded(texts, mode));
      default: return f32(model->class_scores(texts, mode));
    }
  }

  Scored scored(std::span<const Tensor> given, bool trains) const {
    const Tensor made = made_of(given, trains);
    const Tensor& targets = given.back();
    switch (objective) {
      case Objective::single_label:
      case Objective::tokens: return class_loss(made, targets);
      case Objective::multi_label: return label_loss(made, targets);
      case Objective::regression: return value_loss(made, targets);
      case Objective::ranking: return ranking_loss(made, targets.dim(0), encoder.scale);
      case Objective::cosine: return cosine_loss(made, targets);
      case Objective::cosent: return cosent_loss(made, targets, encoder.scale);
      case Objective::cross_encoder: return label_loss(made, unsqueeze(targets, 1));
    }
    throw InternalError("an objective without a loss");
  }

  Steps::Measure measured(std::span<const Tensor> given, bool trains) const {
    const Scored made = scored(given, trains);
    if (trains) return {made.loss, {made.loss}};
    return {made.loss, {made.loss, made.scores}};
  }

  const TunerOptions options;
  const EncoderOptions encoder;
  const Objective objective;
  const std::vector<std::string> classes;
  std::optional<encoder::TunedModel> model;
  std::optional<Steps> steps;
  std::int64_t tokens = 0;
};

EncoderTuner::EncoderTuner(const std::filesystem::path& model, const EncoderExamples& data, const TunerOptions& options,
                           const EncoderOptions& encoder, Extent length, Device device)
    : state_(std::make_unique<State>(model, data, options, encoder, length, device)) {}
EncoderTuner::~EncoderTuner() = default;
EncoderTuner::EncoderTuner(EncoderTuner&&) noexcept = default;

Tuner::StepResult EncoderTuner::step(std::span<const Batch> batches, double learning_rate) {
  std::vector<Steps::Arguments> given;
  for (const Batch& batch : batches) {
    State::Placed made = state_->placed_batch(batch);
    state_->tokens += made.tokens;
    given.push_back(std::move(made.arguments));
  }
  const Steps::Result made = state_->steps->step(given, learning_rate);
  return {.loss = made.results[0], .grad_norm = made.norm};
}

Measured EncoderTuner::measure(Batch examples, Extent batch) {
  if (batch < 1) throw UsageError(fmt::format("tune: batches of {} examples", batch));
  Measures measures(state_->objective, state_->classes);
  for (std::size_t at = 0; at < examples.size(); at += static_cast<std::size_t>(batch)) {
    const Batch part = examples.subspan(at, std::min(static_cast<std::size_t>(batch), examples.size() - at));
    const State::Placed placed = state_->placed_batch(part);
    const std::vector<Tensor> made = state_->steps->measure(placed.arguments);
    measures.add(part, static_cast<double>(made[0].item<float>()), made[1].to_vector<float>(), placed.firsts,
                 placed.length);
  }
  return measures.result();
}

std::int64_t EncoderTuner::tokens() const { return state_->tokens; }
std::int64_t EncoderTuner::parameter_count() const { return state_->model->count(); }
bool EncoderTuner::has_new_head() const { return state_->model->has_new_head(); }
Extent EncoderTuner::length() const { return state_->model->length(); }
double EncoderTuner::loss_scale() const { return state_->steps->loss_scale(); }
std::uint64_t EncoderTuner::trained_bytes() const { return state_->steps->trained_bytes(); }
std::uint64_t EncoderTuner::planned_bytes(Batch batch) {
  return state_->steps->planned_bytes(state_->placed_batch(batch).arguments);
}
std::uint64_t EncoderTuner::planned_measure_bytes(Batch batch) {
  return state_->steps->planned_measure_bytes(state_->placed_batch(batch).arguments);
}

std::string EncoderTuner::describe() const {
  const encoder::EncoderConfig& c = state_->model->config();
  const std::string classes = state_->classes.empty() ? "" : fmt::format(" of {} classes", state_->classes.size());
  return fmt::format("{}: {} layers of width {}, {} heads; texts of up to {} tokens; learns {}{}{}", c.family, c.layers,
                     c.hidden, c.heads, length(), name_of(state_->objective), classes,
                     has_new_head() ? ", with a new head" : "");
}

void EncoderTuner::save(const std::filesystem::path& folder) const { state_->model->save(folder); }
nn::StateDict EncoderTuner::state_dict() const { return state_->steps->state_dict(state_->model->named()); }
void EncoderTuner::load_state_dict(const nn::StateDict& state) {
  state_->steps->load_state_dict(state_->model->named(), state);
}

}  // namespace weft::tune
