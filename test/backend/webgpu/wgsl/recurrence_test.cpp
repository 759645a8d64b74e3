// Recurrences on the device against the reference, in the ways that targets of other limits choose; scans of states in parts.
#include "backend/webgpu/wgsl/recurrence.hpp"

#include <fmt/format.h>

#include "backend/webgpu/render_support.hpp"
#include "backend/webgpu/wgsl/recurrence_steps.hpp"
#include "backend/webgpu/wgsl/state_scan_backward.hpp"
#include "graph/recurrence.hpp"
#include "graph/state_scan.hpp"

#if WEFT_HAS_WEBGPU
namespace weft::webgpu::recurrence_test {
namespace {

using WgslRecurrenceTest = RenderTest;

Target target(std::uint32_t compute_units, std::uint32_t workgroup_bytes = 16384, std::uint32_t storage_buffers = 16) {
  Target target{{.storage_buffers = storage_buffers, .workgroup_bytes = workgroup_bytes, .workgroup_invocations = 256}};
  target.profile.compute_units = compute_units;
  return target;
}

/// A call over buffers of its own, a few elements behind their begin.
struct CallOf {
  kernel::CallKernel kernel;
  std::vector<TestBuffer> buffers;
  static constexpr Extent kBefore = 4;

  CallOf(const graph::OpRow& row, std::vector<Extent> words) {
    kernel.name = row.name;
    kernel.op = &row;
    kernel.attributes = std::move(words);
  }
  void read(const Shape& shape, TestBuffer values) {
    values.values.insert(values.values.begin(), kBefore, 77.0);
    kernel.reads.push_back({static_cast<int>(buffers.size()), values.type, kBefore, shape.numel()});
    kernel.shapes.push_back(shape);
    kernel.types.push_back(values.type);
    buffers.push_back(std::move(values));
  }
  void write(const Shape& shape) {
    kernel.outs.push_back({static_cast<int>(buffers.size()), DType::f32, kBefore, shape.numel()});
    kernel.out_shapes.push_back(shape);
    kernel.out_types.push_back(DType::f32);
    buffers.push_back({DType::f32, reference::Values(static_cast<std::size_t>(shape.numel() + 2 * kBefore), 9.0)});
  }
};

struct Size {
  Extent steps, sequences, width;
};

TestBuffer small(std::mt19937& random, Extent count, double scale) {
  TestBuffer buffer = random_buffer(random, DType::f32, count);
  for (double& value : buffer.values) value = static_cast<float>(value * scale);
  return buffer;
}

CallOf forward(const Size& size, graph::RecurrentCell cell, bool has_lengths) {
  std::mt19937 random(5);
  const auto [t, n, h] = size;
  const Extent gates = graph::gates_of(cell);
  const graph::RecurrenceAttributes attributes{.cell = cell, .reverse = true, .lengths = has_lengths};
  CallOf call(graph::recurrence_row(), graph::words_of(graph::recurrence_row().attributes, attributes));
  call.read({t, n, gates * h}, small(random, t * n * gates * h, 1));
  call.read({n, h}, small(random, n * h, 1));
  if (cell == graph::RecurrentCell::lstm) call.read({n, h}, small(random, n * h, 1));
  call.read({gates * h, h}, small(random, gates * h * h, 1 / std::sqrt(static_cast<double>(h))));
  if (has_lengths) {
    TestBuffer lengths{DType::i32, {}};
    for (Extent i = 0; i < n; ++i) lengths.values.push_back(static_cast<double>(i % (t + 1)));
    call.read({n}, lengths);
  }
  call.write({t, n, h});
  if (cell == graph::RecurrentCell::lstm) call.write({t, n, h});
  if (cell == graph::RecurrentCell::lstm || cell == graph::RecurrentCell::gru) call.write({t, n, 4 * h});
  return call;
}

CallOf backward(const Size& size, graph::RecurrentCell cell, bool has_lengths) {
  std::mt19937 random(6);
  const auto [t, n, h] = size;
  const bool is_lstm = cell == graph::RecurrentCell::lstm, is_gru = cell == graph::RecurrentCell::gru;
  const Extent gates = graph::gates_of(cell);
  const graph::RecurrenceAttributes attributes{.cell = cell, .lengths = has_lengths, .d_c = is_lstm};
  CallOf call(graph::recurrence_backward_row(),
              graph::words_of(graph::recurrence_backward_row().attributes, attributes));
  call.read({t, n, h}, small(random, t * n * h, 0.4));
  if (is_lstm) call.read({t, n, h}, small(random, t * n * h, 0.4));
  if (is_lstm || is_gru) call.read({t, n, 4 * h}, small(random, t * n * 4 * h, 0.4));
  call.read({n, h}, small(random, n * h, 0.4));
  if (is_lstm) call.read({n, h}, small(random, n * h, 0.4));
  call.read({gates * h, h}, small(random, gates * h * h, 1 / std::sqrt(static_cast<double>(h))));
  if (has_lengths) {
    TestBuffer lengths{DType::i32, {}};
    for (Extent i = 0; i < n; ++i) lengths.values.push_back(static_cast<double>(i % (t + 1)));
    call.read({n}, lengths);
  }
  call.read({t, n, h}, small(random, t * n * h, 1));
  if (is_lstm) call.read({t, n, h}, small(random, t * n * h, 1));
  call.write({t, n, gates * h});
  call.write({n, h});
  if (is_gru) call.write({t, n, gates * h});
  if (is_lstm) call.write({n, h});
  return call;
}

Rendered rendered_of(const CallOf& call, const Target& target) {
  Rendered rendered;
  Scratch scratch(static_cast<int>(call.buffers.size()), rendered);
  const bool is_forward = call.kernel.op == &graph::recurrence_row();
  (is_forward ? render_recurrence : render_recurrence_backward)(call.kernel, target, scratch, rendered);
  return rendered;
}

TEST_F(WgslRecurrenceTest, TargetsOfAllLimits) {
  using graph::RecurrentCell;
  struct Case {
    const char* name;
    Target target;
    Size size;
    RecurrentCell cell;
    bool has_lengths;
    std::uint32_t repeats;  // of the dispatch of steps; 1: it takes all steps
  };
  const Case cases[] = {
      {"many workgroups", target(132), {4, 3, 132}, RecurrentCell::lstm, true, 4},
      {"rows of several tiles", target(16, 32768), {3, 75, 80}, RecurrentCell::gru, false, 3},
      {"weights that are kept", target(132, 32768), {4, 3, 24}, RecurrentCell::lstm, false, 1},
      {"too few bindings for a counter", target(132, 16384, 8), {3, 2, 90}, RecurrentCell::lstm, true, 1},
      {"one compute unit", target(1), {3, 5, 140}, RecurrentCell::rnn, false, 1},
      {"little workgroup memory", target(16, 2048), {2, 40, 133}, RecurrentCell::rnn, true, 2},
      {"tiles of 64 rows", target(6, 65536), {2, 130, 136}, RecurrentCell::gru, true, 2},
      {"one sequence", target(132), {3, 1, 129}, RecurrentCell::gru, false, 3}};
  for (const Case& c : cases_to_run(cases, 3)) {
    SCOPED_TRACE(c.name);
    const CallOf call = forward(c.size, c.cell, c.has_lengths);
    const Rendered rendered = rendered_of(call, c.target);
    EXPECT_EQ(rendered.dispatches.back().repeats, c.repeats);
    replay(rendered, call.kernel, call.buffers, 2e-5);
    const CallOf back = backward(c.size, c.cell, c.has_lengths);
    const Rendered way_back = rendered_of(back, c.target);
    EXPECT_EQ(way_back.dispatches.back().repeats, c.repeats > 1 ? c.repeats + 1 : 1);
    replay(way_back, back.kernel, back.buffers, 2e-5);
  }
}

TEST_F(WgslRecurrenceTest, APlanDoesNotGrowWithItsSteps) {
  for (const Extent width : {Extent{32}, Extent{256}}) {
    const auto few = rendered_of(forward({3, 2, width}, graph::RecurrentCell::lstm, false), target(132)),
               many = rendered_of(forward({900, 2, width}, graph::RecurrentCell::lstm, false), target(132));
    ASSERT_EQ(few.dispatches.size(), many.dispatches.size());
    std::size_t few_bytes = 0, many_bytes = 0;
    for (const RenderedDispatch& dispatch : few.dispatches) few_bytes += dispatch.shader.text().size();
    for (const RenderedDispatch& dispatch : many.dispatches) many_bytes += dispatch.shader.text().size();
    EXPECT_LT(many_bytes, few_bytes + 100);
  }
}

// A binding that is too small for the arrays of all sequences: they run one after another, with the same bits.
TEST_F(WgslRecurrenceTest, ScansOfSequencesInParts) {
  std::mt19937 random(7);
  const Shape x{2, 11, 4, 5}, dt{2, 11, 4}, a{4, 6}, b{2, 11, 2, 6}, state{2, 4, 5, 6};
  CallOf call(graph::state_scan_backward_row(), {});
  call.read(x, small(random, x.numel(), 1));
  call.read(dt, small(random, dt.numel(), 0.2));
  call.read(a, small(random, a.numel(), 0.5));
  call.read(b, small(random, b.numel(), 1));
  call.read(b, small(random, b.numel(), 1));
  call.read(state, small(random, state.numel(), 1));
  call.read(state, small(random, state.numel(), 1));
  call.read(x, small(random, x.numel(), 1));
  for (const Shape& shape : {x, dt, a, b, b, state}) call.write(shape);
  std::vector<std::vector<reference::Values>> results;
  for (const std::uint64_t bytes : {std::uint64_t{1} << 20, std::uint64_t{4000}}) {
    Target limited = target(4);
    limited.limits.binding_bytes = bytes;
    Rendered rendered;
    Scratch scratch(static_cast<int>(call.buffers.size()), rendered);
    render_state_scan_backward(call.kernel, limited, scratch, rendered);
    // States, the way back, and sums of dt, b and c; those of a stand for all.
    EXPECT_EQ(rendered.dispatches.size(), bytes > 4000 ? 6u : 11u) << bytes;
    for (const std::uint64_t scratch_bytes : rendered.scratch_bytes) EXPECT_LE(scratch_bytes, bytes);
    replay(rendered, call.kernel, call.buffers, 2e-5);
    results.push_back(results_of(rendered, call.buffers));
  }
  EXPECT_EQ(results[0], results[1]);
}

}  // namespace
}  // namespace weft::webgpu::recurrence_test
#endif
