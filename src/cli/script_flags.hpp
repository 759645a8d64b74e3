// What a script may use, as flags of `weft run`, `weft repl` and `weft operations serve --script`.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "cli/commands.hpp"
#include "weft/script.hpp"

namespace weft::cli {

struct ScriptFlags {
  double time_limit = 0;
  std::int64_t memory_mb = 512, stack_kb = 1024, device_mb = 4096;
  std::vector<std::filesystem::path> read, write, modules;
  std::vector<std::string> net, operations, registers;
  std::string device = "auto";
  bool leaks = false;
};

/// All but files and the device, which commands may share with other flags of theirs.
void add_script_flags(CLI::App& app, ScriptFlags& flags, const std::string& time_limit);
/// The console goes to standard output and error.
script::IsolateOptions options_of(const ScriptFlags& flags);

}  // namespace weft::cli
