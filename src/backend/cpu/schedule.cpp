#include "backend/cpu/schedule.hpp"

#include <algorithm>

#include "backend/cpu/loop/loop.hpp"

namespace weft::cpu {
namespace {

using kernel::Operand;

struct Touched {
  std::vector<Operand> reads, writes;
};

Touched touched_by(const kernel::Kernel& kernel) {
  Touched touched;
  kernel::visit_operands(kernel, [&](const Operand& operand, bool is_written) {
    (is_written ? touched.writes : touched.reads).push_back(operand);
  });
  return touched;
}

bool touch(const Operand& x, const Operand& y) { return x.buffer >= 0 && overlap(x, y); }
bool touch(const std::vector<Operand>& some, const std::vector<Operand>& others) {
  return std::any_of(some.begin(), some.end(), [&](const Operand& x) {
    return std::any_of(others.begin(), others.end(), [&](const Operand& y) { return touch(x, y); });
  });
}

}  // namespace

bool is_written(const kernel::Plan& plan, std::size_t begin, std::size_t end, const std::vector<Operand>& operands) {
  return !operands.empty() &&
         std::any_of(plan.kernels.begin() + static_cast<std::ptrdiff_t>(begin),
                     plan.kernels.begin() + static_cast<std::ptrdiff_t>(end),
                     [&](const auto& kernel) { return touch(operands, touched_by(kernel).writes); });
}

std::vector<int> last_needed(const kernel::Plan& plan, std::size_t begin, std::size_t end) {
  std::vector<Touched> all;
  std::vector<int> needed;
  for (std::size_t i = begin; i < end; ++i) {
    all.push_back(touched_by(plan.kernels[i]));
    const Touched& mine = all.back();
    int last = static_cast<int>(i - begin) - 1;
    for (; last >= 0; --last) {
      const Touched& other = all[static_cast<std::size_t>(last)];
      if (touch(mine.reads, other.writes) || touch(mine.writes, other.writes) || touch(mine.writes, other.reads)) break;
    }
    needed.push_back(last);
  }
  return needed;
}

}  // namespace weft::cpu
