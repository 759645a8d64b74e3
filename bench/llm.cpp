// Tokens a second of a language model on a device: a prompt of many tokens, then one token after another, and the
// dispatches of a token. MODEL is a file, a folder, or the name of a shape with random weights: in f16 (qwen2-0.5b) or in blocks
// (qwen2-0.5b:Q4_K).
// WEFT_BENCH_ADAPTER names an adapter that is computed beside it.
// Several devices, as in webgpu:0,webgpu:1, divide the layers.
// Usage: bench_llm MODEL [device,device,...] [prompt tokens] [new tokens] [f32|f16|q8] [profile] [profile of the prompt]
// With no new tokens it ends after the first prompt: what a process needs to its first token, in time and in memory.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <limits>
#include <string>

#include "figure.hpp"
#include "llm/run.hpp"
#include "random_model.hpp"
#include "runtime/devices.hpp"
#include "weft/device.hpp"
#include "weft/error.hpp"
#include "weft/parallel.hpp"

using namespace weft;
using llm::detail::Engine;

namespace {

double seconds_of(const auto& work) {
  const auto start = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

struct Times {
  double best, median;
};
/// `timed` gives the seconds that count.
Times times_of(int rounds, const auto& timed) {
  std::vector<double> seconds;
  for (int i = 0; i < rounds; ++i) seconds.push_back(timed());
  std::sort(seconds.begin(), seconds.end());
  return {seconds.front(), seconds[seconds.size() / 2]};
}

int run(int argc, char** argv) {
  if (argc < 2)
    throw UsageError(
        fmt::format("usage: bench_llm MODEL [device,device,...] [prompt tokens] [new tokens] [f32|f16|q8] [profile] "
                    "[profile of the "
                    "prompt]\nMODEL: a file, a folder, or a shape with random weights, as NAME or NAME:TYPE: {}",
                    bench::random_model_names()));
  const std::vector<Device> devices = parallel::parse_devices(argc > 2 ? argv[2] : "auto");
  const Device device = devices[0];
  const auto prompt = static_cast<std::size_t>(argc > 3 ? std::atoi(argv[3]) : 512);
  const int count = argc > 4 ? std::atoi(argv[4]) : 128;
  const std::string cache = argc > 5 ? argv[5] : "f32";
  llm::LoadOptions options{.device = device, .devices = devices};
  options.cache = cache == "f16" ? CacheType::f16 : cache == "q8" ? CacheType::q8 : CacheType::f32;
  if (const char* adapter = std::getenv("WEFT_BENCH_ADAPTER")) options.adapters.push_back({adapter});
  std::filesystem::path model = argv[1];
  if (bench::is_random_model(argv[1])) {
    const double made = seconds_of([&] { model = bench::random_model(argv[1]); });
    fmt::print("random weights in {} ({:.2f} s)\n", model.string(), made);
  }
  std::shared_ptr<Engine> engine;
  const double load = seconds_of([&] { engine = std::make_shared<Engine>(model, options); });
  fmt::print("{} on {}: loaded in {:.2f} s\n", argv[1], argc > 2 ? argv[2] : device.to_string(), load);

  std::vector<llm::detail::PositionedToken> steps;
  for (std::size_t i = 0; i < prompt; ++i)
    steps.push_back(
        {static_cast<text::TokenId>((i * 7919 + 13) % static_cast<std::size_t>(engine->config().vocabulary)),
         static_cast<Extent>(i), 0});
  const auto prefill = [&] { engine->last_logits(steps).to_vector<float>(); };
  const double first = seconds_of(prefill);
  if (count == 0) {
    fmt::print("first token after {:.3f} s, cache of {} bytes a token\n", load + first,
               engine->cache_bytes() / static_cast<std::uint64_t>(engine->context()));
    return 0;
  }
  Times times = times_of(5, [&] { return seconds_of(prefill); });
  fmt::print("prefill {} tokens: {:.2f} ms, {:.0f} tokens/s (median {:.0f}; the first time {:.2f} s)\n", prompt,
             times.best * 1e3, static_cast<double>(prompt) / times.best, static_cast<double>(prompt) / times.median,
             first);

  const double prompt_rate = static_cast<double>(prompt) / times.best;

  // As users generate, but for texts that end.
  std::vector<text::TokenId> tokens;
  for (const llm::detail::PositionedToken& step : steps) tokens.push_back(step.token);
  llm::GenerateOptions generate{.max_tokens = count, .sampling = {.temperature = 0}};
  for (const text::TokenId end : engine->text().end_tokens)
    generate.sampling.logit_bias.emplace_back(end, -std::numeric_limits<float>::infinity());
  const auto generated = [&] {
    llm::detail::Run run(engine, llm::Prompt(tokens), generate);
    for (std::string piece; run.next(piece);) continue;
    return run.result().seconds;
  };
  generated();
  times = times_of(3, generated);
  fmt::print("decode {} tokens after {}: {:.3f} ms a token, {:.1f} tokens/s (median {:.1f})\n", count, prompt,
             times.best * 1e3 / count, count / times.best, count / times.median);
  // bench/compare_llama.py keeps those of the CPU, beside a peer.
  if (device.kind == Device::Kind::webgpu && devices.size() == 1) {
    const std::string machine = runtime::backend_of(device).describe().hardware,
                      group = (bench::is_random_model(argv[1]) ? bench::random_model_title(argv[1])
                                                               : std::filesystem::path(argv[1]).filename().string()) +
                              (options.adapters.empty() ? "" : ", with an adapter of all products of the layers");
    figures::keep({group, fmt::format("prefill of {} tokens", prompt), "tokens/s", prompt_rate, "", 0, machine});
    figures::keep({group, fmt::format("decode after {} tokens, {} cache", prompt, cache), "tokens/s",
                   count / times.best, "", 0, machine});
  }
  // A state goes on from where it is; keys may be written again.
  llm::detail::PositionedToken step{1, static_cast<Extent>(engine->has_states() ? engine->cached(0).size() : prompt),
                                    0};
  const auto pass = [&] {
    engine->last_logits({&step, 1});
    if (engine->has_states()) ++step.position;
  };
  const auto passes = [&] {
    for (int t = 0; t < count; ++t) pass();
    for (const Device each : devices) synchronize(each);
  };
  times = times_of(3, [&] { return seconds_of(passes); });
  fmt::print("passes without waiting: {:.3f} ms a token\n", times.best * 1e3 / count);
  const std::string profile = engine->profile({&step, 1});
  fmt::print("{} timed kernels a token\n", std::count(profile.begin(), profile.end(), '\n'));
  if (argc > 6) fmt::print("{}", profile);
  if (argc > 7) fmt::print("{}", engine->profile(std::span(steps).first(std::min<std::size_t>(prompt, 512))));
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run(argc, argv);
  } catch (const Error& error) {
    fmt::print(stderr, "error: {}\n", error.what());
    return 1;
  }
}
