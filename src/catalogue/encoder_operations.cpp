// Text encoders as operations.
#include "catalogue/encoder_values.hpp"
#include "catalogue/sense_family.hpp"
#include "weft/encoder.hpp"

namespace weft::operations {
namespace {

constexpr const char* kTexts =
    R"("texts": {"type": "array", "minItems": 1, "maxItems": 2048, "items": {"type": "string"}})";
constexpr const char* kCount = R"("count": {"type": "integer", "minimum": 1, "maximum": 1000, "default": 5})";
constexpr const char* kCut =
    R"("cut": {"type": "boolean", "default": false, "description": "cut texts that have more tokens than the model reads"})";

encoder::Model load_encoder(const std::filesystem::path& path, const Value& input) {
  return encoder::load(path, {.precision = dtype_from_name(input["precision"].string()).value()});
}

Value describe_encoder(const encoder::Model& model) {
  Value::Array classes, prompts;
  for (const std::string& name : model.classes()) classes.push_back(name);
  for (const auto& [name, text] : model.prompts()) prompts.push_back(name);
  return Value::object({{"task", std::string(encoder::name_of(model.task()))},
                        {"width", model.width()},
                        {"length", model.length()},
                        {"classes", std::move(classes)},
                        {"prompts", std::move(prompts)},
                        {"mask", model.mask()},
                        {"text", model.describe()}});
}

encoder::TooLong too_long(const Value& in) {
  return in["cut"].boolean() ? encoder::TooLong::cut : encoder::TooLong::error;
}

}  // namespace

void add_encoder_operations(Registry& registry, const CatalogueOptions& options) {
  const SenseFamily<encoder::Model> family(registry, "encoder", "ENCODER");
  family.add_common("Loads a folder of BERT or another text encoder, or a GGUF file.", options, load_encoder,
                    describe_encoder, R"(, "precision": {"enum": ["f32", "f16", "bf16"], "default": "f32"})");
  family.add(
      "embed", Kind::query, "A row for each text, f32 [texts, width].",
      fmt::format(R"({}, {}, "prompt": {{"type": "string", "description": "one of the model's prompts, such as query"}},
               "normalize": {{"type": "boolean", "default": true, "description": "rows of length 1"}},
               "width": {{"type": "integer", "minimum": 1, "description": "the first columns alone"}})",
                  kTexts, kCut),
      R"(, "texts")",
      R"({"type": "object", "required": ["embeddings"], "properties": {"embeddings": {"x-tensor": {"dtypes": ["f32"]}}}})",
      "run", [use = family.use()](Context& call) {
        const Value& in = call.input();
        encoder::EmbedOptions how{.normalize = in["normalize"].boolean(), .too_long = too_long(in)};
        if (const Value* prompt = in.find("prompt")) how.prompt = prompt->string();
        if (const Value* width = in.find("width")) how.width = width->integer();
        return use(call, [&](const encoder::Model& model) {
          return Value::object({{"embeddings", model.embed(texts_of(in["texts"]), how)}});
        });
      });
  family.add(
      "rerank", Kind::query, "Documents by how well they answer a query, the best first, by a cross-encoder.",
      R"("query": {"type": "string"}, "documents": {"type": "array", "minItems": 1, "maxItems": 2048, "items": {"type": "string"}},
               "count": {"type": "integer", "minimum": 1, "maximum": 2048})",
      R"(, "query", "documents")",
      R"({"type": "object", "required": ["ranked"], "properties": {"ranked": {"type": "array", "items": {"type": "object",
               "required": ["index", "score", "probability"]}}}})",
      "run", [use = family.use()](Context& call) {
        const Value &in = call.input(), *count = in.find("count");
        const std::vector<std::string> documents = texts_of(in["documents"]);
        return use(call, [&](const encoder::Model& model) {
          return Value::object(
              {{"ranked", to_value(model.rerank(in["query"].string(), documents,
                                                count ? static_cast<std::size_t>(count->integer()) : 0))}});
        });
      });
  family.add(
      "classify", Kind::query, "The most probable classes of a text, or of a pair of texts, in order.",
      fmt::format(R"("text": {{"type": "string"}}, "pair": {{"type": "string"}}, {}, {})", kCount, kCut), R"(, "text")",
      R"({"type": "object", "required": ["labels"], "properties": {"labels": {"type": "array", "items": {"type": "object",
               "required": ["index", "name", "probability"]}}}})",
      "run", [use = family.use()](Context& call) {
        const Value &in = call.input(), *pair = in.find("pair");
        return use(call, [&](const encoder::Model& model) {
          return Value::object(
              {{"labels",
                to_value(model.classify(in["text"].string(), static_cast<std::size_t>(in["count"].integer()),
                                        pair ? std::string_view(pair->string()) : std::string_view(), too_long(in)))}});
        });
      });
  family.add(
      "label", Kind::query, "The tokens of a text with their classes, and what they name together.",
      R"("text": {"type": "string"})", R"(, "text")",
      R"({"type": "object", "required": ["tokens", "entities"], "properties": {"tokens": {"type": "array", "items": {"type": "object"}}, "entities": {"type": "array", "items": {"type": "object"}}}})",
      "run", [use = family.use()](Context& call) {
        const std::string& text = call.input("text").string();
        return use(call, [&](const encoder::Model& model) {
          const std::vector<encoder::TokenLabel> labels = model.label_tokens(text);
          return Value::object({{"tokens", to_value(labels)}, {"entities", to_value(model.entities(labels))}});
        });
      });
  family.add(
      "fill", Kind::query, "The most probable tokens for each mask in a text.",
      fmt::format(R"("text": {{"type": "string"}}, {})", kCount), R"(, "text")",
      R"({"type": "object", "required": ["masks"], "properties": {"masks": {"type": "array", "items": {"type": "array", "items": {"type": "object"}}}}})",
      "run", [use = family.use()](Context& call) {
        const Value& in = call.input();
        return use(call, [&](const encoder::Model& model) {
          return Value::object({{"masks", to_value(model.fill_masks(
                                              in["text"].string(), static_cast<std::size_t>(in["count"].integer())))}});
        });
      });
  family.add(
      "answer", Kind::query, "The parts of a text that most probably answer a question, in order.",
      R"("question": {"type": "string"}, "text": {"type": "string"}, "count": {"type": "integer", "minimum": 1, "maximum": 1000, "default": 1},
               "longest": {"type": "integer", "minimum": 1, "maximum": 512, "default": 15, "description": "most tokens of an answer"},
               "may_be_none": {"type": "boolean", "default": false, "description": "an empty answer says that there is none"})",
      R"(, "question", "text")",
      R"({"type": "object", "required": ["answers"], "properties": {"answers": {"type": "array", "items": {"type": "object",
               "required": ["text", "begin", "end", "probability"]}}}})",
      "run", [use = family.use()](Context& call) {
        const Value& in = call.input();
        const encoder::AnswerOptions how{.count = static_cast<std::size_t>(in["count"].integer()),
                                         .longest = in["longest"].integer(),
                                         .may_be_none = in["may_be_none"].boolean()};
        return use(call, [&](const encoder::Model& model) {
          return Value::object(
              {{"answers", to_value(model.answer(in["question"].string(), in["text"].string(), how))}});
        });
      });
}

}  // namespace weft::operations
