// Plans of every kind of kernel through the backend contract, against the slow reference.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <random>
#include <string>

#include "backend/cpu/backend.hpp"
#include "backend/cpu/isa.hpp"
#include "base/threads.hpp"
#include "kernel_reference.hpp"
#include "tensor/element.hpp"
#include "weft/error.hpp"

namespace weft::cpu {
namespace {

using kernel::AttentionKernel;
using kernel::Level;
using kernel::LoopKernel;
using kernel::MatmulKernel;
using kernel::Operand;
using kernel::Plan;
using kernel::ScatterAddKernel;
using kernel::Step;
using kernel::StepKind;
using kernel::View;
using reference::Values;
using scalar::Op;

template <class T>
std::vector<T> to_host(const Values& values) {
  std::vector<T> host;
  for (const double v : values) host.push_back(static_cast<T>(v));
  return host;
}

/// A plan over external buffers of one type each.
struct Trial {
  Plan plan;
  std::vector<DType> types;
  std::vector<Values> values;

  Operand buffer(DType type, Values initial) {
    const int index = static_cast<int>(plan.buffers.size());
    const auto count = static_cast<Extent>(initial.size());
    plan.buffers.push_back({index, initial.size() * size_bytes(type), "b" + std::to_string(index)});
    types.push_back(type);
    values.push_back(std::move(initial));
    return {index, type, 0, count};
  }
};

Values random_values(std::mt19937& random, Extent count, DType type = DType::f32) {
  Values values;
  for (Extent i = 0; i < count; ++i)
    values.push_back(is_float(type) ? static_cast<float>(std::uniform_real_distribution<double>(-1, 1)(random))
                                    : std::uniform_int_distribution<int>(0, 9)(random));
  return values;
}

std::vector<Values> run_on_cpu(const Trial& t) {
  const auto cpu = make_cpu_backend();
  std::vector<backend::BufferPtr> buffers;
  for (std::size_t i = 0; i < t.values.size(); ++i) {
    buffers.push_back(cpu->allocate(t.plan.buffers[i].bytes, t.plan.buffers[i].label));
    const auto count = static_cast<Extent>(t.values[i].size());
    std::vector<char> host(t.values[i].size() * size_bytes(t.types[i]));
    for (std::size_t e = 0; e < t.values[i].size(); ++e)
      write_element(t.types[i], t.values[i][e], host.data() + e * size_bytes(t.types[i]));
    cpu->upload(*buffers[i], 0, count, t.types[i], host.data());
  }
  const auto program = cpu->compile(t.plan);
  program->run(buffers);
  cpu->synchronize();
  std::vector<Values> results;
  for (std::size_t i = 0; i < buffers.size(); ++i) {
    const auto count = static_cast<Extent>(t.values[i].size());
    std::vector<char> host(t.values[i].size() * size_bytes(t.types[i]));
    cpu->download(*buffers[i], 0, count, t.types[i], host.data());
    Values values;
    for (std::size_t at = 0; at < host.size(); at += size_bytes(t.types[i]))
      values.push_back(read_element(t.types[i], host.data() + at));
    results.push_back(std::move(values));
  }
  return results;
}

/// Every instruction set agrees with the reference, and any number of threads gives the same bits.
void check(const Trial& t, const std::string& label, double tolerance) {
  std::vector<Values> expected = t.values;
  reference::run(t.plan, expected);
  const Isa isa_before = isa();
  const int threads_before = thread_count();
  for (const Isa i : {Isa::baseline, Isa::avx2, Isa::avx512}) {
    if (i > best_isa()) continue;
    set_isa(i);
    set_thread_count(1);
    const std::vector<Values> got = run_on_cpu(t);
    for (std::size_t b = 0; b < got.size(); ++b)
      for (std::size_t e = 0; e < got[b].size(); ++e) {
        const double x = got[b][e], y = expected[b][e];
        ASSERT_TRUE(x == y || (std::isnan(x) && std::isnan(y)) ||
                    std::fabs(x - y) <= tolerance * std::max(1.0, std::fabs(y)))
            << label << " on " << name(i) << ": buffer " << b << " element " << e << " is " << x << ", not " << y;
      }
    for (const int threads : {2, 4}) {
      set_thread_count(threads);
      const std::vector<Values> again = run_on_cpu(t);
      for (std::size_t b = 0; b < got.size(); ++b)
        ASSERT_TRUE(got[b].empty() || std::memcmp(again[b].data(), got[b].data(), got[b].size() * sizeof(double)) == 0)
            << label << ": bits depend on threads";
    }
  }
  set_isa(isa_before);
  set_thread_count(threads_before);
}

View row_major(std::vector<Extent> extents) {
  View view;
  view.strides.assign(extents.size(), 1);
  for (std::size_t d = extents.size(); d-- > 1;) view.strides[d - 1] = view.strides[d] * extents[d];
  view.extents = std::move(extents);
  return view;
}

enum class Epilogue { none, bias_gelu, two_outputs, in_place_residual, transposed_output };

MatmulKernel product(Trial& t, std::mt19937& random, DType type, Extent batch, Extent m, Extent n, Extent k, bool ta,
                     bool tb, Epilogue epilogue) {
  MatmulKernel mm;
  mm.name = "product";
  mm.batch = batch, mm.m = m, mm.n = n, mm.k = k;
  mm.a = t.buffer(type, random_values(random, batch * m * k, type));
  mm.b = t.buffer(type, random_values(random, k * n, type));
  mm.a_view = kernel::matrix_view({{batch}, {m * k}, 0, {}}, m, ta ? 1 : k, k, ta ? m : 1);
  mm.b_view = kernel::matrix_view({{batch}, {0}, 0, {}}, k, tb ? 1 : n, n, tb ? k : 1);
  const Extent size = batch * m * n;
  LoopKernel& e = mm.epilogue;
  e.name = "epilogue";
  e.outer = size;
  Step accumulator{StepKind::accumulator};
  accumulator.type = type;
  e.steps.push_back(accumulator);
  const auto map = [&](Op op, int a, int b) {
    Step s{StepKind::map};
    s.type = type, s.op = op, s.a = a, s.b = b;
    e.steps.push_back(s);
    return static_cast<int>(e.steps.size()) - 1;
  };
  const auto load = [&](Operand operand, View view) {
    e.inputs.push_back(operand);
    Step s{StepKind::load};
    s.type = type, s.operand = static_cast<int>(e.inputs.size()) - 1, s.view = std::move(view);
    e.steps.push_back(s);
    return static_cast<int>(e.steps.size()) - 1;
  };
  const auto output = [&] {
    return e.outputs.push_back(t.buffer(type, Values(static_cast<std::size_t>(size), 7.0))),
           static_cast<int>(e.outputs.size()) - 1;
  };
  switch (epilogue) {
    case Epilogue::none: e.stores.push_back({0, output(), row_major({size})}); break;
    case Epilogue::bias_gelu: {
      const int bias = load(t.buffer(type, random_values(random, n, type)), {{batch, m, n}, {0, 0, 1}, 0, {}});
      const int sum = map(Op::add, 0, bias);
      e.stores.push_back({is_float(type) ? map(Op::tanh, sum, -1) : sum, output(), row_major({batch, m, n})});
      break;
    }
    case Epilogue::two_outputs: {
      const int first = output(), second = output();
      e.stores.push_back({map(Op::mul, 0, 0), first, row_major({size})});
      e.stores.push_back({0, second, row_major({size})});
      break;
    }
    case Epilogue::in_place_residual: {
      const Operand x = t.buffer(type, random_values(random, size, type));
      const int residual = load(x, row_major({size}));
      e.outputs.push_back(x);
      e.stores.push_back({map(Op::add, residual, 0), 0, row_major({size})});
      break;
    }
    case Epilogue::transposed_output: e.stores.push_back({0, output(), {{batch, m, n}, {m * n, 1, m}, 0, {}}}); break;
  }
  return mm;
}

TEST(CpuBackend, Products) {
  std::mt19937 random(1);
  for (const Epilogue epilogue : {Epilogue::none, Epilogue::bias_gelu, Epilogue::two_outputs,
                                  Epilogue::in_place_residual, Epilogue::transposed_output})
    for (const auto& [batch, m, n, k] : std::vector<std::array<Extent, 4>>{
             {1, 1, 1, 1}, {1, 0, 5, 3}, {2, 3, 5, 0}, {3, 17, 33, 9}, {1, 200, 130, 70}, {2, 64, 96, 32}})
      for (const DType type : {DType::f32, DType::f64, DType::i32, DType::u32}) {
        const bool ta = random() % 2, tb = random() % 2;
        Trial t;
        const MatmulKernel mm = product(t, random, type, batch, m, n, k, ta, tb, epilogue);
        t.plan.kernels.push_back(mm);
        check(t, "product " + std::to_string(m) + " x " + std::to_string(n) + " x " + std::to_string(k),
              type == DType::f64 ? 1e-12 : 1e-4);
        if (HasFatalFailure()) return;
      }
}

TEST(CpuBackend, ProductOfSourcesWithoutUnitStride) {
  std::mt19937 random(2);
  Trial t;
  MatmulKernel mm = product(t, random, DType::f32, 2, 6, 7, 5, false, false, Epilogue::none);
  mm.a = t.buffer(DType::f32, random_values(random, 2 * 6 * 5 * 3));
  mm.a_view = kernel::matrix_view({{2}, {90}, 0, {}}, 6, 15, 5, 3);
  mm.b = t.buffer(DType::f32, random_values(random, 5 * 7 * 2));
  mm.b_view = kernel::matrix_view({{2}, {0}, 0, {}}, 5, 14, 7, 2);
  t.plan.kernels.push_back(mm);
  check(t, "strided product", 1e-5);
}

TEST(CpuBackend, ScatterAdd) {
  std::mt19937 random(3);
  for (const auto& [count, rows, columns] : std::vector<std::array<Extent, 3>>{{0, 4, 3},
                                                                               {9, 1, 1},
                                                                               {40, 7, 5},
                                                                               {3000, 65, 128},
                                                                               {20000, 300, 3},
                                                                               {50, 0, 4},
                                                                               {70000, 3, 1},
                                                                               {70000, 1000, 1},
                                                                               {90000, 40000, 1},
                                                                               {1, 80000, 1}})
    for (const DType type : {DType::f32, DType::f64, DType::i32, DType::u32}) {
      Trial t;
      Values indices;
      for (Extent i = 0; i < count; ++i)
        indices.push_back(std::uniform_int_distribution<int>(-2, static_cast<int>(rows) + 1)(random));
      ScatterAddKernel k;
      k.name = "scatter";
      k.count = count, k.rows = rows, k.columns = columns;
      k.indices = t.buffer(DType::i32, indices);
      k.updates = t.buffer(type, random_values(random, count * columns, type));
      k.out = t.buffer(type, Values(static_cast<std::size_t>(rows * columns), 3.0));
      t.plan.kernels.push_back(k);
      check(t, "scatter-add", type == DType::f32 ? 1e-4 : 1e-12);
      if (HasFatalFailure()) return;
    }
}

AttentionKernel attention(Trial& t, std::mt19937& random, DType type, Extent batch, Extent heads, Extent queries,
                          Extent keys, Extent width, bool causal) {
  AttentionKernel k;
  k.name = "attention";
  k.batch = batch, k.heads = k.kv_heads = heads, k.queries = queries, k.keys = keys, k.width = width;
  k.scale = 1 / std::sqrt(static_cast<double>(width));
  k.causal = causal;
  k.shift = keys - queries;
  // Heads are within a position's channels, as a projection leaves them.
  const auto tensor = [&](Extent length, bool random_fill) {
    AttentionKernel::Tensor made;
    const Extent count = batch * length * heads * width;
    made.operand =
        t.buffer(type, random_fill ? random_values(random, count) : Values(static_cast<std::size_t>(count), 5.0));
    made.batch_stride = length * heads * width;
    made.head_stride = width;
    made.row_stride = heads * width;
    return made;
  };
  k.q = tensor(queries, true);
  k.k = tensor(keys, true);
  k.v = tensor(keys, true);
  k.o = tensor(queries, false);
  k.logsumexp = t.buffer(type, Values(static_cast<std::size_t>(batch * heads * queries), 5.0));
  return k;
}

TEST(CpuBackend, AttentionForwardAndBackward) {
  std::mt19937 random(4);
  struct Case {
    Extent batch, heads, queries, keys, width;
  };
  for (const Case& c : {Case{1, 1, 1, 1, 1}, Case{2, 3, 5, 5, 4}, Case{1, 2, 64, 64, 32}, Case{1, 2, 70, 130, 33},
                        Case{1, 1, 9, 5, 8}, Case{1, 1, 3, 20000, 8}, Case{0, 2, 4, 4, 4}})
    for (const bool causal : {false, true})
      for (const DType type : {DType::f32, DType::f64}) {
        Trial t;
        AttentionKernel forward = attention(t, random, type, c.batch, c.heads, c.queries, c.keys, c.width, causal);
        AttentionKernel backward = forward;
        backward.backward = true;
        const auto like = [&](const AttentionKernel::Tensor& source, bool fill) {
          AttentionKernel::Tensor made = source;
          made.operand = t.buffer(type, fill ? random_values(random, source.operand.count)
                                             : Values(static_cast<std::size_t>(source.operand.count), 5.0));
          return made;
        };
        backward.d_o = like(forward.o, true);
        backward.d_q = like(forward.q, false);
        backward.d_k = like(forward.k, false);
        backward.d_v = like(forward.v, false);
        t.plan.kernels = {forward, backward};
        check(t, "attention " + std::to_string(c.queries) + " x " + std::to_string(c.keys),
              type == DType::f64 ? 1e-11 : 2e-5);
        if (HasFatalFailure()) return;
      }
}

TEST(CpuBackend, ErrorsNameTheThingAndTheCure) {
  const auto cpu = make_cpu_backend();
  try {
    cpu->allocate(std::size_t{1} << 60, "huge weight");
    FAIL() << "allocated";
  } catch (const DeviceError& error) {
    EXPECT_NE(std::string(error.what()).find("huge weight"), std::string::npos);
    EXPECT_NE(std::string(error.what()).find(std::to_string(std::size_t{1} << 60)), std::string::npos);
  }
  Plan plan;
  LoopKernel loop;
  loop.name = "broken";
  loop.outer = 4;
  loop.inputs = {{0, DType::boolean, 0, 4}};
  loop.outputs = {{1, DType::boolean, 0, 4}};
  Step load{StepKind::load};
  load.type = DType::boolean, load.operand = 0, load.view = row_major({4});
  Step map{StepKind::map};
  map.type = DType::boolean, map.op = Op::exp, map.a = 0;
  loop.steps = {load, map};
  loop.stores = {{1, 0, row_major({4})}};
  plan.buffers = {{0, 4, "x"}, {1, 4, "y"}};
  plan.kernels = {loop};
  EXPECT_THROW(cpu->compile(plan), DTypeError);
  plan.kernels.clear();
  const auto program = cpu->compile(plan);
  EXPECT_THROW(program->run({}), InternalError);  // the externals are missing
}

TEST(CpuBackend, DescribesItselfAndItsPrograms) {
  std::mt19937 random(5);
  const auto cpu = make_cpu_backend();
  EXPECT_EQ(cpu->describe().name, "cpu");
  EXPECT_EQ(cpu->describe().dtypes.size(), std::size(kAllDTypes));
  Trial t;
  t.plan.kernels.push_back(product(t, random, DType::f32, 1, 8, 8, 8, false, false, Epilogue::bias_gelu));
  const auto program = cpu->compile(t.plan);
  EXPECT_NE(program->source().find("tanh"), std::string::npos);
  EXPECT_EQ(program->scratch_bytes(), 0u);  // the product is in the output itself
  std::vector<backend::BufferPtr> buffers;
  for (const auto& info : t.plan.buffers) buffers.push_back(cpu->allocate(info.bytes, info.label));
  const auto times = program->profile(buffers);
  ASSERT_EQ(times.size(), 1u);
  EXPECT_EQ(times[0].name, "product");
}

}  // namespace
}  // namespace weft::cpu
