// The figures of a device by which kernels are chosen.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "backend/webgpu/adapter.hpp"

namespace weft::webgpu {

class BlobCache;

/// Times are of work that has the device to itself. Without other values: an NVIDIA H200.
struct DeviceProfile {
  std::uint32_t compute_units = 132;           // how many workgroups run without sharing what computes
  double unit_flops = 67e12 / 132;             // f32 operations a second of one compute unit
  double bytes_per_second = 4.5e12;            // read from memory
  double dispatch_microseconds = 3;            // of a dispatch that waits for the one before it
  double fma_microseconds = 4.0 / 1700;        // of an fma that waits for the one before it
  double load_microseconds = 0.16;             // of a load that waits for the one before it
  std::string source = "table: discrete GPU";  // where the figures are from

  bool operator==(const DeviceProfile&) const = default;
};

/// What is assumed of an adapter that is not measured.
DeviceProfile profile_from_table(const AdapterInfo& adapter);

/// As JSON, and back. Nothing for text that is damaged, of another version, or has figures that no device has.
std::string profile_text(const DeviceProfile& profile);
std::optional<DeviceProfile> parse_profile(std::string_view text);

/// One line.
std::string describe(const DeviceProfile& profile);

/// The profile with figures of two digits, so that measuring again mostly gives the same choices.
DeviceProfile rounded(DeviceProfile profile);

/// The kept profile; nothing if there is none that can be read.
std::optional<DeviceProfile> load_profile(BlobCache& cache);
void store_profile(BlobCache& cache, const DeviceProfile& profile);

/// The profile that large products on this adapter are chosen by, as far as it is known without measuring.
DeviceProfile profile_of(const AdapterInfo& adapter);

/// What WEFT_WEBGPU_PROFILE says: the profile in the file that it names, or for "table" that of the table. Nothing where it
/// is not set. Throws FileError for a file that cannot be read, UsageError for one without a profile.
std::optional<DeviceProfile> profile_from_environment(const AdapterInfo& adapter);

}  // namespace weft::webgpu
