// The configuration of a training run: everything that determines its numbers.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "weft/nn/gpt.hpp"
#include "weft/optim/table.hpp"
#include "weft/train/text.hpp"

namespace weft::train {

/// A complete configuration. Kept in OUT/config.json and in every checkpoint.
struct RunConfig {
  std::string preset = "small";
  nn::GptConfig model;
  std::string data;  // path of the text
  std::uint64_t data_hash = 0;
  Alphabet::Kind vocabulary = Alphabet::Kind::characters;
  Extent batch = 16;
  std::uint64_t seed = 1;
  std::int64_t steps = 0;  // planned in total; 0: as many as the seconds allow
  double seconds = 0;      // planned in total; 0: as long as the steps take
  double learning_rate = 4e-3;
  double final_fraction = 0.1;                 // the last learning rate, as a fraction of learning_rate
  double warm_up = 100;                        // steps, at most a tenth of the run
  std::string optimizer = "adamw";             // a rule of optim::rules()
  optim::OptionValues optimizer_options = {};  // its options, but for those that have fields here
  double weight_decay = 0.1;
  double beta_1 = 0.9;
  double beta_2 = 0.99;
  double clip_norm = 1;
  /// Type of products, of attention and of what is between them (Autocast); weights and moments are f32 in any case. With
  /// f16 the loss is scaled.
  DType precision = DType::f32;
  /// Type in which gradients go between several devices: f32, bf16, or f16 if `precision` is f16, whose loss is scaled. Each device's
  /// gradients are rounded to it, and so is their mean; the update is in f32.
  DType exchange = DType::f32;
  Extent accumulate = 1;   // batches whose mean gradient makes one update
  bool recompute = false;  // what is inside of blocks is computed again for gradients

  Extent tokens_per_step() const { return accumulate * batch * model.context; }
  /// The learning rate of step `step` (from 0), after `elapsed` seconds of the run: a rise, then half a cosine over the planned
  /// steps, or over the planned seconds if no steps are planned.
  double learning_rate_at(std::int64_t step, double elapsed) const;
  /// Errors  UsageError: a number out of its range.
  void check() const;
  bool operator==(const RunConfig&) const = default;
};

/// f32, bf16 or f16 by its name. Errors: UsageError.
DType precision_named(std::string_view name);

/// A named starting point. The model's vocabulary has `model.vocabulary` entries, or as many as the text's if that is larger.
struct Preset {
  std::string_view name;
  std::string_view doc;
  nn::GptConfig model;
  Extent batch;
  std::int64_t steps;
  double learning_rate;
};
std::span<const Preset> presets();
/// Errors  UsageError that lists the presets.
const Preset& preset(std::string_view name);

/// A user's request. Fields that are unset come from the preset, or from the run that is resumed.
struct TrainRequest {
  std::filesystem::path out;
  bool resume = false;
  std::string device = "auto";  // or several, with commas between
  bool divide = false;          // several devices divide the layers, not the batches
  std::optional<std::string> preset;
  std::optional<std::string> optimizer;
  std::vector<std::string> optimizer_options;  // NAME=VALUE
  std::optional<std::filesystem::path> data;
  std::optional<std::string> vocabulary;
  std::optional<std::int64_t> steps;  // in total, those of the resumed run included
  std::optional<double> seconds;      // for this call
  std::optional<std::uint64_t> seed;
  std::optional<Extent> batch, context, layers, heads, width;
  std::optional<double> dropout, learning_rate, final_fraction, warm_up, weight_decay, beta_1, beta_2, clip_norm;
  std::optional<bool> tied;
  std::optional<Extent> accumulate;
  std::optional<std::string> precision, exchange;  // these and the next may change when a run is resumed
  std::optional<bool> recompute;

  std::optional<std::int64_t> log_every;         // steps; unset: 10, or 2 seconds if they take longer
  std::optional<std::int64_t> eval_every;        // steps; unset: a tenth of the run, 250 if it runs by time
  std::int64_t eval_batches = 20;                // in each of these checks
  std::optional<std::int64_t> checkpoint_every;  // steps; unset: every 30 seconds
  std::optional<std::int64_t> sample_every;      // steps; unset: every fourth check; 0: only at the end
  std::int64_t sample_tokens = 200;              // 0: no samples
  bool profile = false;                          // times the kernels of a step when the run ends
  std::uint64_t device_memory = 0;               // bytes that the run may take on a device; 0: what the CPU has free
};

/// The run of a request without `resume`. Errors: UsageError.
RunConfig new_run(const TrainRequest& request);
/// The stored run, continued as requested, `elapsed` seconds into it. Errors: UsageError that lists every option that
/// contradicts the stored run.
RunConfig resumed_run(const RunConfig& stored, const TrainRequest& request, double elapsed);

/// The run as JSON, and back. Errors: FileError that names `source`, for text that is not a valid configuration.
std::string to_json(const RunConfig& config);
RunConfig run_config_from_json(std::string_view json, std::string_view source);

}  // namespace weft::train
