// `weft tune` of text encoders without its screen.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "tune/rows.hpp"
#include "tune/run_data.hpp"
#include "tune/run_loop.hpp"
#include "weft/error.hpp"
#include "weft/optim/table.hpp"
#include "weft/tune_encoder.hpp"

namespace weft::tune {
namespace {

constexpr Extent kBatch = 16;
constexpr double kLearningRate = 2e-5;

/// Examples for training, in whole batches whose order changes from epoch to epoch, and those to measure with.
class EncoderData {
 public:
  explicit EncoderData(const Request& r)
      : seed_(r.tuner.seed), examples(read_encoder_examples(r.data, r.model, r.encoder.objective)) {
    if (!r.validation.empty()) apart = read_encoder_examples(r.validation, r.model, examples.objective, classes());
    const std::size_t held = r.validation.empty() ? examples.all.size() / 20 : 0;
    training_ = std::span(examples.all).first(examples.all.size() - held);
    validation = r.validation.empty() ? std::span(examples.all).last(held) : std::span(apart.all);
    batch_ = std::min(static_cast<std::size_t>(r.batch), training_.size());
    if (batch_ < 2 && examples.objective == Objective::ranking)
      throw UsageError(
          "tune: in a batch of one example nothing is to be told apart from its positive; give more examples, or a "
          "larger batch");
    const auto batches = static_cast<double>(batches_of_epoch());
    steps = r.steps > 0 ? r.steps
                        : std::max<std::int64_t>(1, static_cast<std::int64_t>(std::ceil(
                                                        r.epochs * batches / static_cast<double>(r.tuner.accumulate))));
  }
  EncoderData(const EncoderData&) = delete;  // the spans refer to the examples
  EncoderData& operator=(const EncoderData&) = delete;

  std::vector<EncoderExample> batch(std::int64_t number) {
    const auto epoch = static_cast<std::uint32_t>(number / batches_of_epoch());
    if (order_.empty() || epoch != epoch_) order_ = order_of(training_.size(), seed_, epoch_ = epoch);
    const auto first = static_cast<std::size_t>(number % batches_of_epoch()) * batch_;
    std::vector<EncoderExample> made;
    for (std::size_t i = first; i < first + batch_; ++i) made.push_back(training_[order_[i]]);
    return made;
  }
  /// Those with the longest texts, whose step takes the most memory.
  std::vector<EncoderExample> largest_batch(std::size_t count) const {
    std::vector<const EncoderExample*> order;
    for (const EncoderExample& example : examples.all) order.push_back(&example);
    const auto size = [](const EncoderExample* example) {
      std::size_t bytes = 0;
      for (const std::string& text : example->texts) bytes = std::max(bytes, text.size());
      return example->classes.size() > 1 ? example->texts.size() : bytes;
    };
    std::stable_sort(order.begin(), order.end(),
                     [&](const EncoderExample* a, const EncoderExample* b) { return size(a) > size(b); });
    std::vector<EncoderExample> made;
    for (std::size_t i = 0; i < count; ++i) made.push_back(*order[i % order.size()]);
    return made;
  }
  std::size_t batch_size() const { return batch_; }
  std::size_t training_count() const { return training_.size(); }

 private:
  std::vector<std::string> classes() const { return examples.classes; }
  std::int64_t batches_of_epoch() const { return static_cast<std::int64_t>(training_.size() / batch_); }

  const std::uint64_t seed_;
  std::span<const EncoderExample> training_;
  std::size_t batch_ = 0;
  std::uint32_t epoch_ = 0;
  std::vector<std::uint32_t> order_;

 public:
  const EncoderExamples examples;
  EncoderExamples apart;
  std::span<const EncoderExample> validation;
  std::int64_t steps = 0;
};

/// The most tokens of a text: --context, unless the model reads fewer.
EncoderTuner tuner_of(const Request& r, const EncoderExamples& examples) {
  return EncoderTuner(r.model, examples, r.tuner, r.encoder, r.context, r.device);
}

class EncoderTrainee : public Trainee {
 public:
  explicit EncoderTrainee(const Request& request)
      : r_(request), data_(request), tuner_(tuner_of(request, data_.examples)) {}

  RunStart start() const override {
    return {.model = tuner_.describe(),
            .parameters = tuner_.parameter_count(),
            .learns = std::string(name_of(data_.examples.objective)),
            .examples = data_.training_count(),
            .steps = data_.steps};
  }
  double learning_rate() const override { return r_.learning_rate.value_or(kLearningRate); }
  Json settings() const override {
    return {{"data", fmt::format("{:016x}", data_.examples.hash)},
            {"validation", fmt::format("{:016x}", data_.apart.hash)},
            {"objective", std::string(name_of(data_.examples.objective))},
            {"classes", data_.examples.classes},
            {"scale", r_.encoder.scale},
            {"dropout", r_.encoder.dropout}};
  }
  std::uint64_t planned_bytes() override { return tuner_.planned_bytes(data_.largest_batch(data_.batch_size())); }
  std::uint64_t held_bytes() const override { return tuner_.trained_bytes(); }

  Tuner::StepResult step(std::int64_t number, double rate) override {
    std::vector<std::vector<EncoderExample>> batches;
    for (Extent i = 0; i < r_.tuner.accumulate; ++i) batches.push_back(data_.batch(number * r_.tuner.accumulate + i));
    const std::vector<EncoderTuner::Batch> views(batches.begin(), batches.end());
    return tuner_.step(views, rate);
  }
  std::int64_t tokens() const override { return tuner_.tokens(); }
  bool can_measure() const override { return !data_.validation.empty(); }
  Measured measure() override { return tuner_.measure(data_.validation, r_.batch); }
  double loss_scale() const override { return tuner_.loss_scale(); }
  nn::StateDict state_dict() const override { return tuner_.state_dict(); }
  void load_state_dict(nn::StateDict& state) override { tuner_.load_state_dict(state); }
  void save(const std::filesystem::path& path) const override { tuner_.save(path); }
  void save_last(const std::filesystem::path& out) const override { tuner_.save(out / "model"); }

 private:
  const Request& r_;
  EncoderData data_;
  EncoderTuner tuner_;
};

Request checked_request(const Request& given) {
  Request request = with_batch(given, kBatch);
  if (request.to_gguf) throw UsageError("tune: a text encoder becomes a folder; leave out --gguf");
  request.tuner.full = true;
  check(request);
  return request;
}

}  // namespace

RunReport run_encoder(const Request& request, const Observer& observer, const std::stop_token& stop) {
  const Request whole = checked_request(request);
  return run_loop(whole, observer, stop, [&] { return std::make_unique<EncoderTrainee>(whole); });
}

RunNeed encoder_run_need(const Request& given) {
  const Request request = checked_request(given);
  EncoderData data(request);
  EncoderTuner tuner = tuner_of(request, data.examples);
  RunNeed need{.device = request.device,
               .batch = static_cast<Extent>(data.batch_size()),
               .context = tuner.length(),
               .examples = data.training_count(),
               .steps = data.steps,
               .parameters = tuner.parameter_count(),
               .precision = request.tuner.precision,
               .optimizer = optim::rule_named(request.tuner.optimizer).title};
  need.trained = tuner.trained_bytes();
  const std::vector<EncoderExample> largest = data.largest_batch(data.batch_size());
  need.step = tuner.planned_bytes(largest);
  if (!data.validation.empty()) need.validation = tuner.planned_measure_bytes(largest);
  need.available = available_for(request);
  if (need.available) need.fits = need.total() <= *need.available;
  return need;
}

}  // namespace weft::tune
