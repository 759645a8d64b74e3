// Language models and tokenizers.
#include <fmt/format.h>

#include <filesystem>

#include "callable.hpp"
#include "nanobind/stl/filesystem.h"
#include "options.hpp"
#include "weft/llm.hpp"

namespace weft::python {
namespace {

using Path = std::filesystem::path;

std::vector<llm::Message> messages_from(const std::vector<nb::dict>& given) {
  std::vector<llm::Message> list;
  for (const nb::dict& each : given) {
    llm::Message& message = list.emplace_back();
    take(each, "role", message.role);
    take(each, "content", message.content);
    take(each, "reasoning", message.reasoning);
    take(each, "tool_calls", message.tool_calls);
    take(each, "name", message.name);
    take(each, "tool_call_id", message.tool_call_id);
    if (each.contains("parts"))
      for (const nb::handle part : nb::cast<nb::list>(each["parts"])) {
        if (PyUnicode_Check(part.ptr()))
          message.parts.emplace_back(nb::cast<std::string>(part));
        else
          message.parts.emplace_back(tensor_from(part.ptr()));
      }
  }
  return list;
}

llm::ChatOptions chat_options(const nb::dict& given) {
  llm::ChatOptions options;
  take(given, "tools", options.tools);
  take(given, "documents", options.documents);
  take(given, "variables", options.variables);
  take(given, "template_name", options.template_name);
  return options;
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
  take(given, "penalty_window", options.sampling.penalty_window);
  take(given, "logit_bias", options.sampling.logit_bias);
  take(given, "stop", options.stop);
  take(given, "draft", options.draft);
  take(given, "parse_special", options.parse_special);
  take(given, "log_probabilities", options.log_probabilities);
  take(given, "top_log_probabilities", options.top_log_probabilities);
  take(given, "seed", options.sampling.seed);
  return options;
}

nb::dict dict_of(const llm::Result& result) {
  nb::dict made;
  made["text"] = result.text;
  made["finish"] = std::string(llm::name_of(result.finish));
  made["stop_text"] = result.stop_text;
  made["prompt_tokens"] = result.prompt_tokens;
  made["reused_tokens"] = result.reused_tokens;
  made["prompt_seconds"] = result.prompt_seconds;
  made["seconds"] = result.seconds;
  made["drafted_tokens"] = result.drafted_tokens;
  made["accepted_tokens"] = result.accepted_tokens;
  nb::list tokens, probabilities, tops;
  for (const llm::GeneratedToken& each : result.tokens) {
    tokens.append(each.id);
    probabilities.append(each.log_probability);
    nb::list top;
    for (const llm::TokenProbability& other : each.top) top.append(nb::make_tuple(other.id, other.log_probability));
    tops.append(top);
  }
  made["tokens"] = tokens;
  made["log_probabilities"] = probabilities;
  made["top"] = tops;
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
        const llm::Result result = without_gil([&] { return self.generation.result(); });
        return dict_of(result);
      });
  nb::class_<llm::Model>(m, "_Model")
      .def("generate",
           [](const llm::Model& self, const std::string& prompt, const nb::dict& options) {
             return Stream{self.generate(prompt, generate_options(options)), {}, false};
           })
      .def("generate",
           [](const llm::Model& self, const std::vector<std::int32_t>& prompt, const nb::dict& options) {
             return Stream{self.generate(prompt, generate_options(options)), {}, false};
           })
      .def(
          "chat",
          [](const llm::Model& self, const std::vector<nb::dict>& messages, const nb::dict& options,
             const nb::dict& chat) {
            return Stream{self.chat(messages_from(messages), generate_options(options), chat_options(chat)), {}, false};
          })
      .def("describe_image",
           [](const llm::Model& self, nb::object image, const std::string& text, const nb::dict& options,
              const nb::dict& chat) {
             return Stream{
                 self.describe_image(tensor_from(image.ptr()), text, generate_options(options), chat_options(chat)),
                 {},
                 false};
           })
      .def("generate_batch",
           [](const llm::Model& self, const std::vector<std::string>& prompts, const nb::dict& options) {
             const llm::GenerateOptions given = generate_options(options);
             const std::vector<llm::Result> results = without_gil([&] { return self.generate_batch(prompts, given); });
             nb::list list;
             for (const llm::Result& each : results) list.append(dict_of(each));
             return list;
           })
      .def("render", [](const llm::Model& self, const std::vector<nb::dict>& messages,
                        const nb::dict& chat) { return self.render(messages_from(messages), chat_options(chat)); })
      .def("chat_tokens",
           [](const llm::Model& self, const std::vector<nb::dict>& messages, const nb::dict& chat) {
             return self.chat_tokens(messages_from(messages), chat_options(chat));
           })
      .def("embed",
           [](const llm::Model& self, const std::vector<std::string>& texts, const std::string& pooling, bool normalize,
              bool add_special) {
             if (pooling != "mean" && pooling != "last") throw UsageError("embed: pooling is mean or last");
             const llm::EmbedOptions options{.pooling = pooling == "last" ? llm::Pooling::last : llm::Pooling::mean,
                                             .normalize = normalize,
                                             .add_special = add_special};
             const Tensor rows = without_gil([&] { return self.embed(texts, options); });
             return wrapped(rows);
           })
      .def(
          "forward",
          [](const llm::Model& self, const std::vector<std::int32_t>& tokens) {
            const std::vector<float> logits = without_gil([&] { return self.forward(tokens); });
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
      .def("tokenizer", &llm::Model::tokenizer)
      .def_prop_ro("end_tokens", &llm::Model::end_tokens)
      .def_prop_ro("vocabulary", &llm::Model::vocabulary)
      .def_prop_ro("width", &llm::Model::width)
      .def_prop_ro("context", &llm::Model::context)
      .def_prop_ro("trained_context", &llm::Model::trained_context)
      .def_prop_ro("has_template", &llm::Model::has_template)
      .def_prop_ro("reads_images", &llm::Model::reads_images)
      .def_prop_ro("notes", &llm::Model::notes)
      .def_prop_ro("device", &llm::Model::device)
      .def_prop_ro("parts",
                   [](const llm::Model& self) {
                     nb::list parts;
                     for (const llm::ModelPart& part : self.parts())
                       parts.append(nb::make_tuple(part.device, part.first_layer, part.layers, part.weight_bytes,
                                                   part.cache_bytes));
                     return parts;
                   })
      .def("describe", &llm::Model::describe, nb::arg("graph") = false);
  m.def(
      "_load_model",
      [](const Path& path, const nb::dict& given, nb::object progress) {
        llm::LoadOptions options;
        std::string cache = "f32";
        nb::object device = nb::none();
        take(given, "context", options.context);
        take(given, "sequences", options.sequences);
        take(given, "whole_cache", options.whole_cache);
        take(given, "exact", options.exact);
        take(given, "keep_packed", options.keep_packed);
        take(given, "device_memory", options.device_memory);
        take(given, "chat_template", options.chat_template);
        take(given, "mmproj", options.mmproj);
        std::vector<std::pair<std::string, double>> adapters;
        take(given, "adapters", adapters);
        take(given, "merge_adapters", options.merge_adapters);
        for (const auto& [adapter, scale] : adapters) options.adapters.push_back({adapter, scale});
        take(given, "cache", cache);
        take(given, "device", device);
        take(given, "split", options.split);
        take(given, "layers", options.layers);
        options.cache = cache == "f16"   ? CacheType::f16
                        : cache == "q8"  ? CacheType::q8
                        : cache == "f32" ? CacheType::f32
                                         : throw UsageError("cache is f32, f16 or q8");
        if (nb::isinstance<nb::list>(device) || nb::isinstance<nb::tuple>(device))
          for (const nb::handle each : device) options.devices.push_back(device_from(each.ptr()));
        else if (!device.is_none())
          options.device = device_from(device.ptr());
        if (!progress.is_none())
          options.progress = [call = Callable(progress)](std::uint64_t done, std::uint64_t total) {
            const nb::gil_scoped_acquire gil;
            call.get()(done, total);
          };
        const nb::gil_scoped_release free;
        return llm::load(path, options);
      },
      nb::arg("path"), nb::arg("options"), nb::arg("progress").none());
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
}

}  // namespace weft::python
