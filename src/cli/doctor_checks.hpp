// The self-test of `weft doctor`: groups of cases, each computed on a device in f32 and by a reference in f64.
#pragma once

#include <cstddef>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "weft/device.hpp"

namespace weft::cli {

/// What a group found. Errors are in parts of what is allowed: above 1 is a failure.
struct Findings {
  std::size_t cases = 0;
  double worst = 0;
  std::string worst_case;
  std::vector<std::string> failures;  // "softmax: error 3.2 of what is allowed: 0.5 for 0.25 at element 7"
};

struct CheckGroup {
  std::string_view name;
  Findings (*run)(Device device);
};
/// In the order they run. A group throws only when the device is lost; what single cases throw is a failure of theirs.
std::span<const CheckGroup> check_groups();

}  // namespace weft::cli
