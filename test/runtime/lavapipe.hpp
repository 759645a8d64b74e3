// A device for a test of WebGPU: lavapipe, unless the environment names another driver.
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <string>

#include "runtime/devices.hpp"
#include "weft/error.hpp"

namespace weft::test {

/// For SetUp of a fixture. Without an adapter the test is skipped, or fails under WEFT_TEST_WEBGPU=required.
/// WEFT_TEST_ICD_LAVAPIPE names lavapipe's driver file.
inline void open_device(const std::string& name, Device& device) {
  if (name == "cpu") return;
  const char* driver = std::getenv("WEFT_TEST_ICD_LAVAPIPE");
  setenv("VK_ICD_FILENAMES", driver ? driver : "/usr/share/vulkan/icd.d/lvp_icd.json", 0);
  setenv("XDG_RUNTIME_DIR", "/tmp", 0);
  try {
    device = parse_device(name);
    runtime::backend_of(device);
  } catch (const DeviceError& error) {
    const char* required = std::getenv("WEFT_TEST_WEBGPU");
    if (required && std::string(required) == "required") FAIL() << error.what();
    GTEST_SKIP() << error.what();
  }
}

}  // namespace weft::test
