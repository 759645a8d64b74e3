// Fine-tuning of language models and text encoders.
#include <filesystem>

#include "nanobind/stl/filesystem.h"
#include "options.hpp"
#include "weft/train/config.hpp"
#include "weft/tune.hpp"

namespace weft::python {
namespace {

tune::Request request_of(const std::filesystem::path& model, const std::filesystem::path& data,
                         const std::filesystem::path& out, const nb::dict& given) {
  tune::Request request{.model = model, .data = data, .out = out};
  std::string precision = "f32", preference_loss = "sigmoid";
  nb::object device = nb::none();
  bool keeps = false;
  std::string schedule = "cosine";
  std::optional<std::string> objective;
  take(given, "validation", request.validation);
  take(given, "from_adapter", request.tuner.from);
  take(given, "precision", precision);
  take(given, "device", device);
  take(given, "keep_activations", keeps);
  take(given, "rank", request.tuner.rank);
  take(given, "alpha", request.tuner.alpha);
  take(given, "dropout", request.tuner.dropout);
  take(given, "dora", request.tuner.dora);
  take(given, "full", request.tuner.full);
  take(given, "targets", request.tuner.targets);
  take(given, "save_modules", request.tuner.saved);
  take(given, "seed", request.tuner.seed);
  take(given, "accumulate", request.tuner.accumulate);
  take(given, "optimizer", request.tuner.optimizer);
  take(given, "optimizer_options", request.tuner.optimizer_options);
  take(given, "weight_decay", request.tuner.weight_decay);
  take(given, "clip_norm", request.tuner.clip_norm);
  take(given, "context", request.context);
  take(given, "batch", request.batch);
  take(given, "steps", request.steps);
  take(given, "epochs", request.epochs);
  take(given, "learning_rate", request.learning_rate);
  take(given, "beta", request.tuner.preference.beta);
  take(given, "balance", request.tuner.balance);
  take(given, "label_smoothing", request.tuner.preference.label_smoothing);
  take(given, "preference_loss", preference_loss);
  take(given, "warm_up", request.warm_up);
  take(given, "log_every", request.log_every);
  take(given, "eval_every", request.eval_every);
  take(given, "checkpoint_every", request.checkpoint_every);
  take(given, "device_memory", request.device_memory);
  take(given, "resume", request.resume);
  take(given, "schedule", schedule);
  take(given, "objective", objective);
  take(given, "scale", request.encoder.scale);
  take(given, "model_dropout", request.encoder.dropout);
  request.schedule = tune::rate_schedule_named(schedule);
  if (objective) request.encoder.objective = tune::objective_named(*objective);
  take(given, "gguf", request.to_gguf);
  take(given, "chat_template", request.chat_template);
  request.tuner.precision = train::precision_named(precision);
  request.tuner.recompute = !keeps;
  request.tuner.preference.loss = tune::preference_loss_named(preference_loss);
  if (!device.is_none()) request.device = device_from(device.ptr());
  return request;
}

}  // namespace

void bind_tuning(nb::module_& m) {
  m.def(
      "_tune",
      [](const std::filesystem::path& model, const std::filesystem::path& data, const std::filesystem::path& out,
         const nb::dict& given, nb::object function) {
        const tune::Request request = request_of(model, data, out, given);
        tune::Observer observer;
        observer.step = [&](const tune::Progress& p) {
          const nb::gil_scoped_acquire gil;
          if (PyErr_CheckSignals() != 0) raise();
          if (function.is_none()) return;
          nb::dict event;
          event["step"] = p.step;
          event["steps"] = p.steps;
          event["loss"] = p.loss;
          event["validation_loss"] = p.validation_loss;
          event["accuracy"] = p.accuracy;
          event["margin"] = p.margin;
          event["balance"] = p.balance;
          event["validation_accuracy"] = p.validation_accuracy;
          event["validation_f1"] = p.validation_f1;
          event["validation_spearman"] = p.validation_spearman;
          event["learning_rate"] = p.learning_rate;
          event["grad_norm"] = p.grad_norm;
          event["tokens_per_second"] = p.tokens_per_second;
          event["seconds"] = p.seconds;
          function(event);
        };
        const tune::RunReport report = without_gil([&] { return tune::run(request, observer); });
        nb::dict made;
        made["steps"] = report.steps;
        made["first_validation"] = report.first_validation;
        made["last_validation"] = report.last_validation;
        made["best_validation"] = report.best_validation;
        made["last_accuracy"] = report.last_accuracy;
        made["last_f1"] = report.last_f1;
        made["last_spearman"] = report.last_spearman;
        made["seconds"] = report.seconds;
        return made;
      },
      nb::arg("model"), nb::arg("data"), nb::arg("out"), nb::arg("options"), nb::arg("observer").none());
  m.def(
      "_tune_need",
      [](const std::filesystem::path& model, const std::filesystem::path& data, const nb::dict& given) {
        const tune::Request request = request_of(model, data, {}, given);
        const tune::RunNeed need = without_gil([&] { return tune::run_need(request); });
        nb::dict made;
        made["steps"] = need.steps;
        made["examples"] = need.examples;
        made["parameters"] = need.parameters;
        made["weights"] = need.weights;
        made["trained"] = need.trained;
        made["step"] = need.step;
        made["validation"] = need.validation;
        made["total"] = need.total();
        made["available"] = need.available;
        made["fits"] = need.fits;
        made["largest_batch"] = need.largest_batch;
        return made;
      },
      nb::arg("model"), nb::arg("data"), nb::arg("options"));
}

}  // namespace weft::python
