// Workgroups of one dispatch that wait for one another, on an open device.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>

namespace weft::webgpu {

class Buffer;
class Device;
struct Shader;

/// Callers hold the device's mutex.
class Meetings {
 public:
  explicit Meetings(std::shared_ptr<Device> device) : device_(std::move(device)) {}

  /// The buffer in which they meet. Once there is one, downloads fail after a workgroup has waited in vain.
  const std::shared_ptr<Buffer>& buffer();
  /// How many workgroups of a resident shader run at once: as many of `wanted` as a trial shows, at least one for each compute unit
  /// if more are wanted. 0 if that fails.
  std::uint32_t resident_groups(const Shader& shader, std::uint64_t wanted, std::uint32_t compute_units);

 private:
  bool meet(const Shader& shader, std::uint32_t groups);

  std::shared_ptr<Device> device_;
  std::shared_ptr<Buffer> buffer_;
  std::map<std::pair<std::string, std::uint64_t>, std::uint32_t> groups_;  // by text and number wanted
};

}  // namespace weft::webgpu
