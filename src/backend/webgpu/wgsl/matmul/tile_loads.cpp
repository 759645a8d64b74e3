// Loads the operands from their buffers to registers, and from there to workgroup memory.
#include "backend/webgpu/wgsl/matmul/tile_writer.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>

namespace weft::webgpu {

bool TileWriter::by_fours(const kernel::View& view) {
  return view.bounds.empty() && view.offset % 4 == 0 &&
         std::all_of(view.strides.begin(), view.strides.end(), [](Extent stride) { return stride % 4 == 0; });
}

StagedOperand TileWriter::stage(char name, const kernel::Operand& operand, const kernel::MatrixView& view,
                                Extent extent, int tile, Bindings& bindings) {
  StagedOperand s{name, bindings.add(operand, false), extent, tile, view};
  s.reordered = groups_ && name == 'a';
  if (!s.plain()) {
    // Neighbouring threads follow the longer run of neighbouring elements.
    const auto run = [](const kernel::View& axis) {
      return !axis.extents.empty() && axis.strides.back() == 1 ? axis.extents.back() : 1;
    };
    s.along_k = run(view.at.columns) > run(view.at.rows);
    const auto by_fours_along = [](const kernel::View& axis, bool has_run) {
      const std::size_t others = axis.strides.size() - (has_run ? 1 : 0);
      return std::all_of(axis.strides.begin(), axis.strides.begin() + static_cast<std::ptrdiff_t>(others),
                         [](Extent stride) { return stride % 4 == 0; }) &&
             (!has_run || (axis.strides.back() == 1 && axis.extents.back() % 4 == 0));
    };
    s.vectors = view.edges.empty() && (s.along_k || !s.reordered) && operand.offset % 4 == 0 &&
                std::max(run(view.at.rows), run(view.at.columns)) > 1 && by_fours_along(view.at.rows, !s.along_k) &&
                by_fours_along(view.at.columns, s.along_k) && by_fours(view.at.batch);
    if (s.vectors) bindings.want_vectors(s.handle);
    return s;
  }
  const Extent stride = s.stride = view.row(), k_stride = s.k_stride = view.column();
  s.along_k = stride != 1 && (k_stride == 1 || std::abs(k_stride) < std::abs(stride));
  const Extent along = s.along_k ? k_stride : stride, across = s.along_k ? stride : k_stride;
  s.vectors = along == 1 && across % 4 == 0 && (s.along_k || !s.reordered) && operand.offset % 4 == 0 &&
              (s.along_k ? kernel_.k : extent) % 4 == 0 && by_fours(view.at.batch);
  if (s.vectors) bindings.want_vectors(s.handle);
  return s;
}

void TileWriter::locate_batch(StagedOperand& s, const Bindings& bindings) {
  s.vectors = s.vectors && bindings.has_vectors(s.handle);
  s.batch_offset = Index(s.view.at.batch, {{{"b", kernel_.batch}}, -1}).offset(bindings.base(s.handle));
}

namespace {

/// Element offset of index `at` on an axis with this extent.
std::string along(const kernel::View& axis, const std::string& at, Extent extent) {
  return Index(axis, {{{at, extent}}, -1}).offset(0);
}

}  // namespace

// The element of a general view: `at` and the values of the edges are what its row, and its batch, add to the sums.
ShaderPieces::Function TileWriter::load_function(const StagedOperand& s, const Bindings& bindings) {
  std::string parameters, inside;
  for (std::size_t e = 0; e < s.view.edges.size(); ++e) {
    const kernel::MatrixView::Edge& edge = s.view.edges[e];
    parameters += fmt::format("edge{}: u32, ", e);
    inside += fmt::format("{}edge{} + {} - {}u < {}u", e == 0 ? "" : " && ", e,
                          along(edge.value.columns, "k", kernel_.k), edge.lo, edge.hi - edge.lo);
  }
  const std::string at = fmt::format("at + {}", along(s.view.at.columns, "k", kernel_.k));
  if (s.vectors)
    return {fmt::format("load_{}", s.name),
            fmt::format("(at: u32, k: u32) -> vec4f {{\n  return {};\n}}\n",
                        bindings.load_vec4f(s.handle, fmt::format("({}) / 4u", at), helpers_))};
  const std::string body =
      inside.empty()
          ? fmt::format("return {};", bindings.load_f32(s.handle, at, helpers_))
          : fmt::format("let inside = {};\n  return select(0f, {}, inside);", inside,
                        bindings.load_f32(s.handle, fmt::format("select({}u, {}, inside)", bindings.base(s.handle), at),
                                          helpers_));
  return {fmt::format("load_{}", s.name), fmt::format("(at: u32, {}k: u32) -> f32 {{\n  {}\n}}\n", parameters, body)};
}

// The part that row (of A, or column of B) `at` adds to the sums of a general view.
void TileWriter::write_place_in_view(const StagedOperand& s, int number, const std::string& at) {
  const std::string row = fmt::format("{}_row{}", s.name, number);
  line(fmt::format("let {} = {};", row, at));
  line(fmt::format("let {}_at{} = {} + {};", s.name, number, s.batch_offset, along(s.view.at.rows, row, s.extent)));
  for (std::size_t e = 0; e < s.view.edges.size(); ++e) {
    const kernel::MatrixView::Sum& value = s.view.edges[e].value;
    line(fmt::format("let {}_edge{}_{} = {} + {};", s.name, e, number, along(value.batch, "b", kernel_.batch),
                     along(value.rows, row, s.extent)));
  }
}

// The part of addresses that does not change with k: one for each load if rows must be clamped to the operand.
void TileWriter::write_staging_places(const StagedOperand& s) {
  const std::string first = s.name == 'a' ? "row0" : "column0";
  const std::string last = fmt::format("{}u", s.extent - 1);
  line(fmt::format("let {}_line = {};", s.name, divided("thread", s.line_vectors(tile_.depth))));
  line(fmt::format("let {}_vector = {};", s.name, modulo("thread", s.line_vectors(tile_.depth))));
  const auto clamped = [&](const std::string& at) {
    const std::string inside = s.guarded() ? fmt::format("min({}, {})", at, last) : at;
    return s.reordered ? fmt::format("$row_at({})", inside) : inside;
  };
  if (!s.plain()) {
    // A vector across k that begins inside the operand also ends inside.
    const std::string last_vector = fmt::format("{}u", s.extent - 4);
    for (int i = 0; i < (s.along_k ? loads(s) : s.vectors ? 1 : 4); ++i) {
      const std::string line_of = fmt::format("{} + {}_line + {}u", first, s.name, i * lines_apart(s));
      const std::string element = fmt::format("{} + {}_vector * 4u + {}u", first, s.name, i);
      write_place_in_view(s, i,
                          s.along_k                  ? clamped(line_of)
                          : s.vectors && s.guarded() ? fmt::format("min({}, {})", element, last_vector)
                                                     : clamped(element));
    }
  } else if (is_flat(s)) {
    const std::string lines = s.along_k ? fmt::format("({} + {}_line)", first, s.name) : fmt::format("{}_line", s.name);
    line(fmt::format("let {0}_at = ({1}) / 4u + {2} * {3} + {4}{0}_vector;", s.name, s.batch_offset, lines,
                     line_stride(s), s.along_k ? "" : first + " / 4u + "));
  } else if (s.along_k) {
    for (int i = 0; i < loads(s); ++i) {
      const std::string at = clamped(fmt::format("{} + {}_line + {}u", first, s.name, i * lines_apart(s)));
      line(fmt::format("let {}_at{} = ({} + ({}) * {}u){};", s.name, i, s.batch_offset, at,
                       static_cast<std::uint32_t>(s.stride), s.vectors ? " / 4u" : ""));
    }
  } else if (s.vectors) {
    const std::string at = s.guarded() ? fmt::format("min({} / 4u + {}_vector, {}u)", first, s.name, s.extent / 4 - 1)
                                       : fmt::format("{} / 4u + {}_vector", first, s.name);
    line(fmt::format("let {}_at0 = ({}) / 4u + {};", s.name, s.batch_offset, at));
  } else {
    for (int e = 0; e < 4; ++e)
      line(fmt::format("let {}_at{} = {} + ({}) * {}u;", s.name, e, s.batch_offset,
                       clamped(fmt::format("{} + {}_vector * 4u + {}u", first, s.name, e)),
                       static_cast<std::uint32_t>(s.stride)));
  }
}

// Reads step `step` of k into this thread's registers. Beyond k both operands are zero.
void TileWriter::write_loads(const StagedOperand& s, const std::string& step, const Bindings& bindings,
                             const std::string& indent) {
  const bool guarded = k_ends_ || kernel_.k % tile_.depth != 0;
  const auto emit = [&](const std::string& text) { text_ += indent + text + "\n"; };
  const auto k_stride = [&](Extent by) { return fmt::format("{}u", static_cast<std::uint32_t>(s.k_stride / by)); };
  const auto inside = [&](const std::string& k, const std::string& value, const char* zero) {
    return guarded ? fmt::format("select({}, {}, {} < {})", zero, value, k, k_end()) : value;
  };
  for (int i = 0; i < loads(s); ++i) {
    const std::string target = fmt::format("{}_next{}", s.name, i);
    if (!s.plain() && s.vectors) {
      const std::string k = s.along_k ? fmt::format("({} * {}u + {}_vector * 4u)", step, tile_.depth, s.name)
                                      : fmt::format("({} + {}_line + {}u)", k_of(step), s.name, i * lines_apart(s));
      const Extent last = s.along_k ? kernel_.k - 4 : kernel_.k - 1;
      const std::string at = guarded ? fmt::format("min({}, {}u)", k, last) : k;
      emit(fmt::format("{} = {};", target,
                       inside(k, fmt::format("$load_{0}({0}_at{1}, {2})", s.name, s.along_k ? i : 0, at), "vec4f()")));
    } else if (is_flat(s)) {
      const Extent ahead = s.along_k ? tile_.depth / 4 : tile_.depth * s.k_stride / 4;
      const Extent apart = i * lines_apart(s) * (s.along_k ? s.stride : s.k_stride) / 4;
      emit(fmt::format(
          "{} = {};", target,
          bindings.load_vec4f(s.handle,
                              fmt::format("{}_at + {} * {}u + {}u", s.name, step, static_cast<std::uint32_t>(ahead),
                                          static_cast<std::uint32_t>(apart)),
                              helpers_)));
    } else if (s.along_k && s.vectors) {
      const std::string k = fmt::format("({} * {}u + {}_vector * 4u)", step, tile_.depth, s.name);
      const std::string vector = fmt::format("({} * {}u + {}_vector)", step, tile_.depth / 4, s.name);
      const std::string at = guarded ? fmt::format("min({}, {}u)", vector, kernel_.k / 4 - 1) : vector;
      emit(fmt::format(
          "{} = {};", target,
          inside(k, bindings.load_vec4f(s.handle, fmt::format("{}_at{} + {}", s.name, i, at), helpers_), "vec4f()")));
    } else if (s.vectors) {
      const std::string k = fmt::format("({} + {}_line + {}u)", k_of(step), s.name, i * lines_apart(s));
      const std::string at = guarded ? fmt::format("min({}, {}u)", k, kernel_.k - 1) : k;
      emit(fmt::format(
          "{} = {};", target,
          inside(k, bindings.load_vec4f(s.handle, fmt::format("{}_at0 + {} * {}", s.name, at, k_stride(4)), helpers_),
                 "vec4f()")));
    } else {
      std::string values;
      for (int e = 0; e < 4; ++e) {
        const std::string k = s.along_k ? fmt::format("({} * {}u + {}_vector * 4u + {}u)", step, tile_.depth, s.name, e)
                                        : fmt::format("({} + {}_line + {}u)", k_of(step), s.name, i * lines_apart(s));
        const std::string at = guarded ? fmt::format("min({}, {}u)", k, kernel_.k - 1) : k;
        if (!s.plain()) {
          const int place = s.along_k ? i : e;
          std::string edges;
          for (std::size_t n = 0; n < s.view.edges.size(); ++n)
            edges += fmt::format("{}_edge{}_{}, ", s.name, n, place);
          const std::string value = fmt::format("$load_{0}({0}_at{1}, {2}{3})", s.name, place, edges, at);
          values += (e ? ", " : "") + inside(k, value, "0f");
          continue;
        }
        const std::string index = fmt::format("{}_at{} + {} * {}", s.name, s.along_k ? i : e, at, k_stride(1));
        values += (e ? ", " : "") + inside(k, bindings.load_f32(s.handle, index, helpers_), "0f");
      }
      emit(fmt::format("{} = vec4f({});", target, values));
    }
  }
}

void TileWriter::write_shared(const StagedOperand& s, const std::string& indent) {
  for (int i = 0; i < loads(s); ++i) {
    const int apart = i * lines_apart(s);
    if (!s.along_k) {
      text_ += fmt::format("{}$shared_{}[({}_line + {}u) * {}u + {}_vector] = {}_next{};\n", indent, s.name, s.name,
                           apart, s.pitch(), s.name, s.name, i);
      continue;
    }
    for (int e = 0; e < 4; ++e)
      text_ += fmt::format(
          "{0}$shared_{1}[({1}_vector * 4u + {2}u) * {3}u + ({1}_line + {4}u) / 4u][{1}_line % 4u] = "
          "{1}_next{5}.{6};\n",
          indent, s.name, e, s.pitch(), apart, i, "xyzw"[e]);
  }
}

}  // namespace weft::webgpu
