// The whole shader, and the results of each thread.
#include "backend/webgpu/wgsl/matmul/tile_writer.hpp"

#include <fmt/format.h>

#include <utility>

namespace weft::webgpu {
using kernel::LoopKernel;
using kernel::MatmulKernel;

TileWriter::TileWriter(const MatmulKernel& kernel, const RowGroups* groups, const kernel::Operand* k_ends,
                       const Tile& tile, int split, const Target& target, Scratch& scratch, Rendered& rendered)
    : ProductWriter(kernel, groups, {tile.rows, tile.columns, tile.depth}, split, 1, target, scratch, rendered),
      k_ends_(k_ends),
      tile_(tile) {}

void TileWriter::render() {
  Bindings bindings(target_, kernel_.name);
  StagedOperand a = stage('a', kernel_.a, kernel_.a_view, rows_of_a(), tile_.rows, bindings);
  StagedOperand b = stage('b', kernel_.b, kernel_.b_view.transposed(), kernel_.n, tile_.columns, bindings);
  const int k_ends = k_ends_ ? bindings.add(*k_ends_, false) : -1;
  add_groups(bindings);
  const LoopKernel results = begin_results();
  StepWriter writer(results, bindings, helpers_, results_space(), results_space());
  bindings.resolve();
  locate_batch(a, bindings);
  locate_batch(b, bindings);

  ShaderPieces shader{.threads = tile_.threads()};
  declare_groups(shader, bindings);
  for (const StagedOperand* s : {&a, &b})
    shader.share(fmt::format("shared_{}", s->name), "vec4f", Extent{tile_.depth} * s->pitch());
  for (const StagedOperand* s : {&a, &b})
    if (!s->plain()) shader.functions.push_back(load_function(*s, bindings));
  shader.functions.push_back(finish_function(results, writer));

  write_place();
  if (k_ends_) {
    shader.share("shared_first", "atomic<u32>", 1);
    shader.share("shared_range", "u32", 2);
    write_k_range(k_ends, bindings);
  }
  for (const StagedOperand* s : {&a, &b}) write_staging_places(*s);
  write_registers(a, b);
  write_product(a, b, bindings);
  write_results();
  add_dispatches(std::move(shader), bindings);
}

// `k_first`, `k_last` and the steps between them. An end below an earlier one makes an empty range, and none is beyond k.
void TileWriter::write_k_range(int ends, const Bindings& bindings) {
  const auto end_of = [&](const std::string& at) {
    return fmt::format("u32(clamp({}, 0, {}))", bindings.load(ends, fmt::format("{} + {}u", at, bindings.base(ends))),
                       kernel_.k);
  };
  line("if (thread == 0u) { atomicStore(&$shared_first[0], 0u); }");
  line("workgroupBarrier();");
  line(fmt::format("for (var g = thread; g < b; g += {}u) {{ atomicMax(&$shared_first[0], {}); }}", tile_.threads(),
                   end_of("g")));
  line("workgroupBarrier();");
  line("if (thread == 0u) {");
  line("  $shared_range[0] = atomicLoad(&$shared_first[0]);");
  line(fmt::format("  $shared_range[1] = max(atomicLoad(&$shared_first[0]), {});", end_of("b")));
  line("}");
  line("let k_first = workgroupUniformLoad(&$shared_range[0]);");
  line("let k_last = workgroupUniformLoad(&$shared_range[1]);");
  line(fmt::format("let k_steps = (k_last - k_first + {}u) / {}u;", tile_.depth - 1, tile_.depth));
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
