// The self-test of `weft doctor`: groups of cases, each computed on a device in f32 and by a reference in f64.
#pragma once

#include <cstddef>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "weft/device.hpp"

namespace weft::cli {

/// The result of a group. Errors are relative to the allowed error: above 1 is a failure.
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
/// In running order. A group throws only when the device is lost; any other exception fails its case.
std::span<const CheckGroup> check_groups();

}  // namespace weft::cli
