// weft perplexity
#include <fmt/format.h>

#include <memory>

#include "base/utf8.hpp"
#include "cli/commands.hpp"
#include "cli/console.hpp"
#include "cli/input.hpp"
#include "cli/language_model.hpp"
#include "cli/output.hpp"
#include "weft/error.hpp"

namespace weft::cli {
namespace {

struct PerplexityRequest {
  ModelOptions model;
  std::filesystem::path file;
  std::int64_t window = 0, windows = 0;
};

int perplexity(const PerplexityRequest& r) {
  constexpr std::uint64_t kMaxTextBytes = std::uint64_t{1} << 28;
  const std::string text = read_text(r.file, kMaxTextBytes);
  require_utf8(text, r.file == "-" ? "standard input" : r.file.string());
  const llm::Model model = load_language_model(r.model);
  Console console(stderr);
  const llm::Perplexity p =
      model.perplexity(text, {.window = r.window, .windows_max = r.windows}, [&](const llm::Perplexity& now) {
        if (console.is_terminal()) console.status(fmt::format("{} tokens: {:.4f}", now.tokens, now.value));
      });
  put_text(fmt::format("perplexity {:.4f} +- {:.4f} over {} tokens (loss {:.5f})\n", p.value, p.error, p.tokens,
                       p.mean_loss));
  return kOk;
}

}  // namespace

void set_up_perplexity(CLI::App& app, Action& action) {
  auto request = std::make_shared<PerplexityRequest>();
  PerplexityRequest& r = *request;
  add_model_options(app, r.model);
  app.add_option("--file", r.file, "text to predict; - is standard input")->required();
  app.add_option("--window", r.window, "tokens that are predicted together; 0: 512, or the context if smaller")
      ->capture_default_str();
  app.add_option("--windows", r.windows, "how many windows of the text to take; 0: all")->capture_default_str();
  app.callback([&action, request] { action = [request] { return perplexity(*request); }; });
}

}  // namespace weft::cli
