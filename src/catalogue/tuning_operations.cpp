// Fine-tuning of language models and text encoders as operations.
#include "base/session_state.hpp"
#include "catalogue/engine_errors.hpp"
#include "catalogue/families.hpp"
#include "weft/device.hpp"
#include "weft/session.hpp"
#include "weft/train/config.hpp"
#include "weft/tune.hpp"

namespace weft::operations {
namespace {

// Options of both operations, as those of `weft tune`.
constexpr const char* kTuningOptions =
    R"("model": {"type": "string", "description": "a GGUF file, or a folder"}, "data": {"type": "string", "description": "examples or preferences"},
       "validation": {"type": "string"}, "device": {"type": "string", "default": "cpu"}, "full": {"type": "boolean", "default": false},
       "rank": {"type": "integer", "minimum": 1, "maximum": 4096, "default": 16}, "alpha": {"type": "number", "exclusiveMinimum": 0, "default": 32},
       "dora": {"type": "boolean", "default": false}, "targets": {"type": "array", "items": {"type": "string"}, "default": []},
       "save_modules": {"type": "array", "items": {"type": "string"}, "default": [], "description": "modules that train as a whole"},
       "from": {"type": "string", "description": "an adapter to go on with"}, "steps": {"type": "integer", "minimum": 0, "default": 0},
       "epochs": {"type": "number", "exclusiveMinimum": 0, "default": 1}, "batch": {"type": "integer", "minimum": 1, "description": "4 rows, or 16 examples of a text encoder"},
       "accumulate": {"type": "integer", "minimum": 1, "default": 1}, "context": {"type": "integer", "minimum": 2, "default": 512},
       "optimizer": {"type": "string", "default": "adamw"}, "optimizer_options": {"type": "object", "default": {}, "description": "as {\"momentum\": 0.9}"},
       "learning_rate": {"type": "number", "exclusiveMinimum": 0}, "precision": {"enum": ["f32", "bf16", "f16"], "default": "f32"},
       "seed": {"type": "integer", "minimum": 0, "default": 1}, "beta": {"type": "number", "exclusiveMinimum": 0, "default": 0.1},
       "preference_loss": {"enum": ["sigmoid", "ipo"], "default": "sigmoid"},
       "label_smoothing": {"type": "number", "minimum": 0, "exclusiveMaximum": 0.5, "default": 0},
       "balance": {"type": "number", "minimum": 0, "default": 0, "description": "factor of the loss that keeps experts in use alike"},
       "schedule": {"enum": ["cosine", "linear", "constant"], "default": "cosine"},
       "objective": {"enum": ["single-label", "multi-label", "regression", "tokens", "ranking", "cosine", "cosent", "cross-encoder"], "description": "of text encoders; as the lines say"},
       "scale": {"type": "number", "exclusiveMinimum": 0, "default": 20, "description": "of cosines"}, "model_dropout": {"type": "boolean", "default": true})";

tune::Request request_of(const Value& input, const CatalogueOptions& options) {
  tune::Request request;
  request.model = allowed_path(options, input["model"].string(), false);
  request.data = allowed_path(options, input["data"].string(), false);
  if (const Value* path = input.find("validation")) request.validation = allowed_path(options, path->string(), false);
  if (const Value* path = input.find("from")) request.tuner.from = allowed_path(options, path->string(), false);
  request.device = parse_device(input["device"].string());
  tune::TunerOptions& tuner = request.tuner;
  tuner.full = input["full"].boolean();
  tuner.rank = input["rank"].integer();
  tuner.alpha = input["alpha"].number();
  tuner.dora = input["dora"].boolean();
  for (const Value& target : input["targets"].elements()) tuner.targets.push_back(target.string());
  for (const Value& module : input["save_modules"].elements()) tuner.saved.push_back(module.string());
  request.steps = input["steps"].integer();
  request.epochs = input["epochs"].number();
  if (const Value* batch = input.find("batch")) request.batch = batch->integer();
  request.schedule = tune::rate_schedule_named(input["schedule"].string());
  if (const Value* objective = input.find("objective"))
    request.encoder.objective = tune::objective_named(objective->string());
  request.encoder.scale = input["scale"].number();
  request.encoder.dropout = input["model_dropout"].boolean();
  tuner.accumulate = input["accumulate"].integer();
  tuner.optimizer = input["optimizer"].string();
  for (const auto& [name, value] : input["optimizer_options"].members())
    tuner.optimizer_options.push_back(fmt::format("{}={}", name, value.to_json()));
  request.context = input["context"].integer();
  if (const Value* rate = input.find("learning_rate")) request.learning_rate = rate->number();
  tuner.precision = train::precision_named(input["precision"].string());
  tuner.seed = input["seed"].unsigned_integer();
  tuner.preference = {tune::preference_loss_named(input["preference_loss"].string()), input["beta"].number(),
                      input["label_smoothing"].number()};
  tuner.balance = input["balance"].number();
  return request;
}

Value value_of(const tune::Progress& progress) {
  Value::Object event{{"step", progress.step},
                      {"steps", progress.steps},
                      {"loss", finite_or_null(progress.loss)},
                      {"learning_rate", progress.learning_rate},
                      {"grad_norm", finite_or_null(progress.grad_norm)},
                      {"tokens_per_second", progress.tokens_per_second},
                      {"seconds", progress.seconds}};
  const auto put = [&](const char* name, const std::optional<double>& number) {
    if (number) event.set(name, finite_or_null(*number));
  };
  put("validation_loss", progress.validation_loss);
  put("accuracy", progress.accuracy);
  put("margin", progress.margin);
  put("balance", progress.balance);
  put("validation_accuracy", progress.validation_accuracy);
  put("validation_f1", progress.validation_f1);
  put("validation_spearman", progress.validation_spearman);
  return event;
}

Value value_of(const tune::RunNeed& need) {
  Value::Object object{{"steps", need.steps},
                       {"examples", static_cast<std::int64_t>(need.examples)},
                       {"parameters", need.parameters},
                       {"weights", need.weights},
                       {"trained", need.trained},
                       {"step", need.step},
                       {"validation", need.validation},
                       {"total", need.total()},
                       {"fits", need.fits}};
  if (need.available) object.set("available", *need.available);
  if (need.largest_batch) object.set("largest_batch", *need.largest_batch);
  return object;
}

}  // namespace

void add_tuning_operations(Registry& registry, const CatalogueOptions& options) {
  const auto schema = [](const std::string& required, const std::string& more) {
    return schema_of(R"({"type": "object", "required": [)" + required +
                     R"(], "additionalProperties": false, "properties": {)" + kTuningOptions + more + "}}");
  };
  registry.add(
      {.space = "tuning",
       .name = "run",
       .kind = Kind::subscription,
       .title = "fine-tune a model",
       .description = "Trains an adapter of a language model, or all of its weights, on examples or preferences, or a "
                      "text encoder on its lines, as "
                      "`weft tune` does; an "
                      "answer for each logged step. A run whose subscriber leaves stops after the step at hand, with a "
                      "checkpoint.",
       .input = schema(
           R"("model", "data", "out")",
           R"(, "out": {"type": "string", "description": "folder of the run"}, "resume": {"type": "boolean", "default": false},
                  "log_every": {"type": "integer", "minimum": 1, "default": 10}, "checkpoint_every": {"type": "integer", "minimum": 1, "default": 100})"),
       .output = schema_of(
           R"({"type": "object", "required": ["step", "steps", "loss"], "properties": {"step": {"type": "integer"}, "steps": {"type": "integer"},
                  "loss": {"type": ["number", "null"]}, "validation_loss": {"type": ["number", "null"]}, "accuracy": {"type": ["number", "null"]},
                  "validation_accuracy": {"type": ["number", "null"]}, "validation_f1": {"type": ["number", "null"]},
                  "validation_spearman": {"type": ["number", "null"]}, "margin": {"type": ["number", "null"]},
                  "balance": {"type": ["number", "null"]}}})"),
       .errors = engine_errors(),
       .access = {.scopes = {"training:run"}}},
      [options](Context& call) {
        return with_codes([&] {
          const Value& input = call.input();
          tune::Request request = request_of(input, options);
          request.out = allowed_path(options, input["out"].string(), true);
          request.resume = input["resume"].boolean();
          request.log_every = input["log_every"].integer();
          request.checkpoint_every = input["checkpoint_every"].integer();
          const Session session;
          const auto in = session.enter();
          tune::run(request, {.step = [&](const tune::Progress& progress) { call.emit(value_of(progress)); }},
                    call.stop());
          call.check();
          return Value();
        });
      });
  registry.add(
      {.space = "tuning",
       .name = "need",
       .title = "what fine-tuning takes",
       .description = "The memory in bytes and the steps of a run of tuning.run. The data is read and a step is "
                      "planned; no weight is read.",
       .input = schema(R"("model", "data")", R"(, "device_memory": {"type": "integer", "minimum": 0, "default": 0})"),
       .output = schema_of(
           R"({"type": "object", "required": ["steps", "total", "fits"], "properties": {"steps": {"type": "integer"}, "examples": {"type": "integer"},
                  "parameters": {"type": "integer"}, "weights": {"type": "integer"}, "trained": {"type": "integer"}, "step": {"type": "integer"},
                  "validation": {"type": "integer"}, "total": {"type": "integer"}, "available": {"type": "integer"}, "fits": {"type": "boolean"},
                  "largest_batch": {"type": "integer"}}})"),
       .errors = engine_errors(),
       .access = {.scopes = {"training:read"}}},
      [options](Context& call) {
        return with_codes([&] {
          tune::Request request = request_of(call.input(), options);
          request.device_memory = call.input("device_memory").unsigned_integer();
          const Session session;
          const auto in = session.enter();
          return value_of(tune::run_need(request));
        });
      });
}

}  // namespace weft::operations
