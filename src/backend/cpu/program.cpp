#include "backend/cpu/program.hpp"

#include <algorithm>
#include <chrono>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include <fmt/format.h>

#include "backend/cpu/backend.hpp"
#include "backend/cpu/prepared.hpp"
#include "backend/cpu/schedule.hpp"
#include "base/stages.hpp"
#include "weft/error.hpp"

namespace weft::cpu {
namespace {

class CpuProgram final : public backend::Program {
 public:
  explicit CpuProgram(const kernel::Plan& plan) : buffers_(plan.buffers), kernels_(prepare(plan)) {
    for (const kernel::BufferInfo& info : buffers_) {
      scratch_.push_back(info.external < 0 ? allocate_memory(info.bytes, info.label) : nullptr);
      if (info.external < 0) scratch_bytes_ += info.bytes;
    }
    memory_.resize(buffers_.size());
    names_.reserve(plan.kernels.size());
    for (const kernel::Kernel& k : plan.kernels)
      names_.push_back(std::visit([](const auto& each) { return each.name; }, k));
    divide(plan);
  }

  void run(std::span<const backend::BufferPtr> externals) override {
    bind(externals);
    auto section = sections_.begin();
    for (std::size_t i = 0; i < kernels_.size();) {
      if (section != sections_.end() && section->begin == i) {
        run_section(*section);
        i = (section++)->end;
      } else {
        kernels_[i++].prepared->run();
      }
    }
  }
  std::vector<backend::KernelTime> profile(std::span<const backend::BufferPtr> externals) override {
    using Clock = std::chrono::steady_clock;
    bind(externals);
    std::vector<backend::KernelTime> times;
    const auto first = Clock::now();
    const auto microseconds = [](Clock::duration d) { return std::chrono::duration<double, std::micro>(d).count(); };
    for (const PreparedKernels& each : kernels_)
      for (std::size_t k = 0; k < each.count; ++k) {
        const auto start = Clock::now();
        each.prepared->run_kernel(k);
        times.push_back({names_[each.first + k],
                         microseconds(start - first),
                         microseconds(Clock::now() - start),
                         {static_cast<int>(each.first + k)}});
      }
    return times;
  }
  std::string source() const override {
    std::string text;
    for (const PreparedKernels& each : kernels_) text += each.prepared->to_string();
    return text;
  }
  std::size_t scratch_bytes() const override {
    std::size_t bytes = scratch_bytes_;
    for (const PreparedKernels& each : kernels_) bytes += each.prepared->scratch_bytes();
    return bytes;
  }

 private:
  /// Neighbours [begin, end) of `kernels_` that run as one list of stages.
  struct Section {
    std::size_t begin, end;
    struct Part {
      Prepared* prepared;
      int stage;
    };
    std::vector<Part> parts;
    Stages stages;
  };
  void divide(const kernel::Plan& plan) {
    for (std::size_t begin = 0, end; begin < kernels_.size(); begin = std::max(end, begin + 1)) {
      const std::size_t first = kernels_[begin].first;
      for (end = begin; end < kernels_.size() && kernels_[end].prepared->stages() > 0; ++end)
        if (is_written(plan, first, kernels_[end].first, kernels_[end].prepared->read_at_start())) break;
      if (end < begin + 2) continue;
      const PreparedKernels& last = kernels_[end - 1];
      const std::vector<int> needed = last_needed(plan, first, last.first + last.count);
      std::vector<Section::Part> parts;
      std::vector<Stage> stages;
      std::vector<int> last_stage;  // for each kernel
      for (std::size_t i = begin; i < end; ++i) {
        const PreparedKernels& each = kernels_[i];
        int after = -1;
        for (std::size_t k = each.first; k < each.first + each.count; ++k)
          if (const int need = needed[k - first]; need >= 0)
            after = std::max(after, last_stage[static_cast<std::size_t>(need)]);
        for (int stage = 0; stage < each.prepared->stages(); ++stage) {
          parts.push_back({each.prepared.get(), stage});
          stages.push_back({each.prepared->tasks(stage), after, each.prepared->is_streamed()});
          after = static_cast<int>(stages.size()) - 1;
        }
        last_stage.insert(last_stage.end(), each.count, static_cast<int>(stages.size()) - 1);
      }
      sections_.push_back({begin, end, std::move(parts), Stages(std::move(stages))});
    }
  }
  void run_section(Section& section) {
    for (std::size_t i = section.begin; i < section.end; ++i) kernels_[i].prepared->start();
    const auto part = [&](int stage) -> const Section::Part& { return section.parts[static_cast<std::size_t>(stage)]; };
    section.stages.run(
        [&](int stage, std::int64_t task) { part(stage).prepared->run_task(part(stage).stage, task); },
        [&](int stage, std::int64_t task, int piece) { return part(stage).prepared->ask_ahead(task, piece); });
  }

  void bind(std::span<const backend::BufferPtr> externals) {
    for (std::size_t i = 0; i < buffers_.size(); ++i) {
      const kernel::BufferInfo& info = buffers_[i];
      backend::Buffer* buffer = scratch_[i].get();
      if (info.external >= 0) {
        const auto ordinal = static_cast<std::size_t>(info.external);
        buffer = ordinal < externals.size() ? externals[ordinal].get() : nullptr;
        if (buffer == nullptr || buffer->bytes() < info.bytes)
          throw InternalError(fmt::format("cpu: external buffer {} (\"{}\", {} bytes) is missing or too small", ordinal,
                                          info.label, info.bytes));
      }
      memory_[i] = reinterpret_cast<char*>(memory_of(*buffer).data());
    }
    const Memory memory(memory_);
    for (const PreparedKernels& each : kernels_) each.prepared->bind(memory);
  }

  std::vector<kernel::BufferInfo> buffers_;
  std::vector<PreparedKernels> kernels_;
  std::vector<backend::BufferPtr> scratch_;
  std::size_t scratch_bytes_ = 0;
  std::vector<char*> memory_;       // for each buffer, in this run
  std::vector<std::string> names_;  // of the plan's kernels
  std::vector<Section> sections_;   // in order
};

}  // namespace

std::unique_ptr<backend::Program> make_program(const kernel::Plan& plan) { return std::make_unique<CpuProgram>(plan); }

}  // namespace weft::cpu
