// The loop over k, and the products of the slabs in workgroup memory.
#include "backend/webgpu/wgsl/matmul/tile_writer.hpp"

#include <fmt/format.h>

namespace weft::webgpu {

namespace {

// Kernels with fewer products are written compactly, kernels with more products for speed.
constexpr double kCompactProducts = 0x1p30, kWrittenTwiceProducts = 0x1p35;

}  // namespace

void TileWriter::write_registers(const StagedOperand& a, const StagedOperand& b) {
  for (int r = 0; r < tile_.thread_rows; ++r)
    for (int h = 0; h < column_groups(); ++h) line(fmt::format("var c{}_{} = vec4f();", r, h));
  for (const StagedOperand* s : {&a, &b})
    for (int i = 0; i < loads(*s); ++i) line(fmt::format("var {}_next{}: vec4f;", s->name, i));
}

// One buffer in workgroup memory; the next step is read into registers while this one is multiplied.
void TileWriter::write_product(const StagedOperand& a, const StagedOperand& b, const Bindings& bindings) {
  const Extent steps = divide_up(kernel_.k, tile_.depth);
  std::string first = "0u", end = k_ends_ ? "k_steps" : fmt::format("{}u", steps);
  if (split_ > 1) {
    line(fmt::format("let first = s * {}u;", steps_per_split_));
    first = "first";
    end = steps % steps_per_split_ == 0 ? fmt::format("first + {}u", steps_per_split_)
                                        : fmt::format("min(first + {}u, {}u)", steps_per_split_, steps);
  }
  if (!target_.unroll) return write_plain_loop(a, b, bindings, first, end);
  if (compact()) line(opaque_depth());
  for (const StagedOperand* s : {&a, &b}) write_loads(*s, first, bindings, "  ");
  for (const StagedOperand* s : {&a, &b}) write_shared(*s, "  ");
  line("workgroupBarrier();");
  if (steps_per_split_ == 1) return write_multiply(a, b, "  ");
  if (written_twice()) {
    line(fmt::format("for (var step = {} + 1u; step < {}; step++) {{", first, end));
    for (const StagedOperand* s : {&a, &b}) write_loads(*s, "step", bindings, "    ");
    write_multiply(a, b, "    ");
    line("  workgroupBarrier();");
    for (const StagedOperand* s : {&a, &b}) write_shared(*s, "    ");
    line("  workgroupBarrier();");
    line("}");
    return write_multiply(a, b, "  ");
  }
  line(fmt::format("for (var step = {} + 1u; step <= {}; step++) {{", first, end));
  line(fmt::format("  let more = step < {};", end));
  line("  if (more) {");
  for (const StagedOperand* s : {&a, &b}) write_loads(*s, "step", bindings, "      ");
  line("  }");
  write_multiply(a, b, "    ");
  line("  workgroupBarrier();");
  line("  if (more) {");
  for (const StagedOperand* s : {&a, &b}) write_shared(*s, "      ");
  line("  }");
  line("  workgroupBarrier();");
  line("}");
}

// The shortest text, for slow compilers: nothing is read ahead.
void TileWriter::write_plain_loop(const StagedOperand& a, const StagedOperand& b, const Bindings& bindings,
                                  const std::string& first, const std::string& end) {
  line(opaque_depth());
  line(fmt::format("for (var step = {}; step < {}; step++) {{", first, end));
  for (const StagedOperand* s : {&a, &b}) write_loads(*s, "step", bindings, "    ");
  for (const StagedOperand* s : {&a, &b}) write_shared(*s, "    ");
  line("  workgroupBarrier();");
  write_multiply(a, b, "    ");
  line("  workgroupBarrier();");
  line("}");
}

// The steps of k in workgroup memory: 4 x 4 products of a row group and a column group each.
void TileWriter::write_multiply(const StagedOperand& a, const StagedOperand& b, const std::string& indent) {
  const int written = !target_.unroll ? 1 : compact() ? 4 : tile_.depth;
  const bool loops = written < tile_.depth;
  if (loops) text_ += fmt::format("{}for (var k = 0u; k < depth; k += {}u) {{\n", indent, written);
  for (int k = 0; k < written; ++k) {
    text_ += indent + "{\n";
    const auto line_of = [&](const StagedOperand& s, int group) {
      return loops ? fmt::format("(k + {}u) * {}u + {}u", k, s.pitch(), group)
                   : fmt::format("{}u", k * s.pitch() + group);
    };
    for (int g = 0; g < row_groups(); ++g)
      text_ += fmt::format("{}  let a{} = $shared_a[m0 + {}];\n", indent, g, line_of(a, g * kPatchRows));
    for (int h = 0; h < column_groups(); ++h)
      text_ += fmt::format("{}  let b{} = $shared_b[n0 + {}];\n", indent, h, line_of(b, h * kPatchColumns));
    for (int r = 0; r < tile_.thread_rows; ++r)
      for (int h = 0; h < column_groups(); ++h)
        text_ +=
            fmt::format("{0}  c{1}_{2} = fma(vec4f(a{3}.{4}), b{2}, c{1}_{2});\n", indent, r, h, r / 4, "xyzw"[r % 4]);
    text_ += indent + "}\n";
  }
  if (loops) text_ += indent + "}\n";
}

// A kernel that runs for microseconds spends most of them on fetching its instructions, so its text should be short.
bool TileWriter::compact() const { return target_.unroll && products() < kCompactProducts; }

// The last step is outside the loop, so that the loop has no branch: some percent faster, but slower to compile.
bool TileWriter::written_twice() const { return products() >= kWrittenTwiceProducts; }

double TileWriter::products() const {
  return static_cast<double>(kernel_.batch * kernel_.m * kernel_.n) * static_cast<double>(kernel_.k);
}

// The depth in a form that compilers do not see through (thread numbers are below 2^16), so they do not unroll the loop.
std::string TileWriter::opaque_depth() const { return fmt::format("let depth = {}u + (thread >> 16u);", tile_.depth); }

}  // namespace weft::webgpu
