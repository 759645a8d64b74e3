#include "backend/webgpu/wgsl_quantised.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>

#include "backend/webgpu/quantised_pack.hpp"
#include "backend/webgpu/wgsl_loop.hpp"
#include "backend/webgpu/wgsl_matmul.hpp"
#include "backend/webgpu/wgsl_scalar.hpp"
#include "backend/webgpu/wgsl_steps.hpp"

namespace weft::webgpu {
namespace {

using kernel::MatmulKernel;
using kernel::Operand;
using kernel::RoutineKernel;
using kernel::StepKind;

constexpr int kThreads = 128;  // of a workgroup of the product
constexpr int kUnpackThreads = 256;
constexpr Extent kFewRows = 8;                    // of A, for which weights are multiplied as they are read
constexpr Extent kUnpackedMax = Extent{1} << 28;  // elements of scratch

/// Reads a packed matrix by units of 16 bytes: 32, 16 or 8 elements of a row.
class PackedReader {
 public:
  PackedReader(BlockType type, const Operand& words, Extent n, Extent k, Bindings& bindings)
      : form_(quant_form(type)), at_(quant_layout(form_, n, k)), bindings_(bindings) {
    const auto run = [&](Extent first, Extent count) {
      return bindings.add({words.buffer, DType::u32, words.offset + first, count}, false);
    };
    const Extent all = n * at_.blocks;
    values_ = run(0, all * form_.value_words());
    bindings.want_vectors(values_);
    if (form_.planes > 0) high_ = run(at_.high, all * form_.planes);
    if (has_scales()) scales_ = run(at_.scales, all);
    if (form_.scales == QuantScales::coded) factors_ = run(at_.factors, all / 8);
  }

  Extent units() const { return at_.blocks * form_.value_words() / 4; }                // of a row
  int chunks() const { return static_cast<int>(32 / (form_.value_words() / 4) / 4); }  // of a unit
  int elements() const { return 4 * chunks(); }
  bool has_scales() const { return form_.scales != QuantScales::none; }
  bool has_offset() const { return form_.has_minimum || form_.zero != 0; }
  /// Chunks that share a scale.
  int chunks_together() const { return std::min(chunks(), form_.group / 4); }

  /// Functions `chunk`, which gives the integers or values of a chunk, and `scale_at`: what they are multiplied by, and
  /// what is added then.
  std::string functions() const {
    std::string text = "fn chunk(q: vec4u, high: vec2u, c: u32) -> vec4f {\n";
    switch (form_.values) {
      case QuantValues::nibble:
        text += "  var four = (q[c >> 1u] >> ((c & 1u) << 2u)) & 0x0F0F0F0Fu;\n";
        if (form_.planes == 1) text += "  four |= ((high.x >> c) & 0x01010101u) << 4u;\n";
        if (form_.planes == 2) text += "  four |= ((high[c >> 2u] >> ((c & 3u) << 1u)) & 0x03030303u) << 4u;\n";
        text += "  return vec4f(unpack4xU8(four));\n";
        break;
      case QuantValues::byte: text += "  return vec4f(unpack4xI8(q[c]));\n"; break;
      case QuantValues::f16:
        text += "  return vec4f(unpack2x16float(q[2u * c]), unpack2x16float(q[2u * c + 1u]));\n";
        break;
      case QuantValues::bf16:
        text += "  let pair = vec2u(q[2u * c], q[2u * c + 1u]);\n";
        text +=
            "  return vec4f(bitcast<f32>(pair.x << 16u), bitcast<f32>(pair.x & 0xFFFF0000u), "
            "bitcast<f32>(pair.y << 16u), bitcast<f32>(pair.y & 0xFFFF0000u));\n";
        break;
    }
    text += "}\n";
    if (!has_scales()) return text;
    text += "fn scale_at(block: u32, half: u32) -> vec2f {\n";
    text += fmt::format("  let word = {};\n", load(scales_, "block"));
    if (form_.scales == QuantScales::half) text += "  let pair = unpack2x16float(word);\n";
    if (form_.scales == QuantScales::single) text += "  let pair = vec2f(bitcast<f32>(word), 0f);\n";
    if (form_.scales == QuantScales::coded) {
      text += "  let codes = bitcast<i32>(word >> (half << 4u));\n";
      text += fmt::format("  let factors = unpack2x16float({});\n", load(factors_, "(block >> 3u)"));
      text += "  let pair = factors * vec2f(f32(extractBits(codes, 0u, 8u)), f32(extractBits(codes, 8u, 8u)));\n";
    }
    text +=
        fmt::format("  return vec2f(pair.x, {}pair.x * {}f);\n}}\n", form_.has_minimum ? "pair.y - " : "-", form_.zero);
    return text;
  }

  /// Statements that define `q` and `high` (with a suffix) of a unit of a row.
  std::string read(const std::string& row, const std::string& unit, const std::string& suffix,
                   const std::string& indent) const {
    const std::string index = fmt::format("{} * {}u + {}", row, units(), unit);
    std::string text = fmt::format("{}let place{} = {};\n", indent, suffix, index);
    const auto word = [&](int i) { return load(values_, fmt::format("(place{} * 4u + {}u)", suffix, i)); };
    if (bindings_.has_vectors(values_) && bindings_.base(values_) % 4 == 0)
      text += fmt::format("{}let q{} = {};\n", indent, suffix,
                          bindings_.vector(values_, fmt::format("place{} + {}u", suffix, bindings_.base(values_) / 4)));
    else
      text += fmt::format("{}let q{} = vec4u({}, {}, {}, {});\n", indent, suffix, word(0), word(1), word(2), word(3));
    std::string high = "vec2u()";
    if (form_.planes == 1) high = fmt::format("vec2u({}, 0u)", load(high_, "place" + suffix));
    if (form_.planes == 2)
      high = fmt::format("vec2u({}, {})", load(high_, fmt::format("(2u * place{})", suffix)),
                         load(high_, fmt::format("(2u * place{} + 1u)", suffix)));
    return text + fmt::format("{}let high{} = {};\n", indent, suffix, high);
  }
  /// Scale and offset of chunks from `chunk` on of the unit at place`suffix`.
  std::string scale(const std::string& suffix, const std::string& chunk) const {
    const std::string half = form_.group == 32 ? "0u"
                             : chunks() == 8   ? fmt::format("({} >> 2u)", chunk)
                                               : fmt::format("(place{} & 1u)", suffix);
    return fmt::format("scale_at({}, {})", divided("place" + suffix, form_.value_words() / 4), half);
  }

 private:
  std::string load(int handle, const std::string& index) const {
    return bindings_.load(handle, fmt::format("{} + {}u", index, bindings_.base(handle)));
  }

  QuantForm form_;
  QuantLayout at_;
  const Bindings& bindings_;
  int values_ = -1, high_ = -1, scales_ = -1, factors_ = -1;
};

// --- Few rows of A ----------------------------------------------------------------------------------------------------

class RowsWriter {
 public:
  RowsWriter(const MatmulKernel& kernel, const Target& target) : kernel_(kernel), target_(target) {
    rows_ = static_cast<int>(std::min(kernel.m, kFewRows));
    lanes_ = target.subgroup_size >= 2 ? static_cast<int>(std::min(target.subgroup_size, 32u)) : 32;
    // What is read of A serves some rows of W, as long as there is work for all multiprocessors.
    columns_ = rows_ > 2 ? 1 : kernel.n >= 32768 ? 4 : kernel.n >= 8192 ? 2 : 1;
  }

  void render(Rendered& rendered) {
    Bindings bindings(target_, kernel_.name);
    Helpers helpers;
    const int a = bindings.add(kernel_.a, false);
    by_fours_ =
        kernel_.k % 4 == 0 && kernel_.a_row % 4 == 0 && kernel_.a.offset % 4 == 0 && kernel_.a_batch.offset % 4 == 0;
    if (by_fours_) bindings.want_vectors(a);
    const PackedReader reader(kernel_.block_type, kernel_.b, kernel_.n, kernel_.k, bindings);
    const kernel::LoopKernel epilogue = without_inner(kernel_.epilogue);
    const Space space{{{"i", kernel_.m}, {"j", kernel_.n}}, -1};
    StepWriter writer(epilogue, bindings, helpers, space, space);
    bindings.resolve();
    by_fours_ = by_fours_ && bindings.has_vectors(a);

    const std::string finish = finish_function(epilogue, writer, helpers);
    const Extent teams = kThreads / lanes_;
    const Extent groups_n = divide_up(kernel_.n, teams * columns_), groups_m = divide_up(kernel_.m, rows_);
    const auto groups = static_cast<std::uint64_t>(groups_n * groups_m);
    std::string head;
    if (target_.subgroup_size >= 2) head = "enable subgroups;\ndiagnostic(off, subgroup_uniformity);\n";
    const WorkgroupNumber number = workgroup_number(groups, target_);
    text_ = head + bindings.declarations() + helpers.text() + reader.functions() + finish;
    text_ += activation_function(a, bindings);
    if (target_.subgroup_size < 2) text_ += fmt::format("var<workgroup> joined: array<f32, {}>;\n", kThreads);
    text_ += fmt::format("@compute @workgroup_size({})\nfn main({}) {{\n  let group = {};\n{}", kThreads,
                         number.parameters, number.text, number.guard);
    line(fmt::format("let lane = {};", modulo("thread", lanes_)));
    line(fmt::format("let i0 = {} * {}u;", divided("group", groups_n), rows_));
    line(fmt::format("let j0 = ({} * {}u + {}) * {}u;", modulo("group", groups_n), teams, divided("thread", lanes_),
                     columns_));
    write_sums(reader);
    write_join();
    write_results();
    text_ += "}\n";
    rendered.dispatches.push_back({kernel_.name, std::move(text_), bindings.ranges(), groups});
  }

 private:
  void line(const std::string& text) { text_ += "  " + text + "\n"; }

  template <class Each>
  void each_sum(Each each) const {
    for (int r = 0; r < columns_; ++r)
      for (int i = 0; i < rows_; ++i) each(r, i);
  }

  /// Four elements of a row of A; beyond k they are zero.
  std::string activation_function(int a, const Bindings& bindings) const {
    const Extent base = bindings.base(a) + kernel_.a_batch.offset;
    const bool whole = kernel_.k % kQuantBlock == 0;
    const std::string row = fmt::format("min(i, {}u) * {}u", kernel_.m - 1, static_cast<std::uint32_t>(kernel_.a_row));
    std::string text = "fn activations(i: u32, e: u32) -> vec4f {\n";
    if (by_fours_) {
      const std::string at = whole ? "e" : fmt::format("min(e, {}u)", kernel_.k - 4);
      const std::string value = bindings.vector(a, fmt::format("({} + {} + {}u) >> 2u", row, at, base));
      text += whole ? fmt::format("  return {};\n", value)
                    : fmt::format("  return select(vec4f(), {}, e < {}u);\n", value, kernel_.k);
    } else {
      text += fmt::format("  let row = {} + {}u;\n  return vec4f(", row, base);
      for (int c = 0; c < 4; ++c) {
        const std::string at = fmt::format("row + min(e + {}u, {}u)", c, kernel_.k - 1);
        text += fmt::format("{}select(0f, {}, e + {}u < {}u)", c ? ", " : "", bindings.load(a, at), c, kernel_.k);
      }
      text += ");\n";
    }
    return text + "}\n";
  }

  std::string finish_function(const kernel::LoopKernel& epilogue, StepWriter& writer, Helpers& helpers) const {
    const std::vector<bool> needed = needed_steps(epilogue);
    for (std::size_t s = 0; s < epilogue.steps.size(); ++s) {
      if (!needed[s]) continue;
      if (epilogue.steps[s].kind == StepKind::accumulator)
        writer.define(static_cast<int>(s), {render_cast({"v", DType::f32, {}}, epilogue.steps[s].type, helpers)});
      else
        writer.write(static_cast<int>(s));
    }
    for (const kernel::Store& store : epilogue.stores) writer.write_store(store);
    return fmt::format("fn finish(i: u32, j: u32, v: f32) {{\n  if (i >= {}u || j >= {}u) {{ return; }}\n{}}}\n",
                       kernel_.m, kernel_.n, writer.take_text());
  }

  void write_sums(const PackedReader& reader) {
    each_sum([&](int r, int i) { line(fmt::format("var s{}_{} = 0f;", r, i)); });
    line(fmt::format("for (var unit = lane; unit < {}u; unit += {}u) {{", reader.units(), lanes_));
    for (int r = 0; r < columns_; ++r)
      text_ += reader.read(fmt::format("min(j0 + {}u, {}u)", r, kernel_.n - 1), "unit", std::to_string(r), "    ");
    const int together = reader.chunks_together();
    const bool several = together < reader.chunks();
    if (several) line(fmt::format("  for (var first = 0u; first < {}u; first += {}u) {{", reader.chunks(), together));
    const std::string first = several ? "first" : "0u";
    if (reader.has_scales()) {
      for (int i = 0; i < rows_; ++i) line(fmt::format("  var t{} = 0f;", i));
      each_sum([&](int r, int i) { line(fmt::format("  var p{}_{} = 0f;", r, i)); });
    }
    line(fmt::format("  for (var c = {0}; c < {0} + {1}u; c++) {{", first, together));
    for (int r = 0; r < columns_; ++r) line(fmt::format("    let w{0} = chunk(q{0}, high{0}, c);", r));
    for (int i = 0; i < rows_; ++i) {
      line(fmt::format("    let x{0} = activations(i0 + {0}u, unit * {1}u + c * 4u);", i, reader.elements()));
      if (reader.has_offset()) line(fmt::format("    t{0} += dot(x{0}, vec4f(1f));", i));
    }
    each_sum([&](int r, int i) {
      line(fmt::format("    {0}{1}_{2} += dot(w{1}, x{2});", reader.has_scales() ? 'p' : 's', r, i));
    });
    line("  }");
    if (reader.has_scales()) {
      for (int r = 0; r < columns_; ++r)
        line(fmt::format("  let f{} = {};", r, reader.scale(std::to_string(r), first)));
      each_sum([&](int r, int i) {
        line(reader.has_offset() ? fmt::format("  s{0}_{1} += f{0}.x * p{0}_{1} + f{0}.y * t{1};", r, i)
                                 : fmt::format("  s{0}_{1} += f{0}.x * p{0}_{1};", r, i));
      });
    }
    if (several) line("  }");
    line("}");
  }

  void write_join() {
    if (target_.subgroup_size >= 2) {
      for (int distance = 1; distance < lanes_; distance *= 2)
        each_sum([&](int r, int i) {
          line(fmt::format("s{0}_{1} += subgroupShuffleXor(s{0}_{1}, {2}u);", r, i, distance));
        });
      return;
    }
    each_sum([&](int r, int i) {
      line(fmt::format("joined[thread] = s{}_{};", r, i));
      line("workgroupBarrier();");
      line(fmt::format("for (var distance = {}u; distance > 0u; distance >>= 1u) {{", lanes_ / 2));
      line("  if (lane < distance) { joined[thread] += joined[thread + distance]; }");
      line("  workgroupBarrier();");
      line("}");
      line(fmt::format("s{}_{} = joined[thread - lane];", r, i));
      line("workgroupBarrier();");
    });
  }

  /// One call of the epilogue in the text.
  void write_results() {
    const int count = rows_ * columns_;
    line(fmt::format("for (var at = lane; at < {}u; at += {}u) {{", count, lanes_));
    line("  var v = s0_0;");
    each_sum([&](int r, int i) {
      if (r + i > 0) line(fmt::format("  if (at == {}u) {{ v = s{}_{}; }}", r * rows_ + i, r, i));
    });
    line(fmt::format("  finish(i0 + {}, j0 + {}, v);", modulo("at", rows_), divided("at", rows_)));
    line("}");
  }

  const MatmulKernel& kernel_;
  const Target& target_;
  int rows_ = 1, columns_ = 1, lanes_ = 32;  // of A and of W at a time; threads that share a row of W
  bool by_fours_ = false;
  std::string text_;
};

// --- Weights as f32 -----------------------------------------------------------------------------------------------------

/// Rows of the matrix, all of them or those that `indices` names, to `out`.
RenderedDispatch unpack(const std::string& name, BlockType type, const Operand& words, Extent n, Extent k,
                        const Operand* indices, const Operand& out, Extent count, const Target& target) {
  Bindings bindings(target, name);
  const PackedReader reader(type, words, n, k, bindings);
  const int rows = indices ? bindings.add(*indices, false) : -1, to = bindings.add(out, true);
  const bool by_fours = k % 4 == 0 && out.offset % 4 == 0;
  if (by_fours)
    bindings.want_vectors(to);
  else
    bindings.forbid_vectors(to);
  bindings.resolve();
  const Extent chunks = divide_up(k, 4), all = count * chunks;
  const auto groups = static_cast<std::uint64_t>(divide_up(all, kUnpackThreads));
  std::string body;
  const auto line = [&](const std::string& text) { body += "  " + text + "\n"; };
  line(fmt::format("let number = group * {}u + thread;", kUnpackThreads));
  line(fmt::format("if (number < {}u) {{", all));
  line(fmt::format("  let t = {};", divided("number", chunks)));
  line(fmt::format("  let e = {} * 4u;", modulo("number", chunks)));
  // A negative index is a large one as u32, and so outside too.
  const std::string index = indices ? bindings.load(rows, fmt::format("t + {}u", bindings.base(rows))) : "";
  line(fmt::format("  let row = {};", indices ? fmt::format("bitcast<u32>({})", index) : "t"));
  line("  var v = vec4f();");
  line(fmt::format("  if (row < {}u) {{", n));
  body += reader.read("row", divided("e", reader.elements()), "", "      ");
  line(fmt::format("    let c = {} >> 2u;", modulo("e", reader.elements())));
  line("    v = chunk(q, high, c);");
  if (reader.has_scales()) {
    line(fmt::format("    let f = {};", reader.scale("", "c")));
    line("    v = v * f.x + f.y;");
  }
  line("  }");
  const std::string place = fmt::format("t * {}u + e + {}u", k, bindings.base(to));
  if (by_fours && bindings.has_vectors(to)) {
    line("  " + bindings.store_vector(to, place, {"v.x", "v.y", "v.z", "v.w"}));
  } else {
    for (int c = 0; c < 4; ++c)
      line(fmt::format("  if (e + {}u < {}u) {{ {} }}", c, k,
                       bindings.store(to, fmt::format("{} + {}u", place, c), fmt::format("v.{}", "xyzw"[c]))));
  }
  line("}");
  const WorkgroupNumber number = workgroup_number(groups, target);
  std::string text = bindings.declarations() + reader.functions();
  text += fmt::format("@compute @workgroup_size({})\nfn main({}) {{\n  let group = {};\n{}{}}}\n", kUnpackThreads,
                      number.parameters, number.text, number.guard, body);
  return {name, std::move(text), bindings.ranges(), groups};
}

}  // namespace

void render_packed(const MatmulKernel& kernel, const Target& target, Scratch& scratch, Rendered& rendered) {
  if (kernel.m * kernel.n == 0) return;
  const Extent elements = kernel.n * kernel.k;
  const bool unpacks = kernel.m > kFewRows && elements <= kUnpackedMax &&
                       static_cast<std::uint64_t>(elements) * 4 <= target.limits.binding_bytes;
  if (!unpacks) return RowsWriter(kernel, target).render(rendered);
  MatmulKernel plain = kernel;
  plain.packed = false;
  plain.b = scratch.add(DType::f32, elements);
  plain.b_row = 1;
  plain.b_col = kernel.k;
  plain.b_batch = {{1}, {0}, 0, {}};
  rendered.dispatches.push_back(unpack(kernel.name + ".unpack", kernel.block_type, kernel.b, kernel.n, kernel.k,
                                       nullptr, plain.b, kernel.n, target));
  render(plain, target, scratch, rendered);
}

void render_unpack_rows(const RoutineKernel& kernel, const Target& target, Rendered& rendered) {
  const ops::UnpackRows a = ops::unpack_rows_of(kernel.attributes);
  if (kernel.shape.numel() == 0) return;
  rendered.dispatches.push_back(unpack(kernel.name, static_cast<BlockType>(a.block_type), kernel.reads[0], a.n,
                                       kernel.shape[1], &kernel.reads[1], kernel.out, kernel.shape[0], target));
}

}  // namespace weft::webgpu
