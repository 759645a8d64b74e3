// The commands of `weft`: a row for each, one file for each.
#pragma once

#include <CLI/CLI.hpp>

#include <functional>
#include <span>
#include <string_view>

namespace weft::cli {

/// Exit codes; `weft --help` and docs list them.
enum ExitCode : int {
  kOk = 0,
  kFailure = 1,
  kUsage = 2,
  kFile = 3,
  kDevice = 4,
  kScriptTime = 5,
  kScriptMemory = 6,
  kScriptStack = 7,
  kScriptDeviceMemory = 8,
  kScriptRefused = 9,
  kInterrupted = 130
};

/// Ends a command after Ctrl-C, SIGTERM or SIGHUP. Thrown after unfinished files are removed.
struct Interrupted {};

/// What the chosen command does; gives its exit code. Errors are thrown; main prints them and chooses the code.
using Action = std::function<int()>;

/// A command. `set_up` adds its options and subcommands to `app` and sets `action` from the callback of the one chosen.
/// Each option gets an environment twin from its name ("--log-every": WEFT_LOG_EVERY).
struct Command {
  std::string_view name;
  std::string_view group;  // heading in --help
  std::string_view summary;
  void (*set_up)(CLI::App& app, Action& action);
};
std::span<const Command> commands();

void set_up_train(CLI::App& app, Action& action);
void set_up_tune(CLI::App& app, Action& action);
void set_up_generate(CLI::App& app, Action& action);
void set_up_chat(CLI::App& app, Action& action);
void set_up_describe(CLI::App& app, Action& action);
void set_up_embed(CLI::App& app, Action& action);
void set_up_rerank(CLI::App& app, Action& action);
void set_up_answer(CLI::App& app, Action& action);
void set_up_classify(CLI::App& app, Action& action);
void set_up_serve(CLI::App& app, Action& action);
void set_up_transcribe(CLI::App& app, Action& action);
void set_up_speak(CLI::App& app, Action& action);
void set_up_perplexity(CLI::App& app, Action& action);
void set_up_template(CLI::App& app, Action& action);
void set_up_tokenize(CLI::App& app, Action& action);
void set_up_inspect(CLI::App& app, Action& action);
void set_up_models(CLI::App& app, Action& action);
void set_up_quantize(CLI::App& app, Action& action);
void set_up_convert(CLI::App& app, Action& action);
void set_up_grid(CLI::App& app, Action& action);
void set_up_memory(CLI::App& app, Action& action);
void set_up_eval(CLI::App& app, Action& action);
void set_up_kernels(CLI::App& app, Action& action);
void set_up_ops(CLI::App& app, Action& action);
void set_up_operations(CLI::App& app, Action& action);
void set_up_workflow(CLI::App& app, Action& action);
void set_up_run(CLI::App& app, Action& action);
void set_up_repl(CLI::App& app, Action& action);
void set_up_script(CLI::App& app, Action& action);
void set_up_devices(CLI::App& app, Action& action);
void set_up_doctor(CLI::App& app, Action& action);

}  // namespace weft::cli
