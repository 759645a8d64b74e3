// How much memory a training run needs, before it runs.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "weft/device.hpp"
#include "weft/train/config.hpp"

namespace weft::train {

/// Bytes on each device of a run.
struct TrainingNeed {
  RunConfig config;
  Device device;  ///< the first one
  int devices = 1;
  Extent rows = 0;        ///< texts of a batch on each device
  Extent parameters = 0;  ///< numbers
  std::uint64_t weights = 0;
  std::uint64_t moments =
      0;  ///< the optimiser's state (AdamW: two for each weight), and the sum of gradients of a run that accumulates
  /// Gradients, activations and scratch of a step, and those of a measurement of the validation loss, as planned. Nothing where
  /// weights and moments alone do not fit; no plan was made then.
  std::optional<std::uint64_t> step, validation;
  /// What the run may take: `TrainRequest::device_memory`, or else the free memory of the host for the CPU. A GPU does not tell;
  /// nothing then.
  std::optional<std::uint64_t> available;
  bool fits = true;  ///< true where nothing is known
  /// The most texts in a batch that fit on each device, as planned; 0: none. Nothing where `available` is not known.
  std::optional<Extent> largest_rows;

  std::uint64_t total() const { return weights + moments + step.value_or(0) + validation.value_or(0); }
  /// A table for people.
  std::string to_string() const;
};

/// What the run of a request would take. The text is read and the weights are drawn, if they fit; a step is compiled for the
/// device, so its plan is the one that would run, but nothing runs. Nothing is written.
/// Errors: as train_text, but for those of files that it writes.
TrainingNeed training_need(const TrainRequest& request);

}  // namespace weft::train
