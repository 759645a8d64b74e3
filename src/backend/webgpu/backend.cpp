#include "backend/webgpu/backend.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <future>
#include <numeric>
#include <unordered_map>
#include <utility>
#include <vector>

#include "backend/webgpu/buffer.hpp"
#include "backend/webgpu/command_sequence.hpp"
#include "backend/webgpu/description.hpp"
#include "backend/webgpu/measure_profile.hpp"
#include "backend/webgpu/meetings.hpp"
#include "backend/webgpu/quantised_packing.hpp"
#include "backend/webgpu/render_plan.hpp"
#include "backend/webgpu/staging.hpp"
#include "backend/webgpu/tested_facts.hpp"
#include "backend/webgpu/wgsl/quantised.hpp"
#include "base/background.hpp"
#include "graph/cache.hpp"
#include "graph/recurrence.hpp"
#include "tensor/element.hpp"
#include "weft/error.hpp"

namespace weft::webgpu {
namespace {

constexpr std::uint64_t kLargePlanBytes = 256 << 20;

std::uint64_t own_bytes(const kernel::Plan& plan) {
  return std::accumulate(plan.buffers.begin(), plan.buffers.end(), std::uint64_t{0},
                         [](std::uint64_t sum, const kernel::BufferInfo& buffer) {
                           return sum + (buffer.external >= 0 ? 0 : buffer.bytes);
                         });
}

class CompiledPlan final : public backend::Program {
 public:
  /// `target` may change: if workgroups do not run at once, nothing is resident. `single`: resident dispatches have one workgroup.
  CompiledPlan(const std::shared_ptr<Device>& device, Meetings& meetings, bool single, const kernel::Plan& plan,
               Target target) {
    if (try_compile(device, meetings, single, plan, target)) return;
    target.tested.meetings = false;
    try_compile(device, meetings, single, plan, target);
  }

  void run(std::span<const backend::BufferPtr> externals) override { program_->run(externals); }
  std::vector<backend::KernelTime> profile(std::span<const backend::BufferPtr> externals) override {
    std::vector<backend::KernelTime> times = program_->profile(externals);
    for (std::size_t i = 0; i < times.size(); ++i) times[i].kernels = kernels_[i];
    return times;
  }
  std::string source() const override {
    std::string text;
    for (const Shader& shader : program_->shaders()) text += fmt::format("// {}\n{}\n", shader.name, shader.text);
    return text;
  }
  std::size_t scratch_bytes() const override { return scratch_bytes_; }

 private:
  /// Returns false, without a program, if dispatches of the plan need workgroups that run at once, and they do not.
  bool try_compile(const std::shared_ptr<Device>& device, Meetings& meetings, bool single, const kernel::Plan& plan,
                   const Target& target) {
    Recording recording;
    const RenderedPlan rendered = render_plan(plan, target);
    const int meeting_slot = static_cast<int>(plan.buffers.size() + rendered.scratch_bytes.size());
    std::unordered_map<std::string, int> shader_of;
    bool is_resident = false;
    kernels_.clear();
    for (const RenderedDispatch& dispatch : rendered.dispatches) {
      const auto [found, is_new] =
          shader_of.try_emplace(dispatch.shader.text(), static_cast<int>(recording.shaders.size()));
      if (is_new) {
        Shader shader{dispatch.name, found->first, {}};
        for (const BoundRange& range : dispatch.bindings) shader.read_only.push_back(!range.written);
        recording.shaders.push_back(std::move(shader));
      }
      Dispatch command{dispatch.name, found->second, {}, {}};
      command.repeats = dispatch.repeats;
      if (!dispatch.shader.resident)
        command.workgroups = fold_workgroups(dispatch.workgroups, target.limits.workgroups_per_dimension);
      for (const BoundRange& range : dispatch.bindings)
        command.bindings.push_back(
            {range.buffer == kMeetingBuffer ? meeting_slot : range.buffer, range.offset, range.bytes});
      recording.commands.emplace_back(std::move(command));
      kernels_.push_back(dispatch.kernels);
      is_resident |= dispatch.shader.resident;
    }
    const std::lock_guard lock(device->mutex());
    if (is_resident && !single) {
      device->pipelines().compile(recording.shaders);
      for (std::size_t i = 0; i < rendered.dispatches.size(); ++i) {
        const RenderedDispatch& dispatch = rendered.dispatches[i];
        auto& command = std::get<Dispatch>(recording.commands[i]);
        if (!dispatch.shader.resident) continue;
        command.workgroups.x = meetings.resident_groups(recording.shaders[static_cast<std::size_t>(command.shader)],
                                                        dispatch.workgroups, target.profile.compute_units);
        if (command.workgroups.x == 0) return false;
      }
    }
    // The buffers of a large plan are allocated (20 ms a gigabyte) while other threads compile. In wgpu-native, threads would
    // catch one another's errors.
    std::future<void> compilation;
    if (library().is_dawn && own_bytes(plan) >= kLargePlanBytes)
      compilation = run_beside([&] { device->pipelines().compile(recording.shaders); });
    const auto own = [&](std::uint64_t bytes, std::string_view label) {
      scratch_bytes_ += bytes;
      return Slot{Buffer::create(device, bytes, label)};
    };
    for (const kernel::BufferInfo& buffer : plan.buffers)
      recording.slots.push_back(buffer.external >= 0 ? Slot{nullptr, buffer.external}
                                                     : own(buffer.bytes, buffer.label));
    for (std::size_t i = 0; i < rendered.scratch_bytes.size(); ++i)
      recording.slots.push_back(own(rendered.scratch_bytes[i], fmt::format("scratch of kernels {}", i)));
    if (is_resident) recording.slots.push_back(Slot{meetings.buffer()});
    if (compilation.valid()) compilation.get();
    program_.emplace(device, std::move(recording));
    return true;
  }

  std::size_t scratch_bytes_ = 0;
  std::vector<std::vector<int>> kernels_;  // of each dispatch
  std::optional<webgpu::CommandSequence> program_;
};

/// Keeps the device alive, which may have no other owner at the end.
class WebgpuReadback final : public backend::Readback {
 public:
  WebgpuReadback(std::shared_ptr<Device> device, std::unique_ptr<Reading> reading)
      : device_(std::move(device)), reading_(std::move(reading)) {}
  ~WebgpuReadback() override {
    const std::lock_guard lock(device_->mutex());
    reading_.reset();
  }
  void finish(void* host) override {
    const std::lock_guard lock(device_->mutex());
    reading_->finish(host);
  }

 private:
  std::shared_ptr<Device> device_;
  std::unique_ptr<Reading> reading_;
};

class WebgpuPacking final : public QuantisedPacking {
 public:
  void pack(BlockType type, std::span<const std::byte> blocks, Extent n, Extent k, backend::Buffer& to,
            FunctionRef<void(std::span<const std::byte> part)> before) const override {
    if (before) before(blocks);
    const std::vector<std::uint32_t> words = pack_quantised(type, blocks, n, k);
    if (!words.empty()) static_cast<Buffer&>(to).upload(0, words.data(), words.size() * 4);
  }
  void unpack(BlockType type, backend::Buffer& from, Extent n, Extent k, std::span<std::byte> blocks) const override {
    std::vector<std::uint32_t> words(packed_bytes(type, n, k) / 4);
    if (!words.empty()) static_cast<Buffer&>(from).download(0, words.data(), words.size() * 4);
    unpack_quantised(type, words, n, k, blocks);
  }
};

/// Whether the plan has a product that is large enough for a choice by measured figures. Plans without one never wait for a
/// measurement, and do not depend on it.
bool has_large_product(const kernel::Plan& plan) {
  constexpr double kLarge = 0x1p30;
  return std::any_of(plan.kernels.begin(), plan.kernels.end(), [](const kernel::Kernel& kernel) {
    const auto products = [](Extent batch, Extent m, Extent n, Extent k) {
      return static_cast<double>(batch * m * n) * static_cast<double>(k);
    };
    if (const auto* matmul = std::get_if<kernel::MatmulKernel>(&kernel))
      return products(matmul->batch, matmul->m, matmul->n, matmul->k) >= kLarge;
    const auto* packed = std::get_if<kernel::PackedMatmulKernel>(&kernel);
    return packed && packed->m > kFewRows && products(1, packed->m, packed->n, packed->k) >= kLarge;
  });
}

/// Whether tests of the device decide how some kernel runs: one that reads or may make halves, or multiplies bytes.
bool needs_facts(const kernel::Plan& plan) {
  bool found = false;
  for (const kernel::Kernel& kernel : plan.kernels) {
    const auto* product = std::get_if<kernel::MatmulKernel>(&kernel);
    found |= product && (product->precision != ProductPrecision::exact || product->a.type == DType::bf16 ||
                         product->b.type == DType::bf16 || element(product->a.type).bits == 8);
    const auto* packed = std::get_if<kernel::PackedMatmulKernel>(&kernel);
    found |= packed && !packed->exact && packed->m > kFewRows;  // its rows may become halves
    const auto* call = std::get_if<kernel::CallKernel>(&kernel);
    found |= call && call->op == &graph::cache_attention_row();
    const auto* attention = std::get_if<kernel::AttentionKernel>(&kernel);
    found |= attention && attention->q.operand.type == DType::bf16;
    kernel::visit_operands(kernel, [&](const kernel::Operand& operand, bool) { found |= operand.type == DType::f16; });
  }
  return found;
}

/// Whether the plan has cells along a sequence, whose workgroups may meet after each step.
bool has_recurrence(const kernel::Plan& plan) {
  return std::ranges::any_of(plan.kernels, [](const kernel::Kernel& kernel) {
    const auto* call = std::get_if<kernel::CallKernel>(&kernel);
    return call && (call->op == &graph::recurrence_row() || call->op == &graph::recurrence_backward_row());
  });
}

Residence default_residence() {
  const char* text = std::getenv("WEFT_WEBGPU_RESIDENT");
  if (!text || !*text || std::string_view(text) == "tested") return Residence::tested;
  if (std::string_view(text) == "off") return Residence::off;
  if (std::string_view(text) == "single") return Residence::single;
  throw UsageError(fmt::format("WEFT_WEBGPU_RESIDENT is \"{}\"; it can be off, tested or single", text));
}

class WebgpuBackend final : public backend::Backend {
 public:
  WebgpuBackend(std::shared_ptr<Device> device, const BackendOptions& options)
      : device_(std::move(device)),
        profiles_(device_, options.profile),
        facts_(device_),
        meetings_(device_),
        residence_(options.residence ? *options.residence : default_residence()),
        target_(target_of(device_->info())),
        description_(description_of(device_->info())) {
    target_.profile = profiles_.assumed();
  }

  const backend::Description& describe() const override { return description_; }

  int storage_bits(DType type) const override {
    if (element(type).wgsl.empty()) unsupported(type);
    return type == DType::boolean ? 32 : element(type).bits;
  }

  backend::BufferPtr allocate(std::size_t bytes, std::string_view label) override {
    return Buffer::create(device_, bytes, label);
  }

  void upload(backend::Buffer& to, Extent first, Extent count, DType type, const void* host) override {
    Buffer& buffer = own(to);
    const std::uint64_t offset = storage_bytes(type, first);
    const auto n = static_cast<std::size_t>(count);
    if (type != DType::boolean) return buffer.upload(offset, host, bytes_of(type, n));
    const auto* bytes = static_cast<const unsigned char*>(host);
    std::vector<std::uint32_t> words(n);
    std::transform(bytes, bytes + n, words.begin(), [](unsigned char byte) { return byte != 0 ? 1u : 0u; });
    buffer.upload(offset, words.data(), n * 4);
  }

  void download(backend::Buffer& from, Extent first, Extent count, DType type, void* host) override {
    const Buffer& buffer = own(from);
    const auto n = static_cast<std::size_t>(count);
    if (is_packed(type)) {  // from the whole byte before, then shifted
      const auto before = static_cast<std::size_t>(first % 8);
      std::vector<std::byte> bytes(bytes_of(type, before + n));
      buffer.download(storage_bytes(type, first / 8 * 8), bytes.data(), bytes.size());
      copy_elements(type, bytes.data(), before, host, 0, n);
      return clear_unused_bits(type, host, n);
    }
    const std::uint64_t offset = storage_bytes(type, first);
    if (type != DType::boolean) return buffer.download(offset, host, bytes_of(type, n));
    std::vector<std::uint32_t> words(n);
    buffer.download(offset, words.data(), n * 4);
    std::transform(words.begin(), words.end(), static_cast<unsigned char*>(host),
                   [](std::uint32_t word) { return static_cast<unsigned char>(word != 0); });
  }

  std::unique_ptr<backend::Readback> start_download(backend::Buffer& from, Extent first, Extent count) override {
    const Buffer& buffer = own(from);
    const std::lock_guard lock(device_->mutex());
    device_->check();
    return std::make_unique<WebgpuReadback>(
        device_, device_->staging().start_download(buffer.handle(), static_cast<std::uint64_t>(first) * 4,
                                                   static_cast<std::uint64_t>(count) * 4));
  }

  std::unique_ptr<backend::Program> compile(const kernel::Plan& plan) override {
    Target target = target_;
    if (target.unroll && has_large_product(plan)) target.profile = profiles_.measured();
    const bool single = residence_ == Residence::single;
    target.is_short = single || is_short_pass(plan);
    const bool may_meet = residence_ == Residence::tested && (target.is_short || has_recurrence(plan));
    if (may_meet || needs_facts(plan)) target.tested = facts_.facts();
    if (!may_meet) target.tested.meetings = single;
    return std::make_unique<CompiledPlan>(device_, meetings_, single, plan, target);
  }

  void synchronize() override { device_->synchronize(); }
  const backend::WeightPacking* weight_packing() const override { return &packing_; }

 private:
  [[noreturn]] void unsupported(DType type) const {
    throw DTypeError(fmt::format("{}: {} does not exist on GPUs; cast it, or compute on the device cpu",
                                 description_.name, weft::name_of(type)));
  }
  Buffer& own(backend::Buffer& given) const {
    auto* buffer = dynamic_cast<Buffer*>(&given);
    if (!buffer || buffer->device() != device_)
      throw DeviceError(fmt::format("{}: the buffer is on another device; move it here first", description_.name));
    return *buffer;
  }

  std::shared_ptr<Device> device_;
  ProfileKeeper profiles_;
  FactsKeeper facts_;
  Meetings meetings_;
  const Residence residence_;
  Target target_;
  backend::Description description_;
  WebgpuPacking packing_;
};

}  // namespace

std::unique_ptr<backend::Backend> make_webgpu_backend(int adapter_index, const BackendOptions& options) {
  DeviceOptions device_options;
  if (options.validate) device_options.validate = *options.validate;
  if (options.cache_folder) device_options.cache_folder = *options.cache_folder;
  device_options.robust = options.robust;
  return std::make_unique<WebgpuBackend>(Device::open(adapter_index, device_options), options);
}

}  // namespace weft::webgpu
