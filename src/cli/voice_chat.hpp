// A question that is heard, and an answer that is said.
#pragma once

#include <CLI/CLI.hpp>

#include <filesystem>
#include <string>

#include "cli/language_model.hpp"

namespace weft::cli {

struct VoiceChatOptions {
  std::filesystem::path listen, transcriber;  // a WAV file, and the folder of a speech model
  std::filesystem::path say, voice;           // a WAV file to write, and a voice
  std::string language;
};
void add_voice_options(CLI::App& app, VoiceChatOptions& options);

/// UsageError unless the options that belong together are given together.
void check(const VoiceChatOptions& options);
/// What is said in the file. UsageError if there are no words.
std::string hear(const VoiceChatOptions& options, const ModelOptions& model);
/// Writes the text as a sound.
void say(std::string_view text, const VoiceChatOptions& options, const ModelOptions& model);

}  // namespace weft::cli
