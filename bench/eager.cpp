// What eager code costs on one core, apart from arithmetic: microseconds of processor time, the best of several rounds.
#include <fmt/format.h>

#include <algorithm>
#include <ctime>
#include <functional>
#include <vector>

#include "weft/weft.hpp"

using namespace weft;

namespace {

double processor_seconds() {
  timespec now;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

void report(const char* what, int count, const std::function<void()>& round, int rounds = 20) {
  round();
  double best = 1e30;
  for (int r = 0; r < rounds; ++r) {
    const double start = processor_seconds();
    round();
    best = std::min(best, processor_seconds() - start);
  }
  fmt::print("{}: {:.3f} us\n", what, best / count * 1e6);
}

// As a user would write it: nothing is asked for until the end.
void logistic_regression(int steps) {
  const Tensor x = randn({64, 10}).eval(), y = cast(randn({64}) > zeros({}), DType::f32).eval();
  Variable w(zeros({10}), "w"), b(zeros({}), "b");
  Tensor total = zeros({});
  for (int i = 0; i < steps; ++i) {
    const Tensor z = sum(x * w.value(), {1}) + b.value();
    const Tensor loss = mean(softplus(z) - z * y);
    w.clear_grad();
    b.clear_grad();
    backward(loss);
    w.assign(w.value() - w.grad() * 0.1);
    b.assign(b.value() - b.grad() * 0.1);
    total = total + detach(loss);
  }
  total.item<float>();
}

}  // namespace

int main() {
  Session session({.threads = 1, .device = kCpu});
  const auto in = session.enter();
  constexpr int kCount = 1000;
  const Tensor x = tensor<float>({1, 2, 3, 4}), grid = randn({32, 32}).eval();
  report("building a node", kCount, [&] {
    Tensor y = x;
    for (int i = 0; i < kCount; ++i) y = y * x;
  });
  std::vector<Tensor> built;
  for (int i = 0; i < kCount; ++i) built.push_back(tensor<float>({1, 2, 3, static_cast<float>(i)}));
  std::vector<Tensor> made;
  double best = 1e30;
  for (int r = 0; r < 20; ++r) {
    made.clear();
    for (const Tensor& each : built) made.push_back(each * x + x);
    const double start = processor_seconds();
    for (const Tensor& each : made) each.eval();
    best = std::min(best, processor_seconds() - start);
  }
  fmt::print("evaluating two ops that are built: {:.3f} us\n", best / kCount * 1e6);
  report("two small ops, built and evaluated", kCount, [&] {
    for (int i = 0; i < kCount; ++i) (x * 3.0 + 1.0).eval();
  });
  int step = 0;
  report("the same with a number that changes", kCount, [&] {
    for (int i = 0; i < kCount; ++i) (x * (1.0 / ++step) + 1.0).eval();
  });
  report("reading an element", kCount, [&] {
    for (Extent i = 0; i < kCount; ++i) select(select(grid, 0, i / 32), 0, i % 32).item<float>();
  });
  constexpr int kSteps = 2000;
  report(
      "a step of logistic regression", kSteps, [] { logistic_regression(kSteps); }, 2);
  std::vector<Variable> caches;
  for (int i = 0; i < 60; ++i) caches.emplace_back(zeros({4}), "cache", false);
  eval_pending();
  auto write_all = compile([&](const Tensor& by) {
    for (Variable& cache : caches) cache.assign(cache.value() + by);
  });
  report("calling a compiled function that writes to 60 Variables", kCount, [&] {
    for (int i = 0; i < kCount; ++i) write_all(x);
  });
  std::vector<Tensor> rows;
  for (int i = 0; i < 10000; ++i) rows.push_back(tensor<float>({static_cast<float>(i), 1, 2, 3}));
  const double start = processor_seconds();
  stack(rows, 0).eval();
  fmt::print("stacking 10000 rows for the first time: {:.3f} us\n", (processor_seconds() - start) * 1e6);
}
