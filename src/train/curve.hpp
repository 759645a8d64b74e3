// The loss curve of a run, as a picture and in the terminal.
#pragma once

#include <vector>

#include "io/chart.hpp"
#include "train/metrics.hpp"

namespace weft::train {

/// Loss by step (as logged) and validation loss.
io::Chart loss_curve(const std::vector<Metrics>& metrics, const std::string& title);

}  // namespace weft::train
