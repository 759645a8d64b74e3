// A program that knows nothing of Weft but the manifest of its kernels, and runs their SPIR-V on a Vulkan device.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

namespace weft::test {

/// Whether there is a Vulkan library and a device. VK_ICD_FILENAMES chooses the driver.
bool has_vulkan_device();
/// Threads of a subgroup of the device.
std::uint32_t subgroup_size();
/// Runs all steps of DIRECTORY/manifest.json in order, and gives the buffers of the outputs by name. Throws std::runtime_error.
std::map<std::string, std::vector<std::byte>> run_manifest(const std::filesystem::path& directory);

}  // namespace weft::test
