#include "train/curve.hpp"

namespace weft::train {

io::Chart loss_curve(const std::vector<Metrics>& metrics, const std::string& title) {
  io::Chart chart{title, "step", "loss (nats)", {{"training", {}}, {"validation", {}}}};
  for (const Metrics& m : metrics) {
    const auto step = static_cast<double>(m.step);
    chart.series[0].points.push_back({step, m.loss});
    if (m.val_loss) chart.series[1].points.push_back({step, *m.val_loss});
  }
  return chart;
}

}  // namespace weft::train
