#include "backend/webgpu/wgsl/attention/place.hpp"

#include <fmt/format.h>

#include "graph/attention.hpp"

namespace weft::webgpu::attention {
using kernel::AttentionKernel;

namespace {

std::string number(Extent x) { return fmt::format("{}u", static_cast<std::uint32_t>(x)); }

}  // namespace

// A query i is at key p = i + shift and sees keys from p - window + 1 to p (to p + window - 1 without causality).
Bounds bounds_of(const AttentionKernel& kernel, bool owns_queries) {
  const bool window = kernel.window > 0;
  const Extent ahead = kernel.causal ? 0 : kernel.window - 1, behind = kernel.window - 1;
  return {owns_queries ? window : kernel.causal || window, owns_queries ? kernel.causal || window : window,
          owns_queries ? kernel.shift - behind : -kernel.shift - ahead,
          owns_queries ? kernel.shift + ahead : -kernel.shift + behind};
}

bool walks_members(const AttentionKernel& kernel, bool owns_queries) {
  return !owns_queries && kernel.heads > kernel.kv_heads;
}

Lines place_lines(const AttentionKernel& kernel, const Place& place) {
  const Extent heads = place.owns_queries ? kernel.heads : kernel.kv_heads, all = kernel.batch * heads;
  const Extent blocks = divide_up(place.owns_queries ? kernel.queries : kernel.keys, place.rows);
  Lines lines;
  std::string group = "group";
  if (place.parts > 1) {
    lines.push_back(fmt::format("let part = {};", modulo(group, place.parts)));
    group = divided(group, place.parts);
  }
  // Under a causal mask late queries and early keys have the most work, so they start first, for all heads.
  lines.push_back(fmt::format("let head_number = {};", modulo(group, all)));
  const std::string block = divided(group, all);
  lines.push_back(place.owns_queries
                      ? fmt::format("let {} = ({}u - {}) * {}u;", place.first, blocks - 1, block, place.rows)
                      : fmt::format("let {} = {} * {}u;", place.first, block, place.rows));
  lines.push_back(fmt::format("let batch = {};", divided("head_number", heads)));
  if (place.owns_queries) {
    lines.push_back(fmt::format("let head = {};", modulo("head_number", heads)));
    lines.push_back(fmt::format("let kv_head = {};", divided("head", kernel.heads / kernel.kv_heads)));
  } else {
    lines.push_back(fmt::format("let kv_head = {};", modulo("head_number", heads)));
    if (!walks_members(kernel, false)) lines.push_back("let head = kv_head;");
  }
  return lines;
}

int Extras::bindings_of(const AttentionKernel& kernel) {
  return (kernel.mask ? 1 : 0) + (kernel.key_spans ? 1 : 0) + (kernel.seed ? 1 : 0);
}

void Extras::bind(Bindings& bindings) {
  const auto add = [&](const kernel::Operand& operand) {
    const int handle = bindings.add(operand, false);
    bindings.forbid_vectors(handle);
    return handle;
  };
  if (kernel_.mask) mask_ = add(kernel_.mask->operand);
  if (kernel_.key_spans) spans_ = add(owns_queries_ ? *kernel_.key_spans : *kernel_.query_spans);
  if (drops()) seed_ = add(*kernel_.seed);
}

std::string Extras::masked(const std::string& name, const std::string& owned, const std::string& other,
                           double unit) const {
  const AttentionKernel::Mask& mask = *kernel_.mask;
  const std::string& query = owns_queries_ ? owned : other;
  const std::string& key = owns_queries_ ? other : owned;
  std::string at = number(bindings_.base(mask_));
  const auto add = [&](const std::string& index, Extent stride) {
    if (stride != 0) at += fmt::format(" + ({}) * {}", index, number(stride));
  };
  add("batch", mask.batch_stride), add("head", mask.head_stride), add(query, mask.row_stride),
      add(key, mask.key_stride);
  if (mask.operand.type == DType::boolean)
    return fmt::format("if (!{}) {{ {} = {}; }}", bindings_.load(mask_, at), name, kHidden);
  return fmt::format("{{ let bias = {}; {} = select(fma(bias, {}, {}), {}, bias <= {}); }}",
                     bindings_.load_f32(mask_, at, helpers_), name, render_constant(unit, DType::f32, helpers_), name,
                     kHidden, render_constant(graph::kHiddenBias, DType::f32, helpers_));
}

std::string Extras::span(const std::string& owned, int which) const {
  const Extent rows = owns_queries_ ? kernel_.queries : kernel_.keys;
  return bindings_.load(spans_, fmt::format("(batch * {} + {}) * 2u + {}u + {}", number(rows), owned, which,
                                            number(bindings_.base(spans_))));
}

Lines Extras::seed_lines() const {
  const Extent base = bindings_.base(seed_);
  return {fmt::format("let seed = {};", bindings_.load(seed_, number(base))),
          fmt::format("let stream = {};", bindings_.load(seed_, number(base + 1)))};
}

std::string Extras::word(const std::string& owned, const std::string& other) const {
  const std::string& query = owns_queries_ ? owned : other;
  const std::string& key = owns_queries_ ? other : owned;
  return fmt::format("{}(seed, stream, ((batch * {} + head) * {} + (({}) >> 1u)) * {} + (({}) >> 1u))",
                     helpers_.use("philox"), number(kernel_.heads), number((kernel_.queries + 1) / 2), query,
                     number((kernel_.keys + 1) / 2), key);
}

std::string Extras::byte_of(const std::string& owned, const std::string& other) const {
  return fmt::format("((({}) & 1u) << 4u) + ((({}) & 1u) << 3u)", owns_queries_ ? owned : other,
                     owns_queries_ ? other : owned);
}

Lines Extras::tile_lines(const Place& place, const Bounds& bounds) const {
  const Extent owned = place.owns_queries ? kernel_.queries : kernel_.keys,
               others = place.owns_queries ? kernel_.keys : kernel_.queries;
  const Extent tile = place.tile, tiles = divide_up(others, tile);
  std::string begin = "0i", end = fmt::format("{}i", tiles);
  const auto row = [&](Extent offset) {
    return fmt::format("clamp(i32({}) + i32({}), 0i, {}i) / {}i", place.first, offset, tiles * tile, tile);
  };
  if (bounds.has_least) begin = row(bounds.least);
  if (bounds.has_most) end = row(place.rows - 1 + bounds.most + tile);
  Lines lines;
  if (has_spans()) {
    for (const char* line : {"if (thread == 0u) {", "  atomicStore(&$span_ends[0], 0x7fffffffu);",
                             "  atomicStore(&$span_ends[1], 0u);", "}", "workgroupBarrier();"})
      lines.emplace_back(line);
    lines.push_back(fmt::format("for (var r = thread; r < {}u; r += {}u) {{", place.rows, place.threads));
    lines.push_back(fmt::format("  let row = min({} + r, {}u);", place.first, owned - 1));
    lines.push_back(fmt::format("  let span_first = max({}, 0i);", span("row", 0)));
    lines.push_back(fmt::format("  let span_end = min({}, {}i);", span("row", 1), others));
    for (const char* line :
         {"  if (span_first < span_end) {", "    atomicMin(&$span_ends[0], u32(span_first));",
          "    atomicMax(&$span_ends[1], u32(span_end));", "  }", "}", "workgroupBarrier();", "if (thread == 0u) {",
          "  $span_range[0] = atomicLoad(&$span_ends[0]);", "  $span_range[1] = atomicLoad(&$span_ends[1]);", "}",
          "let seen_first = i32(workgroupUniformLoad(&$span_range[0]));",
          "let seen_end = i32(workgroupUniformLoad(&$span_range[1]));"})
      lines.emplace_back(line);
    begin = fmt::format("max({}, min(seen_first, {}i) / {}i)", begin, tiles * tile, tile);
    end = fmt::format("min({}, (seen_end + {}i) / {}i)", end, tile - 1, tile);
  }
  if (place.parts == 1) {
    lines.push_back(fmt::format("let tile_begin = u32({});", begin));
    lines.push_back(fmt::format("let tiles = u32(max({} - i32(tile_begin), 0i));", end));
    return lines;
  }
  lines.push_back(fmt::format("let all_begin = u32({});", begin));
  lines.push_back(fmt::format("let all_tiles = u32(max({} - i32(all_begin), 0i));", end));
  lines.push_back(fmt::format("let each = (all_tiles + {}u) / {}u;", place.parts - 1, place.parts));
  lines.emplace_back("let skipped = min(part * each, all_tiles);");
  lines.emplace_back("let tile_begin = all_begin + skipped;");
  lines.emplace_back("let tiles = min(each, all_tiles - skipped);");
  return lines;
}

void Extras::share_spans(ShaderPieces& shader) const {
  if (!has_spans()) return;
  shader.share("span_ends", "atomic<u32>", 2);
  shader.share("span_range", "u32", 2);
}

}  // namespace weft::webgpu::attention
