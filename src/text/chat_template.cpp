#include "text/chat_template.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "base/file.hpp"
#include "base/json.hpp"
#include "base/quote.hpp"
#include "io/gguf.hpp"
#include "weft/error.hpp"

namespace weft::text {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kDefault = "default";
constexpr std::string_view kNoTemplate = "give a template of your own: --template FILE, or ChatTemplate(text)";

// The special tokens that templates may ask for.
constexpr std::string_view kTokenNames[] = {"bos_token", "eos_token", "unk_token", "sep_token",
                                            "pad_token", "cls_token", "mask_token"};

// A token as files write it: a text, or an object that holds it as "content".
std::optional<std::string> token_text(const Json& json) {
  if (json.is_string()) return json.get<std::string>();
  if (json.is_object() && json.contains("content") && json["content"].is_string())
    return json["content"].get<std::string>();
  return std::nullopt;
}

void read_tokens(const Json& config, OrderedJson& tokens) {
  for (const std::string_view name : kTokenNames)
    if (const auto found = config.find(name); found != config.end() && !tokens.contains(name))
      if (const auto text = token_text(*found)) tokens[std::string(name)] = *text;
  const auto more = config.find("additional_special_tokens");
  if (more == config.end() || !more->is_array() || tokens.contains("additional_special_tokens")) return;
  OrderedJson list = OrderedJson::array();
  for (const Json& each : *more)
    if (const auto text = token_text(each)) list.push_back(*text);
  tokens["additional_special_tokens"] = std::move(list);
}

// The object in a JSON file; an empty one if there is no file.
Json read_config(const fs::path& path) {
  if (!fs::exists(path)) return Json::object();
  Json json = read_json_file(path);
  if (!json.is_object())
    throw FileError(
        fmt::format("{}: the document is not an object {{...}}; take the file from the model", path.string()));
  return json;
}

bool is_list_or_none(const OrderedJson& json) { return json.is_null() || json.is_array(); }

}  // namespace

ChatTemplate::ChatTemplate(std::string_view source, SpecialTokens tokens, std::string name, TemplateLimits limits)
    : tokens_(std::move(tokens)) {
  add(std::string(kDefault), source, name, limits);
}

void ChatTemplate::add(std::string name, std::string_view source, const std::string& where,
                       const TemplateLimits& limits) {
  templates_.emplace_back(std::move(name), Template(source, where, limits));
}

ChatTemplate::SpecialTokens ChatTemplate::tokens_of(const fs::path& folder) {
  SpecialTokens tokens = SpecialTokens::object();
  read_tokens(read_config(folder / "tokenizer_config.json"), tokens);
  read_tokens(read_config(folder / "special_tokens_map.json"), tokens);
  return tokens;
}

ChatTemplate ChatTemplate::from_folder(const fs::path& folder, TemplateLimits limits) {
  ChatTemplate chat;
  const fs::path config_path = folder / "tokenizer_config.json";
  const Json config = read_config(config_path);
  chat.tokens_ = tokens_of(folder);

  const auto add_file = [&](const std::string& name, const fs::path& path) {
    chat.add(name, read_text_file(path, limits.max_source_bytes), path.string(), limits);
  };
  if (fs::exists(folder / "chat_template.jinja")) add_file(std::string(kDefault), folder / "chat_template.jinja");
  if (fs::is_directory(folder / "additional_chat_templates")) {
    std::vector<fs::path> paths;
    for (const auto& entry : fs::directory_iterator(folder / "additional_chat_templates"))
      if (entry.path().extension() == ".jinja") paths.push_back(entry.path());
    std::sort(paths.begin(), paths.end());
    for (const fs::path& path : paths) add_file(path.stem().string(), path);
  }
  if (!chat.templates_.empty()) return chat;

  Json entry = config.contains("chat_template") ? config["chat_template"] : Json();
  fs::path source_path = config_path;
  if (entry.is_null()) {
    source_path = folder / "chat_template.json";
    const Json other = read_config(source_path);
    if (other.contains("chat_template")) entry = other["chat_template"];
  }
  const std::string where = fmt::format("{}: chat_template", source_path.string());
  if (entry.is_null())
    throw FileError(fmt::format("{}: the folder holds no chat template; {}", folder.string(), kNoTemplate));
  if (entry.is_string()) {
    chat.add(std::string(kDefault), entry.get_ref<const std::string&>(), where, limits);
    return chat;
  }
  const auto malformed = [&] {
    throw FileError(fmt::format(
        "{} is neither a text nor a list of objects with name and template; take the file from the model", where));
  };
  if (!entry.is_array() || entry.empty()) malformed();
  for (const Json& each : entry) {
    if (!each.is_object() || !each.contains("name") || !each["name"].is_string() || !each.contains("template") ||
        !each["template"].is_string())
      malformed();
    const std::string name = each["name"].get<std::string>();
    chat.add(name, each["template"].get_ref<const std::string&>(), fmt::format("{} {}", where, quote(name, 40)),
             limits);
  }
  return chat;
}

ChatTemplate ChatTemplate::from_gguf(const io::GgufMetadata& metadata, TemplateLimits limits) {
  ChatTemplate chat;
  static constexpr std::string_view kKey = "tokenizer.chat_template";
  const auto add_entry = [&](std::string name, const std::string& key) {
    if (const auto source = metadata.get_if<std::string>(key))
      chat.add(std::move(name), *source, fmt::format("{}: {}", metadata.source(), key), limits);
  };
  add_entry(std::string(kDefault), std::string(kKey));
  if (const auto* names = metadata.array_if<std::string>("tokenizer.chat_templates"))
    for (const std::string& name : *names)
      if (name != kDefault) add_entry(name, fmt::format("{}.{}", kKey, name));
  if (chat.templates_.empty())
    throw FileError(fmt::format("{}: the metadata holds no {}; {}", metadata.source(), kKey, kNoTemplate));
  chat.tokens_ = tokens_of(metadata);
  return chat;
}

ChatTemplate::SpecialTokens ChatTemplate::tokens_of(const io::GgufMetadata& metadata) {
  SpecialTokens tokens = SpecialTokens::object();
  const auto* texts = metadata.array_if<std::string>("tokenizer.ggml.tokens");
  static constexpr std::pair<std::string_view, std::string_view> kIds[] = {
      {"bos_token", "bos"},     {"eos_token", "eos"}, {"unk_token", "unknown"}, {"sep_token", "seperator"},
      {"pad_token", "padding"}, {"cls_token", "cls"}, {"mask_token", "mask"},
  };
  for (const auto& [name, id_name] : kIds) {
    const std::string key = fmt::format("tokenizer.ggml.{}_token_id", id_name);
    const auto id = metadata.get_if<std::uint64_t>(key);
    if (!id || !texts) continue;
    if (*id >= texts->size())
      throw FileError(fmt::format("{}: {} is {}, and there are {} tokens; take another copy of the file",
                                  metadata.source(), key, *id, texts->size()));
    tokens[std::string(name)] = (*texts)[*id];
  }
  return tokens;
}

ChatTemplate ChatTemplate::load(const fs::path& model, TemplateLimits limits) {
  if (fs::is_directory(model)) return from_folder(model, limits);
  return from_gguf(io::GgufFile::open(model).metadata(), limits);
}

std::vector<std::string> ChatTemplate::names() const {
  std::vector<std::string> names;
  for (const auto& [name, each] : templates_) names.push_back(name);
  return names;
}

const Template& ChatTemplate::chosen(const ChatOptions& options) const {
  const auto find = [&](std::string_view name) -> const Template* {
    for (const auto& [each, found] : templates_)
      if (each == name) return &found;
    return nullptr;
  };
  if (!options.template_name.empty()) {
    if (const Template* found = find(options.template_name)) return *found;
    throw UsageError(fmt::format("no chat template is called {}; this model has {}", quote(options.template_name, 40),
                                 fmt::join(names(), ", ")));
  }
  const Template* found = options.tools.is_null() ? nullptr : find("tool_use");
  if (!found) found = find(kDefault);
  if (!found)
    throw UsageError(fmt::format("the model has no default chat template; name one of {}", fmt::join(names(), ", ")));
  return *found;
}

Rendered ChatTemplate::render(const OrderedJson& messages, const ChatOptions& options) const {
  const bool are_objects = messages.is_array() && std::all_of(messages.begin(), messages.end(),
                                                              [](const OrderedJson& each) { return each.is_object(); });
  if (!are_objects)
    throw UsageError(
        R"(the messages are not a list of objects such as {"role": "user", "content": "Hi"}; write them so)");
  if (!is_list_or_none(options.tools))
    throw UsageError("the tools are not a list; put the schema of each into one: [{...}]");
  if (!is_list_or_none(options.documents)) throw UsageError("the documents are not a list; put them into one: [{...}]");
  if (!options.variables.is_object())
    throw UsageError("the further variables are not an object; write {\"name\": value}");

  std::vector<TemplateVariable> variables;
  for (const auto& [name, value] : tokens_.items()) variables.push_back({name, value, false});
  for (const auto& [name, value] : options.variables.items()) {
    if (name == "messages" || name == "tools" || name == "documents" || name == "add_generation_prompt")
      throw UsageError(
          fmt::format("the variable {} is not a further one: the messages, the tools, the documents and the "
                      "generation prompt have options of their own",
                      name));
    // A caller that replaces a special token wants it to be special.
    const bool is_token = std::find(std::begin(kTokenNames), std::end(kTokenNames), name) != std::end(kTokenNames);
    variables.push_back({name, value, !is_token});
  }
  variables.push_back({"messages", messages});
  variables.push_back({"tools", options.tools});
  variables.push_back({"documents", options.documents});
  variables.push_back({"add_generation_prompt", options.add_generation_prompt});
  return chosen(options).render(variables, options.now);
}

}  // namespace weft::text
