#include "tensor/device.hpp"

#include <fmt/format.h>

#include <atomic>
#include <cstdlib>

#include "base/session_state.hpp"

namespace weft {
namespace {

// A session's default device.
class Choice final : public SessionState::Part {
 public:
  static constexpr auto kSlot = SessionState::Slot::device;
  explicit Choice(SessionState&) {}

  static constexpr std::int64_t kNone = -1;
  std::atomic<std::int64_t> packed = kNone;  // one word, so that it changes atomically
};
std::int64_t pack(Device device) { return static_cast<std::int64_t>(device.kind) << 32 | device.index; }
Device unpack(std::int64_t packed) { return {static_cast<Device::Kind>(packed >> 32), static_cast<int>(packed)}; }

DeviceResolver& resolver() {
  static DeviceResolver r = nullptr;
  return r;
}

}  // namespace

std::string Device::to_string() const {
  switch (kind) {
    case Kind::cpu: return "cpu";
    case Kind::webgpu: return fmt::format("webgpu:{}", index);
    case Kind::trace: return "trace";
  }
  return "?";
}

void set_device_resolver(DeviceResolver r) { resolver() = r; }

Device default_device() {
  auto& choice = SessionState::current().part<Choice>().packed;
  std::int64_t packed = choice.load(std::memory_order_relaxed);
  if (packed == Choice::kNone) {
    const char* name = std::getenv("WEFT_DEVICE");
    packed = pack(name && *name && resolver() ? resolver()(name) : kCpu);
    choice.store(packed, std::memory_order_relaxed);
  }
  return unpack(packed);
}
void set_default_device(Device device) {
  SessionState::current().part<Choice>().packed.store(pack(device), std::memory_order_relaxed);
}

}  // namespace weft
