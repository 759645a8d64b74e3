// What it takes to trace and compile a graph of 2,000 ops, on one core: milliseconds of processor time from the first call of
// a compiled function to its first results, less what a second call takes. Best and median of several graphs, which differ in
// their widths so that no plan is found again.
#include <fmt/format.h>

#include <algorithm>
#include <ctime>
#include <vector>

#include "weft/weft.hpp"

using namespace weft;

namespace {

constexpr int kBlocks = 200, kOpsOfBlock = 10, kRounds = 9;

double processor_milliseconds() {
  timespec now;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return 1e3 * static_cast<double>(now.tv_sec) + 1e-6 * static_cast<double>(now.tv_nsec);
}

/// Ten ops: norms, products, elementwise ops and reductions, as networks have them.
Tensor block(Tensor x, const Tensor& w, const Tensor& b) {
  const Tensor hidden = gelu(matmul(layer_norm(x, Tensor(), Tensor()), w) + b);
  x = x + matmul(hidden, w);
  return x + softmax(x) * tanh(x);
}

void measure(const char* what, bool with_gradients) {
  std::vector<double> times;
  for (int round = 0; round < kRounds; ++round) {
    const Extent width = 4 + round;
    const Tensor x = full({2, width}, 0.5).eval(), w = full({width, width}, 0.01).eval(), b = full({width}, 0.1).eval();
    auto f = compile([&](Tensor input, Tensor weight, Tensor bias) -> std::vector<Tensor> {
      Tensor y = input;
      for (int i = 0; i < kBlocks; ++i) y = block(y, weight, bias);
      const Tensor loss = mean(y * y);
      if (!with_gradients) return {loss};
      std::vector<Tensor> results = grad(loss, {input, weight, bias});
      results.push_back(loss);
      return results;
    });
    const auto call = [&] {
      const double start = processor_milliseconds();
      eval(f(x, w, b));
      return processor_milliseconds() - start;
    };
    const double first = call();
    times.push_back(first - call());
  }
  std::sort(times.begin(), times.end());
  fmt::print("{} of {} ops: {:.0f} ms to trace and compile (median {:.0f})\n", what, kBlocks * kOpsOfBlock, times[0],
             times[kRounds / 2]);
}

}  // namespace

int main() {
  Session session({.threads = 1, .device = kCpu});
  const auto in = session.enter();
  measure("forward", false);
  measure("forward and gradients", true);
}
