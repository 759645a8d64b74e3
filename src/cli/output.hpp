// What the commands print: standard output that tells when something was lost, and messages beside it.
#pragma once

#include <string_view>

namespace weft::cli {

/// Opens those of standard input, output and error that the caller has closed, for nothing. A model file would else take
/// their number, and what is printed would be written into it.
void hold_standard_streams();

/// Writes text to standard output at once; false when that was not possible.
bool put_text(std::string_view text);
/// A line for people on standard error. That it cannot be shown is no reason to stop.
void put_message(std::string_view text);

/// At the end of a command: `code`, or kFile with a message if not all output could be written. A reader who has gone,
/// as `head` does, has had what it wanted.
int finish_output(int code);
/// Prints "error: MESSAGE" and gives `code`.
int fail(std::string_view message, int code);

}  // namespace weft::cli
