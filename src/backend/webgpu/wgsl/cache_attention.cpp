#include "backend/webgpu/wgsl/cache_attention.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <optional>
#include <utility>

#include "backend/webgpu/wgsl/cache_attention_matrices.hpp"
#include "backend/webgpu/wgsl/cache_rows.hpp"
#include "backend/webgpu/wgsl/steps.hpp"
#include "compile/call_attributes.hpp"
#include "graph/cache.hpp"

namespace weft::webgpu {
namespace {

using kernel::CallKernel;
using kernel::Operand;

constexpr Extent kRowsUnsplit = 4096;  // of a cache, up to which a workgroup takes all keys of a query
constexpr Extent kSplitsMax = 16;
constexpr Extent kKeysUnsplit = 256;  // are not split further

/// With many queries, a workgroup takes heads of a query that share keys. For the scores a thread takes a key; for
/// the result it takes four channels of some keys. Few queries leave most of a GPU idle, so the time of one query
/// counts. Then a workgroup takes one head of a query, and a team of neighbouring threads takes a key, with four
/// channels each. A team has its own softmax over its keys, so its loads wait for no other team; the teams join at
/// the end.
class CacheAttentionWriter {
 public:
  CacheAttentionWriter(const CallKernel& kernel, const Target& target)
      : kernel_(kernel),
        target_(target),
        a_(kernel::attributes_of<graph::CacheAttention>(kernel)),
        tokens_(kernel.shapes[0][0]),
        heads_(kernel.shapes[0][1]),
        width_(kernel.shapes[0][2]),
        rows_(kernel.shapes[1][0]),
        words_(kernel.shapes[1][1]),
        fours_(divide_up(width_, 4)) {
    const bool few = tokens_ * heads_ <= 2 * Extent{target.profile.compute_units};
    if (few && target.subgroup_size >= 2) {
      team_ = std::min<Extent>(target.subgroup_size,
                               static_cast<Extent>(std::bit_ceil(static_cast<std::uint64_t>(fours_))));
      threads_ = target.unroll ? 1024 : 128;
    } else {
      together_ = few && target.unroll ? 1 : heads_ / a_.kv_heads;
      while (together_ > 4 && together_ % 2 == 0) together_ /= 2;
      if (together_ > 8) together_ = 1;
      threads_ = target.unroll ? 128 : 64;
    }
    while (threads_ < fours_) threads_ *= 2;
    threads_ = std::min<Extent>(threads_, target.limits.workgroup_invocations);
    if (rows_ > kRowsUnsplit && few) splits_ = std::min(kSplitsMax, divide_up(rows_, kRowsUnsplit / 4));
  }

  void render(Scratch& scratch, Rendered& rendered) {
    const Operand parts = render_parts(scratch, rendered);
    if (splits_ > 1) rendered.dispatches.push_back(join(parts));
  }

  /// The dispatch that visits the keys; returns where it writes.
  Operand render_parts(Scratch& scratch, Rendered& rendered) {
    Operand out = kernel_.out();
    if (splits_ > 1) out = scratch.add(DType::f32, tokens_ * heads_ * splits_ * pitch());
    Bindings bindings(target_, kernel_.name);
    const int q = bindings.add(kernel_.reads[0], false), k = bindings.add(kernel_.reads[1], false),
              v = bindings.add(kernel_.reads[2], false), first = bindings.add(kernel_.reads[3], false),
              length = bindings.add(kernel_.reads[4], false), to = bindings.add(out, true);
    if (width_ % 4 == 0)
      for (const int each : {q, k, v})
        if ((each == q || a_.type == CacheType::f32) && kernel_.reads[static_cast<std::size_t>(each)].offset % 4 == 0)
          bindings.want_vectors(each);
    bindings.resolve();
    const auto groups = static_cast<std::uint64_t>(tokens_ * (heads_ / together_) * splits_);
    ShaderPieces shader{.threads = static_cast<int>(threads_), .subgroups = uses_subgroups()};
    declare_row_function(shader, "key_at", a_.type, bindings, k, words_, width_);
    declare_row_function(shader, "value_at", a_.type, bindings, v, words_, width_);
    if (team_ > 0) {
      shader.share("parts", "f32", 2 * parts());
      shader.share("mixed", "vec4f", parts() * fours_);
    } else {
      shader.share("seen", "u32", a_.ring > 0 ? 3 : 2);
      shader.share("queries", "vec4f", together_ * fours_);
      shader.share("weights", "f32", together_ * threads_);
      shader.share("parts", "f32", together_ * parts());
      shader.share("mixed", "vec4f", threads_);
    }
    line(fmt::format("let split = {};", modulo("group", splits_)));
    line(fmt::format("let query = {};", divided("group", splits_)));
    line(fmt::format("let t = {};", divided("query", heads_ / together_)));
    line(fmt::format("let head0 = {} * {}u;", modulo("query", heads_ / together_), together_));
    line(fmt::format("let kv = {};", divided("head0", heads_ / a_.kv_heads)));
    each_head([&](Extent g) {
      line(fmt::format("var top{} = -3e38f;", g));
      line(fmt::format("var total{} = 0f;", g));
      if (team_ == 0) line(fmt::format("var mix{} = vec4f();", g));
    });
    if (team_ > 0) {
      write_seen(bindings, first, length);
      write_keys_of_teams(bindings, q);
      write_result_of_teams(bindings, to);
    } else {
      // They come from memory, and barriers follow.
      line("if (thread == 0u) {");
      write_seen(bindings, first, length);
      line("$seen[0] = begin;");
      line("$seen[1] = end;");
      if (a_.ring > 0) line("$seen[2] = origin;");
      line("}");
      line("let begin = workgroupUniformLoad(&$seen[0]);");
      line("let end = workgroupUniformLoad(&$seen[1]);");
      if (a_.ring > 0) line("let origin = workgroupUniformLoad(&$seen[2]);");
      write_queries(bindings, q);
      write_keys();
      write_result(bindings, to);
    }
    shader.body = std::move(text_);
    rendered.dispatches.push_back(dispatch_of(kernel_.name, std::move(shader), bindings, groups, target_));
    return out;
  }

  /// Parts that can be read by fours.
  std::optional<AttentionParts> parts_by_fours() const {
    if (splits_ == 1 || width_ % 4 != 0) return {};
    return AttentionParts{{}, heads_, width_, splits_, pitch()};
  }

 private:
  /// Elements of a part: its channels, the largest score, the sum of exponentials.
  Extent pitch() const { return width_ + (width_ % 4 == 0 ? 4 : 2); }

  void line(const std::string& text) { text_ += "  " + text + "\n"; }
  bool uses_subgroups() const { return target_.subgroup_size >= 2 && threads_ % target_.subgroup_size == 0; }
  Extent parts() const { return uses_subgroups() ? threads_ / target_.subgroup_size : threads_; }
  template <class Each>
  void each_head(Each each) const {
    for (Extent g = 0; g < together_; ++g) each(g);
  }

  /// The row of a key. In a ring, keys are positions of the sequence whose ring begins at `origin`; else they are rows.
  std::string row_of(const std::string& key) const {
    return a_.ring > 0 ? fmt::format("origin + {}", modulo(key, a_.ring)) : key;
  }

  /// The keys of this workgroup, begin to end.
  void write_seen(const Bindings& bindings, int first, int length) {
    line(fmt::format("let first = {};", bindings.load(first, fmt::format("t + {}u", bindings.base(first)))));
    line(fmt::format("let length = {};", bindings.load(length, fmt::format("t + {}u", bindings.base(length)))));
    if (a_.ring > 0) line(fmt::format("let origin = u32(clamp(first, 0, {}));", rows_ - a_.ring));
    line(a_.ring > 0 ? "let last = max(length, 0);" : fmt::format("let last = clamp(first + length, 0, {});", rows_));
    const std::string earliest = a_.ring > 0 ? "0" : "clamp(first, 0, last)";
    const std::string lowest =
        a_.window > 0 ? fmt::format("max({}, last - {})", earliest, std::min<Extent>(a_.window, rows_)) : earliest;
    line(fmt::format("let lowest = select({}, last, length <= 0);", lowest));
    if (splits_ > 1) {
      line(fmt::format("let stretch = max({}, (last - lowest + {}) / {});", kKeysUnsplit, splits_ - 1, splits_));
      line("let begin = u32(min(lowest + i32(split) * stretch, last));");
      line("let end = u32(min(lowest + i32(split + 1u) * stretch, last));");
    } else {
      line("let begin = u32(lowest);");
      line("let end = u32(last);");
    }
  }

  /// Four channels of a query, from `c` on, which is a multiple of 4 below its width.
  std::string query(const Bindings& bindings, int q, const std::string& head, const std::string& c) const {
    const std::string at =
        fmt::format("(t * {}u + head0 + {}) * {}u + {} + {}u", heads_, head, width_, c, bindings.base(q));
    if (bindings.has_vectors(q))
      return fmt::format("{} * {:.9g}f", bindings.vector(q, fmt::format("({}) >> 2u", at)), a_.scale);
    std::string values;
    for (int e = 0; e < 4; ++e) {
      values += e ? ", " : "";
      values += width_ % 4 == 0
                    ? bindings.load(q, fmt::format("{} + {}u", at, e))
                    : fmt::format("select(0f, {}, {} + {}u < {}u)",
                                  bindings.load(q, fmt::format("min({} + {}u, {}u)", at, e,
                                                               tokens_ * heads_ * width_ - 1 + bindings.base(q))),
                                  c, e, width_);
    }
    return fmt::format("vec4f({}) * {:.9g}f", values, a_.scale);
  }

  void write_queries(const Bindings& bindings, int q) {
    line(fmt::format("for (var i = thread; i < {}u; i += {}u) {{", together_ * fours_, threads_));
    line(fmt::format("  let c = {} * 4u;", modulo("i", fours_)));
    line(fmt::format("  $queries[i] = {};", query(bindings, q, divided("i", fours_), "c")));
    line("}");
    line("workgroupBarrier();");
  }

  /// Joins `name`g of all threads to `name`g of each.
  void write_joined(const char* name, bool is_max) {
    const auto combined = [&](const std::string& x, const std::string& y) {
      return is_max ? fmt::format("max({}, {})", x, y) : fmt::format("{} + {}", x, y);
    };
    if (uses_subgroups()) {
      each_head([&](Extent g) {
        for (std::uint32_t distance = 1; distance < target_.subgroup_size; distance *= 2) {
          const std::string own = fmt::format("{}{}", name, g);
          line(
              fmt::format("  {} = {};", own, combined(own, fmt::format("subgroupShuffleXor({}, {}u)", own, distance))));
        }
      });
      line(fmt::format("  if ({} == 0u) {{", modulo("thread", target_.subgroup_size)));
      each_head([&](Extent g) {
        line(fmt::format("    $parts[{}u + {}] = {}{};", g * parts(), divided("thread", target_.subgroup_size), name,
                         g));
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

  std::string capped(const std::string& score) const {
    return fmt::format("{0} = {1:.9g}f * tanh(clamp({0} / {1:.9g}f, -15f, 15f));", score, a_.soft_cap);
  }

  void write_keys() {
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

  void write_result(const Bindings& bindings, int to) {
    const Extent slices = threads_ / fours_;
    write_joined("total", false);
    each_head([&](Extent g) {
      line(fmt::format("$mixed[thread] = mix{};", g));
      line("workgroupBarrier();");
      line(fmt::format("if (thread < {}u) {{", fours_));
      line(fmt::format("  for (var i = 1u; i < {0}u; i++) {{ mix{1} += $mixed[i * {2}u + thread]; }}", slices, g,
                       fours_));
      write_row(bindings, to, g);
      line("}");
      if (g + 1 < together_) line("workgroupBarrier();");
    });
  }

  /// The result of a head, or a part of it: threads below fours_ have four channels each.
  void write_row(const Bindings& bindings, int to, Extent g) {
    if (splits_ == 1) line(fmt::format("  mix{0} = select(vec4f(), mix{0} / total{0}, end > begin);", g));
    const Extent pitch = splits_ > 1 ? this->pitch() : width_;
    const std::string row = splits_ > 1 ? fmt::format("((t * {}u + head0 + {}u) * {}u + split)", heads_, g, splits_)
                                        : fmt::format("(t * {}u + head0 + {}u)", heads_, g);
    line(fmt::format("  let at = {} * {}u + {}u;", row, pitch, bindings.base(to)));
    for (int e = 0; e < 4; ++e) {
      const std::string store =
          bindings.store(to, fmt::format("at + thread * 4u + {}u", e), fmt::format("mix{}.{}", g, "xyzw"[e]));
      line(width_ % 4 == 0 ? "  " + store : fmt::format("  if (thread * 4u + {}u < {}u) {{ {} }}", e, width_, store));
    }
    if (splits_ > 1) {
      line("  if (thread == 0u) {");
      line("    " + bindings.store(to, fmt::format("at + {}u", width_), fmt::format("top{}", g)));
      line("    " + bindings.store(to, fmt::format("at + {}u", width_ + 1), fmt::format("total{}", g)));
      line("  }");
    }
  }

  // --- Few queries ---

  Extent teams() const { return threads_ / team_; }
  Extent of_thread() const { return divide_up(fours_, team_); }  // groups of four channels
  template <class Each>
  void each_four(Each each) const {
    for (Extent p = 0; p < of_thread(); ++p) each(p);
  }

  void write_keys_of_teams(const Bindings& bindings, int q) {
    // Keys of a team that are loaded at the same time.
    const int ahead = !target_.unroll ? 1 : of_thread() == 1 ? 4 : 2;
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
      line(
          fmt::format("  let row{} = {};", u, a_.ring > 0 ? row_of(key) : fmt::format("min({}, {}u)", key, rows_ - 1)));
    });
    for (const char* what : {"key", "value"})
      each_key([&](int u) {
        each_four(
            [&](Extent p) { line(fmt::format("  let {0}{1}_{2} = ${3}_at(row{1}, kv, c{2});", what[0], u, p, what)); });
      });
    // A row beyond the end may hold anything, and infinity or NaN times a weight of 0 is NaN.
    const auto seen_value = [](int u, Extent p) {
      return fmt::format("select(vec4f(), v{0}_{1}, key{0} < end)", u, p);
    };
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
  void write_result_of_teams(const Bindings& bindings, int to) {
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

  /// Parts weigh as much as their sums of exponentials.
  RenderedDispatch join(const Operand& partial) const {
    constexpr int kJoinThreads = 128;
    Bindings bindings(target_, kernel_.name);
    const int from = bindings.add(partial, false), to = bindings.add(kernel_.out(), true);
    bindings.resolve();
    const Extent all = tokens_ * heads_ * width_;
    const auto groups = static_cast<std::uint64_t>(divide_up(all, kJoinThreads));
    std::string body;
    const auto line = [&](const std::string& text) { body += "  " + text + "\n"; };
    const auto part = [&](const std::string& at) {
      return bindings.load(from,
                           fmt::format("(row * {}u + i) * {}u + {} + {}u", splits_, pitch(), at, bindings.base(from)));
    };
    line(fmt::format("let number = group * {}u + thread;", kJoinThreads));
    line(fmt::format("if (number < {}u) {{", all));
    line(fmt::format("  let row = {};", divided("number", width_)));
    line(fmt::format("  let c = {};", modulo("number", width_)));
    line("  var top = -3e38f;");
    const std::string each = fmt::format("  for (var i = 0u; i < {}u; i++) {{ ", splits_);
    line(each + fmt::format("top = max(top, {}); }}", part(fmt::format("{}u", width_))));
    line("  var total = 0f;");
    line("  var sum = 0f;");
    line(each);
    line(fmt::format("    let fade = exp({} - top);", part(fmt::format("{}u", width_))));
    line(fmt::format("    total += fade * {};", part(fmt::format("{}u", width_ + 1))));
    line(fmt::format("    sum += fade * {};", part("c")));
    line("  }");
    line("  " +
         bindings.store(to, fmt::format("number + {}u", bindings.base(to)), "select(0f, sum / total, total > 0f)"));
    line("}");
    ShaderPieces shader{.threads = kJoinThreads, .body = std::move(body)};
    return dispatch_of(kernel_.name + ".join", std::move(shader), bindings, groups, target_);
  }

  const CallKernel& kernel_;
  const Target& target_;
  graph::CacheAttention a_;
  Extent tokens_, heads_, width_, rows_, words_, fours_;
  Extent together_ = 1, threads_ = 128, splits_ = 1;
  Extent team_ = 0;  // threads that share a key, for few queries
  std::string text_;
};

}  // namespace

void render_cache_attention(const CallKernel& kernel, const Target& target, Scratch& scratch, Rendered& rendered) {
  if (kernel.shape().numel() == 0 || render_cache_attention_on_matrices(kernel, target, scratch, rendered)) return;
  CacheAttentionWriter(kernel, target).render(scratch, rendered);
}

std::optional<AttentionParts> render_attention_parts(const CallKernel& kernel, const Target& target, Scratch& scratch,
                                                     Rendered& rendered,
                                                     const std::function<bool(const AttentionParts&)>& suits) {
  if (kernel.shape().numel() == 0) return {};
  CacheAttentionWriter writer(kernel, target);
  std::optional<AttentionParts> parts = writer.parts_by_fours();
  if (!parts || !suits(*parts)) return {};
  parts->operand = writer.render_parts(scratch, rendered);
  return parts;
}

}  // namespace weft::webgpu
