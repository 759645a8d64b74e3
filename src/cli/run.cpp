// weft run and weft repl: scripts in their sandbox. docs/scripts.md describes what they can do.
#include <fmt/format.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <thread>

#include "cli/commands.hpp"
#include "cli/input.hpp"
#include "cli/line_editor.hpp"
#include "cli/output.hpp"
#include "cli/script_flags.hpp"
#include "cli/stop_on_interrupt.hpp"
#include "weft/error.hpp"

namespace weft::cli {
namespace {

struct ScriptRequest {
  std::filesystem::path file;
  ScriptFlags flags;
};

int exit_code(script::Outcome outcome) {
  switch (outcome) {
    case script::Outcome::done: return kOk;
    case script::Outcome::time: return kScriptTime;
    case script::Outcome::memory: return kScriptMemory;
    case script::Outcome::stack: return kScriptStack;
    case script::Outcome::device_memory: return kScriptDeviceMemory;
    case script::Outcome::refused: return kScriptRefused;
    default: return kFailure;
  }
}

// A kernel that runs when the time is over cannot be interrupted. If it does not end soon, the process ends instead.
class Watchdog {
 public:
  explicit Watchdog(double seconds) {
    if (seconds <= 0) return;
    thread_ = std::jthread([seconds](const std::stop_token& end) {
      std::mutex mutex;
      std::condition_variable_any never;
      std::unique_lock lock(mutex);
      const auto grace = std::chrono::duration<double>(seconds + 2);
      if (never.wait_for(lock, end, grace, [] { return false; }) || end.stop_requested()) return;
      put_message("error: the script ran longer than its limit, in an op that cannot be interrupted");
      std::_Exit(kScriptTime);
    });
  }

 private:
  std::jthread thread_;
};

int run_script(const ScriptRequest& request) {
  StopOnInterrupt interrupt;
  const Watchdog watchdog(request.flags.time_limit);
  script::Isolate isolate(options_of(request.flags));
  const std::stop_callback stop(interrupt.token(), [&] { isolate.stop(); });
  const script::Result result = isolate.run(request.file);
  if (request.flags.leaks) put_message(isolate.leak_report());
  if (interrupt.signal() != 0) throw Interrupted();
  if (result.outcome == script::Outcome::done) return kOk;
  return fail(result.message, exit_code(result.outcome));
}

int converse(const ScriptRequest& request) {
  script::Isolate isolate(options_of(request.flags));
  const bool is_terminal = isatty(STDIN_FILENO) && isatty(STDOUT_FILENO);
  std::unique_ptr<LineEditor> editor;
  if (is_terminal) {
    editor = std::make_unique<LineEditor>(state_file("repl-history"));
    editor->complete_with([&](std::string_view line) { return isolate.completions(line); });
    put_text("JavaScript and TypeScript; all of \"weft\" is imported. Ctrl-D ends.\n");
  }
  std::string text;
  int code = kOk;
  for (;;) {
    std::string line;
    bool is_last = false;
    if (editor) {
      const TypedLine typed = editor->read(text.empty() ? "> " : "... ");
      if (typed.kind == TypedLine::Kind::end) return kOk;
      if (typed.kind == TypedLine::Kind::interrupted) {
        text.clear();
        continue;
      }
      line = typed.text;
    } else {
      int c = 0;
      while ((c = std::getc(stdin)) != EOF && c != '\n') line += static_cast<char>(c);
      if (c == EOF && line.empty() && text.empty()) return code;
      is_last = c == EOF;
    }
    text += (text.empty() ? "" : "\n") + line;
    if (text.find_first_not_of(" \t\n") == std::string::npos) {
      text.clear();
      continue;
    }
    if (!is_last && isolate.is_incomplete(text))
      continue;  // at the end of the input nothing completes it: an error says so
    StopOnInterrupt interrupt;
    const std::stop_callback stop(interrupt.token(), [&] { isolate.stop(); });
    const script::Result result = isolate.evaluate(text);
    text.clear();
    if (result.outcome != script::Outcome::done) {
      put_message(result.message);
      code = exit_code(result.outcome);
    } else if (!result.value.empty()) {
      put_foreign(result.value + "\n");
    }
  }
}

void add_flags(CLI::App& app, ScriptRequest& request) {
  add_script_flags(app, request.flags, "seconds that the script may run; 0: no limit");
  app.add_option("--allow-read", request.flags.read, "a folder that the script may read; may be repeated")->take_all();
  app.add_option("--allow-write", request.flags.write, "a folder that the script may write in; may be repeated")
      ->take_all();
  app.add_option("--device", request.flags.device, "auto, cpu, webgpu or webgpu:INDEX")->capture_default_str();
}

}  // namespace

void set_up_run(CLI::App& app, Action& action) {
  auto request = std::make_shared<ScriptRequest>();
  app.footer(
      "A script sees no files, no network and no operations but those granted here.\n"
      "Exit codes: 1 an exception, 5 the time limit, 6 memory, 7 stack, 8 device memory, 9 something not granted.");
  app.add_option("script", request->file, "a .js, .mjs, .ts, .tsx or .jsx file")->required();
  add_flags(app, *request);
  app.add_flag("--leaks", request->flags.leaks, "tell at the end which handles are alive, and which lines made them");
  app.callback([&action, request] { action = [request] { return run_script(*request); }; });
}

void set_up_repl(CLI::App& app, Action& action) {
  auto request = std::make_shared<ScriptRequest>();
  app.footer("Tab completes names; the history outlives the run. The last value is _.");
  add_flags(app, *request);
  app.callback([&action, request] { action = [request] { return converse(*request); }; });
}

void set_up_script(CLI::App& app, Action& action) {
  app.require_subcommand(1);
  CLI::App* types = app.add_subcommand("types", "print the declarations of \"weft\" for the TypeScript compiler");
  types->callback([&action] {
    action = [] {
      put_text(script::type_declarations());
      return static_cast<int>(kOk);
    };
  });
}

}  // namespace weft::cli
