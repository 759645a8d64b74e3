// metrics.jsonl: a line for every logged step.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <vector>

#include "base/file.hpp"
#include "weft/train/observer.hpp"

namespace weft::train {

/// One line of JSON; numbers that are not finite are null.
std::string to_json_line(const Metrics& metrics);

/// The file of a run. Lines beyond `last_step` (written after the checkpoint that is resumed) and a torn last line are dropped;
/// they will be written again.
class MetricsLog {
 public:
  /// Errors: FileError.
  MetricsLog(const std::filesystem::path& path, std::int64_t last_step);
  void append(const Metrics& metrics);
  /// Everything logged so far, including before the run was resumed.
  const std::vector<Metrics>& all() const { return all_; }

 private:
  std::vector<Metrics> all_;
  std::unique_ptr<LineLog> log_;
};

}  // namespace weft::train
