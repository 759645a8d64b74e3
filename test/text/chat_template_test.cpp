// Chat templates of models: where they are found, which one is chosen, what they see.
#include "text/chat_template.hpp"
#include "base/message_of.hpp"

#include <gtest/gtest.h>

#include "base/file.hpp"
#include "base/temporary_folder.hpp"
#include "io/gguf.hpp"
#include "weft/error.hpp"

namespace weft::text::chat_template_test {
namespace {

namespace fs = std::filesystem;
using test::message_of;

OrderedJson json(std::string_view text) { return parse_ordered_json(text, "test"); }

const OrderedJson kMessages = json(R"([{"role": "user", "content": "Hi <s>"}])");
constexpr std::string_view kSource =
    "{{ bos_token }}{% for m in messages %}{{ m.role }}: {{ m.content }}{{ eos_token }}{% endfor %}"
    "{{ 'assistant: ' if add_generation_prompt }}{{ tools is none }}{{ mode }}";

class Folder : public testing::Test {
 protected:
  fs::path write(const fs::path& name, std::string_view contents) {
    fs::create_directories((folder_.path() / name).parent_path());
    write_file_atomically(folder_.path() / name, contents);
    return folder_.path() / name;
  }
  ChatTemplate load() const { return ChatTemplate::load(folder_.path()); }
  std::string refusal() const {
    return message_of<FileError>([&] { load(); });
  }
  test::TemporaryFolder folder_;
};

TEST(ChatTemplate, RendersWithTokensToolsAndVariables) {
  const ChatTemplate chat(kSource, {{"bos_token", "<s>"}, {"eos_token", "</s>"}});
  ChatOptions options;
  options.add_generation_prompt = true;
  EXPECT_EQ(chat.render(kMessages, options).text(), "<s>user: Hi <s></s>assistant: True");
  options.tools = json("[{}]");
  options.variables = {{"mode", "m"}};
  EXPECT_EQ(chat.render(kMessages, options).segments, (std::vector<Segment>{{"<s>", false},
                                                                            {"user", true},
                                                                            {": ", false},
                                                                            {"Hi <s>", true},
                                                                            {"</s>assistant: False", false},
                                                                            {"m", true}}));
}

TEST(ChatTemplate, TrustsSpecialTokensThatAreReplaced) {
  ChatOptions options;
  options.variables = {{"bos_token", "<b>"}};
  const Rendered rendered = ChatTemplate("{{ bos_token }}", {{"bos_token", "<s>"}}).render(kMessages, options);
  EXPECT_EQ(rendered.segments, (std::vector<Segment>{{"<b>", false}}));
}

TEST(ChatTemplate, KeepsTheOrderOfKeys) {
  EXPECT_EQ(ChatTemplate("{{ messages[0] }}").render(json(R"([{"z": 1, "a": {"y": 2, "b": 3}}])")).text(),
            "{'z': 1, 'a': {'y': 2, 'b': 3}}");
}

TEST(ChatTemplate, RefusesArgumentsOfAnotherForm) {
  const ChatTemplate chat(kSource);
  const auto refused = [&](const OrderedJson& messages, ChatOptions options) {
    return message_of<UsageError>([&] { chat.render(messages, options); });
  };
  EXPECT_NE(refused(json("{}"), {}).find("the messages are not a list of objects"), std::string::npos);
  EXPECT_NE(refused(json("[1]"), {}).find("the messages are not a list of objects"), std::string::npos);
  EXPECT_NE(refused(kMessages, {.tools = json("{}")}).find("the tools are not a list"), std::string::npos);
  EXPECT_NE(refused(kMessages, {.documents = json("1")}).find("the documents are not a list"), std::string::npos);
  EXPECT_NE(refused(kMessages, {.variables = json("[]")}).find("not an object"), std::string::npos);
  EXPECT_NE(refused(kMessages, {.variables = {{"messages", 1}}}).find("not a further one"), std::string::npos);
  EXPECT_NE(
      refused(kMessages, {.template_name = "rag"}).find("no chat template is called \"rag\"; this model has default"),
      std::string::npos);
}

TEST_F(Folder, ReadsTheEntryOfTheTokenizer) {
  write("tokenizer_config.json", R"({"chat_template": "{{ bos_token }}{{ eos_token }}{{ additional_special_tokens }}",
      "bos_token": {"content": "<s>", "lstrip": false}, "eos_token": null, "additional_special_tokens": ["<a>", {"content": "<b>"}]})");
  write("special_tokens_map.json", R"({"bos_token": "<other>", "eos_token": {"content": "</s>"}})");
  EXPECT_EQ(load().render(kMessages).text(), "<s></s>['<a>', '<b>']");
}

TEST_F(Folder, PrefersItsFiles) {
  write("tokenizer_config.json", R"({"chat_template": "old", "bos_token": "<s>"})");
  write("chat_template.jinja", "new{{ bos_token }}");
  write("additional_chat_templates/rag.jinja", "rag");
  EXPECT_EQ(load().render(kMessages).text(), "new<s>");
  EXPECT_EQ(load().render(kMessages, {.template_name = "rag"}).text(), "rag");
  EXPECT_EQ(load().names(), (std::vector<std::string>{"default", "rag"}));
}

TEST_F(Folder, ReadsTheProcessorsFile) {
  write("chat_template.json", R"({"chat_template": "p"})");
  EXPECT_EQ(load().render(kMessages).text(), "p");
}

TEST_F(Folder, ChoosesAmongNamedTemplates) {
  write("tokenizer_config.json",
        R"({"chat_template": [{"name": "default", "template": "d"}, {"name": "tool_use", "template": "t"}]})");
  EXPECT_EQ(load().render(kMessages).text(), "d");
  EXPECT_EQ(load().render(kMessages, {.tools = json("[]")}).text(), "t");
  EXPECT_EQ(load().render(kMessages, {.tools = json("[]"), .template_name = "default"}).text(), "d");
  write("tokenizer_config.json", R"({"chat_template": [{"name": "rag", "template": "r"}]})");
  EXPECT_NE(message_of<UsageError>([&] { load().render(kMessages); }).find("no default chat template; name one of rag"),
            std::string::npos);
}

TEST_F(Folder, RefusesWhatIsMissingOrMalformed) {
  EXPECT_NE(refusal().find("the folder holds no chat template; give a template of your own"), std::string::npos)
      << refusal();
  write("tokenizer_config.json", "[]");
  EXPECT_NE(refusal().find("tokenizer_config.json: the document is not an object"), std::string::npos) << refusal();
  for (const char* entry : {"5", "[]", "[1]", R"([{"name": "x"}])", R"([{"template": "x", "name": 1}])"}) {
    write("tokenizer_config.json", std::string(R"({"chat_template": )") + entry + "}");
    EXPECT_NE(refusal().find("neither a text nor a list"), std::string::npos) << entry << refusal();
  }
  write("tokenizer_config.json", R"({"chat_template": "a\n{{ 1 + }}"})");
  EXPECT_NE(refusal().find("tokenizer_config.json: chat_template: line 2, column 8: "), std::string::npos) << refusal();
}

io::GgufMetadata metadata_of(std::initializer_list<std::pair<const char*, io::GgufValue>> entries) {
  io::GgufMetadata metadata("model.gguf");
  for (const auto& [key, value] : entries) metadata.set(key, value);
  return metadata;
}

const io::GgufArray kTokens = std::vector<std::string>{"<unk>", "<s>", "</s>"};

TEST_F(Folder, ReadsModelFiles) {
  const auto metadata =
      metadata_of({{"tokenizer.chat_template", "{{ bos_token }}{{ eos_token }}"},
                   {"tokenizer.chat_templates", io::GgufArray(std::vector<std::string>{"default", "tool_use"})},
                   {"tokenizer.chat_template.tool_use", "t"},
                   {"tokenizer.ggml.tokens", kTokens},
                   {"tokenizer.ggml.bos_token_id", std::uint32_t{1}},
                   {"tokenizer.ggml.eos_token_id", std::uint32_t{2}}});
  io::write_gguf(folder_.path() / "model.gguf", metadata, {});
  const ChatTemplate chat = ChatTemplate::load(folder_.path() / "model.gguf");
  EXPECT_EQ(chat.render(kMessages).segments, (std::vector<Segment>{{"<s></s>", false}}));
  EXPECT_EQ(chat.render(kMessages, {.tools = json("[]")}).text(), "t");
}

TEST(ChatTemplate, RefusesMetadataWithoutTemplateOrToken) {
  const auto refused = [](const io::GgufMetadata& metadata) {
    return message_of<FileError>([&] { ChatTemplate::from_gguf(metadata); });
  };
  EXPECT_NE(refused(metadata_of({})).find("model.gguf: the metadata holds no tokenizer.chat_template"),
            std::string::npos);
  EXPECT_NE(
      refused(metadata_of({{"tokenizer.chat_template", "{{"}})).find("model.gguf: tokenizer.chat_template: line 1"),
      std::string::npos);
  EXPECT_NE(refused(metadata_of({{"tokenizer.chat_template", std::uint32_t{1}}})).find("a string"), std::string::npos);
  EXPECT_NE(refused(metadata_of({{"tokenizer.chat_template", "x"},
                                 {"tokenizer.ggml.tokens", kTokens},
                                 {"tokenizer.ggml.bos_token_id", std::uint32_t{3}}}))
                .find("bos_token_id is 3, and there are 3 tokens"),
            std::string::npos);
}

TEST(OrderedJson, KeepsOrderAndRefusesTwins) {
  EXPECT_EQ(json(R"({"z": [1, -2, 1.5, null, true, "s"], "a": {}})").dump(),
            R"({"z":[1,-2,1.5,null,true,"s"],"a":{}})");
  EXPECT_NE(message_of<FileError>([] { json(R"({"a": 1, "a": 2})"); }).find("occurs twice"), std::string::npos);
}

}  // namespace
}  // namespace weft::text::chat_template_test
