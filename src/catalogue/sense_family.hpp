// What the operations of vision, speech and text encoders share. A loaded model is a resource, vision:NAME, speech:NAME or
// encoder:NAME, with the actions load, describe and run. One call at a time uses a model; others wait.
#pragma once

#include <fmt/format.h>

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "catalogue/engine_errors.hpp"
#include "catalogue/families.hpp"
#include "catalogue/held_networks.hpp"
#include "catalogue/named_resources.hpp"

namespace weft::operations {

inline constexpr std::size_t kSenseModelsMax = 1000;

/// The operations that every kind of model has, and what the others of its namespace share.
template <class Model>
struct SenseFamily {
  Registry& registry;
  std::string space;
  std::shared_ptr<NamedResources<Model>> models;

  SenseFamily(Registry& to, const char* name, const char* code)
      : registry(to),
        space(name),
        models(std::make_shared<NamedResources<Model>>(name, code, kSenseModelsMax)),
        code_(code) {}

  void add(const char* name, Kind kind, const char* description, const std::string& properties, const char* required,
           const char* output, const char* action, std::function<Value(Context&)> run) const {
    Specification s{.space = space, .name = name, .kind = kind, .title = name, .description = description};
    s.input = schema_of(fmt::format(
        R"({{"type": "object", "required": ["model"{}], "additionalProperties": false, "properties": {{"model": {}{}{}}}}})",
        required, kNetworkName, properties.empty() ? "" : ", ", properties));
    s.output = schema_of(output);
    s.errors = engine_errors();
    s.errors.push_back({code_ + "_NOT_FOUND", "no such model is loaded", true, 404});
    s.errors.push_back({code_ + "_EXISTS", "the name is taken", true, 409});
    s.errors.push_back({code_ + "_LIMIT", "as many models are loaded as there may be", true, 429});
    s.errors.push_back({"WRONG_MODEL", "the model is of another kind than the operation needs"});
    s.errors.push_back({"FILE_ERROR", "a file that is missing, damaged, too large, or of an unknown format"});
    s.access = {.resource_type = space, .resource_action = action, .resource_input = "model"};
    if (std::string_view(action) == "load") s.access.scopes = {space + ":load"};
    registry.add(std::move(s), [run = std::move(run)](Context& call) { return with_codes([&] { return run(call); }); });
  }

  void add_common(const char* what, const CatalogueOptions& options, Model (*load)(const std::filesystem::path&),
                  Value (*describe)(const Model&)) const {
    add_common(
        what, options, [load](const std::filesystem::path& path, const Value&) { return load(path); }, describe);
  }
  /// load, list, describe and unload. `more` are properties of load's input beside the path; `load` gets the input.
  void add_common(const char* what, const CatalogueOptions& options,
                  std::function<Model(const std::filesystem::path&, const Value& input)> load,
                  Value (*describe)(const Model&), const std::string& more = "") const {
    constexpr const char* kNothing = R"({"type": "object", "maxProperties": 0})";
    add("load", Kind::mutation, what, R"("path": {"type": "string"})" + more, R"(, "path")", "true", "load",
        [models = models, options, load, describe](Context& call) {
          const std::string &name = call.input("model").string(), &path = call.input("path").string();
          require_right(call, "weights", path, "read");
          models->check_free(name);
          Model model = load(allowed_path(options, path, false), call.input());
          Value answer = describe(model);
          models->add(name, std::move(model));
          return answer;
        });
    registry.add(
        {.space = space,
         .name = "list",
         .title = "list",
         .description = "Names of the loaded models that the caller may describe.",
         .input = schema_of(R"({"type": ["object", "null"]})"),
         .output = schema_of(
             R"({"type": "object", "properties": {"models": {"type": "array", "items": {"type": "string"}}}})")},
        [models = models](Context& call) {
          return Value::object({{"models", models->names(call, "describe")}});
        });
    add("describe", Kind::query, "What a loaded model is, and its sizes.", "", "", "true", "describe",
        [use = this->use(), describe](Context& call) { return use(call, describe); });
    add("unload", Kind::mutation, "Frees a model, once calls that use it have ended.", "", "", kNothing, "load",
        [models = models](Context& call) {
          models->remove(call.input("model").string());
          return Value(Value::Object());
        });
  }

  /// use(call, f): f of the model that the call names.
  auto use() const {
    return [models = models](Context& call, const auto& function) {
      return models->find(call.input("model").string())->use(call, function);
    };
  }

 private:
  std::string code_;
};

inline std::vector<std::string> texts_of(const Value& texts) {
  std::vector<std::string> all;
  for (const Value& each : texts.elements()) all.push_back(each.string());
  return all;
}

}  // namespace weft::operations
