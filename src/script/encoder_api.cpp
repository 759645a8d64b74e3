// encoder: text encoders from granted folders.
#include "catalogue/encoder_values.hpp"
#include "script/media.hpp"
#include "script/sense_models.hpp"

namespace weft::script {
namespace {

Local load_text_encoder(Engine& engine, JSValueConst, Arguments arguments) {
  Options options(engine, at(arguments, 1), "load");
  const std::string precision = options.text("precision", "f32");
  options.finish();
  const std::optional<DType> type = dtype_from_name(precision);
  if (!type) Engine::refuse("load", fmt::format("a precision of {}; choose f32, f16 or bf16", precision));
  return load_folder(engine, engine.text(at(arguments, 0)),
                     [type](const std::filesystem::path& path) { return encoder::load(path, {.precision = *type}); });
}

encoder::TooLong too_long(Options& options) {
  return options.boolean("cut", false) ? encoder::TooLong::cut : encoder::TooLong::error;
}

/// A count of at least 1 among the options.
std::size_t count_of(Options& options, const char* method, Extent fallback) {
  const Extent count = options.integer("count", fallback);
  if (count < 1) Engine::refuse(method, fmt::format("count is {}; ask for 1 or more", count));
  return static_cast<std::size_t>(count);
}

// embed(texts, {prompt, normalize, width, cut})
Local embed(Engine& engine, JSValueConst self, Arguments arguments) {
  const auto& model = model_of<encoder::Model>(engine, self, "embed");
  Options options(engine, at(arguments, 1), "embed");
  encoder::EmbedOptions how{.normalize = options.boolean("normalize", true),
                            .width = options.integer("width", 0),
                            .too_long = too_long(options)};
  if (const std::string prompt = options.text("prompt", ""); !prompt.empty()) how.prompt = prompt;
  options.finish();
  return engine.make(model.embed(texts_at(engine, arguments, 0, "embed: the texts"), how));
}

// rerank(query, documents, {count})
Local rerank(Engine& engine, JSValueConst self, Arguments arguments) {
  const auto& model = model_of<encoder::Model>(engine, self, "rerank");
  const std::vector<std::string> documents = texts_at(engine, arguments, 1, "rerank: the documents");
  Options options(engine, at(arguments, 2), "rerank");
  const std::size_t count = count_of(options, "rerank", Extent{1} << 16);
  options.finish();
  return value_to(engine, operations::to_value(model.rerank(engine.text(at(arguments, 0)), documents, count)));
}

Local label_tokens(Engine& engine, JSValueConst self, Arguments arguments) {
  const auto& model = model_of<encoder::Model>(engine, self, "labelTokens");
  return value_to(engine, operations::to_value(model.label_tokens(engine.text(at(arguments, 0)))));
}

Local entities(Engine& engine, JSValueConst self, Arguments arguments) {
  const auto& model = model_of<encoder::Model>(engine, self, "entities");
  return value_to(engine, camel_members(operations::to_value(model.entities(engine.text(at(arguments, 0))))));
}

// fillMasks(text, {count})
Local fill_masks(Engine& engine, JSValueConst self, Arguments arguments) {
  const auto& model = model_of<encoder::Model>(engine, self, "fillMasks");
  Options options(engine, at(arguments, 1), "fillMasks");
  const std::size_t count = count_of(options, "fillMasks", 5);
  options.finish();
  return value_to(engine, operations::to_value(model.fill_masks(engine.text(at(arguments, 0)), count)));
}

// answer(question, text, {count, longest, window, stride, mayBeNone})
Local answer(Engine& engine, JSValueConst self, Arguments arguments) {
  const auto& model = model_of<encoder::Model>(engine, self, "answer");
  Options options(engine, at(arguments, 2), "answer");
  encoder::AnswerOptions how{.count = count_of(options, "answer", 1)};
  how.longest = options.integer("longest", how.longest);
  how.window = options.integer("window", how.window);
  how.stride = options.integer("stride", how.stride);
  how.may_be_none = options.boolean("mayBeNone", false);
  options.finish();
  const std::string text = engine.text(at(arguments, 1));
  return value_to(engine, operations::to_value(model.answer(engine.text(at(arguments, 0)), text, how)));
}

}  // namespace

// classify(text, {count, pair, cut})
Local classify_text(Engine& engine, JSValueConst self, Arguments arguments) {
  const auto& model = model_of<encoder::Model>(engine, self, "classify");
  Options options(engine, at(arguments, 1), "classify");
  const std::size_t count = count_of(options, "classify", 5);
  const std::string pair = options.text("pair", "");
  const encoder::TooLong how = too_long(options);
  options.finish();
  return value_to(engine, operations::to_value(model.classify(engine.text(at(arguments, 0)), count, pair, how)));
}

// logits(texts, pairs)
Local text_logits(Engine& engine, JSValueConst self, Arguments arguments) {
  const auto& model = model_of<encoder::Model>(engine, self, "logits");
  std::vector<std::string> pairs;
  if (!engine.is_nullish(at(arguments, 1))) pairs = texts_at(engine, arguments, 1, "logits: the pairs");
  return engine.make(model.logits(texts_at(engine, arguments, 0, "logits: the texts"), pairs));
}

void define_encoders(Engine& engine, JSValueConst prototype) {
  engine.method(prototype, "embed", native<embed>, 2);
  engine.method(prototype, "rerank", native<rerank>, 3);
  engine.method(prototype, "labelTokens", native<label_tokens>, 1);
  engine.method(prototype, "entities", native<entities>, 1);
  engine.method(prototype, "fillMasks", native<fill_masks>, 2);
  engine.method(prototype, "answer", native<answer>, 3);
  Local noun = engine.object();
  engine.method(noun.get(), "load", native<load_text_encoder>, 2);
  engine.checked(JS_FreezeObject(engine.context, noun.get()));
  add_export(engine, "encoder", std::move(noun));
}

}  // namespace weft::script
