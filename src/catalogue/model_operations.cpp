// Language models as operations. A loaded model is a resource, model:NAME. One call at a time uses a model; others wait.
#include <fmt/format.h>

#include <optional>

#include "catalogue/engine_errors.hpp"
#include "catalogue/families.hpp"
#include "catalogue/media_values.hpp"
#include "catalogue/named_resources.hpp"
#include "weft/error.hpp"
#include "weft/llm.hpp"

namespace weft::operations {
namespace {

using Models = NamedResources<llm::Model>;

constexpr const char* kSamplingProperties = R"(
  "max_tokens": {"type": "integer", "minimum": 1, "maximum": 1000000, "default": 256},
  "temperature": {"type": "number", "minimum": 0, "default": 0.8},
  "top_k": {"type": "integer", "minimum": 0, "default": 40},
  "top_p": {"type": "number", "exclusiveMinimum": 0, "maximum": 1, "default": 0.95},
  "min_p": {"type": "number", "minimum": 0, "maximum": 1, "default": 0.05},
  "seed": {"type": "integer", "minimum": 0},
  "stop": {"type": "array", "items": {"type": "string", "minLength": 1}, "maxItems": 16},
  "grammar": {"type": "string", "minLength": 1, "maxLength": 1000000, "description": "GBNF: what the text must be"},
  "schema": {"type": ["object", "boolean"], "description": "a JSON Schema: the text must be JSON that it accepts"},
  "grammar_after": {"type": "string", "minLength": 1, "maxLength": 1000,
    "description": "the text behind this must be that; anything may come before. A chat that begins with reasoning sets </think> itself"},
  "grammar_is_optional": {"type": "boolean", "default": false, "description": "the text may end without grammar_after"})";

/// Of the keys grammar and schema; nothing without them.
std::optional<llm::Grammar> grammar_of(const Value& input) {
  const Value *gbnf = input.find("grammar"), *schema = input.find("schema");
  if (gbnf && schema) throw OperationError("GRAMMAR_ERROR", "grammar and schema are both given; give one of them");
  try {
    if (gbnf) return llm::Grammar::parse(gbnf->string());
    if (schema) return llm::Grammar::json_schema(*schema);
  } catch (const Error& error) {
    throw OperationError("GRAMMAR_ERROR", error.what());
  }
  if (input.find("grammar_after") || input["grammar_is_optional"].boolean())
    throw OperationError(
        "GRAMMAR_ERROR",
        "grammar_after and grammar_is_optional are for a text that has a grammar; give grammar or schema too");
  return {};
}

llm::GenerateOptions generate_options(Context& call) {
  const Value& input = call.input();
  llm::GenerateOptions options;
  options.max_tokens = input["max_tokens"].integer();
  options.sampling.temperature = input["temperature"].number();
  options.sampling.top_k = input["top_k"].integer();
  options.sampling.top_p = input["top_p"].number();
  options.sampling.min_p = input["min_p"].number();
  if (const Value* seed = input.find("seed")) options.sampling.seed = seed->unsigned_integer();
  if (const Value* stop = input.find("stop"))
    for (const Value& text : stop->elements()) options.stop.push_back(text.string());
  options.grammar = grammar_of(input);
  if (const Value* after = input.find("grammar_after")) options.grammar_after = after->string();
  options.grammar_is_optional = input["grammar_is_optional"].boolean();
  if (options.grammar_is_optional && options.grammar_after.empty())
    throw OperationError("GRAMMAR_ERROR",
                         "grammar_is_optional is given without grammar_after, behind which the grammar would begin");
  options.cancel = call.stop();
  return options;
}

/// The content is a text, or a list of {"text"} and {"image"}.
llm::Message message_of(const std::string& role, const Value& content) {
  if (content.is_string()) return {role, content.string()};
  llm::Message message{role, ""};
  for (const Value& part : content.elements()) {
    if (const Value* text = part.find("text"))
      message.parts.emplace_back(text->string());
    else
      message.parts.emplace_back(image_of(part["image"].tensor()));
  }
  return message;
}

// Emits pieces of text as they are made, then the reason why the generation ended.
Value stream(Context& call, llm::Generation generation) {
  for (const std::string_view piece : generation) call.emit(Value::object({{"text", piece}}));
  call.check();
  const llm::Result& result = generation.result();
  call.emit(Value::object({{"text", ""},
                           {"finish", llm::name_of(result.finish)},
                           {"tokens", result.tokens.size()},
                           {"prompt_tokens", result.prompt_tokens}}));
  return Value();
}

// The same as one answer.
Value whole(Context& call, llm::Generation generation) {
  const llm::Result& result = generation.result();
  call.check();
  return Value::object({{"text", result.text},
                        {"finish", llm::name_of(result.finish)},
                        {"tokens", result.tokens.size()},
                        {"prompt_tokens", result.prompt_tokens}});
}

// How a text is answered: in pieces by a subscription, or at once by a call, which workflows and other operations can make.
struct Writing {
  std::string name, title, description, required;
  Kind kind;
  Value (*write)(Context& call, llm::Generation generation);
  Specification specification(const std::string& input, std::vector<DeclaredError> errors, Access access) const {
    return {.space = "model",
            .name = name,
            .kind = kind,
            .title = title,
            .description = description,
            .input = schema_of(input),
            .output = schema_of(fmt::format(
                R"({{"type": "object", "required": [{}], "properties": {{"text": {{"type": "string"}},
  "finish": {{"type": "string"}}, "tokens": {{"type": "integer"}}, "prompt_tokens": {{"type": "integer"}}}}}})",
                required)),
            .errors = std::move(errors),
            .access = std::move(access)};
  }
};
constexpr const char *kPieceRequired = R"("text")", *kWholeRequired = R"("text", "finish", "tokens", "prompt_tokens")";

}  // namespace

std::function<void(const std::string&, const std::filesystem::path&)> add_model_operations(
    Registry& registry, const CatalogueOptions& options) {
  auto models = std::make_shared<Models>("model", "MODEL", std::size_t{1000});
  const DeclaredError missing{"MODEL_NOT_FOUND", "no such model is loaded", true, 404};
  const DeclaredError no_grammar{"GRAMMAR_ERROR", "a grammar or a schema that is broken, or that no text fits"};
  std::vector<DeclaredError> chat_errors = engine_errors();
  chat_errors.push_back(missing);
  chat_errors.push_back(no_grammar);
  chat_errors.push_back({"FILE_ERROR", "an image that is damaged, too large, or of an unknown format"});
  const auto on_model = [](const char* action) {
    return Access{.resource_type = "model", .resource_action = action, .resource_input = "model"};
  };
  const Value only_model = schema_of(
      R"({"type": "object", "required": ["model"], "additionalProperties": false, "properties": {"model": {"type": "string"}}})");

  registry.add(
      {.space = "model",
       .name = "load",
       .kind = Kind::mutation,
       .title = "load a model",
       .description = "Loads a language model from a GGUF file or a Hugging Face folder and keeps it under a name.",
       .input =
           schema_of(R"({"type": "object", "required": ["path", "model"], "additionalProperties": false, "properties": {
                  "path": {"type": "string"}, "model": {"type": "string", "pattern": "^[A-Za-z0-9._-]{1,100}$"},
                  "context": {"type": "integer", "minimum": 0, "default": 0, "description": "positions; 0: the model's own, at most 4096"},
                  "mmproj": {"type": "string", "description": "of a GGUF file: the file with the part of the model that sees images; without it, the model reads texts"},
                  "adapters": {"type": "array", "maxItems": 16, "items": {"type": "object", "required": ["path"], "additionalProperties": false, "properties": {
                    "path": {"type": "string"}, "scale": {"type": "number", "default": 1}}}, "description": "low-rank changes of the model: folders of PEFT, or GGUF files"}}})"),
       .errors = {{"MODEL_EXISTS", "the name is taken", true, 409},
                  {"MODEL_LIMIT", "as many models are loaded as there may be", true, 429},
                  {"FILE_ERROR", "a file that is missing or damaged"}},
       .access =
           {.scopes = {"model:load"}, .resource_type = "model", .resource_action = "load", .resource_input = "model"}},
      [models, options](Context& call) {
        const std::string& name = call.input("model").string();
        models->check_free(name);
        require_right(call, "weights", call.input("path").string(), "read");
        llm::LoadOptions load{.context = call.input("context").integer(), .mmproj = "none"};
        // A file that lies beside the model is not taken unasked: the right to read one is no right to the other.
        if (const Value* mmproj = call.input().find("mmproj")) {
          require_right(call, "weights", mmproj->string(), "read");
          load.mmproj = allowed_path(options, mmproj->string(), false);
        }
        if (const Value* adapters = call.input().find("adapters"))
          for (const Value& adapter : adapters->elements()) {
            const std::string& path = adapter["path"].string();
            require_right(call, "weights", path, "read");
            const Value* scale = adapter.find("scale");
            load.adapters.push_back({allowed_path(options, path, false), scale ? scale->number() : 1});
          }
        try {
          models->add(name, llm::load(allowed_path(options, call.input("path").string(), false), load));
        } catch (const FileError& error) {
          throw OperationError("FILE_ERROR", error.what());
        }
        return Value::object({{"model", name}});
      });
  registry.add({.space = "model",
                .name = "list",
                .title = "list models",
                .description = "Names of the loaded models that the caller may describe.",
                .input = schema_of(R"({"type": ["object", "null"]})"),
                .output = schema_of(
                    R"({"type": "object", "properties": {"models": {"type": "array", "items": {"type": "string"}}}})")},
               [models](Context& call) {
                 return Value::object({{"models", models->names(call, "describe")}});
               });
  registry.add({.space = "model",
                .name = "describe",
                .title = "describe a model",
                .description = "Architecture, sizes and bytes of a loaded model, as text.",
                .input = only_model,
                .errors = {missing},
                .access = on_model("describe")},
               [models](Context& call) {
                 return models->find(call.input("model").string())->use(call, [](const llm::Model& model) {
                   return Value::object({{"text", model.describe()},
                                         {"vocabulary", model.vocabulary()},
                                         {"context", model.context()},
                                         {"chats", model.has_template()}});
                 });
               });
  registry.add({.space = "model",
                .name = "unload",
                .kind = Kind::mutation,
                .title = "unload a model",
                .description = "Frees a model, once calls that use it have ended.",
                .input = only_model,
                .errors = {missing},
                .access = on_model("load")},
               [models](Context& call) {
                 models->remove(call.input("model").string());
                 return Value(Value::Object());
               });
  for (const Writing& way :
       {Writing{"generate", "generate text", "What follows a prompt, in pieces as it is made.", kPieceRequired,
                Kind::subscription, stream},
        Writing{"complete", "complete a text", "What follows a prompt, at once.", kWholeRequired, Kind::query, whole}})
    registry.add(
        way.specification(
            fmt::format(
                R"({{"type": "object", "required": ["model", "prompt"], "additionalProperties": false, "properties": {{
                  "model": {{"type": "string"}}, "prompt": {{"type": "string"}}, {}}}}})",
                kSamplingProperties),
            {missing, no_grammar}, on_model("run")),
        [models, write = way.write](Context& call) {
          auto found = models->find(call.input("model").string());
          const llm::GenerateOptions options = generate_options(call);
          return found->use(call, [&](const llm::Model& model) {
            return write(call, model.generate(call.input("prompt").string(), options));
          });
        });
  for (const Writing& way :
       {Writing{"chat", "chat", "The reply to a conversation, in pieces as it is made.", kPieceRequired,
                Kind::subscription, stream},
        Writing{"reply", "reply", "The reply to a conversation, at once.", kWholeRequired, Kind::query, whole}})
    registry.add(
        way.specification(
            fmt::format(
                R"({{"type": "object", "required": ["model", "messages"], "additionalProperties": false, "properties": {{
                  "model": {{"type": "string"}}, "messages": {{"type": "array", "minItems": 1, "items": {{"type": "object", "required": ["role", "content"],
                  "additionalProperties": false, "properties": {{"role": {{"type": "string"}}, "content": {{"description": "a text, or texts and images",
                  "anyOf": [{{"type": "string"}}, {{"type": "array", "minItems": 1, "maxItems": 64, "items": {{"type": "object", "minProperties": 1, "maxProperties": 1,
                  "additionalProperties": false, "properties": {{"text": {{"type": "string"}}, "image": {}}}}}}}]}}}}}}}}, {}}}}})",
                kImageSchema, kSamplingProperties),
            chat_errors, on_model("run")),
        [models, write = way.write](Context& call) {
          std::vector<llm::Message> messages;
          return with_codes([&] {
            for (const Value& message : call.input("messages").elements())
              messages.push_back(message_of(message["role"].string(), message["content"]));
            auto found = models->find(call.input("model").string());
            const llm::GenerateOptions options = generate_options(call);
            return found->use(call,
                              [&](const llm::Model& model) { return write(call, model.chat(messages, options)); });
          });
        });
  registry.add({.space = "model",
                .name = "tokenize",
                .title = "tokenize",
                .description = "The tokens of a text.",
                .input = schema_of(
                    R"({"type": "object", "required": ["model", "text"], "additionalProperties": false, "properties": {
                  "model": {"type": "string"}, "text": {"type": "string"}, "add_special": {"type": "boolean", "default": true}}})"),
                .output = schema_of(
                    R"({"type": "object", "properties": {"tokens": {"type": "array", "items": {"type": "integer"}}}})"),
                .errors = {missing},
                .access = on_model("run")},
               [models](Context& call) {
                 return models->find(call.input("model").string())->use(call, [&](const llm::Model& model) {
                   const std::vector<std::int32_t> tokens =
                       model.encode(call.input("text").string(), call.input("add_special").boolean());
                   return Value::object({{"tokens", Value::Array(tokens.begin(), tokens.end())}});
                 });
               });
  registry.add(
      {.space = "model",
       .name = "detokenize",
       .title = "detokenize",
       .description = "The text of tokens.",
       .input = schema_of(
           R"({"type": "object", "required": ["model", "tokens"], "additionalProperties": false, "properties": {
                  "model": {"type": "string"}, "tokens": {"type": "array", "items": {"type": "integer", "minimum": 0, "maximum": 2147483647}}}})"),
       .output = schema_of(R"({"type": "object", "properties": {"text": {"type": "string"}}})"),
       .errors = {missing},
       .access = on_model("run")},
      [models](Context& call) {
        std::vector<std::int32_t> tokens;
        for (const Value& token : call.input("tokens").elements())
          tokens.push_back(static_cast<std::int32_t>(token.integer()));
        return models->find(call.input("model").string())->use(call, [&](const llm::Model& model) {
          return Value::object({{"text", model.decode(tokens)}});
        });
      });
  registry.add(
      {.space = "model",
       .name = "embed",
       .title = "embed texts",
       .description = "A row of numbers for each text, f32 [texts, width]: the model's states, pooled.",
       .input = schema_of(
           R"({"type": "object", "required": ["model", "texts"], "additionalProperties": false, "properties": {
                  "model": {"type": "string"},
                  "texts": {"type": "array", "items": {"type": "string"}, "minItems": 1, "maxItems": 2048},
                  "pooling": {"enum": ["mean", "last"], "default": "mean"},
                  "normalize": {"type": "boolean", "default": true, "description": "rows of length 1"}}})"),
       .output = schema_of(
           R"({"type": "object", "required": ["embeddings"], "properties": {"embeddings": {"x-tensor": {"dtypes": ["f32"]}}}})"),
       .errors = {missing},
       .access = on_model("run")},
      [models](Context& call) {
        std::vector<std::string> texts;
        for (const Value& text : call.input("texts").elements()) texts.push_back(text.string());
        const llm::EmbedOptions options{
            .pooling = call.input("pooling").string() == "last" ? llm::Pooling::last : llm::Pooling::mean,
            .normalize = call.input("normalize").boolean()};
        return models->find(call.input("model").string())->use(call, [&](const llm::Model& model) {
          return Value::object({{"embeddings", model.embed(texts, options)}});
        });
      });
  return [models](const std::string& name, const std::filesystem::path& path) {
    models->check_free(name);
    models->add(name, llm::load(path));
  };
}

}  // namespace weft::operations
