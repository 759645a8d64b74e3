// Attention over a cache with few queries: teams of neighbouring threads take keys of one head.
#include <fmt/format.h>

#include "backend/webgpu/wgsl/cache_attention_writer.hpp"

namespace weft::webgpu {

void CacheAttentionWriter::write_keys_of_teams(const Bindings& bindings, int q) {
  // Keys of a team that are loaded at the same time.
  const int ahead = !target_.unroll ? 1 : (target_.joins_phases() ? 8 : 4) / (of_thread() == 1 ? 1 : 2);
  const auto each_key = [&](auto each) {
    for (int u = 0; u < ahead; ++u) each(u);
  };
  line(fmt::format("let team = {};", divided("thread", team_)));
  const bool whole = of_thread() * team_ == fours_;
  each_four([&](Extent p) {
    const std::string c = fmt::format("{} + {}u", modulo("thread", team_), p * team_);
    line(fmt::format("let c{} = {};", p, whole ? c : fmt::format("min({}, {}u)", c, fours_ - 1)));
    const std::string value = query(bindings, q, "0u", fmt::format("c{} * 4u", p));
    line(fmt::format("let q{} = {};", p,
                     whole ? value : fmt::format("select(vec4f(), {}, {} < {}u)", value, c, fours_)));
    line(fmt::format("var mix0_{} = vec4f();", p));
  });
  line(fmt::format("for (var next = begin; next < end; next += {}u) {{", teams() * ahead));
  each_key([&](int u) {
    line(fmt::format("  let key{} = next + team + {}u;", u, u * teams()));
    const std::string key = fmt::format("key{}", u);
    line(fmt::format("  let row{} = {};", u, a_.ring > 0 ? row_of(key) : fmt::format("min({}, {}u)", key, rows_ - 1)));
  });
  for (const char* what : {"key", "value"})
    each_key([&](int u) {
      each_four(
          [&](Extent p) { line(fmt::format("  let {0}{1}_{2} = ${3}_at(row{1}, kv, c{2});", what[0], u, p, what)); });
    });
  // A row beyond the end may hold anything, and infinity or NaN times a weight of 0 is NaN.
  const auto seen_value = [](int u, Extent p) { return fmt::format("select(vec4f(), v{0}_{1}, key{0} < end)", u, p); };
  each_key([&](int u) {
    std::string sum;
    each_four([&](Extent p) { sum += fmt::format("{}dot(q{}, k{}_{})", p ? " + " : "", p, u, p); });
    line(fmt::format("  var s{} = {};", u, sum));
  });
  for (Extent distance = 1; distance < team_; distance *= 2)
    each_key([&](int u) { line(fmt::format("  s{0} += subgroupShuffleXor(s{0}, {1}u);", u, distance)); });
  std::string highest = "top0";
  each_key([&](int u) {
    if (a_.soft_cap > 0) line("  " + capped(fmt::format("s{}", u)));
    if (slopes_ >= 0) line("  " + sloped(fmt::format("s{}", u), 0, fmt::format("key{}", u)));
    highest = fmt::format("max({0}, select(-3e38f, s{1}, key{1} < end))", highest, u);
  });
  line(fmt::format("  let highest = {};", highest));
  line("  let fade = exp(top0 - highest);");
  line("  top0 = highest;");
  line("  total0 *= fade;");
  each_four([&](Extent p) { line(fmt::format("  mix0_{} *= fade;", p)); });
  each_key([&](int u) {
    line(fmt::format("  let p{0} = select(0f, exp(s{0} - highest), key{0} < end);", u));
    line(fmt::format("  total0 += p{};", u));
    each_four([&](Extent p) { line(fmt::format("  mix0_{} += p{} * {};", p, u, seen_value(u, p))); });
  });
  line("}");
}

/// Teams of a subgroup join by shuffles, subgroups through workgroup memory.
void CacheAttentionWriter::write_result_of_teams(const Bindings& bindings, int to) {
  const auto size = static_cast<Extent>(target_.subgroup_size);
  for (Extent distance = team_; distance < size; distance *= 2) {
    line("{");
    line(fmt::format("  let highest = max(top0, subgroupShuffleXor(top0, {}u));", distance));
    line("  let fade = exp(top0 - highest);");
    line("  top0 = highest;");
    line("  total0 *= fade;");
    line(fmt::format("  total0 += subgroupShuffleXor(total0, {}u);", distance));
    each_four([&](Extent p) {
      line(fmt::format("  mix0_{} *= fade;", p));
      line(fmt::format("  mix0_{0} += subgroupShuffleXor(mix0_{0}, {1}u);", p, distance));
    });
    line("}");
  }
  line(fmt::format("let part = {};", divided("thread", size)));
  line(fmt::format("if ({} < {}u) {{", modulo("thread", size), team_));
  line("  $parts[part] = top0;");
  line(fmt::format("  $parts[part + {}u] = total0;", parts()));
  each_four([&](Extent p) {
    const std::string c = fmt::format("{} + {}u", modulo("thread", team_), p * team_);
    line(fmt::format("  if ({} < {}u) {{ $mixed[part * {}u + {}] = mix0_{}; }}", c, fours_, fours_, c, p));
  });
  line("}");
  line("workgroupBarrier();");
  line(fmt::format("if (thread < {}u) {{", fours_));
  line(fmt::format("  for (var i = 0u; i < {}u; i++) {{ top0 = max(top0, $parts[i]); }}", parts()));
  line("  total0 = 0f;");
  line("  var mix0 = vec4f();");
  line(fmt::format("  for (var i = 0u; i < {}u; i++) {{", parts()));
  line("    let fade = exp($parts[i] - top0);");
  line(fmt::format("    total0 += fade * $parts[i + {}u];", parts()));
  line(fmt::format("    mix0 += fade * $mixed[i * {}u + thread];", fours_));
  line("  }");
  write_row(bindings, to, 0);
  line("}");
}

}  // namespace weft::webgpu
