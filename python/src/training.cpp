// Training on text, and models that were trained.
#include <filesystem>
#include <memory>

#include "nanobind/stl/filesystem.h"
#include "options.hpp"
#include "weft/train.hpp"

namespace weft::python {
namespace {

using Path = std::filesystem::path;

// Events of a run, given to a Python function. It stops the run by an exception, as does Ctrl-C.
class PythonObserver final : public train::Observer {
 public:
  explicit PythonObserver(nb::object function) : function_(std::move(function)) {}
  void begin(const train::RunStart& start) override {
    send("begin", [&](nb::dict& event) {
      event["folder"] = start.folder;
      event["resumed"] = start.resumed;
      event["step"] = start.steps;
    });
  }
  void step(const train::Metrics& m) override {
    send("step", [&](nb::dict& event) {
      event["step"] = m.step;
      event["loss"] = m.loss;
      event["val_loss"] = m.val_loss ? nb::cast(*m.val_loss) : nb::none();
      event["tokens_per_second"] = m.tokens_per_second;
      event["learning_rate"] = m.learning_rate;
      event["grad_norm"] = m.grad_norm;
      event["seconds"] = m.seconds;
    });
  }
  void sample(const train::Sample& sample) override {
    send("sample", [&](nb::dict& event) {
      event["step"] = sample.step;
      event["text"] = std::string(sample.text);
    });
  }
  void checkpoint(const train::SavedCheckpoint& saved) override {
    send("checkpoint", [&](nb::dict& event) {
      event["step"] = saved.step;
      event["path"] = saved.path;
      event["best"] = saved.best;
    });
  }
  void warning(std::string_view text) override {
    send("warning", [&](nb::dict& event) { event["text"] = std::string(text); });
  }

 private:
  template <class F>
  void send(const char* kind, const F& fill) {
    const nb::gil_scoped_acquire gil;
    if (PyErr_CheckSignals() != 0) raise();
    if (function_.is_none()) return;
    nb::dict event;
    event["event"] = kind;
    fill(event);
    function_(event);
  }
  nb::object function_;
};

struct RunModel {
  std::unique_ptr<train::LoadedModel> loaded;  // the generator refers to it
  std::unique_ptr<train::Generator> generator;
};

}  // namespace

void bind_training(nb::module_& m) {
  m.def("_presets", [] {
    nb::dict all;
    for (const train::Preset& each : train::presets()) all[std::string(each.name).c_str()] = std::string(each.doc);
    return all;
  });
  m.def(
      "_train_text",
      [](const Path& out, const nb::dict& given, nb::object observer) {
        train::TrainRequest request;
        request.out = out;
        take(given, "resume", request.resume);
        take(given, "device", request.device);
        take(given, "preset", request.preset);
        take(given, "data", request.data);
        take(given, "vocabulary", request.vocabulary);
        take(given, "steps", request.steps);
        take(given, "seconds", request.seconds);
        take(given, "seed", request.seed);
        take(given, "batch", request.batch);
        take(given, "context", request.context);
        take(given, "layers", request.layers);
        take(given, "heads", request.heads);
        take(given, "width", request.width);
        take(given, "dropout", request.dropout);
        take(given, "learning_rate", request.learning_rate);
        take(given, "optimizer", request.optimizer);
        take(given, "optimizer_options", request.optimizer_options);
        take(given, "weight_decay", request.weight_decay);
        take(given, "precision", request.precision);
        take(given, "exchange", request.exchange);
        take(given, "divide", request.divide);
        take(given, "accumulate", request.accumulate);
        take(given, "log_every", request.log_every);
        take(given, "eval_every", request.eval_every);
        take(given, "sample_every", request.sample_every);
        take(given, "sample_tokens", request.sample_tokens);
        PythonObserver python(observer);
        train::Observer* observers[] = {&python};
        const train::TrainResult result = without_gil([&] { return train::train_text(request, observers); });
        nb::dict made;
        made["steps"] = result.steps;
        made["validation_loss"] = result.validation_loss;
        made["seconds"] = result.seconds;
        made["interrupted"] = result.interrupted;
        return made;
      },
      nb::arg("out"), nb::arg("request"), nb::arg("observer").none());
  nb::class_<RunModel>(m, "_RunModel")
      .def("generate",
           [](RunModel& self, const std::string& prompt, std::int64_t count, double temperature, int top_k,
              double top_p, std::uint64_t seed, nb::object sink) {
             const train::SampleOptions options{temperature, top_k, top_p, seed};
             const nb::gil_scoped_release free;
             self.generator->generate(prompt, count, options, [&](std::string_view piece) {
               const nb::gil_scoped_acquire gil;
               if (PyErr_CheckSignals() != 0) raise();
               return nb::cast<bool>(sink(nb::str(piece.data(), piece.size())));
             });
           })
      .def_prop_ro("step", [](const RunModel& self) { return self.loaded->step; })
      .def("describe", [](const RunModel& self) { return self.loaded->model->describe(); });
  m.def("_load_run", [](const Path& path) {
    RunModel made{std::make_unique<train::LoadedModel>(train::load_model(path)), nullptr};
    made.generator = std::make_unique<train::Generator>(*made.loaded->model, made.loaded->vocabulary);
    return made;
  });
}

}  // namespace weft::python
