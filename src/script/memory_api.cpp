// memory: texts with embeddings, searched by cosine and packed for prompts.
#include <fmt/format.h>

#include "script/engine.hpp"
#include "script/files.hpp"
#include "weft/memory.hpp"

namespace weft::script {
namespace {

struct MemoryHandle final : Handle {
  MemoryHandle(Engine& engine, memory::Store store) : Handle(engine), store(std::move(store)) {}
  std::string_view kind() const override { return "memory"; }
  std::uint64_t bytes() const override { return store.size() * static_cast<std::uint64_t>(store.width()) * 4; }
  memory::Store store;
};

memory::Store& store_of(Engine& engine, JSValueConst self) {
  auto* const handle = static_cast<MemoryHandle*>(static_cast<Handle*>(JS_GetOpaque(self, engine.memory_class)));
  if (!handle) Engine::refuse("memory", inspect(engine, self) + " is not a memory");
  return handle->store;
}
Local wrap_store(Engine& engine, memory::Store store) {
  engine.check_handles();
  Local made = engine.checked(JS_NewObjectClass(engine.context, static_cast<int>(engine.memory_class)));
  JS_SetOpaque(made.get(), static_cast<Handle*>(new MemoryHandle(engine, std::move(store))));
  return made;
}

// store(width), load(path)
Local make_store(Engine& engine, JSValueConst, Arguments arguments) {
  return wrap_store(engine, memory::Store(engine.integer(at(arguments, 0), "memory.store: the width")));
}
Local load_store(Engine& engine, JSValueConst, Arguments arguments) {
  const Descriptor file = engine.files->open(engine.files->place(engine.text(at(arguments, 0)), false));
  return wrap_store(engine, memory::Store::load(file.path()));
}

/// A tensor of any shape, or an array of numbers.
std::vector<float> embedding_at(Engine& engine, Arguments arguments, std::size_t i) {
  const Tensor given = tensor_from(engine, at(arguments, i), DType::f32, std::nullopt, kCpu);
  return given.to_vector<float>();
}

// add(text, embedding, {id, namespace, metadata}): the id
Local add_entry(Engine& engine, JSValueConst self, Arguments arguments) {
  memory::Store& store = store_of(engine, self);
  engine.check_host_bytes((store.size() + 1) * static_cast<std::uint64_t>(store.width()) * 4);
  Options options(engine, at(arguments, 2), "memory.add");
  memory::Entry entry{
      .id = options.text("id", ""), .name_space = options.text("namespace", ""), .text = engine.text(at(arguments, 0))};
  const Local metadata = options.value("metadata");
  options.finish();
  if (!engine.is_nullish(metadata.get())) entry.metadata = value_from(engine, metadata.get());
  return engine.string(store.add(std::move(entry), embedding_at(engine, arguments, 1)));
}
Local remove_entry(Engine& engine, JSValueConst self, Arguments arguments) {
  return {engine.context, JS_NewBool(engine.context, store_of(engine, self).remove(engine.text(at(arguments, 0))))};
}
Local store_size(Engine& engine, JSValueConst self, Arguments) {
  return {engine.context, JS_NewInt64(engine.context, static_cast<std::int64_t>(store_of(engine, self).size()))};
}

memory::SearchOptions search_options(Engine& engine, Options& options, std::size_t top_k) {
  memory::SearchOptions o;
  const Extent count = options.integer("topK", static_cast<Extent>(top_k));
  if (count < 1 || count > 10'000) Engine::refuse("memory", fmt::format("topK is {}; 1 to 10000 are possible", count));
  o.top_k = static_cast<std::size_t>(count);
  o.similarity_min = options.number("similarityMin", -1);
  const Local space = options.value("namespace"), where = options.value("where");
  if (!engine.is_nullish(space.get())) o.name_space = engine.text(space.get());
  if (!engine.is_nullish(where.get())) o.where = value_from(engine, where.get());
  return o;
}
Local matches_to(Engine& engine, const std::vector<memory::Match>& matches) {
  Value::Array list;
  for (const memory::Match& match : matches) list.push_back(memory::to_value(match));
  return value_to(engine, list);
}

// search(embedding, {topK, namespace, where, similarityMin})
Local search_store(Engine& engine, JSValueConst self, Arguments arguments) {
  const memory::Store& store = store_of(engine, self);
  Options options(engine, at(arguments, 1), "memory.search");
  const memory::SearchOptions o = search_options(engine, options, 10);
  options.finish();
  return matches_to(engine, store.search(embedding_at(engine, arguments, 0), o));
}
// recall(embedding, {tokens, count, ...}): {text, tokens, matches}. `count` is a function from a text to its number of tokens.
Local recall_store(Engine& engine, JSValueConst self, Arguments arguments) {
  const memory::Store& store = store_of(engine, self);
  const Local held(engine.context, JS_DupValue(engine.context, self));  // `count` may drop it
  Options options(engine, at(arguments, 1), "memory.recall");
  memory::RecallOptions o;
  const Extent budget = options.integer("tokens", 500);
  if (budget < 1) Engine::refuse("memory.recall", fmt::format("a budget of {} tokens; give 1 or more", budget));
  o.token_budget = static_cast<std::size_t>(budget);
  const Local count = options.value("count");
  o.search = search_options(engine, options, 50);
  options.finish();
  if (!engine.is_nullish(count.get()))
    o.tokens = [&](std::string_view text) {
      const Local given = engine.string(text);
      const Local tokens = engine.call(count.get(), JS_UNDEFINED, {given.get()});
      return static_cast<std::size_t>(std::max(Extent{0}, engine.integer(tokens.get(), "memory.recall: the count")));
    };
  const memory::Recall recall = store.recall(embedding_at(engine, arguments, 0), o);
  Local made = engine.object();
  engine.set(made.get(), "text", engine.string(recall.text));
  engine.set(made.get(), "tokens",
             {engine.context, JS_NewInt64(engine.context, static_cast<std::int64_t>(recall.tokens))});
  engine.set(made.get(), "matches", matches_to(engine, recall.matches));
  return made;
}
Local save_store(Engine& engine, JSValueConst self, Arguments arguments) {
  engine.files->save(engine.text(at(arguments, 0)),
                     [&](const std::filesystem::path& file) { store_of(engine, self).save(file); });
  return {};
}

}  // namespace

void define_memory(Engine& engine) {
  const Local prototype = engine.make_class(engine.memory_class, "Memory");
  const JSValueConst p = prototype.get();
  engine.method(p, "add", native<add_entry>, 2);
  engine.method(p, "remove", native<remove_entry>, 1);
  engine.getter(p, "size", native<store_size>);
  engine.method(p, "search", native<search_store>, 1);
  engine.method(p, "recall", native<recall_store>, 1);
  engine.method(p, "save", native<save_store>, 1);
  Local space = engine.object();
  engine.method(space.get(), "store", native<make_store>, 1);
  engine.method(space.get(), "load", native<load_store>, 1);
  engine.checked(JS_FreezeObject(engine.context, space.get()));
  add_export(engine, "memory", std::move(space));
}

}  // namespace weft::script
