// What the commands print: standard output that tells when something was lost, and messages beside it.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace weft::cli {

/// Opens those of standard input, output and error that the caller has closed, for nothing. A model file would else take
/// their number, and what is printed would be written into it.
void hold_standard_streams();

/// Writes text to standard output at once, as it is; false when that was not possible. For text of Weft's own only.
bool put_text(std::string_view text);
/// The same for text of models, files and users: a terminal gets it as `for_terminal` makes it, a pipe gets every byte.
bool put_foreign(std::string_view text);
/// A line for people on standard error, as `for_terminal` makes it. That it cannot be shown is no reason to stop.
void put_message(std::string_view text);
/// JSON as text, indented by `indent` (-1: one line), with bytes that are not UTF-8 replaced, and all that a terminal could
/// take for a command escaped.
std::string json_text(const nlohmann::ordered_json& json, int indent = -1);

/// At the end of a command: `code`, or kFile with a message if not all output could be written. A reader who has gone,
/// as `head` does, has had what it wanted.
int finish_output(int code);
/// Prints "error: MESSAGE" and gives `code`.
int fail(std::string_view message, int code);

}  // namespace weft::cli
