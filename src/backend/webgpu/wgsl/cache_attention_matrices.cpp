#include "backend/webgpu/wgsl/cache_attention_matrices.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "backend/webgpu/wgsl/attention.hpp"
#include "compile/call_attributes.hpp"
#include "graph/cache.hpp"

namespace weft::webgpu {
namespace {

using kernel::AttentionKernel;
using kernel::CallKernel;
using kernel::Operand;

constexpr Extent kTokensLeast =
    32;  // with fewer, rows of the matrices are idle, and a token's guesses keep the bits of each alone

/// Writes the queries, scaled and rounded, and for each the rows that it sees as a pair (first, end).
RenderedDispatch prepare(const CallKernel& kernel, const graph::CacheAttention& a, Extent rows, const Operand& halves,
                         const Operand& spans, const Target& target) {
  constexpr int kThreads = 256;
  Bindings bindings(target, kernel.name);
  Helpers helpers;
  const int q = bindings.add(kernel.reads[0], false), first = bindings.add(kernel.reads[3], false),
            length = bindings.add(kernel.reads[4], false), to = bindings.add(halves, true),
            spans_at = bindings.add(spans, true);
  bindings.want_vectors(q);
  bindings.want_vectors(to);
  bindings.forbid_vectors(spans_at);
  bindings.resolve();
  const Extent tokens = kernel.shapes[0][0], fours = halves.count / 4;
  std::string body;
  const auto line = [&](const std::string& text) { body += "  " + text + "\n"; };
  const auto of_token = [&](int handle) {
    return bindings.load(handle, fmt::format("item + {}u", bindings.base(handle)));
  };
  line(fmt::format("let item = group * {}u + thread;", kThreads));
  line(fmt::format("if (item < {}u) {{", fours));
  std::string four;
  if (bindings.has_vectors(q)) {
    four = bindings.vector(q, fmt::format("item + {}u", bindings.base(q) / 4));
  } else {
    for (int e = 0; e < 4; ++e)
      four += (e ? ", " : "") + bindings.load(q, fmt::format("item * 4u + {}u", bindings.base(q) + e));
    four = fmt::format("vec4f({})", four);
  }
  line(fmt::format("  let four = clamp({} * {:.9g}f, vec4f(-65504f), vec4f(65504f));", four, a.scale));
  line(fmt::format("  {}[item + {}u] = vec2<u32>(pack2x16float(four.xy), pack2x16float(four.zw));",
                   bindings.array_of(to), bindings.base(to) / 4));
  line("}");
  line(fmt::format("if (item < {}u) {{", tokens));
  line(fmt::format("  let first = {};", of_token(first)));
  line(fmt::format("  let length = {};", of_token(length)));
  line(fmt::format("  let end = clamp(first + length, 0, {});", rows));
  line("  let earliest = clamp(first, 0, end);");
  const std::string begin =
      a.window > 0 ? fmt::format("max(earliest, end - {})", std::min<Extent>(a.window, rows)) : "earliest";
  line("  " + bindings.store(spans_at, fmt::format("item * 2u + {}u", bindings.base(spans_at)),
                             fmt::format("select({}, end, length <= 0)", begin)));
  line("  " + bindings.store(spans_at, fmt::format("item * 2u + {}u", bindings.base(spans_at) + 1), "end"));
  line("}");
  ShaderPieces shader{.threads = kThreads, .helpers = std::move(helpers), .body = std::move(body)};
  return dispatch_of(kernel.name + ".halves", std::move(shader), bindings,
                     static_cast<std::uint64_t>(divide_up(std::max(fours, tokens), kThreads)), target);
}

}  // namespace

bool render_cache_attention_on_matrices(const CallKernel& kernel, const Target& target, Scratch& scratch,
                                        Rendered& rendered) {
  const auto a = kernel::attributes_of<graph::CacheAttention>(kernel);
  const Extent tokens = kernel.shapes[0][0], heads = kernel.shapes[0][1], width = kernel.shapes[0][2],
               rows = kernel.shapes[1][0], words = kernel.shapes[1][1], count = tokens * heads * width;
  if (!target.matrices() || a.exact || a.type != CacheType::f16 || a.ring > 0 || a.soft_cap > 0 || kernel.input(5) ||
      kernel.input(6) || tokens < kTokensLeast)
    return false;
  AttentionKernel attention{.name = kernel.name,
                            .batch = 1,
                            .heads = heads,
                            .queries = tokens,
                            .keys = rows,
                            .width = width,
                            .kv_heads = a.kv_heads,
                            .causal = false,
                            .guards_values = true};
  const auto cache = [&](const Operand& of_words) {
    return AttentionKernel::Tensor{
        {of_words.buffer, DType::f16, of_words.offset * 2, of_words.count * 2}, 0, width, words * 2};
  };
  attention.k = cache(kernel.reads[1]);
  attention.v = cache(kernel.reads[2]);
  attention.q = {{-1, DType::f16, 0, count}, 0, width, heads * width};
  attention.o = {kernel.out(), 0, width, heads * width};
  if (!suits_matrices(attention)) return false;
  const std::size_t dispatches = rendered.dispatches.size(), buffers = rendered.scratch_bytes.size();
  attention.q.operand = scratch.add(DType::f16, count);
  attention.key_spans = scratch.add(DType::i32, tokens * 2);
  attention.logsumexp = scratch.add(DType::f32, heads * tokens);
  rendered.dispatches.push_back(prepare(kernel, a, rows, attention.q.operand, *attention.key_spans, target));
  if (render_on_matrices(attention, choose_matrix_blocks(attention, target), target, scratch, rendered)) return true;
  rendered.dispatches.resize(dispatches);
  rendered.scratch_bytes.resize(buffers);
  return false;
}

}  // namespace weft::webgpu
