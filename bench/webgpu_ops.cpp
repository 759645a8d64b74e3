// Ops that move memory, on a GPU: microseconds, GB/s, and the time beside that of a copy of as many bytes, measured in the same
// run. Also a convolution of 3 x 3. Usage: bench_webgpu_ops [device] [substring of a name]
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <string>
#include <vector>

#include "figure.hpp"
#include "runtime/devices.hpp"
#include "weft/weft.hpp"

using namespace weft;

namespace {

using Clock = std::chrono::steady_clock;

struct Case {
  std::string name;
  std::vector<Tensor> inputs;
  std::function<Tensor(std::span<const Tensor>)> compute;
  double bytes = 0, flops = 0;
};

/// Microseconds of a run: several without waiting, the best of some rounds.
double microseconds(Device device, const Case& c) {
  Compiled step([&](std::span<const Tensor> in) { return std::vector<Tensor>{c.compute(in)}; });
  const auto time = [&](int runs) {
    const auto start = Clock::now();
    for (int i = 0; i < runs; ++i) step(c.inputs);
    synchronize(device);
    return std::chrono::duration<double>(Clock::now() - start).count();
  };
  time(1);
  for (const auto until = Clock::now() + std::chrono::milliseconds(50); Clock::now() < until;) time(4);
  const int runs = std::clamp(static_cast<int>(0.02 / (time(4) / 4)), 4, 200);
  double best = time(runs);
  for (int round = 0; round < 5; ++round) best = std::min(best, time(runs));
  return best / runs * 1e6;
}

double bytes_of(const Tensor& t) { return static_cast<double>(t.numel()) * 4; }

}  // namespace

int main(int argc, char** argv) {
  const Device device = parse_device(argc > 1 ? argv[1] : "auto");
  set_default_device(device);
  manual_seed(1);
  const std::string hardware = runtime::backend_of(device).describe().hardware;
  fmt::print("{}\n", hardware);
  const Extent n = 8192, columns = 8192, width = 1024;
  const Tensor square = randn({n, columns}).eval(), tall = randn({65536, width}).eval();
  const Tensor left = (narrow(square, 1, 0, columns / 2) + 1.0).eval();
  const Tensor rows = cast(floor(rand({65536}) * 50000.0), DType::i32).eval();
  const Tensor table = randn({50000, width}).eval(), scale = ones({columns}).eval(), shift = zeros({columns}).eval();
  const Tensor places = cast(floor(rand({n, columns}) * static_cast<double>(columns)), DType::i32).eval();
  const Tensor chosen = cast(floor(rand({columns}) * static_cast<double>(columns)), DType::i32).eval();
  const Tensor orders = cast(sort(rand({n, columns}), 1).positions, DType::i32).eval();
  const Tensor line = reshape(square, {n * columns}).eval(), cube = reshape(square, {512, 256, 512}).eval();
  const Tensor few = narrow(square, 1, 0, 1024).eval(), few_places = narrow(places, 1, 0, 1024).eval();
  const Tensor long_rows = reshape(square, {64, 1 << 20}).eval(), four_rows = narrow(long_rows, 0, 0, 4).eval();
  const Tensor far = cast(floor(rand({64, 1 << 20}) * static_cast<double>(1 << 20)), DType::i32).eval();
  const Tensor far_of_four = narrow(far, 0, 0, 4).eval();
  const Tensor middle = reshape(narrow(line, 0, 0, n * columns / 2), {64, 1024, 512}).eval();
  const Tensor odd = narrow(narrow(square, 0, 0, 8190), 1, 0, 8190).eval();
  const Tensor images = randn({32, 64, 56, 56}).eval(), filters = randn({64, 64, 3, 3}).eval();
  const Tensor large = randn({32, 64, 64, 128}).eval(), weight = ones({64}).eval(), bias = zeros({64}).eval();
  const double all = bytes_of(square), picked = bytes_of(tall);
  using In = std::span<const Tensor>;
  std::vector<Case> cases = {
      {"copy", {square}, [](In in) { return in[0] + 1.0; }, 2 * all},
      {"copy of [32, 64, 64, 128]", {large}, [](In in) { return in[0] + 1.0; }, 2 * bytes_of(large)},
      {"softmax, rows", {square}, [](In in) { return softmax(in[0], 1); }, 2 * all},
      {"softmax, columns", {square}, [](In in) { return softmax(in[0], 0); }, 2 * all},
      {"log_softmax, rows", {square}, [](In in) { return log_softmax(in[0], 1); }, 2 * all},
      {"layer_norm", {square, scale, shift}, [](In in) { return layer_norm(in[0], in[1], in[2]); }, 2 * all},
      {"rms_norm", {square, scale}, [](In in) { return rms_norm(in[0], in[1], 1e-5); }, 2 * all},
      {"sum, rows", {square}, [](In in) { return sum(in[0], {1}); }, all},
      {"sum, columns", {square}, [](In in) { return sum(in[0], {0}); }, all},
      {"sum, all", {square}, [](In in) { return sum(in[0]); }, all},
      {"max, rows", {square}, [](In in) { return amax(in[0], {1}); }, all},
      {"argmax, rows", {square}, [](In in) { return argmax(in[0], 1); }, all},
      {"max, columns", {square}, [](In in) { return amax(in[0], {0}); }, all},
      {"argmax, columns", {square}, [](In in) { return argmax(in[0], 0); }, all},
      {"var, columns", {square}, [](In in) { return var(in[0], {0}); }, all},
      {"var, all", {square}, [](In in) { return var(in[0]); }, all},
      {"logsumexp, columns", {square}, [](In in) { return logsumexp(in[0], {0}); }, all},
      {"log_softmax, columns", {square}, [](In in) { return log_softmax(in[0], 0); }, 2 * all},
      {"softmax, columns of [8192, 1024]", {few}, [](In in) { return softmax(in[0], 0); }, 2 * bytes_of(few)},
      {"softmax, middle axis of [64, 1024, 512]",
       {middle},
       [](In in) { return softmax(in[0], 1); },
       2 * bytes_of(middle)},
      {"sum, middle axis of [512, 256, 512]", {cube}, [](In in) { return sum(in[0], {1}); }, all},
      {"mean, outer axes of [512, 256, 512]",
       {cube},
       [](In in) {
         return mean(in[0], {0, 1});
       },
       all},
      {"batch_norm of [32, 64, 64, 128]",
       {large, weight, bias},
       [](In in) { return batch_norm(in[0], in[1], in[2]); },
       2 * bytes_of(large)},
      {"group_norm of [32, 64, 64, 128]",
       {large, weight, bias},
       [](In in) { return group_norm(in[0], 8, in[1], in[2]); },
       2 * bytes_of(large)},
      {"transpose", {square}, [](In in) { return transpose(in[0], 0, 1) + 1.0; }, 2 * all},
      {"permute {2, 1, 0} of [512, 256, 512]",
       {cube},
       [](In in) {
         return permute(in[0], {2, 1, 0}) + 1.0;
       },
       2 * all},
      {"channels last of [32, 64, 64, 128]",
       {large},
       [](In in) {
         return permute(in[0], {0, 2, 3, 1}) + 1.0;
       },
       2 * bytes_of(large)},
      {"transpose of [8190, 8190]", {odd}, [](In in) { return transpose(in[0], 0, 1) + 1.0; }, 2 * bytes_of(odd)},
      {"flip, rows", {square}, [](In in) { return flip(in[0], {1}) + 1.0; }, 2 * all},
      {"flip, columns", {square}, [](In in) { return flip(in[0], {0}) + 1.0; }, 2 * all},
      {"rows by index", {table, rows}, [](In in) { return embedding(in[0], in[1]); }, 2 * picked},
      {"gather", {square, places}, [](In in) { return gather(in[0], 1, in[1]); }, 3 * all},
      {"gather, columns", {square, places}, [](In in) { return gather(in[0], 0, in[1]); }, 3 * all},
      {"index_select, columns", {square, chosen}, [](In in) { return index_select(in[0], 1, in[1]); }, 2 * all},
      {"scatter, rows", {square, orders, square}, [](In in) { return scatter(in[0], 1, in[1], in[2]); }, 4 * all},
      {"scatter, columns", {square, orders, square}, [](In in) { return scatter(in[0], 0, in[1], in[2]); }, 4 * all},
      {"scatter_add, rows",
       {square, places, square},
       [](In in) { return scatter_add(in[0], 1, in[1], in[2]); },
       4 * all},
      {"scatter_add, columns",
       {square, places, square},
       [](In in) { return scatter_add(in[0], 0, in[1], in[2]); },
       4 * all},
      {"scatter_add, columns of [8192, 1024]",
       {few, few_places, few},
       [](In in) { return scatter_add(in[0], 0, in[1], in[2]); },
       4 * bytes_of(few)},
      {"scatter_add, rows of [64, 1M]",
       {long_rows, far, long_rows},
       [](In in) { return scatter_add(in[0], 1, in[1], in[2]); },
       4 * all},
      {"scatter_add, rows of [4, 1M]",
       {four_rows, far_of_four, four_rows},
       [](In in) { return scatter_add(in[0], 1, in[1], in[2]); },
       4 * bytes_of(four_rows)},
      {"scatter_add of 4M numbers to 10,000 places",
       {reshape(far_of_four, {4 << 20}).eval(), reshape(four_rows, {4 << 20, 1}).eval()},
       [](In in) { return scatter_add(remainder(in[0], 10000), in[1], 10000); },
       2 * bytes_of(four_rows)},
      {"the same, half of them to one place",
       {reshape(maximum(remainder(far_of_four, 20000) - 10000, 0), {4 << 20}).eval(),
        reshape(four_rows, {4 << 20, 1}).eval()},
       [](In in) { return scatter_add(in[0], in[1], 10000); },
       2 * bytes_of(four_rows)},
      {"scatter_add of rows",
       {tall, rows},
       [&](In in) { return scatter_add(in[1], in[0], 50000); },
       picked + bytes_of(table)},
      {"cumsum, rows", {square}, [](In in) { return cumsum(in[0], 1); }, 2 * all},
      {"cumsum, columns", {square}, [](In in) { return cumsum(in[0], 0); }, 2 * all},
      {"cumsum of one line", {line}, [](In in) { return cumsum(in[0], 0); }, 2 * all},
      {"concat",
       {left, left},
       [](In in) {
         return concat({in[0], in[1]}, 1);
       },
       2 * all},
      {"sort, rows", {square}, [](In in) { return sort(in[0], 1).values; }, 2 * all},
      {"convolution 3 x 3 of [32, 64, 56, 56] by 64",
       {images, filters},
       [](In in) { return conv2d(in[0], in[1], {}, {.padding = {1}}); },
       2 * bytes_of(images),
       2.0 * 32 * 56 * 56 * 64 * 64 * 9},
  };
  // 8192 rows of 8 experts as large as they are in Mixtral-like models of 1,024 columns.
  const Extent experts = 8, inner = 3584;
  const Tensor chosen_rows = randn({n, width}).eval(), inner_rows = randn({n, inner}).eval(),
               of_experts = randn({experts, inner, width}).eval(),
               ends = cast((arange(experts, DType::i32) + 1.0) * 1024.0, DType::i32).eval();
  const double flops = 2.0 * static_cast<double>(n * width * inner),
               touched = bytes_of(of_experts) + bytes_of(inner_rows);
  cases.push_back({"grouped_matmul of [8192, 1024] by 8 x [3584, 1024]",
                   {chosen_rows, of_experts, ends},
                   [](In in) { return grouped_matmul(in[0], in[1], in[2], true); },
                   touched + bytes_of(chosen_rows),
                   flops});
  cases.push_back({"grouped_matmul of [8192, 3584] by 8 x [3584, 1024]",
                   {inner_rows, of_experts, ends},
                   [](In in) { return grouped_matmul(in[0], in[1], in[2]); },
                   touched + bytes_of(chosen_rows),
                   flops});
  cases.push_back({"grouped_outer of [8192, 3584] with [8192, 1024]",
                   {inner_rows, chosen_rows, ends},
                   [](In in) { return grouped_outer(in[0], in[1], in[2]); },
                   touched + bytes_of(chosen_rows),
                   flops});
  double copied = 0;  // bytes a microsecond
  for (const Case& c : cases) {
    if (copied > 0 && argc > 2 && c.name.find(argv[2]) == std::string::npos) continue;
    try {
      const double us = microseconds(device, c);
      if (copied == 0) copied = c.bytes / us;
      fmt::print("{:<46} {:10.1f} us {:8.1f} GB/s {:6.2f} x a copy{}\n", c.name, us, c.bytes / us * 1e-3,
                 us * copied / c.bytes, c.flops > 0 ? fmt::format(" {:7.2f} TFLOP/s", c.flops / us * 1e-6) : "");
      figures::keep({"ops on a GPU", c.name, "us", us, "", 0, hardware});
    } catch (const Error& error) {
      fmt::print("{:<46} {}\n", c.name, error.what());
    }
    std::fflush(stdout);
  }
}
