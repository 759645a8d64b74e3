#include "backend/webgpu/wgsl_cache.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "backend/webgpu/wgsl_loop.hpp"
#include "backend/webgpu/wgsl_scalar.hpp"
#include "backend/webgpu/wgsl_steps.hpp"

namespace weft::webgpu {
namespace {

using kernel::Operand;
using kernel::RoutineKernel;
using ops::CacheType;

// --- Rows written -----------------------------------------------------------------------------------------------------

constexpr int kWriteThreads = 256;  // as elementwise kernels have, so that they run side by side

void copy(const Operand& from, const Operand& to, const Target& target, Scratch& scratch, Rendered& rendered) {
  kernel::LoopKernel loop;
  loop.name = "copy";
  loop.outer = to.count;
  loop.inputs = {from};
  loop.outputs = {to};
  const kernel::View view{{to.count}, {1}, 0, {}};
  kernel::Step load{kernel::StepKind::load, to.type, kernel::Level::outer};
  load.operand = 0;
  load.view = view;
  loop.steps = {load};
  loop.stores = {{0, 0, view}};
  render(loop, target, scratch, rendered);
}

/// Statements that write unit `u` of a row: an element, a word of two halves, or a block of 32.
std::string write_unit(CacheType type, const Bindings& bindings, int rows, int out) {
  const auto value = [&](const std::string& i) {
    return bindings.load(rows, fmt::format("source + {} + {}u", i, bindings.base(rows)));
  };
  const auto store = [&](const std::string& i, const std::string& v) {
    return bindings.store(out, fmt::format("place + {} + {}u", i, bindings.base(out)), v);
  };
  switch (type) {
    case CacheType::f32: return "      " + store("u", value("u")) + "\n";
    case CacheType::f16:
      // Out of range saturates.
      return fmt::format("      let pair = clamp(vec2f({}, {}), vec2f(-65504f), vec2f(65504f));\n      {}\n",
                         value("2u * u"), value("2u * u + 1u"), store("u", "pack2x16float(pair)"));
    case CacheType::q8: break;
  }
  std::string text = "      var largest = 0f;\n";
  text += fmt::format("      for (var i = 0u; i < 32u; i++) {{ largest = max(largest, abs({})); }}\n",
                      value("u * 32u + i"));
  text += "      let inverse = select(0f, 127f / largest, largest > 0f);\n";
  text += fmt::format("      {}\n", store("u * 9u", "bitcast<u32>(largest / 127f)"));
  text += "      for (var w = 0u; w < 8u; w++) {\n";
  text += "        var word = 0u;\n        for (var i = 0u; i < 4u; i++) {\n";
  text +=
      fmt::format("          let q = i32(round(clamp({} * inverse, -127f, 127f)));\n", value("u * 32u + w * 4u + i"));
  text += "          word |= (bitcast<u32>(q) & 255u) << (i * 8u);\n        }\n";
  text += fmt::format("        {}\n      }}\n", store("u * 9u + w + 1u", "word"));
  return text;
}

// --- Attention --------------------------------------------------------------------------------------------------------

/// Functions that give four channels of a row of a cache, for a head of keys.
std::string row_function(const char* name, CacheType type, const Bindings& bindings, int handle, Extent words,
                         Extent width) {
  const Extent base = bindings.base(handle);
  const auto load = [&](const std::string& at) { return bindings.load(handle, fmt::format("{} + {}u", at, base)); };
  std::string text;
  if (width % 4 == 0) {
    text += fmt::format("fn {}(row: u32, head: u32, c: u32) -> vec4f {{\n", name);
    if (type == CacheType::f32 && bindings.has_vectors(handle)) {
      text += fmt::format("  return {};\n", bindings.vector(handle, fmt::format("row * {}u + head * {}u + c + {}u",
                                                                                words / 4, width / 4, base / 4)));
    } else if (type == CacheType::f32) {
      text += fmt::format("  let at = row * {}u + head * {}u + c * 4u;\n", words, width);
      text += fmt::format("  return vec4f({}, {}, {}, {});\n", load("at"), load("at + 1u"), load("at + 2u"),
                          load("at + 3u"));
    } else if (type == CacheType::f16) {
      text += fmt::format("  let at = row * {}u + head * {}u + c * 2u;\n", words, width / 2);
      text += fmt::format("  return vec4f(unpack2x16float({}), unpack2x16float({}));\n", load("at"), load("at + 1u"));
    } else {
      text += fmt::format("  let e = head * {}u + c * 4u;\n", width);
      text += fmt::format("  let at = row * {}u + (e >> 5u) * 9u;\n", words);
      text += fmt::format("  return vec4f(unpack4xI8({})) * bitcast<f32>({});\n", load("at + 1u + ((e & 31u) >> 2u)"),
                          load("at"));
    }
    return text + "}\n";
  }
  text += fmt::format("fn {}_of(row: u32, e: u32) -> f32 {{\n", name);
  if (type == CacheType::f32) text += fmt::format("  return {};\n", load(fmt::format("row * {}u + e", words)));
  if (type == CacheType::f16)
    text += fmt::format("  return unpack2x16float({})[e & 1u];\n", load(fmt::format("row * {}u + (e >> 1u)", words)));
  if (type == CacheType::q8) {
    text += fmt::format("  let at = row * {}u + (e >> 5u) * 9u;\n", words);
    text += fmt::format("  return f32(extractBits(bitcast<i32>({}), (e & 3u) * 8u, 8u)) * bitcast<f32>({});\n",
                        load("at + 1u + ((e & 31u) >> 2u)"), load("at"));
  }
  text += fmt::format("}}\nfn {}(row: u32, head: u32, c: u32) -> vec4f {{\n  let e = head * {}u;\n  var v = vec4f();\n",
                      name, width);
  text += fmt::format(
      "  for (var i = 0u; i < 4u; i++) {{ if (c * 4u + i < {}u) {{ v[i] = {}_of(row, e + c * 4u + i); }} }}\n", width,
      name);
  return text + "  return v;\n}\n";
}

constexpr Extent kRowsUnsplit = 4096;  // of a cache, up to which a workgroup takes all keys of a query
constexpr Extent kSplitsMax = 16;

/// A workgroup takes heads of a query that share keys. A thread takes a key, for the scores; then four channels of some of
/// the keys, for what they mix.
class AttentionWriter {
 public:
  AttentionWriter(const RoutineKernel& kernel, const Target& target)
      : kernel_(kernel),
        target_(target),
        a_(ops::cache_attention_of(kernel.attributes)),
        tokens_(kernel.shapes[0][0]),
        heads_(kernel.shapes[0][1]),
        width_(kernel.shapes[0][2]),
        rows_(kernel.shapes[1][0]),
        words_(kernel.shapes[1][1]),
        fours_(divide_up(width_, 4)) {
    const Extent group = heads_ / a_.kv_heads;
    // Heads that share keys are apart where there are multiprocessors for all.
    together_ = tokens_ * heads_ <= 2 * Extent{target.multiprocessors} && target.unroll ? 1 : group;
    while (together_ > 4 && together_ % 2 == 0) together_ /= 2;
    if (together_ > 8) together_ = 1;
    threads_ = target.unroll ? (tokens_ <= 8 ? 256 : 128) : 64;
    while (threads_ < fours_) threads_ *= 2;
    threads_ = std::min<Extent>(threads_, target.limits.workgroup_invocations);
    if (rows_ > kRowsUnsplit && tokens_ * heads_ <= 2 * Extent{target.multiprocessors})
      splits_ = std::min(kSplitsMax, divide_up(rows_, kRowsUnsplit / 4));
  }

  void render(Scratch& scratch, Rendered& rendered) {
    Operand out = kernel_.out;
    if (splits_ > 1) out = scratch.add(DType::f32, tokens_ * heads_ * splits_ * (width_ + 2));
    Bindings bindings(target_, kernel_.name);
    const int q = bindings.add(kernel_.reads[0], false), k = bindings.add(kernel_.reads[1], false),
              v = bindings.add(kernel_.reads[2], false), first = bindings.add(kernel_.reads[3], false),
              length = bindings.add(kernel_.reads[4], false), to = bindings.add(out, true);
    if (a_.type == CacheType::f32 && width_ % 4 == 0)
      for (int each : {0, 1})
        if (kernel_.reads[static_cast<std::size_t>(1 + each)].offset % 4 == 0) bindings.want_vectors(each ? v : k);
    bindings.resolve();
    const auto groups = static_cast<std::uint64_t>(tokens_ * (heads_ / together_) * splits_);
    const WorkgroupNumber number = workgroup_number(groups, target_);

    text_ = uses_subgroups() ? "enable subgroups;\ndiagnostic(off, subgroup_uniformity);\n" : "";
    text_ += bindings.declarations() + row_function("key_at", a_.type, bindings, k, words_, width_) +
             row_function("value_at", a_.type, bindings, v, words_, width_);
    text_ += fmt::format("var<workgroup> seen: array<u32, 2>;\n");
    text_ += fmt::format("var<workgroup> queries: array<vec4f, {}>;\n", together_ * fours_);
    text_ += fmt::format("var<workgroup> weights: array<f32, {}>;\n", together_ * threads_);
    text_ += fmt::format("var<workgroup> parts: array<f32, {}>;\n", together_ * parts());
    text_ += fmt::format("var<workgroup> mixed: array<vec4f, {}>;\n", threads_);
    text_ += fmt::format("@compute @workgroup_size({})\nfn main({}) {{\n  let group = {};\n{}", threads_,
                         number.parameters, number.text, number.guard);
    line(fmt::format("let split = {};", modulo("group", splits_)));
    line(fmt::format("let query = {};", divided("group", splits_)));
    line(fmt::format("let t = {};", divided("query", heads_ / together_)));
    line(fmt::format("let head0 = {} * {}u;", modulo("query", heads_ / together_), together_));
    line(fmt::format("let kv = {};", divided("head0", heads_ / a_.kv_heads)));
    write_seen(bindings, first, length);
    write_queries(bindings, q);
    write_keys();
    write_result(bindings, to);
    text_ += "}\n";
    rendered.dispatches.push_back({kernel_.name, std::move(text_), bindings.ranges(), groups});
    if (splits_ > 1) rendered.dispatches.push_back(join(out));
  }

 private:
  void line(const std::string& text) { text_ += "  " + text + "\n"; }
  bool uses_subgroups() const { return target_.subgroup_size >= 2 && threads_ % target_.subgroup_size == 0; }
  Extent parts() const { return uses_subgroups() ? threads_ / target_.subgroup_size : threads_; }
  template <class Each>
  void each_head(Each each) const {
    for (Extent g = 0; g < together_; ++g) each(g);
  }

  /// The keys of this workgroup, begin to end. They come from memory, and barriers follow.
  void write_seen(const Bindings& bindings, int first, int length) {
    line("if (thread == 0u) {");
    line(fmt::format("  let first = {};", bindings.load(first, fmt::format("t + {}u", bindings.base(first)))));
    line(fmt::format("  let length = {};", bindings.load(length, fmt::format("t + {}u", bindings.base(length)))));
    line(fmt::format("  let end = clamp(first + length, 0, {});", rows_));
    line("  var begin = clamp(first, 0, end);");
    if (a_.window > 0) line(fmt::format("  begin = max(begin, end - {});", std::min<Extent>(a_.window, rows_)));
    line("  if (length <= 0) { begin = end; }");
    if (splits_ > 1) {
      line(fmt::format("  let stretch = max({}, (end - begin + {}) / {});", threads_, splits_ - 1, splits_));
      line("  seen[0] = u32(min(begin + i32(split) * stretch, end));");
      line("  seen[1] = u32(min(begin + i32(split + 1u) * stretch, end));");
    } else {
      line("  seen[0] = u32(begin);");
      line("  seen[1] = u32(end);");
    }
    line("}");
    line("let begin = workgroupUniformLoad(&seen[0]);");
    line("let end = workgroupUniformLoad(&seen[1]);");
  }

  void write_queries(const Bindings& bindings, int q) {
    line(fmt::format("for (var i = thread; i < {}u; i += {}u) {{", together_ * fours_, threads_));
    line(fmt::format("  let c = {} * 4u;", modulo("i", fours_)));
    line(fmt::format("  let at = (t * {}u + head0 + {}) * {}u + c + {}u;", heads_, divided("i", fours_), width_,
                     bindings.base(q)));
    std::string values;
    for (int e = 0; e < 4; ++e) {
      const std::string value = bindings.load(q, fmt::format("at + {}u", e));
      values += e ? ", " : "";
      values += width_ % 4 == 0
                    ? value
                    : fmt::format("select(0f, {}, c + {}u < {}u)",
                                  bindings.load(q, fmt::format("min(at + {}u, {}u)", e,
                                                               tokens_ * heads_ * width_ - 1 + bindings.base(q))),
                                  e, width_);
    }
    line(fmt::format("  queries[i] = vec4f({}) * {:.9g}f;", values, a_.scale));
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
        line(
            fmt::format("    parts[{}u + {}] = {}{};", g * parts(), divided("thread", target_.subgroup_size), name, g));
      });
      line("  }");
    } else {
      each_head([&](Extent g) { line(fmt::format("  parts[{}u + thread] = {}{};", g * parts(), name, g)); });
    }
    line("  workgroupBarrier();");
    each_head([&](Extent g) {
      line(fmt::format("  {}{} = parts[{}u];", name, g, g * parts()));
      line(fmt::format("  for (var i = 1u; i < {}u; i++) {{ {}{} = {}; }}", parts(), name, g,
                       combined(fmt::format("{}{}", name, g), fmt::format("parts[{}u + i]", g * parts()))));
    });
  }

  void write_keys() {
    each_head([&](Extent g) {
      line(fmt::format("var top{0} = -3e38f;", g));
      line(fmt::format("var total{0} = 0f;", g));
      line(fmt::format("var mix{0} = vec4f();", g));
    });
    const Extent slices = threads_ / fours_;
    line(fmt::format("let c = {};", modulo("thread", fours_)));
    line(fmt::format("let slice = {};", divided("thread", fours_)));
    line(fmt::format("for (var key0 = begin; key0 < end; key0 += {}u) {{", threads_));
    line("  let key = key0 + thread;");
    each_head([&](Extent g) { line(fmt::format("  var s{0} = 0f;", g)); });
    line("  if (key < end) {");
    line(fmt::format("    for (var i = 0u; i < {}u; i++) {{", fours_));
    line("      let k = key_at(key, kv, i);");
    each_head([&](Extent g) { line(fmt::format("      s{0} += dot(queries[{1}u + i], k);", g, g * fours_)); });
    line("    }");
    if (a_.soft_cap > 0)
      each_head([&](Extent g) {
        line(fmt::format("    s{0} = {1:.9g}f * tanh(clamp(s{0} / {1:.9g}f, -15f, 15f));", g, a_.soft_cap));
      });
    line("  }");
    each_head([&](Extent g) { line(fmt::format("  var highest{0} = select(-3e38f, s{0}, key < end);", g)); });
    write_joined("highest", true);
    each_head([&](Extent g) {
      line(fmt::format("  highest{0} = max(highest{0}, top{0});", g));
      line(fmt::format("  let fade{0} = exp(top{0} - highest{0});", g));
      line(fmt::format("  let p{0} = select(0f, exp(s{0} - highest{0}), key < end);", g));
      line(fmt::format("  total{0} = total{0} * fade{0} + p{0};", g));
      line(fmt::format("  mix{0} *= fade{0};", g));
      line(fmt::format("  weights[{1}u + thread] = p{0};", g, g * threads_));
      line(fmt::format("  top{0} = highest{0};", g));
    });
    line("  workgroupBarrier();");
    line(fmt::format("  if (slice < {}u) {{", slices));
    line(fmt::format("    for (var j = slice; j < min({}u, end - key0); j += {}u) {{", threads_, slices));
    line("      let v = value_at(key0 + j, kv, c);");
    each_head([&](Extent g) { line(fmt::format("      mix{0} += weights[{1}u + j] * v;", g, g * threads_)); });
    line("    }");
    line("  }");
    line("  workgroupBarrier();");
    line("}");
  }

  void write_result(const Bindings& bindings, int to) {
    const Extent slices = threads_ / fours_;
    write_joined("total", false);
    each_head([&](Extent g) {
      line(fmt::format("mixed[thread] = mix{};", g));
      line("workgroupBarrier();");
      line(fmt::format("if (thread < {}u) {{", fours_));
      line(fmt::format("  for (var i = 1u; i < {0}u; i++) {{ mix{1} += mixed[i * {2}u + thread]; }}", slices, g,
                       fours_));
      if (splits_ == 1) line(fmt::format("  mix{0} = select(vec4f(), mix{0} / total{0}, end > begin);", g));
      const Extent pitch = splits_ > 1 ? width_ + 2 : width_;
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
      line("}");
      if (g + 1 < together_) line("workgroupBarrier();");
    });
  }

  /// Parts weigh as much as their sums of exponentials.
  RenderedDispatch join(const Operand& partial) const {
    constexpr int kJoinThreads = 128;
    Bindings bindings(target_, kernel_.name);
    const int from = bindings.add(partial, false), to = bindings.add(kernel_.out, true);
    bindings.resolve();
    const Extent all = tokens_ * heads_ * width_;
    const auto groups = static_cast<std::uint64_t>(divide_up(all, kJoinThreads));
    std::string body;
    const auto line = [&](const std::string& text) { body += "  " + text + "\n"; };
    const auto part = [&](const std::string& at) {
      return bindings.load(
          from, fmt::format("(row * {}u + i) * {}u + {} + {}u", splits_, width_ + 2, at, bindings.base(from)));
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
    return {kernel_.name + ".join",
            compute_shader(bindings, {}, workgroup_number(groups, target_), kJoinThreads, "", body), bindings.ranges(),
            groups};
  }

  const RoutineKernel& kernel_;
  const Target& target_;
  ops::CacheAttention a_;
  Extent tokens_, heads_, width_, rows_, words_, fours_;
  Extent together_ = 1, threads_ = 128, splits_ = 1;
  std::string text_;
};

}  // namespace

void render_write_rows(const RoutineKernel& kernel, const Target& target, Scratch& scratch, Rendered& rendered) {
  const CacheType type = ops::write_rows_of(kernel.attributes).type;
  const Extent rows = kernel.shape[0], words = kernel.shape[1], count = kernel.shapes[1][0],
               width = kernel.shapes[1][1];
  if (kernel.out.buffer != kernel.reads[0].buffer || kernel.out.offset != kernel.reads[0].offset)
    copy(kernel.reads[0], kernel.out, target, scratch, rendered);
  const Extent units = type == CacheType::q8 ? words / 9 : words;
  if (count * units * rows == 0) return;
  Bindings bindings(target, kernel.name);
  const int from = bindings.add(kernel.reads[1], false), at = bindings.add(kernel.reads[2], false),
            out = bindings.add(kernel.out, true);
  bindings.forbid_vectors(out);
  bindings.resolve();
  const auto groups = static_cast<std::uint64_t>(divide_up(count * units, kWriteThreads));
  const auto place = [&](const std::string& t) {
    return bindings.load(at, fmt::format("{} + {}u", t, bindings.base(at)));
  };
  std::string body;
  const auto line = [&](const std::string& text) { body += "  " + text + "\n"; };
  line(fmt::format("let number = group * {}u + thread;", kWriteThreads));
  line(fmt::format("if (number < {}u) {{", count * units));
  line(fmt::format("  let t = {};", divided("number", units)));
  line(fmt::format("  let u = {};", modulo("number", units)));
  line(fmt::format("  let row = {};", place("t")));
  line(fmt::format("  var last = row >= 0 && row < {};", rows));
  // Of equal places the last counts.
  if (count > 1)
    line(fmt::format("  for (var later = t + 1u; later < {}u; later++) {{ last = last && row != {}; }}", count,
                     place("later")));
  line("  if (last) {");
  line(fmt::format("    let source = t * {}u;", width));
  line(fmt::format("    let place = u32(row) * {}u;", words));
  body += write_unit(type, bindings, from, out);
  line("  }");
  line("}");
  rendered.dispatches.push_back(
      {kernel.name, compute_shader(bindings, {}, workgroup_number(groups, target), kWriteThreads, "", body),
       bindings.ranges(), groups});
}

bool render_written_loop(const kernel::LoopKernel& loop, const RoutineKernel& write, const Target& target,
                         Rendered& rendered) {
  if (write.routine != ops::Routine::write_rows || ops::write_rows_of(write.attributes).type != CacheType::f32 ||
      write.out != write.reads[0] || loop.inner != 1 || loop.outputs.size() != 1 || loop.stores.size() != 1)
    return false;
  const Extent rows = write.shape[0], width = write.shape[1], count = write.shapes[1][0];
  const Operand &made = loop.outputs[0], &given = write.reads[1];
  kernel::LoopKernel each = without_inner(loop);
  if (each.outer != count * width || count * width == 0 || made.buffer != given.buffer ||
      made.offset + each.stores[0].view.offset != given.offset || !each.stores[0].view.bounds.empty())
    return false;
  // The loop's elements lie as those of the rows do.
  const kernel::View& view = each.stores[0].view;
  Extent stride = 1;
  for (std::size_t d = view.extents.size(); d-- > 0; stride *= view.extents[d])
    if (view.extents[d] != 1 && view.strides[d] != stride) return false;
  for (const Operand& input : each.inputs)
    if (input.buffer == write.out.buffer || input.buffer == made.buffer) return false;
  for (const kernel::Step& step : each.steps)
    if (step.kind == kernel::StepKind::reduce) return false;
  if (each.inputs.size() + 3 > target.limits.storage_buffers || made.buffer == write.out.buffer ||
      made.buffer == write.reads[2].buffer)
    return false;

  const std::string name = loop.name + " + " + write.name;
  Bindings bindings(target, name);
  Helpers helpers;
  const int at = bindings.add(write.reads[2], false), out = bindings.add(write.out, true);
  bindings.forbid_vectors(out);
  const Space space{{{"t", count}, {"u", width}}, -1};
  StepWriter writer(each, bindings, helpers, space, space);
  bindings.resolve();
  const std::vector<bool> needed = needed_steps(each);
  for (std::size_t step = 0; step < each.steps.size(); ++step)
    if (needed[step]) writer.write(static_cast<int>(step));
  writer.write_store(each.stores[0]);
  const auto place = [&](const std::string& t) {
    return bindings.load(at, fmt::format("{} + {}u", t, bindings.base(at)));
  };
  const auto groups = static_cast<std::uint64_t>(divide_up(count * width, kWriteThreads));
  std::string body;
  const auto line = [&](const std::string& text) { body += "  " + text + "\n"; };
  line(fmt::format("let number = group * {}u + thread;", kWriteThreads));
  line(fmt::format("if (number >= {}u) {{ return; }}", count * width));
  line(fmt::format("let t = {};", divided("number", width)));
  line(fmt::format("let u = {};", modulo("number", width)));
  body += writer.take_text();
  line(fmt::format("let row = {};", place("t")));
  line(fmt::format("var last = row >= 0 && row < {};", rows));
  if (count > 1)
    line(fmt::format("for (var later = t + 1u; later < {}u; later++) {{ last = last && row != {}; }}", count,
                     place("later")));
  line(fmt::format("if (last) {{ {} }}",
                   bindings.store(out, fmt::format("u32(row) * {}u + u + {}u", width, bindings.base(out)),
                                  writer.value(each.stores[0].value).text)));
  rendered.dispatches.push_back(
      {name, compute_shader(bindings, helpers, workgroup_number(groups, target), kWriteThreads, "", body),
       bindings.ranges(), groups});
  return true;
}

void render_cache_attention(const RoutineKernel& kernel, const Target& target, Scratch& scratch, Rendered& rendered) {
  if (kernel.shape.numel() == 0) return;
  AttentionWriter(kernel, target).render(scratch, rendered);
}

}  // namespace weft::webgpu
