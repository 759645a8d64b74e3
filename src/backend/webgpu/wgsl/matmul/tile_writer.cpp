// The whole shader, and which tile a workgroup computes.
#include "backend/webgpu/wgsl/matmul/tile_writer.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "backend/webgpu/wgsl/loop.hpp"

namespace weft::webgpu {
using kernel::Level;
using kernel::LoopKernel;
using kernel::MatmulKernel;
using kernel::Step;
using kernel::StepKind;

TileWriter::TileWriter(const MatmulKernel& kernel, const kernel::Operand* order, const Tile& tile, int split,
                       const Target& target, Scratch& scratch, Rendered& rendered)
    : kernel_(kernel),
      order_(order),
      tile_(tile),
      split_(split),
      target_(target),
      scratch_(scratch),
      rendered_(rendered) {
  const Extent steps = divide_up(kernel.k, tile.depth);
  steps_per_split_ = divide_up(steps, split);
  split_ = static_cast<int>(divide_up(steps, steps_per_split_));  // none is empty
}

void TileWriter::render() {
  Bindings bindings(target_, kernel_.name);
  StagedOperand a = stage('a', kernel_.a, kernel_.a_view, kernel_.m, tile_.rows, bindings);
  StagedOperand b = stage('b', kernel_.b, kernel_.b_view.transposed(), kernel_.n, tile_.columns, bindings);
  const int order = order_ ? bindings.add(*order_, false) : -1;

  LoopKernel epilogue = without_inner(kernel_.epilogue), join;
  std::vector<Axis> axes = {{"b", kernel_.batch}, {"i", kernel_.m}, {"j", kernel_.n}};
  if (split_ > 1) {
    const Extent results = kernel_.batch * kernel_.m * kernel_.n;
    const kernel::Operand partial = scratch_.add(DType::f32, results * split_);
    join = join_kernel(partial, results);
    epilogue = partial_kernel(partial, results);
    axes.insert(axes.begin(), {"s", split_});
  }
  const bool wide = kernel_.n % 4 == 0;
  const Space space{axes, wide ? static_cast<int>(axes.size()) - 1 : -1};
  StepWriter writer(epilogue, bindings, helpers_, space, space);
  bindings.resolve();
  locate_batch(a, bindings);
  locate_batch(b, bindings);

  ShaderPieces shader{.threads = tile_.threads()};
  if (order_) {
    const auto at = [&](const std::string& i) {
      return fmt::format("{{ return {}; }}\n", bindings.load(order, fmt::format("{} + {}u", i, bindings.base(order))));
    };
    shader.functions.push_back({"row_at", "(slot: u32) -> u32 " + at("slot")});
    shader.functions.push_back({"chosen_rows", "() -> u32 " + at(fmt::format("{}u", kernel_.m))});
    shader.share("shared_rows", "u32", 1);
  }
  for (const StagedOperand* s : {&a, &b})
    shader.share(fmt::format("shared_{}", s->name), "vec4f", Extent{tile_.depth} * s->pitch());
  for (const StagedOperand* s : {&a, &b})
    if (!s->plain()) shader.functions.push_back(load_function(*s, bindings));
  shader.functions.push_back(finish_function(epilogue, writer, wide));
  const Extent tiles_m = divide_up(kernel_.m, tile_.rows), tiles_n = divide_up(kernel_.n, tile_.columns);
  const auto groups = static_cast<std::uint64_t>(tiles_m * tiles_n * kernel_.batch * split_);

  write_place(tiles_m, tiles_n);
  for (const StagedOperand* s : {&a, &b}) write_staging_places(*s);
  write_registers(a, b);
  if (order_) {
    // Through workgroup memory, as what is read of a buffer may differ between threads for all a compiler knows.
    line("if (thread == 0u) { $shared_rows[0] = $chosen_rows(); }");
    line("if (row0 < workgroupUniformLoad(&$shared_rows[0])) {");
  }
  write_product(a, b, bindings);
  if (order_) line("}");
  write_results(wide);
  shader.helpers = std::move(helpers_);
  shader.body = std::move(text_);
  rendered_.dispatches.push_back(
      dispatch_of(split_ > 1 ? kernel_.name + ".part" : kernel_.name, std::move(shader), bindings, groups, target_));
  if (split_ > 1) webgpu::render(join, target_, scratch_, rendered_);
}

// Which tile this workgroup computes, and which results this thread. Workgroups take tiles in groups of up to eight rows of
// tiles, so that those at work at one time share what they read.
void TileWriter::write_place(Extent tiles_m, Extent tiles_n) {
  Extent together = 8;
  while (tiles_m % together != 0) --together;
  const Extent tiles = tiles_m * tiles_n;
  line(fmt::format("let tile = {};", modulo("group", tiles)));
  const std::string rest = divided("group", tiles);
  if (split_ > 1) line(fmt::format("let s = {};", modulo(rest, split_)));
  line(fmt::format("let b = {};", kernel_.batch == 1 ? "0u" : divided(rest, split_)));
  const std::string within = modulo("tile", together * tiles_n);
  line(fmt::format("let row0 = ({} * {}u + {}) * {}u;", divided("tile", together * tiles_n), together,
                   modulo(within, together), tile_.rows));
  line(fmt::format("let column0 = {} * {}u;", divided(within, together), tile_.columns));
  const int patches = tile_.columns / (kPatchColumns * tile_.thread_columns);  // side by side
  // Numbers down and across a patch alternate in the lowest bits of a thread's: four neighbours then read two vectors of
  // either operand, which workgroup memory serves in half the time.
  line("let patch_number = thread / 32u;");
  line("let place = thread % 32u;");
  line(fmt::format("let m0 = {} * {}u + (((place >> 1u) & 1u) | ((place >> 3u) & 2u));",
                   divided("patch_number", patches), kPatchRows * tile_.thread_rows / 4));
  line(fmt::format("let n0 = {} * {}u + ((place & 1u) | ((place >> 1u) & 6u));", modulo("patch_number", patches),
                   kPatchColumns * tile_.thread_columns / 4));
}

}  // namespace weft::webgpu
