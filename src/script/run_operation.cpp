// The operation script.run: a text from outside in a sandbox of its own.
#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cmath>

#include "weft/script.hpp"

namespace weft::script {
namespace {

namespace op = operations;

constexpr int kRunsMax = 4;  // at once: each may take as much memory as one script may
constexpr std::size_t kOutputBytesMax = std::size_t{1} << 20;

// The lines that a script prints, as far as there is room for them.
class Output {
 public:
  void add(std::string_view line, bool is_error) {
    if (bytes_ + line.size() > kOutputBytesMax) {
      if (!is_cut_) lines_.emplace_back(fmt::format("... more than {} bytes", kOutputBytesMax));
      is_cut_ = true;
      return;
    }
    bytes_ += line.size();
    lines_.emplace_back(is_error ? "error: " + std::string(line) : std::string(line));
  }
  Value value() const { return lines_; }

 private:
  Value::Array lines_;
  std::size_t bytes_ = 0;
  bool is_cut_ = false;
};

struct Running {
  explicit Running(std::atomic<int>& count) : count(count) {
    if (++count <= kRunsMax) return;
    --count;
    throw op::OperationError(op::kOverloaded, fmt::format("{} scripts run already; come again later", kRunsMax));
  }
  ~Running() { --count; }
  Running(const Running&) = delete;
  std::atomic<int>& count;
};

std::string_view code_of(Outcome outcome) {
  switch (outcome) {
    case Outcome::time:
    case Outcome::memory:
    case Outcome::stack:
    case Outcome::device_memory: return "SCRIPT_LIMIT";
    case Outcome::refused: return "SCRIPT_REFUSED";
    default: return "SCRIPT_ERROR";
  }
}

Value run(op::Context& call, IsolateOptions options, std::atomic<int>& running) {
  const Running counted(running);
  if (const Value* seconds = call.input().find("time_limit"))
    options.time_limit = std::min(
        options.time_limit,
        std::chrono::milliseconds(static_cast<std::int64_t>(std::ceil(std::min(seconds->number(), 1e6) * 1000))));
  Output output;
  options.print = [&](std::string_view line, bool is_error) { output.add(line, is_error); };
  Isolate isolate(std::move(options));
  Result result;
  {
    const std::stop_callback stopping(call.stop(), [&] { isolate.stop(); });
    result = isolate.run_text(call.input("source").string(), "script." + call.input("language").string());
  }
  call.check();
  if (result.outcome != Outcome::done)
    throw op::OperationError(code_of(result.outcome), result.message,
                             Value::object({{"outcome", name_of(result.outcome)}, {"output", output.value()}}));
  return Value::object({{"output", output.value()}});
}

}  // namespace

void offer_run(op::Registry& registry, IsolateOptions options) {
  if (options.time_limit.count() <= 0 || options.device_memory_limit == 0)
    throw UsageError("script.run: scripts from outside need limits of their time and of the memory of the device");
  options.exchange = nullptr;
  options.operations.clear();
  options.registers.clear();
  const Value details = Value::parse(R"({"type": "object", "required": ["outcome", "output"]})");
  op::Specification s{
      .space = "script",
      .name = "run",
      .kind = op::Kind::mutation,
      .title = "Run a script",
      .description = fmt::format(
          "Runs a script in a sandbox for at most {} s, and returns the lines that it prints with console.log. "
          "Tensors, "
          "gradients, modules and optimisers come from the module \"weft\": import {{ tensor, grad, nn, optim }} from "
          "\"weft\". There are no files and no network unless the server grants them.",
          std::chrono::duration<double>(options.time_limit).count()),
      .tags = {"script"},
      .input = Value::parse(R"({"type": "object", "required": ["source"], "additionalProperties": false, "properties": {
        "source": {"type": "string", "maxLength": 1000000, "description": "the text of the script"},
        "language": {"enum": ["ts", "tsx", "js", "jsx"], "default": "ts"},
        "time_limit": {"type": "number", "exclusiveMinimum": 0, "description": "seconds"}}})"),
      .output = Value::parse(R"({"type": "object", "required": ["output"], "properties": {
        "output": {"type": "array", "items": {"type": "string"}}}})"),
      .errors = {{"SCRIPT_ERROR", "the script threw, or is no script; the message has its lines", details, 422},
                 {"SCRIPT_LIMIT", "the script needs more time, memory or stack than it may have", details, 422},
                 {"SCRIPT_REFUSED", "the script asks for what is not granted", details, 403}},
      .access = {.scopes = {"script:run"}}};
  registry.add(std::move(s), [options = std::move(options), running = std::make_shared<std::atomic<int>>(0)](
                                 op::Context& call) { return run(call, options, *running); });
}

}  // namespace weft::script
