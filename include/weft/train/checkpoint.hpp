// Checkpoints: one safetensors file with everything that a run needs to continue bit for bit.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

#include "weft/nn/state.hpp"
#include "weft/train/config.hpp"

namespace weft::train {

/// The contents of a checkpoint. Batches are drawn by (seed, step), so the step determines the position in the data.
struct Checkpoint {
  RunConfig config;
  Alphabet vocabulary;
  std::int64_t step = 0;
  double elapsed_seconds = 0;
  std::optional<double> best_loss;  // lowest validation loss so far, and the step when it was measured
  std::int64_t best_step = 0;
  nn::StateDict model;
  nn::StateDict optimizer;  // empty in `best`, which is for inference and cannot be resumed
  std::optional<nn::NamedArray> random_state;
  nn::StateDict loss_scale;  // empty where the loss is not scaled
};

inline constexpr const char* kLastCheckpoint = "last.safetensors";
inline constexpr const char* kBestCheckpoint = "best.safetensors";

/// Writes atomically and keeps the earlier file as ".previous". Errors: FileError; the old file is whole then.
void save_checkpoint(const std::filesystem::path& path, const Checkpoint& checkpoint);
/// Errors  FileError: missing, truncated or damaged (the content's hash differs), or not a checkpoint of this version.
Checkpoint load_checkpoint(const std::filesystem::path& path);
/// Loads `path`, or its ".previous" if `path` is missing or damaged and ".previous" is good; `warning` then says so. Errors
/// FileError about `path` if neither is good.
Checkpoint load_checkpoint_or_previous(const std::filesystem::path& path, std::string* warning);

}  // namespace weft::train
