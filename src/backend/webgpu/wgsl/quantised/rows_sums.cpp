// The sums of products of a lane, and how lanes join them.
#include "backend/webgpu/wgsl/quantised/rows_writer.hpp"

#include <fmt/format.h>

namespace weft::webgpu {

void RowsWriter::write_sums(const PackedReader& reader, const std::string& sum) {
  const std::string mark = sum == "s" ? "" : "_before";
  each_sum([&](int r, int i) { line(fmt::format("var {}{}_{} = 0f;", sum, r, i)); });
  for (int i = 0; i < rows_; ++i)
    for (int r = 0; r < sums_; ++r) line(fmt::format("var {}{}_{} = vec4f();", sum == "s" ? "row" : "again", i, r));
  line(fmt::format("for (var unit = lane; unit < {}; unit += {}u) {{",
                   kernel_.chosen ? "units" : fmt::format("{}u", reader.units()), lanes_));
  for (int r = 0; r < columns_; ++r)
    text_ += reader.read(fmt::format("min(j0 + {}u, {}u)", r, kernel_.n - 1), "unit", std::to_string(r), "    ");
  const int together = reader.chunks_together();
  const bool several = together < reader.chunks();
  if (several) line(fmt::format("  for (var first = 0u; first < {}u; first += {}u) {{", reader.chunks(), together));
  const std::string first = several ? "first" : "0u";
  if (reader.has_scales()) {
    for (int i = 0; i < rows_; ++i) line(fmt::format("  var t{} = 0f;", i));
    each_sum([&](int r, int i) { line(fmt::format("  var p{}_{} = 0f;", r, i)); });
  }
  line(fmt::format("  for (var c = {0}; c < {0} + {1}u; c++) {{", first, together));
  for (int r = 0; r < columns_; ++r) line(fmt::format("    let w{0} = $chunk{1}(q{0}, high{0}, c);", r, mark));
  for (int i = 0; i < rows_; ++i) {
    line(fmt::format("    let x{0} = $activations(i0 + {0}u, unit * {1}u + c * 4u{2});", i, reader.elements(),
                     row_sums(i, sum == "s" ? "&row" : "&again")));
    if (reader.has_offset()) line(fmt::format("    t{0} += dot(x{0}, vec4f(1f));", i));
  }
  each_sum([&](int r, int i) {
    line(fmt::format("    {0}{1}_{2} += dot(w{1}, x{2});", reader.has_scales() ? "p" : sum, r, i));
  });
  line("  }");
  if (reader.has_scales()) {
    for (int r = 0; r < columns_; ++r) line(fmt::format("  let f{} = {};", r, reader.scale(std::to_string(r), first)));
    each_sum([&](int r, int i) {
      line(reader.has_offset() ? fmt::format("  {2}{0}_{1} += f{0}.x * p{0}_{1} + f{0}.y * t{1};", r, i, sum)
                               : fmt::format("  {2}{0}_{1} += f{0}.x * p{0}_{1};", r, i, sum));
    });
  }
  if (several) line("  }");
  line("}");
}

std::vector<std::string> RowsWriter::sums_of(const char* sum) const {
  std::vector<std::string> names;
  each_sum([&](int r, int i) { names.push_back(fmt::format("{}{}_{}", sum, r, i)); });
  return names;
}

std::string RowsWriter::row_sums(int i, const char* name) const {
  std::string text;
  for (int r = 0; r < sums_; ++r) text += fmt::format(", {}{}_{}", name, i, r);
  return text;
}

void RowsWriter::write_factors() {
  std::vector<std::string> names;
  for (int i = 0; i < rows_; ++i)
    for (int r = 0; r < sums_; ++r) {
      names.push_back(fmt::format("whole{}_{}", i, r));
      line(fmt::format("var {} = dot(row{}_{}, vec4f(1f));", names.back(), i, r));
    }
  write_joined(names);
  for (int i = 0; i < rows_; ++i)
    line(fmt::format("let factor{0} = $row_factor(i0 + {0}u{1});", i, row_sums(i, "whole")));
  for (const char* sum : {"s", "u"})
    if (before_ || *sum == 's')
      each_sum([&](int r, int i) { line(fmt::format("{}{}_{} *= factor{};", sum, r, i, i)); });
}

void RowsWriter::write_joined(const std::vector<std::string>& names) {
  if (target_.subgroup_size >= 2) {
    for (int distance = 1; distance < lanes_; distance *= 2)
      for (const std::string& name : names) line(fmt::format("{0} += subgroupShuffleXor({0}, {1}u);", name, distance));
    return;
  }
  for (const std::string& name : names) {
    line(fmt::format("$joined[thread] = {};", name));
    line("workgroupBarrier();");
    line(fmt::format("for (var distance = {}u; distance > 0u; distance >>= 1u) {{", lanes_ / 2));
    line("  if (lane < distance) { $joined[thread] += $joined[thread + distance]; }");
    line("  workgroupBarrier();");
    line("}");
    line(fmt::format("{} = $joined[thread - lane];", name));
    line("workgroupBarrier();");
  }
}

}  // namespace weft::webgpu
