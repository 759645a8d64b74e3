// Requests of OpenAI's API: fields, their ranges, and what they mean for a generation.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/quote.hpp"
#include "serve/openai.hpp"

namespace weft::serve {
namespace {

constexpr std::size_t kChoicesMax = 128, kStopsMax = 4, kEmbeddingsMax = 2048, kPromptsMax = 2048, kToolsMax = 128;

[[noreturn]] void refuse_field(std::string_view field, std::string_view fact) {
  throw OpenAiError(400, fmt::format("{} {}", field, fact), std::string(field));
}

// A member that is there and not null.
const Value* given(const Value& object, std::string_view key) {
  const Value* found = object.find(key);
  return found && !found->is_null() ? found : nullptr;
}

double number_in(const Value& body, std::string_view key, double least, double most, double otherwise) {
  const Value* v = given(body, key);
  if (!v) return otherwise;
  if (!v->is_number()) refuse_field(key, "is not a number");
  const double number = v->number();
  if (!(number >= least && number <= most))
    refuse_field(key, fmt::format("is {}, not between {} and {}", number, least, most));
  return number;
}

std::int64_t integer_in(const Value& body, std::string_view key, std::int64_t least, std::int64_t most,
                        std::int64_t otherwise) {
  const Value* v = given(body, key);
  if (!v) return otherwise;
  if (!v->is_integer()) refuse_field(key, "is not an integer");
  const double number = v->number();
  if (number < static_cast<double>(least) || number > static_cast<double>(most))
    refuse_field(key, fmt::format("is {}, not between {} and {}", v->to_json(), least, most));
  return v->integer();
}

bool flag(const Value& body, std::string_view key, bool otherwise) {
  const Value* v = given(body, key);
  if (!v) return otherwise;
  if (!v->is_boolean()) refuse_field(key, "is neither true nor false");
  return v->boolean();
}

std::string string_in(const Value& value, std::string_view field) {
  if (!value.is_string()) refuse_field(field, "is not a string");
  return value.string();
}

void check_model(const Value& body, const OpenAiModel& model) {
  if (!body.is_object()) throw OpenAiError(400, "the body is not a JSON object");
  const Value* name = given(body, "model");
  if (!name) return;  // there is one model
  if (string_in(*name, "model") != model.name)
    throw OpenAiError(404,
                      fmt::format("the model {} does not exist here; GET /v1/models lists {}", quote(name->string()),
                                  quote(model.name)),
                      "model", "model_not_found");
}

// The settings that both kinds of requests have.
llm::GenerateOptions read_options(const Value& body, const OpenAiModel& model, Extent max_tokens) {
  llm::GenerateOptions options;
  llm::Sampling& s = options.sampling;
  s = {.temperature = 1, .top_k = 0, .top_p = 1, .min_p = 0};
  options.max_tokens =
      integer_in(body, "max_completion_tokens", 1, INT32_MAX, integer_in(body, "max_tokens", 1, INT32_MAX, max_tokens));
  s.temperature = number_in(body, "temperature", 0, 2, 1);
  s.top_p = number_in(body, "top_p", 0, 1, 1);
  if (s.top_p == 0) s.top_p = 1e-9;  // the most probable token alone
  s.frequency_penalty = number_in(body, "frequency_penalty", -2, 2, 0);
  s.presence_penalty = number_in(body, "presence_penalty", -2, 2, 0);
  s.penalty_window = 256;
  // Settings that other servers of local models have too.
  s.top_k = integer_in(body, "top_k", 0, INT32_MAX, 0);
  s.min_p = number_in(body, "min_p", 0, 1, 0);
  s.repetition_penalty = number_in(body, "repetition_penalty", 0.01, 10, 1);
  if (const Value* seed = given(body, "seed")) {
    if (!seed->is_integer() || std::abs(seed->number()) >= 0x1p63) refuse_field("seed", "is not an integer of 64 bits");
    s.seed = static_cast<std::uint64_t>(seed->integer());
  }
  if (const Value* biases = given(body, "logit_bias")) {
    if (!biases->is_object()) refuse_field("logit_bias", "is not an object of numbers by token");
    for (const auto& [key, bias] : biases->members()) {
      const bool is_id = !key.empty() && key.size() < 10 &&
                         std::all_of(key.begin(), key.end(), [](char c) { return c >= '0' && c <= '9'; });
      const std::int64_t id = is_id ? std::stoll(key) : -1;
      if (id < 0 || id >= model.model.vocabulary())
        refuse_field("logit_bias", fmt::format("has the key {}, which is not one of the {} tokens", quote(key, 40),
                                               model.model.vocabulary()));
      if (!bias.is_number() || !(std::abs(bias.number()) <= 100))
        refuse_field("logit_bias", fmt::format("has a value for {} that is not between -100 and 100", key));
      s.logit_bias.emplace_back(static_cast<std::int32_t>(id), bias.number());
    }
    if (s.logit_bias.size() > 1024) refuse_field("logit_bias", "has more than 1024 tokens");
  }
  if (const Value* stop = given(body, "stop")) {
    if (stop->is_string())
      options.stop = {stop->string()};
    else if (stop->is_array() && stop->elements().size() <= kStopsMax)
      for (const Value& each : stop->elements()) options.stop.push_back(string_in(each, "stop"));
    else
      refuse_field("stop", fmt::format("is neither a string nor a list of up to {} strings", kStopsMax));
    std::erase(options.stop, "");
  }
  return options;
}

void read_streaming(const Value& body, CompletionRequest& request) {
  request.streams = flag(body, "stream", false);
  const Value* options = given(body, "stream_options");
  if (!options) return;
  if (!options->is_object()) refuse_field("stream_options", "is not an object");
  if (!request.streams) refuse_field("stream_options", "is given without \"stream\": true");
  request.includes_usage = flag(*options, "include_usage", false);
}

// Texts that draw from streams of their own: equal prompts get different texts.
void add_choices(CompletionRequest& request, const std::vector<std::int32_t>& prompt,
                 const llm::GenerateOptions& options) {
  for (std::size_t i = 0; i < request.choices; ++i) {
    GenerationText text{prompt, options};
    if (options.sampling.seed)
      text.options.sampling.seed = llm::batch_seed(*options.sampling.seed, request.texts.size());
    request.texts.push_back(std::move(text));
  }
}

// ---- Messages ------------------------------------------------------------------------------------------------------------

// A string, or a list of parts of text.
std::string content_of(const Value& value, std::string_view place) {
  if (value.is_string()) return value.string();
  if (!value.is_array()) refuse_field(fmt::format("{}.content", place), "is neither a string nor a list of parts");
  std::string text;
  for (const Value& part : value.elements()) {
    const Value* type = part.is_object() ? part.find("type") : nullptr;
    const Value* inner = part.is_object() ? part.find("text") : nullptr;
    if (!type || !type->is_string()) refuse_field(fmt::format("{}.content", place), "has a part without a type");
    if (type->string() != "text" || !inner || !inner->is_string())
      refuse_field(fmt::format("{}.content", place),
                   fmt::format("has a part of type {}; this model reads text", quote(type->string(), 40)));
    text += inner->string();
  }
  return text;
}

// Templates want arguments as an object; the API has them as JSON text.
std::string tool_calls_of(const Value& calls, std::string_view place) {
  const std::string field = fmt::format("{}.tool_calls", place);
  if (!calls.is_array()) refuse_field(field, "is not a list");
  Value::Array list;
  for (const Value& call : calls.elements()) {
    const Value* function = call.is_object() ? call.find("function") : nullptr;
    const Value* name = function && function->is_object() ? function->find("name") : nullptr;
    if (!name || !name->is_string()) refuse_field(field, "has a call without a function's name");
    Value arguments = Value::Object();
    if (const Value* given_arguments = function->find("arguments")) {
      arguments = *given_arguments;
      if (arguments.is_string() && !arguments.string().empty()) try {
          arguments = Value::parse(arguments.string());
        } catch (const Error&) {
          refuse_field(field, "has arguments that are not JSON");
        }
    }
    Value copy =
        Value::object({{"type", "function"}, {"function", Value::object({{"name", *name}, {"arguments", arguments}})}});
    if (const Value* id = call.find("id"); id && id->is_string()) copy.members().set("id", *id);
    list.push_back(std::move(copy));
  }
  return Value(std::move(list)).to_json();
}

std::vector<llm::Message> read_messages(const Value& body) {
  const Value* list = given(body, "messages");
  if (!list || !list->is_array() || list->elements().empty())
    refuse_field("messages", "is not a list of one message or more");
  constexpr std::string_view kRoles[] = {"system", "developer", "user", "assistant", "tool", "function"};
  std::vector<llm::Message> messages;
  for (std::size_t i = 0; i < list->elements().size(); ++i) {
    const Value& json = (*list)[i];
    const std::string place = fmt::format("messages[{}]", i);
    if (!json.is_object()) refuse_field(place, "is not an object with \"role\" and \"content\"");
    const Value* role = given(json, "role");
    if (!role || !role->is_string() ||
        std::find(std::begin(kRoles), std::end(kRoles), role->string()) == std::end(kRoles))
      refuse_field(place + ".role", "is none of system, developer, user, assistant and tool");
    llm::Message message{role->string() == "developer" ? "system" : role->string(), ""};
    const Value *content = given(json, "content"), *calls = given(json, "tool_calls");
    if (content)
      message.content = content_of(*content, place);
    else if (!calls || message.role != "assistant")
      refuse_field(place + ".content", "is missing");
    if (calls) message.tool_calls = tool_calls_of(*calls, place);
    if (const Value* v = given(json, "reasoning_content"))
      message.reasoning = string_in(*v, place + ".reasoning_content");
    if (const Value* v = given(json, "name")) message.name = string_in(*v, place + ".name");
    if (const Value* v = given(json, "tool_call_id")) message.tool_call_id = string_in(*v, place + ".tool_call_id");
    messages.push_back(std::move(message));
  }
  return messages;
}

// ---- Structured output ---------------------------------------------------------------------------------------------------

std::optional<llm::Grammar> read_response_format(const Value& body, const OpenAiModel& model) {
  const Value* format = given(body, "response_format");
  if (!format) return std::nullopt;
  const Value* type = format->is_object() ? given(*format, "type") : nullptr;
  if (!type || !type->is_string()) refuse_field("response_format", "is not an object with a \"type\"");
  if (type->string() == "text") return std::nullopt;
  if (type->string() == "json_object") {
    const Value* schema = given(*format, "schema");  // of servers of local models
    if (!schema) return model.grammars.of("an object", [] { return llm::Grammar::json_object(); });
  } else if (type->string() != "json_schema") {
    refuse_field("response_format.type", "is none of text, json_object and json_schema");
  }
  const Value* outer = type->string() == "json_schema" ? given(*format, "json_schema") : format;
  if (!outer || !outer->is_object()) refuse_field("response_format.json_schema", "is not an object");
  if (type->string() == "json_schema") {
    const Value* name = given(*outer, "name");
    const auto is_allowed = [](char c) {
      return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '-';
    };
    if (!name || !name->is_string() || name->string().empty() || name->string().size() > 64 ||
        !std::all_of(name->string().begin(), name->string().end(), is_allowed))
      refuse_field("response_format.json_schema.name", "is not a name of up to 64 letters, digits, _ and -");
  }
  const Value* schema = given(*outer, "schema");
  if (!schema || !(schema->is_object() || schema->is_boolean()))
    refuse_field("response_format.json_schema.schema", "is not a schema");
  try {
    return model.grammars.of("schema " + schema->to_json(), [&] { return llm::Grammar::json_schema(*schema); });
  } catch (const Error& error) {
    throw OpenAiError(400, fmt::format("response_format.json_schema.schema cannot be used: {}", error.what()),
                      "response_format.json_schema.schema");
  }
}

Value::Array read_tools(const Value& body, std::vector<std::string>& names) {
  const Value* tools = given(body, "tools");
  if (!tools) return {};
  if (!tools->is_array() || tools->elements().size() > kToolsMax)
    refuse_field("tools", fmt::format("is not a list of up to {} tools", kToolsMax));
  for (std::size_t i = 0; i < tools->elements().size(); ++i) {
    const Value& tool = (*tools)[i];
    const std::string place = fmt::format("tools[{}]", i);
    const Value* type = tool.is_object() ? given(tool, "type") : nullptr;
    if (!type || !type->is_string() || type->string() != "function")
      refuse_field(place, "is not of the type \"function\"");
    const Value* function = given(tool, "function");
    const Value* name = function && function->is_object() ? given(*function, "name") : nullptr;
    if (!name || !name->is_string() || name->string().empty()) refuse_field(place + ".function.name", "is missing");
    if (const Value* parameters = given(*function, "parameters"); parameters && !parameters->is_object())
      refuse_field(place + ".function.parameters", "is not a schema");
    names.push_back(name->string());
  }
  return tools->elements();
}

// What `tool_choice` says: none, auto, required, or the name of a tool.
std::string read_tool_choice(const Value& body, const std::vector<std::string>& names) {
  const Value* choice = given(body, "tool_choice");
  if (!choice) return names.empty() ? "none" : "auto";
  std::string text;
  if (choice->is_string() &&
      (choice->string() == "none" || choice->string() == "auto" || choice->string() == "required")) {
    text = choice->string();
  } else {
    const Value* function = choice->is_object() ? given(*choice, "function") : nullptr;
    const Value* name = function && function->is_object() ? given(*function, "name") : nullptr;
    if (!name || !name->is_string()) refuse_field("tool_choice", "is none of none, auto, required and a function");
    if (std::find(names.begin(), names.end(), name->string()) == names.end())
      refuse_field("tool_choice", fmt::format("names {}, which is not one of the tools", quote(name->string(), 80)));
    return "=" + name->string();
  }
  if (text == "required" && names.empty()) refuse_field("tool_choice", "is \"required\", and there are no tools");
  return text;
}

}  // namespace

CompletionRequest read_chat_request(const Value& body, const OpenAiModel& model) {
  check_model(body, model);
  CompletionRequest request{.is_chat = true};
  read_streaming(body, request);
  request.choices = static_cast<std::size_t>(integer_in(body, "n", 1, kChoicesMax, 1));
  llm::GenerateOptions options = read_options(body, model, model.model.context());
  const std::vector<llm::Message> messages = read_messages(body);
  request.wants_probabilities = options.log_probabilities = flag(body, "logprobs", false);
  options.top_log_probabilities = integer_in(body, "top_logprobs", 0, 20, 0);
  if (options.top_log_probabilities > 0 && !request.wants_probabilities)
    refuse_field("top_logprobs", "is given without \"logprobs\": true");
  options.grammar = read_response_format(body, model);

  std::vector<std::string> names;
  Value::Array tools = read_tools(body, names);
  const std::string choice = read_tool_choice(body, names);
  llm::ChatOptions chat;
  if (!tools.empty() && choice != "none") chat.tools = Value(tools).to_json();
  Value variables = Value::Object();
  if (const Value* given_variables = given(body, "chat_template_kwargs")) {
    if (!given_variables->is_object()) refuse_field("chat_template_kwargs", "is not an object");
    variables = *given_variables;
  }
  if (const Value* effort = given(body, "reasoning_effort"))
    variables.members().set("reasoning_effort", Value(string_in(*effort, "reasoning_effort")));
  chat.variables = variables.to_json();
  std::string prompt;
  try {
    prompt = model.model.render(messages, chat);
  } catch (const UsageError& error) {  // of the template
    throw OpenAiError(400, fmt::format("messages do not fit the model's chat template: {}", error.what()), "messages");
  }
  request.begins_in_reasoning = llm::opens_reasoning(prompt);
  std::vector<std::int32_t> tokens = model.model.chat_tokens(messages, chat);

  if (!tools.empty() && choice != "none") {
    if (options.grammar && choice != "auto")
      refuse_field("response_format", "is given beside a tool that must be called");
    const ToolFormat& format = model.tools;
    if (choice[0] == '=')
      std::erase_if(tools, [&](const Value& t) { return t["function"]["name"].string() != choice.substr(1); });
    request.tool_names = names;
    options.keep_special = true;  // the texts around calls may be special tokens
    const bool must_call = choice != "auto";
    if (must_call || (!options.grammar && !format.opening.empty())) {
      const bool is_parallel = flag(body, "parallel_tool_calls", true) && choice[0] != '=';
      // Where the call must begin at once its opening is a part of the prompt, with its special tokens.
      request.begins_in_call = must_call && !request.begins_in_reasoning;
      const std::string trigger = must_call ? std::string(llm::kReasoningEnd)
                                            : format.opening.substr(0, format.opening.find_last_not_of(" \t\r\n") + 1);
      const std::string behind = must_call ? format.opening : format.opening.substr(trigger.size());
      const bool is_several = is_parallel && !format.is_list && !format.opening.empty();
      try {
        const llm::SchemaGrammarOptions around{.lenient = true,
                                               .opening = request.begins_in_call ? "" : behind,
                                               .closing = format.closing,
                                               .again = is_several ? format.opening : ""};
        const Value schema = format.schema(tools);
        options.grammar = model.grammars.of(
            fmt::format("tools {}|{}|{}|{}", around.opening, around.closing, around.again, schema.to_json()),
            [&] { return llm::Grammar::json_schema(schema, around); });
      } catch (const Error& error) {
        throw OpenAiError(400, fmt::format("the parameters of a tool cannot be used: {}", error.what()), "tools");
      }
      if (!request.begins_in_call) options.grammar_after = trigger;
      options.grammar_is_optional = !must_call;
      if (request.begins_in_call) {
        const std::vector<std::int32_t> opening = model.model.encode(format.opening, false);
        tokens.insert(tokens.end(), opening.begin(), opening.end());
      }
    }
  } else if (options.grammar && request.begins_in_reasoning) {
    options.grammar_after = llm::kReasoningEnd;
  }
  request.has_grammar = options.grammar.has_value() && !options.grammar_is_optional;
  add_choices(request, tokens, options);
  return request;
}

CompletionRequest read_completion_request(const Value& body, const OpenAiModel& model) {
  check_model(body, model);
  CompletionRequest request;
  read_streaming(body, request);
  request.choices = static_cast<std::size_t>(integer_in(body, "n", 1, kChoicesMax, 1));
  llm::GenerateOptions options = read_options(body, model, 16);
  options.grammar = read_response_format(body, model);
  if (const Value* grammar = given(body, "grammar")) try {
      const std::string text = string_in(*grammar, "grammar");
      options.grammar = model.grammars.of("gbnf " + text, [&] { return llm::Grammar::parse(text); });
    } catch (const UsageError& error) {
      throw OpenAiError(400, error.what(), "grammar");
    }
  if (given(body, "logprobs")) {
    request.wants_probabilities = options.log_probabilities = true;
    options.top_log_probabilities = integer_in(body, "logprobs", 0, 5, 0);
  }
  if (given(body, "suffix")) refuse_field("suffix", "is not supported");
  if (integer_in(body, "best_of", 1, kChoicesMax, 1) > 1) refuse_field("best_of", "above 1 is not supported; use n");
  const bool echoes = flag(body, "echo", false);
  const Value* prompt = given(body, "prompt");
  if (!prompt) refuse_field("prompt", "is missing");
  std::vector<std::vector<std::int32_t>> prompts;
  const auto read_tokens = [&](const Value& list) {
    std::vector<std::int32_t> tokens;
    for (const Value& id : list.elements()) {
      if (!id.is_integer() || id.number() < 0 || id.number() >= static_cast<double>(model.model.vocabulary()))
        refuse_field("prompt",
                     fmt::format("has a token that is not one of the {} of the model", model.model.vocabulary()));
      tokens.push_back(static_cast<std::int32_t>(id.integer()));
    }
    return tokens;
  };
  if (prompt->is_string()) {
    prompts.push_back(model.model.encode(prompt->string()));
  } else if (prompt->is_array() && !prompt->elements().empty()) {
    const Value::Array& list = prompt->elements();
    if (list[0].is_number()) {
      prompts.push_back(read_tokens(*prompt));
    } else {
      if (list.size() > kPromptsMax) refuse_field("prompt", fmt::format("has more than {} texts", kPromptsMax));
      for (const Value& each : list) {
        if (each.is_array())
          prompts.push_back(read_tokens(each));
        else
          prompts.push_back(model.model.encode(string_in(each, "prompt")));
      }
    }
  } else {
    refuse_field("prompt", "is none of a string, a list of strings, tokens, and a list of lists of tokens");
  }
  if (echoes) {
    if (prompts.size() > 1) refuse_field("echo", "is given with several prompts");
    request.echo = prompt->is_string() ? prompt->string() : model.model.decode(prompts[0]);
  }
  request.has_grammar = options.grammar.has_value();
  if (prompts.size() * request.choices > kPromptsMax)
    refuse_field("n", fmt::format("and the prompts ask for more than {} texts", kPromptsMax));
  for (const auto& tokens : prompts) add_choices(request, tokens, options);
  return request;
}

EmbeddingRequest read_embedding_request(const Value& body, const OpenAiModel& model) {
  check_model(body, model);
  EmbeddingRequest request;
  const Value* input = given(body, "input");
  if (!input) refuse_field("input", "is missing");
  const auto decoded = [&](const Value& list) {
    std::vector<std::int32_t> tokens;
    for (const Value& id : list.elements()) {
      if (!id.is_integer() || id.number() < 0 || id.number() >= static_cast<double>(model.model.vocabulary()))
        refuse_field("input", "has an element that is neither a text nor a token of the model");
      tokens.push_back(static_cast<std::int32_t>(id.integer()));
    }
    return model.model.decode(tokens);
  };
  if (input->is_string()) {
    request.texts.push_back(input->string());
  } else if (input->is_array() && !input->elements().empty() && input->elements().size() <= kEmbeddingsMax) {
    if ((*input)[0].is_number())
      request.texts.push_back(decoded(*input));
    else
      for (const Value& each : input->elements())
        request.texts.push_back(each.is_array() ? decoded(each) : string_in(each, "input"));
  } else {
    refuse_field("input", fmt::format("is neither a text nor a list of 1 to {} of them", kEmbeddingsMax));
  }
  for (const std::string& text : request.texts)
    if (text.empty()) refuse_field("input", "has an empty text");
  if (const Value* format = given(body, "encoding_format")) {
    const std::string name = string_in(*format, "encoding_format");
    if (name != "float" && name != "base64") refuse_field("encoding_format", "is neither float nor base64");
    request.as_base64 = name == "base64";
  }
  request.dimensions = static_cast<std::size_t>(integer_in(body, "dimensions", 1, model.model.width(), 0));
  return request;
}

}  // namespace weft::serve
