// What a run of fine-tuning would take, without its weights.
#include <fmt/format.h>

#include <algorithm>

#include "base/processors.hpp"
#include "llm/constant_values.hpp"
#include "llm/engine.hpp"
#include "train/most_rows.hpp"
#include "tune/parameters.hpp"
#include "tune/run_data.hpp"
#include "tune/run_loop.hpp"
#include "tune/steps.hpp"
#include "weft/encoder.hpp"
#include "weft/error.hpp"
#include "weft/optim/table.hpp"
#include "weft/tune.hpp"

namespace weft::tune {

namespace {

/// Without a plan, which needs the room for all weights.
RunNeed need_of_all_weights(const Request& request, const llm::Model& model) {
  const auto engine = llm::detail::engine_of(model);
  RunData data(request, model, engine->has_states() ? 1 : Rows::kTextsMax);
  RunNeed need{.device = request.device, .batch = request.batch, .context = request.context};
  need.examples = data.examples.all.size() + data.examples.preferences.size();
  need.steps = data.steps;
  need.precision = request.tuner.precision;
  need.weights = engine->weight_bytes();
  need.parameters = llm::constant_count(engine->graph());
  need.trained = trained_bytes(request.tuner, constants_of(engine->graph()));
  need.optimizer = optim::rule_named(request.tuner.optimizer).title;
  need.available = available_for(request);
  // A plan takes what trains of it on this machine, or on its device.
  const std::uint64_t room = std::min(need.available.value_or(free_memory()), free_memory());
  need.fits = need.weights + need.trained <= room;
  need.largest_batch = 0;
  return need;
}

}  // namespace

RunNeed run_need(const Request& given) {
  if (encoder::is_encoder(given.model)) return encoder_run_need(given);
  const Request request = with_batch(given, 4);
  check(request);
  const llm::Model model = llm::detail::planned_model(
      request.model,
      {.context = request.context, .chat_template = request.chat_template, .mmproj = "none", .device = request.device});
  if (request.tuner.full) {
    RunNeed need = need_of_all_weights(request, model);
    if (!need.fits) return need;
  }
  Tuner tuner(model, request.tuner);
  RunData data(request, model, tuner.texts_of_row());
  const bool pairs = data.learns_preferences;
  RunNeed need{.device = request.device, .batch = request.batch, .context = request.context};
  need.examples = data.examples.all.size() + data.examples.preferences.size();
  need.steps = data.steps;
  need.parameters = tuner.parameter_count();
  need.precision = request.tuner.precision;
  need.weights = llm::detail::engine_of(model)->weight_bytes();
  need.trained = tuner.trained_bytes();
  need.optimizer = optim::rule_named(request.tuner.optimizer).title;
  const auto planned = [&](Extent rows) {
    const std::uint64_t validation = data.validate ? tuner.planned_measure_bytes(rows, request.context, pairs) : 0;
    return std::pair(tuner.planned_bytes(rows, request.context, pairs), validation);
  };
  std::tie(need.step, need.validation) = planned(request.batch);
  need.available = available_for(request);
  if (!need.available) return need;
  need.fits = need.total() <= *need.available;
  const std::uint64_t fixed = need.weights + need.trained;
  need.largest_batch = 0;
  if (fixed >= *need.available) return need;
  // Rows of preferences come in twos.
  const Extent unit = pairs ? 2 : 1;
  const auto bytes = [&](Extent units) {
    const auto [step, validation] = planned(units * unit);
    return step + validation;
  };
  need.largest_batch =
      unit * train::most_rows(bytes, request.batch / unit, need.step + need.validation, *need.available - fixed);
  return need;
}

std::string RunNeed::to_string() const {
  std::string text;
  const auto row = [&](std::string_view name, std::uint64_t bytes, std::string_view note) {
    text += fmt::format("  {:<12} {:>12.1f} MB  {}\n", name, static_cast<double>(bytes) / 1e6, note);
  };
  row("weights", weights, "of the model, as the device holds them");
  row("trained", trained, fmt::format("{} numbers in f32, and the state of {}", parameters, optimizer));
  row("step", step,
      fmt::format("gradients, activations and scratch for {} x {} tokens in {}, as planned", batch, context,
                  name_of(precision)));
  row("validation", validation, "activations and scratch, as planned");
  row("all", total(), device.to_string());
  text += fmt::format("{} steps over {} examples\n", steps, examples);
  if (!available) return text + "the device does not tell how much memory it has; --device-memory says it\n";
  row("available", *available, fits ? "the run fits" : "the run does not fit");
  if (largest_batch.value_or(0) > 0) return text + fmt::format("the largest batch that fits: {}\n", *largest_batch);
  return text + (weights + trained >= *available ? "no batch fits: weights and what trains take all of it\n"
                                                 : "no batch fits; try a smaller --context\n");
}

}  // namespace weft::tune
