#include "train/curve.hpp"

#include <fmt/format.h>

#include <filesystem>

namespace weft::train {

io::Chart loss_curve(std::span<const Metrics> metrics, const std::string& title) {
  io::Chart chart{title, "step", "loss (nats)", {{"training", {}}, {"validation", {}}}};
  for (const Metrics& m : metrics) {
    const auto step = static_cast<double>(m.step);
    chart.series[0].points.push_back({step, m.loss});
    if (m.val_loss) chart.series[1].points.push_back({step, *m.val_loss});
  }
  return chart;
}

std::string curve_title(const RunConfig& config) {
  return fmt::format("{} on {}", config.preset, std::filesystem::path(config.data).filename().string());
}

}  // namespace weft::train
