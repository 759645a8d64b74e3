// The figures of a device for the choice of kernels.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "backend/webgpu/adapter.hpp"

namespace weft::webgpu {

class BlobCache;

/// Times are for work that runs alone on the device. The defaults are those of an NVIDIA H200.
struct DeviceProfile {
  std::uint32_t compute_units = 132;           // number of workgroups that run without sharing a compute unit
  double unit_flops = 67e12 / 132;             // f32 operations a second of one compute unit
  double bytes_per_second = 4.5e12;            // read from memory
  double dispatch_microseconds = 3;            // for a dispatch that waits for the previous one
  double fma_microseconds = 4.0 / 1700;        // for an fma that waits for the previous one
  double load_microseconds = 0.16;             // for a load that waits for the previous one
  std::string source = "table: discrete GPU";  // where the figures are from

  bool operator==(const DeviceProfile&) const = default;
};

/// The assumed profile of an adapter that is not measured.
DeviceProfile profile_from_table(const AdapterInfo& adapter);

/// As JSON, and back. Nothing for text that is damaged, of another version, or has impossible figures.
std::string profile_text(const DeviceProfile& profile);
std::optional<DeviceProfile> parse_profile(std::string_view text);

/// One line.
std::string describe(const DeviceProfile& profile);

/// The profile rounded to two digits, so that a new measurement usually gives the same choices.
DeviceProfile rounded(DeviceProfile profile);

/// The stored profile; nothing if there is no readable one.
std::optional<DeviceProfile> load_profile(BlobCache& cache);
void store_profile(BlobCache& cache, const DeviceProfile& profile);

/// The profile for large products on this adapter, as far as it is known without measuring.
DeviceProfile profile_of(const AdapterInfo& adapter);

/// The profile of WEFT_WEBGPU_PROFILE: from the file that it names, or for "table" from the table. Nothing if it is not set.
/// Throws FileError for a file that cannot be read, UsageError for one without a profile.
std::optional<DeviceProfile> profile_from_environment(const AdapterInfo& adapter);

}  // namespace weft::webgpu
