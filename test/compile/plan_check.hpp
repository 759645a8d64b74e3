// What the planner promises of every plan (compile/kernel.hpp), checked kernel by kernel.
#pragma once

#include <fmt/format.h>

#include <string>
#include <vector>

#include "compile/compile.hpp"

namespace weft::test {

struct KernelOperands {
  std::vector<const kernel::Operand*> reads, writes;
};

inline KernelOperands operands_of(const kernel::Kernel& kernel) {
  KernelOperands list;
  kernel::visit_operands(kernel, [&](const kernel::Operand& operand, bool is_written) {
    (is_written ? list.writes : list.reads).push_back(&operand);
  });
  return list;
}

/// "" or what is wrong with the plan.
inline std::string broken_promise(const compiler::Compiled& compiled, const compiler::Target& target) {
  const kernel::Plan& plan = compiled.plan;
  auto overlap = [](const kernel::Operand& a, const kernel::Operand& b) {
    return a.buffer == b.buffer && a.count > 0 && b.count > 0 && a.offset < b.offset + b.count &&
           b.offset < a.offset + a.count;
  };
  for (std::size_t k = 0; k < plan.kernels.size(); ++k) {
    const KernelOperands operands = operands_of(plan.kernels[k]);
    std::vector<kernel::Operand> distinct;
    auto note = [&](const kernel::Operand& operand) {
      if (std::find(distinct.begin(), distinct.end(), operand) == distinct.end()) distinct.push_back(operand);
    };
    for (const auto* list : {&operands.reads, &operands.writes})
      for (const kernel::Operand* operand : *list) {
        note(*operand);
        if (operand->buffer < 0 || operand->buffer >= static_cast<int>(plan.buffers.size()))
          return fmt::format("kernel {}: no buffer {}", k, operand->buffer);
        const std::size_t end = target.storage_bytes(operand->type, operand->offset + operand->count);
        if (end > plan.buffers[static_cast<std::size_t>(operand->buffer)].bytes)
          return fmt::format("kernel {}: an operand ends after its buffer", k);
      }
    if (static_cast<int>(distinct.size()) > target.operands_max)
      return fmt::format("kernel {}: {} operands", k, distinct.size());
    for (const kernel::Operand* write : operands.writes) {
      for (const kernel::Operand* read : operands.reads) {
        const bool in_place = *read == *write && plan.buffers[static_cast<std::size_t>(read->buffer)].external >= 0;
        if (overlap(*read, *write) && !in_place) return fmt::format("kernel {} reads what it writes", k);
        const bool scratch = plan.buffers[static_cast<std::size_t>(read->buffer)].external < 0;
        if (target.prefers_separate_buffers && scratch && read->buffer == write->buffer)
          return fmt::format("kernel {} reads and writes scratch buffer {}", k, read->buffer);
      }
      for (const kernel::Operand* other : operands.writes)
        if (other != write && overlap(*other, *write)) return fmt::format("kernel {} writes overlapping ranges", k);
    }
  }
  return "";
}

}  // namespace weft::test
