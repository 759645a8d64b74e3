// Softmax down columns: ragged widths and heights, axes around the rows, values that no number follows, instruction sets, threads.
#include "backend/cpu/column_softmax.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "backend/cpu/move_support.hpp"

namespace weft::cpu::column_softmax_test {
namespace {

using kernel::Level;
using kernel::StepKind;
using scalar::Op;

constexpr float kInfinity = std::numeric_limits<float>::infinity(), kNaN = std::numeric_limits<float>::quiet_NaN();

/// Softmax along the rows of [outer, rows, columns], whose rows begin `pitch` elements apart in the source.
struct Case {
  Extent outer, rows, columns, pitch = 0;
  bool is_log = false;
  Extent source_row() const { return pitch > 0 ? pitch : columns; }
};

kernel::LoopKernel softmax_of(const Case& c, Extent to_offset, bool in_place) {
  kernel::LoopKernel k{.name = "softmax"};
  k.outer = c.outer * c.columns;
  k.inner = c.rows;
  k.inputs = {{0, DType::f32, 0, c.outer * c.rows * c.source_row()}};
  k.outputs = {{in_place ? 0 : 1, DType::f32, to_offset, c.outer * c.rows * c.columns}};
  const auto add = [&](kernel::Step step, Level level) {
    step.level = level;
    k.steps.push_back(std::move(step));
    return static_cast<int>(k.steps.size()) - 1;
  };
  const auto map = [&](Op op, int a, int b, Level level) {
    return add({.kind = StepKind::map, .op = op, .a = a, .b = b}, level);
  };
  const auto reduce = [&](scalar::Reduction reduction, int a) {
    return add({.kind = StepKind::reduce, .reduction = reduction, .a = a}, Level::outer);
  };
  const int x = add({.kind = StepKind::load,
                     .operand = 0,
                     .view = {{c.outer, c.columns, c.rows}, {c.rows * c.source_row(), 1, c.source_row()}, 0, {}}},
                    Level::inner);
  const int difference = map(Op::sub, x, reduce(scalar::Reduction::max, x), Level::inner);
  const int term = map(Op::exp, difference, -1, Level::inner), sum = reduce(scalar::Reduction::sum, term);
  int result = 0;
  if (c.is_log) {
    result = map(Op::sub, difference, map(Op::log, sum, -1, Level::outer), Level::inner);
  } else {
    const int one = add({.kind = StepKind::constant, .value = 1}, Level::outer);
    result = map(Op::mul, term, map(Op::div, one, sum, Level::outer), Level::inner);
  }
  k.stores = {{result, 0, {{c.outer, c.columns, c.rows}, {c.rows * c.columns, 1, c.columns}, 0, {}}}};
  return k;
}

/// A column that rises step by step, one that begins and one that ends with -infinity, and others with values that no number
/// follows; the rest is random.
std::vector<float> values_of(const Case& c) {
  std::vector<float> x(static_cast<std::size_t>(c.outer * c.rows * c.source_row()));
  std::mt19937 random(11);
  std::normal_distribution<float> around(0, 4);
  for (Extent i = 0; i < std::ssize(x); ++i) {
    const Extent row = i / c.source_row() % c.rows;
    float& value = x[static_cast<std::size_t>(i)] = around(random);
    switch (i % c.source_row()) {
      case 1: value = 3 * static_cast<float>(row); break;
      case 2: value = row < c.rows / 2 ? -kInfinity : value; break;
      case 3: value = row < c.rows / 2 ? value : -kInfinity; break;
      case 4: value = -kInfinity; break;
      case 5: value = row == c.rows / 3 ? kNaN : value; break;
      case 6: value = row == c.rows - 1 ? kInfinity : value; break;
      case 7: value = std::numeric_limits<float>::lowest(); break;
      case 8: value = std::numeric_limits<float>::max(); break;
      case 9: value = row == 0 ? 1e30f : -1e30f; break;
      case 10: value = -3 * static_cast<float>(row); break;
      default: break;
    }
  }
  return x;
}

float word_as_float(std::uint32_t word) {
  float value = 0;
  std::memcpy(&value, &word, sizeof value);
  return value;
}

/// Whether a softmax was prepared; then compares its results. `bits` becomes those of the results if it is empty.
bool computes(const Case& c, Extent to_offset, bool in_place, GuardedResult<std::uint32_t>::Words* bits) {
  const std::unique_ptr<Prepared> prepared = prepare_column_softmax(softmax_of(c, to_offset, in_place));
  if (!prepared) return false;
  const std::vector<float> x = values_of(c);
  std::vector<float> changed = x;
  GuardedResult<std::uint32_t> to(to_offset, c.outer * c.rows * c.columns);
  char* const buffers[] = {reinterpret_cast<char*>(changed.data()), reinterpret_cast<char*>(to.words.data())};
  prepared->bind(Memory(buffers));
  prepared->run();
  if (in_place) std::memcpy(to.words.data(), changed.data(), changed.size() * sizeof(float));
  for (Extent o = 0; o < c.outer; ++o)
    for (Extent column = 0; column < c.columns; ++column) {
      const auto at = [&](Extent row) {
        return x[static_cast<std::size_t>((o * c.rows + row) * c.source_row() + column)];
      };
      double most = -kInfinity, sum = 0;
      for (Extent row = 0; row < c.rows; ++row) most = at(row) > most || std::isnan(at(row)) ? at(row) : most;
      for (Extent row = 0; row < c.rows; ++row) sum += std::exp(at(row) - most);
      for (Extent row = 0; row < c.rows; ++row) {
        const double less = at(row) - most, expected = c.is_log ? less - std::log(sum) : std::exp(less) / sum;
        const double found = word_as_float(to.at((o * c.rows + row) * c.columns + column));
        const bool same = std::isnan(expected) ? std::isnan(found)
                          : std::isinf(expected)
                              ? found == expected
                              : std::abs(found - expected) <= 2e-6 * std::abs(expected) + (c.is_log ? 1e-6 : 1e-37);
        if (!same) {
          ADD_FAILURE() << "row " << row << " of column " << column << ": " << found << ", not " << expected << "; "
                        << prepared->to_string();
          return true;
        }
      }
    }
  if (!in_place) to.expect_guards(prepared->to_string());
  if (bits->empty()) *bits = to.words;
  EXPECT_TRUE(*bits == to.words) << prepared->to_string();
  return true;
}

const Case kCases[] = {
    {1, 700, 300},     {1, 1201, 64}, {3, 129, 517},          {1, 4099, 131},
    {64, 21, 100},     {2, 9, 8192},  {2, 16, 4096, 0, true}, {1, 4100, 50, 77, true},
    {5, 333, 97, 130}, {1, 3, 40000}, {1, 8, 32768, 0, true},
};

TEST(ColumnSoftmax, GivesEachColumnItsOwn) {
  for (const Case& c : kCases) {
    Isa last = Isa::baseline;
    GuardedResult<std::uint32_t>::Words bits;
    for_each_setting([&] {
      if (isa() != std::exchange(last, isa())) bits.clear();
      EXPECT_TRUE(computes(c, 0, false, &bits));
    });
  }
}

TEST(ColumnSoftmax, WritesAnywhere) {
  const KeepSettings keep;
  for (const Extent offset : {1, 16}) {
    GuardedResult<std::uint32_t>::Words bits;
    EXPECT_TRUE(computes({1, 700, 304}, offset, false, &bits));
  }
  GuardedResult<std::uint32_t>::Words bits;
  EXPECT_TRUE(computes({2, 700, 301}, 0, true, &bits));
  EXPECT_TRUE(computes({2, 700, 301, 0, true}, 0, true, &(bits = {})));
}

TEST(ColumnSoftmax, PastTheCaches) {
  const KeepSettings keep;
  for (const Isa i : {Isa::baseline, Isa::avx2, Isa::avx512}) {
    if (i > best_isa()) continue;
    set_isa(i);
    GuardedResult<std::uint32_t>::Words bits;
    EXPECT_TRUE(computes({2, 2000, 1696}, 0, false, &bits)) << name(i);
    EXPECT_TRUE(computes({2, 2000, 1696, 0, true}, 0, false, &(bits = {}))) << name(i);
    EXPECT_TRUE(computes({1, 4000, 1696}, 3, false, &(bits = {}))) << name(i);
  }
}

TEST(ColumnSoftmax, LeavesOtherKernelsAlone) {
  EXPECT_EQ(prepare_column_softmax(softmax_of({1, 100, 100}, 0, false)), nullptr);     // small
  EXPECT_EQ(prepare_column_softmax(softmax_of({1, 100000, 100}, 0, false)), nullptr);  // columns too long to keep
  EXPECT_EQ(prepare_column_softmax(softmax_of({4000, 100, 10}, 0, false)), nullptr);   // narrow
  EXPECT_EQ(prepare_column_softmax(softmax_of({1, 700, 0}, 0, false)), nullptr);
  EXPECT_EQ(prepare_column_softmax(softmax_of({1, 2000, 3333}, 0, false)),
            nullptr);  // large, and rows end within lines
  const auto refuses = [](const auto& change) {
    kernel::LoopKernel k = softmax_of({1, 700, 300}, 0, false);
    change(k);
    EXPECT_EQ(prepare_column_softmax(k), nullptr);
  };
  refuses([](kernel::LoopKernel& k) { k.steps[1].reduction = scalar::Reduction::min; });
  refuses([](kernel::LoopKernel& k) { k.steps[4].reduction = scalar::Reduction::prod; });
  refuses([](kernel::LoopKernel& k) { k.steps[5].value = 2; });
  refuses([](kernel::LoopKernel& k) { k.steps.back().a = 2; });
  refuses([](kernel::LoopKernel& k) { k.steps.back().op = Op::add; });
  refuses([](kernel::LoopKernel& k) { k.inputs[0].type = DType::f16; });
  refuses([](kernel::LoopKernel& k) { k.steps[0].view.bounds = {{0, 1}, {0, 200}, {0, 700}}; });
  refuses([](kernel::LoopKernel& k) { std::swap(k.steps[0].view.strides[1], k.steps[0].view.strides[2]); });
}

}  // namespace
}  // namespace weft::cpu::column_softmax_test
