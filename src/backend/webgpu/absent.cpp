// Replaces the WebGPU device layer in builds without webgpu.h.
#if !WEFT_HAS_WEBGPU
#include "backend/webgpu/adapter.hpp"
#include "backend/webgpu/backend.hpp"
#include "weft/error.hpp"

namespace weft::webgpu {
namespace {

[[noreturn]] void fail() {
  throw DeviceError(
      "webgpu: this build of Weft has no WebGPU backend; run script/setup (it fetches webgpu.h) and build again with "
      "-DWEFT_WEBGPU=ON, or choose the device cpu");
}

}  // namespace

std::vector<AdapterInfo> list_adapters() { fail(); }
DeviceProfile profile_of(const AdapterInfo&) { fail(); }
std::unique_ptr<backend::Backend> make_webgpu_backend(int, const BackendOptions&) { fail(); }

}  // namespace weft::webgpu
#endif
