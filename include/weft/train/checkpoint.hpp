// Checkpoints: one safetensors file that holds all a run needs to go on bit for bit.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

#include "weft/nn/state.hpp"
#include "weft/train/config.hpp"

namespace weft::train {

/// What a checkpoint holds. Batches are drawn by (seed, step), so that the step is the position in the data.
struct Checkpoint {
  RunConfig config;
  Alphabet vocabulary;
  std::int64_t step = 0;
  double elapsed_seconds = 0;
  std::optional<double> best_loss;  // least validation loss so far, and the step it was measured at
  std::int64_t best_step = 0;
  nn::StateDict model;
  nn::StateDict optimizer;  // empty in `best`, which is for use and not for going on
  std::optional<nn::NamedArray> random_state;
};

inline constexpr const char* kLastCheckpoint = "last.safetensors";
inline constexpr const char* kBestCheckpoint = "best.safetensors";

/// Writes atomically and keeps the file that was there as ".previous". Errors: FileError; the old file is whole then.
void save_checkpoint(const std::filesystem::path& path, const Checkpoint& checkpoint);
/// Errors  FileError: missing, truncated or damaged (the content's hash differs), or no checkpoint of this version.
Checkpoint load_checkpoint(const std::filesystem::path& path);
/// `path`, or its ".previous" if `path` is missing or damaged and that one is good; `warning` then says so.
/// Errors  FileError, of `path`, if neither is good.
Checkpoint load_checkpoint_or_previous(const std::filesystem::path& path, std::string* warning);

}  // namespace weft::train
