// weft generate
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <climits>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>

#include "cli/commands.hpp"
#include "cli/input.hpp"
#include "cli/language_model.hpp"
#include "cli/output.hpp"
#include "cli/stop_on_interrupt.hpp"
#include "weft/device.hpp"
#include "weft/error.hpp"
#include "weft/train/generate.hpp"

namespace weft::cli {
namespace {

struct GenerateRequest {
  ModelOptions model;
  DrawOptions draw;
  std::string prompt;
  std::filesystem::path file;
  bool stats = false, json = false, plain = false;
  std::vector<std::string> for_language_models;  // given options that only language models have
};

/// Options that have no effect on models trained by `weft train`.
constexpr const char* kForLanguageModels[] = {"--json",
                                              "--top-logprobs",
                                              "--stats",
                                              "--min-p",
                                              "--typical",
                                              "--repetition-penalty",
                                              "--frequency-penalty",
                                              "--presence-penalty",
                                              "--penalty-window",
                                              "--stop",
                                              "--draft",
                                              "--logit-bias",
                                              "--schema",
                                              "--lenient-schema",
                                              "--grammar",
                                              "--context",
                                              "--cache-type",
                                              "--exact",
                                              "--no-packed-file",
                                              "--whole-cache",
                                              "--device-memory",
                                              "--split",
                                              "--layers",
                                              "--plain"};

constexpr std::uint64_t kMaxPromptBytes = std::uint64_t{1} << 28;

/// The newline at the end of a file is not part of the prompt.
std::string prompt_of(const GenerateRequest& request) {
  if (request.file.empty()) return request.prompt;
  if (!request.prompt.empty()) throw UsageError("weft generate: give --prompt or --file, not both");
  std::string text = read_text(request.file, kMaxPromptBytes);
  if (text.ends_with('\n')) text.pop_back();
  return text;
}

void put_json(const llm::Model& model, const llm::Result& result) {
  nlohmann::ordered_json json{{"text", result.text}, {"tokens", nlohmann::ordered_json::array()}};
  const auto put = [&](std::int32_t id, float log_probability) {
    return nlohmann::ordered_json{{"id", id}, {"text", model.decode({&id, 1})}, {"log_probability", log_probability}};
  };
  for (const llm::GeneratedToken& token : result.tokens) {
    nlohmann::ordered_json& entry = json["tokens"].emplace_back(put(token.id, token.log_probability));
    for (const llm::TokenProbability& other : token.top) entry["top"].push_back(put(other.id, other.log_probability));
  }
  json.update({{"finish", llm::name_of(result.finish)},
               {"prompt_tokens", result.prompt_tokens},
               {"prompt_seconds", result.prompt_seconds},
               {"seconds", result.seconds}});
  put_text(json_text(json, 2) + "\n");
}

/// A language model's file.
int generate_by_language_model(const GenerateRequest& request) {
  require_utf8_text(request.prompt, request.file.empty() ? "--prompt" : "--file");
  const llm::Model model = load_language_model(request.model);
  StopOnInterrupt stop;
  llm::GenerateOptions options = generate_options(request.draw);
  options.cancel = stop.token();
  options.log_probabilities = request.json;
  options.parse_special = !request.plain;
  if (request.draw.generate.top_log_probabilities != 0 && !request.json)
    throw UsageError("--top-logprobs is shown as JSON; add --json");
  llm::Generation generation = model.generate(request.prompt, options);
  if (request.json) {
    put_json(model, generation.result());
  } else {
    put_foreign(request.prompt);
    for (const std::string_view piece : generation)
      if (!put_foreign(piece)) stop.request_stop();
    put_text("\n");
  }
  if (request.stats) put_message(speed_text(generation.result()));
  return stop.signal() != 0 ? kInterrupted : kOk;
}

int generate(GenerateRequest request) {
  request.prompt = prompt_of(request);
  first_device(request.model.device);  // its error comes before that of a model that is not there
  request.model.path = model_path(request.model.path);
  if (is_language_model(request.model.path)) return generate_by_language_model(request);
  if (!request.for_language_models.empty())
    throw UsageError(fmt::format(
        "weft generate: {} {} for language models, and {} is a run of `weft train`; leave {} out",
        fmt::join(request.for_language_models, ", "), request.for_language_models.size() == 1 ? "is" : "are",
        request.model.path.string(), request.for_language_models.size() == 1 ? "it" : "them"));
  const llm::Sampling& s = request.draw.generate.sampling;
  const train::SampleOptions options{.temperature = s.temperature,
                                     .top_k = static_cast<int>(std::clamp<Extent>(s.top_k, INT_MIN, INT_MAX)),
                                     .top_p = s.top_p,
                                     .seed = static_cast<std::uint64_t>(std::max<std::int64_t>(request.draw.seed, 0))};
  options.check();
  if (request.draw.generate.max_tokens < 0)
    throw UsageError(fmt::format("--max-tokens {}: it must be at least 0", request.draw.generate.max_tokens));
  use_threads(request.model);
  set_default_device(parse_device(request.model.device));
  const train::LoadedModel loaded = train::load_model(request.model.path);
  if (!loaded.warning.empty()) put_message("warning: " + loaded.warning);
  train::Generator generator(*loaded.model, loaded.vocabulary);

  loaded.vocabulary.encode(request.prompt);  // its errors come before any output
  put_foreign(request.prompt);
  generator.generate(request.prompt, request.draw.generate.max_tokens, options,
                     put_foreign);  // a closed pipe ends the writing
  put_text("\n");
  return kOk;
}

}  // namespace

void set_up_generate(CLI::App& app, Action& action) {
  auto request = std::make_shared<GenerateRequest>();
  GenerateRequest& r = *request;
  r.draw.generate.max_tokens = 500;
  r.draw.generate.sampling = {.top_k = 0, .top_p = 1, .min_p = 0};
  r.draw.seed = 1;
  add_model_options(app, r.model,
                    "GGUF file, folder of a language model, folder of a run (its best checkpoint), or a checkpoint");
  app.add_option("-p,--prompt", r.prompt, "text to go on from");
  app.add_option("-f,--file", r.file, "read the prompt from a file, without its last newline; - is standard input");
  add_draw_options(app, r.draw);
  app.add_flag("--plain", r.plain,
               "treat special tokens that are written out in the prompt as plain text (language models)");
  app.add_flag("--stats", r.stats, "tell the speed at the end (language models)");
  app.add_flag("--json", r.json,
               "the text as JSON, with its tokens, their log-probabilities, and why it ended (language models)");
  app.add_option(
      "--top-logprobs", r.draw.generate.top_log_probabilities,
      "with --json: number of most probable tokens to list for each place, with their log-probabilities; at most 20");
  app.callback([&app, &action, request] {
    for (const char* option : kForLanguageModels)
      if (app.count(option) > 0) request->for_language_models.emplace_back(option);
    action = [request] { return generate(*request); };
  });
}

}  // namespace weft::cli
