// `weft tune` of language models without its screen.
#include <fmt/format.h>

#include <algorithm>

#include "llm/engine.hpp"
#include "tune/reference.hpp"
#include "tune/run_data.hpp"
#include "tune/run_loop.hpp"
#include "weft/encoder.hpp"
#include "weft/tune.hpp"

namespace weft::tune {
namespace {

constexpr const char *kReference = "reference.training", *kValidationReference = "reference.validation";

class LanguageTrainee : public Trainee {
 public:
  LanguageTrainee(const Request& request, const Observer& observer)
      : r_(request),
        observer_(observer),
        model_(llm::load(
            r_.model,
            {.context = r_.context, .chat_template = r_.chat_template, .mmproj = "none", .device = r_.device})),
        tuner_(model_, r_.tuner),
        data_(r_, model_, tuner_.texts_of_row()),
        reference_(data_.training_preferences),
        validation_reference_(data_.validation_preferences) {
    if (data_.examples.cut > 0 && observer_.note) observer_.note(data_.note_of_cut(r_.context));
  }

  RunStart start() const override {
    std::int64_t tokens = 0;
    const auto count = [&](const Example& example) { tokens += static_cast<std::int64_t>(example.tokens.size()); };
    for (const Example& example : data_.examples.all) count(example);
    for (const Preference& preference : data_.examples.preferences) {
      count(preference.chosen);
      count(preference.rejected);
    }
    return {.model = model_.describe(),
            .parameters = tuner_.parameter_count(),
            .products = tuner_.products().size(),
            .learns = data_.learns_preferences ? "preferences" : "examples",
            .examples = data_.examples.all.size() + data_.examples.preferences.size(),
            .tokens = tokens,
            .steps = data_.steps};
  }
  double learning_rate() const override { return data_.learning_rate; }

  Json settings() const override {
    const TunerOptions& t = r_.tuner;
    Json all = {{"data", fmt::format("{:016x}", data_.examples.hash)},
                {"validation", fmt::format("{:016x}", data_.apart.hash)},
                {"products", tuner_.products()},
                {"rank", t.rank},
                {"alpha", t.alpha},
                {"dropout", t.dropout},
                {"dora", t.dora},
                {"full", t.full}};
    if (!t.saved.empty()) all["saved"] = t.saved;
    if (t.balance > 0) all["balance"] = t.balance;
    if (data_.learns_preferences)
      all["preference"] = {{"loss", t.preference.loss == PreferenceLoss::ipo ? "ipo" : "sigmoid"},
                           {"beta", t.preference.beta},
                           {"label_smoothing", t.preference.label_smoothing}};
    return all;
  }

  std::uint64_t planned_bytes() override {
    return tuner_.planned_bytes(r_.batch, r_.context, data_.learns_preferences);
  }
  std::uint64_t held_bytes() const override {
    return llm::detail::engine_of(model_)->weight_bytes() + tuner_.trained_bytes();
  }

  // The log-probabilities of the reference: those of the model before the first step.
  void prepare(const std::stop_token& stop) override {
    if (!data_.learns_preferences) return;
    if (observer_.note)
      observer_.note(fmt::format("computing the log-probabilities of the reference for {} preferences",
                                 reference_.count() + validation_reference_.count()));
    // A short run does not come to all of them; behind the first epoch all are known.
    reference_.compute(tuner_, *data_.train, std::min(data_.steps * rows_of_step(), data_.train->rows_of_epochs(1)),
                       r_.batch, stop);
    if (data_.validate)
      validation_reference_.compute(tuner_, *data_.validate, data_.validate->rows_of_epochs(1), r_.batch, stop);
  }

  Tuner::StepResult step(std::int64_t number, double rate) override {
    std::vector<Rows> batches;
    for (Extent i = 0; i < r_.tuner.accumulate; ++i)
      reference_.set(batches.emplace_back(data_.train->batch(number * rows_of_step() + i * r_.batch, r_.batch)));
    tokens_ += rows_of_step() * r_.context;
    return tuner_.step(batches, rate);
  }
  std::int64_t tokens() const override { return tokens_; }

  bool can_measure() const override { return data_.validate.has_value(); }
  /// The mean over the targets of all examples for validation, or over all preferences.
  Measured measure() override {
    const std::int64_t rows = data_.validate->rows_of_epochs(1);
    Measured sum;
    if (data_.learns_preferences) sum.accuracy = sum.margin = 0;
    double count = 0;
    for (std::int64_t first = 0; first < rows; first += r_.batch) {
      // Rows beyond the epoch are those of the next one; they do not count.
      Rows batch = data_.validate->batch(first, r_.batch);
      const std::int64_t inside = std::min<std::int64_t>(r_.batch, rows - first);
      std::fill(batch.targets.begin() + static_cast<std::ptrdiff_t>(inside * r_.context), batch.targets.end(),
                Rows::kIgnored);
      std::int64_t counted = batch.counted();
      if (data_.learns_preferences) {
        std::fill(batch.pairs.begin() + static_cast<std::ptrdiff_t>(inside / 2 * Rows::kTextsMax), batch.pairs.end(),
                  -1);
        counted = std::count_if(batch.pairs.begin(), batch.pairs.end(), [](std::int32_t pair) { return pair >= 0; });
        validation_reference_.set(batch);
      }
      if (counted == 0) continue;
      const Measured one = tuner_.measure(batch);
      sum.loss += one.loss * static_cast<double>(counted);
      if (sum.accuracy) *sum.accuracy += one.accuracy.value_or(0) * static_cast<double>(counted);
      count += static_cast<double>(counted);
    }
    sum.loss /= std::max(count, 1.0);
    if (sum.accuracy) *sum.accuracy /= std::max(count, 1.0);
    return sum;
  }

  double loss_scale() const override { return tuner_.loss_scale(); }
  nn::StateDict state_dict() const override {
    nn::StateDict state = tuner_.state_dict();
    if (data_.learns_preferences) {
      reference_.put_into(state, kReference);
      validation_reference_.put_into(state, kValidationReference);
    }
    return state;
  }
  void load_state_dict(nn::StateDict& state) override {
    if (data_.learns_preferences) {
      reference_.take_from(state, kReference);
      validation_reference_.take_from(state, kValidationReference);
    }
    tuner_.load_state_dict(state);
  }
  void save(const std::filesystem::path& path) const override { tuner_.save(path); }
  void save_last(const std::filesystem::path& out) const override { tuner_.save(r_.tuner.full ? out / "model" : out); }
  void finish(const std::filesystem::path& out) const override {
    if (r_.to_gguf) tuner_.save(out / "adapter.gguf");
  }

 private:
  Extent rows_of_step() const { return r_.batch * r_.tuner.accumulate; }

  const Request& r_;
  const Observer& observer_;
  llm::Model model_;
  Tuner tuner_;
  RunData data_;
  Reference reference_, validation_reference_;
  std::int64_t tokens_ = 0;
};

}  // namespace

RunReport run(const Request& request, const Observer& observer, const std::stop_token& stop) {
  if (encoder::is_encoder(request.model)) return run_encoder(request, observer, stop);
  const Request whole = with_batch(request, 4);
  check(whole);
  return run_loop(whole, observer, stop, [&] { return std::make_unique<LanguageTrainee>(whole, observer); });
}

}  // namespace weft::tune
