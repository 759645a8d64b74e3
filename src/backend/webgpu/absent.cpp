// Stands in for the WebGPU device layer in builds without webgpu.h.
#if !WEFT_HAS_WEBGPU
#include "backend/webgpu/adapter.hpp"
#include "weft/error.hpp"

namespace weft::webgpu {

std::vector<AdapterInfo> list_adapters() {
  throw DeviceError(
      "webgpu: this build of Weft has no WebGPU backend; run script/setup (it fetches webgpu.h) and build again with "
      "-DWEFT_WEBGPU=ON, or choose the device cpu");
}

}  // namespace weft::webgpu
#endif
