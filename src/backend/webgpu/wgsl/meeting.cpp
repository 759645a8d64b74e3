#include "backend/webgpu/wgsl/meeting.hpp"

#include <fmt/format.h>

namespace weft::webgpu {

// Every workgroup adds 1 to the counter, but the first adds what is missing to 2^31. So the highest bit flips when all have come, and
// the bits below it are 0 again.
std::string meeting_function(std::string_view array) {
  constexpr std::uint32_t kTries = 1u << 23, kTestTries = 1u << 14;  // of half a microsecond each
  return fmt::format(
      "(thread: u32) {{\n"
      "  storageBarrier();\n"
      "  if (thread == 0u && resident.waits) {{\n"
      "    let before = atomicAdd(&{0}[0], select(1u, 0x80000001u - resident.groups, resident.group == 0u));\n"
      "    let tries = select({1}u, {2}u, resident.tests || atomicLoad(&{0}[{3}]) != 0u);\n"
      "    var tried = 0u;\n"
      "    while (((before ^ atomicLoad(&{0}[0])) >> 31u) == 0u && tried < tries) {{ tried++; }}\n"
      "    if (tried == tries) {{ atomicStore(&{0}[{3}], 1u); }}\n"
      "  }}\n"
      "  resident.waits = false;\n"
      "  workgroupBarrier();\n"
      "  storageBarrier();\n"
      "}}\n",
      array, kTries, kTestTries, kMissedOffset / 4);
}

}  // namespace weft::webgpu
