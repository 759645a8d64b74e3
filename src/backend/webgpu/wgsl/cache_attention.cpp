#include "backend/webgpu/wgsl/cache_attention.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <optional>
#include <utility>

#include "backend/webgpu/wgsl/cache_attention_matrices.hpp"
#include "backend/webgpu/wgsl/cache_attention_writer.hpp"
#include "backend/webgpu/wgsl/cache_rows.hpp"
#include "compile/call_attributes.hpp"
#include "graph/cache.hpp"

namespace weft::webgpu {

using kernel::CallKernel;
using kernel::Operand;

namespace {

constexpr Extent kRowsUnsplit = 4096;  // of a cache, up to which a workgroup takes all keys of a query
constexpr Extent kSplitsMax = 16;
constexpr Extent kKeysUnsplit = 256;  // are not split further
// The same in a phase of a resident dispatch, whose workgroups are smaller. Those of the next phase join the parts.
constexpr Extent kKeysOfPhase = 64;
constexpr Extent kSplitsOfPhase = 8;            // that are joined at once
constexpr Extent kKeysOfFewParts = 1536;        // up to which no more parts are used
constexpr std::size_t kSinks = 5, kSlopes = 6;  // inputs of the op

}  // namespace

CacheAttentionWriter::CacheAttentionWriter(const CallKernel& kernel, const Target& target)
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
  const Extent shared_most = Extent{target.limits.workgroup_bytes};
  const auto at_least_fours = [&] {
    while (threads_ < fours_) threads_ *= 2;
    threads_ = std::min<Extent>(threads_, target.limits.workgroup_invocations);
  };
  if (few && target.subgroup_size >= 2) {
    team_ =
        std::min<Extent>(target.subgroup_size, static_cast<Extent>(std::bit_ceil(static_cast<std::uint64_t>(fours_))));
    threads_ = target.joins_phases() ? kPhaseThreads : target.unroll ? 1024 : 128;
    at_least_fours();
    // Each part of a workgroup leaves a row and two numbers in workgroup memory.
    const auto parts_bytes = [&] { return parts() * (16 * fours_ + 8); };
    while (threads_ / 2 >= fours_ && parts_bytes() > shared_most) threads_ /= 2;
    if (parts_bytes() > shared_most) team_ = 0;  // wide rows, and small subgroups
  }
  if (team_ == 0) {
    together_ = few && target.unroll ? 1 : heads_ / a_.kv_heads;
    while (together_ > 4 && together_ % 2 == 0) together_ /= 2;
    if (together_ > 8) together_ = 1;
    threads_ = target.unroll ? 128 : 64;
    at_least_fours();
    const auto shared_bytes = [&] {
      return together_ * (16 * fours_ + 4 * threads_ + 4 * parts()) + 16 * threads_ + 16;
    };
    while (together_ > 1 && shared_bytes() > shared_most) together_ = together_ % 2 == 0 ? together_ / 2 : 1;
  }
  if (few && target.joins_phases())
    splits_ = std::clamp<Extent>(target.profile.compute_units / (tokens_ * heads_), kSplitsOfPhase, kSplitsMax);
  else if (rows_ > kRowsUnsplit && few)
    splits_ = std::min(kSplitsMax, divide_up(rows_, kRowsUnsplit / 4));
}

void CacheAttentionWriter::render(Scratch& scratch, Rendered& rendered) {
  const Operand parts = render_parts(scratch, rendered);
  if (splits_ > 1) rendered.dispatches.push_back(join(parts));
}

Operand CacheAttentionWriter::render_parts(Scratch& scratch, Rendered& rendered) {
  Operand out = kernel_.out();
  if (splits_ > 1) out = scratch.add(DType::f32, tokens_ * heads_ * splits_ * pitch());
  Bindings bindings(target_, kernel_.name);
  const int q = bindings.add(kernel_.reads[0], false), k = bindings.add(kernel_.reads[1], false),
            v = bindings.add(kernel_.reads[2], false), first = bindings.add(kernel_.reads[3], false),
            length = bindings.add(kernel_.reads[4], false), to = bindings.add(out, true);
  if (splits_ == 1) sinks_ = add_of_heads(bindings, kernel_, kSinks);  // else the join takes them
  slopes_ = add_of_heads(bindings, kernel_, kSlopes);
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
    shader.share("seen", "u32", slopes_ >= 0 ? 4 : a_.ring > 0 ? 3 : 2);
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
    if (slopes_ >= 0)
      line(fmt::format("let slope{} = {};", g,
                       bindings.load(slopes_, fmt::format("head0 + {}u", bindings.base(slopes_) + g))));
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
    if (slopes_ >= 0) line("$seen[3] = u32(last);");
    line("}");
    line("let begin = workgroupUniformLoad(&$seen[0]);");
    line("let end = workgroupUniformLoad(&$seen[1]);");
    if (a_.ring > 0) line("let origin = workgroupUniformLoad(&$seen[2]);");
    if (slopes_ >= 0) line("let last = i32(workgroupUniformLoad(&$seen[3]));");
    write_queries(bindings, q);
    write_keys();
    write_result(bindings, to);
  }
  shader.body = std::move(text_);
  rendered.dispatches.push_back(dispatch_of(kernel_.name, std::move(shader), bindings, groups, target_));
  return out;
}

std::optional<AttentionParts> CacheAttentionWriter::parts_by_fours() const {
  if (splits_ == 1 || width_ % 4 != 0 || kernel_.input(kSinks)) return {};
  return AttentionParts{{}, heads_, width_, splits_, pitch()};
}

/// The keys of this workgroup, begin to end.
void CacheAttentionWriter::write_seen(const Bindings& bindings, int first, int length) {
  line(fmt::format("let first = {};", bindings.load(first, fmt::format("t + {}u", bindings.base(first)))));
  line(fmt::format("let length = {};", bindings.load(length, fmt::format("t + {}u", bindings.base(length)))));
  if (a_.ring > 0) line(fmt::format("let origin = u32(clamp(first, 0, {}));", rows_ - a_.ring));
  line(a_.ring > 0 ? "let last = max(length, 0);" : fmt::format("let last = clamp(first + length, 0, {});", rows_));
  const std::string earliest = a_.ring > 0 ? "0" : "clamp(first, 0, last)";
  const std::string lowest =
      a_.window > 0 ? fmt::format("max({}, last - {})", earliest, std::min<Extent>(a_.window, rows_)) : earliest;
  line(fmt::format("let lowest = select({}, last, length <= 0);", lowest));
  if (splits_ > 1) {
    // The workgroups that join parts read the first ones together, and the others only if there are keys in them.
    if (target_.joins_phases() && splits_ > kSplitsOfPhase)
      line(fmt::format("let used = select({}, {}, last - lowest <= {});", splits_, kSplitsOfPhase, kKeysOfFewParts));
    else
      line(fmt::format("let used = {};", splits_));
    line(fmt::format("let stretch = max({}, (last - lowest + used - 1) / used);",
                     target_.joins_phases() ? kKeysOfPhase : kKeysUnsplit));
    line("let begin = u32(min(lowest + i32(split) * stretch, last));");
    line("let end = u32(min(lowest + i32(split + 1u) * stretch, last));");
  } else {
    line("let begin = u32(lowest);");
    line("let end = u32(last);");
  }
}

/// Four channels of a query, from `c` on, which is a multiple of 4 below its width.
std::string CacheAttentionWriter::query(const Bindings& bindings, int q, const std::string& head,
                                        const std::string& c) const {
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

std::string CacheAttentionWriter::capped(const std::string& score) const {
  return fmt::format("{0} = {1:.9g}f * tanh(clamp({0} / {1:.9g}f, -15f, 15f));", score, a_.soft_cap);
}

std::string CacheAttentionWriter::sloped(const std::string& score, Extent g, const std::string& key) const {
  return fmt::format("{} += slope{} * f32(i32({}) + 1 - last);", score, g, key);
}

std::string CacheAttentionWriter::with_sink(const Bindings& bindings, int sinks, const std::string& total,
                                            const std::string& top, const std::string& head) {
  if (sinks < 0) return total;
  const std::string sink = bindings.load(sinks, fmt::format("{} + {}u", head, bindings.base(sinks)));
  return fmt::format("({} + exp({} - {}))", total, sink, top);
}

int CacheAttentionWriter::add_of_heads(Bindings& bindings, const CallKernel& kernel, std::size_t input) {
  const Operand* operand = kernel.input(input);
  return operand ? bindings.add(*operand, false) : -1;
}

/// The result of a head, or a part of it: threads below fours_ have four channels each.
void CacheAttentionWriter::write_row(const Bindings& bindings, int to, Extent g) {
  if (splits_ == 1) {
    const std::string total =
        with_sink(bindings, sinks_, fmt::format("total{}", g), fmt::format("top{}", g), fmt::format("head0 + {}u", g));
    line(fmt::format("  mix{0} = select(vec4f(), mix{0} / {1}, end > begin);", g, total));
  }
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

RenderedDispatch CacheAttentionWriter::join(const Operand& partial) const {
  if (std::optional<AttentionParts> parts = parts_by_fours()) {
    parts->operand = partial;
    return join_by_fours(*parts);
  }
  return join_by_ones(partial);
}

RenderedDispatch CacheAttentionWriter::join_by_fours(const AttentionParts& parts) const {
  const int threads = target_.joins_phases() ? kPhaseThreads : 128;
  Bindings bindings(target_, kernel_.name);
  const int from = bindings.add(parts.operand, false), to = bindings.add(kernel_.out(), true);
  bindings.want_vectors(from);
  bindings.resolve();
  const Extent row = heads_ * fours_, all = tokens_ * row;
  const auto groups = static_cast<std::uint64_t>(divide_up(all, threads));
  ShaderPieces shader{.threads = threads};
  shader.functions.push_back({"joined", joined_parts_function(parts, tokens_, from, bindings, target_)});
  std::string& body = shader.body;
  body += fmt::format("  let number = group * {}u + thread;\n  if (number < {}u) {{\n", threads, all);
  body += fmt::format("    let value = $joined({}, {} * 4u);\n", divided("number", row), modulo("number", row));
  for (int e = 0; e < 4; ++e)
    body += "    " +
            bindings.store(to, fmt::format("number * 4u + {}u", e + bindings.base(to)),
                           fmt::format("value.{}", "xyzw"[e])) +
            "\n";
  body += "  }\n";
  return dispatch_of(kernel_.name + ".join", std::move(shader), bindings, groups, target_);
}

/// Parts weigh as much as their sums of exponentials.
RenderedDispatch CacheAttentionWriter::join_by_ones(const Operand& partial) const {
  constexpr int kJoinThreads = 128;
  Bindings bindings(target_, kernel_.name);
  const int from = bindings.add(partial, false), to = bindings.add(kernel_.out(), true),
            sinks = add_of_heads(bindings, kernel_, kSinks);
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
  const std::string whole = with_sink(bindings, sinks, "total", "top", modulo("row", heads_));
  line("  " + bindings.store(to, fmt::format("number + {}u", bindings.base(to)),
                             fmt::format("select(0f, sum / {}, total > 0f)", whole)));
  line("}");
  ShaderPieces shader{.threads = kJoinThreads, .body = std::move(body)};
  return dispatch_of(kernel_.name + ".join", std::move(shader), bindings, groups, target_);
}

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
