// metrics.jsonl: a line for every logged step.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <vector>

#include "base/file.hpp"

namespace weft::train {

struct Metrics {
  std::int64_t step = 0;  // completed steps
  double loss = 0;        // of that step's batch, before its update
  std::optional<double> val_loss;
  std::optional<std::int64_t> val_tokens;  // how many targets val_loss is the mean of
  double tokens_per_second = 0;            // since the line before
  double learning_rate = 0;
  double grad_norm = 0;  // before clipping
  double seconds = 0;    // of the run so far
};

/// One line of JSON; numbers that are not finite are null.
std::string to_json_line(const Metrics& metrics);

/// The file of a run. Lines beyond `last_step` (written after the checkpoint that is resumed) and a torn last line are
/// dropped; they will come again.
class MetricsLog {
 public:
  /// Errors: FileError.
  MetricsLog(const std::filesystem::path& path, std::int64_t last_step);
  void append(const Metrics& metrics);
  /// Everything logged so far, that of earlier runs included.
  const std::vector<Metrics>& all() const { return all_; }

 private:
  std::vector<Metrics> all_;
  std::unique_ptr<LineLog> log_;
};

}  // namespace weft::train
