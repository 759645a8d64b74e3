// Times of layers, beside a peer that a Python program times.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <string>
#include <utility>
#include <vector>

#include "weft/weft.hpp"

namespace weft::bench {

/// Milliseconds of a run on the default device: the best of those that 1.5 seconds hold, on the CPU of at most 30. A GPU raises its
/// clocks only after some tenths of a second of work.
template <class F>
double best_ms(F run_once) {
  const auto run = [&] {
    run_once();
    synchronize(default_device());
  };
  run();
  double best = 1e30;
  const auto begin = std::chrono::steady_clock::now();
  for (int i = 0; i < 30 || default_device() != kCpu; ++i) {
    const auto start = std::chrono::steady_clock::now();
    run();
    const auto now = std::chrono::steady_clock::now();
    best = std::min(best, std::chrono::duration<double, std::milli>(now - start).count());
    if (now - begin > std::chrono::milliseconds(1500) && i >= 2) break;
  }
  return best;
}

/// Milliseconds of a layer's output from x, and of that with the gradients of all its parameters and of x.
template <class F>
std::pair<double, double> layer_times(const nn::Module& layer, const Tensor& x, F output) {
  const std::vector<Variable> weights = layer.parameters();
  auto forward = compile([&](const Tensor& v) {
    const NoGrad inference;
    return output(v);
  });
  auto both = compile([&](const Tensor& v) {
    const Tensor y = output(v);
    std::vector<Tensor> of(weights.begin(), weights.end());
    of.push_back(v);
    return grad(sum(y), of);
  });
  return {best_ms([&] { forward(x).eval(); }), best_ms([&] { eval(both(x)); })};
}

/// The two numbers that a command prints, such as milliseconds forward and with gradients; zeros if it prints none.
inline std::pair<double, double> printed_by(const std::string& command) {
  std::pair<double, double> numbers{0, 0};
  if (FILE* pipe = popen(command.c_str(), "r")) {
    if (std::fscanf(pipe, "%lf %lf", &numbers.first, &numbers.second) != 2) numbers = {0, 0};
    pclose(pipe);
  }
  return numbers;
}

}  // namespace weft::bench
