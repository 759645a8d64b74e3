#include "weft/train/need.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "base/file.hpp"
#include "base/processors.hpp"
#include "train/learner.hpp"
#include "train/most_rows.hpp"
#include "train/run_folder.hpp"
#include "weft/error.hpp"
#include "weft/optim/table.hpp"
#include "weft/parallel.hpp"

namespace weft::train {
namespace {

/// The configuration of the run: stored in its folder, or new.
RunConfig config_of(const TrainRequest& request) {
  if (!request.resume) return new_run(request);
  const RunFolder folder{request.out};
  if (!folder.has_run())
    throw UsageError(fmt::format("{}: there is no run to resume; leave --resume out", request.out.string()));
  return resumed_run(run_config_from_json(read_text_file(folder.config()), folder.config().string()), request, 0);
}

}  // namespace

TrainingNeed training_need(const TrainRequest& request) {
  TrainingNeed need;
  need.config = config_of(request);
  RunConfig& config = need.config;
  const TextData data = TextData::load(config.data, config.vocabulary, config.model.context);
  config.model.vocabulary = std::max(config.model.vocabulary, data.vocabulary.size());
  const std::vector<Device> devices = parallel::parse_devices(request.device);
  need.device = devices[0];
  need.devices = static_cast<int>(devices.size());
  if (config.batch % need.devices != 0)
    throw UsageError(fmt::format("a batch of {} texts cannot be divided over {} devices; choose a multiple of {}",
                                 config.batch, need.devices, need.devices));
  need.rows = config.batch / need.devices;
  const bool is_cpu = need.device.kind == Device::Kind::cpu;
  if (request.device_memory > 0)
    need.available = request.device_memory;
  else if (is_cpu)
    need.available = free_memory();

  need.parameters = nn::GPT(config.model).parameter_count();
  need.weights = static_cast<std::uint64_t>(need.parameters) * sizeof(float);
  need.moments = state_bytes(config) - need.weights;
  if (need.available && need.total() > *need.available) {
    need.fits = false;
    need.largest_rows = 0;
    return need;
  }
  set_default_device(need.device);
  Learner learner(config, nullptr);
  need.step = learner.planned_step_bytes(need.rows);
  need.validation = learner.planned_loss_bytes(config.batch);  // by the first device alone
  if (!need.available) return need;
  need.fits = need.total() <= *need.available;
  need.largest_rows = most_rows(
      [&](Extent rows) { return learner.planned_step_bytes(rows) + learner.planned_loss_bytes(rows * need.devices); },
      need.rows, *need.step + *need.validation, *need.available - need.weights - need.moments);
  return need;
}

std::string TrainingNeed::to_string() const {
  std::string text;
  const auto row = [&](std::string_view name, std::uint64_t bytes, std::string_view note) {
    text += fmt::format("  {:<12} {:>12.1f} MB{}{}\n", name, static_cast<double>(bytes) / 1e6, note.empty() ? "" : "  ",
                        note);
  };
  row("weights", weights, fmt::format("{} parameters in f32", parameters));
  row("moments", moments,
      fmt::format("of {}{}", optim::rule_named(config.optimizer).title,
                  config.accumulate > 1 ? ", and the sum of gradients" : ""));
  if (step) {
    row("step", *step,
        fmt::format("gradients, activations and scratch for {} x {} tokens in {}, as planned", rows,
                    config.model.context, name_of(config.precision)));
    row("validation", *validation, "activations and scratch, as planned");
  }
  row(step ? "all" : "at least", total(),
      devices == 1 ? device.to_string() : fmt::format("{} and each other device", device.to_string()));
  if (!available) return text + "the device does not tell how much memory it has; --device-memory says it\n";
  row("available", *available, fits ? "the run fits" : "the run does not fit");
  const bool may_recompute = !config.recompute && step;
  if (!fits && !step)
    text += "a smaller model fits: fewer --layers, a smaller --width\n";
  else if (*largest_rows > 0)
    text += fmt::format("the largest batch that fits: {}{}\n", *largest_rows * devices,
                        !fits && may_recompute ? "; or try --recompute true" : "");
  else
    text += fmt::format("no batch fits; try a smaller --context{}\n", may_recompute ? ", or --recompute true" : "");
  return text;
}

}  // namespace weft::train
