// The results: the epilogue of one product, or of the two products of a gated unit.
#include "backend/webgpu/wgsl/quantised/rows_writer.hpp"

#include <fmt/format.h>

#include "backend/webgpu/wgsl/loop.hpp"

namespace weft::webgpu {
using kernel::StepKind;

ShaderPieces::Function RowsWriter::finish_function(const kernel::LoopKernel& epilogue, StepWriter& writer,
                                                   Helpers& helpers) const {
  std::size_t held_count = 0;
  std::span<const int> values;
  if (extras_.tail) {
    held_count = extras_.tail->held().size() - extras_.tail->loops().size();
    values = std::span(extras_.tail->values()).first(held_count);
  }
  const std::vector<bool> needed = needed_steps(epilogue, values);
  for (std::size_t s = 0; s < epilogue.steps.size(); ++s) {
    if (!needed[s]) continue;
    if (epilogue.steps[s].kind == StepKind::accumulator)
      writer.define(static_cast<int>(s),
                    {render_cast({extras_.before && s < extras_.pair->steps_of_first ? "u" : "v", DType::f32, {}},
                                 epilogue.steps[s].type, helpers)});
    else
      writer.write(static_cast<int>(s));
  }
  for (const kernel::Store& store : epilogue.stores) writer.write_store(store);
  std::string parameters = extras_.before ? ", u: f32" : "";
  if (extras_.tail) {
    parameters = ", slot: u32";
    for (std::size_t h = 0; h < held_count; ++h)
      writer.line(held(static_cast<int>(h), "slot") + fmt::format(" = {};", writer.value(values[h]).text));
  }
  return {"finish", fmt::format("(i: u32, j: u32, v: f32{}) {{\n  if (i >= {}u || j >= {}u) {{ return; }}\n{}}}\n",
                                parameters, kernel_.m, kernel_.n, writer.take_text())};
}

void RowsWriter::write_results() {
  const int count = rows_ * columns_;
  line(fmt::format("for (var at = lane; at < {}u; at += {}u) {{", count, lanes_));
  line("  var v = s0_0;");
  if (extras_.before) line("  var u = u0_0;");
  each_sum([&](int r, int i) {
    if (r + i == 0) return;
    line(fmt::format("  if (at == {0}u) {{ v = s{1}_{2};{3} }}", r * rows_ + i, r, i,
                     extras_.before ? fmt::format(" u = u{}_{};", r, i) : ""));
  });
  if (kernel_.experts) line(fmt::format("  if (!has_expert) {{ v = 0f;{} }}", extras_.before ? " u = 0f;" : ""));
  std::string more = extras_.before ? ", u" : "";
  if (extras_.tail) more = fmt::format(", {} * {}u + at", divided("thread", lanes_), rows_);
  line(fmt::format("  $finish(i0 + {}, j0 + {}, v{});", modulo("at", rows_), divided("at", rows_), more));
  line("}");
}

}  // namespace weft::webgpu
