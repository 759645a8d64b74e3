// Products for tests: operands in any layout, and an epilogue.
#pragma once

#include <random>
#include <string>
#include <utility>

#include "backend/webgpu/render_support.hpp"

#if WEFT_HAS_WEBGPU
namespace weft::webgpu {

struct Product {
  kernel::MatmulKernel kernel;
  std::vector<TestBuffer> buffers;
};

/// A product with operands in the layout `layout` ("nn", "nt", "tn", "tt": A, then B transposed in memory).
inline Product product(std::mt19937& random, const std::string& layout, Extent batch, Extent m, Extent n, Extent k,
                       DType type = DType::f32, Extent row_gap = 0) {
  Product p;
  p.kernel = {.name = "matmul", .batch = batch, .m = m, .n = n, .k = k};
  const auto lay = [&](bool transposed, Extent rows, Extent columns, kernel::Operand& operand,
                       kernel::MatrixView& view) {
    const Extent lines = transposed ? columns : rows, line = (transposed ? rows : columns) + row_gap;
    view = kernel::matrix_view({{batch}, {lines * line}, 0, {}}, rows, transposed ? 1 : line, columns,
                               transposed ? line : 1);
    p.buffers.push_back(random_buffer(random, type, batch * lines * line));
    operand = {static_cast<int>(p.buffers.size()) - 1, type, 0, batch * lines * line};
  };
  lay(layout[0] == 't', m, k, p.kernel.a, p.kernel.a_view);
  lay(layout[1] == 't', k, n, p.kernel.b, p.kernel.b_view);
  kernel::LoopKernel& epilogue = p.kernel.epilogue;
  epilogue.name = "epilogue";
  epilogue.outer = batch * m * n;
  const DType result = compute_type(type);
  epilogue.steps = {kernel::Step{kernel::StepKind::accumulator, result}};
  p.buffers.push_back({result, reference::Values(static_cast<std::size_t>(batch * m * n + 40), 0.0)});
  epilogue.outputs = {{2, result, 20, batch * m * n}};
  epilogue.stores = {{0, 0, contiguous({batch, m, n})}};
  return p;
}

/// gelu-like: tanh(product + bias) * scale + residual, stored twice, once transposed.
inline void add_epilogue(Product& p, std::mt19937& random) {
  kernel::LoopKernel& e = p.kernel.epilogue;
  const Extent batch = p.kernel.batch, m = p.kernel.m, n = p.kernel.n;
  const auto load = [&](Extent count, kernel::View view) {
    p.buffers.push_back(random_buffer(random, DType::f32, count));
    e.inputs.push_back({static_cast<int>(p.buffers.size()) - 1, DType::f32, 0, count});
    kernel::Step step{kernel::StepKind::load};
    step.operand = static_cast<int>(e.inputs.size()) - 1;
    step.view = std::move(view);
    e.steps.push_back(step);
    return static_cast<int>(e.steps.size()) - 1;
  };
  const auto map = [&](scalar::Op op, int a, int b = -1) {
    kernel::Step step{kernel::StepKind::map};
    step.op = op;
    step.a = a;
    step.b = b;
    e.steps.push_back(step);
    return static_cast<int>(e.steps.size()) - 1;
  };
  const int bias = load(n, {{batch, m, n}, {0, 0, 1}, 0, {}});
  const int scale = load(batch * m, {{batch, m, n}, {m, 1, 0}, 0, {}});
  const int residual = load(batch * m * n, contiguous({batch, m, n}));
  const int y =
      map(scalar::Op::add, map(scalar::Op::mul, map(scalar::Op::tanh, map(scalar::Op::add, 0, bias)), scale), residual);
  e.stores[0].value = y;
  p.buffers.push_back({DType::f32, reference::Values(static_cast<std::size_t>(batch * m * n), 0.0)});
  e.outputs.push_back({static_cast<int>(p.buffers.size()) - 1, DType::f32, 0, batch * m * n});
  e.stores.push_back({0, 1, {{batch, m, n}, {m * n, 1, m}, 0, {}}});
}

inline const Target kLargeGpu{
    {.binding_bytes = 1u << 31, .storage_buffers = 16, .workgroup_bytes = 49152, .workgroup_invocations = 1024}, 32};

}  // namespace weft::webgpu
#endif
