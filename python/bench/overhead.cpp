// The calls of overhead.py in C++: a line "name nanoseconds" for each. Nothing is evaluated but in compiled calls.
#include <weft/weft.hpp>

#include <algorithm>
#include <chrono>
#include <cstdio>

using namespace weft;

template <class F>
void measure(const char* name, F call) {
  double best = 1e30;
  for (int round = 0; round < 7; ++round) {
    const auto start = std::chrono::steady_clock::now();
    for (int i = 0; i < 4000; ++i) call();
    const std::chrono::duration<double, std::nano> took = std::chrono::steady_clock::now() - start;
    best = std::min(best, took.count() / 4000);
  }
  std::printf("%s %.1f\n", name, best);
}

int main() {
  const Tensor x = ones({4, 4}).eval(), y = full({4, 4}, 2).eval(), one = ones({4}).eval();
  Compiled step([](std::span<const Tensor> in) { return std::vector<Tensor>{in[0] + 1.0}; });
  const Tensor list[] = {one};
  step(list);
  measure("add", [&] { return add(x, y); });
  measure("x + y", [&] { return x + y; });
  measure("x * 2", [&] { return x * 2.0; });
  measure("tanh", [&] { return tanh(x); });
  measure("x.tanh()", [&] { return tanh(x); });
  measure("sum axis 1", [&] { return sum(x, 1); });
  measure("softmax", [&] { return softmax(x, -1); });
  measure("reshape", [&] { return reshape(x, {16}); });
  measure("matmul", [&] { return matmul(x, y); });
  measure("x[0]", [&] { return x[0]; });
  measure("compiled call", [&] { return step(list); });
  measure("weft.compile", [&] { return step(list); });
}
