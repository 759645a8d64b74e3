// A training run from its request to its end.
#pragma once

#include <span>
#include <stop_token>

#include "weft/train/config.hpp"
#include "weft/train/observer.hpp"

namespace weft::train {

/// Sets up or resumes the run of a request, trains it, and keeps checkpoints, metrics, samples and curves in its folder. Events
/// are reported to `observers` in this order; they must outlive the call. When a stop is requested, the run ends after the
/// current step, with a checkpoint. Nothing is printed.
/// Errors  UsageError: options; a folder with a run but no `resume`, or the reverse. FileError: text, folder, checkpoints,
///         a full disk (the last checkpoint stays whole). DeviceError: none, or lost. Error: a loss that is not finite.
TrainResult train_text(const TrainRequest& request, std::span<Observer* const> observers = {},
                       const std::stop_token& stop = {});

}  // namespace weft::train
