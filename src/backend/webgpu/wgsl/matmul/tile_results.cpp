// What happens to the products: the epilogue, or partial sums that a second dispatch joins.
#include "backend/webgpu/wgsl/matmul/tile_writer.hpp"

#include <fmt/format.h>

#include <vector>

#include "backend/webgpu/wgsl/matmul/as_reduction.hpp"

namespace weft::webgpu {
using kernel::Level;
using kernel::LoopKernel;
using kernel::MatmulKernel;
using kernel::Step;
using kernel::StepKind;

namespace {

constexpr std::size_t kWrittenEpilogueSteps = 6;  // longer ones are written once, in a loop over results

}  // namespace

LoopKernel TileWriter::partial_kernel(const kernel::Operand& partial, Extent results) const {
  LoopKernel kernel;
  kernel.name = kernel_.name;
  kernel.outer = results * split_;
  kernel.outputs = {partial};
  kernel.steps = {Step{StepKind::accumulator, DType::f32, Level::outer}};
  kernel.stores = {{0, 0, {{kernel.outer}, {1}, 0, {}}}};
  return kernel;
}

LoopKernel TileWriter::join_kernel(const kernel::Operand& partial, Extent results) const {
  LoopKernel kernel;
  kernel.name = kernel_.name + ".join";
  kernel.outer = results;
  kernel.inner = split_;
  kernel.inputs = {partial};
  kernel.steps.push_back(load_step(DType::f32, 0, {{results, split_}, {1, results}, 0, {}}));
  kernel.steps.push_back(sum_step(DType::f32, 0));
  append_epilogue(kernel, kernel_.epilogue, 1);
  return kernel;
}

// One call takes four results of a row (or one, where n is not a multiple of four) through the epilogue.
ShaderPieces::Function TileWriter::finish_function(const LoopKernel& epilogue, StepWriter& writer, bool wide) {
  const std::vector<bool> needed = needed_steps(epilogue);
  std::vector<std::string> lanes{"v"};
  if (wide) lanes = {"v.x", "v.y", "v.z", "v.w"};
  for (std::size_t s = 0; s < epilogue.steps.size(); ++s) {
    if (!needed[s]) continue;
    if (epilogue.steps[s].kind != StepKind::accumulator) {
      writer.write(static_cast<int>(s));
      continue;
    }
    std::vector<std::string> values;
    for (const std::string& lane : lanes)
      values.push_back(render_cast({lane, DType::f32, {}}, epilogue.steps[s].type, helpers_));
    writer.define(static_cast<int>(s), values);
  }
  for (const kernel::Store& store : epilogue.stores) writer.write_store(store);
  std::string guard;
  const char* row = order_ ? "slot" : "i";
  const char* type = wide ? "vec4f" : "f32";
  if (kernel_.m % tile_.rows != 0) guard += fmt::format("{} >= {}u", row, kernel_.m);
  if (kernel_.n % tile_.columns != 0) guard += fmt::format("{}j >= {}u", guard.empty() ? "" : " || ", kernel_.n);
  if (!guard.empty()) guard = fmt::format("  if ({}) {{ return; }}\n", guard);
  if (order_)
    guard += fmt::format("  let i = $row_at(slot);\n  let v = select({}(), made, slot < $chosen_rows());\n", type);
  return {"finish", fmt::format("({}b: u32, {}: u32, j: u32, {}: {}) {{\n{}{}}}\n", split_ > 1 ? "s: u32, " : "", row,
                                order_ ? "made" : "v", type, guard, writer.take_text())};
}

void TileWriter::write_results(bool wide) {
  if (!target_.unroll || (split_ == 1 && kernel_.epilogue.steps.size() > kWrittenEpilogueSteps))
    return write_results_in_loop(wide);
  for (int r = 0; r < tile_.thread_rows; ++r)
    for (int h = 0; h < column_groups(); ++h) {
      const std::string where = fmt::format("{}b, row0 + (m0 + {}u) * 4u + {}u, column0 + (n0 + {}u) * 4u",
                                            split_ > 1 ? "s, " : "", r / 4 * kPatchRows, r % 4, h * kPatchColumns);
      if (wide) {
        line(fmt::format("$finish({}, c{}_{});", where, r, h));
      } else {
        for (int e = 0; e < 4; ++e) line(fmt::format("$finish({} + {}u, c{}_{}.{});", where, e, r, h, "xyzw"[e]));
      }
    }
}

// One call in the text, as compilers copy the epilogue to each.
void TileWriter::write_results_in_loop(bool wide) {
  std::string all;
  for (int r = 0; r < tile_.thread_rows; ++r)
    for (int h = 0; h < column_groups(); ++h) all += fmt::format("{}c{}_{}", all.empty() ? "" : ", ", r, h);
  const int count = tile_.thread_rows * column_groups();
  line(fmt::format("var results = array<vec4f, {}>({});", count, all));
  line(fmt::format("for (var at = 0u; at < {}u + (thread >> 16u); at++) {{", count));
  line(fmt::format("  let r = {};", divided("at", column_groups())));
  line(fmt::format("  let i = row0 + (m0 + (r >> 2u) * {}u) * 4u + (r & 3u);", kPatchRows));
  line(fmt::format("  let j = column0 + (n0 + {} * {}u) * 4u;", modulo("at", column_groups()), kPatchColumns));
  const std::string place = split_ > 1 ? "s, b, i, " : "b, i, ";
  line(wide ? fmt::format("  $finish({}j, results[at]);", place)
            : fmt::format("  for (var e = 0u; e < 4u + (thread >> 16u); e++) {{ $finish({}j + e, results[at][e]); }}",
                          place));
  line("}");
}

}  // namespace weft::webgpu
