// Measures the speed of a device.
#pragma once

#include <memory>
#include <optional>

#include "backend/webgpu/device.hpp"
#include "backend/webgpu/device_profile.hpp"

namespace weft::webgpu {

struct MeasureOptions {
  int turns = 512;                  // of the loops that are timed
  std::uint64_t bytes = 128 << 20;  // bytes that are read
  std::uint32_t compute_units_max = 1024;
};

/// Runs some short kernels, about 0.2 s with their compilation. Nothing if the device has no timestamps or its times make no
/// sense.
std::optional<DeviceProfile> measure_profile(const std::shared_ptr<Device>& device, const MeasureOptions& options = {});

/// The profile of one open device.
class ProfileKeeper {
 public:
  /// `given` overrides measurements, and so does the environment.
  ProfileKeeper(std::shared_ptr<Device> device, std::optional<DeviceProfile> given);

  /// The profile without measuring: the given one, or the table's.
  const DeviceProfile& assumed() const { return assumed_; }
  /// The profile for plans with large products: given, stored on disk, or measured now and stored. Thread safe.
  const DeviceProfile& measured();

 private:
  std::shared_ptr<Device> device_;
  DeviceProfile assumed_;
  std::optional<DeviceProfile> measured_;
};

}  // namespace weft::webgpu
