// Vector memories as operations. A memory is a resource, memory:NAME, with the actions create, read and write. Embeddings are given, or
// a language model of the catalogue makes them, for callers who may run it.
#include <fmt/format.h>

#include <optional>

#include "catalogue/engine_errors.hpp"
#include "catalogue/families.hpp"
#include "catalogue/held_networks.hpp"
#include "weft/memory.hpp"

namespace weft::operations {
namespace {

/// A memory alone, or one whose changes are on the disk when a call ends.
class Held {
 public:
  explicit Held(memory::Store store) : store_(std::move(store)) {}
  Held(memory::StoreFile file, std::filesystem::path path) : file_(std::move(file)), path_(std::move(path)) {}

  const memory::Store& store() const { return file_ ? file_->store() : *store_; }
  std::string add(memory::Entry entry, std::span<const float> embedding) {
    return file_ ? file_->add(std::move(entry), embedding) : store_->add(std::move(entry), embedding);
  }
  bool remove(std::string_view id) { return file_ ? file_->remove(id) : store_->remove(id); }
  void commit() {
    if (file_) file_->commit();
  }
  void save(const std::filesystem::path& path) {
    if (file_ && path == path_)
      file_->compact();
    else
      store().save(path);
  }

 private:
  std::optional<memory::Store> store_;
  std::optional<memory::StoreFile> file_;
  std::filesystem::path path_;
};

using Memories = NamedResources<Held>;

constexpr const char* kMemoryName = kNetworkName;
constexpr const char* kSearchProperties = R"(
  "embedding": {"x-tensor": {"dtypes": ["f32"]}, "description": "[width]"},
  "query": {"type": "string", "description": "a text, which `encoder` or `model` embeds"},
  "model": {"type": "string", "description": "a language model"},
  "encoder": {"type": "string", "description": "a text encoder"},
  "prompt": {"type": "string", "description": "the encoder's prompt for queries, if it has one"},
  "top_k": {"type": "integer", "minimum": 1, "maximum": 10000, "default": 10},
  "namespace": {"type": "string"},
  "where": {"type": "object", "default": {}, "description": "members that metadata must have"},
  "similarity_min": {"type": "number", "default": -1})";

/// Embeddings [texts, width] of a model that the caller may run.
Tensor embeddings_of(Context& call, const Value& texts) {
  const Value &in = call.input(), *model = in.find("model");
  if (const Value* encoder = in.find("encoder")) {
    if (model) throw UsageError("give an encoder or a model, not both");
    require_right(call, "encoder", encoder->string(), "run");
    Value::Object given{{"model", *encoder}, {"texts", texts}};
    if (const Value* prompt = in.find("prompt")) given.set("prompt", *prompt);
    return call.call("encoder.embed", Value(std::move(given)))["embeddings"].tensor();
  }
  if (!model) throw OperationError("NO_EMBEDDING", "give embeddings, or an encoder or a model that makes them");
  require_right(call, "model", model->string(), "run");
  return call.call("model.embed", Value::object({{"model", *model}, {"texts", texts}}))["embeddings"].tensor();
}

std::vector<float> query_of(Context& call) {
  if (const Value* embedding = call.input().find("embedding")) return embedding->tensor().to_vector<float>();
  const Value* query = call.input().find("query");
  if (!query) throw OperationError("NO_EMBEDDING", "give an embedding, or a query and an encoder or a model");
  return embeddings_of(call, Value::array({*query})).to_vector<float>();
}

memory::SearchOptions search_options(const Value& input) {
  memory::SearchOptions options{.top_k = static_cast<std::size_t>(input["top_k"].integer()),
                                .where = input["where"],
                                .similarity_min = input["similarity_min"].number()};
  if (const Value* space = input.find("namespace")) options.name_space = space->string();
  return options;
}

Value matches_of(const std::vector<memory::Match>& matches) {
  Value::Array all;
  for (const memory::Match& match : matches) all.push_back(memory::to_value(match));
  return all;
}

/// All entries, or none.
Value add_entries(Held& held, const Value::Array& entries, const Tensor& embeddings, std::size_t entries_max) {
  if (embeddings.rank() != 2 || embeddings.shape()[0] != static_cast<Extent>(entries.size()))
    throw OperationError("SHAPE_ERROR", fmt::format("the embeddings are {}; {} entries have embeddings [{}, width]",
                                                    embeddings.shape().to_string(), entries.size(), entries.size()));
  const std::size_t before = held.store().size();
  if (entries.size() > entries_max - std::min(before, entries_max))
    throw OperationError("MEMORY_FULL", fmt::format("it has {} entries; at most {} are possible", before, entries_max));
  const std::vector<float> rows = cast(embeddings, DType::f32).to_vector<float>();
  const auto width = static_cast<std::size_t>(embeddings.shape()[1]);
  Value::Array ids;
  try {
    for (std::size_t i = 0; i < entries.size(); ++i) {
      const Value& each = entries[i];
      const auto text = [&](const char* name) { return each.find(name) ? each[name].string() : std::string(); };
      ids.emplace_back(held.add({text("id"), text("namespace"), text("text"),
                                 each.find("metadata") ? each["metadata"] : Value(Value::Object())},
                                std::span(rows).subspan(i * width, width)));
    }
    held.commit();
  } catch (...) {
    for (const Value& id : ids) held.remove(id.string());
    throw;
  }
  return Value::object({{"ids", std::move(ids)}});
}

}  // namespace

void add_memory_operations(Registry& registry, const CatalogueOptions& options) {
  const auto memories = std::make_shared<Memories>("memory", "MEMORY", options.memories_max);
  std::vector<DeclaredError> errors = {
      {"MEMORY_NOT_FOUND", "there is no such memory", true, 404},
      {"MEMORY_EXISTS", "the name is taken", true, 409},
      {"MEMORY_LIMIT", "as many memories are held as there may be", true, 429},
      {"MEMORY_FULL", "as many entries as there may be", true, 413},
      {"NO_EMBEDDING", "neither an embedding nor a model that makes one"},
      {"MODEL_NOT_FOUND", "no such model is loaded", true, 404},
      {"ENCODER_NOT_FOUND", "no such text encoder is loaded", true, 404},
      {"FILE_ERROR", "a file that is missing, cannot be read or written, or is damaged"}};
  errors.insert(errors.end(), engine_errors().begin(), engine_errors().end());
  const auto add = [&](const char* name, Kind kind, const char* action, std::vector<std::string> scopes,
                       const char* description, std::string_view properties, std::string_view required,
                       std::function<Value(Context&)> run) {
    Specification s{.space = "memory", .name = name, .kind = kind, .title = name, .description = description};
    s.input = schema_of(fmt::format(
        R"({{"type": "object", "required": ["memory"{}], "additionalProperties": false, "properties": {{"memory": {}{}{}}}}})",
        required, kMemoryName, properties.empty() ? "" : ", ", properties));
    s.errors = errors;
    s.access = {
        .scopes = std::move(scopes), .resource_type = "memory", .resource_action = action, .resource_input = "memory"};
    // Embedding is a nested call; require_right has looked at the caller's own right.
    registry.add(std::move(s),
                 Handler{.run = [run = std::move(run)](Context& call) { return with_codes([&] { return run(call); }); },
                         .authority = {.id = "memory", .resources = {{"model:*", {"run"}}, {"encoder:*", {"run"}}}},
                         .reach = {"model.embed", "encoder.embed"}});
  };
  const auto use = [memories](Context& call, const auto& function) {
    return memories->find(call.input("memory").string())->use(call, function);
  };

  add("create", Kind::mutation, "create", {"memory:create"}, "An empty memory for embeddings of one width.",
      R"("width": {"type": "integer", "minimum": 1, "maximum": 65536})", R"(, "width")", [memories](Context& call) {
        memories->add(call.input("memory").string(), Held(memory::Store(call.input("width").integer())));
        return Value(Value::Object());
      });
  add("load", Kind::mutation, "create", {"memory:create", "files:read"}, "A memory from a file.",
      R"("path": {"type": "string"})", R"(, "path")", [memories, options](Context& call) {
        const std::string &name = call.input("memory").string(), &path = call.input("path").string();
        require_right(call, "weights", path, "read");
        memories->check_free(name);
        memory::Store store = memory::Store::load(allowed_path(options, path, false));
        Value answer = Value::object({{"entries", store.size()}, {"width", store.width()}});
        memories->add(name, Held(std::move(store)));
        return answer;
      });
  add("open", Kind::mutation, "create", {"memory:create", "files:read", "files:write"},
      "A memory and its file, which has all changes of a call when the call ends; drop lets go of the file. With a "
      "width an empty "
      "file is made if there is none. One program has a file open at a time.",
      R"("path": {"type": "string"}, "width": {"type": "integer", "minimum": 1, "maximum": 65536})", R"(, "path")",
      [memories, options](Context& call) {
        const std::string &name = call.input("memory").string(), &path = call.input("path").string();
        require_right(call, "weights", path, "read");
        require_right(call, "weights", path, "write");
        memories->check_free(name);
        const Value* width = call.input().find("width");
        allowed_path(options, path, false);
        const std::filesystem::path file = allowed_path(options, path, true);
        memory::StoreFile opened =
            memory::StoreFile::open(file, width ? std::optional<Extent>(width->integer()) : std::nullopt);
        Value answer = Value::object({{"entries", opened.store().size()}, {"width", opened.store().width()}});
        memories->add(name, Held(std::move(opened), file));
        return answer;
      });
  add("save", Kind::mutation, "read", {"memory:run", "files:write"}, "Writes a memory to a file, whole or not at all.",
      R"("path": {"type": "string"})", R"(, "path")", [use, options](Context& call) {
        const std::string& path = call.input("path").string();
        require_right(call, "weights", path, "write");
        return use(call, [&](Held& held) {
          held.save(allowed_path(options, path, true));
          return Value(Value::Object());
        });
      });
  add("drop", Kind::mutation, "create", {"memory:create"}, "Frees a memory; its file stays.", "", "",
      [memories](Context& call) {
        memories->remove(call.input("memory").string());
        return Value(Value::Object());
      });
  add("describe", Kind::query, "read", {"memory:run"}, "Width, entries, and entries of each namespace.", "", "",
      [use](Context& call) {
        return use(call, [](const Held& held) {
          const memory::Store& store = held.store();
          Value::Object spaces;
          for (const auto& [name, count] : store.namespaces()) spaces.set(name, count);
          return Value::object(
              {{"width", store.width()}, {"entries", store.size()}, {"namespaces", std::move(spaces)}});
        });
      });
  add("add", Kind::mutation, "write", {"memory:run"},
      "Adds entries, all or none: texts with embeddings, or with a model that makes them.",
      R"("entries": {"type": "array", "minItems": 1, "maxItems": 10000, "items": {"type": "object", "required": ["text"], "additionalProperties": false,
           "properties": {"id": {"type": "string", "minLength": 1, "maxLength": 200}, "text": {"type": "string"}, "namespace": {"type": "string"}, "metadata": {"type": "object"}}}},
         "embeddings": {"x-tensor": true, "description": "[entries, width]"}, "model": {"type": "string"}, "encoder": {"type": "string"},
         "prompt": {"type": "string", "description": "the encoder's prompt for documents, if it has one"})",
      R"(, "entries")", [use, most = options.memory_entries_max](Context& call) {
        const Value::Array& entries = call.input("entries").elements();
        Value::Array texts;
        for (const Value& each : entries) texts.push_back(each["text"]);
        const Value* given = call.input().find("embeddings");
        const Tensor embeddings = given ? given->tensor() : embeddings_of(call, texts);
        return use(call, [&](Held& held) { return add_entries(held, entries, embeddings, most); });
      });
  add("remove", Kind::mutation, "write", {"memory:run"}, "Removes entries by their ids; returns how many there were.",
      R"("ids": {"type": "array", "items": {"type": "string"}, "maxItems": 10000})", R"(, "ids")",
      [use](Context& call) {
        return use(call, [&](Held& held) {
          int removed = 0;
          for (const Value& id : call.input("ids").elements()) removed += held.remove(id.string()) ? 1 : 0;
          held.commit();
          return Value::object({{"removed", removed}});
        });
      });
  add("search", Kind::query, "read", {"memory:run"},
      "The entries whose embeddings are most alike, the best first. Exact.", kSearchProperties, "",
      [use](Context& call) {
        const std::vector<float> query = query_of(call);
        return use(call, [&](const Held& held) {
          return Value::object({{"matches", matches_of(held.store().search(query, search_options(call.input())))}});
        });
      });
  add("recall", Kind::query, "read", {"memory:run"},
      "The best texts that fit into a number of tokens, as one text for a prompt.",
      fmt::format(
          R"({}, "tokens": {{"type": "integer", "minimum": 1, "maximum": 1000000, "default": 500, "description": "the budget, estimated as a quarter of the bytes"}})",
          kSearchProperties),
      "", [use](Context& call) {
        const std::vector<float> query = query_of(call);
        return use(call, [&](const Held& held) {
          const memory::Recall recall =
              held.store().recall(query, {.token_budget = static_cast<std::size_t>(call.input("tokens").integer()),
                                          .search = search_options(call.input())});
          return Value::object(
              {{"text", recall.text}, {"tokens", recall.tokens}, {"matches", matches_of(recall.matches)}});
        });
      });
}

}  // namespace weft::operations
