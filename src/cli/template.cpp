// weft template render: prints the text that a model reads for a list of messages.
#include <fmt/format.h>

#include <filesystem>
#include <iostream>
#include <iterator>
#include <memory>

#include "base/file.hpp"
#include "base/quote.hpp"
#include "cli/commands.hpp"
#include "cli/language_model.hpp"
#include "cli/output.hpp"
#include "text/chat_template.hpp"
#include "weft/error.hpp"

namespace weft::cli {
namespace {

namespace fs = std::filesystem;
using text::OrderedJson;

struct TemplateRequest {
  std::string template_file, model, messages = "-", tools, documents, name, date;
  std::vector<std::string> variables;
  bool add_generation_prompt = false, segments = false;
};

OrderedJson read_json(const std::string& path) {
  constexpr std::size_t kBytesMax = std::size_t{64} << 20;
  const JsonLimits limits{.max_bytes = kBytesMax, .max_values = 2'000'000};
  if (path != "-") return jinja::parse_ordered_json(read_text_file(path, kBytesMax), path, limits);
  std::string input;
  for (char buffer[1 << 16]; std::cin.read(buffer, sizeof buffer), std::cin.gcount() > 0;) {
    input.append(buffer, static_cast<std::size_t>(std::cin.gcount()));
    if (input.size() > kBytesMax)
      throw FileError(fmt::format("standard input: more than {} bytes; give fewer messages", kBytesMax));
  }
  return jinja::parse_ordered_json(input, "standard input", limits);
}

text::ChatTemplate template_of(const TemplateRequest& request) {
  if (request.template_file.empty() == request.model.empty())
    throw UsageError("weft template render: give one of --template FILE and --model FOLDER or FILE.gguf");
  if (!request.model.empty()) return text::ChatTemplate::load(model_path(request.model));
  return text::ChatTemplate(read_text_file(request.template_file, text::TemplateLimits().max_source_bytes),
                            OrderedJson::object(), request.template_file);
}

// "name=value": the value is JSON if it parses as JSON, else a string.
void set_variable(OrderedJson& variables, const std::string& setting) {
  const auto equals = setting.find('=');
  if (equals == std::string::npos || equals == 0)
    throw UsageError(fmt::format("--set {}: write name=value", quote(setting)));
  const std::string value = setting.substr(equals + 1);
  OrderedJson& variable = variables[setting.substr(0, equals)];
  try {
    variable = jinja::parse_ordered_json(value, "--set");
  } catch (const FileError&) {
    variable = value;
  }
}

std::tm parse_date(const std::string& text) {
  for (const char* format : {"%Y-%m-%d", "%Y-%m-%dT%H:%M:%S"}) {
    std::tm date{};
    const char* end = strptime(text.c_str(), format, &date);
    if (end && *end == '\0') return date;
  }
  throw UsageError(fmt::format("--date {} is not a date; write 2025-03-31 or 2025-03-31T12:00:00", quote(text)));
}

int render(const TemplateRequest& request) {
  if ((request.tools == "-") + (request.documents == "-") + (request.messages == "-") > 1)
    throw UsageError("weft template render: only one of --messages, --tools and --documents can be standard input");
  const text::ChatTemplate chat = template_of(request);
  text::ChatOptions options;
  options.add_generation_prompt = request.add_generation_prompt;
  options.template_name = request.name;
  for (const std::string& setting : request.variables) set_variable(options.variables, setting);
  if (!request.tools.empty()) options.tools = read_json(request.tools);
  if (!request.documents.empty()) options.documents = read_json(request.documents);
  if (!request.date.empty()) options.now = parse_date(request.date);
  const text::Rendered rendered = chat.render(read_json(request.messages), options);
  std::string out;
  if (request.segments) {
    OrderedJson json = OrderedJson::array();
    for (const jinja::Segment& segment : rendered.segments)
      json.push_back(OrderedJson{{"text", segment.text}, {"from_user", segment.from_user}});
    out = json_text(json, 1) + "\n";
  } else {
    out = rendered.text();
  }
  put_foreign(out);
  return kOk;
}

}  // namespace

void set_up_template(CLI::App& app, Action& action) {
  app.require_subcommand(1);
  CLI::App* sub = app.add_subcommand("render", "print the text that a model reads for a list of messages");
  auto request = std::make_shared<TemplateRequest>();
  sub->add_option("--template", request->template_file, "a chat template in Jinja (docs/chat-templates.md)");
  sub->add_option("--model", request->model, "a folder of a model, or a GGUF file, that holds one");
  sub->add_option("--name", request->name, "which template of a model with several, such as tool_use");
  sub->add_option("--messages", request->messages, "a JSON file with the list of messages, - for standard input")
      ->capture_default_str();
  sub->add_option("--tools", request->tools, "a JSON file with the list of tools");
  sub->add_option("--documents", request->documents, "a JSON file with the list of documents that answers draw on");
  sub->add_flag("--add-generation-prompt", request->add_generation_prompt, "end with the beginning of the answer");
  sub->add_option("--set", request->variables, "name=value: a further variable, in JSON or as text; may be repeated")
      ->allow_extra_args(false);
  sub->add_option("--date", request->date, "the date that templates take for today, such as 2025-03-31");
  sub->add_flag("--segments", request->segments, "as JSON, in pieces that tell which text came from the user");
  sub->callback([&action, request] { action = [request] { return render(*request); }; });
}

}  // namespace weft::cli
