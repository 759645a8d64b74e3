// Attention, norms, reductions, elementwise work and scatter-add on a WebGPU device: microseconds, and TFLOP/s or GB/s.
// Usage: bench_webgpu_kernels [adapter index] [substring of a name]
#include <fmt/format.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <string>

#include "backend/webgpu/render.hpp"
#include "figure.hpp"
#include "webgpu_timing.hpp"

using namespace weft;
using namespace weft::webgpu;
using kernel::Level;
using kernel::LoopKernel;
using kernel::Step;
using kernel::StepKind;
using kernel::View;
using scalar::Op;
using scalar::Reduction;

namespace {

struct Case {
  std::string name;
  kernel::Kernel kernel;
  std::vector<Extent> buffers;  // elements
  double flops = 0, bytes = 0;
  Extent index_below = 0;  // buffer 0 holds indices
};

Step load(int operand, Level level, View view) {
  Step step{StepKind::load, DType::f32, level};
  step.operand = operand;
  step.view = std::move(view);
  return step;
}
Step map(Op op, Level level, int a, int b = -1) {
  Step step{StepKind::map, DType::f32, level};
  step.op = op;
  step.a = a;
  step.b = b;
  return step;
}
Step reduce(Reduction reduction, int a) {
  Step step{StepKind::reduce, DType::f32, Level::outer};
  step.reduction = reduction;
  step.a = a;
  return step;
}
kernel::Operand whole(int buffer, Extent count) { return {buffer, DType::f32, 0, count}; }

Case copy(Extent n, bool gelu) {
  LoopKernel loop{.name = "copy", .outer = n, .inputs = {whole(0, n)}, .outputs = {whole(1, n)}};
  loop.steps = {load(0, Level::outer, {{n}, {1}, 0, {}})};
  if (gelu) loop.steps.insert(loop.steps.end(), {map(Op::erf, Level::outer, 0), map(Op::mul, Level::outer, 0, 1)});
  loop.stores = {{gelu ? 2 : 0, 0, {{n}, {1}, 0, {}}}};
  return {fmt::format("{} of {}", gelu ? "x * erf(x)" : "copy", n), loop, {n, n}, 0, 8.0 * static_cast<double>(n)};
}

Case softmax(Extent rows, Extent columns) {
  const Extent n = rows * columns;
  LoopKernel loop{
      .name = "softmax", .outer = rows, .inner = columns, .inputs = {whole(0, n)}, .outputs = {whole(1, n)}};
  loop.steps = {load(0, Level::inner, {{n}, {1}, 0, {}}),
                reduce(Reduction::max, 0),
                map(Op::sub, Level::inner, 0, 1),
                map(Op::exp, Level::inner, 2),
                reduce(Reduction::sum, 3),
                map(Op::div, Level::inner, 3, 4)};
  loop.stores = {{5, 0, {{n}, {1}, 0, {}}}};
  return {fmt::format("softmax of {} x {}", rows, columns), loop, {n, n}, 0, 8.0 * static_cast<double>(n)};
}

Case layer_norm(Extent rows, Extent columns) {
  const Extent n = rows * columns;
  LoopKernel loop{
      .name = "layer norm", .outer = rows, .inner = columns, .inputs = {whole(0, n)}, .outputs = {whole(1, n)}};
  Step size{StepKind::constant, DType::f32, Level::outer};
  size.value = static_cast<double>(columns);
  Step epsilon = size;
  epsilon.value = 1e-5;
  loop.steps = {load(0, Level::inner, {{n}, {1}, 0, {}}),
                size,
                reduce(Reduction::sum, 0),
                map(Op::div, Level::outer, 2, 1),  // mean
                map(Op::sub, Level::inner, 0, 3),
                map(Op::mul, Level::inner, 4, 4),
                reduce(Reduction::sum, 5),
                map(Op::div, Level::outer, 6, 1),  // variance
                epsilon,
                map(Op::add, Level::outer, 7, 8),
                map(Op::sqrt, Level::outer, 9),
                map(Op::div, Level::inner, 4, 10)};
  loop.stores = {{11, 0, {{n}, {1}, 0, {}}}};
  return {fmt::format("layer norm of {} x {}", rows, columns), loop, {n, n}, 0, 8.0 * static_cast<double>(n)};
}

Case column_sums(Extent rows, Extent columns) {
  const Extent n = rows * columns;
  LoopKernel loop{
      .name = "column sums", .outer = columns, .inner = rows, .inputs = {whole(0, n)}, .outputs = {whole(1, columns)}};
  loop.steps = {load(0, Level::inner, {{columns, rows}, {1, columns}, 0, {}}), reduce(Reduction::sum, 0)};
  loop.stores = {{1, 0, {{columns}, {1}, 0, {}}}};
  return {fmt::format("column sums of {} x {}", rows, columns), loop, {n, columns}, 0, 4.0 * static_cast<double>(n)};
}

Case total(Extent n) {
  LoopKernel loop{.name = "sum of squares", .outer = 1, .inner = n, .inputs = {whole(0, n)}, .outputs = {whole(1, 1)}};
  loop.steps = {load(0, Level::inner, {{n}, {1}, 0, {}}), map(Op::mul, Level::inner, 0, 0), reduce(Reduction::sum, 1)};
  loop.stores = {{2, 0, {{1}, {1}, 0, {}}}};
  return {fmt::format("sum of squares of {}", n), loop, {n, 1}, 0, 4.0 * static_cast<double>(n)};
}

Case scatter(Extent count, Extent rows, Extent columns) {
  kernel::ScatterAddKernel kernel{.name = "scatter", .count = count, .rows = rows, .columns = columns};
  kernel.indices = {0, DType::i32, 0, count};
  kernel.updates = whole(1, count * columns);
  kernel.out = whole(2, rows * columns);
  return {fmt::format("scatter {} rows of {} into {}", count, columns, rows),
          kernel,
          {count, count * columns, rows * columns},
          0,
          4.0 * static_cast<double>(count * columns + rows * columns),
          rows};
}

Case attention(Extent heads, Extent positions, Extent width, bool backward) {
  kernel::AttentionKernel kernel{.name = "attention",
                                 .batch = 1,
                                 .heads = heads,
                                 .queries = positions,
                                 .keys = positions,
                                 .width = width,
                                 .kv_heads = heads,
                                 .scale = 0.1};
  kernel.backward = backward;
  const Extent n = heads * positions * width;
  int buffer = 0;
  for (auto* tensor : {&kernel.q, &kernel.k, &kernel.v, &kernel.o, &kernel.d_o, &kernel.d_q, &kernel.d_k, &kernel.d_v})
    *tensor = {whole(buffer++, n), n, positions * width, width};
  kernel.logsumexp = whole(buffer, heads * positions);
  // Products of two matrices each, half of them behind the mask: 2 forward, 5 backward.
  const double flops = (backward ? 5.0 : 2.0) * static_cast<double>(heads * positions * positions * width);
  return {fmt::format("attention {} of {} heads, {} positions, width {}", backward ? "backward" : "forward", heads,
                      positions, width),
          kernel,
          {n, n, n, n, n, n, n, n, heads * positions},
          flops,
          0};
}

}  // namespace

int main(int argc, char** argv) {
  const auto device = Device::open(argc > 1 ? std::atoi(argv[1]) : -1, {.validate = false, .robust = false});
  const Target target = target_of(device->info());
  fmt::print("{}\n", describe(device->info()));
  std::vector<Case> cases;
  for (const bool backward : {false, true})
    for (const auto& [heads, positions, width] :
         {std::tuple<Extent, Extent, Extent>{64, 64, 32}, {384, 256, 64}, {96, 1024, 64}, {64, 1024, 128}})
      cases.push_back(attention(heads, positions, width, backward));
  for (const Extent n : {Extent{1} << 14, Extent{1} << 20, Extent{1} << 24, Extent{1} << 26})
    for (const bool gelu : {false, true}) cases.push_back(copy(n, gelu));
  for (const auto& [rows, columns] : {std::pair<Extent, Extent>{1024, 128},
                                      {16384, 384},
                                      {16384, 83},
                                      {4096, 4096},
                                      {8192, 8192},
                                      {64, 50257},
                                      {8192, 50257}})
    cases.push_back(softmax(rows, columns));
  for (const auto& [rows, columns] : {std::pair<Extent, Extent>{1024, 128}, {16384, 384}, {8192, 8192}})
    cases.push_back(layer_norm(rows, columns));
  for (const auto& [rows, columns] : {std::pair<Extent, Extent>{1024, 128}, {16384, 384}, {16384, 1536}})
    cases.push_back(column_sums(rows, columns));
  for (const Extent n : {Extent{1} << 20, Extent{1} << 26}) cases.push_back(total(n));
  cases.push_back(scatter(1024, 83, 128));
  cases.push_back(scatter(16384, 83, 384));
  cases.push_back(scatter(8192, 50257, 768));

  std::vector<Rendered> rendered;
  Recording all;  // compiles everything side by side
  for (const Case& c : cases) {
    const bool wanted = argc <= 2 || c.name.find(argv[2]) != std::string::npos;
    rendered.push_back(wanted ? render(c.kernel, static_cast<int>(c.buffers.size()), target) : Rendered{});
    for (const RenderedDispatch& dispatch : rendered.back().dispatches) {
      Shader shader{dispatch.name, dispatch.shader.text(), {}};
      for (const BoundRange& range : dispatch.bindings) shader.read_only.push_back(!range.written);
      all.shaders.push_back(std::move(shader));
    }
  }
  const CommandSequence compiled(device, std::move(all));
  for (std::size_t i = 0; i < cases.size(); ++i) {
    if (rendered[i].dispatches.empty()) continue;
    const Case& c = cases[i];
    const double us = bench::microseconds(device, bench::make_buffers(device, c.buffers, c.index_below), rendered[i]);
    fmt::print("{:<58} {:10.2f} us  {}\n", c.name, us,
               c.flops > 0 ? fmt::format("{:8.2f} TFLOP/s", c.flops / us * 1e-6)
                           : fmt::format("{:8.1f} GB/s", c.bytes / us * 1e-3));
    std::fflush(stdout);
    figures::keep({"kernels on a GPU", c.name, "us", us, "", 0, describe(device->info())});
  }
}
