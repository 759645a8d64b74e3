#include "cli/version.hpp"

#include <fmt/format.h>

#include "revision.hpp"
#include "weft/device.hpp"

namespace weft::cli {

std::string version_text() {
  std::string text = "weft " WEFT_VERSION, problem;
  if (*WEFT_REVISION) text += " (" WEFT_REVISION ")";
  for (const DeviceInfo& info : list_devices(&problem))
    text += fmt::format("\n{:<11} {}", info.device.to_string(), info.hardware);
  if (!problem.empty()) text += "\nwebgpu      " + problem;
  return text;
}

}  // namespace weft::cli
