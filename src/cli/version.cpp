#include "cli/version.hpp"

#include <fmt/format.h>

#include "revision.hpp"
#include "runtime/devices.hpp"

namespace weft::cli {

std::string version_text() {
  std::string text = "weft " WEFT_VERSION;
  if (*WEFT_REVISION) text += " (" WEFT_REVISION ")";
  // Only the CPU: to look for GPUs takes longer than all else. weft devices does.
  return text + "\ncpu         " + runtime::backend_of(kCpu).describe().hardware;
}

}  // namespace weft::cli
