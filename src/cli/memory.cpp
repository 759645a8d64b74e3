// weft memory add|search|recall|remove|list
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/quote.hpp"
#include "cli/commands.hpp"
#include "cli/input.hpp"
#include "cli/language_model.hpp"
#include "cli/output.hpp"
#include "cli/text_embedder.hpp"
#include "weft/error.hpp"
#include "weft/memory.hpp"

namespace weft::cli {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kEmbeddedAtOnce = 256;

struct MemoryRequest {
  fs::path memory, lines;
  ModelOptions model;
  std::vector<std::string> texts, ids;
  std::string query, name_space, metadata = "{}", where = "{}";
  bool has_namespace = false, json = false;
  std::size_t top_k = 10, tokens = 500;
  double similarity_min = -1;
};

int add_texts(const MemoryRequest& r) {
  const std::vector<std::string> texts = texts_and_lines("memory add", "--text", r.texts, r.lines);
  const Value metadata = parse_argument(r.metadata, "--metadata");
  if (!metadata.is_object()) throw UsageError("memory add: --metadata is not a JSON object");
  const TextEmbedder model(r.model);
  // What is wrong with a text is told before there is a file.
  std::vector<float> rows;
  for (std::size_t first = 0; first < texts.size(); first += kEmbeddedAtOnce) {
    const std::size_t count = std::min(kEmbeddedAtOnce, texts.size() - first);
    const auto some = std::span<const std::string>(texts).subspan(first, count);
    const std::vector<float> made = model.documents(some);
    rows.insert(rows.end(), made.begin(), made.end());
  }
  memory::StoreFile store = memory::StoreFile::open(r.memory, model.width());
  const auto width = static_cast<std::size_t>(model.width());
  std::string ids;
  for (std::size_t i = 0; i < texts.size(); ++i)
    ids += store.add({{}, r.name_space, texts[i], metadata}, std::span(rows).subspan(i * width, width)) + "\n";
  store.commit();
  put_text(ids);
  return kOk;
}

std::vector<float> query_of(const MemoryRequest& r, const TextEmbedder& model) {
  require_utf8_text(r.query, "the query");
  return model.query(r.query);
}

memory::SearchOptions search_options(const MemoryRequest& r) {
  memory::SearchOptions options{
      .top_k = r.top_k, .where = parse_argument(r.where, "--where"), .similarity_min = r.similarity_min};
  if (r.has_namespace) options.name_space = r.name_space;
  return options;
}

int search(const MemoryRequest& r) {
  const memory::Store store = memory::Store::load(r.memory);
  const TextEmbedder model(r.model);
  for (const memory::Match& match : store.search(query_of(r, model), search_options(r)))
    put_foreign(r.json ? to_value(match).to_json() + "\n"
                       : fmt::format("{:.4f}  {}  {}\n", match.similarity, match.entry.id, match.entry.text));
  return kOk;
}

int recall(const MemoryRequest& r) {
  const memory::Store store = memory::Store::load(r.memory);
  const TextEmbedder model(r.model);
  const memory::Recall recall =
      store.recall(query_of(r, model), {.token_budget = r.tokens,
                                        .tokens = [&](std::string_view text) { return model.tokens(text); },
                                        .search = search_options(r)});
  put_foreign(recall.text);
  return kOk;
}

int remove(const MemoryRequest& r) {
  memory::StoreFile store = memory::StoreFile::open(r.memory);
  for (const std::string& id : r.ids)
    if (!store.remove(id))
      throw UsageError(
          fmt::format("{}: there is no entry {}; weft memory list shows all", r.memory.string(), quote(id)));
  store.commit();
  return kOk;
}

int list(const MemoryRequest& r) {
  const memory::Store store = memory::Store::load(r.memory);
  for (const memory::Entry& entry : store.entries())
    put_foreign(
        r.json ? Value::object({{"id", entry.id},
                                {"namespace", entry.name_space},
                                {"text", entry.text},
                                {"metadata", entry.metadata}})
                         .to_json() +
                     "\n"
               : fmt::format("{}  {}  {}\n", entry.id, entry.name_space.empty() ? "-" : entry.name_space, entry.text));
  return kOk;
}

void add_search_options(CLI::App& app, MemoryRequest& r) {
  app.add_option("query", r.query, "the text to look for")->required();
  add_model_options(app, r.model);
  app.add_option("--top-k", r.top_k, "how many at most")->check(CLI::Range(1, 10000))->capture_default_str();
  app.add_option("--where", r.where, "members that the metadata must have, JSON")->capture_default_str();
  app.add_option("--similarity-min", r.similarity_min, "least cosine")->capture_default_str();
}

}  // namespace

void set_up_memory(CLI::App& app, Action& action) {
  app.require_subcommand(1);
  const auto add = [&](const char* name, const char* summary, int (*run)(const MemoryRequest&)) {
    auto request = std::make_shared<MemoryRequest>();
    CLI::App* sub = app.add_subcommand(name, summary);
    sub->add_option("memory", request->memory, "file of the memory")->required();
    CLI::Option* space = nullptr;
    if (run != remove && run != list) space = sub->add_option("--namespace", request->name_space, "such as notes");
    sub->callback([&action, request, run, space] {
      request->has_namespace = space && space->count() > 0;
      action = [request, run] { return run(*request); };
    });
    return std::pair<CLI::App&, MemoryRequest&>(*sub, *request);
  };
  {
    const auto [sub, r] = add("add", "embed texts and store them; makes the file if there is none", add_texts);
    add_model_options(sub, r.model);
    sub.add_option("--text", r.texts, "a text; may be given several times");
    sub.add_option("--lines", r.lines, "file with a text in each line; - is standard input");
    sub.add_option("--metadata", r.metadata, "of these texts, a JSON object")->capture_default_str();
  }
  {
    const auto [sub, r] = add("search", "the texts that are most alike, the best first", search);
    add_search_options(sub, r);
    sub.add_flag("--json", r.json, "a line of JSON for each");
  }
  {
    const auto [sub, r] = add("recall", "the best texts that fit into a number of tokens, for a prompt", recall);
    add_search_options(sub, r);
    sub.add_option("--tokens", r.tokens, "the budget, in tokens of the model")
        ->check(CLI::Range(1, 1'000'000))
        ->capture_default_str();
  }
  {
    const auto [sub, r] = add("remove", "remove entries", remove);
    sub.add_option("ids", r.ids, "ids of entries")->required();
  }
  {
    const auto [sub, r] = add("list", "all entries", list);
    sub.add_flag("--json", r.json, "a line of JSON for each");
  }
}

}  // namespace weft::cli
