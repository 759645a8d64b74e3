#include "cli/train_console.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <string_view>
#include <vector>

#include "cli/output.hpp"
#include "io/text_chart.hpp"
#include "train/curve.hpp"
#include "train/run_folder.hpp"
#include "weft/device.hpp"
#include "weft/nn/table.hpp"

namespace weft::cli {
namespace {

using train::RunConfig;

// Whether the environment says that text is UTF-8.
bool has_unicode() {
  for (const char* name : {"LC_ALL", "LC_CTYPE", "LANG"})
    if (const char* value = std::getenv(name); value && *value) {
      const std::string text = value;
      return text.find("UTF-8") != std::string::npos || text.find("utf8") != std::string::npos;
    }
  return false;
}

bool is_bytes(const RunConfig& config) { return config.vocabulary == train::Alphabet::Kind::bytes; }

std::string plan_text(const RunConfig& config) {
  if (config.steps > 0 && config.seconds > 0)
    return fmt::format("{} steps, at most {}", grouped(config.steps), clock_text(config.seconds));
  return config.steps > 0 ? fmt::format("{} steps", grouped(config.steps)) : clock_text(config.seconds);
}

std::string description(const train::RunStart& run, int columns) {
  const RunConfig& config = run.config;
  const auto megabytes = static_cast<double>(run.model.parameter_count()) * 4e-6;
  std::string text = nn::to_text(nn::table_of(run.model), columns);
  text += fmt::format(
      "\n{} parameters: {:.1f} MB, {:.1f} MB with gradients and moments; {:.2f} GFLOP a step of {} tokens\n",
      grouped(run.model.parameter_count()), megabytes, 4 * megabytes,
      run.model.training_flops_per_token() * static_cast<double>(config.tokens_per_step()) * 1e-9,
      grouped(config.tokens_per_step()));
  text += fmt::format("text    {}: {} {} to train on, {} for validation, vocabulary {}\n", config.data,
                      grouped(static_cast<std::int64_t>(run.data.training_count)),
                      is_bytes(config) ? "bytes" : "characters",
                      grouped(static_cast<std::int64_t>(run.data.validation().size())), run.data.vocabulary.size());
  std::string devices;
  for (const Device& device : run.devices) devices += (devices.empty() ? "" : ", ") + device.to_string();
  text += fmt::format("device  {}, {}\n", devices, weft::name_of(config.precision));
  text += fmt::format("run     {}: {}, seed {}\n", run.folder.string(), plan_text(config), config.seed);
  if (run.resumed)
    text += fmt::format("resumed from step {}, {} into the run\n", grouped(run.steps), clock_text(run.seconds));
  return text;
}

/// Quotes a path for a shell.
std::string shell_word(const std::string& text) {
  constexpr std::string_view kPlain = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-./=+:,@%";
  if (!text.empty() && text.find_first_not_of(kPlain) == std::string::npos) return text;
  std::string word = "'";
  for (const char c : text) word += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return word + "'";
}

bool knows(const train::Alphabet& vocabulary, std::string_view text) {
  return vocabulary.kind() == train::Alphabet::Kind::bytes || std::all_of(text.begin(), text.end(), [&](char c) {
           return vocabulary.characters().find(c) != std::string::npos;
         });
}

std::string indented(std::string_view text) {
  std::string out = "  | ";
  for (const char c : text) {
    if (c == '\r') continue;
    out += c;
    if (c == '\n') out += "  | ";
  }
  return out + "\n";
}

std::string summary(const train::RunStart& run, const train::RunEnd& end, bool validated) {
  const train::RunFolder folder{run.folder};
  std::string text = fmt::format("\n{} steps, {} tokens, {}\n", grouped(end.result.steps),
                                 short_count(static_cast<double>(end.result.steps * run.config.tokens_per_step())),
                                 clock_text(end.result.seconds));
  if (validated)
    text += fmt::format("validation  {:.4f} nats a {} over the whole last tenth\n", end.result.validation_loss,
                        is_bytes(run.config) ? "byte" : "character");
  if (end.best_loss)
    text += fmt::format("best        {}  (step {}, validation {:.4f})\n", folder.best().string(),
                        grouped(end.best_step), *end.best_loss);
  text += fmt::format("last        {}\nmetrics     {}\ncurve       {}\n\n", folder.last().string(),
                      folder.metrics().string(), folder.curve().string());
  // The prompt must consist of characters of the training text.
  const std::string prompt = knows(run.data.vocabulary, "The ") ? " --prompt \"The \"" : "",
                    out = shell_word(run.folder.string());
  text += fmt::format(
      "Let it write:  weft generate {0}{1}\nTrain longer:  weft train text --out {0} --resume --seconds 90\n", out,
      prompt);
  return text;
}

}  // namespace

TrainConsole::TrainConsole(bool quiet)
    : quiet_(quiet), console_(stdout, quiet ? Console::Style::silent : Console::Style::automatic) {}

void TrainConsole::begin(const train::RunStart& run) {
  run_.emplace(run);
  console_.print(description(run, std::min(console_.columns(), 110)));
}

void TrainConsole::validating(const train::Metrics& metrics) {
  console_.status(status_line(metrics) + "  validating", false);
}

void TrainConsole::validation(const train::Validation& validation) { validation_ = validation; }

// A line with a validation loss stays; the others are replaced by the next.
void TrainConsole::step(const train::Metrics& metrics) {
  if (!std::isfinite(metrics.loss)) return;  // an error comes, which says so
  const std::string line = status_line(metrics);
  if (metrics.val_loss)
    console_.print(line);
  else
    console_.status(line);
}

void TrainConsole::sample(const train::Sample& sample) { console_.print(indented(sample.text)); }

void TrainConsole::warning(std::string_view text) {
  const std::string line = fmt::format("warning: {}", text);
  if (quiet_)
    put_message(line);
  else
    console_.print(line);
}

void TrainConsole::profile(const Profile& profile) {
  console_.print(fmt::format("Kernels of a step:\n{}", to_table(profile)));
}

void TrainConsole::end(const train::RunEnd& end) {
  console_.end_status();
  const std::string out = shell_word(run_->folder.string());
  if (end.result.interrupted) {
    console_.print(
        fmt::format("\nInterrupted after step {}; everything is in {}.\nGo on:  weft train text --out {} --resume",
                    grouped(end.result.steps), train::RunFolder{run_->folder}.last().string(), out));
    return;
  }
  if (end.result.steps == run_->steps)
    console_.print("The run has made all its steps. Go on with --steps (in all) or --seconds (more).");
  const io::Chart curve = loss_curve(end.metrics, train::curve_title(run_->config));
  console_.print(io::text_chart(curve, {.width = std::clamp(console_.columns(), 24, 100), .unicode = has_unicode()}) +
                 summary(*run_, end, validation_.has_value()));
}

// Drops parts from the end that do not fit a narrow terminal.
std::string TrainConsole::status_line(const train::Metrics& m) {
  if (smoothed_step_ != m.step) smooth_loss_ = smoothed_step_ < 0 ? m.loss : 0.7 * smooth_loss_ + 0.3 * m.loss;
  smoothed_step_ = m.step;
  std::string line = fmt::format("step {}", grouped(m.step));
  if (run_->config.steps > 0) line += "/" + grouped(run_->config.steps);
  std::vector<std::string> facts = {fmt::format("loss {:.4f}", smooth_loss_)};
  if (validation_)
    facts.push_back(
        fmt::format("val {:.4f}{}", validation_->loss, validation_->best && validation_->step == m.step ? "*" : ""));
  facts.push_back(short_count(m.tokens_per_second) + " tok/s");
  facts.push_back("ETA " + clock_text(remaining(m)));
  facts.push_back(fmt::format("lr {:.1e}", m.learning_rate));
  facts.push_back(fmt::format("grad {:.2f}", m.grad_norm));
  facts.push_back(fmt::format("{:.0f} MB", static_cast<double>(resident_bytes()) * 1e-6));
  for (const std::string& fact : facts) {
    if (console_.is_terminal() && line.size() + 2 + fact.size() >= static_cast<std::size_t>(console_.columns())) break;
    line += "  " + fact;
  }
  return line;
}

double TrainConsole::remaining(const train::Metrics& m) const {
  const RunConfig& config = run_->config;
  double left = INFINITY;
  if (config.steps > 0)
    left = static_cast<double>((config.steps - m.step) * config.tokens_per_step()) / m.tokens_per_second;
  if (config.seconds > 0) left = std::min(left, config.seconds - m.seconds);
  return left;
}

}  // namespace weft::cli
