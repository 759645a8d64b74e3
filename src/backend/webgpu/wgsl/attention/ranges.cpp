#include "backend/webgpu/wgsl/attention/ranges.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "backend/webgpu/wgsl/attention/writer.hpp"

namespace weft::webgpu::attention {
using kernel::AttentionKernel;

namespace {

constexpr int kRangeThreads = 256;
constexpr Extent kChunksMost = 16;

// A row may be this many powers of two smaller than the largest one of its group. A scaled half is a multiple of 2^-24, so
// numbers of such rows of q and k are rounded by at most 2^-23 of the largest in their row, those of v and dO by 2^-11.
constexpr int kScoreSpread = 16, kValueSpread = 28;
// Biased exponents that leave room for the products of all factors.
constexpr int kExponentLeast = 47, kExponentMost = 167;
constexpr int kSlopesLeast = 182;  // of the sum for v and dO

struct RangeSource {
  const AttentionKernel::Tensor* tensor;
  Extent heads, rows;  // heads of a group
};

std::string text_of(Extent x) { return fmt::format("{}u", static_cast<std::uint32_t>(x)); }

}  // namespace

bool is_scaled(const AttentionKernel& kernel) { return kernel.q.operand.type == DType::bf16; }

std::string power_of_two(const std::string& x) { return fmt::format("bitcast<f32>(u32(127i + {}) << 23u)", x); }

std::string scale_of(char name) {
  const char component = name == 'q' ? 'x' : name == 'k' ? 'y' : name == 'v' ? 'z' : 'w';
  return fmt::format("(141i - exponents.{})", component);
}

bool can_bind_ranges(const AttentionKernel& kernel, const Target& target) {
  // Forward: q, k, v, O, logsumexp, ranges. Backward O, dO, and delta with a result, or all three results.
  const int tensors = !kernel.backward ? 6 : computes_delta_twice(kernel) ? 10 : 9;
  return tensors + Extras::bindings_of(kernel) <= static_cast<int>(target.limits.storage_buffers);
}

Ranges ranges_of(const AttentionKernel& kernel, const Target& target, Scratch& scratch) {
  const Extent groups = kernel.batch * kernel.kv_heads, operands = kernel.backward ? 4 : 3;
  const Extent rows = std::max(kernel.heads / kernel.kv_heads * kernel.queries, kernel.keys);
  const Extent wanted = divide_up(2 * static_cast<Extent>(target.profile.compute_units), groups * operands);
  Ranges ranges;
  ranges.chunks = std::clamp<Extent>(std::min(wanted, rows / kRangeThreads), 1, kChunksMost);
  ranges.words = scratch.add(DType::u32, groups * ranges.chunks * 4);
  return ranges;
}

// A thread takes whole rows, each of which a few lines of the cache hold.
void render_ranges(const AttentionKernel& kernel, const Ranges& ranges, const Target& target, Rendered& rendered) {
  const Extent members = kernel.heads / kernel.kv_heads, groups = kernel.batch * kernel.kv_heads;
  std::vector<RangeSource> sources{
      {&kernel.q, members, kernel.queries}, {&kernel.k, 1, kernel.keys}, {&kernel.v, 1, kernel.keys}};
  if (kernel.backward) sources.push_back({&kernel.d_o, members, kernel.queries});
  const auto count = static_cast<Extent>(sources.size());
  Bindings bindings(target, kernel.name + ".ranges");
  std::vector<int> handles;
  for (const RangeSource& source : sources) {
    handles.push_back(bindings.add(source.tensor->operand, false));
    bindings.want_eights(handles.back());
  }
  const int words = bindings.add(ranges.words, true);
  bindings.forbid_vectors(words);
  bindings.resolve();

  std::string text = "  if (thread < 2u) { atomicStore(&$found[thread], 0u); }\n  workgroupBarrier();\n";
  const auto line = [&](const std::string& each) { text += "  " + each + "\n"; };
  line(fmt::format("let operand = {};", modulo("group", count)));
  line(fmt::format("let place = {};", divided("group", count)));
  line(fmt::format("let chunk = {};", modulo("place", ranges.chunks)));
  line(fmt::format("let of_heads = {};", divided("place", ranges.chunks)));
  line(fmt::format("let batch = {};", divided("of_heads", kernel.kv_heads)));
  line(fmt::format("let kv_head = {};", modulo("of_heads", kernel.kv_heads)));
  line("var most = 0u; var least = 0x7fffu;");
  for (std::size_t i = 0; i < sources.size(); ++i) {
    const auto& [tensor, heads, length] = sources[i];
    const Extent each = divide_up(heads * length, ranges.chunks);
    line(fmt::format("if (operand == {}u) {{", i));
    line(fmt::format("for (var n = thread; n < {}u; n += {}u) {{", each, kRangeThreads));
    line(fmt::format("  let row = min(chunk * {}u + n, {}u);", each, heads * length - 1));
    const std::string head =
        heads == 1 ? "kv_head" : fmt::format("(kv_head * {}u + {})", heads, divided("row", length));
    line(fmt::format("  let at = batch * {} + {} * {} + {} * {} + {};", text_of(tensor->batch_stride / 8), head,
                     text_of(tensor->head_stride / 8), heads == 1 ? "row" : modulo("row", length),
                     text_of(tensor->row_stride / 8), text_of(bindings.base(handles[i]) / 8)));
    line("  var all = vec4<u32>();");
    line(fmt::format("  for (var v = 0u; v < {}u; v++) {{", kernel.width / 8));
    line(fmt::format("    let sizes = {}[at + v] & vec4<u32>(0x7fff7fffu);", bindings.array_of(handles[i])));
    line("    all = max(all, max(sizes & vec4<u32>(0xffffu), sizes >> vec4<u32>(16u)));");
    line("  }");
    line("  let size = max(max(all.x, all.y), max(all.z, all.w));");
    line("  most = max(most, size);");
    line("  least = min(least, select(size, 0x7fffu, size == 0u));");
    line("}");
    line("}");
  }
  line("atomicMax(&$found[0], most >> 7u);");
  line("atomicMax(&$found[1], 255u - (least >> 7u));");
  line("workgroupBarrier();");
  line("if (thread == 0u) {");
  line(fmt::format("  {}", bindings.store(words, fmt::format("place * 4u + operand + {}u", bindings.base(words)),
                                          "(atomicLoad(&$found[0]) << 16u) | atomicLoad(&$found[1])")));
  line("}");
  ShaderPieces shader{.threads = kRangeThreads};
  shader.share("found", "atomic<u32>", 2);
  shader.body = std::move(text);
  rendered.dispatches.push_back(dispatch_of(kernel.name + ".ranges", std::move(shader), bindings,
                                            static_cast<std::uint64_t>(groups * ranges.chunks * count), target));
  rendered.set_aside(rendered.dispatches.size() - 1);
}

Lines range_lines(const AttentionKernel& kernel, const Ranges& ranges, const Bindings& bindings, int words) {
  Lines lines;
  lines.push_back("var most = vec4<u32>(); var least = vec4<u32>();");
  lines.push_back(fmt::format("for (var chunk = 0u; chunk < {}u; chunk++) {{", ranges.chunks));
  const auto word = [&](int operand) {
    return bindings.load(words, fmt::format("at + {}u", operand + bindings.base(words)));
  };
  lines.push_back(
      fmt::format("  let at = ((batch * {}u + kv_head) * {}u + chunk) * 4u;", kernel.kv_heads, ranges.chunks));
  lines.push_back(fmt::format("  let range = vec4<u32>({}, {}, {}, {});", word(0), word(1), word(2),
                              kernel.backward ? word(3) : "0u"));
  lines.push_back("  most = max(most, range >> vec4<u32>(16u)); least = max(least, range & vec4<u32>(0xffffu));");
  lines.push_back("}");
  // An operand of zeros fits in any scale.
  lines.push_back("let exponents = select(vec4<i32>(most), vec4<i32>(127i), most == vec4<u32>());");
  lines.push_back("let spread = exponents - (vec4<i32>(255i) - vec4<i32>(least));");
  // Scores have the factor 2^(their exponents - 282), which hidden ones and the values of masks have to survive.
  const int scale = static_cast<int>(std::floor(std::log2(kernel.scale)));
  lines.push_back("let score_exponent = exponents.x + exponents.y - 282i;");
  lines.push_back(fmt::format(
      "let fits_halves = all(exponents >= vec4<i32>({0}i)) && all(exponents <= vec4<i32>({1}i)) && all(spread <= "
      "vec4<i32>({2}i, {2}i, {3}i, {3}i)) && score_exponent >= {4}i && score_exponent <= {5}i{6};",
      kExponentLeast, kExponentMost, kScoreSpread, kValueSpread, std::max(-66 - scale, -120), 60 - scale,
      kernel.backward ? fmt::format(" && exponents.z + exponents.w >= {}i", kSlopesLeast) : ""));
  return lines;
}

}  // namespace weft::webgpu::attention
