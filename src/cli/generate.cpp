// weft generate
#include <fmt/format.h>

#include <cstdio>
#include <filesystem>
#include <memory>

#include "cli/commands.hpp"
#include "weft/device.hpp"
#include "weft/error.hpp"
#include "weft/train/generate.hpp"

namespace weft::cli {
namespace {

struct Request {
  std::filesystem::path model;
  std::string prompt;
  std::string device = "auto";
  std::int64_t max_tokens = 500;
  train::SampleOptions options;
};

int generate(const Request& request) {
  request.options.check();
  if (request.max_tokens < 0)
    throw UsageError(fmt::format("--max-tokens {}: it must be at least 0", request.max_tokens));
  set_default_device(parse_device(request.device));
  const train::LoadedModel loaded = train::load_model(request.model);
  if (!loaded.warning.empty()) fmt::print(stderr, "warning: {}\n", loaded.warning);
  train::Generator generator(*loaded.model, loaded.vocabulary);

  auto put = [](std::string_view text) {
    std::fwrite(text.data(), 1, text.size(), stdout);
    std::fflush(stdout);
    return std::ferror(stdout) == 0;  // a closed pipe ends the writing
  };
  loaded.vocabulary.encode(request.prompt);  // its errors come before any output
  put(request.prompt);
  generator.generate(request.prompt, request.max_tokens, request.options, put);
  put("\n");
  return kOk;
}

}  // namespace

void set_up_generate(CLI::App& app, Action& action) {
  auto request = std::make_shared<Request>();
  Request& r = *request;
  app.add_option("model", r.model, "folder of a run (its best checkpoint is used), or a checkpoint")->required();
  app.add_option("--prompt", r.prompt, "text to go on from");
  app.add_option("--max-tokens", r.max_tokens, "tokens to write")->capture_default_str();
  app.add_option("--temperature", r.options.temperature,
                 "below 1: safer, above 1: bolder; 0: always the likeliest token")
      ->capture_default_str();
  app.add_option("--top-k", r.options.top_k, "draw from the k likeliest tokens; 0: from all")->capture_default_str();
  app.add_option("--top-p", r.options.top_p, "draw from the likeliest tokens that together reach this probability")
      ->capture_default_str();
  app.add_option("--seed", r.options.seed, "the same seed writes the same text")->capture_default_str();
  app.add_option("--device", r.device, "auto, cpu, webgpu or webgpu:INDEX")->capture_default_str();
  app.callback([&action, request] { action = [request] { return generate(*request); }; });
}

}  // namespace weft::cli
