// The file that a run of fine-tuning goes on from.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>

#include "base/json.hpp"
#include "weft/nn/state.hpp"

namespace weft::tune {

struct Checkpoint {
  Json run;  ///< the settings that decide the numbers of a run
  std::int64_t step = 0;
  double seconds = 0;
  std::optional<double> first_validation, best_validation;
  nn::StateDict state;
};

/// Writes the file as a whole, and keeps the one before it. Errors: FileError.
void save_checkpoint(const std::filesystem::path& path, const Checkpoint& checkpoint);
/// Errors: FileError for a file that is missing, damaged, or none of these.
Checkpoint load_checkpoint(const std::filesystem::path& path);

}  // namespace weft::tune
