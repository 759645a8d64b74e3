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
  std::string group = place.group;
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
  if (kernel_.mask) {
    mask_ = bindings.add(kernel_.mask->operand, false);
    bindings.want_vectors(mask_);
  }
  if (kernel_.key_spans) spans_ = add(owns_queries_ ? *kernel_.key_spans : *kernel_.query_spans);
  if (drops()) seed_ = add(*kernel_.seed);
}

std::string Extras::mask_index(const std::string& owned, const std::string& other) const {
  const AttentionKernel::Mask& mask = *kernel_.mask;
  std::string at = number(bindings_.base(mask_));
  const auto add = [&](const std::string& index, Extent stride) {
    if (stride != 0) at += fmt::format(" + {} * {}", index, number(stride));
  };
  // Rows beyond the end are computed too, and read the last value.
  const auto within = [](const std::string& row, Extent rows) {
    return fmt::format("min({}, {})", row, number(rows - 1));
  };
  add("batch", mask.batch_stride), add("head", mask.head_stride);
  add(within(owns_queries_ ? owned : other, kernel_.queries), mask.row_stride);
  add(within(owns_queries_ ? other : owned, kernel_.keys), mask.key_stride);
  return at;
}

bool Extras::reads_fours() const {
  if (!kernel_.mask || !owns_queries_ || !bindings_.has_vectors(mask_)) return false;
  const AttentionKernel::Mask& mask = *kernel_.mask;
  const bool rows = mask.row_stride % 4 == 0 && mask.head_stride % 4 == 0 && mask.batch_stride % 4 == 0;
  return mask.key_stride == 1 && rows && kernel_.keys % 4 == 0 && bindings_.base(mask_) % 4 == 0;
}

std::string Extras::four(const std::string& owned, const std::string& other) const {
  // The last four that begin at a multiple of four.
  const std::string first = fmt::format("min({}, {})", other, number(kernel_.keys - 4));
  return bindings_.load_vector(mask_, mask_index(owned, first));
}

std::string Extras::masked(const std::string& name, const std::string& owned, const std::string& other,
                           double unit) const {
  const std::string at = mask_index(owned, other);
  return masked_by(name,
                   kernel_.mask->operand.type == DType::boolean ? bindings_.load(mask_, at)
                                                                : bindings_.load_f32(mask_, at, helpers_),
                   unit);
}

std::string Extras::masked_by(const std::string& name, const std::string& value, double unit) const {
  if (kernel_.mask->operand.type == DType::boolean) return fmt::format("if (!{}) {{ {} = {}; }}", value, name, kHidden);
  return fmt::format("{{ let bias = {}; {} = select(fma(bias, {}, {}), {}, bias <= {}); }}", value, name,
                     render_constant(unit, DType::f32, helpers_), name, kHidden,
                     render_constant(graph::kHiddenBias, DType::f32, helpers_));
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
    const std::string row_range = fmt::format("vec4<{0}>({0}(span_first), {0}(max(span_end, 0i)), 0, 0)", place.number);
    lines.emplace_back("workgroupBarrier();");
    lines.push_back(fmt::format("for (var r = thread; r < {}u; r += {}u) {{", place.rows, place.threads));
    lines.push_back(fmt::format("  let row = min({} + r, {}u);", place.first, owned - 1));
    lines.push_back(fmt::format("  let span_first = max({}, 0i);", span("row", 0)));
    lines.push_back(fmt::format("  let span_end = min({}, {}i);", span("row", 1), others));
    lines.push_back(fmt::format("  {}[r] = {};", place.memory, row_range));
    lines.emplace_back("}");
    lines.emplace_back("workgroupBarrier();");
    lines.push_back(fmt::format("var all_first = {}i; var all_end = 0i;", tiles * tile));
    lines.push_back(fmt::format("for (var r = 0u; r < {}u; r++) {{", place.rows));
    lines.push_back(fmt::format("  let low = i32({0}[r].x); let high = i32({0}[r].y);", place.memory));
    lines.emplace_back("  if (low < high) { all_first = min(all_first, low); all_end = max(all_end, high); }");
    lines.emplace_back("}");
    lines.emplace_back("workgroupBarrier();");
    lines.push_back(fmt::format("if (thread == 0u) {{ {}[0] = vec4<{}>({}(all_first), {}(all_end), 0, 0); }}",
                                place.memory, place.number, place.number, place.number));
    lines.push_back(fmt::format("let seen = workgroupUniformLoad(&{}[0]);", place.memory));
    lines.emplace_back("let seen_first = i32(seen.x); let seen_end = i32(seen.y);");
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

}  // namespace weft::webgpu::attention
