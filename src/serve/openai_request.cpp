// Requests of OpenAI's API: fields, their ranges, and what they mean for a generation.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <span>

#include "base/quote.hpp"
#include "serve/fill_in.hpp"
#include "serve/openai.hpp"
#include "serve/openai_fields.hpp"
#include "serve/openai_messages.hpp"
#include "serve/openai_structure.hpp"

namespace weft::serve {
namespace {

constexpr std::size_t kChoicesMax = 128, kStopsMax = 4, kEmbeddingsMax = 2048, kPromptsMax = 2048;

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

// The beginning of a text that fits the context. What its tokens say may make some more when it is read again.
std::string cut_to_context(std::string text, const llm::Model& model) {
  constexpr std::string_view kBroken = "\xEF\xBF\xBD";  // for a character that is cut
  const std::vector<std::int32_t> tokens = model.encode(text);
  const auto most = static_cast<std::size_t>(model.context());
  for (std::size_t n = most, own = tokens.size(); own > most && n > 0; n -= std::min(n, own - most)) {
    text = model.decode(std::span(tokens).first(n));
    while (text.ends_with(kBroken)) text.resize(text.size() - kBroken.size());
    own = model.encode(text).size();
  }
  return text;
}

// Texts that draw from streams of their own: equal prompts get different texts.
void add_choices(CompletionRequest& request, const llm::Prompt& prompt, const llm::GenerateOptions& options) {
  for (std::size_t i = 0; i < request.choices; ++i) {
    GenerationText text{prompt, options};
    if (options.sampling.seed)
      text.options.sampling.seed = llm::batch_seed(*options.sampling.seed, request.texts.size());
    request.texts.push_back(std::move(text));
  }
}

}  // namespace

CompletionRequest read_chat_request(const Value& body, const OpenAiModel& model) {
  check_model(body, model);
  CompletionRequest request{.is_chat = true};
  read_streaming(body, request);
  request.choices = static_cast<std::size_t>(integer_in(body, "n", 1, kChoicesMax, 1));
  llm::GenerateOptions options = read_options(body, model, model.model.context());
  const std::vector<llm::Message> messages = read_messages(body, model.model.reads_images());
  request.wants_probabilities = options.log_probabilities = flag(body, "logprobs", false);
  options.top_log_probabilities = integer_in(body, "top_logprobs", 0, 20, 0);
  if (options.top_log_probabilities > 0 && !request.wants_probabilities)
    refuse_field("top_logprobs", "is given without \"logprobs\": true");
  options.grammar = read_response_format(body, model);

  std::vector<std::string> names;
  Value::Array tools = read_tools(body, names);
  const ToolChoice choice = read_tool_choice(body, names);
  const bool uses_tools = !tools.empty() && choice.use != ToolUse::none;
  llm::ChatOptions chat;
  if (uses_tools) chat.tools = Value(tools).to_json();
  Value variables = Value::Object();
  if (const Value* given_variables = given(body, "chat_template_kwargs")) {
    if (!given_variables->is_object()) refuse_field("chat_template_kwargs", "is not an object");
    variables = *given_variables;
  }
  if (const Value* effort = given(body, "reasoning_effort"))
    variables.members().set("reasoning_effort", Value(string_in(*effort, "reasoning_effort")));
  chat.variables = variables.to_json();
  std::string text;
  llm::Prompt prompt;
  try {
    text = model.model.render(messages, chat);
    prompt = model.model.chat_prompt(messages, chat);
  } catch (const UsageError& error) {  // of the template
    throw OpenAiError(400, fmt::format("messages do not fit the model's chat template: {}", error.what()), "messages");
  }
  request.begins_in_reasoning = llm::opens_reasoning(text);

  if (uses_tools) {
    const bool must_call = choice.use == ToolUse::must;
    if (options.grammar && must_call) refuse_field("response_format", "is given beside a tool that must be called");
    const ToolFormat& format = model.tools;
    // The prompt tells of all tools, so that its beginning stays the same in the cache.
    std::erase_if(tools, [&](const Value& tool) {
      const std::string& name = tool["function"]["name"].string();
      return std::find(choice.allowed.begin(), choice.allowed.end(), name) == choice.allowed.end();
    });
    request.tool_names = choice.allowed;
    options.keep_special = true;  // the texts around calls may be special tokens
    if (must_call || (!options.grammar && !format.opening.empty())) {
      const bool is_parallel = flag(body, "parallel_tool_calls", true) && !choice.is_one;
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
      if (request.begins_in_call) prompt.append(model.model.encode(format.opening, false));
    }
  } else if (options.grammar && request.begins_in_reasoning) {
    options.grammar_after = llm::kReasoningEnd;
  }
  request.has_grammar = options.grammar.has_value() && !options.grammar_is_optional;
  add_choices(request, prompt, options);
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
  const Value* suffix = given(body, "suffix");
  if (suffix && !string_in(*suffix, "suffix").empty()) {
    if (echoes) refuse_field("echo", "is given with a suffix");
    auto tokens = fill_in_prompt(model.model, string_in(*prompt, "prompt"), suffix->string());
    if (!tokens) refuse_field("suffix", "is given, and the model has no tokens for a text between two others");
    prompts.push_back(std::move(*tokens));
  } else if (prompt->is_string()) {
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
  for (const auto& tokens : prompts) add_choices(request, llm::Prompt(tokens), options);
  return request;
}

EmbeddingRequest read_embedding_request(const Value& body, const OpenAiModel& model) {
  check_model(body, model);
  EmbeddingRequest request = read_embedding_fields(body, model.model.width(), [&](const Value& list) {
    std::vector<std::int32_t> tokens;
    for (const Value& id : list.elements()) {
      if (!id.is_integer() || id.number() < 0 || id.number() >= static_cast<double>(model.model.vocabulary()))
        refuse_field("input", "has an element that is neither a text nor a token of the model");
      tokens.push_back(static_cast<std::int32_t>(id.integer()));
    }
    return model.model.decode(tokens);
  });
  for (std::string& text : request.texts) {
    if (request.cuts) text = cut_to_context(std::move(text), model.model);
    request.tokens += model.model.encode(text).size();
  }
  return request;
}

EmbeddingRequest read_embedding_fields(const Value& body, Extent width,
                                       const std::function<std::string(const Value& tokens)>& decoded) {
  EmbeddingRequest request;
  const Value* input = given(body, "input");
  if (!input) refuse_field("input", "is missing");
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
  request.dimensions = static_cast<std::size_t>(integer_in(body, "dimensions", 1, width, 0));
  request.cuts = flag(body, "truncate", false);
  return request;
}

}  // namespace weft::serve
