// Files of examples, as tokens.
#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "base/file.hpp"
#include "base/json.hpp"
#include "base/quote.hpp"
#include "base/utf8.hpp"
#include "base/xxh64.hpp"
#include "tune/json_lines.hpp"
#include "weft/error.hpp"
#include "weft/tune.hpp"

namespace weft::tune {
namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t kBytesMax = std::uint64_t{4} << 30;

bool holds_lines(const fs::path& file) {
  const std::string ending = file.extension().string();
  return ending == ".jsonl" || ending == ".json" || ending == ".ndjson";
}

/// Reads the examples of a file, one line after another.
class LineReader {
 public:
  LineReader(const fs::path& file, const llm::Model& model, Extent context)
      : lines_(file), model_(model), context_(context) {}

  Examples read(std::string_view text) {
    lines_.each(text, [&](const Json& line) { take(line); });
    return std::move(examples_);
  }

 private:
  [[noreturn]] void refuse(const std::string& fact) const { lines_.refuse(fact); }

  std::string text_of(const Json& object, const char* key, bool is_required = true) const {
    const auto found = object.find(key);
    if (found == object.end() || found->is_null()) {
      if (is_required) refuse(fmt::format("there is no \"{}\"", key));
      return {};
    }
    if (!found->is_string()) refuse(fmt::format("\"{}\" is {}, not a text", key, quote(found->dump(), 60)));
    return found->get<std::string>();
  }

  void take(const Json& line) {
    if (!line.is_object())
      refuse(
          "the line is no object; write {\"messages\": [...]}, {\"prompt\": ..., \"completion\": ...}, {\"text\": "
          "...} or {\"prompt\": ..., \"chosen\": ..., \"rejected\": ...}");
    const bool is_preference = line.contains("chosen") || line.contains("rejected");
    if (are_preferences_.value_or(is_preference) != is_preference)
      refuse(fmt::format("the line is {}, and those before it are {}; put preferences into a file of their own",
                         is_preference ? "a preference" : "an example",
                         *are_preferences_ ? "preferences" : "examples"));
    are_preferences_ = is_preference;
    if (is_preference)
      add(preference_of(line));
    else
      add(example_of(line));
  }

  Example example_of(const Json& line) const {
    if (line.contains("messages")) return conversation(line);
    if (line.contains("completion")) return completion(line);
    if (line.contains("text")) {
      Example example{model_.encode(text_of(line, "text")), {}};
      finish(example, 0);
      return example;
    }
    std::string keys;
    for (const auto& [key, value] : line.items()) keys += (keys.empty() ? "" : ", ") + quote(key, 30);
    refuse(
        fmt::format("the object has {}; Weft reads \"messages\", \"prompt\" and \"completion\", \"text\", or "
                    "\"prompt\", \"chosen\" and \"rejected\"",
                    keys.empty() ? "no keys" : keys));
  }

  /// All tokens from `from` on count, and the token that ends texts.
  void finish(Example& example, std::size_t from) const {
    if (!model_.end_tokens().empty()) example.tokens.push_back(model_.end_tokens().front());
    example.counts.assign(example.tokens.size(), false);
    std::fill(example.counts.begin() + static_cast<std::ptrdiff_t>(from), example.counts.end(), true);
  }

  Example completion(const Json& line) const {
    return completion(text_of(line, "prompt"), text_of(line, "completion"));
  }
  Example completion(const std::string& prompt, const std::string& text) const {
    Example example{model_.encode(prompt), {}};
    const std::size_t from = example.tokens.size();
    const std::vector<std::int32_t> written = model_.encode(text, false);
    example.tokens.insert(example.tokens.end(), written.begin(), written.end());
    finish(example, from);
    return example;
  }

  llm::Message message_of(const Json& given) const {
    if (!given.is_object()) refuse("a message is no object with \"role\" and \"content\"");
    llm::Message message{text_of(given, "role"), text_of(given, "content", !given.contains("tool_calls"))};
    message.reasoning = text_of(given, "reasoning_content", false);
    message.name = text_of(given, "name", false);
    message.tool_call_id = text_of(given, "tool_call_id", false);
    if (const auto calls = given.find("tool_calls"); calls != given.end() && !calls->is_null())
      message.tool_calls = calls->dump();
    return message;
  }
  std::vector<llm::Message> messages_of(const Json& list, const char* key = "messages") const {
    if (!list.is_array() || list.empty()) refuse(fmt::format("\"{}\" is no list of messages", key));
    std::vector<llm::Message> messages;
    for (const Json& given : list) messages.push_back(message_of(given));
    return messages;
  }

  /// The model's template writes the first messages of a conversation, and with `opens` the beginning of an answer.
  std::vector<std::int32_t> talk(const std::vector<llm::Message>& messages, std::size_t count, bool opens,
                                 llm::ChatOptions chat) const {
    chat.add_generation_prompt = opens;
    try {
      return model_.chat_tokens({messages.begin(), messages.begin() + static_cast<std::ptrdiff_t>(count)}, chat);
    } catch (UsageError& error) {
      if (!model_.has_template()) throw;
      refuse(error.what());
    }
  }
  static llm::ChatOptions chat_of(const Json& line) {
    llm::ChatOptions chat;
    if (const auto tools = line.find("tools"); tools != line.end() && !tools->is_null()) chat.tools = tools->dump();
    return chat;
  }

  /// The template writes the conversation up to each answer, and with it: what is behind the common tokens is the answer.
  Example conversation(const Json& line) const {
    const std::vector<llm::Message> messages = messages_of(line.at("messages"));
    const llm::ChatOptions chat = chat_of(line);
    const auto tokens_of = [&](std::size_t count, bool opens) { return talk(messages, count, opens, chat); };
    Example example{tokens_of(messages.size(), false), {}};
    example.counts.assign(example.tokens.size(), false);
    const auto common = [&](const std::vector<std::int32_t>& part) {
      return static_cast<std::size_t>(
          std::mismatch(part.begin(), part.end(), example.tokens.begin(), example.tokens.end()).first - part.begin());
    };
    bool has_answer = false;
    for (std::size_t i = 0; i < messages.size(); ++i) {
      if (messages[i].role != "assistant") continue;
      const std::size_t begin = common(tokens_of(i, true)),
                        end = i + 1 == messages.size() ? example.tokens.size() : common(tokens_of(i + 1, false));
      for (std::size_t t = begin; t < end; ++t) example.counts[t] = has_answer = true;
    }
    if (!has_answer) refuse("no message of the role \"assistant\", whose words are what the model learns");
    return example;
  }

  // ---- Preferences

  Preference preference_of(const Json& line) const {
    for (const char* key : {"chosen", "rejected"})
      if (!line.contains(key)) refuse(fmt::format("there is no \"{}\" beside the other answer", key));
    const Json &chosen = line.at("chosen"), &rejected = line.at("rejected");
    const char* key = line.contains("messages") ? "messages" : "prompt";
    const auto found = line.find(key);
    const bool has_prompt = found != line.end() && !found->is_null();
    if (has_prompt && found->is_array()) {
      const std::vector<llm::Message> prompt = messages_of(*found, key);
      return {answer(line, prompt, "chosen"), answer(line, prompt, "rejected")};
    }
    if (has_prompt && chosen.is_string() && rejected.is_string()) {
      const std::string prompt = text_of(line, key);
      return {completion(prompt, text_of(line, "chosen")), completion(prompt, text_of(line, "rejected"))};
    }
    if (has_prompt)
      refuse(
          fmt::format("\"{}\" is {}, and an answer is not a text; write both as texts, or the prompt as a list of "
                      "messages",
                      key, quote(found->dump(), 60)));
    if (chosen.is_string() && rejected.is_string()) return texts_with_one_beginning(chosen, rejected);
    return talks_with_one_beginning(line);
  }

  /// Behind the prompt, what the template writes for the answer counts.
  Example answer(const Json& line, const std::vector<llm::Message>& prompt, const char* key) const {
    std::vector<llm::Message> messages = prompt;
    const Json& given = line.at(key);
    if (given.is_string())
      messages.push_back({"assistant", given.get<std::string>()});
    else if (given.is_object())
      messages.push_back(message_of(given));
    else
      for (llm::Message& message : messages_of(given, key)) messages.push_back(std::move(message));
    return answer(line, messages, prompt.size());
  }
  Example answer(const Json& line, const std::vector<llm::Message>& messages, std::size_t prompt) const {
    const llm::ChatOptions chat = chat_of(line);
    const std::vector<std::int32_t> opened = talk(messages, prompt, true, chat);
    Example example{talk(messages, messages.size(), false, chat), {}};
    const auto from = std::mismatch(opened.begin(), opened.end(), example.tokens.begin(), example.tokens.end()).first;
    example.counts.assign(example.tokens.size(), true);
    std::fill_n(example.counts.begin(), from - opened.begin(), false);
    return example;
  }

  Preference texts_with_one_beginning(const std::string& chosen, const std::string& rejected) const {
    auto end = std::mismatch(chosen.begin(), chosen.end(), rejected.begin(), rejected.end()).first;
    // A character stays whole, and a space belongs to the word behind it.
    while (end != chosen.begin() && end != chosen.end() && (static_cast<unsigned char>(*end) & 0xC0U) == 0x80U) --end;
    if (end != chosen.begin() && *(end - 1) == ' ') --end;
    const auto length = static_cast<std::size_t>(end - chosen.begin());
    const std::string prompt = chosen.substr(0, length);
    return {completion(prompt, chosen.substr(length)), completion(prompt, rejected.substr(length))};
  }

  Preference talks_with_one_beginning(const Json& line) const {
    const Json &chosen = line.at("chosen"), &rejected = line.at("rejected");
    const std::vector<llm::Message> one = messages_of(chosen, "chosen"), other = messages_of(rejected, "rejected");
    std::size_t prompt = 0;
    while (prompt < std::min(one.size(), other.size()) && chosen[prompt] == rejected[prompt]) ++prompt;
    if (prompt == 0) refuse("\"chosen\" and \"rejected\" begin with different messages; write \"prompt\" too");
    if (prompt == one.size() || prompt == other.size())
      refuse("of \"chosen\" and \"rejected\", one has no message that the other does not begin with");
    return {answer(line, one, prompt), answer(line, other, prompt)};
  }

  // ---- What is kept

  /// Whether a token that counts is left of the example within the context.
  bool fits(Example& example) {
    const auto most = static_cast<std::size_t>(context_) + 1;
    if (example.tokens.size() > most) {
      ++examples_.cut;
      example.tokens.resize(most);
      example.counts.resize(most);
    }
    // What was cut away may be all that counted.
    return example.tokens.size() > 1 &&
           std::find(example.counts.begin() + 1, example.counts.end(), true) != example.counts.end();
  }
  void add(Example example) {
    if (fits(example)) examples_.all.push_back(std::move(example));
  }
  void add(Preference preference) {
    const bool chosen = fits(preference.chosen), rejected = fits(preference.rejected);
    if (chosen && rejected) examples_.preferences.push_back(std::move(preference));
  }

  JsonLines lines_;
  const llm::Model& model_;
  const Extent context_;
  std::optional<bool> are_preferences_;  // as the first line says
  Examples examples_;
};

Examples cut_text(const fs::path& file, std::string_view text, const llm::Model& model, Extent context) {
  const std::vector<std::int32_t> tokens = model.encode(text);
  Examples examples;
  for (std::size_t begin = 0; begin + 1 < tokens.size(); begin += static_cast<std::size_t>(context)) {
    const std::size_t end = std::min(tokens.size(), begin + static_cast<std::size_t>(context) + 1);
    Example example{
        {tokens.begin() + static_cast<std::ptrdiff_t>(begin), tokens.begin() + static_cast<std::ptrdiff_t>(end)}, {}};
    example.counts.assign(example.tokens.size(), true);
    examples.all.push_back(std::move(example));
  }
  if (examples.all.empty()) throw FileError(fmt::format("{}: the text has fewer than two tokens", file.string()));
  return examples;
}

}  // namespace

Examples read_examples(const fs::path& file, const llm::Model& model, Extent context) {
  if (context < 2) throw UsageError(fmt::format("tune: a context of {} tokens; give at least 2", context));
  const std::string text = read_text_file(file, kBytesMax);
  require_utf8(text, file.string());
  Examples examples =
      holds_lines(file) ? LineReader(file, model, context).read(text) : cut_text(file, text, model, context);
  if (examples.all.empty() && examples.preferences.empty())
    throw FileError(fmt::format("{}: no example keeps a token that counts within {} tokens; give a larger context",
                                file.string(), context));
  examples.hash = xxh64(text);
  return examples;
}

}  // namespace weft::tune
