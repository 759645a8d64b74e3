// Results: products of shares and rows of the tile, and their stores.
#include "backend/webgpu/wgsl/attention/writer.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace weft::webgpu::attention {

// result += shares of the owned rows * rows of the tile, for one slice of the channels.
void AttentionWriter::write_accumulate(const Phase& phase, const std::string& result) {
  const int quarters = block_.lane_others / 4, written = block_.written ? 8 / quarters / 2 : 1;
  line(fmt::format("for (var n = 0u; n < {}; n += {}u) {{", end_of(kAcross), written));
  deeper([&] {
    for (int u = 0; u < written; ++u) {
      line("{");
      line(fmt::format("  let m = n + {}u;", u));
      line("  let column = across ^ m;");
      for (int q = 0; q < quarters; ++q) {
        line("  {");
        for (int i = 0; i < block_.lane_rows; ++i)
          line(fmt::format("    let a{} = $slab{}[{} * {}u + ((m + {}u) ^ turned{})];", i, phase.left, own_row(i),
                           share_vectors(block_), q * kAcross, i % 2));
        for (int e = 0; e < 4; ++e)
          for (int h = 0; h < slice_ / kAcross; ++h) {
            line(fmt::format("    {{ let b = $slab{}[m * {}u + column + {}u];", phase.right, slice_,
                             (4 * q + e) * kAcross * slice_ + h * kAcross));
            for (int i = 0; i < block_.lane_rows; ++i)
              line(fmt::format("    {0}{1}_{2} = fma(vec4f(a{1}.{3}), b, {0}{1}_{2});", result, i,
                               phase.slice * (slice_ / kAcross) + h, "xyzw"[e]));
            line("    }");
          }
        line("  }");
      }
      line("}");
    }
  });
  line("}");
}

void AttentionWriter::write_rows(const Bound& bound, const std::string& result, int i, const std::string& factor) {
  line(fmt::format("if ({} < {}u) {{", row_of(i), owned_));
  deeper([&] {
    line(fmt::format("let at = {};", row_start(bound, row_of(i))));
    for (int h = 0; h < columns(); ++h) {
      const std::string d = fmt::format("(across + {}u)", h * kAcross);
      const std::string name = fmt::format("{}{}_{}", result, i, h);
      if (!factor.empty()) line(fmt::format("{0} = {0} * {1};", name, factor));
      if (bound.vectors) {
        const std::string store =
            bindings_.store_vec4f(bound.handle, fmt::format("(at >> 2u) + {}", d), name, helpers_);
        line(kernel_.width == 4 * vectors_ ? store
                                           : fmt::format("if ({} < {}u) {{ {} }}", d, kernel_.width / 4, store));
      } else {
        for (int e = 0; e < 4; ++e)
          line(fmt::format("if ({0} * 4u + {1}u < {2}u) {{ {3} }}", d, e, kernel_.width,
                           bindings_.store_f32(bound.handle, fmt::format("at + {} * 4u + {}u", d, e),
                                               fmt::format("{}.{}", name, "xyzw"[e]), helpers_)));
      }
    }
  });
  line("}");
}

void AttentionWriter::write_results() {
  if (part_ == Part::forward) {
    std::vector<std::string> totals;
    for (int i = 0; i < block_.lane_rows; ++i) totals.push_back(fmt::format("total{}", i));
    write_join(totals, false);
    helpers_.use("log_f32");
  }
  for (int i = 0; i < block_.lane_rows; ++i) {
    if (part_ == Part::forward) {
      line(fmt::format("let inverse{0} = select({1} / total{0}, 0f, total{0} == 0f);", i, literal(extras_.grown())));
      write_rows(o_, "result", i, fmt::format("inverse{}", i));
      line(fmt::format("if (across == 0u && {} < {}u) {{ {} }}", row_of(i), kernel_.queries,
                       bindings_.store(logsumexp_, stat_index(logsumexp_, row_of(i)),
                                       fmt::format("fma(top{0}, {1}, log_f32(total{0}))", i, literal(1 / kLog2E)))));
    } else if (part_ == Part::d_query) {
      write_rows(d_q_, "result", i, literal(kernel_.scale));
    } else {
      write_rows(d_k_, "result", i, literal(kernel_.scale));
      write_rows(d_v_, "second", i, "");
    }
  }
}

}  // namespace weft::webgpu::attention
