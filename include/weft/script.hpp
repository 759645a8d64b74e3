// Scripts: JavaScript, TypeScript and JSX in a sandbox, with the nouns of Weft and none of the machine's unless they are granted.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <string_view>
#include <vector>

#include "weft/device.hpp"
#include "weft/operations.hpp"

namespace weft::script {

/// What a script may use. Everything that is not granted here does not exist for it, or is refused by name.
struct IsolateOptions {
  std::chrono::milliseconds time_limit{0};              ///< of one run or evaluation; 0: none
  std::size_t memory_limit = std::size_t{512} << 20;    ///< bytes of objects, strings and arrays of the script
  std::size_t stack_limit = std::size_t{1} << 20;       ///< bytes; 64 KB to 4 MB
  std::uint64_t device_memory_limit = 0;                ///< bytes of tensors on each device; 0: none
  std::vector<std::filesystem::path> read_folders;      ///< for `files` and checkpoints
  std::vector<std::filesystem::path> write_folders;     ///< for `files` and checkpoints
  std::vector<std::filesystem::path> module_folders;    ///< for imports; the folder of the script is always one
  std::vector<std::string> net_hosts;                   ///< "example.org" or "example.org:8080", for `fetch`
  std::vector<std::string> operations;                  ///< ids that may be called, "tensor.softmax" or "tensor.*"
  std::vector<std::string> registers;                   ///< namespaces in which operations may be registered
  std::shared_ptr<operations::Exchange> exchange = {};  ///< where operations are called and registered; null: none
  std::function<void(std::string_view line, bool is_error)> print = {};  ///< of `console`; empty: dropped
  bool track_handles = false;         ///< remembers the line that made each handle, for `leak_report`
  int threads = 0;                    ///< as SessionOptions
  std::optional<Device> device = {};  ///< as SessionOptions
};

/// How a run ended.
enum class Outcome : std::uint8_t {
  done,
  error,  // an exception that nothing caught, a syntax error, a module that was not found
  time,   // a limit was reached
  memory,
  stack,
  device_memory,
  refused,  // something that is not granted
};
std::string_view name_of(Outcome outcome);

struct Result {
  Outcome outcome = Outcome::done;
  std::string message;  ///< of the error, with the lines of the script; empty if done
  std::string value;    ///< of `evaluate`: the value as `console.log` shows it
};

/// One script world: its own engine, session, devices and limits. Isolates share nothing. A script holds handles of tensors; their
/// memory is that of the isolate's session.
///
/// Thread safety: an isolate belongs to the thread that made it, except for `stop`.
class Isolate {
 public:
  /// Errors: UsageError for a stack limit out of its range; DeviceError.
  explicit Isolate(IsolateOptions options);
  ~Isolate();
  Isolate(const Isolate&) = delete;
  Isolate& operator=(const Isolate&) = delete;

  /// Runs a file as a module, by its suffix (.js, .mjs, .jsx, .ts, .tsx), until nothing is left to do. Errors of the script are in
  /// the result. Errors: FileError if the file cannot be read.
  Result run(const std::filesystem::path& file);
  /// The same for a text. `name` is the file name in messages, and its suffix says what is in it; imports start in `folder`.
  Result run_text(std::string_view text, std::string_view name, const std::filesystem::path& folder = {});
  /// A line of a conversation: declarations stay, and the value of the last expression is shown. `await` is allowed.
  Result evaluate(std::string_view text);
  /// Serves calls of the operations that the script has registered, until `stop`. The limit of time is now that of each call, and of
  /// each turn of the loop. An exception that nothing catches is printed, and ends its turn only.
  Result serve();
  /// Ends what runs now, with outcome `time`. Any thread, and signal handlers, may call it.
  void stop() noexcept;
  /// Whether the text only lacks its end, so that a conversation should ask for another line.
  bool is_incomplete(std::string_view text);
  /// Ids of the operations that the script has registered.
  std::vector<std::string> registered() const;
  /// Names that may follow at the end of a line.
  std::vector<std::string> completions(std::string_view line);

  /// Handles that are alive now: tensors, variables, modules, compiled functions.
  std::size_t handle_count() const;
  /// Bytes of tensors on all devices of the isolate.
  std::uint64_t device_bytes() const;
  /// The living handles by the line that made them, those with most bytes first. Needs `track_handles`.
  std::string leak_report() const;

  struct State;

 private:
  std::unique_ptr<State> state_;
};

/// A script that serves an exchange: an isolate on a thread of its own. The operations that it registers are called there, one
/// function at a time; functions that await take turns. A function that throws, runs out of memory or works longer than the limit is
/// an error of its call. The operations end with the host.
///
/// Thread safety: any thread may call any function.
class Host {
 public:
  /// Runs the file and returns when its last line has run. `options.exchange` is the exchange; the limit of time holds for the file,
  /// and then for each call. `stop` ends the run of the file.
  /// Errors: FileError if the file cannot be read; UsageError with the error of the script, or if it registers no operation.
  Host(std::filesystem::path file, IsolateOptions options, const std::stop_token& stop = {});
  ~Host();
  Host(const Host&) = delete;
  Host& operator=(const Host&) = delete;
  /// The operations that were registered when the last line had run.
  const std::vector<std::string>& operations() const;

  struct State;

 private:
  std::unique_ptr<State> state_;
};

/// Adds the operation `script.run` to a registry: {"source", "language": "ts" | "tsx" | "js" | "jsx", "time_limit"} runs a text, such as one
/// that a language model has written, in an isolate of its own with what `options` grant, and gives {"output": its lines}. Callers need the
/// scope `script:run`. The limit of time is that of `options`, or a shorter one that the caller asks for. Such a script neither calls nor
/// registers operations. At most four run at once.
/// Errors of the operation: SCRIPT_ERROR, SCRIPT_LIMIT, SCRIPT_REFUSED, with details {"outcome", "output"}; OVERLOADED.
/// Errors: UsageError unless `options` limit time and memory of the device.
void offer_run(operations::Registry& registry, IsolateOptions options);

/// The declarations of everything that scripts can import from "weft", for the TypeScript compiler. They are made from the table
/// of ops.
std::string type_declarations();

}  // namespace weft::script
