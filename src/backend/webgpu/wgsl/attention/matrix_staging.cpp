// The way of the operands: owned rows to right matrices, tiles of the other side to registers and workgroup memory.
#include "backend/webgpu/wgsl/attention/matrix_writer.hpp"

#include <fmt/format.h>

namespace weft::webgpu::attention {

void MatrixAttentionWriter::write_begin_of_turns() {
  line("if (turns > 0u) {");
  write_loads("0u");
  line("}");
  line("for (var turn = 0u; turn < turns; turn++) {");
  write_turn("turn");
  line("workgroupBarrier();");
  write_stores();
  line("workgroupBarrier();");
  line("if (turn + 1u < turns) {");
  write_loads("(turn + 1u)");
  line("}");
}

// The owned rows as right matrices <prefix><row>_<channels>, some channels at a time through the subgroup's memory.
void MatrixAttentionWriter::write_owned(const Halves& halves, const char* prefix) {
  const int columns = matrices_ % 2 == 0 ? 4 : 2;  // vectors at a time
  for (int r = 0; r < row_matrices(); ++r)
    for (int k = 0; k < matrices_; ++k) line(fmt::format("var {}{}_{}: {};", prefix, r, k, kRightMatrix));
  for (int first = 0; first < vectors(); first += columns) {
    for (int i = 0; i < block_.subgroup_rows * columns / 32; ++i) {
      const std::string row = fmt::format("lane / {}u + {}u", columns, i * 32 / columns);
      const std::string from = owned_ % block_.rows() == 0 ? fmt::format("row0 + {}", row)
                                                           : fmt::format("min(row0 + {}, {}u)", row, owned_ - 1);
      line(fmt::format("$scores[own + ({}) * {}u + lane % {}u] = {};", row, columns + 1, columns,
                       halved(halves, eight(halves, from, fmt::format("(lane % {}u + {}u)", columns, first)))));
    }
    line("workgroupBarrier();");
    for (int r = 0; r < row_matrices(); ++r)
      for (int k = 0; k < columns / 2; ++k)
        line(fmt::format("{}{}_{} = subgroupMatrixLoad<{}, col_major>(&$scores, own + {}u, {}u);", prefix, r,
                         first / 2 + k, kRightMatrix, r * 16 * (columns + 1) + 2 * k, columns + 1));
    line("workgroupBarrier();");
  }
}

// Which vectors of a tile this thread brings.
void MatrixAttentionWriter::write_load_place() {
  if (block_.threads() % vectors() == 0) {
    line(fmt::format("let load_row = {};", divided("thread", vectors())));
    line(fmt::format("let load_vector = {};", modulo("thread", vectors())));
  } else {
    for (int i = 0; i < loads(); ++i) {
      line(fmt::format("let load_row{} = (thread + {}u) / {}u;", i, i * block_.threads(), vectors()));
      line(fmt::format("let load_vector{} = (thread + {}u) % {}u;", i, i * block_.threads(), vectors()));
    }
  }
  for (int i = 0; i < loads(); ++i) line(fmt::format("var first{0}: vec4<u32>; var second{0}: vec4<u32>;", i));
}

std::string MatrixAttentionWriter::load_row(int i) const {
  return block_.threads() % vectors() == 0 ? fmt::format("load_row + {}u", i * block_.threads() / vectors())
                                           : fmt::format("load_row{}", i);
}

std::string MatrixAttentionWriter::load_vector(int i) const {
  return block_.threads() % vectors() == 0 ? "load_vector" : fmt::format("load_vector{}", i);
}

std::string MatrixAttentionWriter::guarded_load(int i, const std::string& text) const {
  const int count = block_.tile * vectors();
  return (i + 1) * block_.threads() > count
             ? fmt::format("if (thread + {}u < {}u) {{ {} }}", i * block_.threads(), count, text)
             : text;
}

// Where turn `turn` reads: its tile and, where several heads share the owned keys, its head.
void MatrixAttentionWriter::write_turn(const std::string& turn) {
  if (!walks_members()) return line(fmt::format("let other0 = (tile_begin + {}) * {}u;", turn, block_.tile));
  line(fmt::format("let head = kv_head * {}u + {} / tiles;", members(), turn));
  line(fmt::format("let other0 = (tile_begin + {} % tiles) * {}u;", turn, block_.tile));
  for (const Halves* halves : {&other_first_, &other_second_}) write_at(*halves);
}

// The tile of a turn, to registers. Going forward, keys are a chunk ahead of values.
void MatrixAttentionWriter::write_loads(const std::string& turn) {
  line("{");
  write_turn(turn);
  const Extent ahead = is_forward() ? 16 : 0;
  const auto row = [&](int i, Extent by) {
    const std::string at = fmt::format("other0 + {} + {}u", load_row(i), by);
    return by > 0 || others_ % block_.tile != 0 ? fmt::format("min({}, {}u)", at, others_ - 1) : at;
  };
  for (int i = 0; i < loads(); ++i) {
    line(guarded_load(i, fmt::format("first{} = {};", i, eight(other_first_, row(i, ahead), load_vector(i)))));
    line(guarded_load(i, fmt::format("second{} = {};", i, eight(other_second_, row(i, 0), load_vector(i)))));
  }
  // Pairs of queries, as exponentials and slopes need them. A query beyond the end weighs nothing, and
  // neither does one that sees no key: the span of a key's queries may hold it.
  if (part_ == Part::d_key_value) {
    line(fmt::format("if (thread < {}u) {{", block_.tile / 2));
    for (int e = 0; e < 2; ++e) {
      line(fmt::format("  let query{} = min(other0 + 2u * thread + {}u, {}u);", e, e, others_ - 1));
      line(fmt::format("  let log_sum{} = {};", e,
                       bindings_.load(logsumexp_, stat(logsumexp_, fmt::format("query{}", e)))));
      std::string minus = fmt::format("select(-log_sum{0} * {1}, {2}, log_sum{0} < {3})", e,
                                      render_constant(kLog2E, DType::f32, helpers_), kHidden, kUnseen);
      if (others_ % block_.tile != 0)
        minus = fmt::format("select({}, {}, other0 + 2u * thread + {}u >= {}u)", minus, kHidden, e, others_);
      line(fmt::format("  pair[{}] = {};", e, minus));
      line(fmt::format("  pair[{}] = {}{};", e + 2, bindings_.load(delta_, stat(delta_, fmt::format("query{}", e))),
                       scales() ? " * delta_scale" : ""));
    }
    line("}");
  }
  line("}");
}

void MatrixAttentionWriter::write_stores() {
  if (guards()) write_cleaned();
  for (int i = 0; i < loads(); ++i) {
    const std::string row = load_row(i), vector = load_vector(i);
    // Where two threads share a row, its shares are in the order of the threads, and so have to be the values.
    const std::string turned = is_forward() && lanes() == 2 ? fmt::format(
                                                                  "((({0}) & 0xfffffff0u) | (((({0}) >> 1u) & 1u) << "
                                                                  "3u) | (((({0}) >> 2u) & 3u) << 1u) | (({0}) & 1u))",
                                                                  row)
                                                            : fmt::format("({})", row);
    const auto stored = [&](const char* array, const std::string& line_of, const Halves& halves, const char* name) {
      return guarded_load(i, fmt::format("${}[{} * {}u + {}] = {};", array, line_of, pitch(), vector,
                                         halved(halves, fmt::format("{}{}", name, i))));
    };
    line(stored("staged_first", fmt::format("({})", row), other_first_, "first"));
    line(stored("staged_second", turned, other_second_, "second"));
  }
  if (part_ == Part::d_key_value)
    line(fmt::format("if (thread < {}u) {{ $query_stats[thread] = pair; }}", block_.tile / 2));
}

// Rows of the first of the others, from `first` on, straight to workgroup memory.
void MatrixAttentionWriter::write_fill(const std::string& first, int rows) {
  line(fmt::format("for (var at = thread; at < {}u; at += {}u) {{", rows * vectors(), block_.threads()));
  line(fmt::format("  let row = {};", divided("at", vectors())));
  line(fmt::format("  let vector = {};", modulo("at", vectors())));
  line(fmt::format(
      "  $staged_first[row * {}u + vector] = {};", pitch(),
      halved(other_first_, eight(other_first_, fmt::format("min({} + row, {}u)", first, others_ - 1), "vector"))));
  line("}");
}

}  // namespace weft::webgpu::attention
