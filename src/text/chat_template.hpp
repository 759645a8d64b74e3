// Chat templates of models: messages to the text that a model was trained on.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "io/gguf_metadata.hpp"
#include "jinja/template.hpp"

namespace weft::text {

using jinja::OrderedJson;
using jinja::parse_ordered_json;
using jinja::Rendered;
using jinja::Segment;
using jinja::Template;
using jinja::TemplateLimits;
using jinja::TemplateVariable;

/// What a template sees beside the messages.
struct ChatOptions {
  OrderedJson tools = nullptr;      ///< list of tools as JSON schemas, or null for none
  OrderedJson documents = nullptr;  ///< list of documents, or null for none
  bool add_generation_prompt = false;
  OrderedJson variables = OrderedJson::object();  ///< further ones, such as {"enable_thinking": false}
  /// Which template of a model that has several; empty: "tool_use" if tools are given and there is one, else "default".
  std::string template_name;
  std::optional<std::tm> now;  ///< what strftime_now formats; the local time unless given
};

/// The chat template of a model, or several by name. Immutable; any number of threads may render at once.
///
/// The template's own text and the special tokens are trusted; every string in messages, tools, documents and further
/// variables is marked as from the user, so that a tokenizer can take `<|im_end|>` typed by a user for plain text.
class ChatTemplate {
 public:
  /// Names and texts of special tokens as templates know them ("bos_token"): an object of strings and lists of strings.
  using SpecialTokens = OrderedJson;

  /// One template, called "default". Errors as Template.
  explicit ChatTemplate(std::string_view source, SpecialTokens tokens = SpecialTokens::object(),
                        std::string name = "chat template", TemplateLimits limits = {});

  /// From a folder as Hugging Face lays it out: chat_template.jinja and additional_chat_templates/NAME.jinja, or the
  /// entry chat_template of tokenizer_config.json (a text, or a list of named ones), or chat_template.json. FileError if
  /// there is none, or one is malformed.
  static ChatTemplate from_folder(const std::filesystem::path& folder, TemplateLimits limits = {});
  /// From a GGUF file: tokenizer.chat_template and tokenizer.chat_template.NAME. Errors as `from_folder`.
  static ChatTemplate from_gguf(const io::GgufMetadata& metadata, TemplateLimits limits = {});
  /// The special tokens that a model's files name, for a template that comes from elsewhere.
  static SpecialTokens tokens_of(const std::filesystem::path& folder);
  static SpecialTokens tokens_of(const io::GgufMetadata& metadata);
  /// `from_gguf` for a file, `from_folder` for a folder.
  static ChatTemplate load(const std::filesystem::path& model, TemplateLimits limits = {});

  /// The text of a chat. `messages` is a list of objects such as {"role": "user", "content": "Hi"}. UsageError for
  /// arguments of another form, and as Template::render.
  Rendered render(const OrderedJson& messages, const ChatOptions& options = {}) const;

  std::vector<std::string> names() const;
  const SpecialTokens& special_tokens() const { return tokens_; }

 private:
  ChatTemplate() = default;
  void add(std::string name, std::string_view source, const std::string& where, const TemplateLimits& limits);
  const Template& chosen(const ChatOptions& options) const;

  std::vector<std::pair<std::string, Template>> templates_;
  SpecialTokens tokens_ = SpecialTokens::object();
};

}  // namespace weft::text
