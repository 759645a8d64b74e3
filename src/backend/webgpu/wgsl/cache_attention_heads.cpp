// Attention over a cache with many queries: a workgroup takes heads of a query that share keys.
#include <fmt/format.h>

#include "backend/webgpu/wgsl/cache_attention_writer.hpp"

namespace weft::webgpu {

void CacheAttentionWriter::write_queries(const Bindings& bindings, int q) {
  line(fmt::format("for (var i = thread; i < {}u; i += {}u) {{", together_ * fours_, threads_));
  line(fmt::format("  let c = {} * 4u;", modulo("i", fours_)));
  line(fmt::format("  $queries[i] = {};", query(bindings, q, divided("i", fours_), "c")));
  line("}");
  line("workgroupBarrier();");
}

/// Joins `name`g of all threads to `name`g of each.
void CacheAttentionWriter::write_joined(const char* name, bool is_max) {
  const auto combined = [&](const std::string& x, const std::string& y) {
    return is_max ? fmt::format("max({}, {})", x, y) : fmt::format("{} + {}", x, y);
  };
  if (uses_subgroups()) {
    each_head([&](Extent g) {
      for (std::uint32_t distance = 1; distance < target_.subgroup_size; distance *= 2) {
        const std::string own = fmt::format("{}{}", name, g);
        line(fmt::format("  {} = {};", own, combined(own, fmt::format("subgroupShuffleXor({}, {}u)", own, distance))));
      }
    });
    line(fmt::format("  if ({} == 0u) {{", modulo("thread", target_.subgroup_size)));
    each_head([&](Extent g) {
      line(fmt::format("    $parts[{}u + {}] = {}{};", g * parts(), divided("thread", target_.subgroup_size), name, g));
    });
    line("  }");
  } else {
    each_head([&](Extent g) { line(fmt::format("  $parts[{}u + thread] = {}{};", g * parts(), name, g)); });
  }
  line("  workgroupBarrier();");
  each_head([&](Extent g) {
    line(fmt::format("  {}{} = $parts[{}u];", name, g, g * parts()));
    line(fmt::format("  for (var i = 1u; i < {}u; i++) {{ {}{} = {}; }}", parts(), name, g,
                     combined(fmt::format("{}{}", name, g), fmt::format("$parts[{}u + i]", g * parts()))));
  });
}

void CacheAttentionWriter::write_keys() {
  const Extent slices = threads_ / fours_;
  line(fmt::format("let c = {};", modulo("thread", fours_)));
  line(fmt::format("let slice = {};", divided("thread", fours_)));
  line(fmt::format("for (var key0 = begin; key0 < end; key0 += {}u) {{", threads_));
  line("  let key = key0 + thread;");
  each_head([&](Extent g) { line(fmt::format("  var s{0} = 0f;", g)); });
  line("  if (key < end) {");
  line(fmt::format("    let row = {};", row_of("key")));
  line(fmt::format("    for (var i = 0u; i < {}u; i++) {{", fours_));
  line("      let k = $key_at(row, kv, i);");
  each_head([&](Extent g) { line(fmt::format("      s{0} += dot($queries[{1}u + i], k);", g, g * fours_)); });
  line("    }");
  if (a_.soft_cap > 0) each_head([&](Extent g) { line("    " + capped(fmt::format("s{}", g))); });
  if (slopes_ >= 0) each_head([&](Extent g) { line("    " + sloped(fmt::format("s{}", g), g, "key")); });
  line("  }");
  each_head([&](Extent g) { line(fmt::format("  var highest{0} = select(-3e38f, s{0}, key < end);", g)); });
  write_joined("highest", true);
  each_head([&](Extent g) {
    line(fmt::format("  highest{0} = max(highest{0}, top{0});", g));
    line(fmt::format("  let fade{0} = exp(top{0} - highest{0});", g));
    line(fmt::format("  let p{0} = select(0f, exp(s{0} - highest{0}), key < end);", g));
    line(fmt::format("  total{0} = total{0} * fade{0} + p{0};", g));
    line(fmt::format("  mix{0} *= fade{0};", g));
    line(fmt::format("  $weights[{1}u + thread] = p{0};", g, g * threads_));
    line(fmt::format("  top{0} = highest{0};", g));
  });
  line("  workgroupBarrier();");
  line(fmt::format("  if (slice < {}u) {{", slices));
  line(fmt::format("    for (var j = slice; j < min({}u, end - key0); j += {}u) {{", threads_, slices));
  line(fmt::format("      let v = $value_at({}, kv, c);", row_of("(key0 + j)")));
  each_head([&](Extent g) { line(fmt::format("      mix{0} += $weights[{1}u + j] * v;", g, g * threads_)); });
  line("    }");
  line("  }");
  line("  workgroupBarrier();");
  line("}");
}

void CacheAttentionWriter::write_result(const Bindings& bindings, int to) {
  const Extent slices = threads_ / fours_;
  write_joined("total", false);
  each_head([&](Extent g) {
    line(fmt::format("$mixed[thread] = mix{};", g));
    line("workgroupBarrier();");
    line(fmt::format("if (thread < {}u) {{", fours_));
    line(
        fmt::format("  for (var i = 1u; i < {0}u; i++) {{ mix{1} += $mixed[i * {2}u + thread]; }}", slices, g, fours_));
    write_row(bindings, to, g);
    line("}");
    if (g + 1 < together_) line("workgroupBarrier();");
  });
}

}  // namespace weft::webgpu
