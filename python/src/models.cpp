// Language models, tokenizers, and training on text.
#include <fmt/format.h>

#include <filesystem>
#include <stop_token>

#include "base/interrupt.hpp"
#include "handle.hpp"
#include "nanobind/stl/filesystem.h"
#include "weft/llm.hpp"
#include "weft/train.hpp"

namespace weft::python {
namespace {

using Path = std::filesystem::path;

// A member of a dictionary of options, if it is given and not None.
template <class T>
void take(const nb::dict& given, const char* name, T& field) {
  if (!given.contains(name)) return;
  const nb::object value = given[name];
  if (!value.is_none()) field = nb::cast<T>(value);
}

using Messages = std::vector<std::pair<std::string, std::string>>;
std::vector<llm::Message> messages_from(const Messages& given) {
  std::vector<llm::Message> list;
  for (const auto& [role, content] : given) list.push_back({role, content, {}, {}, {}, {}});
  return list;
}

llm::GenerateOptions generate_options(const nb::dict& given) {
  llm::GenerateOptions options;
  take(given, "max_tokens", options.max_tokens);
  take(given, "temperature", options.sampling.temperature);
  take(given, "top_k", options.sampling.top_k);
  take(given, "top_p", options.sampling.top_p);
  take(given, "min_p", options.sampling.min_p);
  take(given, "typical", options.sampling.typical);
  take(given, "repetition_penalty", options.sampling.repetition_penalty);
  take(given, "frequency_penalty", options.sampling.frequency_penalty);
  take(given, "presence_penalty", options.sampling.presence_penalty);
  take(given, "stop", options.stop);
  take(given, "draft", options.draft);
  take(given, "parse_special", options.parse_special);
  take(given, "log_probabilities", options.log_probabilities);
  take(given, "seed", options.sampling.seed);
  return options;
}

nb::dict dict_of(const llm::Result& result) {
  nb::dict made;
  made["text"] = result.text;
  made["finish"] = std::string(llm::name_of(result.finish));
  made["prompt_tokens"] = result.prompt_tokens;
  made["reused_tokens"] = result.reused_tokens;
  made["prompt_seconds"] = result.prompt_seconds;
  made["seconds"] = result.seconds;
  nb::list tokens, probabilities;
  for (const llm::GeneratedToken& each : result.tokens) {
    tokens.append(each.id);
    probabilities.append(each.log_probability);
  }
  made["tokens"] = tokens;
  made["log_probabilities"] = probabilities;
  return made;
}

// A generation that Python iterates over. The model runs without the GIL.
struct Stream {
  llm::Generation generation;
  std::optional<llm::Generation::iterator> at;
  bool busy = false;
};

struct Busy {
  explicit Busy(bool& flag) : flag(flag) {
    if (flag) throw UsageError("generate: another thread is reading this stream");
    flag = true;
  }
  ~Busy() { flag = false; }
  bool& flag;
};

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

void bind_models(nb::module_& m) {
  nb::class_<Stream>(m, "_Stream")
      .def("__next__",
           [](Stream& self) {
             const Busy busy(self.busy);
             std::string piece;
             bool done = false;
             {
               const nb::gil_scoped_release free;
               if (!self.at)
                 self.at = self.generation.begin();
               else
                 ++*self.at;
               done = *self.at == self.generation.end();
               if (!done) piece = **self.at;
             }
             if (done) throw nb::stop_iteration();
             if (PyErr_CheckSignals() != 0) raise();
             return piece;
           })
      .def("result", [](Stream& self) {
        const Busy busy(self.busy);
        llm::Result result;
        {
          const nb::gil_scoped_release free;
          result = self.generation.result();
        }
        return dict_of(result);
      });
  nb::class_<llm::Model>(m, "_Model")
      .def("generate",
           [](const llm::Model& self, const std::string& prompt, const nb::dict& options) {
             return Stream{self.generate(prompt, generate_options(options)), {}, false};
           })
      .def("chat",
           [](const llm::Model& self, const Messages& messages, const nb::dict& options, const std::string& tools,
              const std::string& variables) {
             llm::ChatOptions chat;
             chat.tools = tools;
             chat.variables = variables;
             return Stream{self.chat(messages_from(messages), generate_options(options), chat), {}, false};
           })
      .def("generate_batch",
           [](const llm::Model& self, const std::vector<std::string>& prompts, const nb::dict& options) {
             const llm::GenerateOptions given = generate_options(options);
             std::vector<llm::Result> results;
             {
               const nb::gil_scoped_release free;
               results = self.generate_batch(prompts, given);
             }
             nb::list list;
             for (const llm::Result& each : results) list.append(dict_of(each));
             return list;
           })
      .def("render",
           [](const llm::Model& self, const Messages& messages) { return self.render(messages_from(messages)); })
      .def(
          "forward",
          [](const llm::Model& self, const std::vector<std::int32_t>& tokens) {
            std::vector<float> logits;
            {
              const nb::gil_scoped_release free;
              logits = self.forward(tokens);
            }
            return wrapped(tensor_from_bytes(logits.data(), {static_cast<Extent>(tokens.size()), self.vocabulary()},
                                             DType::f32, kCpu));
          },
          nb::sig("def forward(self, tokens: list[int]) -> Tensor"))
      .def("perplexity",
           [](const llm::Model& self, const std::string& text, Extent window) {
             const nb::gil_scoped_release free;
             return self.perplexity(text, {window, 0}).value;
           })
      .def("encode", [](const llm::Model& self, const std::string& text,
                        bool add_special) { return self.encode(text, add_special); })
      .def("decode",
           [](const llm::Model& self, const std::vector<std::int32_t>& tokens) { return self.decode(tokens); })
      .def_prop_ro("vocabulary", &llm::Model::vocabulary)
      .def_prop_ro("context", &llm::Model::context)
      .def_prop_ro("has_template", &llm::Model::has_template)
      .def_prop_ro("device", &llm::Model::device)
      .def("describe", &llm::Model::describe, nb::arg("graph") = false);
  m.def(
      "_load_model",
      [](const Path& path, Extent context, int sequences, const std::string& cache, bool exact, nb::object device) {
        llm::LoadOptions options;
        options.context = context;
        options.sequences = sequences;
        options.cache = cache == "f16"   ? CacheType::f16
                        : cache == "q8"  ? CacheType::q8
                        : cache == "f32" ? CacheType::f32
                                         : throw UsageError("cache is f32, f16 or q8");
        options.exact = exact;
        if (!device.is_none()) options.device = device_from(device.ptr());
        const nb::gil_scoped_release free;
        return llm::load(path, options);
      },
      nb::arg("path"), nb::arg("context"), nb::arg("sequences"), nb::arg("cache"), nb::arg("exact"),
      nb::arg("device").none());
  nb::class_<llm::Tokenizer>(m, "Tokenizer", "A tokenizer without the weights of its model.")
      .def_static("load", &llm::Tokenizer::load, nb::arg("path"), "From tokenizer.json, its folder, or a GGUF file.")
      .def(
          "encode",
          [](const llm::Tokenizer& self, const std::string& text, bool add_special, bool parse_special) {
            return self.encode(text, {add_special, parse_special});
          },
          nb::arg("text"), nb::arg("add_special") = true, nb::arg("parse_special") = true)
      .def(
          "decode",
          [](const llm::Tokenizer& self, const std::vector<std::int32_t>& ids, bool skip_special) {
            return self.decode(ids, skip_special);
          },
          nb::arg("ids"), nb::arg("skip_special") = false)
      .def("piece", &llm::Tokenizer::piece, nb::arg("id"))
      .def(
          "id_of", [](const llm::Tokenizer& self, const std::string& piece) { return self.id_of(piece); },
          nb::arg("piece"))
      .def("__len__", &llm::Tokenizer::size);

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
        take(given, "weight_decay", request.weight_decay);
        take(given, "precision", request.precision);
        take(given, "accumulate", request.accumulate);
        take(given, "log_every", request.log_every);
        take(given, "eval_every", request.eval_every);
        take(given, "sample_every", request.sample_every);
        take(given, "sample_tokens", request.sample_tokens);
        PythonObserver python(observer);
        train::Observer* observers[] = {&python};
        train::TrainResult result;
        {
          const nb::gil_scoped_release free;
          result = train::train_text(request, observers);
        }
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
