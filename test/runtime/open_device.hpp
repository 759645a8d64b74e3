// A device for a test that runs on several.
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <string>

#include "runtime/devices.hpp"
#include "webgpu_driver.hpp"
#include "weft/error.hpp"

namespace weft::test {

/// For SetUp of a fixture. Without an adapter the test is skipped, or fails under WEFT_TEST_WEBGPU=required.
inline void open_device(const std::string& name, Device& device) {
  if (name == "cpu") return;
  choose_driver();
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
