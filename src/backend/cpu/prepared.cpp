#include "backend/cpu/prepared.hpp"

#include <utility>
#include <variant>

#include <fmt/format.h>

#include "backend/cpu/attention.hpp"
#include "backend/cpu/calls.hpp"
#include "backend/cpu/column_gather.hpp"
#include "backend/cpu/column_softmax.hpp"
#include "backend/cpu/packed_products.hpp"
#include "backend/cpu/product.hpp"
#include "backend/cpu/scatter.hpp"
#include "backend/cpu/scatter_rows.hpp"
#include "backend/cpu/turned_copy.hpp"
#include "weft/error.hpp"

namespace weft::cpu {
namespace {

class PreparedLoop final : public Prepared {
 public:
  explicit PreparedLoop(const kernel::LoopKernel& kernel) : program_(kernel), operands_(kernel) {}
  void bind(const Memory& memory) override { operands_.bind(memory); }
  void run() override { program_.run(operands_.binding()); }
  int stages() const override { return program_.stages(); }
  Extent tasks(int stage) const override { return program_.tasks(stage); }
  void start() override { program_.start(); }
  void run_task(int stage, Extent task) override { program_.run_task(operands_.binding(), stage, task); }
  std::string to_string() const override { return program_.to_string(); }

 private:
  LoopProgram program_;
  LoopOperands operands_;
};

class PreparedAttention final : public Prepared {
 public:
  explicit PreparedAttention(kernel::AttentionKernel kernel)
      : kernel_(std::move(kernel)), tasks_(attention_tasks(kernel_)) {}
  void bind(const Memory& memory) override {
    const kernel::AttentionKernel& a = kernel_;
    binding_ = {memory.at(a.q.operand),   memory.at(a.k.operand),   memory.at(a.v.operand),
                memory.at(a.o.operand),   memory.at(a.logsumexp),   memory.at(a.d_o.operand),
                memory.at(a.d_q.operand), memory.at(a.d_k.operand), memory.at(a.d_v.operand)};
    if (a.mask) binding_.mask = memory.at(a.mask->operand);
    if (a.key_spans) binding_.key_spans = reinterpret_cast<const std::int32_t*>(memory.at(*a.key_spans));
    if (a.seed) binding_.seed = reinterpret_cast<const std::uint32_t*>(memory.at(*a.seed));
  }
  void run() override { run_attention(kernel_, binding_); }
  int stages() const override { return 1; }
  Extent tasks(int) const override { return tasks_; }
  void run_task(int, Extent task) override { run_attention_task(kernel_, binding_, task); }
  std::string to_string() const override {
    const kernel::AttentionKernel& a = kernel_;
    return fmt::format("attention {}{} {}: {} x {} heads, {} queries, {} keys, width {}\n", a.causal ? "causal " : "",
                       a.backward ? "backward" : "forward", a.name, a.batch, a.heads, a.queries, a.keys, a.width);
  }

 private:
  kernel::AttentionKernel kernel_;
  Extent tasks_;
  AttentionBinding binding_;
};

std::unique_ptr<Prepared> prepare(const kernel::LoopKernel& k) {
  if (std::unique_ptr<Prepared> copy = prepare_turned_copy(k)) return copy;
  if (std::unique_ptr<Prepared> gather = prepare_column_gather(k)) return gather;
  if (std::unique_ptr<Prepared> softmax = prepare_column_softmax(k)) return softmax;
  return std::make_unique<PreparedLoop>(k);
}
std::unique_ptr<Prepared> prepare(const kernel::MatmulKernel& k) { return std::make_unique<ProductProgram>(k); }
std::unique_ptr<Prepared> prepare(const kernel::PackedMatmulKernel& k) {
  const kernel::PackedMatmulKernel* const alone[] = {&k};
  return std::make_unique<PackedProducts>(alone);
}
std::unique_ptr<Prepared> prepare(const kernel::ScatterAddKernel& k) { return prepare_scatter_rows(k); }
std::unique_ptr<Prepared> prepare(const kernel::AttentionKernel& k) { return std::make_unique<PreparedAttention>(k); }
std::unique_ptr<Prepared> prepare(const kernel::CallKernel& k) {
  const CallEntry* entry = calls().find(*k.op);
  if (!entry || !entry->prepare) throw InternalError(fmt::format("cpu: there is no kernel for {}", k.name));
  return entry->prepare(k);
}

}  // namespace

void LoopOperands::bind(const Memory& memory) {
  input_pointers_.clear();
  output_pointers_.clear();
  for (const kernel::Operand& operand : inputs_) input_pointers_.push_back(memory.at(operand));
  for (const kernel::Operand& operand : outputs_) output_pointers_.push_back(memory.at(operand));
}

std::vector<PreparedKernels> prepare(const kernel::Plan& plan) {
  std::vector<PreparedKernels> all;
  const std::vector<kernel::Kernel>& kernels = plan.kernels;
  for (std::size_t i = 0; i < kernels.size();) {
    std::unique_ptr<Prepared> both = prepare_scatter_and_add(plan, i);
    if (!both) both = prepare_scatter_along_and_add(plan, i);
    if (both) {
      all.push_back({i, 2, std::move(both)});
      i += 2;
      continue;
    }
    std::vector<const kernel::PackedMatmulKernel*> sharing;
    for (std::size_t j = i; j < kernels.size(); ++j) {
      const auto* product = std::get_if<kernel::PackedMatmulKernel>(&kernels[j]);
      if (product == nullptr || !PackedProducts::may_join(*product, sharing)) break;
      sharing.push_back(product);
    }
    if (sharing.empty())
      all.push_back({i, 1, std::visit([](const auto& k) { return prepare(k); }, kernels[i])});
    else
      all.push_back({i, sharing.size(), std::make_unique<PackedProducts>(sharing)});
    i += all.back().count;
  }
  return all;
}

}  // namespace weft::cpu
