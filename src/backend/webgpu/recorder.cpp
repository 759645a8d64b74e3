#include "backend/webgpu/recorder.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <unordered_map>
#include <utility>

#include "backend/webgpu/description.hpp"
#include "backend/webgpu/quantised_packing.hpp"
#include "backend/webgpu/render_plan.hpp"
#include "backend/webgpu/wgsl/quantised.hpp"
#include "tensor/element.hpp"
#include "weft/error.hpp"

namespace weft::webgpu {
namespace {

struct RecordedBuffer final : backend::Buffer {
  RecordedBuffer(int place, std::size_t bytes) : place(place), size(bytes) {}
  std::size_t bytes() const override { return size; }
  int place;
  std::size_t size;
};

int add_memory(Record& record, std::uint64_t bytes, std::string_view label) {
  record.memories.push_back({std::string(label), std::max<std::uint64_t>(16, (bytes + 15) / 16 * 16)});
  return static_cast<int>(record.memories.size()) - 1;
}

/// A plan's dispatches over its buffers; external ones are known at each run.
class RecordedProgram final : public backend::Program {
 public:
  RecordedProgram(std::shared_ptr<Record> record, std::unordered_map<std::string, int>& shader_of, const Target& target,
                  const kernel::Plan& plan)
      : record_(std::move(record)) {
    const RenderedPlan rendered = render_plan(plan, target);
    for (const kernel::BufferInfo& buffer : plan.buffers) {
      externals_.push_back(buffer.external);
      own_.push_back(buffer.external >= 0 ? -1 : add_own(buffer.bytes, buffer.label));
    }
    for (const std::uint64_t bytes : rendered.scratch_bytes) {
      externals_.push_back(-1);
      own_.push_back(add_own(bytes, "scratch"));
    }
    for (const RenderedDispatch& dispatch : rendered.dispatches) {
      const auto [found, is_new] =
          shader_of.try_emplace(dispatch.shader.text(), static_cast<int>(record_->shaders.size()));
      if (is_new) record_->shaders.push_back(shader_from(dispatch, found->first));
      RecordedRun run{.shader = found->second,
                      .workgroups = fold_workgroups(dispatch.workgroups, target.limits.workgroups_per_dimension),
                      .bindings = {}};
      for (const BoundRange& range : dispatch.bindings)
        run.bindings.push_back({range.buffer, range.offset, std::max<std::uint64_t>(4, (range.bytes + 3) / 4 * 4)});
      runs_.insert(runs_.end(), dispatch.repeats, run);
    }
  }

  void run(std::span<const backend::BufferPtr> externals) override {
    for (RecordedRun run : runs_) {
      const std::vector<bool>& read_only = record_->shaders[static_cast<std::size_t>(run.shader)].read_only;
      for (std::size_t i = 0; i < run.bindings.size(); ++i) {
        int& memory = run.bindings[i].memory;
        const auto at = static_cast<std::size_t>(memory);
        memory = externals_[at] < 0 ? own_[at] : Record::place_of(*externals[static_cast<std::size_t>(externals_[at])]);
        if (!read_only[i]) record_->memories[static_cast<std::size_t>(memory)].is_computed = true;
      }
      record_->steps.emplace_back(std::move(run));
    }
  }
  std::string source() const override {
    std::string text;
    int last = -1;
    for (const RecordedRun& run : runs_) {
      // A dispatch that is repeated has one text.
      if (run.shader != last) text += record_->shaders[static_cast<std::size_t>(run.shader)].text + "\n";
      last = run.shader;
    }
    return text;
  }
  std::size_t scratch_bytes() const override { return scratch_; }

 private:
  int add_own(std::uint64_t bytes, std::string_view label) {
    scratch_ += bytes;
    return add_memory(*record_, bytes, label);
  }
  static RecordedShader shader_from(const RenderedDispatch& dispatch, const std::string& text) {
    RecordedShader shader{.name = dispatch.name,
                          .text = text,
                          .read_only = {},
                          .threads = dispatch.shader.threads,
                          .shared_bytes = 0,
                          .subgroups = dispatch.shader.subgroups};
    for (const BoundRange& range : dispatch.bindings) shader.read_only.push_back(!range.written);
    for (const ShaderPieces::Shared& array : dispatch.shader.shared)
      shader.shared_bytes += static_cast<std::uint64_t>(shared_element_bytes(array.element) * array.count);
    return shader;
  }

  std::shared_ptr<Record> record_;
  std::vector<int> externals_, own_;  // of each buffer of the rendered plan
  std::vector<RecordedRun> runs_;     // whose ranges have numbers of the plan's buffers
  std::size_t scratch_ = 0;
};

class RecorderPacking final : public QuantisedPacking {
 public:
  explicit RecorderPacking(Record& record) : record_(record) {}
  void pack(BlockType type, std::span<const std::byte> blocks, Extent n, Extent k, backend::Buffer& to,
            FunctionRef<void(std::span<const std::byte> part)> before) const override {
    if (before) before(blocks);
    const std::vector<std::uint32_t> words = pack_quantised(type, blocks, n, k);
    const auto bytes = std::as_bytes(std::span(words));
    if (!bytes.empty())
      record_.steps.emplace_back(RecordedWrite{Record::place_of(to), 0, {bytes.begin(), bytes.end()}});
  }
  void unpack(BlockType, backend::Buffer&, Extent, Extent, std::span<std::byte>) const override {
    throw UsageError("weights on a device that only records its kernels cannot be read back");
  }

 private:
  Record& record_;
};

class Recorder final : public backend::Backend {
 public:
  Recorder(const AdapterInfo& adapter, std::shared_ptr<Record> record, RecorderReads reads)
      : record_(std::move(record)),
        reads_(reads),
        target_(target_of(adapter)),
        description_(description_of(adapter)),
        packing_(*record_) {}

  const backend::Description& describe() const override { return description_; }
  int storage_bits(DType type) const override {
    if (element(type).wgsl.empty())
      throw DTypeError(fmt::format("{} does not exist on GPUs; cast it to a type that does", name_of(type)));
    return type == DType::boolean ? 32 : element(type).bits;
  }
  backend::BufferPtr allocate(std::size_t bytes, std::string_view label) override {
    if (bytes > target_.limits.buffer_bytes)
      throw DeviceError(
          fmt::format("\"{}\" takes {} bytes, and one buffer holds at most {}; raise the limit, or use a smaller "
                      "batch",
                      label, bytes, target_.limits.buffer_bytes));
    return std::make_shared<RecordedBuffer>(add_memory(*record_, bytes, label), bytes);
  }
  void upload(backend::Buffer& to, Extent first, Extent count, DType type, const void* host) override {
    if (count == 0) return;
    RecordedWrite write{Record::place_of(to), storage_bytes(type, first), {}};
    const auto* bytes = static_cast<const std::byte*>(host);
    if (type == DType::boolean) {
      write.content.resize(static_cast<std::size_t>(count) * 4);
      for (std::size_t i = 0; i < static_cast<std::size_t>(count); ++i)
        write.content[4 * i] = std::byte{bytes[i] != std::byte{}};
    } else {
      write.content.assign(bytes, bytes + bytes_of(type, static_cast<std::size_t>(count)));
    }
    record_->steps.emplace_back(std::move(write));
  }
  void download(backend::Buffer& from, Extent first, Extent count, DType type, void* host) override {
    const int place = Record::place_of(from);
    if (!record_->memories[static_cast<std::size_t>(place)].is_computed)
      return read_written(place, first, count, type, static_cast<std::byte*>(host));
    if (reads_ == RecorderReads::error)
      throw UsageError(
          "the function reads a value while its kernels are recorded, and nothing has been computed; its steps must "
          "not "
          "depend on values");
    std::fill_n(static_cast<std::byte*>(host), bytes_of(type, static_cast<std::size_t>(count)), std::byte{});
  }
  std::unique_ptr<backend::Program> compile(const kernel::Plan& plan) override {
    return std::make_unique<RecordedProgram>(record_, shader_of_, target_, plan);
  }
  void synchronize() override {}
  const backend::WeightPacking* weight_packing() const override { return &packing_; }

 private:
  /// Elements as the host has written them.
  void read_written(int place, Extent first, Extent count, DType type, std::byte* host) const {
    std::vector<std::byte> memory(record_->memories[static_cast<std::size_t>(place)].bytes);
    for (const auto& step : record_->steps)
      if (const auto* write = std::get_if<RecordedWrite>(&step); write && write->memory == place)
        std::copy(write->content.begin(), write->content.end(),
                  memory.begin() + static_cast<std::ptrdiff_t>(write->offset));
    const auto n = static_cast<std::size_t>(count), at = static_cast<std::size_t>(first);
    if (type != DType::boolean) {
      copy_elements(type, memory.data(), at, host, 0, n);
      return clear_unused_bits(type, host, n);
    }
    for (std::size_t i = 0; i < n; ++i) host[i] = memory[4 * (at + i)];
  }

  std::shared_ptr<Record> record_;
  const RecorderReads reads_;
  std::unordered_map<std::string, int> shader_of_;  // by text
  Target target_;
  backend::Description description_;
  RecorderPacking packing_;
};

}  // namespace

int Record::place_of(const backend::Buffer& buffer) {
  const auto* mine = dynamic_cast<const RecordedBuffer*>(&buffer);
  if (!mine) throw InternalError("recorder: a buffer of another backend");
  return mine->place;
}

std::unique_ptr<backend::Backend> make_recorder(const AdapterInfo& adapter, std::shared_ptr<Record> record,
                                                RecorderReads reads) {
  return std::make_unique<Recorder>(adapter, std::move(record), reads);
}

}  // namespace weft::webgpu
