// What `weft operations` and its subcommand `serve` share.
#pragma once

#include <string>
#include <string_view>
#include <utility>

#include "cli/commands.hpp"

namespace weft::cli {

/// "NAME=FILE" in two. Errors: UsageError.
std::pair<std::string, std::string> named_file(const std::string& pair, std::string_view option, std::string_view file);

void set_up_operations_serve(CLI::App& app, Action& action);

}  // namespace weft::cli
