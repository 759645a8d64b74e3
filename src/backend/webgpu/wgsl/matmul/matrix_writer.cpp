// The whole shader, and the loop over k.
#include "backend/webgpu/wgsl/matmul/matrix_writer.hpp"

#include <fmt/format.h>

#include <utility>

#include "backend/webgpu/wgsl/matmul/scaled_product.hpp"
#include "weft/error.hpp"

namespace weft::webgpu {
using kernel::LoopKernel;
using kernel::MatmulKernel;

MatrixWriter::MatrixWriter(const MatmulKernel& kernel, const MatrixTile& tile, int split, const Target& target,
                           Scratch& scratch, Rendered& rendered, const ScaledOperands* scaled, const RowGroups* groups)
    : ProductWriter(
          kernel, groups,
          {tile.rows, scaled && (scaled->second_b || scaled->packed_second_b) ? tile.columns / 2 : tile.columns,
           tile.depth},
          split, tile.turn, target, scratch, rendered),
      tile_(tile),
      scaled_(scaled) {}

void MatrixWriter::render() {
  Bindings bindings(target_, kernel_.name);
  a_ = stage('a', kernel_.a, kernel_.a_view, rows_of_a(), tile_.rows, bindings);
  b_ = stage('b', kernel_.b, kernel_.b_view.transposed(), kernel_.n, tile_.columns, bindings);
  if (paired()) bind_second_b(bindings);
  if (scaled_) {
    largest_a_ = bindings.add(scaled_->largest_a, false);
    if (scaled_->scaled_b) largest_b_ = bindings.add(scaled_->largest_b, false);
    if (scaled_->scaled_b && paired()) second_largest_b_ = bindings.add(scaled_->second_largest_b, false);
  }
  add_groups(bindings);
  const LoopKernel results = begin_results();
  StepWriter writer(results, bindings, helpers_, results_space(), results_space());
  bindings.resolve();

  ShaderPieces shader{.threads = tile_.threads(), .matrices = true};
  for (StagedMatrix* o : {&a_, &b_}) {
    if (unpacks(*o)) continue;
    if (o->group == 8 && !bindings.has_eights(o->handle)) o->group = 1;
    if (o->group == 4 && !bindings.has_vectors(o->handle)) o->group = 1;
    o->batch_at = Index(o->view.at.batch, {{{"b", kernel_.batch}}, -1}).offset(bindings.base(o->handle));
    if (o->group < 8) shader.functions.push_back(load_function(*o, bindings));
  }
  if (paired() && !scaled_->packed_b && (b_.group < 8 || !bindings.has_eights(second_b_)))
    throw InternalError("webgpu: the weights of a gated unit are not bound in eights");
  shader.share("staged", "vec4<u32>", staged_bytes(tile_, a_.along_k, b_.along_k, a_.halves) / 16);
  declare_groups(shader, bindings);
  shader.functions.push_back(finish_function(results, writer));
  if (scaled_) {
    shader.share("exponents", "i32", tile_.rows + tile_.columns);
    shader.functions.push_back(rescale_function());
  }
  if (scales_in_staging()) shader.functions.push_back(halves_function());
  if (unpacks(b_)) declare_packed(shader, bindings);

  write_tile_place();
  write_place();
  if (scaled_) write_exponents(bindings);
  for (const StagedMatrix* o : {&a_, &b_}) {
    write_bases(*o);
    if (scales_in_staging()) write_scales(*o);
  }
  write_fragments();
  std::string first = "0u";
  if (split_ > 1) {
    line(fmt::format("let first = s * {}u;", steps_per_split_));
    first = "first";
  }
  if (together()) {
    write_together(bindings, first);
  } else if (tile_.buffers == 2) {
    write_pipelined(bindings, first);
  } else {
    write_single(bindings, first);
  }
  write_results();
  add_dispatches(std::move(shader), bindings, ".matrices");
}

void MatrixWriter::bind_second_b(Bindings& bindings) {
  steps_of_u_ = scaled_->steps_of_first;
  second_b_ = bindings.add(scaled_->packed_b ? scaled_->packed_second_b->words : *scaled_->second_b, false);
  if (!scaled_->packed_b) bindings.want_eights(second_b_);
}

void MatrixWriter::declare_packed(ShaderPieces& shader, const Bindings& bindings) {
  shader.functions.push_back(scaled_->packed_b->words_function("words_of_b", b_.handle, kernel_.k, bindings));
  if (paired())
    shader.functions.push_back(
        scaled_->packed_second_b->words_function("words_of_second", second_b_, kernel_.k, bindings));
  shader.functions.push_back(scaled_->packed_b->halves_function("halves_of_b", helpers_));
}

// The results that this subgroup computes, in the workgroup's tile.
void MatrixWriter::write_place() {
  const int across = tile_.columns / tile_.subgroup_columns;
  line(fmt::format("let m0 = {} * {}u;", divided("subgroup", across), tile_.subgroup_rows));
  line(fmt::format("let n0 = {} * {}u;", modulo("subgroup", across), tile_.subgroup_columns));
}

// The exponents of the scales of the tile's rows, and then of its columns.
void MatrixWriter::write_exponents(const Bindings& bindings) {
  const auto write = [&](int handle, int first, int count, const char* corner, Extent extent, Extent parts,
                         bool batched) {
    line(fmt::format("for (var at = thread; at < {}u; at += {}u) {{", count, tile_.threads()));
    line("  var size = 0u;");
    line(fmt::format("  for (var part = 0u; part < {}u; part++) {{", parts));
    const std::string where =
        fmt::format("{}part * {}u + min({} + at, {}u) + {}u", batched ? fmt::format("b * {}u + ", parts * extent) : "",
                    extent, corner, extent - 1, bindings.base(handle));
    line(fmt::format("    size = max(size, bitcast<u32>({}));", bindings.load(handle, where)));
    line("  }");
    line(fmt::format("  $exponents[at + {}u] = {};", first, scale_exponent("size")));
    line("}");
  };
  write(largest_a_, 0, tile_.rows, "row0", rows_of_a(), scaled_->parts_a, scaled_->batched_a);
  if (scaled_->scaled_b)
    for (const int handle : {largest_b_, second_largest_b_})
      if (handle >= 0)
        write(handle, tile_.rows + (handle == largest_b_ ? 0 : shape_.columns), shape_.columns, "column0", kernel_.n,
              scaled_->parts_b, scaled_->batched_b);
  line("workgroupBarrier();");
}

MatrixWriter::Place MatrixWriter::place(const StagedMatrix& o, const std::string& it, int ahead) const {
  std::string chunk = it == "0u" ? fmt::format("{}u", ahead / o.slices)
                                 : fmt::format("({} + {}u)", divided(it, o.slices), ahead / o.slices);
  return {std::move(chunk), ahead % o.slices, ahead / o.slices % tile_.buffers};
}

// The first step to workgroup memory, and the next ones to registers.
void MatrixWriter::begin_pipeline(const Bindings& bindings, const std::string& first) {
  for (const StagedMatrix* o : {&a_, &b_}) {
    for (int slice = 0; slice < o->slices; ++slice) {
      load(*o, first, slice, 0, bindings);
      store(*o, slice, 0);
    }
    for (int set = 0; set < tile_.ahead; ++set) load(*o, first, o->slices + set, set, bindings);
  }
  line("workgroupBarrier();");
}

std::string MatrixWriter::turns(const std::string& first) const {
  return fmt::format("for (var it = {}; it < {}{}u; it += {}u) {{", first, split_ > 1 ? "first + " : "",
                     steps_per_split_, tile_.turn);
}

// One barrier per step: stores after it go to the buffer whose fragments all threads have read before it.
void MatrixWriter::write_pipelined(const Bindings& bindings, const std::string& first) {
  begin_pipeline(bindings, first);
  load_fragments("x", 0, 0, "");
  const int parts = tile_.depth / kMatrix;
  std::string current = "x", next = "y";
  line(turns(first));
  for (int step = 0; step < tile_.turn; ++step) {
    const int set = step % tile_.ahead;
    for (const StagedMatrix* o : {&a_, &b_}) store(*o, step + o->slices, set);
    const auto load_both = [&] {
      for (const StagedMatrix* o : {&a_, &b_}) load(*o, "it", step + o->slices + tile_.ahead, set, bindings);
    };
    if (!tile_.late_loads) load_both();
    for (int part = 0; part < parts; ++part) {
      const bool last = part == parts - 1;
      if (last) line("workgroupBarrier();");
      load_fragments(next, last ? step + 1 : step, last ? 0 : part + 1, "");
      if (last && tile_.late_loads) load_both();
      multiply(current, current);
      std::swap(current, next);
    }
  }
  line("}");
}

// High * low, high * high, low * high of each step: every fragment is read once, while two others are multiplied.
void MatrixWriter::write_together(const Bindings& bindings, const std::string& first) {
  constexpr int kHigh = 0, kLow = 1;
  begin_pipeline(bindings, first);
  load_fragments(a_, kHigh, "x", 0, 0, "");
  load_fragments(b_, kLow, "x", 0, 0, "");
  std::string current = "x", next = "y";
  line(turns(first));
  for (int step = 0; step < tile_.turn; ++step) {
    const int set = step % tile_.ahead;
    for (const StagedMatrix* o : {&a_, &b_}) store(*o, step + 1, set);
    const auto load_both = [&] {
      for (const StagedMatrix* o : {&a_, &b_}) load(*o, "it", step + 1 + tile_.ahead, set, bindings);
    };
    if (!tile_.late_loads) load_both();
    load_fragments(b_, kHigh, "h", step, 0, "");
    if (tile_.late_loads) load_both();
    multiply(current, current);
    load_fragments(a_, kLow, "h", step, 0, "");
    multiply(current, "h");
    line("workgroupBarrier();");
    load_fragments(a_, kHigh, next, step + 1, 0, "");
    load_fragments(b_, kLow, next, step + 1, 0, "");
    multiply("h", "h");
    std::swap(current, next);
  }
  line("}");
}

void MatrixWriter::write_single(const Bindings& bindings, const std::string& first) {
  const auto load_both = [&](const std::string& it) {
    for (const StagedMatrix* o : {&a_, &b_}) load(*o, it, 0, 0, bindings);
  };
  const auto store_both = [&] {
    for (const StagedMatrix* o : {&a_, &b_}) store(*o, 0, 0);
  };
  const auto multiply_step = [&] {
    for (int part = 0; part < tile_.depth / kMatrix; ++part) {
      line("{");
      load_fragments("", 0, part, "let ");
      multiply("", "");
      line("}");
    }
  };
  load_both(first);
  store_both();
  line("workgroupBarrier();");
  if (steps_per_split_ > 1) {
    line(fmt::format("for (var it = {} + 1u; it < {}{}u; it++) {{", first, split_ > 1 ? "first + " : "",
                     steps_per_split_));
    load_both("it");
    multiply_step();
    line("workgroupBarrier();");
    store_both();
    line("workgroupBarrier();");
    line("}");
  }
  multiply_step();
}

void MatrixWriter::write_fragments() {
  for (const StagedMatrix* o : {&a_, &b_})
    for (int set = 0; set < tile_.ahead; ++set)
      for (int i = 0; i < o->halves * loads(*o); ++i)
        line(fmt::format("var {}_next{}_{}: vec4<u32>;", o->name, set, i));
  const int rows = tile_.subgroup_rows / kMatrix, columns = tile_.subgroup_columns / kMatrix;
  for (int r = 0; r < rows; ++r)
    for (int c = 0; c < columns; ++c)
      line(fmt::format("var sum{}_{}: subgroup_matrix_result<f32, {}, {}>;", r, c, kMatrix, kMatrix));
  if (tile_.buffers == 1) return;
  for (const char* prefix : {"x", "y", "h"}) {
    if (*prefix == 'h' && !together()) continue;
    for (int r = 0; r < rows; ++r)
      line(fmt::format("var {}a{}: subgroup_matrix_left<f16, {}, {}>;", prefix, r, kMatrix, kMatrix));
    for (int c = 0; c < columns; ++c)
      line(fmt::format("var {}b{}: subgroup_matrix_right<f16, {}, {}>;", prefix, c, kMatrix, kMatrix));
  }
}

// The fragments of part `k_part` of step `it + ahead`.
void MatrixWriter::load_fragments(const std::string& prefix, int ahead, int k_part, const char* declare) {
  for (const StagedMatrix* o : {&a_, &b_}) load_fragments(*o, 0, prefix, ahead, k_part, declare);
}

void MatrixWriter::load_fragments(const StagedMatrix& o, int half, const std::string& prefix, int ahead, int k_part,
                                  const char* declare) {
  const bool is_a = &o == &a_;
  const Place at = place(o, "0u", ahead);
  const int base = (is_a ? 0 : a_.size() * tile_.buffers) + at.buffer * o.size() + half * o.half_size();
  const int count = (is_a ? tile_.subgroup_rows : tile_.subgroup_columns) / kMatrix;
  const char* corner = is_a ? "m0" : "n0";
  for (int i = 0; i < count; ++i) {
    const std::string where =
        o.along_k ? fmt::format("{} * {}u + {}u", corner, o.pitch(),
                                base + i * kMatrix * o.pitch() + at.slice * tile_.depth / 8 + k_part * kMatrix / 8)
                  : fmt::format("{} / 8u + {}u", corner,
                                base + (at.slice * tile_.depth + k_part * kMatrix) * o.pitch() + i * kMatrix / 8);
    line(fmt::format("{}{}{}{} = subgroupMatrixLoad<subgroup_matrix_{}<f16, {}, {}>, {}>(&$staged, {}, {}u);", declare,
                     prefix, o.name, i, is_a ? "left" : "right", kMatrix, kMatrix,
                     is_a == o.along_k ? "row_major" : "col_major", where, o.pitch()));
  }
}

void MatrixWriter::multiply(const std::string& prefix_a, const std::string& prefix_b) {
  for (int r = 0; r < tile_.subgroup_rows / kMatrix; ++r)
    for (int c = 0; c < tile_.subgroup_columns / kMatrix; ++c)
      line(fmt::format("sum{1}_{2} = subgroupMatrixMultiplyAccumulate({0}a{1}, {3}b{2}, sum{1}_{2});", prefix_a, r, c,
                       prefix_b));
}

// Takes the scales of a row and four columns of the tile from sums. The exponents are applied in two halves, which f32 can hold.
ShaderPieces::Function MatrixWriter::rescale_function() const {
  std::string text = "(row: u32, column: u32, sums: vec4f) -> vec4f {\n  let both = vec4<i32>($exponents[row])";
  if (scaled_->scaled_b) {
    text += " + vec4<i32>(";
    for (int e = 0; e < 4; ++e) text += fmt::format("{}$exponents[column + {}u]", e ? ", " : "", tile_.rows + e);
    text += ")";
  }
  text +=
      ";\n"
      "  let half = both >> vec4<u32>(1u);\n"
      "  return sums * bitcast<vec4f>((127 - half) << vec4<u32>(23u)) * "
      "bitcast<vec4f>((127 - both + half) << vec4<u32>(23u));\n}\n";
  return {"rescaled", text};
}

// Sixteen rows of each subgroup at a time go through workgroup memory, where threads take neighbouring results of a row.
void MatrixWriter::write_results() {
  const int across = tile_.columns / tile_.subgroup_columns;
  const int rows = tile_.rows / tile_.subgroup_rows * kMatrix, fours = shape_.columns / 4;
  const int pitch = result_pitch(tile_);
  line("workgroupBarrier();");
  for (int r = 0; r < tile_.subgroup_rows / kMatrix; ++r) {
    if (r > 0) line("workgroupBarrier();");
    for (int c = 0; c < tile_.subgroup_columns / kMatrix; ++c)
      line(fmt::format("subgroupMatrixStore<row_major>(&$staged, {} * {}u + n0 / 4u + {}u, sum{}_{}, {}u);",
                       divided("subgroup", across), kMatrix * pitch, c * kMatrix / 4, r, c, pitch));
    line("workgroupBarrier();");
    line(fmt::format("for (var at = thread; at < {}u; at += {}u) {{", rows * fours, tile_.threads()));
    line(fmt::format("  let r = {};", divided("at", fours)));
    line(fmt::format("  let c = {};", modulo("at", fours)));
    line(fmt::format("  {} results = bitcast<vec4f>($staged[r * {}u + c]);", scaled_ ? "var" : "let", pitch));
    line(fmt::format("  let row = {} * {}u + {}u + {};", divided("r", kMatrix), tile_.subgroup_rows, r * kMatrix,
                     modulo("r", kMatrix)));
    line("  let i = row0 + row;");
    line("  let j = column0 + c * 4u;");
    if (scaled_) line("  results = $rescaled(row, c * 4u, results);");
    if (paired()) {
      line(fmt::format("  let seconds = $rescaled(row, {}u + c * 4u, bitcast<vec4f>($staged[r * {}u + {}u + c]));",
                       shape_.columns, pitch, fours));
      line(fmt::format("  $finish({}i, j, seconds, results);", finish_batch()));
    } else if (wide()) {
      line(fmt::format("  $finish({}i, j, results);", finish_batch()));
    } else {
      for (int e = 0; e < 4; ++e)
        line(fmt::format("  $finish({}i, j + {}u, results.{});", finish_batch(), e, "xyzw"[e]));
    }
    line("}");
  }
}

}  // namespace weft::webgpu
