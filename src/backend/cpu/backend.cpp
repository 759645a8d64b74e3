// The CPU backend: memory, and programs of prepared kernels that run in order.
#include "backend/cpu/backend.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <variant>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "backend/cpu/attention.hpp"
#include "backend/cpu/cache.hpp"
#include "backend/cpu/isa.hpp"
#include "backend/cpu/loop.hpp"
#include "backend/cpu/product.hpp"
#include "backend/cpu/sample.hpp"
#include "backend/cpu/scatter.hpp"
#include "backend/cpu/schedule.hpp"
#include "backend/cpu/unpack_rows.hpp"
#include "base/stages.hpp"
#include "base/threads.hpp"
#include "weft/error.hpp"

namespace weft::cpu {
namespace {

constexpr std::size_t kLine = 64, kPage = 4096, kHugePage = 2 << 20;

class CpuBuffer final : public backend::Buffer {
 public:
  CpuBuffer(std::shared_ptr<char> memory, std::size_t bytes) : memory_(std::move(memory)), bytes_(bytes) {}
  std::size_t bytes() const override { return bytes_; }
  char* data() const { return memory_.get(); }

 private:
  std::shared_ptr<char> memory_;
  std::size_t bytes_;
};

std::size_t physical_memory() {
  return static_cast<std::size_t>(sysconf(_SC_PHYS_PAGES)) * static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
}

std::shared_ptr<char> allocate_bytes(std::size_t bytes, std::string_view label) {
  const std::size_t limit = physical_memory();
  // Large buffers stand on huge pages, so that streaming through them rarely misses the address cache. Others of some size
  // begin with a page: of a cache, as many are in memory as were written to.
  const std::size_t alignment = bytes >= 2 * kHugePage ? kHugePage : bytes >= 16 * kPage ? kPage : kLine;
  void* memory = bytes > limit ? nullptr : std::aligned_alloc(alignment, (bytes + alignment) / alignment * alignment);
  if (memory == nullptr)
    throw DeviceError(fmt::format(
        "cpu: no memory for \"{}\": {} bytes asked for, {} in this machine; use smaller sizes", label, bytes, limit));
#if defined(MADV_HUGEPAGE)
  if (alignment == kHugePage) madvise(memory, bytes / alignment * alignment, MADV_HUGEPAGE);
#endif
  return {static_cast<char*>(memory), [](char* p) { std::free(p); }};
}

std::unique_ptr<CpuBuffer> allocate_memory(std::size_t bytes, std::string_view label) {
  return std::make_unique<CpuBuffer>(allocate_bytes(bytes, label), bytes);
}

char* memory_of(const backend::Buffer* buffer) {
  const auto* ours = dynamic_cast<const CpuBuffer*>(buffer);
  if (ours == nullptr) throw InternalError("cpu: a buffer is missing or belongs to another device");
  return ours->data();
}

/// A kernel with its operands by buffer.
struct LoopPrepared {
  LoopProgram program;
  std::vector<kernel::Operand> inputs, outputs;
  std::vector<char*> input_pointers, output_pointers;
};
struct ProductPrepared {
  ProductProgram program;
  kernel::Operand a, b;
  std::vector<kernel::Operand> inputs, outputs;
  std::vector<char*> input_pointers, output_pointers;
};
using Prepared = std::variant<LoopPrepared, ProductPrepared, kernel::ScatterAddKernel, kernel::AttentionKernel,
                              kernel::RoutineKernel>;

class CpuProgram final : public backend::Program {
 public:
  explicit CpuProgram(const kernel::Plan& plan) : buffers_(plan.buffers) {
    for (const kernel::BufferInfo& info : buffers_) {
      scratch_.push_back(info.external < 0 ? allocate_memory(info.bytes, info.label) : nullptr);
      if (info.external < 0) scratch_bytes_ += info.bytes;
    }
    memory_.resize(buffers_.size());
    kernels_.reserve(plan.kernels.size());
    names_.reserve(plan.kernels.size());
    for (const kernel::Kernel& k : plan.kernels) {
      names_.push_back(std::visit([](const auto& each) { return each.name; }, k));
      std::visit([&](const auto& each) { prepare(each); }, k);
    }
    group();
    divide(plan);
  }

  void run(std::span<const backend::BufferPtr> externals) override {
    bind(externals);
    auto section = sections_.begin();
    for (std::size_t i = 0; i < kernels_.size();) {
      if (section != sections_.end() && section->begin == i) {
        run_section(*section);
        i = (section++)->end;
        continue;
      }
      if (together_[i] > 1)
        run_together(i, together_[i]);
      else
        run_one(kernels_[i]);
      i += together_[i];
    }
  }
  std::vector<backend::KernelTime> profile(std::span<const backend::BufferPtr> externals) override {
    using Clock = std::chrono::steady_clock;
    bind(externals);
    std::vector<backend::KernelTime> times;
    for (std::size_t i = 0; i < kernels_.size(); ++i) {
      const auto start = Clock::now();
      run_one(kernels_[i]);
      times.push_back({names_[i], std::chrono::duration<double, std::micro>(Clock::now() - start).count()});
    }
    return times;
  }
  std::string source() const override {
    std::string text;
    for (std::size_t i = 0; i < kernels_.size(); ++i) {
      if (const auto* loop = std::get_if<LoopPrepared>(&kernels_[i]))
        text += loop->program.to_string();
      else if (const auto* product = std::get_if<ProductPrepared>(&kernels_[i]))
        text += product->program.to_string();
      else if (const auto* s = std::get_if<kernel::ScatterAddKernel>(&kernels_[i]))
        text += fmt::format("scatter-add {}: {} rows of {} into {}\n", s->name, s->count, s->columns, s->rows);
      else if (const auto* a = std::get_if<kernel::AttentionKernel>(&kernels_[i]))
        text += fmt::format("attention {}{} {}: {} x {} heads, {} queries, {} keys, width {}\n",
                            a->causal ? "causal " : "", a->backward ? "backward" : "forward", a->name, a->batch,
                            a->heads, a->queries, a->keys, a->width);
      else if (const auto* r = std::get_if<kernel::RoutineKernel>(&kernels_[i]))
        text += fmt::format("routine {}: {}\n", r->name, fmt::join(r->attributes, " "));
    }
    return text;
  }
  std::size_t scratch_bytes() const override {
    std::size_t bytes = scratch_bytes_;
    for (const Prepared& each : kernels_)
      if (const auto* product = std::get_if<ProductPrepared>(&each)) bytes += product->program.scratch_bytes();
    return bytes;
  }

 private:
  /// Neighbouring products with packed weights that read the same rows (queries, keys and values) run as one.
  void group() {
    together_.assign(kernels_.size(), 1);
    for (std::size_t i = 0; i < kernels_.size(); i += together_[i]) {
      std::vector<const ProductProgram*> members;
      for (std::size_t j = i; j < kernels_.size(); ++j) {
        const auto* product = std::get_if<ProductPrepared>(&kernels_[j]);
        if (!product || (j > i && !product->program.runs_with(members))) break;
        members.push_back(&product->program);
      }
      together_[i] = std::max<std::size_t>(1, members.size());
    }
  }
  void run_together(std::size_t first, std::size_t count) {
    std::vector<ProductProgram::PackedCall> calls;
    for (std::size_t i = first; i < first + count; ++i) {
      auto& product = std::get<ProductPrepared>(kernels_[i]);
      calls.push_back({&product.program, at(product.b), bind_loop(product)});
    }
    ProductProgram::run_packed(calls, at(std::get<ProductPrepared>(kernels_[first]).a));
  }

  /// Neighbouring kernels that are made of tasks, which run as one list of stages.
  struct Section {
    std::size_t begin, end;
    struct Part {
      std::size_t kernel;
      int stage;  // of the kernel
    };
    std::vector<Part> parts;
    Stages stages;
  };
  /// Stages of a kernel that is made of tasks, else 0.
  int stages_of(std::size_t i) const {
    if (const auto* loop = std::get_if<LoopPrepared>(&kernels_[i])) return loop->program.stages();
    if (const auto* product = std::get_if<ProductPrepared>(&kernels_[i])) return product->program.tasks() > 0 ? 1 : 0;
    return std::holds_alternative<kernel::AttentionKernel>(kernels_[i]) ? 1 : 0;
  }
  Extent tasks_of(std::size_t i, int stage) const {
    if (const auto* loop = std::get_if<LoopPrepared>(&kernels_[i])) return loop->program.tasks(stage);
    if (const auto* product = std::get_if<ProductPrepared>(&kernels_[i])) return product->program.tasks();
    return attention_tasks(std::get<kernel::AttentionKernel>(kernels_[i]));
  }
  void divide(const kernel::Plan& plan) {
    for (std::size_t begin = 0, end; begin < kernels_.size(); begin = std::max(end, begin + 1)) {
      for (end = begin; end < kernels_.size() && stages_of(end) > 0;) ++end;
      if (end < begin + 2) continue;
      const std::vector<int> needed = last_needed(plan, begin, end);
      std::vector<Section::Part> parts;
      std::vector<Stage> stages;
      std::vector<int> last_stage;  // of each kernel
      for (std::size_t i = begin; i < end; ++i) {
        const int need = needed[i - begin];
        int after = need < 0 ? -1 : last_stage[static_cast<std::size_t>(need)];
        for (int stage = 0; stage < stages_of(i); ++stage) {
          parts.push_back({i, stage});
          stages.push_back({tasks_of(i, stage), after});
          after = static_cast<int>(stages.size()) - 1;
        }
        last_stage.push_back(static_cast<int>(stages.size()) - 1);
      }
      sections_.push_back({begin, end, std::move(parts), Stages(std::move(stages))});
    }
  }
  void run_section(Section& section) {
    for (std::size_t i = section.begin; i < section.end; ++i) {
      if (auto* loop = std::get_if<LoopPrepared>(&kernels_[i])) {
        bind_loop(*loop);
        loop->program.start();
      } else if (auto* product = std::get_if<ProductPrepared>(&kernels_[i])) {
        product->program.start(at(product->a), at(product->b), bind_loop(*product));
      }
    }
    section.stages.run([&](int stage, std::int64_t task) {
      const Section::Part& part = section.parts[static_cast<std::size_t>(stage)];
      Prepared& each = kernels_[part.kernel];
      if (auto* loop = std::get_if<LoopPrepared>(&each)) {
        loop->program.run_task({loop->input_pointers, loop->output_pointers, nullptr}, part.stage, task);
      } else if (auto* product = std::get_if<ProductPrepared>(&each)) {
        product->program.run_task(task);
      } else {
        const auto& attention = std::get<kernel::AttentionKernel>(each);
        run_attention_task(attention, bind_attention(attention), task);
      }
    });
  }

  void prepare(const kernel::LoopKernel& k) {
    kernels_.emplace_back(LoopPrepared{LoopProgram(k), k.inputs, k.outputs, {}, {}});
  }
  void prepare(const kernel::MatmulKernel& k) {
    kernels_.emplace_back(ProductPrepared{ProductProgram(k), k.a, k.b, k.epilogue.inputs, k.epilogue.outputs, {}, {}});
  }
  void prepare(const kernel::ScatterAddKernel& k) { kernels_.emplace_back(k); }
  void prepare(const kernel::AttentionKernel& k) { kernels_.emplace_back(k); }
  void prepare(const kernel::RoutineKernel& k) { kernels_.emplace_back(k); }

  void bind(std::span<const backend::BufferPtr> externals) {
    for (std::size_t i = 0; i < buffers_.size(); ++i) {
      const kernel::BufferInfo& info = buffers_[i];
      if (info.external < 0) {
        memory_[i] = scratch_[i]->data();
        continue;
      }
      const auto ordinal = static_cast<std::size_t>(info.external);
      if (ordinal >= externals.size() || externals[ordinal] == nullptr || externals[ordinal]->bytes() < info.bytes)
        throw InternalError(fmt::format("cpu: external buffer {} (\"{}\", {} bytes) is missing or too small", ordinal,
                                        info.label, info.bytes));
      memory_[i] = memory_of(externals[ordinal].get());
    }
  }
  char* at(const kernel::Operand& operand) const {
    if (operand.buffer < 0) return nullptr;
    return memory_[static_cast<std::size_t>(operand.buffer)] +
           operand.offset * static_cast<Extent>(size_bytes(operand.type));
  }
  template <class Each>
  LoopBinding bind_loop(Each& each) const {
    each.input_pointers.clear();
    each.output_pointers.clear();
    for (const kernel::Operand& operand : each.inputs) each.input_pointers.push_back(at(operand));
    for (const kernel::Operand& operand : each.outputs) each.output_pointers.push_back(at(operand));
    return {each.input_pointers, each.output_pointers, nullptr};
  }
  AttentionBinding bind_attention(const kernel::AttentionKernel& a) const {
    return {at(a.q.operand),   at(a.k.operand),   at(a.v.operand),   at(a.o.operand),  at(a.logsumexp),
            at(a.d_o.operand), at(a.d_q.operand), at(a.d_k.operand), at(a.d_v.operand)};
  }
  void run_one(Prepared& each) {
    if (auto* loop = std::get_if<LoopPrepared>(&each)) {
      loop->program.run(bind_loop(*loop));
    } else if (auto* product = std::get_if<ProductPrepared>(&each)) {
      product->program.run(at(product->a), at(product->b), bind_loop(*product));
    } else if (const auto* scatter = std::get_if<kernel::ScatterAddKernel>(&each)) {
      run_scatter_add(*scatter, at(scatter->indices), at(scatter->updates), at(scatter->out));
    } else if (const auto* a = std::get_if<kernel::AttentionKernel>(&each)) {
      run_attention(*a, bind_attention(*a));
    } else if (const auto* routine = std::get_if<kernel::RoutineKernel>(&each)) {
      std::vector<char*> reads;
      for (const kernel::Operand& operand : routine->reads) reads.push_back(at(operand));
      switch (routine->routine) {
        case ops::Routine::write_rows: return run_write_rows(*routine, reads, at(routine->out));
        case ops::Routine::cache_attention: return run_cache_attention(*routine, reads, at(routine->out));
        case ops::Routine::unpack_rows: return run_unpack_rows(*routine, reads, at(routine->out));
        case ops::Routine::sample_token: return run_sample_token(*routine, reads, at(routine->out));
      }
    }
  }

  std::vector<kernel::BufferInfo> buffers_;
  std::vector<std::unique_ptr<CpuBuffer>> scratch_;
  std::size_t scratch_bytes_ = 0;
  std::vector<char*> memory_;  // of each buffer, in this run
  std::vector<std::string> names_;
  std::vector<Prepared> kernels_;
  std::vector<std::size_t> together_;  // kernels that run as one from here on
  std::vector<Section> sections_;      // in order
};

std::string processor_name() {
  std::ifstream info("/proc/cpuinfo");
  for (std::string line; std::getline(info, line);)
    if (line.starts_with("model name"))
      if (const auto colon = line.find(": "); colon != std::string::npos) return line.substr(colon + 2);
  return "unknown processor";
}

class CpuBackend final : public backend::Backend {
 public:
  CpuBackend() {
    description_.name = "cpu";
    description_.hardware = fmt::format("{} ({}, {} threads)", processor_name(), name(isa()), thread_count());
    description_.dtypes.assign(std::begin(kAllDTypes), std::end(kAllDTypes));
    description_.buffer_bytes_max = description_.binding_bytes_max = physical_memory();
    description_.offset_alignment = kLine;
    description_.details = {{"instruction set", name(isa())},
                            {"threads", std::to_string(thread_count())},
                            {"memory", fmt::format("{:.1f} GiB", static_cast<double>(physical_memory()) / (1 << 30))}};
  }
  const backend::Description& describe() const override { return description_; }
  std::size_t storage_bytes(DType type) const override { return size_bytes(type); }
  backend::BufferPtr allocate(std::size_t bytes, std::string_view label) override {
    return allocate_memory(bytes, label);
  }

  void upload(backend::Buffer& to, Extent first, Extent count, DType type, const void* host) override {
    char* at = range(to, first, count, type);
    if (count == 0) return;  // host may be null, which memcpy must not see
    if (type != DType::boolean) {
      std::memcpy(at, host, static_cast<std::size_t>(count) * size_bytes(type));
      return;
    }
    const auto* from = static_cast<const unsigned char*>(host);  // kernels rely on 0 and 1
    for (Extent i = 0; i < count; ++i) at[i] = from[i] != 0;
  }
  void download(backend::Buffer& from, Extent first, Extent count, DType type, void* host) override {
    const char* at = range(from, first, count, type);
    if (count > 0) std::memcpy(host, at, static_cast<std::size_t>(count) * size_bytes(type));
  }
  std::unique_ptr<backend::Program> compile(const kernel::Plan& plan) override {
    return std::make_unique<CpuProgram>(plan);
  }
  void synchronize() override {}  // programs run to their end

 private:
  static char* range(const backend::Buffer& buffer, Extent first, Extent count, DType type) {
    const std::size_t end = static_cast<std::size_t>(first + count) * size_bytes(type);
    if (first < 0 || count < 0 || end > buffer.bytes())
      throw InternalError(fmt::format("cpu: elements [{}, {}) of {} lie outside a buffer of {} bytes", first,
                                      first + count, name_of(type), buffer.bytes()));
    return memory_of(&buffer) + static_cast<std::size_t>(first) * size_bytes(type);
  }

  backend::Description description_;
};

}  // namespace

backend::BufferPtr WeightMemory::allocate(std::size_t bytes, std::string_view label) {
  const std::size_t rounded = (bytes + kLine - 1) / kLine * kLine;
  if (left_ < rounded) {
    // Only pages that are written to take memory, so that a piece may be too large.
    left_ = std::max(rounded, piece_bytes_);
    next_ = allocate_bytes(left_, label);
  }
  auto buffer = std::make_shared<CpuBuffer>(next_, bytes);
  next_ = {next_, next_.get() + rounded};
  left_ -= rounded;
  return buffer;
}

std::span<std::byte> memory_of(backend::Buffer& buffer) {
  return {reinterpret_cast<std::byte*>(memory_of(static_cast<const backend::Buffer*>(&buffer))), buffer.bytes()};
}

std::unique_ptr<backend::Backend> make_cpu_backend() { return std::make_unique<CpuBackend>(); }

}  // namespace weft::cpu
