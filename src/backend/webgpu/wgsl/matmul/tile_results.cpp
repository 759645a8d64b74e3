// Passes the results of a thread to the epilogue.
#include "backend/webgpu/wgsl/matmul/tile_writer.hpp"

#include <fmt/format.h>

namespace weft::webgpu {
namespace {

constexpr std::size_t kWrittenEpilogueSteps = 6;  // longer ones are written once, in a loop over results

}  // namespace

void TileWriter::write_results() {
  if (!target_.unroll || (split_ == 1 && kernel_.epilogue.steps.size() > kWrittenEpilogueSteps))
    return write_results_in_loop();
  for (int r = 0; r < tile_.thread_rows; ++r)
    for (int h = 0; h < column_groups(); ++h) {
      const std::string where = fmt::format("{}row0 + (m0 + {}u) * 4u + {}u, column0 + (n0 + {}u) * 4u", finish_batch(),
                                            r / 4 * kPatchRows, r % 4, h * kPatchColumns);
      if (wide()) {
        line(fmt::format("$finish({}, c{}_{});", where, r, h));
      } else {
        for (int e = 0; e < 4; ++e) line(fmt::format("$finish({} + {}u, c{}_{}.{});", where, e, r, h, "xyzw"[e]));
      }
    }
}

// Only one call in the text, because compilers copy the epilogue to each call.
void TileWriter::write_results_in_loop() {
  std::string all;
  for (int r = 0; r < tile_.thread_rows; ++r)
    for (int h = 0; h < column_groups(); ++h) all += fmt::format("{}c{}_{}", all.empty() ? "" : ", ", r, h);
  const int count = tile_.thread_rows * column_groups();
  line(fmt::format("var results = array<vec4f, {}>({});", count, all));
  line(fmt::format("for (var at = 0u; at < {}u + (thread >> 16u); at++) {{", count));
  line(fmt::format("  let r = {};", divided("at", column_groups())));
  line(fmt::format("  let i = row0 + (m0 + (r >> 2u) * {}u) * 4u + (r & 3u);", kPatchRows));
  line(fmt::format("  let j = column0 + (n0 + {} * {}u) * 4u;", modulo("at", column_groups()), kPatchColumns));
  const std::string place = finish_batch() + "i, ";
  line(wide() ? fmt::format("  $finish({}j, results[at]);", place)
              : fmt::format("  for (var e = 0u; e < 4u + (thread >> 16u); e++) {{ $finish({}j + e, results[at][e]); }}",
                            place));
  line("}");
}

}  // namespace weft::webgpu
