// weft generate
#include <fmt/format.h>

#include <algorithm>
#include <climits>
#include <cstdio>
#include <filesystem>
#include <memory>

#include "cli/commands.hpp"
#include "cli/language_model.hpp"
#include "train/interrupt.hpp"
#include "weft/device.hpp"
#include "weft/error.hpp"
#include "weft/train/generate.hpp"

namespace weft::cli {
namespace {

struct Request {
  ModelOptions model;
  DrawOptions draw;
  std::string prompt;
  bool stats = false;
};

/// A language model's file.
int generate_by_language_model(const Request& request) {
  require_utf8_text(request.prompt, "--prompt");
  const llm::Model model = load_language_model(request.model);
  const train::InterruptScope interrupt;
  std::stop_source stop;
  llm::GenerateOptions options = generate_options(request.draw);
  options.cancel = stop.get_token();
  llm::Generation generation = model.generate(request.prompt, options);
  put_text(request.prompt);
  for (const std::string_view piece : generation)
    if (!put_text(piece) || interrupt.signal() != 0) stop.request_stop();
  put_text("\n");
  if (request.stats) fmt::print(stderr, "{}\n", speed_text(generation.result()));
  return interrupt.signal() != 0 ? kInterrupted : kOk;
}

int generate(const Request& request) {
  if (is_language_model(request.model.path)) return generate_by_language_model(request);
  const llm::Sampling& s = request.draw.generate.sampling;
  const train::SampleOptions options{.temperature = s.temperature,
                                     .top_k = static_cast<int>(std::clamp<Extent>(s.top_k, INT_MIN, INT_MAX)),
                                     .top_p = s.top_p,
                                     .seed = static_cast<std::uint64_t>(std::max<std::int64_t>(request.draw.seed, 0))};
  options.check();
  if (request.draw.generate.max_tokens < 0)
    throw UsageError(fmt::format("--max-tokens {}: it must be at least 0", request.draw.generate.max_tokens));
  set_default_device(parse_device(request.model.device));
  const train::LoadedModel loaded = train::load_model(request.model.path);
  if (!loaded.warning.empty()) fmt::print(stderr, "warning: {}\n", loaded.warning);
  train::Generator generator(*loaded.model, loaded.vocabulary);

  auto put = [](std::string_view text) {
    std::fwrite(text.data(), 1, text.size(), stdout);
    std::fflush(stdout);
    return std::ferror(stdout) == 0;  // a closed pipe ends the writing
  };
  loaded.vocabulary.encode(request.prompt);  // its errors come before any output
  put(request.prompt);
  generator.generate(request.prompt, request.draw.generate.max_tokens, options, put);
  put("\n");
  return kOk;
}

}  // namespace

void set_up_generate(CLI::App& app, Action& action) {
  auto request = std::make_shared<Request>();
  Request& r = *request;
  r.draw.generate.max_tokens = 500;
  r.draw.generate.sampling = {.top_k = 0, .top_p = 1, .min_p = 0};
  r.draw.seed = 1;
  add_model_options(app, r.model,
                    "GGUF file, folder of a language model, folder of a run (its best checkpoint), or a checkpoint");
  app.add_option("--prompt", r.prompt, "text to go on from");
  add_draw_options(app, r.draw);
  app.add_flag("--stats", r.stats, "tell the speed at the end (language models)");
  app.callback([&action, request] { action = [request] { return generate(*request); }; });
}

}  // namespace weft::cli
