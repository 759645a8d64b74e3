#include "backend/webgpu/backend.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <unordered_map>
#include <utility>
#include <vector>

#include "backend/webgpu/buffer.hpp"
#include "backend/webgpu/merge.hpp"
#include "backend/webgpu/program.hpp"
#include "backend/webgpu/render.hpp"
#include "backend/webgpu/staging.hpp"
#include "backend/webgpu/wgsl/cache.hpp"
#include "backend/webgpu/wgsl/quantised.hpp"
#include "weft/error.hpp"

namespace weft::webgpu {
namespace {

constexpr std::uint64_t kOwnScratchBytes = 8 << 20;
constexpr std::size_t kMergedDispatchesMaxRolled = 64;

/// Whether the kernel has an operand in one of these buffers.
bool touches(const kernel::Kernel& kernel, std::initializer_list<int> buffers) {
  const auto in = [&](const kernel::Operand& o) {
    return std::find(buffers.begin(), buffers.end(), o.buffer) != buffers.end();
  };
  const auto any = [&](const std::vector<kernel::Operand>& list) { return std::any_of(list.begin(), list.end(), in); };
  const auto loop = [&](const kernel::LoopKernel& k) { return any(k.inputs) || any(k.outputs); };
  if (const auto* k = std::get_if<kernel::LoopKernel>(&kernel)) return loop(*k);
  if (const auto* k = std::get_if<kernel::MatmulKernel>(&kernel))
    return (k->rows ? loop(*k->rows) : in(k->a)) || in(k->b) || (k->chosen && in(*k->chosen)) || loop(k->epilogue);
  if (const auto* k = std::get_if<kernel::RoutineKernel>(&kernel)) return any(k->reads) || in(k->out);
  return true;  // not looked into
}

bool writes(const kernel::Kernel& kernel, int buffer) {
  const auto any = [&](const std::vector<kernel::Operand>& list) {
    return std::any_of(list.begin(), list.end(), [&](const kernel::Operand& o) { return o.buffer == buffer; });
  };
  if (const auto* k = std::get_if<kernel::LoopKernel>(&kernel)) return any(k->outputs);
  if (const auto* k = std::get_if<kernel::MatmulKernel>(&kernel)) return any(k->epilogue.outputs);
  if (const auto* k = std::get_if<kernel::RoutineKernel>(&kernel)) return k->out.buffer == buffer;
  return true;
}

/// Renders the kernel at `at` together with a later one where both are one dispatch; gives the place of that one, or `at`.
std::size_t render_with_another(const kernel::Plan& plan, std::size_t at, const Target& target, Rendered& rendered) {
  constexpr std::size_t kFar = 6;
  const std::vector<kernel::Kernel>& kernels = plan.kernels;
  if (const auto* product = std::get_if<kernel::MatmulKernel>(&kernels[at])) {
    const auto* next = at + 1 < kernels.size() ? std::get_if<kernel::MatmulKernel>(&kernels[at + 1]) : nullptr;
    return next && render_packed_pair(*product, *next, target, rendered) ? at + 1 : at;
  }
  const auto* loop = std::get_if<kernel::LoopKernel>(&kernels[at]);
  if (!loop) return at;
  for (std::size_t later = at + 1; later < std::min(at + kFar, kernels.size()); ++later) {
    const auto* write = std::get_if<kernel::RoutineKernel>(&kernels[later]);
    if (!write || write->routine != ops::Routine::write_rows) continue;
    // The write moves ahead, so that nothing between may know its cache or its places.
    bool is_free = true;
    for (std::size_t between = at + 1; between < later; ++between)
      is_free = is_free && !touches(kernels[between], {write->out.buffer}) &&
                !writes(kernels[between], write->reads[2].buffer);
    if (is_free && render_written_loop(*loop, *write, target, rendered)) return later;
  }
  return at;
}

class CompiledPlan final : public backend::Program {
 public:
  CompiledPlan(std::shared_ptr<Device> device, const kernel::Plan& plan, const Target& target) {
    Recording recording;
    const auto own = [&](std::uint64_t bytes, std::string_view label) {
      scratch_bytes_ += bytes;
      return Slot{Buffer::create(device, bytes, label)};
    };
    int externals = 0;
    for (const kernel::BufferInfo& buffer : plan.buffers) {
      recording.slots.push_back(buffer.external >= 0 ? Slot{nullptr, buffer.external}
                                                     : own(buffer.bytes, buffer.label));
      externals = std::max(externals, buffer.external + 1);
    }
    const auto plan_buffers = static_cast<int>(plan.buffers.size());
    // Scratch of the kernels' own: little of it is a buffer for each, so that kernels can run side by side; the rest is
    // shared by all of them, which then run one after another.
    std::vector<std::uint64_t> scratch_bytes;
    std::vector<int> shared;
    std::vector<RenderedDispatch> dispatches;
    std::vector<bool> done(plan.kernels.size(), false);
    for (std::size_t at = 0; at < plan.kernels.size(); ++at) {
      if (done[at]) continue;
      Rendered rendered;
      const std::size_t with = render_with_another(plan, at, target, rendered);
      if (with == at) rendered = render(plan.kernels[at], plan_buffers, target);
      double operations = kernel::flops(plan.kernels[at]);
      if (with != at) operations += kernel::flops(plan.kernels[with]);
      done[with] = true;
      std::vector<int> slots;
      for (std::size_t i = 0; i < rendered.scratch_bytes.size(); ++i) {
        const std::uint64_t bytes = rendered.scratch_bytes[i];
        int& slot = slots.emplace_back(static_cast<int>(scratch_bytes.size()));
        if (bytes > kOwnScratchBytes) {
          if (i >= shared.size()) shared.resize(i + 1, -1);
          if (shared[i] < 0) shared[i] = slot;
          slot = shared[i];
        }
        if (slot == static_cast<int>(scratch_bytes.size())) scratch_bytes.push_back(0);
        scratch_bytes[static_cast<std::size_t>(slot)] = std::max(scratch_bytes[static_cast<std::size_t>(slot)], bytes);
      }
      for (RenderedDispatch& dispatch : rendered.dispatches) {
        dispatch.operations = operations;
        for (BoundRange& range : dispatch.bindings)
          if (range.buffer >= plan_buffers)
            range.buffer = plan_buffers + slots[static_cast<std::size_t>(range.buffer - plan_buffers)];
        dispatches.push_back(std::move(dispatch));
      }
    }
    // Compilers of software adapters take more than in proportion to the text: there only small plans are merged.
    if (target.unroll || dispatches.size() <= kMergedDispatchesMaxRolled)
      dispatches = merge_dispatches(std::move(dispatches), target);
    std::unordered_map<std::string, int> shader_of;
    for (RenderedDispatch& dispatch : dispatches) {
      const auto [found, is_new] = shader_of.try_emplace(dispatch.text, static_cast<int>(recording.shaders.size()));
      if (is_new) {
        Shader shader{dispatch.name, std::move(dispatch.text), {}};
        for (const BoundRange& range : dispatch.bindings) shader.read_only.push_back(!range.written);
        recording.shaders.push_back(std::move(shader));
      }
      Dispatch command{dispatch.name,
                       found->second,
                       {},
                       fold_workgroups(dispatch.workgroups, target.limits.workgroups_per_dimension)};
      for (const BoundRange& range : dispatch.bindings)
        command.bindings.push_back({range.buffer, range.offset, range.bytes});
      recording.commands.emplace_back(std::move(command));
    }
    for (std::size_t i = 0; i < scratch_bytes.size(); ++i)
      recording.slots.push_back(own(scratch_bytes[i], fmt::format("scratch of kernels {}", i)));
    program_.emplace(std::move(device), std::move(recording));
  }

  void run(std::span<const backend::BufferPtr> externals) override { program_->run(externals); }
  std::vector<backend::KernelTime> profile(std::span<const backend::BufferPtr> externals) override {
    return program_->profile(externals);
  }
  std::string source() const override {
    std::string text;
    for (const Shader& shader : program_->shaders()) text += fmt::format("// {}\n{}\n", shader.name, shader.text);
    return text;
  }
  std::size_t scratch_bytes() const override { return scratch_bytes_; }

 private:
  std::size_t scratch_bytes_ = 0;
  std::optional<webgpu::Program> program_;
};

/// Holds on to the device, which may have no other owner when it ends.
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

class WebgpuBackend final : public backend::Backend {
 public:
  explicit WebgpuBackend(std::shared_ptr<Device> device)
      : device_(std::move(device)), target_(target_of(device_->info())) {
    const AdapterInfo& info = device_->info();
    const Limits& limits = info.limits;
    description_.name = fmt::format("webgpu:{}", info.index);
    description_.hardware = webgpu::describe(info);
    description_.is_software = info.type == AdapterType::software;
    description_.dtypes = {DType::f32, DType::i32, DType::u32, DType::boolean};
    description_.buffer_bytes_max = limits.buffer_bytes;
    description_.binding_bytes_max = limits.binding_bytes;
    description_.offset_alignment = std::max(256u, limits.offset_alignment);
    description_.prefers_separate_buffers = true;
    description_.kernels_side_by_side = 6;
    description_.computed_rows_max = kFewRows;
    description_.operands_max = static_cast<int>(info.limits.storage_buffers);

    // H200, 384 heads x 256 positions x 64 channels: a step's attention takes 2.0 ms a layer fused, 0.8 as products.
    description_.attention_keys_fused = 128;
    description_.attention_score_bytes_max = std::size_t{256} << 20;
    const auto yes = [](bool is) { return is ? "yes" : "no"; };
    description_.details = {
        {"type", std::string(name_of(info.type))},
        {"backend", info.backend},
        {"vendor", info.vendor},
        {"architecture", info.architecture},
        {"driver", info.driver},
        {"subgroups",
         info.subgroups ? fmt::format("{} to {} threads", info.subgroup_size_min, info.subgroup_size_max) : "no"},
        {"f16", yes(info.f16)},
        {"tensor cores",
         info.subgroup_matrices.empty() ? "no" : fmt::format("{} shapes", info.subgroup_matrices.size())},
        {"timestamps", yes(info.timestamps)},
        {"workgroup memory", fmt::format("{} bytes", limits.workgroup_bytes)},
        {"workgroup size", fmt::format("{} threads", limits.workgroup_invocations)},
        {"storage buffers of a kernel", fmt::format("{}", limits.storage_buffers)},
    };
  }

  const backend::Description& describe() const override { return description_; }

  std::size_t storage_bytes(DType type) const override {
    if (type == DType::f64) unsupported();
    return 4;
  }

  backend::BufferPtr allocate(std::size_t bytes, std::string_view label) override {
    return Buffer::create(device_, bytes, label);
  }

  void upload(backend::Buffer& to, Extent first, Extent count, DType type, const void* host) override {
    Buffer& buffer = own(to);
    const std::uint64_t offset = static_cast<std::uint64_t>(first) * storage_bytes(type);
    const auto n = static_cast<std::size_t>(count);
    if (type != DType::boolean) return buffer.upload(offset, host, n * 4);
    const auto* bytes = static_cast<const unsigned char*>(host);
    std::vector<std::uint32_t> words(n);
    std::transform(bytes, bytes + n, words.begin(), [](unsigned char byte) { return byte != 0 ? 1u : 0u; });
    buffer.upload(offset, words.data(), n * 4);
  }

  void download(backend::Buffer& from, Extent first, Extent count, DType type, void* host) override {
    const Buffer& buffer = own(from);
    const std::uint64_t offset = static_cast<std::uint64_t>(first) * storage_bytes(type);
    const auto n = static_cast<std::size_t>(count);
    if (type != DType::boolean) return buffer.download(offset, host, n * 4);
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
    return std::make_unique<CompiledPlan>(device_, plan, target_);
  }

  void synchronize() override { device_->synchronize(); }

 private:
  [[noreturn]] void unsupported() const {
    throw DTypeError(
        fmt::format("{}: f64 does not exist on GPUs; cast to f32, or compute on the device cpu", description_.name));
  }
  Buffer& own(backend::Buffer& given) const {
    auto* buffer = dynamic_cast<Buffer*>(&given);
    if (!buffer || buffer->device() != device_)
      throw DeviceError(fmt::format("{}: the buffer lies on another device; move it here first", description_.name));
    return *buffer;
  }

  std::shared_ptr<Device> device_;
  Target target_;
  backend::Description description_;
};

}  // namespace

std::unique_ptr<backend::Backend> make_webgpu_backend(int adapter_index, const BackendOptions& options) {
  DeviceOptions device_options;
  if (options.validate) device_options.validate = *options.validate;
  if (options.cache_folder) device_options.cache_folder = *options.cache_folder;
  device_options.robust = options.robust;
  return std::make_unique<WebgpuBackend>(Device::open(adapter_index, device_options));
}

}  // namespace weft::webgpu
