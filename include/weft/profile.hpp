// Where the time of a compiled function goes: the kernels of one run with their times, rates, and what the device allows.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "weft/device.hpp"
#include "weft/tensor.hpp"

namespace weft {

/// What a device reaches in Weft's own large kernels: the limits that a profile compares with.
struct DeviceRates {
  double operations_per_second = 0;       ///< of a product of f32, 2 m n k operations; 0: not measured
  double half_operations_per_second = 0;  ///< of a product of f16, on matrix units where the device has them
  double bytes_per_second = 0;            ///< of a copy, reads and writes counted
};

/// Measures the rates with products and a copy, for about a quarter of a second.
DeviceRates measure_rates(Device device);

/// A kernel of one run, or a few that the device ran as one.
struct KernelProfile {
  std::string name;
  double begin = 0;         ///< microseconds after the first kernel began
  double microseconds = 0;  ///< how long it took
  double operations = 0;    ///< on floating-point numbers, by the shapes
  double bytes = 0;         ///< that it moves at least: each operand once
  bool on_matrices = false;
};

/// All kernels of one run, in the order in which they ran.
struct Profile {
  std::string device, hardware;
  DeviceRates rates;
  std::vector<KernelProfile> kernels;  ///< empty on a device that cannot time kernels

  /// The sum over the kernels. A run without timing takes less, because kernels then overlap.
  double microseconds() const;
};

/// The share of a kernel's time that the device's rates explain, the roofline: the larger one of operations / rate and bytes /
/// rate, over the time. 0 without rates. Above 1 for operands that were in a cache.
double roofline(const KernelProfile& kernel, const DeviceRates& rates);

/// A line for each name, those that took most first, and the sum: microseconds, share, count, TFLOP/s, GB/s, roofline.
std::string to_table(const Profile& profile);
/// JSON: device, hardware, rates, and each kernel in order.
std::string to_json(const Profile& profile);
/// A trace in Chrome's event format, which ui.perfetto.dev opens.
std::string to_trace(const Profile& profile);

}  // namespace weft
