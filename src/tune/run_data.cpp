#include "tune/run_data.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "weft/error.hpp"

namespace weft::tune {

void check(const Request& r) {
  if (r.batch < 1 || r.batch > 65536)
    throw UsageError(fmt::format("tune: a batch of {} rows; give 1 to 65536", r.batch));
  if (r.steps < 0) throw UsageError(fmt::format("tune: {} steps; give 1 or more, or 0 to go by epochs", r.steps));
  if (r.steps == 0 && !(r.epochs > 0 && r.epochs <= 1e6))
    throw UsageError(fmt::format("tune: {} epochs; give more than 0", r.epochs));
  if (r.learning_rate && !(*r.learning_rate > 0 && *r.learning_rate <= 10))
    throw UsageError(fmt::format("tune: a learning rate of {}; give more than 0, as 2e-4", *r.learning_rate));
  if (!(r.warm_up >= 0 && r.warm_up <= 1e9)) throw UsageError(fmt::format("tune: a warm-up of {} steps", r.warm_up));
  if (r.tuner.full && r.to_gguf)
    throw UsageError(
        "tune: all weights train, so there is no adapter for a GGUF file; convert the model of the run (weft convert)");
  if (!r.tuner.saved.empty() && r.to_gguf)
    throw UsageError(
        "tune: GGUF files of adapters have no place for modules that train as a whole; leave out --gguf, or "
        "--save-modules");
  if (r.log_every < 1 || r.eval_every < 0 || r.checkpoint_every < 1)
    throw UsageError("tune: intervals of logs and checkpoints are 1 step or more, that of measurements 0 or more");
}

Request with_batch(Request request, Extent batch) {
  if (request.batch == 0) request.batch = batch;
  return request;
}

RunData::RunData(const Request& request, const llm::Model& model, Extent texts_of_row)
    : examples(read_examples(request.data, model, request.context)),
      learns_preferences(!examples.preferences.empty()),
      learning_rate(
          request.learning_rate.value_or((learns_preferences ? 2e-5 : 2e-4) * (request.tuner.full ? 0.1 : 1))) {
  if (learns_preferences && request.batch % 2 != 0)
    throw UsageError(fmt::format(
        "tune: a batch of {} rows; chosen and rejected texts are in rows of their own, so give an even number",
        request.batch));
  if (!request.validation.empty()) {
    apart = read_examples(request.validation, model, request.context);
    if (apart.preferences.empty() == learns_preferences)
      throw UsageError(fmt::format("{}: it has {}, and {} has {}", request.validation.string(),
                                   learns_preferences ? "examples" : "preferences", request.data.string(),
                                   learns_preferences ? "preferences" : "examples"));
  }
  if (learns_preferences)
    make_streams(request, examples.preferences, apart.preferences, texts_of_row);
  else
    make_streams(request, examples.all, apart.all, texts_of_row);
  steps = planned_steps(request);
}

template <class T>
void RunData::make_streams(const Request& r, const std::vector<T>& all, const std::vector<T>& other,
                           Extent texts_of_row) {
  const std::size_t held = r.validation.empty() ? all.size() / 20 : 0;
  const std::span<const T> training = std::span(all).first(all.size() - held),
                           validation = r.validation.empty() ? std::span(all).last(held) : std::span(other);
  train.emplace(training, r.context, r.tuner.seed, true, texts_of_row);
  if (!validation.empty()) validate.emplace(validation, r.context, r.tuner.seed, false, texts_of_row);
  if (!learns_preferences) return;
  training_preferences = training.size();
  validation_preferences = validation.size();
}

std::int64_t RunData::planned_steps(const Request& r) {
  if (r.steps > 0) return r.steps;
  const double whole = std::floor(r.epochs);
  const auto epochs = static_cast<std::int64_t>(whole);
  double rows = static_cast<double>(train->rows_of_epochs(epochs));
  if (r.epochs > whole)
    rows += (r.epochs - whole) * static_cast<double>(train->rows_of_epochs(epochs + 1) - train->rows_of_epochs(epochs));
  const auto rows_of_step = static_cast<double>(r.batch * r.tuner.accumulate);
  return std::max<std::int64_t>(1, static_cast<std::int64_t>(std::ceil(rows / rows_of_step)));
}

std::string RunData::note_of_cut(Extent context) const {
  return fmt::format("{} of {} examples are longer than the context of {} tokens, and lost their end", examples.cut,
                     examples.all.size() + 2 * examples.preferences.size(), context);
}

}  // namespace weft::tune
