#include "cli/script_flags.hpp"

#include "cli/input.hpp"
#include "cli/output.hpp"
#include "weft/device.hpp"

namespace weft::cli {

script::IsolateOptions options_of(const ScriptFlags& flags) {
  script::IsolateOptions options{
      .time_limit = std::chrono::milliseconds(static_cast<std::int64_t>(flags.time_limit * 1000)),
      .memory_limit = static_cast<std::size_t>(flags.memory_mb) << 20,
      .stack_limit = static_cast<std::size_t>(flags.stack_kb) << 10,
      .device_memory_limit = static_cast<std::uint64_t>(flags.device_mb) << 20,
      .read_folders = flags.read,
      .write_folders = flags.write,
      .module_folders = flags.modules,
      .net_hosts = flags.net,
      .operations = flags.operations,
      .registers = flags.registers,
      .track_handles = flags.leaks,
      .device = parse_device(flags.device)};
  options.print = [](std::string_view line, bool is_error) {
    if (is_error)
      put_message(line);
    else
      put_foreign(std::string(line) + "\n");
  };
  return options;
}

void add_script_flags(CLI::App& app, ScriptFlags& flags, const std::string& time_limit) {
  app.add_option("--time-limit", flags.time_limit, time_limit)->check(CLI::Range(0.0, 1e7))->capture_default_str();
  app.add_option("--memory-limit", flags.memory_mb, "MB of objects, strings and arrays of a script")
      ->check(CLI::Range(1, 1 << 20))
      ->capture_default_str();
  app.add_option("--stack-limit", flags.stack_kb, "KB of stack of a script")
      ->check(CLI::Range(64, 4096))
      ->capture_default_str();
  app.add_option("--device-memory", flags.device_mb, "MB of tensors of a script, on each device")
      ->check(CLI::Range(1, 1 << 24))
      ->capture_default_str();
  app.add_option("--allow-net", flags.net, "HOST or HOST:PORT that a script's fetch may reach; may be repeated")
      ->take_all();
  app.add_option("--allow-operations", flags.operations, "ids that a script may call, as in tensor.*; may be repeated")
      ->take_all();
  app.add_option("--allow-register", flags.registers,
                 "a namespace in which a script may register operations; may be repeated")
      ->take_all();
  app.add_option("--modules", flags.modules, "a further folder for imports of a script; may be repeated")->take_all();
}

}  // namespace weft::cli
