// Output of the commands: standard output that reports lost text, and messages on standard error.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace weft::cli {

/// Opens /dev/null in place of a standard stream that the caller has closed. Otherwise a model file would get
/// its number, and printed text would go into that file.
void hold_standard_streams();

/// Writes text unchanged to standard output and flushes; false if that fails. For Weft's own text only.
bool put_text(std::string_view text);
/// The same for text of models, files and users: a terminal gets it as `for_terminal` makes it, a pipe gets every byte.
bool put_foreign(std::string_view text);
/// Prints a line on standard error, filtered by `for_terminal`. Ignores failures.
void put_message(std::string_view text);
/// JSON as text, indented by `indent` (-1: one line), with bytes that are not UTF-8 replaced, and all that a terminal could
/// take for a command escaped.
std::string json_text(const nlohmann::ordered_json& json, int indent = -1);

/// Ends a command: returns `code`, or kFile with a message if some output could not be written. A closed pipe,
/// as `head` leaves it, is not an error.
int finish_output(int code);
/// Prints "error: MESSAGE" and gives `code`.
int fail(std::string_view message, int code);

}  // namespace weft::cli
