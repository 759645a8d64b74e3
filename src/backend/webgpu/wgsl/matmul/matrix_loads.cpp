// Loads the operands of subgroup matrices from their buffers to registers, and from there to workgroup memory.
#include <fmt/format.h>

#include <algorithm>

#include "backend/webgpu/wgsl/matmul/matrix_writer.hpp"

namespace weft::webgpu {

StagedMatrix MatrixWriter::stage(char name, const kernel::Operand& operand, const kernel::MatrixView& view,
                                 Extent extent, int tile, Bindings& bindings) const {
  // Scaled operands are padded: their rows and columns need no guard.
  const Extent whole = scaled_ && scaled_->padded ? divide_up(extent, tile) * tile
                       : paired() && name == 'b'  ? 2 * extent  // the two as one
                                                  : extent;
  const bool is_packed = name == 'b' && scaled_ && scaled_->packed_b;
  StagedMatrix o{name, bindings.add(is_packed ? scaled_->packed_b->words : operand, false), operand.type, whole, view};
  o.along_k = follows_k(view);
  o.tile = tile;
  const int chunk = tile_.buffers == 1 ? tile_.depth : name == 'a' ? tile_.chunk_a : tile_.chunk_b;
  o.slices = o.along_k ? chunk / tile_.depth : 1;
  o.lines = o.along_k ? tile : tile_.depth;
  o.vectors = (o.along_k ? chunk : tile) / 8;
  o.halves = together() ? 2 : 1;
  if (is_packed) {
    o.group = 8;
    return o;
  }
  o.group = groups_of(operand, view, whole, kernel_.k);
  if (o.group == 8 && operand.type != DType::f16 && !scales_in_staging()) o.group = 4;
  if (o.group == 8) bindings.want_eights(o.handle);
  if (o.group == 4) bindings.want_vectors(o.handle);
  return o;
}

// Eight neighbours that begin at `along` of line `across`, as halves, or as they are if they become halves later. Beyond k they
// are zero; rows and columns beyond the operand repeat the last one, and their results are not stored.
ShaderPieces::Function MatrixWriter::load_function(const StagedMatrix& o, const Bindings& bindings) {
  const auto stride = [](Extent elements) { return fmt::format("{}u", static_cast<std::uint32_t>(elements)); };
  const Extent along_stride = o.along_k ? o.view.column() : o.view.row();
  const Extent across_stride = o.along_k ? o.view.row() : o.view.column();
  const Extent along_end = o.along_k ? kernel_.k : o.extent;
  const bool are_words = o.type == DType::f16 || scales_in_staging();
  std::string text = "(batch_at: u32, across: u32, along: u32) -> vec4<u32> {\n";
  const std::string line_of =
      o.along_k ? fmt::format("min(across, {}u)", o.extent - 1) : fmt::format("min(across, {}u)", kernel_.k - 1);
  text += fmt::format("  let line_at = batch_at + {} * {};\n", line_of, stride(across_stride));
  const auto inside = [&](const std::string& value, int e, const char* zero) {
    return o.along_k ? fmt::format("select({}, {}, along + {}u < {}u)", zero, value, e, kernel_.k) : value;
  };
  std::string halves;
  if (o.group == 4) {
    for (int g = 0; g < 2; ++g) {
      const std::string group = fmt::format("(line_at + min(along + {}u, {}u)) / 4u", 4 * g, along_end - 4);
      if (are_words) {
        const std::string value = inside(bindings.vector(o.handle, group), 4 * g, "vec2<u32>()");
        text += fmt::format("  let g{} = {};\n", g, value);
      } else {
        const std::string value = inside(bindings.load_vec4f(o.handle, group, helpers_), 4 * g, "vec4f()");
        text += fmt::format("  let f{0} = {1};\n  let g{0} = vec2<u32>({2}(f{0}.x, f{0}.y), {2}(f{0}.z, f{0}.w));\n", g,
                            value, helpers_.use("halves_from_f32"));
      }
    }
    halves = "vec4<u32>(g0, g1)";
  } else {
    for (int e = 0; e < 8; ++e) {
      const std::string at =
          fmt::format("line_at + min(along + {}u, {}u) * {}", e, along_end - 1, stride(along_stride));
      const std::string value = are_words ? inside(bindings.load(o.handle, at), e, "0u")
                                          : inside(bindings.load_f32(o.handle, at, helpers_), e, "0f");
      text += fmt::format("  let e{} = {};\n", e, value);
    }
    for (int e = 0; e < 8; e += 2)
      halves += (e ? ", " : "") + (are_words ? fmt::format("e{} | (e{} << 16u)", e, e + 1)
                                             : fmt::format("{}(e{}, e{})", helpers_.use("halves_from_f32"), e, e + 1));
    halves = fmt::format("vec4<u32>({})", halves);
  }
  text += o.along_k ? fmt::format("  return {};\n}}\n", halves)
                    : fmt::format("  return select(vec4<u32>(), {}, across < {}u);\n}}\n", halves, kernel_.k);
  return {fmt::format("eight_{}", o.name), text};
}

// Eight numbers of bf16 as scaled halves, which keep their places: even and odd ones by four scales each.
ShaderPieces::Function MatrixWriter::halves_function() {
  const std::string_view pair = helpers_.use("halves_from_f32");
  std::string text =
      "(eight: vec4<u32>, even: vec4f, odd: vec4f) -> vec4<u32> {\n"
      "  let x = bitcast<vec4f>(eight << vec4<u32>(16u)) * even;\n"
      "  let y = bitcast<vec4f>(eight & vec4<u32>(0xffff0000u)) * odd;\n"
      "  return vec4<u32>(";
  for (const char e : {'x', 'y', 'z', 'w'}) text += fmt::format("{}{}(x.{}, y.{})", e == 'x' ? "" : ", ", pair, e, e);
  return {"halves_of", text + ");\n}\n"};
}

// The part of addresses that does not change with k, and this thread's place in workgroup memory.
void MatrixWriter::write_bases(const StagedMatrix& o) {
  const char n = o.name;
  const std::string first = n == 'a' ? "row0" : "column0";
  line(fmt::format("let {}_line = {};", n, divided("thread", o.vectors)));
  line(fmt::format("let {}_vector = {};", n, modulo("thread", o.vectors)));
  line(fmt::format("let {0}_staged = {0}_line * {1}u + {0}_vector + {2}u;", n, o.pitch(),
                   n == 'a' ? 0 : a_.size() * tile_.buffers));
  if (o.group < 8) {
    line(fmt::format("let {}_batch = {};", n, o.batch_at));
    return;
  }
  if (unpacks(o)) return write_packed_rows(o);
  const auto eighth = [](Extent elements) { return fmt::format("{}u", static_cast<std::uint32_t>(elements / 8)); };
  if (!o.along_k) {
    const std::string at = fmt::format("{} / 8u + {}_vector", first, n);
    line(fmt::format("let {}_at = ({}) / 8u + {}{};", n, o.batch_at,
                     o.guarded() ? fmt::format("min({}, {}u)", at, o.extent / 8 - 1) : at,
                     guards_k() ? "" : fmt::format(" + {}_line * {}", n, eighth(o.view.column()))));
    return;
  }
  const std::string vector = guards_k() ? "" : fmt::format(" + {}_vector", n);
  if (!o.guarded()) {
    line(fmt::format("let {0}_at = ({1}) / 8u + ({2} + {0}_line) * {3}{4};", n, o.batch_at, first, eighth(o.view.row()),
                     vector));
    return;
  }
  for (int slice = 0; slice < o.slices; ++slice)
    for (int i = 0; i < loads(o); ++i)
      line(fmt::format("let {0}_at{1}_{2} = ({3}) / 8u + min({4} + {0}_line + {5}u, {6}u) * {7}{8};", n, slice, i,
                       o.batch_at, first, slice * o.slice_lines() + i * lines_apart(o), o.extent - 1,
                       eighth(o.view.row()), vector));
}

// The first blocks of the rows of packed weights that this thread stages.
void MatrixWriter::write_packed_rows(const StagedMatrix& o) {
  const int half = shape_.columns;
  line("let b_part = b_vector & 3u;");
  for (int slice = 0; slice < o.slices; ++slice)
    for (int i = 0; i < loads(o); ++i) {
      const int lines_on = slice * o.slice_lines() + i * lines_apart(o);
      const std::string column = fmt::format("min(column0 + b_line + {}u, {}u)",
                                             paired() && lines_on >= half ? lines_on - half : lines_on, kernel_.n - 1);
      const std::string row = kernel_.batch > 1 ? fmt::format("(b * {}u + {})", kernel_.n, column) : column;
      line(fmt::format("let b_blocks{}_{} = {} * {}u;", slice, i, row, PackedOperand::blocks(kernel_.k)));
    }
}

// Where the halves for number `at` of k (or of chunks of it) are stored, of which one product has `part`.
std::string MatrixWriter::stored_at(const StagedMatrix& o, const std::string& at, Extent part) const {
  if (scaled_->products == 1 || scaled_->together) return at;
  return fmt::format("({0} - select(0u, {1}u, {0} >= {2}u))", at, o.name == 'a' ? part : 2 * part, 2 * part);
}

// Reads this thread's vectors of step `it + ahead` into set `set` of registers. Steps beyond the last chunk read it again.
void MatrixWriter::load(const StagedMatrix& o, const std::string& it, int ahead, int set, const Bindings& bindings) {
  const Place at = place(o, it, ahead);
  const char n = o.name;
  const auto eighth = [](Extent elements) { return fmt::format("{}u", static_cast<std::uint32_t>(elements / 8)); };
  const Extent chunks = divide_up(kernel_.k, o.chunk_k());
  const int all = o.slice_lines() * o.vectors;
  for (int i = 0; i < loads(o); ++i) {
    const int lines_on = at.slice * o.slice_lines() + i * lines_apart(o);
    std::string value;
    if (unpacks(o)) {
      const bool of_second = paired() && lines_on >= shape_.columns;
      value = fmt::format("${}(b_blocks{}_{} + (min({}, {}u) * {}u + b_vector) / 4u, b_part)",
                          of_second ? "words_of_second" : "words_of_b", at.slice, i, at.chunk, chunks - 1, o.vectors);
    } else if (o.group < 8) {
      const std::string row = fmt::format("{}_line + {}u", n, lines_on);
      value = o.along_k ? fmt::format("$eight_{0}({0}_batch, {1} + {2}, {3} * {4}u + {0}_vector * 8u)", n,
                                      n == 'a' ? "row0" : "column0", row, at.chunk, o.chunk_k())
                        : fmt::format("$eight_{0}({0}_batch, {1} * {2}u + {3}, {4} + {0}_vector * 8u)", n, at.chunk,
                                      o.chunk_k(), row, n == 'a' ? "row0" : "column0");
    } else if (!guards_k()) {
      std::string chunk = fmt::format("min({}, {}u)", at.chunk, chunks - 1);
      if (!o.along_k) {
        if (scaled_) chunk = stored_at(o, chunk, scaled_->part / o.chunk_k());
        value = bindings.array_of(o.handle) + fmt::format("[{}_at + {} * {} + {}]", n, chunk,
                                                          eighth(o.chunk_k() * o.view.column()),
                                                          eighth(lines_on * o.view.column()));
      } else if (o.guarded()) {
        value = bindings.array_of(o.handle) + fmt::format("[{}_at{}_{} + {} * {}u]", n, at.slice, i, chunk, o.vectors);
      } else {
        // Columns of the second product are in another buffer.
        const int half = shape_.columns;
        const bool of_second = n == 'b' && paired() && lines_on >= half;
        const Extent from = of_second
                                ? (lines_on - half) * o.view.row() + bindings.base(second_b_) - bindings.base(o.handle)
                                : lines_on * o.view.row();
        value = bindings.array_of(of_second ? second_b_ : o.handle) +
                fmt::format("[{}_at + {} * {}u + {}]", n, chunk, o.vectors, eighth(from));
      }
    } else if (!o.along_k) {
      const std::string k = fmt::format("({} * {}u + {}_line + {}u)", at.chunk, o.chunk_k(), n, lines_on);
      std::string line_of = fmt::format("min({}, {}u)", k, kernel_.k - 1);
      if (scaled_) line_of = stored_at(o, line_of, scaled_->part);
      value = fmt::format("select(vec4<u32>(), {}[{}_at + {} * {}], {} < {}u)", bindings.array_of(o.handle), n, line_of,
                          eighth(o.view.column()), k, kernel_.k);
    } else {
      const std::string k = fmt::format("({} * {}u + {}_vector)", at.chunk, o.vectors, n);
      const std::string row = o.guarded() ? fmt::format("{}_at{}_{}", n, at.slice, i)
                                          : fmt::format("{}_at + {}", n, eighth(lines_on * o.view.row()));
      value = fmt::format("select(vec4<u32>(), {}[{} + min({}, {}u)], {} < {}u)", bindings.array_of(o.handle), row, k,
                          kernel_.k / 8 - 1, k, kernel_.k / 8);
    }
    for (int half = 0; half < o.halves; ++half) {
      std::string read = value;
      if (half > 0) read.insert(read.rfind(']'), fmt::format(" + {}", eighth(scaled_->part * o.view.column())));
      read = fmt::format("{}_next{}_{} = {};", n, set, half * loads(o) + i, read);
      line(all < tile_.threads() ? fmt::format("if (thread < {}u) {{ {} }}", all, read) : read);
    }
  }
}

// A thread needs a scale for each row that it stages. Where lines have one k each, all its lines need the same eight.
void MatrixWriter::write_scales(const StagedMatrix& o) {
  const char n = o.name;
  const int first = n == 'a' ? 0 : tile_.rows;
  const auto scale_at = [&](const std::string& at) {
    return fmt::format("bitcast<f32>((127 + $exponents[{}]) << 23u)", at);
  };
  if (o.along_k) {
    for (int slice = 0; slice < o.slices; ++slice)
      for (int i = 0; i < loads(o); ++i)
        line(fmt::format("let {}_scale{}_{} = {};", n, slice, i,
                         scale_at(fmt::format("min({}_line + {}u, {}u) + {}u", n,
                                              slice * o.slice_lines() + i * lines_apart(o), o.tile - 1, first))));
    return;
  }
  for (int odd = 0; odd < 2; ++odd) {
    std::string scales;
    for (int e = odd; e < 8; e += 2)
      scales += (e > 1 ? ", " : "") + scale_at(fmt::format("{}_vector * 8u + {}u", n, first + e));
    line(fmt::format("let {}_{} = vec4f({});", n, odd ? "odd" : "even", scales));
  }
}

// Those of the even and the odd numbers of a vector.
std::string MatrixWriter::scales(const StagedMatrix& o, int slice, int i) const {
  if (!o.along_k) return fmt::format("{0}_even, {0}_odd", o.name);
  return fmt::format("vec4f({0}_scale{1}_{2}), vec4f({0}_scale{1}_{2})", o.name, slice, i);
}

// Moves set `set` of registers to the place of step `it + ahead` in workgroup memory.
void MatrixWriter::store(const StagedMatrix& o, int ahead, int set) {
  const Place at = place(o, "0u", ahead);
  const int all = o.slice_lines() * o.vectors;
  for (int half = 0; half < o.halves; ++half)
    for (int i = 0; i < loads(o); ++i) {
      const int on =
          at.buffer * o.size() + half * o.half_size() + (at.slice * o.slice_lines() + i * lines_apart(o)) * o.pitch();
      std::string eight = fmt::format("{}_next{}_{}", o.name, set, half * loads(o) + i);
      if (unpacks(o)) eight = fmt::format("$halves_of_b({}, b_part)", eight);
      if (scales_in_staging()) eight = fmt::format("$halves_of({}, {})", eight, scales(o, at.slice, i));
      const std::string text = fmt::format("$staged[{}_staged + {}u] = {};", o.name, on, eight);
      line(all < tile_.threads() ? fmt::format("if (thread < {}u) {{ {} }}", all, text) : text);
    }
}

}  // namespace weft::webgpu
