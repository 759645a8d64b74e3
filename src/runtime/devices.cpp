#include "runtime/devices.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <mutex>

#include "backend/cpu/backend.hpp"
#include "backend/trace/backend.hpp"
#include "backend/webgpu/adapter.hpp"
#include "backend/webgpu/backend.hpp"
#include "backend/webgpu/description.hpp"
#include "graph/op_families.hpp"
#include "runtime/runtime_families.hpp"
#include "runtime/runtime_state.hpp"
#include "tensor/device.hpp"
#include "tensor/element.hpp"
#include "weft/error.hpp"
#include "weft/memory_limit.hpp"

namespace weft {

namespace runtime {

namespace {

// A handle of a pooled buffer, which returns the buffer to the pool when it is destroyed.
struct Pooled final : backend::Buffer {
  Pooled(std::shared_ptr<DeviceEntry> device, backend::BufferPtr inner)
      : device(std::move(device)), inner(std::move(inner)) {}
  ~Pooled() override {
    const std::size_t n = inner->bytes();
    device->used -= n;
    device->pool.give(n, std::move(inner));
  }
  std::size_t bytes() const override { return inner->bytes(); }
  std::shared_ptr<DeviceEntry> device;
  backend::BufferPtr inner;
};

CompileSettings settings_of_environment() {
  CompileSettings s;
  const char* text = std::getenv("WEFT_DISABLE");
  std::string_view rest = text ? text : "";
  while (!rest.empty()) {
    const std::size_t comma = rest.find(',');
    const std::string_view word = rest.substr(0, comma);
    if (word == "fusion")
      s.fusion = false;
    else if (word == "fused_composites")
      s.fused_composites = false;
    else if (!word.empty())
      s.disabled_rewrites.emplace_back(word);
    rest = comma == std::string_view::npos ? std::string_view() : rest.substr(comma + 1);
  }
  if (const char* products = std::getenv("WEFT_PRODUCTS"); products && *products) {
    const auto precision = product_precision_of(products);
    if (!precision) throw UsageError(fmt::format("WEFT_PRODUCTS is \"{}\"; it may be exact, high or medium", products));
    s.products = *precision;
  }
  return s;
}

}  // namespace

backend::BufferPtr BufferPool::take(std::size_t bytes) {
  std::lock_guard lock(mutex_);
  const auto found = by_size_.find(bytes);
  if (found == by_size_.end() || found->second.empty()) return nullptr;
  const auto spare = found->second.back();
  found->second.pop_back();
  backend::BufferPtr buffer = std::move(spare->buffer);
  spares_.erase(spare);
  held_bytes_ -= bytes;
  return buffer;
}

void BufferPool::give(std::size_t bytes, backend::BufferPtr buffer) {
  if (bytes > kBytesMax) return;
  Spares freed;  // after the lock, because freeing takes time
  std::lock_guard lock(mutex_);
  held_bytes_ += bytes;
  spares_.push_back({bytes, std::move(buffer)});
  by_size_[bytes].push_back(std::prev(spares_.end()));
  while (held_bytes_ > kBytesMax) {
    const auto oldest = by_size_.find(spares_.front().bytes);
    oldest->second.pop_front();  // the oldest of its size, too
    if (oldest->second.empty()) by_size_.erase(oldest);
    held_bytes_ -= spares_.front().bytes;
    freed.splice(freed.end(), spares_, spares_.begin());
  }
}

void BufferPool::clear() {
  Spares freed;
  std::lock_guard lock(mutex_);
  by_size_.clear();
  freed.swap(spares_);
  held_bytes_ = 0;
}

void RuntimeState::check_limit(const DeviceEntry& device, std::uint64_t bytes, FunctionRef<std::string()> label) const {
  const std::uint64_t most = bytes_max.load(std::memory_order_relaxed), used = device.used;
  if (most == 0 || (bytes <= most && used <= most - bytes)) return;
  throw DeviceMemoryError(fmt::format("{} needs {} bytes, and {} of the {} bytes that this session may use are in use",
                                      label(), bytes, used, most));
}

RuntimeState::RuntimeState(SessionState&) : settings(settings_of_environment()) {}

DeviceEntry& RuntimeState::device(Device device) {
  const auto kind = static_cast<std::size_t>(device.kind);
  if (device.index == 0)
    if (DeviceEntry* first = first_[kind].load(std::memory_order_acquire)) return *first;
  std::lock_guard lock(mutex_);
  auto& entry = devices_[{static_cast<int>(device.kind), device.index}];
  if (!entry) {
    auto made = std::make_shared<DeviceEntry>();
    switch (device.kind) {
      case Device::Kind::cpu: made->backend = cpu::make_cpu_backend(); break;
      case Device::Kind::webgpu: made->backend = webgpu::make_webgpu_backend(device.index); break;
      case Device::Kind::trace: made->backend = trace::make_trace_backend(); break;
    }
    entry = std::move(made);
    if (device.index == 0) first_[kind].store(entry.get(), std::memory_order_release);
  }
  return *entry;
}

void RuntimeState::use(Device device, std::unique_ptr<backend::Backend> backend) {
  std::lock_guard lock(mutex_);
  auto& entry = devices_[{static_cast<int>(device.kind), device.index}];
  if (entry) throw UsageError(fmt::format("use_backend: {} is in use already", device.to_string()));
  entry = std::make_shared<DeviceEntry>();
  entry->backend = std::move(backend);
}

backend::Backend& backend_of(Device device) { return *RuntimeState::current().device(device).backend; }

void use_backend(Device device, std::unique_ptr<backend::Backend> backend) {
  RuntimeState::current().use(device, std::move(backend));
}

compiler::Target target_of(Device device) {
  backend::Backend& backend = backend_of(device);
  return {{backend.describe()},
          [&backend](DType type) { return backend.storage_bits(type); },
          [&backend, device](DType type, Extent n, Extent k) {
            const backend::WeightPacking* packing = backend.weight_packing();
            if (!packing || !packing->supports(type))
              throw DTypeError(fmt::format("{} cannot hold {}; cast it to f32 on the CPU, then move the result",
                                           device.to_string(), name_of(type)));
            return packing->packed_bytes(type, n, k);
          }};
}

backend::BufferPtr allocate(Device device, std::size_t bytes, FunctionRef<std::string()> label) {
  DeviceEntry& entry = RuntimeState::current().device(device);
  bytes = std::max<std::size_t>(bytes, 4);
  RuntimeState::current().check_limit(entry, bytes, label);
  backend::BufferPtr inner = entry.pool.take(bytes);
  if (!inner) {
    const std::string text = label();
    try {
      inner = entry.backend->allocate(bytes, text);
    } catch (DeviceError&) {
      entry.pool.clear();  // the pool may keep the memory that is missing
      inner = entry.backend->allocate(bytes, text);
    }
  }
  entry.used += inner->bytes();
  // The handle shares ownership of a Pooled and points at the buffer inside.
  auto pooled = std::make_shared<Pooled>(entry.shared_from_this(), std::move(inner));
  return backend::BufferPtr(pooled, pooled->inner.get());
}

backend::BufferPtr allocate(Device device, std::size_t bytes, std::string_view label) {
  return allocate(device, bytes, [&] { return std::string(label); });
}

const backend::BufferPtr& buffer_of(const graph::Node& node) {
  const auto* storage = static_cast<const BufferStorage*>(node.storage.get());
  if (!storage) throw InternalError("runtime: the value is not in memory");
  return storage->buffer;
}

graph::NodeRef data_node(DType type, const Shape& shape, Device device, backend::BufferPtr buffer) {
  graph::NodeRef node = graph::make_node({.kind = graph::Kind::data, .type = type, .shape = shape, .device = device});
  node->storage.set(std::make_unique<BufferStorage>(std::move(buffer)));
  return node;
}

void append_element(std::vector<std::byte>& bytes, DType type, double value) {
  const std::size_t at = bytes.size();
  bytes.resize(at + size_bytes(type));
  write_element(type, value, bytes.data() + at);
}

std::vector<std::byte> constant_bytes(const graph::Node& constant) {
  const auto count = static_cast<std::size_t>(constant.shape.numel());
  std::vector<std::byte> bytes(bytes_of(constant.type, count));
  if (is_packed(constant.type)) {
    for (std::size_t i = 0; i < count; ++i) write_element(constant.type, constant.value, bytes.data(), i);
    return bytes;
  }
  std::vector<std::byte> element;
  append_element(element, constant.type, constant.value);
  // Each copy doubles what is there.
  std::size_t done = std::min(element.size(), bytes.size());
  std::copy_n(element.begin(), done, bytes.begin());
  for (; done < bytes.size(); done += std::min(done, bytes.size() - done))
    std::memcpy(bytes.data() + done, bytes.data(), std::min(done, bytes.size() - done));
  return bytes;
}

backend::BufferPtr small_constant(const graph::Node& node) {
  constexpr Extent kSmall = 1024;
  if (node.kind != graph::Kind::constant || node.storage || node.shape.numel() > kSmall) return nullptr;
  backend::Backend& backend = backend_of(node.device);
  backend::BufferPtr buffer = allocate(node.device, backend.storage_bytes(node.type, node.shape.numel()), "constant");
  if (node.shape.numel() > 0) backend.upload(*buffer, 0, node.shape.numel(), node.type, constant_bytes(node).data());
  return buffer;
}

}  // namespace runtime

void set_device_memory_limit(std::uint64_t bytes) { runtime::RuntimeState::current().bytes_max = bytes; }
std::uint64_t device_memory_used(Device device) { return runtime::RuntimeState::current().device(device).used; }

std::vector<DeviceInfo> list_devices(std::string* problem) {
  std::vector<DeviceInfo> devices;
  auto add = [&](Device device, const backend::Description& d) {
    devices.push_back({device, d.hardware, d.is_software, d.details});
  };
  add(kCpu, runtime::backend_of(kCpu).describe());
  try {
    for (const webgpu::AdapterInfo& adapter : webgpu::list_adapters()) {
      auto details = webgpu::details_of(adapter);
      details.emplace_back("profile", webgpu::describe(webgpu::profile_of(adapter)));
      devices.push_back({{Device::Kind::webgpu, adapter.index},
                         webgpu::describe(adapter),
                         adapter.type == webgpu::AdapterType::software,
                         std::move(details)});
    }
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
// Set in every program that uses a device, so that WEFT_DEVICE may name any device.
const bool resolver_is_set = (set_device_resolver(parse_device), true);
const bool random_ops_are_in_the_table = graph::add_family(runtime::random_family);
const bool distributions_are_in_the_table = graph::add_family(runtime::distribution_family);
const bool sized_ops_are_in_the_table = graph::add_family(runtime::sized_family);
const bool fractional_pools_are_in_the_table = graph::add_family(runtime::fractional_pool_family);
}  // namespace

void synchronize(Device device) { runtime::backend_of(device).synchronize(); }

}  // namespace weft
