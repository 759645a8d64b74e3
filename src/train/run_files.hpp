// The observer that keeps a run's metrics, samples and curve in its folder.
#pragma once

#include <optional>
#include <string>

#include "train/metrics.hpp"
#include "train/run_folder.hpp"
#include "weft/train/observer.hpp"

namespace weft::train {

class RunFiles : public Observer {
 public:
  explicit RunFiles(RunFolder folder) : folder_(std::move(folder)) {}

  void begin(const RunStart& run) override;
  void step(const Metrics& metrics) override { metrics_->append(metrics); }
  void sample(const Sample& sample) override;
  void profile(const Profile& profile) override;
  void end(const RunEnd& run) override;

  /// All logged steps, including those before the run was resumed. Valid after `begin`.
  const std::vector<Metrics>& metrics() const { return metrics_->all(); }

 private:
  RunFolder folder_;
  std::string title_;
  std::optional<MetricsLog> metrics_;
};

}  // namespace weft::train
