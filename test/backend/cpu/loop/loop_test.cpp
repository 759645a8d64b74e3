// Loop programs against the slow reference: chosen cases and random kernels, on every instruction set and thread count.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <random>
#include <sstream>
#include <string>
#include <vector>

#include "backend/cpu/isa.hpp"
#include "backend/cpu/loop/chain.hpp"
#include "backend/cpu/loop/code.hpp"
#include "backend/cpu/loop/loop.hpp"
#include "base/sanitized.hpp"
#include "base/threads.hpp"
#include "kernel_reference.hpp"
#include "tensor/element.hpp"

namespace weft::cpu::loop_test {
namespace {

using kernel::Level;
using kernel::LoopKernel;
using kernel::Operand;
using kernel::Step;
using kernel::StepKind;
using kernel::Store;
using kernel::View;
using reference::Values;
using scalar::Op;
using scalar::Reduction;

/// Builds kernels in a few words.
struct Builder {
  LoopKernel kernel;
  std::vector<DType> types;  // of buffers
  std::vector<Extent> sizes;

  int input(DType type, Extent count) {
    types.push_back(type);
    sizes.push_back(count);
    kernel.inputs.push_back({static_cast<int>(types.size()) - 1, type, 0, count});
    return static_cast<int>(kernel.inputs.size()) - 1;
  }
  int output(DType type, Extent count) {
    types.push_back(type);
    sizes.push_back(count);
    kernel.outputs.push_back({static_cast<int>(types.size()) - 1, type, 0, count});
    return static_cast<int>(kernel.outputs.size()) - 1;
  }
  int step(Step s) {
    kernel.steps.push_back(std::move(s));
    return static_cast<int>(kernel.steps.size()) - 1;
  }
  int load(int operand, Level level, View view) {
    Step s{StepKind::load};
    s.type = kernel.inputs[static_cast<std::size_t>(operand)].type;
    s.level = level;
    s.operand = operand;
    s.view = std::move(view);
    return step(s);
  }
  int constant(DType type, double value) {
    Step s{StepKind::constant};
    s.type = type;
    s.value = value;
    return step(s);
  }
  DType type(int s) const { return kernel.steps[static_cast<std::size_t>(s)].type; }
  Level level(int s) const { return kernel.steps[static_cast<std::size_t>(s)].level; }
  int map(Op op, DType type, int a, int b = -1, int c = -1) {
    Step s{StepKind::map};
    s.op = op;
    s.type = type;
    s.a = a, s.b = b, s.c = c;
    for (const int arg : {a, b, c})
      if (arg >= 0 && level(arg) == Level::inner) s.level = Level::inner;
    return step(s);
  }
  int reduce(Reduction r, int a) {
    Step s{StepKind::reduce};
    s.reduction = r;
    s.a = a;
    s.type = r == Reduction::argmax || r == Reduction::argmin ? DType::i32 : type(a);
    return step(s);
  }
  void store(int value, int output, View view) { kernel.stores.push_back({value, output, std::move(view)}); }
};

constexpr std::size_t kGuard = 64;  // bytes around each buffer that nobody may touch

std::vector<char> to_bytes(const Values& values, DType type) {
  std::vector<char> bytes(values.size() * size_bytes(type) + 2 * kGuard, char(0x5a));
  char* at = bytes.data() + kGuard;
  for (const double x : values) write_element(type, x, at), at += size_bytes(type);
  return bytes;
}
Values from_bytes(const std::vector<char>& bytes, DType type) {
  Values values;
  for (std::size_t at = kGuard; at + kGuard < bytes.size(); at += size_bytes(type))
    values.push_back(read_element(type, bytes.data() + at));
  return values;
}

bool close(double got, double want, DType type, double tolerance) {
  if (std::isnan(got) || std::isnan(want)) return std::isnan(got) && std::isnan(want);
  if (got == want) return true;
  if (!is_float(type)) return false;
  if (std::isinf(got) || std::isinf(want)) return false;
  return std::fabs(got - want) <= tolerance * std::max(1.0, std::fabs(want));
}

/// The buffers after a run.
std::vector<std::vector<char>> run(const LoopProgram& program, const Builder& b, const std::vector<Values>& buffers) {
  std::vector<std::vector<char>> bytes;
  for (std::size_t k = 0; k < buffers.size(); ++k) bytes.push_back(to_bytes(buffers[k], b.types[k]));
  const auto pointers = [&](const std::vector<Operand>& operands) {
    std::vector<char*> result;
    for (const Operand& o : operands)
      result.push_back(bytes[static_cast<std::size_t>(o.buffer)].data() + kGuard +
                       o.offset * static_cast<Extent>(size_bytes(o.type)));
    return result;
  };
  const std::vector<char*> inputs = pointers(b.kernel.inputs), outputs = pointers(b.kernel.outputs);
  program.run({inputs, outputs, nullptr});
  return bytes;
}

/// Machine code for chains of ops gives the bits of the ops one by one. (NaN is NaN: which one is not promised.)
void check_chains(const Builder& b, const std::vector<Values>& buffers, const std::string& label) {
  if (best_isa() < Isa::avx512) return;
  const Isa isa_before = isa();
  set_isa(Isa::avx512);
  const LoopProgram chained(b.kernel);
  set_chains_enabled(false);
  const LoopProgram plain(b.kernel);
  set_chains_enabled(true);
  ASSERT_EQ(plain.to_string().find("chain"), std::string::npos);
  const auto got = run(chained, b, buffers), expected = run(plain, b, buffers);
  for (std::size_t k = 0; k < buffers.size(); ++k) {
    const Values g = from_bytes(got[k], b.types[k]), e = from_bytes(expected[k], b.types[k]);
    for (std::size_t i = 0; i < g.size(); ++i)
      ASSERT_TRUE((std::isnan(g[i]) && std::isnan(e[i])) || (g[i] == e[i] && std::signbit(g[i]) == std::signbit(e[i])))
          << label << ": buffer " << k << " element " << i << " is " << g[i] << " in a chain, and " << e[i]
          << " without\n"
          << chained.to_string();
  }
  set_isa(isa_before);
}

/// Runs on every instruction set with 1, 2 and 4 threads; bits must not depend on threads, values must be the reference's.
void check(const Builder& b, const std::vector<Values>& buffers, const std::string& label, double tolerance = 1e-5) {
  std::vector<Values> expected = buffers;
  reference::run(b.kernel, expected);
  const int threads_before = thread_count();
  const Isa isa_before = isa();
  for (const Isa i : {Isa::baseline, Isa::avx2, Isa::avx512}) {
    if (i > best_isa()) continue;
    set_isa(i);
    const LoopProgram program(b.kernel);
    std::vector<std::vector<char>> first;
    for (const int threads : {1, 2, 4}) {
      set_thread_count(threads);
      const std::vector<std::vector<char>> bytes = run(program, b, buffers);
      if (threads > 1) {
        ASSERT_EQ(bytes, first) << label << ": bits depend on threads\n" << program.to_string();
        continue;
      }
      first = bytes;
      for (std::size_t k = 0; k < bytes.size(); ++k) {
        for (std::size_t g = 0; g < kGuard; ++g)
          ASSERT_TRUE(bytes[k][g] == 0x5a && bytes[k][bytes[k].size() - 1 - g] == 0x5a)
              << label << ": wrote around buffer " << k << "\n"
              << program.to_string();
        const Values got = from_bytes(bytes[k], b.types[k]);
        for (std::size_t e = 0; e < got.size(); ++e)
          ASSERT_TRUE(close(got[e], expected[k][e], b.types[k], tolerance))
              << label << " on " << name(i) << ": buffer " << k << " element " << e << " is " << got[e] << ", not "
              << expected[k][e] << "\n"
              << program.to_string();
      }
    }
  }
  set_thread_count(threads_before);
  set_isa(isa_before);
  check_chains(b, buffers, label);
}

Values random_values(std::mt19937& random, DType type, Extent count, double low = -2, double high = 2) {
  Values values;
  std::uniform_real_distribution<double> uniform(low, high);
  for (Extent i = 0; i < count; ++i) {
    if (is_float(type))
      values.push_back(reference::to_type(uniform(random), type));
    else if (type == DType::boolean)
      values.push_back(random() % 2);
    else
      values.push_back(std::uniform_int_distribution<int>(element(type).is_signed ? -9 : 0, 9)(random));
  }
  return values;
}

std::vector<Values> random_buffers(std::mt19937& random, const Builder& b) {
  std::vector<Values> buffers;
  for (std::size_t k = 0; k < b.types.size(); ++k) buffers.push_back(random_values(random, b.types[k], b.sizes[k]));
  return buffers;
}

View row_major(std::vector<Extent> extents) {
  View view;
  view.strides.assign(extents.size(), 1);
  for (std::size_t d = extents.size(); d-- > 1;) view.strides[d - 1] = view.strides[d] * extents[d];
  view.extents = std::move(extents);
  return view;
}

Builder softmax(Extent rows, Extent columns, bool along_columns) {
  Builder b;
  b.kernel.outer = rows, b.kernel.inner = columns;
  const int x = b.input(DType::f32, rows * columns);
  const int y = b.output(DType::f32, rows * columns);
  // Along columns the outer index moves by one element and the inner by a row.
  const View view = along_columns ? View{{rows, columns}, {1, rows}, 0, {}} : row_major({rows, columns});
  const int v = b.load(x, Level::inner, view);
  const int centred = b.map(Op::sub, DType::f32, v, b.reduce(Reduction::max, v));
  const int e = b.map(Op::exp, DType::f32, centred);
  b.store(b.map(Op::div, DType::f32, e, b.reduce(Reduction::sum, e)), y, view);
  return b;
}

TEST(Loop, Softmax) {
  std::mt19937 random(1);
  for (const bool along_columns : {false, true})
    for (const auto& [rows, columns] : std::vector<std::pair<Extent, Extent>>{
             {1, 1}, {3, 5}, {0, 4}, {70, 64}, {5, 3000}, {300, 130}, {1, 50000}, {2, 300000}, {33, 2049}}) {
      const Builder b = softmax(rows, columns, along_columns);
      check(b, random_buffers(random, b), "softmax " + std::to_string(rows) + " x " + std::to_string(columns), 1e-5);
    }
}

/// Casts between f32 and a narrow type in one kernel: a narrow matrix and a narrow number for each row are read, and a narrow
/// result and its half as f32 are written.
Builder narrow_chain(DType type, Extent rows, Extent columns) {
  Builder b;
  b.kernel.outer = rows, b.kernel.inner = columns;
  const int x = b.input(DType::f32, rows * columns), t = b.input(type, rows * columns), s = b.input(type, rows);
  const int narrow = b.output(type, rows * columns), wide = b.output(DType::f32, rows * columns);
  const View view = row_major({rows, columns});
  const auto widened = [&](int value) { return b.map(Op::cast, DType::f32, value); };
  const int product = b.map(Op::mul, DType::f32, b.load(x, Level::inner, view), widened(b.load(t, Level::inner, view)));
  const int shifted =
      b.map(Op::add, DType::f32, product, widened(b.load(s, Level::inner, {{rows, columns}, {1, 0}, 0, {}})));
  const int rounded = b.map(Op::cast, type, shifted);
  b.store(rounded, narrow, view);
  b.store(b.map(Op::mul, DType::f32, widened(rounded), b.constant(DType::f32, 0.5)), wide, view);
  return b;
}

TEST(Loop, ChainsReadAndWriteNarrowTypes) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  const Values special = {0.0,       -0.0,      1.0,      kInfinity,  -kInfinity, std::nan(""), 65504,
                          65519.9,   65520,     1e6,      -70000,     3.4e38,     0x1p-24,      0x1p-25,
                          0x1.8p-25, 0x1p-14,   1e-40,    0x1.01p0,   0x1.03p0,   0x1.00cp0,    0x1.002p0,
                          0x1.006p0, 0x1.007p0, 0x1p-126, 0x1.fep127, -3};
  std::mt19937 random(71);
  for (const DType type : {DType::bf16, DType::f16})
    for (const auto& [rows, columns] :
         std::vector<std::pair<Extent, Extent>>{{1, 1}, {3, 15}, {2, 16}, {5, 70}, {40, 300}, {3, 5000}, {512, 8192}}) {
      const Builder b = narrow_chain(type, rows, columns);
      std::vector<Values> buffers = random_buffers(random, b);
      const std::string label = std::string(name_of(type)) + " " + std::to_string(columns);
      if (columns < 8000) check(b, buffers, label, 1e-2);  // a fused multiply-add may round otherwise
      // Special numbers unchanged, since they are multiplied by 1 and nothing is added, then combined with one another.
      for (const bool alone : {true, false}) {
        for (std::size_t i = 0; i < buffers[0].size(); ++i) {
          buffers[0][i] = special[random() % special.size()];
          buffers[1][i] = alone ? 1 : reference::to_type(special[random() % special.size()], type);
        }
        if (alone) std::fill(buffers[2].begin(), buffers[2].end(), -0.0);
        check_chains(b, buffers, label + ", special numbers");
      }
      if (best_isa() >= Isa::avx512) {
        set_isa(Isa::avx512);
        EXPECT_NE(LoopProgram(b.kernel).to_string().find("chain"), std::string::npos);
        set_isa(best_isa());
      }
    }
}

TEST(Loop, ReductionOfNothing) {
  std::mt19937 random(2);
  for (const DType type : {DType::f32, DType::i32, DType::u32, DType::boolean})
    for (const Reduction r : {Reduction::sum, Reduction::prod, Reduction::max, Reduction::min, Reduction::argmax}) {
      Builder b;
      b.kernel.outer = 3, b.kernel.inner = 0;
      const int x = b.input(type, 0);
      const int y = b.output(r == Reduction::argmax ? DType::i32 : type, 3);
      b.store(b.reduce(r, b.load(x, Level::inner, {{3, 0}, {0, 1}, 0, {}})), y, row_major({3}));
      check(b, random_buffers(random, b), "reduction of nothing");
    }
}

TEST(Loop, EveryReductionOfEveryType) {
  std::mt19937 random(3);
  for (const bool columns : {false, true})
    for (const DType type : kComputeDTypes)
      for (const Reduction r :
           {Reduction::sum, Reduction::prod, Reduction::max, Reduction::min, Reduction::argmax, Reduction::argmin})
        for (const auto& [outer, inner] : std::vector<std::pair<Extent, Extent>>{
                 {5, 37}, {40, 3}, {17, 300}, {2, test::kSanitized ? 70000 : 200000}}) {
          if (is_narrow(type)) continue;  // reduced in the type that they compute in
          Builder b;
          b.kernel.outer = outer, b.kernel.inner = inner;
          const int x = b.input(type, outer * inner);
          const int y = b.output(r >= Reduction::argmax ? DType::i32 : type, outer);
          b.store(b.reduce(r, b.load(x, Level::inner,
                                     columns ? View{{outer, inner}, {1, outer}, 0, {}} : row_major({outer, inner}))),
                  y, row_major({outer}));
          std::vector<Values> buffers = random_buffers(random, b);
          if (r == Reduction::prod && is_float(type))
            for (double& v : buffers[0]) v = static_cast<float>(1 + v * 1e-3);
          if (r == Reduction::prod && element(type).bits == 64 && is_integer(type))
            for (double& v : buffers[0]) v = v == 3 ? 1 - 2 * element(type).is_signed : 1;  // products stay exact
          check(b, buffers, std::string(scalar::name_of(r)), 1e-4);
        }
}

TEST(Loop, NanIsExtremeAndTheFirstExtremeWins) {
  constexpr Extent kRows = 36, kLong = 200;  // more than a vector, and than a tile
  for (const bool columns : {false, true}) {
    const double nan = std::nan("");
    Builder b;
    b.kernel.outer = kRows, b.kernel.inner = kLong;
    const int x = b.input(DType::f32, kRows * kLong);
    const View view = columns ? View{{kRows, kLong}, {1, kRows}, 0, {}} : row_major({kRows, kLong});
    const int v = b.load(x, Level::inner, view);
    for (const Reduction r : {Reduction::argmax, Reduction::argmin, Reduction::max, Reduction::min})
      b.store(b.reduce(r, v), b.output(r >= Reduction::argmax ? DType::i32 : DType::f32, kRows), row_major({kRows}));
    Values values(kRows * kLong, 1.0);
    const auto at = [&](Extent row, Extent column) -> double& {
      return values[static_cast<std::size_t>(columns ? column * kRows + row : row * kLong + column)];
    };
    for (Extent row = 0; row < kRows; row += 4) {
      at(row, 7) = at(row, 30) = at(row, 130) = 3;
      at(row + 1, 33) = nan, at(row + 1, 35) = nan, at(row + 1, 2) = 9, at(row + 1, 150) = nan;
      at(row + 2, 20) = -5, at(row + 2, 21) = -5, at(row + 2, 199) = -5;
    }
    std::vector<Values> buffers = {values};
    for (int k = 0; k < 4; ++k) buffers.push_back(Values(kRows, 0.0));
    check(b, buffers, "extremes");
  }
}

TEST(Loop, ReductionsOverAxesThatAreApart) {
  // Elements of a row, or neighbouring rows, are side by side only within runs.
  std::mt19937 random(14);
  for (const bool columns : {false, true})
    for (const auto& [rows, slices, run] :
         std::vector<std::tuple<Extent, Extent, Extent>>{{3, 7, 96}, {40, 5, 64}, {2, 3, 5000}, {300, 2, 128}}) {
      Builder b;
      const Extent count = rows * slices * run;
      // Rows: an outer index, then slices of runs. Columns: slices of runs lie beside each other, an inner index apart.
      b.kernel.outer = columns ? slices * run : rows, b.kernel.inner = columns ? rows : slices * run;
      const View view = columns ? View{{slices, run, rows}, {run * rows, 1, run}, 0, {}}
                                : View{{rows, slices, run}, {run, rows * run, 1}, 0, {}};
      const int v = b.load(b.input(DType::f32, count), Level::inner, view);
      const int e = b.map(Op::exp, DType::f32, b.map(Op::sub, DType::f32, v, b.reduce(Reduction::max, v)));
      const View out = row_major({b.kernel.outer});
      b.store(b.reduce(Reduction::sum, e), b.output(DType::f32, b.kernel.outer), out);
      b.store(b.reduce(Reduction::argmin, v), b.output(DType::i32, b.kernel.outer), out);
      b.store(e, b.output(DType::f32, count), view);
      check(b, random_buffers(random, b), "axes apart", 1e-5);
    }
}

TEST(Loop, ColumnsThatSeveralPhasesRead) {
  // A softmax and a variance down the columns: the first phase copies as many columns as fit, or every phase reads them.
  std::mt19937 random(16);
  const Extent beyond = test::kSanitized ? 300 : 20000;
  for (const DType type : {DType::f32, DType::f64, DType::f16, DType::i32})
    for (const auto& [columns, rows] : std::vector<std::pair<Extent, Extent>>{
             {33, 300}, {200, 70}, {129, 4100}, {40, 9000}, {32, beyond}, {1000, 1}}) {
      Builder b;
      b.kernel.outer = columns, b.kernel.inner = rows;
      const View down = {{columns, rows}, {1, columns}, 0, {}};
      const DType wide = is_float(type) && type != DType::f64 ? DType::f32 : type;
      const int x = b.load(b.input(type, columns * rows), Level::inner, down);
      const int v = wide == type ? x : b.map(Op::cast, wide, x);
      const int shift = b.load(b.input(wide, columns), Level::outer, row_major({columns}));
      const int above = b.map(Op::sub, wide, v, b.reduce(Reduction::max, v));
      const int e = is_float(wide) ? b.map(Op::exp, wide, above) : above;
      const int total = b.reduce(Reduction::sum, e);
      b.store(b.map(Op::add, wide, b.map(Op::mul, wide, e, total), shift), b.output(wide, columns * rows), down);
      const int apart = b.map(Op::sub, wide, v, total);
      b.store(b.reduce(Reduction::min, apart), b.output(wide, columns), row_major({columns}));
      check(b, random_buffers(random, b), "columns", type == DType::f64 ? 1e-12 : 2e-5);
    }
}

TEST(Loop, FullReductionOfMillionsIsAccurate) {
  const Extent n = 5'000'011;
  Builder b;
  b.kernel.outer = 1, b.kernel.inner = n;
  const int x = b.input(DType::f32, n);
  b.store(b.reduce(Reduction::sum, b.load(x, Level::inner, row_major({1, n}))), b.output(DType::f32, 1),
          row_major({1}));
  check(b, {Values(static_cast<std::size_t>(n), static_cast<double>(0.1f)), Values(1, 0.0)}, "sum of 0.1", 1e-6);
}

TEST(Loop, GatherIndexAndPhilox) {
  std::mt19937 random(5);
  Builder b;
  const Extent rows = 50, width = 33, table = 7;
  b.kernel.outer = rows * width;
  const int ids = b.input(DType::i32, rows), weights = b.input(DType::f32, table * width),
            seed = b.input(DType::u32, 2);
  const int out = b.output(DType::f32, rows * width), bits = b.output(DType::u32, rows * width);
  const int id = b.load(ids, Level::outer, {{rows, width}, {1, 0}, 0, {}});
  Step gather{StepKind::gather};
  gather.operand = weights;
  gather.a = id;
  gather.axis_stride = width;
  gather.axis_extent = table;
  gather.view = {{rows, width}, {0, 1}, 0, {}};
  b.store(b.step(gather), out, row_major({rows * width}));
  Step index{StepKind::index, DType::u32};
  index.view = row_major({rows * width});
  const int counter = b.step(index);
  const int s = b.load(seed, Level::outer, {{rows * width}, {0}, 0, {}}),
            t = b.load(seed, Level::outer, {{rows * width}, {0}, 1, {}});
  b.store(b.map(Op::philox, DType::u32, s, t, counter), bits, row_major({rows * width}));
  check(b, random_buffers(random, b), "gather");  // ids go from -9 to 9: some are outside
}

/// Gathers from a table of rows: whole rows by an index each, or words within each row.
Builder gather_of(Extent rows, Extent width, bool words) {
  Builder b;
  b.kernel.outer = rows * width;
  const int ids = b.input(DType::i32, words ? rows * width : rows), table = b.input(DType::f32, rows * width);
  const int out = b.output(DType::f32, rows * width);
  Step gather{StepKind::gather};
  gather.operand = table;
  gather.a = b.load(ids, Level::outer, words ? row_major({rows * width}) : View{{rows, width}, {1, 0}, 0, {}});
  gather.axis_stride = words ? 1 : width;
  gather.axis_extent = words ? width : rows;
  gather.view = words ? View{{rows, width}, {width, 0}, 0, {}} : View{{rows, width}, {0, 1}, 0, {}};
  b.store(b.step(gather), out, row_major({rows * width}));
  return b;
}

TEST(Loop, GathersOfRowsAndOfWordsWithin) {
  std::mt19937 random(15);
  for (const bool words : {false, true}) {
    for (const auto& [rows, width] :
         std::vector<std::pair<Extent, Extent>>{{1, 1}, {3, 16}, {70, 19}, {9, 1000}, {4, 3001}}) {
      const Builder b = gather_of(rows, width, words);
      check(b, random_buffers(random, b), "gather");
    }
    // Results beyond the caches, which are written past them, in rows that begin at cache lines or anywhere.
    for (const auto& [rows, width] : std::vector<std::pair<Extent, Extent>>{{2050, 3136}, {6007, 1069}}) {
      Builder b = gather_of(rows, width, words);
      constexpr Extent kOffset = 12;  // to a cache line, in buffers of this size
      b.kernel.outputs[0].offset = kOffset;
      b.sizes[2] += kOffset;
      std::vector<Values> buffers = random_buffers(random, b);
      const Extent extent = words ? width : rows;
      std::uniform_int_distribution<Extent> any(-3, extent + 3);
      for (double& index : buffers[0]) index = static_cast<double>(any(random));
      const Isa isa_before = isa();
      for (const Isa i : {Isa::baseline, Isa::avx2, Isa::avx512}) {
        if (i > best_isa()) continue;
        set_isa(i);
        const Values got = from_bytes(run(LoopProgram(b.kernel), b, buffers)[2], DType::f32);
        for (Extent at = 0; at < rows * width; ++at) {
          const Extent row = at / width, column = at % width;
          const auto index = static_cast<Extent>(buffers[0][static_cast<std::size_t>(words ? at : row)]);
          const bool inside = index >= 0 && index < extent;
          const Extent from = words ? row * width + index : index * width + column;
          ASSERT_EQ(got[static_cast<std::size_t>(kOffset + at)],
                    inside ? buffers[1][static_cast<std::size_t>(from)] : 0.0)
              << name(i) << ", element " << at << " of " << rows << " x " << width;
        }
      }
      set_isa(isa_before);
    }
  }
}

TEST(Loop, PadsReadZeroAndAreNotStored) {
  std::mt19937 random(6);
  Builder b;
  b.kernel.outer = 6 * 40;
  const int x = b.input(DType::f32, 4 * 36);
  const int y = b.output(DType::f32, 6 * 40), z = b.output(DType::f32, 4 * 36);
  const View padded{{6, 40}, {36, 1}, -1 * 36 - 2, {{1, 5}, {2, 38}}};
  const int v = b.load(x, Level::outer, padded);
  b.store(v, y, row_major({6, 40}));
  b.store(b.map(Op::neg, DType::f32, v), z, padded);
  check(b, random_buffers(random, b), "pad");
}

TEST(Loop, UpdatesInPlace) {
  std::mt19937 random(7);
  const Extent rows = 40, width = 100;
  Builder b;  // x = x - mean(x), and y = 2 x of before
  b.kernel.outer = rows, b.kernel.inner = width;
  const int x = b.input(DType::f32, rows * width);
  b.kernel.outputs.push_back(b.kernel.inputs[0]);
  const View view = row_major({rows, width});
  const int v = b.load(x, Level::inner, view);
  const int sum = b.reduce(Reduction::sum, v);
  const int mean = b.map(Op::mul, DType::f32, sum, b.constant(DType::f32, 1.0 / width));
  const int y = b.output(DType::f32, rows * width);
  const int out = b.map(Op::sub, DType::f32, v, mean);
  b.store(out, 0, view);
  b.store(b.map(Op::mul, DType::f32, v, b.constant(DType::f32, 2)), y, view);
  check(b, random_buffers(random, b), "in place");
}

TEST(Loop, TransposedAndPermutedViews) {
  std::mt19937 random(8);
  Builder b;
  const Extent n = 75, m = 130;
  b.kernel.outer = n * m;
  const int x = b.input(DType::f32, n * m);
  const int y = b.output(DType::f32, n * m), z = b.output(DType::f32, n * m);
  const int v = b.load(x, Level::outer, {{n, m}, {1, n}, 0, {}});
  b.store(v, y, row_major({n, m}));
  b.store(b.map(Op::neg, DType::f32, v), z, {{n, m}, {-m, -1}, n * m - 1, {}});
  check(b, random_buffers(random, b), "transpose");
}

/// A random view over `space` elements, and the number of elements it may touch.
View random_view(std::mt19937& random, Extent outer, Extent inner, bool injective, Extent* count) {
  const auto factor = [&](Extent n) {
    std::vector<Extent> factors;
    for (Extent f = 2; f <= n && factors.size() < 2; ++f)
      if (n % f == 0 && random() % 2) factors.push_back(f), n /= f;
    factors.push_back(n);
    std::shuffle(factors.begin(), factors.end(), random);
    return factors;
  };
  std::vector<Extent> extents = factor(outer);
  for (const Extent e : factor(inner)) extents.push_back(e);
  if (random() % 6 == 0) extents = {outer * inner};
  std::vector<std::size_t> order(extents.size());
  for (std::size_t d = 0; d < order.size(); ++d) order[d] = d;
  if (random() % 2) std::shuffle(order.begin(), order.end(), random);
  View view;
  view.extents = extents;
  view.strides.assign(extents.size(), 0);
  view.offset = random() % 3 ? 0 : static_cast<Extent>(random() % 5);
  Extent stride = random() % 6 ? 1 : 2, last = view.offset;
  for (std::size_t k = order.size(); k-- > 0;) {
    const std::size_t d = order[k];
    if (!injective && random() % 4 == 0) continue;  // broadcast
    view.strides[d] = stride;
    last += (extents[d] - 1) * stride;
    stride *= extents[d];
    if (random() % 5 == 0) {  // backwards
      view.offset += (extents[d] - 1) * view.strides[d];
      view.strides[d] = -view.strides[d];
    }
  }
  if (random() % 4 == 0)
    for (const Extent e : extents) {
      const Extent lo = random() % 2 ? 0 : static_cast<Extent>(random() % static_cast<unsigned>(e + 1));
      view.bounds.push_back(
          {lo, random() % 2 ? e : std::min(e, lo + static_cast<Extent>(random() % static_cast<unsigned>(e + 1)))});
    }
  *count = last + 1;
  return view;
}

TEST(Loop, RandomKernels) {
  const unsigned seeds = 400;
  for (unsigned seed = 0; seed < seeds; ++seed) {
    std::mt19937 random(seed);
    Builder b;
    const Extent sizes[] = {1, 2, 3, 7, 16, 30, 64, 100, 129, 360, 1000};
    const bool flat = random() % 3 == 0;
    b.kernel.outer = sizes[random() % 11];
    b.kernel.inner = flat ? 1 : sizes[random() % 11];
    if (b.kernel.outer * b.kernel.inner > 40000) b.kernel.inner = 7;
    std::vector<int> values;
    const auto pick = [&] { return values[random() % values.size()]; };
    const auto load = [&](Level level) {
      const DType types[] = {DType::f32, DType::f32, DType::f32, DType::f64, DType::i32, DType::u32, DType::boolean};
      Extent count;
      const View view = random_view(random, b.kernel.outer, level == Level::inner ? b.kernel.inner : 1, false, &count);
      const int operand = b.input(types[random() % 7], count);
      return b.load(operand, level, view);
    };
    const Level element = flat ? Level::outer : Level::inner;
    values.push_back(load(element));
    values.push_back(load(random() % 2 ? element : Level::outer));
    values.push_back(b.constant(DType::f32, 0.75));
    const int length = 3 + static_cast<int>(random() % 12);
    for (int k = 0; k < length; ++k) {
      const int a = pick(), c = pick();
      const DType type = promote(b.type(a), b.type(c));
      switch (random() % 9) {
        case 0: values.push_back(load(random() % 2 ? element : Level::outer)); break;
        case 1: {
          const Op ops[] = {Op::neg, Op::abs, Op::sign};
          if (b.type(a) != DType::boolean) values.push_back(b.map(ops[random() % 3], b.type(a), a));
          break;
        }
        case 2: {
          const Op ops[] = {Op::tanh, Op::exp, Op::sin, Op::atan};
          if (is_float(b.type(a)))
            values.push_back(
                b.map(Op::tanh, b.type(a), b.map(ops[random() % 4], b.type(a), b.map(Op::tanh, b.type(a), a))));
          break;
        }
        case 3: {
          const Op ops[] = {Op::add, Op::sub, Op::mul, Op::min, Op::max};
          if (type != DType::boolean)
            values.push_back(
                b.map(Op::tanh, DType::f32, b.map(Op::cast, DType::f32, b.map(ops[random() % 5], type, a, c))));
          break;
        }
        case 4: {
          const Op ops[] = {Op::eq, Op::ne, Op::lt, Op::le, Op::gt, Op::ge};
          values.push_back(b.map(ops[random() % 6], DType::boolean, a, c));
          break;
        }
        case 5: {
          const int condition = random() % 2 ? b.map(Op::lt, DType::boolean, a, c) : pick();
          if (b.type(condition) == DType::boolean) values.push_back(b.map(Op::select, type, condition, a, c));
          break;
        }
        case 6: values.push_back(b.map(Op::cast, kAllDTypes[random() % 5], a)); break;
        case 7: {
          // a * c + d, kept small.
          const int d = pick();
          values.push_back(
              b.map(Op::tanh, DType::f32,
                    b.map(Op::add, DType::f32,
                          b.map(Op::mul, DType::f32, b.map(Op::cast, DType::f32, a), b.map(Op::cast, DType::f32, c)),
                          b.map(Op::cast, DType::f32, d))));
          break;
        }
        case 8: {
          if (flat || b.level(a) != Level::inner) break;
          const Reduction reductions[] = {Reduction::sum, Reduction::max, Reduction::min, Reduction::argmax};
          const Reduction r = reductions[random() % 4];
          // Bounded, so that what follows does not magnify rounding.
          if (r == Reduction::sum && is_float(b.type(a)))
            values.push_back(b.map(Op::mul, b.type(a), b.reduce(r, a),
                                   b.constant(b.type(a), 1.0 / static_cast<double>(b.kernel.inner))));
          else
            values.push_back(b.reduce(r, a));
          break;
        }
      }
    }
    for (int k = 0; k < 3; ++k) {
      const int value = k == 0 ? values.back() : pick();
      Extent count;
      const View view =
          random_view(random, b.kernel.outer, b.level(value) == Level::inner ? b.kernel.inner : 1, true, &count);
      b.store(value, b.output(b.type(value), count), view);
    }
    // Comparisons and casts of values that rounding moves would differ: all leaves are multiples of 1/4, and a
    // discontinuous step of a rounded value is possible but not met by these seeds.
    std::vector<Values> buffers;
    for (std::size_t k = 0; k < b.types.size(); ++k) {
      Values v = random_values(random, b.types[k], b.sizes[k]);
      if (is_float(b.types[k]))
        for (double& x : v) x = std::round(x * 4) / 4;
      buffers.push_back(v);
    }
    check(b, buffers, "seed " + std::to_string(seed), 2e-4);
    if (HasFatalFailure()) return;
  }
}

TEST(Loop, ChainsHaveTheBitsOfTheirOps) {
  // Every op in the middle of a chain, on numbers of all sizes, for rows that do and do not fill vectors.
  const double infinity = INFINITY;
  const Values special = {0.0,     -0.0,  1,      -1,      0.5,    -0.5,     1.5,       2.5,
                          -2.5,    1e-3,  3.9499, -3.9501, 10,     -10.0001, 88.9,      89.1,
                          -104.9,  -106,  1e-38,  1e-41,   -1e-45, 1e38,     3.4e38,    -3e38,
                          8388609, -0.75, 0.7071, 1.4143,  1e-20,  infinity, -infinity, std::nan("")};
  std::mt19937 random(11);
  for (const Op op : {Op::neg,      Op::abs,  Op::floor, Op::ceil, Op::round, Op::trunc, Op::sqrt, Op::rsqrt, Op::exp,
                      Op::log,      Op::tanh, Op::erf,   Op::add,  Op::sub,   Op::mul,   Op::div,  Op::min,   Op::max,
                      Op::copysign, Op::eq,   Op::ne,    Op::lt,   Op::le,    Op::gt,    Op::ge})
    for (const auto& [rows, columns] :
         std::vector<std::pair<Extent, Extent>>{{1, 1}, {3, 15}, {2, 16}, {5, 37}, {1, 4099}}) {
      Builder b;
      b.kernel.outer = rows * columns;
      const View whole = row_major({rows, columns}), row{{rows, columns}, {0, 1}, 0, {}},
                 column{{rows, columns}, {1, 0}, 0, {}};
      const int x = b.load(b.input(DType::f32, rows * columns), Level::outer, whole);
      const int y = b.load(b.input(DType::f32, rows * columns), Level::outer, whole);
      const int r = b.load(b.input(DType::f32, columns), Level::outer, row);
      const int c = b.load(b.input(DType::f32, rows), Level::outer, column);
      const int sum = b.map(Op::add, DType::f32, x, c);
      const int other = b.map(Op::mul, DType::f32, y, r);
      int value;
      if (op >= Op::eq && op <= Op::ge)
        value = b.map(Op::select, DType::f32, b.map(op, DType::boolean, sum, other), x, other);
      else
        value = b.map(op, DType::f32, sum, op >= Op::add ? other : -1);
      const int product = b.map(Op::mul, DType::f32, value, c), offset = b.map(Op::mul, DType::f32, value, r);
      b.store(value, b.output(DType::f32, rows * columns), whole);
      b.store(b.map(Op::sub, DType::f32, product, y), b.output(DType::f32, rows * columns), whole);
      b.store(b.map(Op::sub, DType::f32, x, offset), b.output(DType::f32, rows * columns), whole);
      b.store(b.map(Op::add, DType::f32, b.map(Op::mul, DType::f32, x, y), value), b.output(DType::f32, rows * columns),
              whole);
      std::vector<Values> buffers = random_buffers(random, b);
      for (Values& values : buffers)
        for (double& v : values)
          if (random() % 2) v = special[random() % special.size()];
      for (const std::size_t k : {2, 3})  // these leave the others as they are, mostly
        for (double& v : buffers[k])
          if (random() % 4) v = k == 2 ? 1 : 0;
      if (isa() >= Isa::avx512) {
        ASSERT_NE(LoopProgram(b.kernel).to_string().find("chain"), std::string::npos);
      }
      check_chains(b, buffers, std::string(scalar::name_of(op)));
      if (HasFatalFailure()) return;
    }
}

/// As sigmoid has it: both choices take their comparison along, and the whole is one chain.
TEST(Loop, AConditionOfTwoChoicesIsPartOfAChain) {
  std::mt19937 random(8);
  Builder b;
  b.kernel.outer = 6, b.kernel.inner = 700;
  const int x = b.input(DType::f32, 6 * 700);
  const View view = row_major({6, 700});
  const int v = b.load(x, Level::inner, view), zero = b.constant(DType::f32, 0), one = b.constant(DType::f32, 1);
  const int negative = b.map(Op::lt, DType::boolean, v, zero);
  const int e = b.map(Op::exp, DType::f32, b.map(Op::select, DType::f32, negative, v, b.map(Op::neg, DType::f32, v)));
  const int above = b.map(Op::select, DType::f32, negative, e, one);
  b.store(b.map(Op::div, DType::f32, above, b.map(Op::add, DType::f32, one, e)), b.output(DType::f32, 6 * 700), view);
  check(b, random_buffers(random, b), "sigmoid");
  for (const bool chained : {false, true}) {
    if (chained && isa() < Isa::avx512) continue;
    set_chains_enabled(chained);
    const std::string text = LoopProgram(b.kernel).to_string();
    set_chains_enabled(true);
    EXPECT_EQ(text.find("= lt "), std::string::npos) << text;
    EXPECT_EQ(text.find("chain") != std::string::npos, chained) << text;
  }
}

TEST(Loop, ANormWritesTheRunsOfARowInPlace) {
  // As batch_norm: the rows of a channel are parts of several images.
  std::mt19937 random(14);
  for (const auto& [images, channels, places] :
       {std::array<Extent, 3>{5, 7, 80}, {3, 4, 1200}, {2, 9, 64}, {6, 3, 67}}) {
    Builder b;
    const Extent n = images * places;
    b.kernel.outer = channels, b.kernel.inner = n;
    const View view{{channels, images, places}, {places, channels * places, 1}, 0, {}};
    const int v = b.load(b.input(DType::f32, channels * n), Level::inner, view);
    const int mean =
        b.map(Op::mul, DType::f32, b.reduce(Reduction::sum, v), b.constant(DType::f32, 1.0 / static_cast<double>(n)));
    b.store(b.map(Op::sub, DType::f32, v, mean), b.output(DType::f32, channels * n), view);
    check(b, random_buffers(random, b), "norm of runs");
    const std::string text = LoopProgram(b.kernel).to_string();
    EXPECT_EQ(text.find("= store "), std::string::npos) << text;
  }
}

TEST(Loop, ReductionsArePartsOfTheChainsOfTheirValues) {
  // Whole groups of vectors, whole vectors and parts of one; rows of numbers alone, with a NaN, with infinities, of -infinity.
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  std::mt19937 random(17);
  for (const bool down : {false, true})
    for (const auto& [outer, inner] : std::vector<std::pair<Extent, Extent>>{{1, 1},
                                                                             {5, 1},
                                                                             {1, 200},
                                                                             {6, 15},
                                                                             {6, 16},
                                                                             {6, 63},
                                                                             {6, 64},
                                                                             {6, 65},
                                                                             {40, 257},
                                                                             {6, 4097},
                                                                             {5, 9000},
                                                                             {150, 33},
                                                                             {150, 70}}) {
      Builder b;
      b.kernel.outer = outer, b.kernel.inner = inner;
      const View view = down ? View{{outer, inner}, {1, outer}, 0, {}} : row_major({outer, inner});
      const int x = b.load(b.input(DType::f32, outer * inner), Level::inner, view);
      const int e = b.map(Op::tanh, DType::f32, x), scaled = b.map(Op::mul, DType::f32, e, x);
      const int total = b.reduce(Reduction::sum, e), largest = b.reduce(Reduction::max, scaled);
      const int small = b.map(Op::mul, DType::f32, x, b.constant(DType::f32, 0.01));
      const int apart = b.map(Op::sub, DType::f32, x, total);
      b.store(b.reduce(Reduction::min, apart), b.output(DType::f32, outer), row_major({outer}));
      b.store(b.reduce(Reduction::prod,
                       b.map(Op::exp, DType::f32,
                             b.map(Op::mul, DType::f32, small,
                                   b.map(Op::rsqrt, DType::f32, b.map(Op::mul, DType::f32, total, total))))),
              b.output(DType::f32, outer), row_major({outer}));
      b.store(b.map(Op::add, DType::f32, apart, largest), b.output(DType::f32, outer * inner), view);
      std::vector<Values> buffers = random_buffers(random, b);
      const auto at = [&](Extent o, Extent i) -> double& {
        return buffers[0][static_cast<std::size_t>(down ? i * outer + o : o * inner + i)];
      };
      if (outer >= 5) {
        at(1, inner / 2) = std::nan("");
        at(2, inner - 1) = kInfinity;
        at(3, 0) = -kInfinity;
        for (Extent i = 0; i < inner; ++i) at(4, i) = -kInfinity;
      }
      const std::string label = std::to_string(outer) + (down ? " columns" : " rows") + " of " + std::to_string(inner);
      check(b, buffers, label, 1e-4);
      if (HasFatalFailure()) return;
      if (chains_enabled() && outer > 1 && inner > 1) {
        std::istringstream text(LoopProgram(b.kernel).to_string());
        for (std::string line; std::getline(text, line);)
          if (line.find("= reduce") != std::string::npos) {
            EXPECT_EQ(line.find("    | o"), 0u) << text.str();
          }
      }
    }
}

TEST(Loop, SumsAndSquaresAroundTheMeanComeFromOnePass) {
  // Far from zero, where squares of the numbers themselves would lose the variance; with rows that are constant, that hold a NaN or
  // infinities; and of numbers that are computed first.
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  std::mt19937 random(18);
  std::normal_distribution<double> normal;
  for (const bool down : {false, true})
    for (const DType type : {DType::f32, DType::f64})
      for (const bool computed : {false, true})
        for (const auto& [outer, inner] : std::vector<std::pair<Extent, Extent>>{{1, 1},
                                                                                 {7, 1},
                                                                                 {1, 3000},
                                                                                 {7, 63},
                                                                                 {40, 257},
                                                                                 {7, 4099},
                                                                                 {150, 33},
                                                                                 {530, 70},
                                                                                 {3, 0},
                                                                                 {2, 300'000},
                                                                                 {20, 30'000}}) {
          Builder b;
          b.kernel.outer = outer, b.kernel.inner = inner;
          const View view = down ? View{{outer, inner}, {1, outer}, 0, {}} : row_major({outer, inner});
          int x = b.load(b.input(type, outer * inner), Level::inner, view);
          if (computed) x = b.map(Op::sub, type, x, b.map(Op::mul, type, x, b.constant(type, 0.5)));
          const int n = b.constant(type, static_cast<double>(inner));
          const int mean = b.map(Op::div, type, b.reduce(Reduction::sum, x), n);
          const int apart = b.map(Op::sub, type, x, mean);
          const int squares = b.reduce(Reduction::sum, b.map(Op::mul, type, apart, apart));
          const int variance = b.map(Op::div, type, squares, n);
          b.store(variance, b.output(type, outer), row_major({outer}));
          b.store(mean, b.output(type, outer), row_major({outer}));
          const int scale = b.map(Op::rsqrt, type, b.map(Op::add, type, variance, b.constant(type, 1e-2)));
          b.store(b.map(Op::mul, type, apart, scale), b.output(type, outer * inner), view);
          std::vector<Values> buffers = random_buffers(random, b);
          for (double& value : buffers[0]) value = reference::to_type(100 + normal(random), type);
          const auto at = [&](Extent o, Extent i) -> double& {
            return buffers[0][static_cast<std::size_t>(down ? i * outer + o : o * inner + i)];
          };
          if (outer >= 7 && inner > 0) {
            at(1, inner / 2) = std::nan("");
            at(2, inner - 1) = kInfinity;
            at(3, 0) = -kInfinity, at(3, inner / 2) = kInfinity;
            for (Extent i = 0; i < inner; ++i) at(4, i) = reference::to_type(0.1, type);
            at(5, 0) = 1e4;  // what differences are first taken from is far from all others
          }
          // Squares of 30,000 differences are as many roundings in the reference.
          check(b, buffers, (down ? "columns of " : "rows of ") + std::to_string(inner),
                type == DType::f32 ? 2e-4 : 1e-11);
          if (HasFatalFailure()) return;
          if (outer > 1 && inner > 1) {
            EXPECT_NE(LoopProgram(b.kernel).to_string().find("squares around the mean"), std::string::npos);
          }
        }
}

TEST(Loop, ChainsOfManyValuesAreDivided) {
  // More values alive, and more operands, than there are registers.
  std::mt19937 random(12);
  for (const int inputs : {3, 14})
    for (const int alive : {10, 30, 50}) {
      const Extent n = 333;
      Builder b;
      b.kernel.outer = n;
      std::vector<int> loads, values;
      for (int i = 0; i < inputs; ++i) loads.push_back(b.load(b.input(DType::f32, n), Level::outer, row_major({n})));
      for (int i = 0; i < alive; ++i) {
        const auto at = [&](int k) { return loads[static_cast<std::size_t>(k % inputs)]; };
        values.push_back(b.map(Op::max, DType::f32, b.map(Op::tanh, DType::f32, at(i)),
                               b.map(Op::mul, DType::f32, at(i * 5 + 1), at(i * 7 + 2))));
      }
      int sum = values[0];
      for (std::size_t i = 1; i < values.size(); ++i) sum = b.map(Op::sub, DType::f32, values[i], sum);
      b.store(sum, b.output(DType::f32, n), row_major({n}));
      check(b, random_buffers(random, b), "many values", 1e-4);
      if (HasFatalFailure()) return;
    }
}

TEST(Loop, ChainsThatBypassTheCachesHaveTheBitsOfTheirOps) {
  // Outputs beyond the caches, whose rows begin at cache lines or anywhere: buffers of this size begin 16 bytes after a line.
  std::mt19937 random(13);
  const auto text_of = [](const Builder& b) { return LoopProgram(b.kernel).to_string(); };
  for (const auto& [rows, columns, offset] :
       std::vector<std::tuple<Extent, Extent, Extent>>{{2048, 3200, 12}, {2048, 3200, 1}, {2001, 3203, 12}}) {
    Builder b = softmax(rows, columns, false);
    b.kernel.outputs[0].offset = offset;
    b.sizes[1] += offset;
    check_chains(b, random_buffers(random, b), "a stream of " + std::to_string(columns) + " columns");
    EXPECT_EQ(text_of(b).find("| out0 = stream") != std::string::npos, chains_enabled());
  }
  // One long row: the store is a part of the chain there too.
  for (const Extent offset : {12, 1}) {
    Builder b;
    const Extent n = 7'000'003;
    b.kernel.outer = n;
    const int x = b.load(b.input(DType::f32, n), Level::outer, row_major({n}));
    b.store(b.map(Op::add, DType::f32, x, b.constant(DType::f32, 1.5)), b.output(DType::f32, n), row_major({n}));
    b.kernel.outputs[0].offset = offset;
    b.sizes[1] += offset;
    check_chains(b, random_buffers(random, b), "a stream of one row");
    EXPECT_EQ(text_of(b).find("| out0 = stream") != std::string::npos, chains_enabled());
  }
}

TEST(Loop, EqualKernelsShareTheirCodeWherePlacesDiffer) {
  const auto made = [](double added, int buffer, Extent first) {
    Builder b;
    b.kernel.outer = 100;
    const int x = b.load(b.input(DType::f32, 100), Level::outer, row_major({100}));
    b.store(b.map(Op::mul, DType::f32, x, b.constant(DType::f32, added)), b.output(DType::f32, 100), row_major({100}));
    b.kernel.inputs[0].offset = first;
    b.kernel.outputs[0].buffer = buffer;
    return b.kernel;
  };
  const auto code = [](const LoopKernel& kernel) { return shared_code(kernel, 0, DType::f32, -1); };
  const auto first = code(made(0.0, 1, 0));
  EXPECT_EQ(code(made(0.0, 1, 0)), first);
  EXPECT_EQ(code(made(0.0, 7, 50)), first);
  EXPECT_NE(code(made(-0.0, 1, 0)), first);  // the product of it is another
  EXPECT_NE(code(made(0.0, 0, 0)), first);   // in place
  EXPECT_NE(code(made(0.0, 0, 200)), code(made(0.0, 0, 50)));
  std::weak_ptr<const LoopProgram::Code> gone = code(made(3.0, 1, 0));
  EXPECT_TRUE(gone.expired());
}

}  // namespace
}  // namespace weft::cpu::loop_test
