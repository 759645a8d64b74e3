#include "backend/webgpu/wgsl/reduction/joint.hpp"

#include <cmath>

namespace weft::webgpu {

using kernel::Level;
using kernel::LoopKernel;
using kernel::Step;
using kernel::StepKind;
using scalar::Op;
using scalar::Reduction;

namespace {

class JointFinder {
 public:
  explicit JointFinder(const LoopKernel& kernel) : kernel_(kernel) {}

  /// The kind of the reduction `s`, and in `x` the step that it then reduces.
  Joint find(const Step& s, int& x) const {
    if (s.kind != StepKind::reduce || s.reduction != Reduction::sum || s.type != DType::f32) return Joint::none;
    const Step* power = map_of(s.a, Op::mul);
    if (power && power->a == power->b) {
      const Step* difference = map_of(power->a, Op::sub);
      if (!difference || !is_inner(difference->a)) return Joint::none;
      x = difference->a;
      return is_mean(difference->b, x) ? Joint::squares : Joint::none;
    }
    power = map_of(s.a, Op::exp);
    const Step* difference = power ? map_of(power->a, Op::sub) : nullptr;
    if (!difference || !is_inner(difference->a)) return Joint::none;
    x = difference->a;
    if (is_reduction(difference->b, Reduction::max, x)) return Joint::exponentials;
    return is_finite_maximum(difference->b, x) ? Joint::finite_exponentials : Joint::none;
  }

 private:
  const Step& at(int s) const { return kernel_.steps[static_cast<std::size_t>(s)]; }
  bool is_inner(int s) const { return at(s).level == Level::inner && at(s).type == DType::f32; }
  const Step* map_of(int s, Op op) const {
    if (s < 0) return nullptr;
    const Step& step = at(s);
    return step.kind == StepKind::map && step.op == op && step.type == DType::f32 ? &step : nullptr;
  }
  bool is_constant(int s, double value) const {
    return at(s).kind == StepKind::constant && static_cast<float>(at(s).value) == static_cast<float>(value);
  }
  bool is_reduction(int s, Reduction reduction, int x) const {
    const Step& step = at(s);
    return step.kind == StepKind::reduce && step.reduction == reduction && step.type == DType::f32 && step.a == x;
  }
  bool is_mean(int s, int x) const {
    const Step* quotient = map_of(s, Op::div);
    return quotient && is_reduction(quotient->a, Reduction::sum, x) &&
           is_constant(quotient->b, static_cast<double>(kernel_.inner));
  }
  /// |m| < infinity ? m : 0
  bool is_finite_maximum(int s, int x) const {
    const Step* chosen = map_of(s, Op::select);
    if (!chosen || !is_reduction(chosen->b, Reduction::max, x) || !is_constant(chosen->c, 0)) return false;
    const Step& test = at(chosen->a);
    if (test.kind != StepKind::map || test.op != Op::lt || !is_constant(test.b, HUGE_VAL)) return false;
    const Step* size = map_of(test.a, Op::abs);
    return size && size->a == chosen->b;
  }

  const LoopKernel& kernel_;
};

}  // namespace

JointReductions joint_reductions(const LoopKernel& kernel) {
  JointReductions joint{kernel, std::vector<Joint>(kernel.steps.size(), Joint::none)};
  const JointFinder finder(kernel);
  for (std::size_t s = 0; s < kernel.steps.size(); ++s) {
    int x = -1;
    joint.kinds[s] = finder.find(kernel.steps[s], x);
    if (joint.kinds[s] != Joint::none) joint.kernel.steps[s].a = x;
  }
  return joint;
}

}  // namespace weft::webgpu
