// Finding the op that made the first NaN.
#pragma once

#include "weft/error.hpp"

namespace weft {

/// A computed value has a NaN (DetectAnomaly).
class AnomalyError : public Error {
  using Error::Error;
};

/// While this object exists, values that this thread evaluates are searched for NaN. If one has any, everything it was made from
/// is computed op by op, and an AnomalyError names the first op that made a NaN from operands without one: its operands, whether
/// it is part of a gradient, and the line that called it (for a gradient, the line of the op whose gradient it is). Compiled
/// functions run as ordinary functions meanwhile. This is for debugging: it takes several times as long and keeps every
/// intermediate value.
class DetectAnomaly {
 public:
  DetectAnomaly();
  ~DetectAnomaly();
  DetectAnomaly(const DetectAnomaly&) = delete;
  DetectAnomaly& operator=(const DetectAnomaly&) = delete;
};
bool anomaly_detection_enabled();

}  // namespace weft
