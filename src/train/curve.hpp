// The loss curve of a run, as a picture and in the terminal.
#pragma once

#include <span>
#include <string>

#include "io/chart.hpp"
#include "weft/train/observer.hpp"

namespace weft::train {

/// Loss by step (as logged) and validation loss.
io::Chart loss_curve(std::span<const Metrics> metrics, const std::string& title);
/// "tiny on fox.txt".
std::string curve_title(const RunConfig& config);

}  // namespace weft::train
