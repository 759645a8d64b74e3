#include "runtime/devices.hpp"

#include <fmt/format.h>

#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <unordered_map>

#include "backend/cpu/backend.hpp"
#include "backend/trace/backend.hpp"
#include "backend/webgpu/adapter.hpp"
#include "backend/webgpu/backend.hpp"
#include "tensor/device.hpp"

namespace weft {

namespace runtime {
namespace {

// Buffers given back, by size, for the next request of that size.
class Pool {
 public:
  backend::BufferPtr take(std::size_t bytes) {
    std::lock_guard lock(mutex_);
    auto it = free_.find(bytes);
    if (it == free_.end() || it->second.empty()) return nullptr;
    backend::BufferPtr buffer = std::move(it->second.back());
    it->second.pop_back();
    held_bytes_ -= bytes;
    return buffer;
  }
  void give(std::size_t bytes, backend::BufferPtr buffer) {
    std::lock_guard lock(mutex_);
    if (held_bytes_ + bytes > kBytesMax) return;
    held_bytes_ += bytes;
    free_[bytes].push_back(std::move(buffer));
  }
  void clear() {
    std::lock_guard lock(mutex_);
    free_.clear();
    held_bytes_ = 0;
  }

 private:
  static constexpr std::size_t kBytesMax = std::size_t{512} << 20;
  std::mutex mutex_;
  std::unordered_map<std::size_t, std::vector<backend::BufferPtr>> free_;
  std::size_t held_bytes_ = 0;
};

struct Entry {
  std::unique_ptr<backend::Backend> backend;
  Pool pool;
};

struct Registry {
  std::mutex mutex;
  std::map<std::pair<int, int>, std::unique_ptr<Entry>> entries;
};
// Never destroyed: tensors in globals of the user's program are released after it.
Registry& registry() {
  static Registry* r = new Registry;
  return *r;
}

Entry& entry_of(Device device) {
  Registry& r = registry();
  std::lock_guard lock(r.mutex);
  auto& entry = r.entries[{static_cast<int>(device.kind), device.index}];
  if (!entry) {
    auto made = std::make_unique<Entry>();
    switch (device.kind) {
      case Device::Kind::cpu: made->backend = cpu::make_cpu_backend(); break;
      case Device::Kind::webgpu: made->backend = webgpu::make_webgpu_backend(device.index); break;
      case Device::Kind::trace: made->backend = trace::make_trace_backend(); break;
    }
    entry = std::move(made);
  }
  return *entry;
}

// A pooled buffer's handle: gives the buffer back when it goes.
struct Pooled final : backend::Buffer {
  Pooled(Entry& entry, backend::BufferPtr inner) : entry(entry), inner(std::move(inner)) {}
  ~Pooled() override {
    const std::size_t n = inner->bytes();
    entry.pool.give(n, std::move(inner));
  }
  std::size_t bytes() const override { return inner->bytes(); }
  Entry& entry;
  backend::BufferPtr inner;
};

}  // namespace

backend::Backend& backend_of(Device device) { return *entry_of(device).backend; }

void use_backend(Device device, std::unique_ptr<backend::Backend> backend) {
  Registry& r = registry();
  std::lock_guard lock(r.mutex);
  auto& entry = r.entries[{static_cast<int>(device.kind), device.index}];
  if (entry) throw UsageError(fmt::format("use_backend: {} is in use already", device.to_string()));
  entry = std::make_unique<Entry>();
  entry->backend = std::move(backend);
}

compiler::Target target_of(Device device) {
  backend::Backend& backend = backend_of(device);
  return {{backend.describe()}, [&backend](DType type) { return backend.storage_bytes(type); }};
}

backend::BufferPtr allocate(Device device, std::size_t bytes, std::string_view label) {
  Entry& entry = entry_of(device);
  bytes = std::max<std::size_t>(bytes, 4);
  backend::BufferPtr inner = entry.pool.take(bytes);
  if (!inner) {
    try {
      inner = entry.backend->allocate(bytes, label);
    } catch (DeviceError&) {
      entry.pool.clear();  // what the pool keeps may be what is missing
      inner = entry.backend->allocate(bytes, label);
    }
  }
  // The handle shares ownership of a Pooled and points at the buffer inside.
  auto pooled = std::make_shared<Pooled>(entry, std::move(inner));
  return backend::BufferPtr(pooled, pooled->inner.get());
}

const backend::BufferPtr& buffer_of(const graph::Node& node) {
  const auto* storage = static_cast<const BufferStorage*>(node.storage.get());
  if (!storage) throw InternalError("runtime: the value is not in memory");
  return storage->buffer;
}

graph::NodeRef data_node(DType type, const Shape& shape, Device device, backend::BufferPtr buffer) {
  graph::NodeRef node = graph::make_node({.kind = graph::Kind::data, .type = type, .shape = shape, .device = device});
  node->storage = std::make_shared<BufferStorage>(std::move(buffer));
  return node;
}

std::vector<std::byte> constant_bytes(const graph::Node& constant) {
  const std::size_t count = static_cast<std::size_t>(constant.shape.numel()), size = size_bytes(constant.type);
  std::vector<std::byte> bytes(count * size);
  auto fill = [&](auto value) {
    for (std::size_t i = 0; i < count; ++i) std::memcpy(bytes.data() + i * size, &value, size);
  };
  switch (constant.type) {
    case DType::f32: fill(static_cast<float>(constant.value)); break;
    case DType::f64: fill(constant.value); break;
    case DType::i32: fill(static_cast<std::int32_t>(constant.value)); break;
    case DType::u32: fill(static_cast<std::uint32_t>(constant.value)); break;
    case DType::boolean: fill(static_cast<unsigned char>(constant.value != 0)); break;
  }
  return bytes;
}

backend::BufferPtr small_constant(const graph::Node& node) {
  constexpr Extent kSmall = 1024;
  if (node.kind != graph::Kind::constant || node.storage || node.shape.numel() > kSmall) return nullptr;
  backend::Backend& backend = backend_of(node.device);
  backend::BufferPtr buffer = allocate(
      node.device, static_cast<std::size_t>(node.shape.numel()) * backend.storage_bytes(node.type), "constant");
  if (node.shape.numel() > 0) backend.upload(*buffer, 0, node.shape.numel(), node.type, constant_bytes(node).data());
  return buffer;
}

}  // namespace runtime

std::vector<DeviceInfo> list_devices(std::string* problem) {
  std::vector<DeviceInfo> devices;
  auto add = [&](Device device, const backend::Description& d) {
    devices.push_back({device, d.hardware, d.is_software, d.details});
  };
  add(kCpu, runtime::backend_of(kCpu).describe());
  try {
    for (const webgpu::AdapterInfo& adapter : webgpu::list_adapters())
      devices.push_back({{Device::Kind::webgpu, adapter.index},
                         webgpu::describe(adapter),
                         adapter.type == webgpu::AdapterType::software,
                         {}});
  } catch (const Error& error) {
    if (problem) *problem = error.what();
  }
  return devices;
}

namespace {

Device first_real_gpu() {
  const auto adapters = webgpu::list_adapters();
  return {Device::Kind::webgpu, adapters[webgpu::choose_adapter(adapters)].index};
}

}  // namespace

Device parse_device(std::string_view text) {
  if (text == "cpu") return kCpu;
  if (text == "trace") return {Device::Kind::trace, 0};
  if (text == "auto") {
    try {
      return first_real_gpu();
    } catch (const DeviceError&) {
      return kCpu;
    }
  }
  if (text == "webgpu") return first_real_gpu();
  if (text.starts_with("webgpu:")) {
    const std::string_view digits = text.substr(7);
    if (!digits.empty() && digits.size() <= 3 && digits.find_first_not_of("0123456789") == std::string_view::npos) {
      const int index = std::atoi(std::string(digits).c_str());
      const auto adapters = webgpu::list_adapters();
      return {Device::Kind::webgpu, adapters[webgpu::choose_adapter(adapters, index)].index};
    }
  }
  throw UsageError(fmt::format(
      "device \"{}\": not auto, cpu, webgpu, webgpu:NUMBER or trace; `weft devices` lists what there is", text));
}

namespace {
// Linked wherever a device is used; from then on WEFT_DEVICE may name any device.
const bool resolver_is_set = (set_device_resolver(parse_device), true);
}  // namespace

void synchronize(Device device) { runtime::backend_of(device).synchronize(); }

}  // namespace weft
