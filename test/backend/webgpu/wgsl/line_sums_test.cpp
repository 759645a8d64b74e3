// Sums by index along an axis: as exact as sums of 64 bits, in any order of updates.
#include "backend/webgpu/wgsl/line_sums.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <numeric>

#include "backend/webgpu/render.hpp"
#include "backend/webgpu/render_support.hpp"
#include "graph/scatter.hpp"

#if WEFT_HAS_WEBGPU
namespace weft::webgpu {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity(), kNaN = std::numeric_limits<double>::quiet_NaN();

struct Sums {
  Shape updates;
  Extent axis, extent;

  Shape result() const {
    Shape shape = updates;
    shape[static_cast<int>(axis)] = extent;
    return shape;
  }
  Rendered render(DType type) const {
    const Shape to = result();
    const kernel::CallKernel call{.name = "sums",
                                  .op = &graph::scatter_along_row(),
                                  .reads = {{0, DType::i32, 0, updates.numel()}, {1, type, 0, updates.numel()}},
                                  .shapes = {updates, updates},
                                  .types = {DType::i32, type},
                                  .out_types = {type},
                                  .outs = {{2, type, 0, to.numel()}},
                                  .out_shapes = {to},
                                  .attributes = graph::words_of(graph::scatter_along_row().attributes,
                                                                graph::ScatterAlongAttributes{axis, extent})};
    return webgpu::render(kernel::Kernel(call), 3, target_of(Device::open(0, {.cache_folder = {}})->info()));
  }
  // On the device.
  reference::Values of(const reference::Values& indices, const reference::Values& values,
                       DType type = DType::f32) const {
    return results_of(render(type), {{DType::i32, indices},
                                     {type, values},
                                     {type, reference::Values(static_cast<std::size_t>(result().numel()), 7.0)}})[2];
  }
  /// What `add` makes of each place's updates, in order, from zero.
  template <class Add>
  reference::Values reference_of(const reference::Values& indices, const reference::Values& values, Add add) const {
    const backend::AxisLines along = backend::axis_lines(result(), axis, updates);
    reference::Values sums(static_cast<std::size_t>(result().numel()));
    for (Extent i = 0; i < updates.numel(); ++i) {
      const auto at = static_cast<std::size_t>(i);
      const auto place = static_cast<Extent>(indices[at]);
      if (place < 0 || place >= extent) continue;
      double& sum = sums[static_cast<std::size_t>((i / along.inner / along.taken * extent + place) * along.inner +
                                                  i % along.inner)];
      sum = add(sum, values[at]);
    }
    return sums;
  }
  reference::Values draw_indices(std::mt19937& random) const {
    reference::Values all(static_cast<std::size_t>(updates.numel()));
    for (double& each : all) each = static_cast<double>(random() % static_cast<unsigned>(extent + 2)) - 1;
    return all;
  }
};

double plus(double a, double b) { return a + b; }

// First, one of each way: rows in workgroup memory, whole and in parts, columns there, rows in memory, lines of few updates, and
// some lines at a time.
const Sums kCases[] = {{{40, 30}, 1, 7},   {{3, 5000}, 1, 9000},        {{70, 200}, 0, 90},      {{2, 9000}, 1, 500000},
                       {{3, 5}, 1, 70000}, {{2, 40}, 1, (1 << 22) + 1}, {{1500, 1100}, 0, 1000}, {{3, 9, 20}, 1, 4},
                       {{2, 3001}, 1, 1},  {{2, 700, 3}, 1, 20000},     {{2, 70000}, 1, 3},      {{1, 600}, 1, 600000}};

using WgslLineSumsTest = RenderTest;

TEST_F(WgslLineSumsTest, SumsOfMultiplesAreExact) {
  std::mt19937 random(1);
  for (const Sums& sums : cases_to_run(kCases, 6)) {
    SCOPED_TRACE(fmt::format("[{}] along {} to {}", sums.updates.to_string(), sums.axis, sums.extent));
    const reference::Values indices = sums.draw_indices(random);
    reference::Values values(indices.size());
    for (double& x : values) x = (static_cast<double>(random() % (1 << 24)) - (1 << 23)) / (1 << 20);
    reference::Values wanted = sums.reference_of(indices, values, plus);
    for (double& x : wanted) x = static_cast<float>(x);
    EXPECT_EQ(sums.of(indices, values), wanted);
    for (double& x : values) x = static_cast<double>(random() % 4096);
    EXPECT_EQ(sums.of(indices, values, DType::u32), sums.reference_of(indices, values, plus));
  }
}

TEST_F(WgslLineSumsTest, OrdersOfUpdatesGiveTheSameBits) {
  std::mt19937 random(2);
  for (const Sums& sums : {Sums{{1, 4000}, 1, 13}, Sums{{1, 70000}, 1, 300}}) {
    SCOPED_TRACE(fmt::format("{} updates", sums.updates.numel()));
    reference::Values indices = sums.draw_indices(random), values(indices.size());
    for (double& x : values)
      x = static_cast<float>(
          std::ldexp(static_cast<double>(random()) / 4e9 - 0.5, static_cast<int>(random() % 60) - 30));
    const reference::Values first = sums.of(indices, values);
    const reference::Values exact = sums.reference_of(indices, values, plus);
    const reference::Values most =
        sums.reference_of(indices, values, [](double a, double b) { return std::max(a, std::abs(b)); });
    const reference::Values counts = sums.reference_of(indices, values, [](double a, double) { return a + 1; });
    for (std::size_t i = 0; i < exact.size(); ++i)
      EXPECT_NEAR(first[i], exact[i], counts[i] * std::ldexp(most[i], -31) + std::ldexp(std::abs(exact[i]), -24));
    std::vector<std::size_t> order(indices.size());
    std::iota(order.begin(), order.end(), 0);
    std::shuffle(order.begin(), order.end(), random);
    reference::Values other_indices, other_values;
    for (const std::size_t i : order) {
      other_indices.push_back(indices[i]);
      other_values.push_back(values[i]);
    }
    EXPECT_EQ(sums.of(other_indices, other_values), first);
  }
}

TEST_F(WgslLineSumsTest, NumbersAtTheEndsOfTheRange) {
  const double least = std::numeric_limits<float>::denorm_min(), most = std::numeric_limits<float>::max(),
               normal = std::numeric_limits<float>::min();
  struct Case {
    std::vector<double> updates;
    double sum;
  };
  const Case cases[] = {
      {{kInfinity, 1, 1e30}, kInfinity},
      {{2, -kInfinity, -kInfinity}, -kInfinity},
      {{kInfinity, -kInfinity}, kNaN},
      {{kNaN, 1}, kNaN},
      {{-kNaN, kInfinity}, kNaN},
      {{most, most}, kInfinity},
      {{-most, -most}, -kInfinity},
      {{most, most, -most}, most},
      {{most, std::ldexp(1.0, 102)}, most},
      {{most, std::ldexp(1.0, 103)}, kInfinity},
      {{least, least, least}, 3 * least},
      {{-least}, -least},
      {{normal, -least}, normal - least},
      {{normal - least, least}, normal},
      {{std::ldexp(1.0, -100), std::ldexp(-1.0, -100) + std::ldexp(1.0, -124), -std::ldexp(1.0, -124)}, 0},
      {{-0.0, -0.0}, 0},
      {{}, 0},
      {{1, std::ldexp(1.0, -24)}, 1},
      {{1, std::ldexp(1.0, -24), std::ldexp(1.0, -30)}, 1 + std::ldexp(1.0, -23)},
      {{1 + std::ldexp(1.0, -23), std::ldexp(1.0, -24)}, 1 + std::ldexp(1.0, -22)},
      {{-16777216, -1, -1, -1}, -16777220},
      {{1, -1, std::ldexp(1.0, -30)}, std::ldexp(1.0, -30)}};
  constexpr Extent kPlaces = std::size(cases), kLong = 70000;
  // In workgroup memory, and in memory: the long line's other places get nothing.
  for (const Extent extent : {kPlaces, kLong}) {
    SCOPED_TRACE(fmt::format("{} places", extent));
    reference::Values indices, values;
    for (std::size_t c = 0; c < std::size(cases); ++c)
      for (const double x : cases[c].updates) {
        indices.push_back(static_cast<double>(c));
        values.push_back(x);
      }
    const Sums sums{{1, static_cast<Extent>(values.size())}, 1, extent};
    const reference::Values results = sums.of(indices, values);
    for (std::size_t c = 0; c < std::size(cases); ++c) {
      SCOPED_TRACE(fmt::format("case {}", c));
      if (std::isnan(cases[c].sum))
        EXPECT_TRUE(std::isnan(results[c])) << results[c];
      else
        EXPECT_EQ(results[c], cases[c].sum);
      EXPECT_FALSE(results[c] == 0 && std::signbit(results[c]));
    }
  }
}

}  // namespace
}  // namespace weft::webgpu
#endif
