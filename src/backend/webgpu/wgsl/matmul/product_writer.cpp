#include "backend/webgpu/wgsl/matmul/product_writer.hpp"

#include <fmt/format.h>

#include <utility>
#include <vector>

#include "backend/webgpu/wgsl/loop.hpp"
#include "backend/webgpu/wgsl/matmul/as_reduction.hpp"

namespace weft::webgpu {
using kernel::Level;
using kernel::LoopKernel;
using kernel::MatmulKernel;
using kernel::Step;
using kernel::StepKind;

ProductWriter::ProductWriter(const MatmulKernel& kernel, const RowGroups* groups, const TileShape& shape, int split,
                             int turn, const Target& target, Scratch& scratch, Rendered& rendered)
    : kernel_(kernel),
      groups_(groups),
      shape_(shape),
      split_(split),
      target_(target),
      scratch_(scratch),
      rendered_(rendered) {
  const Extent turns = divide_up(divide_up(kernel.k, shape.depth), turn);
  const Extent turns_per_split = divide_up(turns, split);
  steps_per_split_ = turns_per_split * turn;
  split_ = static_cast<int>(divide_up(turns, turns_per_split));  // none is empty
}

LoopKernel ProductWriter::begin_results() {
  if (split_ == 1) return without_inner(kernel_.epilogue);
  const Extent results = kernel_.batch * kernel_.m * kernel_.n;
  const kernel::Operand partial = scratch_.add(DType::f32, results * split_);
  join_ = join_kernel(partial, results);
  return partial_kernel(partial, results);
}

Space ProductWriter::results_space() const {
  std::vector<Axis> axes = {{"b", batch_of_results()}, {"i", kernel_.m}, {"j", kernel_.n}};
  if (split_ > 1) axes.insert(axes.begin(), {"s", split_});
  return {axes, wide() ? static_cast<int>(axes.size()) - 1 : -1};
}

void ProductWriter::add_dispatches(ShaderPieces shader, const Bindings& bindings, const std::string& form) {
  shader.helpers = std::move(helpers_);
  shader.body = std::move(text_);
  const auto groups = static_cast<std::uint64_t>(tiles_m() * tiles_n() * batch_of_results() * split_);
  rendered_.dispatches.push_back(
      dispatch_of(kernel_.name + form + (split_ > 1 ? ".part" : ""), std::move(shader), bindings, groups, target_));
  if (split_ == 1) return;
  const std::size_t first = rendered_.dispatches.size();
  webgpu::render(join_, target_, scratch_, rendered_);
  rendered_.set_aside(first);
}

LoopKernel ProductWriter::partial_kernel(const kernel::Operand& partial, Extent results) const {
  LoopKernel kernel;
  kernel.name = kernel_.name;
  kernel.outer = results * split_;
  kernel.outputs = {partial};
  kernel.steps = {Step{StepKind::accumulator, DType::f32, Level::outer}};
  kernel.stores = {{0, 0, {{kernel.outer}, {1}, 0, {}}}};
  return kernel;
}

LoopKernel ProductWriter::join_kernel(const kernel::Operand& partial, Extent results) const {
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

// One call applies the epilogue to four results of a row (or to one, if n is not a multiple of four).
ShaderPieces::Function ProductWriter::finish_function(const LoopKernel& epilogue, StepWriter& writer) {
  const std::vector<bool> needed = needed_steps(epilogue);
  for (std::size_t s = 0; s < epilogue.steps.size(); ++s) {
    if (!needed[s]) continue;
    if (epilogue.steps[s].kind != StepKind::accumulator) {
      writer.write(static_cast<int>(s));
      continue;
    }
    const char* sum = s < steps_of_u_ ? "u" : "v";
    std::vector<std::string> values;
    for (int e = 0; e < (wide() ? 4 : 1); ++e)
      values.push_back(render_cast({wide() ? fmt::format("{}.{}", sum, "xyzw"[e]) : sum, sum_type_, {}},
                                   epilogue.steps[s].type, helpers_));
    writer.define(static_cast<int>(s), values);
  }
  for (const kernel::Store& store : epilogue.stores) writer.write_store(store);
  std::string guard;
  const char* row = groups_ ? "slot" : "i";
  const char* type = sum_type_ == DType::i32 ? (wide() ? "vec4<i32>" : "i32") : wide() ? "vec4f" : "f32";
  if (!groups_ && kernel_.m % shape_.rows != 0) guard += fmt::format("{} >= {}u", row, kernel_.m);
  if (kernel_.n % shape_.columns != 0) guard += fmt::format("{}j >= {}u", guard.empty() ? "" : " || ", kernel_.n);
  if (!guard.empty()) guard = fmt::format("  if ({}) {{ return; }}\n", guard);
  if (groups_) {
    guard += fmt::format("  let entry = $slot_entry(slot);\n  let i = entry & {}u;\n", ~RowGroups::kOfNoGroup);
    guard += fmt::format("  if (i >= {}u) {{ return; }}\n", kernel_.m);
    const auto or_zero = [&](const char* sum, const char* made) {
      guard += fmt::format("  let {} = select({}(), {}, entry < {}u);\n", sum, type, made, RowGroups::kOfNoGroup);
    };
    or_zero("v", "made");
    if (steps_of_u_ > 0) or_zero("u", "made_u");
  }
  return {"finish", fmt::format("({}b: u32, {}: u32, j: u32, {}: {}{}) {{\n{}{}}}\n", split_ > 1 ? "s: u32, " : "", row,
                                groups_ ? "made" : "v", type,
                                steps_of_u_ > 0 ? fmt::format(", {}: {}", groups_ ? "made_u" : "u", type) : "", guard,
                                writer.take_text())};
}

// Workgroups take tiles in groups of up to eight rows of tiles, so that tiles that run at the same time share their reads.
void ProductWriter::write_tile_place() {
  const Extent tiles_m = this->tiles_m(), tiles_n = this->tiles_n();
  Extent together = 8;
  while (tiles_m % together != 0) --together;
  const Extent tiles = tiles_m * tiles_n;
  line(fmt::format("let tile = {};", modulo("group", tiles)));
  const std::string rest = divided("group", tiles);
  if (split_ > 1) line(fmt::format("let s = {};", modulo(rest, split_)));
  if (!groups_) line(fmt::format("let b = {};", kernel_.batch == 1 ? "0u" : divided(rest, split_)));
  const std::string within = modulo("tile", together * tiles_n);
  line(fmt::format("let row0 = ({} * {}u + {}) * {}u;", divided("tile", together * tiles_n), together,
                   modulo(within, together), shape_.rows));
  line(fmt::format("let column0 = {} * {}u;", divided(within, together), shape_.columns));
  if (!groups_) return;
  text_ += group_of_tile(*groups_, divided("row0", groups_->tile), "b");
}

}  // namespace weft::webgpu
