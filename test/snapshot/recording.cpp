#include "snapshot/recording.hpp"

#include <fmt/format.h>

#include <cstring>
#include <map>
#include <utility>

#include "backend/cpu/backend.hpp"
#include "backend/cpu/quant/matmul.hpp"
#include "backend/webgpu/description.hpp"
#include "backend/webgpu/quantised_pack.hpp"
#include "backend/webgpu/render_plan.hpp"
#include "weft/error.hpp"

namespace weft::snapshot {
namespace {

class RecordedProgram final : public backend::Program {
 public:
  explicit RecordedProgram(const Recorded& record, std::size_t scratch) : text_(record.program), scratch_(scratch) {
    recorded().push_back(record);
  }
  void run(std::span<const backend::BufferPtr>) override {}
  std::string source() const override { return text_; }
  std::size_t scratch_bytes() const override { return scratch_; }

 private:
  std::string text_;
  std::size_t scratch_;
};

/// Memory of which only the size is known: what the host reads is zeros.
struct Nothing final : backend::Buffer {
  explicit Nothing(std::size_t bytes) : size(bytes) {}
  std::size_t bytes() const override { return size; }
  std::size_t size;
};

class Recording : public backend::Backend {
 public:
  explicit Recording(backend::Description description) : description_(std::move(description)) {}
  const backend::Description& describe() const override { return description_; }
  backend::BufferPtr allocate(std::size_t bytes, std::string_view) override { return std::make_shared<Nothing>(bytes); }
  void upload(backend::Buffer&, Extent, Extent, DType, const void*) override {}
  void download(backend::Buffer&, Extent, Extent count, DType type, void* host) override {
    if (count > 0) std::memset(host, 0, bytes_of(type, static_cast<std::size_t>(count)));
  }
  void synchronize() override {}

 private:
  backend::Description description_;
};

backend::Description without_memory_size(backend::Description description) {
  description.buffer_bytes_max = description.binding_bytes_max = std::size_t{64} << 30;
  return description;
}

/// Packs weights of which only the size is known.
struct PackingNothing final : backend::WeightPacking {
  PackingNothing(bool (*supported)(BlockType), std::size_t (*bytes)(BlockType, Extent, Extent))
      : supported(supported), bytes(bytes) {}
  bool supports(BlockType type) const override { return supported(type); }
  std::size_t packed_bytes(BlockType type, Extent n, Extent k) const override { return bytes(type, n, k); }
  void pack(BlockType, std::span<const std::byte>, Extent, Extent, backend::Buffer&,
            FunctionRef<void(std::span<const std::byte>)>) const override {}
  void unpack(BlockType, backend::Buffer&, Extent, Extent, std::span<std::byte>) const override {}
  bool (*supported)(BlockType);
  std::size_t (*bytes)(BlockType, Extent, Extent);
};

class RecordingCpu final : public Recording {
 public:
  explicit RecordingCpu(std::unique_ptr<backend::Backend> inner)
      : Recording(without_memory_size(inner->describe())), inner_(std::move(inner)) {}
  int storage_bits(DType type) const override { return inner_->storage_bits(type); }
  const backend::WeightPacking* weight_packing() const override {
    static const PackingNothing packing(cpu::QuantisedMatrix::supports, [](BlockType type, Extent n, Extent k) {
      return static_cast<std::size_t>(cpu::QuantisedMatrix::packed_bytes(type, n, k));
    });
    return &packing;
  }
  std::unique_ptr<backend::Program> compile(const kernel::Plan& plan) override {
    const std::unique_ptr<backend::Program> program = inner_->compile(plan);
    return std::make_unique<RecordedProgram>(Recorded{kernel::to_string(plan), program->source()},
                                             program->scratch_bytes());
  }

 private:
  std::unique_ptr<backend::Backend> inner_;
};

webgpu::AdapterInfo properties(Gpu gpu) {
  webgpu::AdapterInfo info;
  info.index = gpu == Gpu::desktop ? 0 : 1;
  info.name = gpu == Gpu::desktop ? "desktop" : "small";
  info.backend = "Vulkan";
  info.limits.offset_alignment = 256;
  if (gpu == Gpu::desktop) {  // as discrete GPUs of some years offer
    info.type = webgpu::AdapterType::discrete;
    info.f16 = info.subgroups = info.subgroup_size_control = info.timestamps = true;
    info.subgroup_size_min = info.subgroup_size_max = 32;
    info.limits.buffer_bytes = std::uint64_t{16} << 30;
    info.limits.binding_bytes = std::uint64_t{2} << 30;
    info.limits.offset_alignment = 32;
    info.limits.storage_buffers = 16;
    info.limits.workgroup_bytes = 48 << 10;
    info.limits.workgroup_invocations = 1024;
    info.limits.workgroup_size_x = info.limits.workgroup_size_y = 1024;
    info.limits.workgroup_size_z = 64;
  } else {  // the least that WebGPU promises, no subgroups
    info.type = webgpu::AdapterType::integrated;
    info.limits.buffer_bytes = 256 << 20;
    info.limits.binding_bytes = 128 << 20;
    info.limits.storage_buffers = 8;
    info.limits.workgroup_bytes = 32 << 10;
    info.limits.workgroup_invocations = 256;
    info.limits.workgroup_size_x = info.limits.workgroup_size_y = 256;
    info.limits.workgroup_size_z = 64;
  }
  return info;
}

/// Dispatches in order, the text of each once.
std::string text_of(const webgpu::RenderedPlan& plan) {
  std::string text;
  std::map<std::string, std::size_t> shader_of;
  for (std::size_t i = 0; i < plan.dispatches.size(); ++i) {
    const webgpu::RenderedDispatch& dispatch = plan.dispatches[i];
    const auto [found, is_new] = shader_of.try_emplace(dispatch.shader.text(), shader_of.size());
    text += fmt::format("dispatch {} {}: shader {}, {} workgroups{}\n", i, dispatch.name, found->second,
                        dispatch.workgroups, dispatch.beside_previous ? ", beside the one before" : "");
    for (const webgpu::BoundRange& range : dispatch.bindings)
      text += fmt::format("  buffer {} from {}, {} bytes{}\n", range.buffer, range.offset, range.bytes,
                          range.written ? ", written" : "");
    if (is_new) text += fmt::format("shader {}\n{}\n", found->second, found->first);
  }
  for (std::size_t i = 0; i < plan.scratch_bytes.size(); ++i)
    text += fmt::format("scratch {}: {} bytes\n", i, plan.scratch_bytes[i]);
  return text;
}

class RecordingWebgpu final : public Recording {
 public:
  explicit RecordingWebgpu(const webgpu::AdapterInfo& info)
      : Recording(webgpu::description_of(info)), target_(webgpu::target_of(info)) {}
  const backend::WeightPacking* weight_packing() const override {
    static const PackingNothing packing(webgpu::has_quantised_products, [](BlockType type, Extent n, Extent k) {
      return static_cast<std::size_t>(webgpu::quant_layout(webgpu::quant_form(type), n, k).words) * 4;
    });
    return &packing;
  }
  int storage_bits(DType type) const override {
    if (element(type).wgsl.empty()) throw DTypeError("snapshot: the type does not exist on GPUs");
    return type == DType::boolean ? 32 : element(type).bits;
  }
  std::unique_ptr<backend::Program> compile(const kernel::Plan& plan) override {
    webgpu::Target target = target_;
    target.tested.meetings = target.unroll && target.subgroup_size > 0 && webgpu::is_short_pass(plan);
    const webgpu::RenderedPlan rendered = webgpu::render_plan(plan, target);
    std::size_t scratch = 0;
    for (const std::uint64_t bytes : rendered.scratch_bytes) scratch += bytes;
    return std::make_unique<RecordedProgram>(Recorded{kernel::to_string(plan), text_of(rendered)}, scratch);
  }

 private:
  webgpu::Target target_;
};

}  // namespace

std::vector<Recorded>& recorded() {
  static std::vector<Recorded> all;
  return all;
}
std::unique_ptr<backend::Backend> recording_cpu() { return std::make_unique<RecordingCpu>(cpu::make_cpu_backend()); }
std::unique_ptr<backend::Backend> recording_webgpu(Gpu gpu) {
  return std::make_unique<RecordingWebgpu>(properties(gpu));
}

}  // namespace weft::snapshot
