// Scores of a tile: their products, and the mask.
#include "backend/webgpu/wgsl/attention/writer.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>

namespace weft::webgpu::attention {

// score<i>_<j>: products of owned rows with rows of the tile.
void AttentionWriter::write_scores(const Phase& phase, const std::string& name) {
  if (phase.slice == 0) {
    for_each_score([&](int i, int j) { line(fmt::format("var {}{}_{} = 0f;", name, i, j)); });
    // Reads values that the tile's queries need later now, so that they arrive in time.
    if (part_ == Part::d_key_value && !sums_delta() && phase.product == Product::slope)
      for (int j = 0; j < block_.lane_others; ++j) {
        line(fmt::format("let query{} = {};", j, query_of(j)));
        write_log_sum(fmt::format("log_sum{}", j), fmt::format("query{}", j));
        line(
            fmt::format("let delta{} = {};", j, bindings_.load(delta_, stat_index(delta_, fmt::format("query{}", j)))));
      }
  }
  const int written = block_.written ? 4 : 1;
  line(fmt::format("for (var d = 0u; d < {}; d += {}u) {{", end_of(slice_), written));
  deeper([&] {
    for (int u = 0; u < written; ++u) {
      line("{");
      const std::string d = fmt::format("(d + {}u)", u);
      for (int i = 0; i < block_.lane_rows; ++i)
        line(fmt::format("  let a{} = $slab{}[{} * {}u + ({} ^ turned{})];", i, phase.left, own_row(i), slice_, d,
                         i % 2));
      line(fmt::format("  let column = {} ^ across;", d));
      for (int j = 0; j < block_.lane_others; ++j) {
        line(fmt::format("  {{ let b = $slab{}[across * {}u + column + {}u];", phase.right, slice_,
                         j * kAcross * slice_));
        for (const char c : std::string_view("xyzw"))
          for (int i = 0; i < block_.lane_rows; ++i)
            line(fmt::format("  {0}{1}_{2} = fma(a{1}.{3}, b.{3}, {0}{1}_{2});", name, i, j, c));
        line("  }");
      }
      line("}");
    }
  });
  line("}");
}

std::string AttentionWriter::query_of(int j) const {
  const std::string query = other_of(j);
  return others_ % block_.tile() == 0 ? query : fmt::format("min({}, {}u)", query, others_ - 1);
}

// Adds the mask's values to scores or hides these, and hides those outside of the spans.
void AttentionWriter::write_values_and_spans() {
  if (extras_.has_mask())
    for_each_score([&](int i, int j) {
      line(extras_.masked(fmt::format("score{}_{}", i, j), row_of(i), fmt::format("({})", other_of(j)), kLog2E));
    });
  if (!extras_.has_spans()) return;
  line("let other = i32(other0 + across);");
  for_each_score([&](int i, int j) {
    line(fmt::format("if (other + {0}i < span_first{1} || other + {0}i >= span_end{1}) {{ score{1}_{2} = {3}; }}",
                     j * kAcross, i, j, kHidden));
  });
}

// Bit (i lane_others + j) of `kept` says whether the share of score i, j is kept. Four neighbouring threads need the same words
// of Philox: each computes a fourth of them, where subgroups let them exchange.
void AttentionWriter::write_kept() {
  const int count = block_.lane_rows * block_.lane_others;
  const bool shares_words = interleaved_ && !needs_exchange() && count % 4 == 0;
  const auto row = [&](const std::string& n) {
    return fmt::format("first + own_down + ({}) / {}u * {}u", n, block_.lane_others, kDown);
  };
  const auto other = [&](const std::string& n) {
    return fmt::format("other0 + across + ({}) % {}u * {}u", n, block_.lane_others, kAcross);
  };
  line("var kept = 0u;");
  line(fmt::format("let byte = {};", extras_.byte_of("own_down", "across")));
  line(fmt::format("for (var n = 0u; n < {}; n += {}u) {{", end_of(count), shares_words ? 4 : 1));
  deeper([&] {
    const auto keep = [&](const char* bits, int e) {
      line(fmt::format("kept |= select(0u, 1u << (n + {}u), (({} >> byte) & 255u) >= {}u);", e, bits, kernel_.dropped));
    };
    if (!shares_words) {
      line(fmt::format("let bits = {};", extras_.word(row("n"), other("n"))));
      keep("bits", 0);
      return;
    }
    uses_subgroups_ = true;
    line("let mine = n + (lane & 3u);");
    line(fmt::format("let bits0 = {};", extras_.word(row("mine"), other("mine"))));
    for (int e = 1; e < 4; ++e) line(fmt::format("let bits{0} = subgroupShuffleXor(bits0, {0}u);", e));
    for (int e = 0; e < 4; ++e)
      line(fmt::format("kept |= select(0u, 1u << (n + ((lane & 3u) ^ {0}u)), ((bits{0} >> byte) & 255u) >= {1}u);", e,
                       kernel_.dropped));
  });
  line("}");
}

std::string AttentionWriter::kept(const std::string& value, int i, int j) const {
  if (!extras_.drops()) return value;
  return fmt::format("select(0f, {}, (kept & {}u) != 0u)", value, 1u << (i * block_.lane_others + j));
}

// Hides masked scores, in tiles that have any.
void AttentionWriter::write_mask() {
  write_values_and_spans();
  std::string crossing;
  const auto or_if = [&](const std::string& condition) { crossing += (crossing.empty() ? "" : " || ") + condition; };
  const int rows = kDown * block_.lane_rows;
  if (bounds_.has_most)
    or_if(fmt::format("i32(other0) + {}i > i32(first + own) + i32({})", block_.tile() - 1, bounds_.most));
  if (bounds_.has_least) or_if(fmt::format("i32(other0) < i32(first + own) + i32({})", rows - 1 + bounds_.least));
  if (others_ % block_.tile() != 0) or_if(fmt::format("other0 + {}u > {}u", block_.tile(), others_));
  if (crossing.empty()) return;
  line(fmt::format("if ({}) {{", crossing));
  deeper([&] {
    if (bounds_.has_most || bounds_.has_least) line("let apart = i32(first + own_down) - i32(other0 + across);");
    if (others_ % block_.tile() != 0) line(fmt::format("let left = {}i - i32(other0 + across);", others_));
    for_each_score([&](int i, int j) {
      std::string hidden;
      const auto add = [&](const std::string& condition) { hidden += (hidden.empty() ? "" : " || ") + condition; };
      const int step = j * kAcross - i * kDown;
      if (bounds_.has_most) add(fmt::format("i32({}) > apart", step - bounds_.most));
      if (bounds_.has_least) add(fmt::format("i32({}) < apart", step - bounds_.least));
      if (others_ % block_.tile() != 0) add(fmt::format("{}i >= left", j * kAcross));
      line(fmt::format("if ({}) {{ score{}_{} = {}; }}", hidden, i, j, kHidden));
    });
  });
  line("}");
}

}  // namespace weft::webgpu::attention
