// The sums of products of a lane, and how lanes join them.
#include "backend/webgpu/wgsl/quantised/rows_writer.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace weft::webgpu {

void RowsWriter::write_row_sums_start() {
  for (int i = 0; i < rows_; ++i)
    for (int r = 0; r < sums_; ++r) {
      line(fmt::format("var row{}_{} = vec4f();", i, r));
      line(fmt::format("var whole{}_{} = 0f;", i, r));
    }
}

void RowsWriter::write_sums(const std::vector<Weights>& weights) {
  for (const Weights& each : weights)
    each_sum([&](int r, int i) { line(fmt::format("var {}{}_{} = 0f;", each.sum, r, i)); });
  if (is_phase_) {
    write_sums_of_phase(weights);
    return;
  }
  const bool once = Extent{lanes_} * ahead_ >= units_;
  if (once) {
    line("{");
    line("  let unit = lane;");
  } else {
    if (stages()) write_staging(*weights[0].reader);
    line(fmt::format("for (var unit = lane; unit < {}u; unit += {}u) {{", units_, lanes_ * ahead_));
  }
  // All reads come before the first sum, so that a thread waits for them once.
  for (int turn = 0; turn < ahead_; ++turn) write_reads(weights, turn);
  if (once && stages()) write_staging(*weights[0].reader);
  for (int turn = 0; turn < ahead_; ++turn) {
    const bool guarded = turn > 0 || once;
    line(guarded ? fmt::format("  if (unit{} < {}u) {{", turn, units_) : "  {");
    write_turn(weights, turn);
    line("  }");
  }
  line("}");
}

// The first reads of W come before the meeting, and each later one before the sum of an earlier turn.
void RowsWriter::write_sums_of_phase(const std::vector<Weights>& weights) {
  constexpr int kReadsMax = 12;  // more registers would leave fewer workgroups on a compute unit
  const int turns = turns_of_phase();
  const int ahead = std::max(1, kReadsMax / (columns_ * static_cast<int>(weights.size())));
  line("let unit = lane;");
  for (int turn = 0; turn < std::min(ahead, turns); ++turn) write_reads(weights, turn);
  write_staging(*weights[0].reader);
  for (int turn = 0; turn < turns; ++turn) {
    if (turn + ahead < turns) write_reads(weights, turn + ahead);
    line(fmt::format("if (unit{} < {}u) {{", turn, units_));
    write_turn(weights, turn);
    line("}");
  }
}

void RowsWriter::write_reads(const std::vector<Weights>& weights, int turn) {
  line(fmt::format("  let unit{} = unit + {}u;", turn, turn * lanes_));
  for (const Weights& each : weights)
    for (int r = 0; r < columns_; ++r) {
      const std::string name = fmt::format("{}_{}{}", r, turn, each.mark);
      const std::string column = fmt::format("min(j0 + {}u, {}u)", r, kernel_.n - 1);
      text_ += each.reader->read(kernel_.experts ? fmt::format("(expert * {}u + {})", kernel_.n, column) : column,
                                 fmt::format("min(unit{}, {}u)", turn, units_ - 1), name, "    ");
      if (each.reader->has_scales() && each.reader->chunks_together() == each.reader->chunks())
        line(fmt::format("  let f{} = {};", name, each.reader->scale(name, "0u")));
    }
}

void RowsWriter::write_turn(const std::vector<Weights>& weights, int turn) {
  if (integers_) return write_integer_turn(weights, turn);
  const PackedReader& reader = *weights[0].reader;  // the other has the same form
  const int together = reader.chunks_together();
  const bool several = together < reader.chunks(), scaled = reader.has_scales();
  if (several) line(fmt::format("    for (var first = 0u; first < {}u; first += {}u) {{", reader.chunks(), together));
  const std::string first = several ? "first" : "0u";
  const auto each_weight = [&](auto work) {
    for (const Weights& each : weights)
      for (int r = 0; r < columns_; ++r) work(each, r, fmt::format("{}_{}{}", r, turn, each.mark));
  };
  if (scaled) {
    for (int i = 0; i < rows_; ++i) line(fmt::format("    var t{} = 0f;", i));
    each_weight([&](const Weights& each, int r, const std::string&) {
      for (int i = 0; i < rows_; ++i) line(fmt::format("    var p{}{}_{} = 0f;", each.sum, r, i));
    });
  }
  line(fmt::format("    for (var c = {0}; c < {0} + {1}u; c++) {{", first, together));
  each_weight([&](const Weights& each, int, const std::string& name) {
    line(fmt::format("      let w{0} = $chunk{1}(q{0}, high{0}, c);", name, each.mark));
  });
  for (int i = 0; i < rows_; ++i) {
    line(stages() ? fmt::format("      let x{0} = $staged[{1}u + c * {2}u + unit{3}];", i, i * staged_fours_,
                                reader.units(), turn)
                  : fmt::format("      let x{0} = $activations(i0 + {0}u, unit{1} * {2}u + c * 4u{3});", i, turn,
                                reader.elements(), row_sums(i, "&row")));
    if (reader.has_offset()) line(fmt::format("      t{0} += dot(x{0}, vec4f(1f));", i));
  }
  each_weight([&](const Weights& each, int r, const std::string& name) {
    for (int i = 0; i < rows_; ++i)
      line(fmt::format("      {0}{1}{2}_{3} += dot(w{4}, x{3});", scaled ? "p" : "", each.sum, r, i, name));
  });
  line("    }");
  if (scaled)
    each_weight([&](const Weights& each, int r, const std::string& name) {
      if (several) line(fmt::format("    let f{} = {};", name, each.reader->scale(name, first)));
      for (int i = 0; i < rows_; ++i)
        line(reader.has_offset()
                 ? fmt::format("    {2}{0}_{1} += f{3}.x * p{2}{0}_{1} + f{3}.y * t{1};", r, i, each.sum, name)
                 : fmt::format("    {2}{0}_{1} += f{3}.x * p{2}{0}_{1};", r, i, each.sum, name));
    });
  if (several) line("    }");
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
  for (int i = 0; i < rows_; ++i)
    line(fmt::format("let factor{0} = $row_factor(i0 + {0}u{1});", i, row_sums(i, "whole")));
  for (const char* sum : {"s", "u"})
    if (extras_.before || *sum == 's')
      each_sum([&](int r, int i) { line(fmt::format("{}{}_{} *= factor{};", sum, r, i, i)); });
}

void RowsWriter::write_joined(const std::vector<std::string>& names) {
  if (target_.subgroup_size >= 2) {
    const int size = std::min(lanes_, lanes_of(target_));
    for (int distance = 1; distance < size; distance *= 2)
      for (const std::string& name : names) line(fmt::format("{0} += subgroupShuffleXor({0}, {1}u);", name, distance));
    if (lanes_ == size) return;
    const int subgroups = threads_ / size, shared = lanes_ / size;
    line(fmt::format("if ({} == 0u) {{", modulo("thread", size)));
    for (std::size_t n = 0; n < names.size(); ++n)
      line(fmt::format("  $across[{}u + {}] = {};", n * static_cast<std::size_t>(subgroups), divided("thread", size),
                       names[n]));
    line("}");
    line("workgroupBarrier();");
    line(fmt::format("let of_team = {} * {}u;", divided("thread", lanes_), shared));
    for (std::size_t n = 0; n < names.size(); ++n) {
      std::string sum;
      for (int s = 0; s < shared; ++s)
        sum += fmt::format("{}$across[of_team + {}u]", s ? " + " : "",
                           n * static_cast<std::size_t>(subgroups) + static_cast<std::size_t>(s));
      line(fmt::format("{} = {};", names[n], sum));
    }
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
