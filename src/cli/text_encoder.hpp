// How commands load text encoders.
#pragma once

#include <CLI/CLI.hpp>

#include <filesystem>
#include <string>

#include "weft/encoder.hpp"

namespace weft::cli {

/// --precision.
void add_encoder_precision(CLI::App& app, std::string& precision);
/// Errors: UsageError for a precision that is not known, and as `encoder::load`.
encoder::Model load_text_encoder(const std::filesystem::path& path, const Device& device, const std::string& precision);

}  // namespace weft::cli
