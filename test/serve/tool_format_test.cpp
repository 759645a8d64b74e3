// Formats of tool calls, as chat templates show them, and calls in texts that come piece by piece.
#include "serve/tool_format.hpp"

#include <gtest/gtest.h>

#include "llm/byte_model.hpp"
#include "weft/error.hpp"

namespace weft::serve {
namespace {

struct TemplateCase {
  const char *name, *source, *opening, *closing, *arguments_key;
  bool is_list;
};

constexpr TemplateCase kTemplates[] = {
    {"marks around objects",
     "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% for c in m.tool_calls or [] %}<tool_call>\n{{ c.function "
     "| tojson }}\n"
     "</tool_call>{% endfor %}<|end|>\n{% endfor %}{% if add_generation_prompt %}<assistant>{% endif %}",
     "<tool_call>\n", "\n</tool_call>", "arguments", false},
    {"a list behind a mark",
     "{% for m in messages %}[{{ m.role }}]{{ m.content }}{% if m.tool_calls %}[TOOL_CALLS] [{% for c in m.tool_calls "
     "%}{\"name\": "
     "\"{{ c.function.name }}\", \"arguments\": {{ c.function.arguments | tojson }}}{% endfor %}]{% endif %}<|end|>{% "
     "endfor %}"
     "{% if add_generation_prompt %}[assistant]{% endif %}",
     "[TOOL_CALLS] ", "", "arguments", true},
    {"an object alone",
     "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% for c in m.tool_calls or [] %}{\"name\": \"{{ "
     "c.function.name }}\", "
     "\"parameters\": {{ c.function.arguments | tojson }}}{% endfor %}<|end|>{% endfor %}{% if add_generation_prompt "
     "%}<assistant>{% endif %}",
     "", "", "parameters", false},
    {"no calls", "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}", "<tool_call>\n", "\n</tool_call>",
     "arguments", false},
    {"refused calls", "{% for m in messages %}{% if m.tool_calls %}{{ raise_exception('no') }}{% endif %}x{% endfor %}",
     "<tool_call>\n", "\n</tool_call>", "arguments", false},
};

TEST(ToolFormats, AreThoseOfTheTemplate) {
  for (const TemplateCase& c : kTemplates) {
    SCOPED_TRACE(c.name);
    test::TemporaryFolder folder;
    test::put_byte_model(folder, c.source);
    const ToolFormat format = ToolFormat::of(llm::load(folder.path()));
    EXPECT_EQ(format.opening, c.opening);
    EXPECT_EQ(format.closing, c.closing);
    EXPECT_EQ(format.arguments_key, c.arguments_key);
    EXPECT_EQ(format.is_list, c.is_list);
  }
}

TEST(ToolFormats, SchemasOfParametersKeepTheirReferences) {
  const Value tools = Value::parse(R"([{"function": {"name": "a"}}, {"function": {"name": "b", "parameters": {
    "type": "object", "properties": {"x": {"$ref": "#/$defs/n"}}, "required": ["x"], "$defs": {"n": {"enum": [7]}}}}}])");
  for (const bool is_list : {false, true}) {
    const llm::Grammar grammar = llm::Grammar::json_schema(ToolFormat{.is_list = is_list}.schema(tools.elements()));
    const auto text = [&](const std::string& call) { return is_list ? "[" + call + "]" : call; };
    EXPECT_TRUE(grammar.accepts(text(R"({"name": "b", "arguments": {"x": 7}})")));
    EXPECT_TRUE(grammar.accepts(text(R"({"name": "a", "arguments": {"any": [1]}})")));
    EXPECT_FALSE(grammar.accepts(text(R"({"name": "b", "arguments": {"x": 8}})")));
    EXPECT_FALSE(grammar.accepts(text(R"({"name": "c", "arguments": {}})")));
  }
}

struct ReaderCase {
  const char* text;
  bool in_call;
  const char* content;
  std::vector<ToolCall> calls;
};

void check_reader(const ToolFormat& format, const ReaderCase& c) {
  const std::string text = c.text;
  for (std::size_t step = 2; step <= 2 * text.size() + 1; ++step) {
    const std::size_t size = step / 2;
    const bool in_pieces = step % 2 == 1;
    ToolCallReader reader(format, {"f", "g"}, c.in_call, in_pieces);
    std::string content;
    std::vector<ToolCall> calls;
    const auto add = [&](ToolCallReader::Part part) {
      content += part.content;
      calls.insert(calls.end(), part.calls.begin(), part.calls.end());
      for (const ToolCallReader::Piece& piece : part.pieces) {
        EXPECT_TRUE(in_pieces);
        if (!piece.name.empty()) calls.push_back({piece.name, ""});
        calls.back().arguments += piece.arguments;
      }
    };
    for (std::size_t at = 0; at < text.size(); at += size) add(reader.put(text.substr(at, size)));
    add(reader.finish());
    EXPECT_EQ(content, c.content) << text << " by " << size;
    ASSERT_EQ(calls.size(), c.calls.size()) << text << " by " << size;
    for (std::size_t i = 0; i < calls.size(); ++i) {
      EXPECT_EQ(calls[i].name, c.calls[i].name);
      // Pieces are as they were written, with white space.
      EXPECT_EQ(Value::parse(calls[i].arguments).to_json(), c.calls[i].arguments);
      if (!in_pieces) {
        EXPECT_EQ(calls[i].arguments, c.calls[i].arguments);
      }
    }
  }
}

TEST(ToolCallReaders, TellOfCallsWhileTheyAreWritten) {
  ToolCallReader reader({}, {"f"}, true, true);
  EXPECT_TRUE(reader.put(R"({"name": "f", "argum)").pieces.empty());
  const auto begun = reader.put(R"(ents": {"a)").pieces;
  ASSERT_EQ(begun.size(), 2u);
  EXPECT_EQ(begun[0].name, "f");
  EXPECT_EQ(begun[1].arguments, R"({"a)");
  EXPECT_EQ(reader.put(R"(": "}\)").pieces.at(0).arguments, R"(": "}\)");
  EXPECT_EQ(reader.put(R"(""}} <)").pieces.at(0).arguments, R"(""})");
  EXPECT_EQ(reader.put("/tool_call> and more").content, "and more");
  // A call that is cut off was told in part, so nothing of it becomes content.
  ToolCallReader cut({}, {"f"}, true, true);
  EXPECT_EQ(cut.put(R"({"name": "f", "arguments": {"a")").pieces.size(), 2u);
  EXPECT_EQ(cut.finish().content, "");
}

TEST(ToolCallReaders, FindCallsHoweverTheTextIsCut) {
  const ReaderCase marked[] = {
      {"plain text < and <tool", false, "plain text < and <tool", {}},
      {"<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": \"}\\\"\"}}\n</tool_call>",
       false,
       "",
       {{"f", R"({"a":"}\""})"}}},
      {"I call <tool_call>{\"name\": \"f\", \"arguments\": {}}</tool_call>\n<tool_call>{\"name\": \"g\", "
       "\"arguments\": {\"x\": 1}}</tool_call>",
       false,
       "I call ",
       {{"f", "{}"}, {"g", R"({"x":1})"}}},
      {"{\"name\": \"f\", \"arguments\": {}}", true, "", {{"f", "{}"}}},
      {"{\"name\": \"f\", \"argu", true, "{\"name\": \"f\", \"argu", {}},
      {"{\"name\": \"unknown\", \"arguments\": {}}", true, "{\"name\": \"unknown\", \"arguments\": {}}", {}},
  };
  for (const ReaderCase& c : marked) check_reader({}, c);
  const ToolFormat bare{.opening = "", .closing = "", .arguments_key = "parameters"};
  const ReaderCase alone[] = {
      {"{\"name\": \"f\", \"parameters\": {\"a\": 1}}", false, "", {{"f", R"({"a":1})"}}},
      {"The sky is {blue}.", false, "The sky is {blue}.", {}},
      {"{\"not\": \"a call\"}", false, "{\"not\": \"a call\"}", {}},
  };
  for (const ReaderCase& c : alone) check_reader(bare, c);
  const ToolFormat listed{.opening = "[TOOL_CALLS] ", .closing = "", .is_list = true};
  check_reader(listed, {"[TOOL_CALLS] [{\"name\": \"f\", \"arguments\": {}}, {\"name\": \"g\", \"arguments\": {}}]",
                        false,
                        "",
                        {{"f", "{}"}, {"g", "{}"}}});
}

}  // namespace
}  // namespace weft::serve
