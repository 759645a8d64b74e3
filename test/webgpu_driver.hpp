// The Vulkan driver that a test of WebGPU runs on: a software adapter, unless the environment names another.
#pragma once

#include <cctype>
#include <cstdlib>
#include <filesystem>
#include <string>

namespace weft::test {

/// The driver file of "lavapipe" or "swiftshader": WEFT_TEST_ICD_LAVAPIPE, WEFT_TEST_ICD_SWIFTSHADER; lavapipe is also found
/// where Debian puts it. "" where there is none.
inline std::string driver_file(std::string name) {
  std::string variable = "WEFT_TEST_ICD_";
  for (const char c : name) variable += static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  if (const char* file = std::getenv(variable.c_str()); file && std::filesystem::exists(file)) return file;
  return name == "lavapipe" ? "/usr/share/vulkan/icd.d/lvp_icd.json" : "";
}

/// Chooses the driver before the WebGPU library looks for one, which it does once. With a name, that driver. Without, the
/// one that WEFT_TEST_DRIVER names; else what the environment says already (WEFT_TEST_ADAPTER: whatever Vulkan finds); else
/// SwiftShader, which compiles shaders in a tenth of lavapipe's time; else lavapipe. Returns the driver file, "" if the
/// named driver is not there, and in an emulator, whose machine has no WebGPU library.
inline std::string choose_driver(const char* name = std::getenv("WEFT_TEST_DRIVER")) {
  if (std::getenv("WEFT_TEST_EMULATED")) return "";
  setenv("XDG_RUNTIME_DIR", std::filesystem::temp_directory_path().c_str(), 0);
  for (const char* chosen : {"VK_ICD_FILENAMES", "VK_DRIVER_FILES", "WEFT_TEST_ADAPTER"})
    if (!name && std::getenv(chosen)) return std::getenv(chosen);
  std::string file = driver_file(name ? name : "swiftshader");
  if (!name && file.empty()) file = driver_file("lavapipe");
  if (!file.empty()) setenv("VK_ICD_FILENAMES", file.c_str(), 1);
  return file;
}

/// As `choose_driver`, for tests of the device layer: lavapipe, unless WEFT_TEST_DRIVER names another.
inline std::string choose_lavapipe() {
  const char* named = std::getenv("WEFT_TEST_DRIVER");
  return choose_driver(named ? named : "lavapipe");
}

}  // namespace weft::test
