// weft devices
#include <fmt/format.h>

#include "cli/commands.hpp"
#include "weft/device.hpp"
#include "weft/error.hpp"

namespace weft::cli {
namespace {

int devices() {
  std::string problem;
  for (const DeviceInfo& info : list_devices(&problem)) {
    fmt::print("{:<10}  {}{}\n", info.device.to_string(), info.hardware,
               info.is_software ? "  (software: used only when named)" : "");
    for (const auto& [key, value] : info.details) fmt::print("            {:<24}  {}\n", key, value);
  }
  if (!problem.empty()) fmt::print("\nWebGPU: {}\n", problem);
  try {
    fmt::print("\n--device auto takes {}\n", parse_device("auto").to_string());
  } catch (const Error& error) {
    fmt::print("\n--device auto: {}\n", error.what());
  }
  return kOk;
}

}  // namespace

void set_up_devices(CLI::App& app, Action& action) {
  app.callback([&action] { action = devices; });
}

}  // namespace weft::cli
