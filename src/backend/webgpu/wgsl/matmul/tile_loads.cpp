// How the operands come: from their buffers to registers, and from there to workgroup memory.
#include "backend/webgpu/wgsl/matmul/tile_writer.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>

namespace weft::webgpu {

bool TileWriter::by_fours(const kernel::View& view) {
  return view.bounds.empty() && view.offset % 4 == 0 &&
         std::all_of(view.strides.begin(), view.strides.end(), [](Extent stride) { return stride % 4 == 0; });
}

Staging TileWriter::stage(char name, const kernel::Operand& operand, Extent extent, Extent stride, Extent k_stride,
                          int tile, const kernel::View& batch, Bindings& bindings) {
  Staging s{name, bindings.add(operand, false), extent, stride, k_stride, tile};
  s.along_k = stride != 1 && (k_stride == 1 || std::abs(k_stride) < std::abs(stride));
  const Extent along = s.along_k ? k_stride : stride, across = s.along_k ? stride : k_stride;
  s.reordered = order_ && name == 'a';
  s.vectors = along == 1 && across % 4 == 0 && (s.along_k || !s.reordered) && operand.offset % 4 == 0 &&
              (s.along_k ? kernel_.k : extent) % 4 == 0 && by_fours(batch);
  if (s.vectors) bindings.want_vectors(s.handle);
  return s;
}

void TileWriter::locate_batch(Staging& s, const kernel::View& batch, const Bindings& bindings) {
  s.vectors = s.vectors && bindings.has_vectors(s.handle);
  s.batch_offset = Index(batch, {{{"b", kernel_.batch}}, -1}).offset(bindings.base(s.handle));
}

// The part of addresses that does not change with k: one for each load where rows have to be clamped to the operand.
void TileWriter::write_staging_places(const Staging& s) {
  const std::string first = s.name == 'a' ? "row0" : "column0";
  const std::string last = fmt::format("{}u", s.extent - 1);
  line(fmt::format("let {}_line = {};", s.name, divided("thread", s.line_vectors(tile_.depth))));
  line(fmt::format("let {}_vector = {};", s.name, modulo("thread", s.line_vectors(tile_.depth))));
  const auto clamped = [&](const std::string& at) {
    const std::string inside = s.guarded() ? fmt::format("min({}, {})", at, last) : at;
    return s.reordered ? fmt::format("$row_at({})", inside) : inside;
  };
  if (is_flat(s)) {
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
void TileWriter::write_loads(const Staging& s, const std::string& step, const Bindings& bindings,
                             const std::string& indent) {
  const bool guarded = kernel_.k % tile_.depth != 0;
  const auto emit = [&](const std::string& text) { text_ += indent + text + "\n"; };
  const auto k_stride = [&](Extent by) { return fmt::format("{}u", static_cast<std::uint32_t>(s.k_stride / by)); };
  const auto inside = [&](const std::string& k, const std::string& value, const char* zero) {
    return guarded ? fmt::format("select({}, {}, {} < {})", zero, value, k, k_end()) : value;
  };
  for (int i = 0; i < loads(s); ++i) {
    const std::string target = fmt::format("{}_next{}", s.name, i);
    if (is_flat(s)) {
      const Extent ahead = s.along_k ? tile_.depth / 4 : tile_.depth * s.k_stride / 4;
      const Extent apart = i * lines_apart(s) * (s.along_k ? s.stride : s.k_stride) / 4;
      emit(fmt::format("{} = {};", target,
                       bindings.vector(s.handle, fmt::format("{}_at + {} * {}u + {}u", s.name, step,
                                                             static_cast<std::uint32_t>(ahead),
                                                             static_cast<std::uint32_t>(apart)))));
    } else if (s.along_k && s.vectors) {
      const std::string k = fmt::format("({} * {}u + {}_vector * 4u)", step, tile_.depth, s.name);
      const std::string vector = fmt::format("({} * {}u + {}_vector)", step, tile_.depth / 4, s.name);
      const std::string at = guarded ? fmt::format("min({}, {}u)", vector, kernel_.k / 4 - 1) : vector;
      emit(fmt::format("{} = {};", target,
                       inside(k, bindings.vector(s.handle, fmt::format("{}_at{} + {}", s.name, i, at)), "vec4f()")));
    } else if (s.vectors) {
      const std::string k = fmt::format("({} * {}u + {}_line + {}u)", step, tile_.depth, s.name, i * lines_apart(s));
      const std::string at = guarded ? fmt::format("min({}, {}u)", k, kernel_.k - 1) : k;
      emit(fmt::format(
          "{} = {};", target,
          inside(k, bindings.vector(s.handle, fmt::format("{}_at0 + {} * {}", s.name, at, k_stride(4))), "vec4f()")));
    } else {
      std::string values;
      for (int e = 0; e < 4; ++e) {
        const std::string k =
            s.along_k ? fmt::format("({} * {}u + {}_vector * 4u + {}u)", step, tile_.depth, s.name, e)
                      : fmt::format("({} * {}u + {}_line + {}u)", step, tile_.depth, s.name, i * lines_apart(s));
        const std::string at = guarded ? fmt::format("min({}, {}u)", k, kernel_.k - 1) : k;
        const std::string index = fmt::format("{}_at{} + {} * {}", s.name, s.along_k ? i : e, at, k_stride(1));
        values += (e ? ", " : "") + inside(k, bindings.load(s.handle, index), "0f");
      }
      emit(fmt::format("{} = vec4f({});", target, values));
    }
  }
}

void TileWriter::write_shared(const Staging& s, const std::string& indent) {
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
