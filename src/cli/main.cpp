// The `weft` command: finds the command meant, runs it, and turns errors into messages and exit codes.
#include <fmt/format.h>

#include <cctype>
#include <charconv>
#include <cmath>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <new>

#include "cli/commands.hpp"
#include "cli/output.hpp"
#include "cli/version.hpp"
#include "ops/names.hpp"
#include "weft/error.hpp"

namespace weft::cli {
namespace {

constexpr const char* kFooter =
    "Every option has an environment twin: WEFT_ and its name in capitals (--log-every: WEFT_LOG_EVERY).\n"
    "Further: WEFT_THREADS (CPU threads), WEFT_WEBGPU_LIBRARY (path of the WebGPU library), NO_COLOR,\n"
    "WEFT_LOG (1: messages of the WebGPU library on standard error; or a file).\n\n"
    "Exit codes: 0 done, 1 failure, 2 wrong usage, 3 a file that is missing, invalid or cannot be written,\n"
    "            4 no such device or device lost, 5 to 9 a limit of a script (see weft run --help), 130 interrupted "
    "(training then has written a checkpoint).";

std::string environment_name(std::string name) {
  for (char& c : name) c = c == '-' ? '_' : static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  return "WEFT_" + name;
}

/// Refuses text that is not a number, and numbers out of range, instead of clamping them.
std::string number_fault(bool whole, const std::string& text) {
  const char *begin = text.data() + (text.starts_with('+') ? 1 : 0), *end = text.data() + text.size();
  std::from_chars_result read{};
  std::int64_t integer = 0;
  double real = 0;
  if (whole)
    read = std::from_chars(begin, end, integer);
  else
    read = std::from_chars(begin, end, real);
  if (read.ec == std::errc() && read.ptr == end) return "";
  return fmt::format("expected a {}{}, got \"{}\"", whole ? "whole number" : "number",
                     read.ec == std::errc::result_out_of_range ? " of 64 bits" : "", text);
}

/// CLI11 would wrap a negative number around.
std::string count_fault(const std::string& text) {
  const char *begin = text.data() + (text.starts_with('+') ? 1 : 0), *end = text.data() + text.size();
  std::uint64_t count = 0;
  const auto read = std::from_chars(begin, end, count);
  if (read.ec == std::errc() && read.ptr == end) return "";
  return fmt::format("expected a whole number that is not negative{}, got \"{}\"",
                     read.ec == std::errc::result_out_of_range ? ", of 64 bits" : "", text);
}

// Gives every option its environment twin, and lets the last of several count, so that users can override scripts.
void complete_options(CLI::App& app) {
  for (CLI::Option* option : app.get_options()) {
    if (option->get_items_expected_max() == 1) option->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
    const std::string type = option->get_type_name();
    // A range of CLI11 lets NaN pass.
    if (type.starts_with("FLOAT") && type != "FLOAT")
      option->check(
          [](const std::string& text) {
            return std::isnan(std::strtod(text.c_str(), nullptr)) ? fmt::format("expected a number, got \"{}\"", text)
                                                                  : "";
          },
          "", "no NaN");
    if (type == "INT" || type == "FLOAT")
      option->check([whole = type == "INT"](const std::string& text) { return number_fault(whole, text); }, "",
                    "number");
    if (type.starts_with("UINT")) option->check(count_fault, "", "count");
    if (!option->get_lnames().empty() && option->get_lnames()[0] != "help" && option->get_lnames()[0] != "version")
      option->envname(environment_name(option->get_lnames()[0]));
  }
  for (CLI::App* sub : app.get_subcommands([](CLI::App*) { return true; })) complete_options(*sub);
}

// The valid names in the place of `wrong`: options of the innermost command reached, or its subcommands.
std::string suggestion(const CLI::App& root, std::string_view wrong) {
  const CLI::App* app = &root;
  while (!app->get_subcommands().empty()) app = app->get_subcommands().back();
  std::vector<std::string> owned;
  if (wrong.starts_with("-")) {
    for (const CLI::Option* option : app->get_options())
      for (const std::string& name : option->get_lnames()) owned.push_back("--" + name);
  } else {
    for (const CLI::App* sub : app->get_subcommands([](const CLI::App*) { return true; }))
      owned.push_back(sub->get_name());
  }
  const std::vector<std::string_view> names(owned.begin(), owned.end());
  const std::string_view nearest = nearest_name(wrong.substr(0, wrong.find('=')), names);
  return nearest.empty() ? "" : fmt::format(" Did you mean {}?", nearest);
}

std::string path_of(const CLI::App& root) {
  std::string path = "weft";
  const CLI::App* app = &root;
  while (!app->get_subcommands().empty()) {
    app = app->get_subcommands().back();
    path += " " + app->get_name();
  }
  return path;
}

/// The message that a check of CLI11 gives for a number out of its range, in the words of the other messages.
std::string without_cli11s_range(const std::string& message) {
  constexpr std::string_view kValue = "Value ", kRange = " not in range ", kTo = " to ";
  const std::size_t value = message.find(kValue), range = message.find(kRange), to = message.find(kTo, range);
  if (value == std::string::npos || range == std::string::npos || to == std::string::npos || value > range)
    return message;
  const std::string given = message.substr(value + kValue.size(), range - value - kValue.size()),
                    least = message.substr(range + kRange.size(), to - range - kRange.size()),
                    most = message.substr(to + kTo.size()), before = message.substr(0, value);
  if (const std::string fault = number_fault(false, given); !fault.empty()) return before + fault;
  const double low = std::strtod(least.c_str(), nullptr), high = std::strtod(most.c_str(), nullptr);
  if (high < 1e300) return fmt::format("{}{} is not from {} to {}", before, given, low, high);
  const bool is_zero = std::strtod(given.c_str(), nullptr) == 0;  // refused where the least number is above it
  return fmt::format("{}{} is not {}", before, given, is_zero ? "above 0" : "at least 0");
}

// Help and version are a success; any other parse error is wrong usage.
int report(const CLI::App& app, const CLI::ParseError& error) {
  if (error.get_exit_code() == 0) return finish_output(app.exit(error));
  std::string message = without_cli11s_range(error.what());
  for (const CLI::App* at = &app; at; at = at->get_subcommands().empty() ? nullptr : at->get_subcommands().back())
    for (const std::string& extra : at->remaining()) {
      message = fmt::format("{}: unknown {} {}.{}", path_of(app),
                            extra.starts_with("-") ? "option" : "command or argument", extra, suggestion(app, extra));
      return fail(fmt::format("{}\nSee: {} --help", message, path_of(app)), kUsage);
    }
  return fail(fmt::format("{}: {}\nSee: {} --help", path_of(app), message, path_of(app)), kUsage);
}

int run(const Action& action) {
  try {
    return finish_output(action());
  } catch (const Interrupted&) {
    return kInterrupted;
  } catch (const UsageError& error) {
    return fail(error.what(), kUsage);
  } catch (const FileError& error) {
    return fail(error.what(), kFile);
  } catch (const DeviceError& error) {
    return fail(error.what(), kDevice);
  } catch (const std::bad_alloc&) {
    return fail("out of memory; use smaller sizes (of tensors, --batch, --context or --preset)", kFailure);
  } catch (const std::exception& error) {
    if (std::ferror(stdout)) return finish_output(kOk);  // printing throws
    return fail(error.what(), kFailure);
  }
}

int main(int count, char** arguments) {
  hold_standard_streams();
  // A closed pipe or a file over its size limit must fail the write, not kill the process.
  std::signal(SIGPIPE, SIG_IGN);
  std::signal(SIGXFSZ, SIG_IGN);
  CLI::App app("Weft: tensors and neural networks on the CPU and on any GPU through WebGPU.", "weft");
  app.set_version_flag("--version", version_text);
  app.footer(kFooter);
  app.get_formatter()->column_width(26);
  app.require_subcommand(1);
  Action action;
  for (const Command& command : commands()) {
    CLI::App* sub = app.add_subcommand(std::string(command.name), std::string(command.summary));
    sub->group(std::string(command.group));
    if (const int code = run([&] {
          command.set_up(*sub, action);
          return kOk;
        }))
      return code;
  }
  complete_options(app);
  try {
    app.parse(count, arguments);
  } catch (const CLI::ParseError& error) {
    return report(app, error);
  }
  return run(action);
}

}  // namespace
}  // namespace weft::cli

int main(int count, char** arguments) { return weft::cli::main(count, arguments); }
