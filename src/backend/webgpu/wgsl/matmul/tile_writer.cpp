// The whole shader, and the results of each thread.
#include "backend/webgpu/wgsl/matmul/tile_writer.hpp"

#include <fmt/format.h>

#include <utility>

namespace weft::webgpu {
using kernel::LoopKernel;
using kernel::MatmulKernel;

TileWriter::TileWriter(const MatmulKernel& kernel, const kernel::Operand* order, const Tile& tile, int split,
                       const Target& target, Scratch& scratch, Rendered& rendered)
    : ProductWriter(kernel, order, {tile.rows, tile.columns, tile.depth}, split, 1, target, scratch, rendered),
      tile_(tile) {}

void TileWriter::render() {
  Bindings bindings(target_, kernel_.name);
  StagedOperand a = stage('a', kernel_.a, kernel_.a_view, kernel_.m, tile_.rows, bindings);
  StagedOperand b = stage('b', kernel_.b, kernel_.b_view.transposed(), kernel_.n, tile_.columns, bindings);
  const int order = order_ ? bindings.add(*order_, false) : -1;

  const LoopKernel results = begin_results();
  StepWriter writer(results, bindings, helpers_, results_space(), results_space());
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
  shader.functions.push_back(finish_function(results, writer));

  write_place();
  for (const StagedOperand* s : {&a, &b}) write_staging_places(*s);
  write_registers(a, b);
  if (order_) {
    // Through workgroup memory, because compilers must assume that a buffer read may differ between threads.
    line("if (thread == 0u) { $shared_rows[0] = $chosen_rows(); }");
    line("if (row0 < workgroupUniformLoad(&$shared_rows[0])) {");
  }
  write_product(a, b, bindings);
  if (order_) line("}");
  write_results();
  add_dispatches(std::move(shader), bindings);
}

// The results that this thread computes.
void TileWriter::write_place() {
  write_tile_place();
  const int patches = tile_.columns / (kPatchColumns * tile_.thread_columns);  // side by side
  // Numbers down and across a patch alternate in the lowest bits of a thread's number: four neighbours then read two vectors of
  // either operand, which workgroup memory serves in half the time.
  line("let patch_number = thread / 32u;");
  line("let place = thread % 32u;");
  line(fmt::format("let m0 = {} * {}u + (((place >> 1u) & 1u) | ((place >> 3u) & 2u));",
                   divided("patch_number", patches), kPatchRows * tile_.thread_rows / 4));
  line(fmt::format("let n0 = {} * {}u + ((place & 1u) | ((place >> 1u) & 6u));", modulo("patch_number", patches),
                   kPatchColumns * tile_.thread_columns / 4));
}

}  // namespace weft::webgpu
