#include "compile/row_factors.hpp"

namespace weft::compiler {
namespace {

using kernel::Level;
using kernel::Step;
using kernel::StepKind;

class Factoring {
 public:
  explicit Factoring(const kernel::LoopKernel& loop) : loop_(loop), needs_sums_(loop.steps.size(), false) {
    for (std::size_t s = 0; s < loop.steps.size(); ++s) {
      const Step& step = loop.steps[s];
      for (const int operand : {step.a, step.b, step.c})
        if (operand >= 0 && needs_sums_[static_cast<std::size_t>(operand)]) needs_sums_[s] = true;
      if (step.kind != StepKind::reduce) continue;
      if (needs_sums_[s] || step.reduction != scalar::Reduction::sum) is_possible_ = false;
      needs_sums_[s] = true;
      factors_.sums.push_back(static_cast<int>(s));
    }
  }

  std::optional<RowFactors> run() {
    if (loop_.stores.size() != 1 || loop_.outputs.size() != 1) return {};
    const int value = loop_.stores[0].value;
    if (loop_.steps[static_cast<std::size_t>(value)].level != Level::inner) return {};
    split(value);
    if (!is_possible_ || factors_.outer.empty() || factors_.inner.empty()) return {};
    return std::move(factors_);
  }

 private:
  void split(int s) {
    const Step& step = loop_.steps[static_cast<std::size_t>(s)];
    if (step.type != DType::f32) is_possible_ = false;
    if (!needs_sums_[static_cast<std::size_t>(s)])
      factors_.inner.push_back(s);
    else if (step.level == Level::outer)
      factors_.outer.push_back(s);
    else if (step.kind == StepKind::map && step.op == scalar::Op::mul)
      for (const int operand : {step.a, step.b}) split(operand);
    else
      is_possible_ = false;
  }

  const kernel::LoopKernel& loop_;
  std::vector<bool> needs_sums_;
  bool is_possible_ = true;
  RowFactors factors_;
};

}  // namespace

std::optional<RowFactors> row_factors(const kernel::LoopKernel& loop) { return Factoring(loop).run(); }

}  // namespace weft::compiler
