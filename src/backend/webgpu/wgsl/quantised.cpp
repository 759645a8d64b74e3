#include "backend/webgpu/wgsl/quantised.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <optional>

#include "backend/webgpu/quantised_pack.hpp"
#include "backend/webgpu/wgsl/loop.hpp"
#include "backend/webgpu/wgsl/matmul.hpp"
#include "backend/webgpu/wgsl/scalar.hpp"
#include "backend/webgpu/wgsl/steps.hpp"
#include "compile/call_attributes.hpp"
#include "compile/row_factors.hpp"
#include "graph/cache.hpp"

namespace weft::webgpu {
namespace {

using kernel::CallKernel;
using kernel::Operand;
using kernel::PackedMatmulKernel;
using kernel::StepKind;

constexpr int kProductThreads = 128;  // of a workgroup of the product
constexpr int kUnpackThreads = 256;
constexpr Extent kUnpackedMax = Extent{1} << 28;  // elements of scratch

/// Reads a packed matrix by units of 16 bytes: 32, 16, 8 or 4 elements of a row.
class PackedReader {
 public:
  /// `mark` ends the names of its functions.
  PackedReader(BlockType type, const Operand& words, Extent n, Extent k, Bindings& bindings, std::string mark = "")
      : form_(quant_form(type)), at_(quant_layout(form_, n, k)), bindings_(bindings), mark_(std::move(mark)) {
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

  /// Bindings that it takes.
  int runs() const { return 1 + (form_.planes > 0) + (has_scales() ? 1 : 0) + (form_.scales == QuantScales::coded); }

  /// Functions `chunk`, which gives the integers or values of a chunk, and `scale_at`: what they are multiplied by, and
  /// what is added then.
  std::string functions() const {
    std::string text = fmt::format("fn chunk{}(q: vec4u, high: vec2u, c: u32) -> vec4f {{\n", mark_);
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
      case QuantValues::f32: text += "  return bitcast<vec4f>(q);\n"; break;
    }
    text += "}\n";
    if (!has_scales()) return text;
    text += fmt::format("fn scale_at{}(block: u32, half: u32) -> vec2f {{\n", mark_);
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
    return fmt::format("scale_at{}({}, {})", mark_, divided("place" + suffix, form_.value_words() / 4), half);
  }

 private:
  std::string load(int handle, const std::string& index) const {
    return bindings_.load(handle, fmt::format("{} + {}u", index, bindings_.base(handle)));
  }

  QuantForm form_;
  QuantLayout at_;
  const Bindings& bindings_;
  std::string mark_;
  int values_ = -1, high_ = -1, scales_ = -1, factors_ = -1;
};

// --- Rows of A that count ------------------------------------------------------------------------------------------------

constexpr int kOrderThreads = 256;

/// Whether a row of A is one that the product is asked for. By bits: a weight that is no number counts.
std::string is_chosen_function(const PackedMatmulKernel& kernel, int chosen, const Bindings& bindings) {
  const std::string at =
      fmt::format("min(i, {}u) * {}u + {}u", kernel.m - 1, kernel.chosen_stride, bindings.base(chosen));
  return fmt::format("fn is_chosen(i: u32) -> bool {{ return (bitcast<u32>({}) << 1u) != 0u; }}\n",
                     bindings.load(chosen, at));
}

/// The rows in an order, those first that count, and how many these are.
RenderedDispatch order_rows(const PackedMatmulKernel& kernel, const Operand& order, const Target& target) {
  Bindings bindings(target, kernel.name);
  const int chosen = bindings.add(*kernel.chosen, false), to = bindings.add(order, true);
  bindings.resolve();
  const auto put = [&](const std::string& at, const std::string& value) {
    return bindings.store(to, fmt::format("{} + {}u", at, bindings.base(to)), value);
  };
  std::string body;
  const auto line = [&](const std::string& text) { body += "  " + text + "\n"; };
  const Extent each = divide_up(kernel.m, kOrderThreads);
  line(fmt::format("let begin = thread * {}u;", each));
  line(fmt::format("let end = min(begin + {}u, {}u);", each, kernel.m));
  line("var mine = 0u;");
  line("for (var i = begin; i < end; i++) { mine += u32(is_chosen(i)); }");
  line("chosen_until[thread] = mine;");
  line("workgroupBarrier();");
  line(fmt::format("for (var distance = 1u; distance < {}u; distance <<= 1u) {{", kOrderThreads));
  line("  var sum = chosen_until[thread];");
  line("  if (thread >= distance) { sum += chosen_until[thread - distance]; }");
  line("  workgroupBarrier();");
  line("  chosen_until[thread] = sum;");
  line("  workgroupBarrier();");
  line("}");
  line("var next = chosen_until[thread] - mine;");
  line("for (var i = begin; i < end; i++) {");
  line(fmt::format("  if (is_chosen(i)) {{ {} next++; }}", put("next", "i")));
  line(fmt::format("  else {{ {} }}", put(fmt::format("({}u + next - i)", kernel.m - 1), "i")));
  line("}");
  line(fmt::format("if (thread == {}u) {{ {} }}", kOrderThreads - 1,
                   put(fmt::format("{}u", kernel.m), fmt::format("chosen_until[{}]", kOrderThreads - 1))));
  const WorkgroupNumber number = workgroup_number(1, target);
  std::string text = bindings.declarations() + is_chosen_function(kernel, chosen, bindings) +
                     fmt::format("var<workgroup> chosen_until: array<u32, {}>;\n", kOrderThreads);
  text += fmt::format("@compute @workgroup_size({})\nfn main({}) {{\n{}{}}}\n", kOrderThreads, number.parameters,
                      number.guard, body);
  return {kernel.name + ".order", std::move(text), bindings.ranges(), 1};
}

// --- Few rows of A ----------------------------------------------------------------------------------------------------

/// Rows of A that are computed as they are read (PackedMatmulKernel::rows), but for one factor a row, which is known at the end.
class ComputedRows {
 public:
  ComputedRows(const kernel::LoopKernel& rows, Bindings& bindings, Helpers& helpers)
      : rows_(without_stores(rows)),
        factors_(*compiler::row_factors(rows)),
        elements_(rows_, bindings, helpers, outer(), inner(), wanted()),
        scales_(rows_, bindings, helpers, outer(), inner(), factors_.outer) {}

  int sums() const { return static_cast<int>(factors_.sums.size()); }

  /// `activations`: four elements of a row without its factor, their part of the row's sums added to these; and
  /// `row_factor`.
  std::string functions() {
    std::string pointers, numbers, adds, product;
    for (std::size_t r = 0; r < factors_.sums.size(); ++r) {
      pointers += fmt::format(", sum{}: ptr<function, vec4f>", r);
      numbers += fmt::format(", sum{}: f32", r);
      const int summed = rows_.steps[static_cast<std::size_t>(factors_.sums[r])].a;
      elements_.write(summed);
      adds += fmt::format("  *sum{} += {};\n", r, four(summed));
      scales_.define(factors_.sums[r], {fmt::format("sum{}", r)});
    }
    for (const int step : factors_.inner) {
      elements_.write(step);
      product += (product.empty() ? "" : " * ") + four(step);
    }
    std::string scale;
    for (const int step : factors_.outer) {
      scales_.write(step);
      scale += (scale.empty() ? "" : " * ") + scales_.value(step).text;
    }
    const std::string at = fmt::format("  let i = min(row, {}u);\n", rows_.outer - 1);
    return fmt::format("fn activations(row: u32, e: u32{}) -> vec4f {{\n{}{}{}  return {};\n}}\n", pointers, at,
                       elements_.take_text(), adds, product) +
           fmt::format("fn row_factor(row: u32{}) -> f32 {{\n{}{}  return {};\n}}\n", numbers, at, scales_.take_text(),
                       scale);
  }

 private:
  static kernel::LoopKernel without_stores(kernel::LoopKernel rows) {
    rows.stores.clear();
    rows.outputs.clear();
    return rows;
  }
  Space outer() const { return {{{"i", rows_.outer}}, -1}; }
  Space inner() const { return {{{"i", rows_.outer}, {"e", rows_.inner}}, 1}; }
  std::vector<int> wanted() const {
    std::vector<int> steps = factors_.inner;
    for (const int sum : factors_.sums) steps.push_back(rows_.steps[static_cast<std::size_t>(sum)].a);
    return steps;
  }
  std::string four(int step) const {
    if (elements_.is_uniform(step)) return fmt::format("vec4f({})", elements_.value(step).text);
    return fmt::format("vec4f({}, {}, {}, {})", elements_.value(step, 0).text, elements_.value(step, 1).text,
                       elements_.value(step, 2).text, elements_.value(step, 3).text);
  }

  kernel::LoopKernel rows_;
  compiler::RowFactors factors_;
  StepWriter elements_, scales_;
};

class RowsWriter {
 public:
  /// `before`: a product of the same rows, computed beside `kernel`, whose epilogue reads it.
  RowsWriter(const PackedMatmulKernel& kernel, const Target& target, const PackedMatmulKernel* before = nullptr)
      : kernel_(kernel), before_(before), target_(target) {
    rows_ = static_cast<int>(std::min(kernel.m, kFewRows));
    lanes_ = target.subgroup_size >= 2 ? static_cast<int>(std::min(target.subgroup_size, 32u)) : 32;
    // What is read of A serves some rows of W, as long as there is work for all multiprocessors.
    columns_ = rows_ > 2 || before ? 1 : kernel.n >= 32768 ? 4 : kernel.n >= 8192 ? 2 : 1;
  }

  void render(Rendered& rendered) {
    Bindings bindings(target_, kernel_.name);
    Helpers helpers;
    const int a = kernel_.rows ? -1 : bindings.add(kernel_.a, false);
    by_fours_ = !kernel_.rows && kernel_.k % 4 == 0 && kernel_.a_row % 4 == 0 && kernel_.a.offset % 4 == 0;
    if (by_fours_) bindings.want_vectors(a);
    const int chosen = kernel_.chosen ? bindings.add(*kernel_.chosen, false) : -1;
    std::optional<ComputedRows> computed;
    if (kernel_.rows) computed.emplace(*kernel_.rows, bindings, helpers);
    const PackedReader reader(kernel_.block_type, kernel_.weights, kernel_.n, kernel_.k, bindings);
    std::optional<PackedReader> reader_before;
    if (before_) reader_before.emplace(kernel_.block_type, before_->weights, kernel_.n, kernel_.k, bindings, "_before");
    const kernel::LoopKernel epilogue = before_ ? epilogue_of_both() : without_inner(kernel_.epilogue);
    const Space space{{{"i", kernel_.m}, {"j", kernel_.n}}, -1};
    StepWriter writer(epilogue, bindings, helpers, space, space);
    bindings.resolve();
    by_fours_ = by_fours_ && bindings.has_vectors(a);
    const std::string activations = computed ? computed->functions() : activation_function(a, bindings);
    sums_ = computed ? computed->sums() : 0;

    const std::string finish = finish_function(epilogue, writer, helpers);
    const Extent teams = kProductThreads / lanes_;
    const Extent groups_n = divide_up(kernel_.n, teams * columns_), groups_m = divide_up(kernel_.m, rows_);
    const auto groups = static_cast<std::uint64_t>(groups_n * groups_m);
    std::string head;
    if (target_.subgroup_size >= 2) head = "enable subgroups;\ndiagnostic(off, subgroup_uniformity);\n";
    const WorkgroupNumber number = workgroup_number(groups, target_);
    text_ = head + bindings.declarations() + helpers.text() + reader.functions() +
            (before_ ? reader_before->functions() : "") + finish;
    text_ += activations;
    if (kernel_.chosen) text_ += is_chosen_function(kernel_, chosen, bindings);
    if (target_.subgroup_size < 2) text_ += fmt::format("var<workgroup> joined: array<f32, {}>;\n", kProductThreads);
    text_ += fmt::format("@compute @workgroup_size({})\nfn main({}) {{\n  let group = {};\n{}", kProductThreads,
                         number.parameters, number.text, number.guard);
    line(fmt::format("let lane = {};", modulo("thread", lanes_)));
    line(fmt::format("let i0 = {} * {}u;", divided("group", groups_n), rows_));
    line(fmt::format("let j0 = ({} * {}u + {}) * {}u;", modulo("group", groups_n), teams, divided("thread", lanes_),
                     columns_));
    if (kernel_.chosen) write_units(reader);
    write_sums(reader, "s");
    std::vector<std::string> joined = sums_of("s");
    if (before_) {
      write_sums(*reader_before, "u");
      for (const std::string& name : sums_of("u")) joined.push_back(name);
    }
    write_joined(joined);
    if (computed) write_factors();
    write_results();
    text_ += "}\n";
    rendered.dispatches.push_back(
        {before_ ? before_->name + " + " + kernel_.name : kernel_.name, std::move(text_), bindings.ranges(), groups});
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
    const Extent base = bindings.base(a);
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
        writer.define(static_cast<int>(s), {render_cast({before_ && s < steps_before_ ? "u" : "v", DType::f32, {}},
                                                        epilogue.steps[s].type, helpers)});
      else
        writer.write(static_cast<int>(s));
    }
    for (const kernel::Store& store : epilogue.stores) writer.write_store(store);
    return fmt::format("fn finish(i: u32, j: u32, v: f32{}) {{\n  if (i >= {}u || j >= {}u) {{ return; }}\n{}}}\n",
                       before_ ? ", u: f32" : "", kernel_.m, kernel_.n, writer.take_text());
  }

  /// Units of W to read: none where no row counts. A loop that ends at once, and no early return, for the barriers after it.
  void write_units(const PackedReader& reader) {
    std::string any;
    for (int i = 0; i < rows_; ++i) any += fmt::format("{}is_chosen(i0 + {}u)", any.empty() ? "" : " || ", i);
    line(fmt::format("let units = select(0u, {}u, {});", reader.units(), any));
  }

  /// `sum`: the first letter of the sums' names, 's' or 'u'. What else is named stands in a scope of its own.
  void write_sums(const PackedReader& reader, const std::string& sum) {
    const std::string mark = sum == "s" ? "" : "_before";
    each_sum([&](int r, int i) { line(fmt::format("var {}{}_{} = 0f;", sum, r, i)); });
    for (int i = 0; i < rows_; ++i)
      for (int r = 0; r < sums_; ++r) line(fmt::format("var {}{}_{} = vec4f();", sum == "s" ? "row" : "again", i, r));
    line(fmt::format("for (var unit = lane; unit < {}; unit += {}u) {{",
                     kernel_.chosen ? "units" : fmt::format("{}u", reader.units()), lanes_));
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
    for (int r = 0; r < columns_; ++r) line(fmt::format("    let w{0} = chunk{1}(q{0}, high{0}, c);", r, mark));
    for (int i = 0; i < rows_; ++i) {
      line(fmt::format("    let x{0} = activations(i0 + {0}u, unit * {1}u + c * 4u{2});", i, reader.elements(),
                       row_sums(i, sum == "s" ? "&row" : "&again")));
      if (reader.has_offset()) line(fmt::format("    t{0} += dot(x{0}, vec4f(1f));", i));
    }
    each_sum([&](int r, int i) {
      line(fmt::format("    {0}{1}_{2} += dot(w{1}, x{2});", reader.has_scales() ? "p" : sum, r, i));
    });
    line("  }");
    if (reader.has_scales()) {
      for (int r = 0; r < columns_; ++r)
        line(fmt::format("  let f{} = {};", r, reader.scale(std::to_string(r), first)));
      each_sum([&](int r, int i) {
        line(reader.has_offset() ? fmt::format("  {2}{0}_{1} += f{0}.x * p{0}_{1} + f{0}.y * t{1};", r, i, sum)
                                 : fmt::format("  {2}{0}_{1} += f{0}.x * p{0}_{1};", r, i, sum));
      });
    }
    if (several) line("  }");
    line("}");
  }

  std::vector<std::string> sums_of(const char* sum) const {
    std::vector<std::string> names;
    each_sum([&](int r, int i) { names.push_back(fmt::format("{}{}_{}", sum, r, i)); });
    return names;
  }
  /// The sums over row i of A as arguments: those of the first product count.
  std::string row_sums(int i, const char* name) const {
    std::string text;
    for (int r = 0; r < sums_; ++r) text += fmt::format(", {}{}_{}", name, i, r);
    return text;
  }

  /// What numbers are scaled by that were computed of rows of A without their factors.
  void write_factors() {
    std::vector<std::string> names;
    for (int i = 0; i < rows_; ++i)
      for (int r = 0; r < sums_; ++r) {
        names.push_back(fmt::format("whole{}_{}", i, r));
        line(fmt::format("var {} = dot(row{}_{}, vec4f(1f));", names.back(), i, r));
      }
    write_joined(names);
    for (int i = 0; i < rows_; ++i)
      line(fmt::format("let factor{0} = row_factor(i0 + {0}u{1});", i, row_sums(i, "whole")));
    for (const char* sum : {"s", "u"})
      if (before_ || *sum == 's')
        each_sum([&](int r, int i) { line(fmt::format("{}{}_{} *= factor{};", sum, r, i, i)); });
  }

  /// Sums of all lanes, in each of them.
  void write_joined(const std::vector<std::string>& names) {
    if (target_.subgroup_size >= 2) {
      for (int distance = 1; distance < lanes_; distance *= 2)
        for (const std::string& name : names)
          line(fmt::format("{0} += subgroupShuffleXor({0}, {1}u);", name, distance));
      return;
    }
    for (const std::string& name : names) {
      line(fmt::format("joined[thread] = {};", name));
      line("workgroupBarrier();");
      line(fmt::format("for (var distance = {}u; distance > 0u; distance >>= 1u) {{", lanes_ / 2));
      line("  if (lane < distance) { joined[thread] += joined[thread + distance]; }");
      line("  workgroupBarrier();");
      line("}");
      line(fmt::format("{} = joined[thread - lane];", name));
      line("workgroupBarrier();");
    }
  }

  /// One call of the epilogue in the text.
  void write_results() {
    const int count = rows_ * columns_;
    line(fmt::format("for (var at = lane; at < {}u; at += {}u) {{", count, lanes_));
    line("  var v = s0_0;");
    if (before_) line("  var u = u0_0;");
    each_sum([&](int r, int i) {
      if (r + i == 0) return;
      line(fmt::format("  if (at == {0}u) {{ v = s{1}_{2};{3} }}", r * rows_ + i, r, i,
                       before_ ? fmt::format(" u = u{}_{};", r, i) : ""));
    });
    if (kernel_.chosen)
      line(fmt::format("  if (!is_chosen(i0 + {})) {{ v = 0f;{} }}", modulo("at", rows_), before_ ? " u = 0f;" : ""));
    line(fmt::format("  finish(i0 + {}, j0 + {}, v{});", modulo("at", rows_), divided("at", rows_),
                     before_ ? ", u" : ""));
    line("}");
  }

  /// Both epilogues as one: what the second reads of the first is a value that is at hand. The first still stores it.
  kernel::LoopKernel epilogue_of_both() {
    kernel::LoopKernel both = without_inner(before_->epilogue), after = without_inner(kernel_.epilogue);
    const auto steps = static_cast<int>(both.steps.size()), inputs = static_cast<int>(both.inputs.size()),
               outputs = static_cast<int>(both.outputs.size());
    steps_before_ = both.steps.size();
    for (kernel::Step step : after.steps) {
      for (int* operand : {&step.a, &step.b, &step.c})
        if (*operand >= 0) *operand += steps;
      if (step.operand >= 0) {
        if (after.inputs[static_cast<std::size_t>(step.operand)] == both.outputs[0]) {
          step = {StepKind::map, step.type, step.level};
          step.op = scalar::Op::cast;
          step.a = both.stores[0].value;
        } else {
          step.operand += inputs;
        }
      }
      both.steps.push_back(step);
    }
    both.inputs.insert(both.inputs.end(), after.inputs.begin(), after.inputs.end());
    both.outputs.insert(both.outputs.end(), after.outputs.begin(), after.outputs.end());
    for (kernel::Store store : after.stores) {
      store.value += steps;
      store.output += outputs;
      both.stores.push_back(store);
    }
    return both;
  }

  const PackedMatmulKernel& kernel_;
  const PackedMatmulKernel* before_;
  const Target& target_;
  std::size_t steps_before_ = 0;             // of both epilogues, those of `before_`
  int sums_ = 0;                             // over each row of A, where it is computed
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

void render(const PackedMatmulKernel& kernel, const Target& target, Scratch& scratch, Rendered& rendered) {
  if (kernel.m * kernel.n == 0) return;
  const Extent elements = kernel.n * kernel.k;
  const bool unpacks = kernel.m > kFewRows && elements <= kUnpackedMax &&
                       static_cast<std::uint64_t>(elements) * 4 <= target.limits.binding_bytes &&
                       (!kernel.chosen || is_tiled(kernel.m, kernel.n, kernel.k));
  if (!unpacks) return RowsWriter(kernel, target).render(rendered);
  kernel::MatmulKernel plain{.name = kernel.name, .batch = 1, .m = kernel.m, .n = kernel.n, .k = kernel.k};
  plain.a = kernel.a;
  plain.a_row = kernel.a_row;
  plain.b_batch = {{1}, {0}, 0, {}};
  plain.b_row = 1;
  plain.epilogue = kernel.epilogue;
  if (kernel.block_type == BlockType::f32) {  // lies there as it is, but for the ends of rows
    plain.b_col = quant_layout(quant_form(BlockType::f32), kernel.n, kernel.k).blocks * kQuantBlock;
    plain.b = {kernel.weights.buffer, DType::f32, kernel.weights.offset, kernel.n * plain.b_col};
  } else {
    plain.b_col = kernel.k;
    plain.b = scratch.add(DType::f32, elements);
    rendered.dispatches.push_back(unpack(kernel.name + ".unpack", kernel.block_type, kernel.weights, kernel.n, kernel.k,
                                         nullptr, plain.b, kernel.n, target));
  }
  if (!kernel.chosen) return render(plain, target, scratch, rendered);
  const Operand order = scratch.add(DType::u32, kernel.m + 1);
  rendered.dispatches.push_back(order_rows(kernel, order, target));
  render_ordered(plain, order, target, scratch, rendered);
}

namespace {

/// Whether two products have the same A.
bool same_rows(const PackedMatmulKernel& x, const PackedMatmulKernel& y) {
  if (x.rows && y.rows)
    return x.rows->inputs == y.rows->inputs && x.rows->steps == y.rows->steps && x.rows->stores == y.rows->stores;
  return !x.rows && !y.rows && x.a == y.a && x.a_row == y.a_row;
}

}  // namespace

bool render_packed_pair(const PackedMatmulKernel& first, const PackedMatmulKernel& second, const Target& target,
                        Rendered& rendered) {
  if (first.block_type != second.block_type || first.m != second.m || first.chosen != second.chosen ||
      first.chosen_stride != second.chosen_stride || first.n != second.n || first.k != second.k || first.m > kFewRows ||
      first.m * first.n == 0 || !same_rows(first, second))
    return false;
  const kernel::LoopKernel before = without_inner(first.epilogue), after = without_inner(second.epilogue);
  if (before.outputs.size() != 1 || before.stores.size() != 1) return false;
  const Operand& made = before.outputs[0];
  bool is_read = false;
  for (const kernel::Step& step : after.steps) {
    if (step.operand < 0) continue;
    const Operand& input = after.inputs[static_cast<std::size_t>(step.operand)];
    if (input.buffer != made.buffer) continue;
    // Element for element, or it is not at hand.
    if (step.kind != StepKind::load || input != made || !(step.view == before.stores[0].view)) return false;
    is_read = true;
  }
  const auto touches = [](const std::vector<Operand>& operands, int buffer) {
    return std::any_of(operands.begin(), operands.end(), [&](const Operand& o) { return o.buffer == buffer; });
  };
  for (const Operand& out : after.outputs)
    if ((first.rows && touches(first.rows->inputs, out.buffer)) || touches(before.inputs, out.buffer) ||
        out.buffer == made.buffer)
      return false;
  Bindings counted(target, second.name);
  const int runs = PackedReader(first.block_type, first.weights, first.n, first.k, counted).runs();
  const std::size_t bindings = (first.rows ? first.rows->inputs.size() : 1) + (first.chosen ? 1 : 0) +
                               2 * static_cast<std::size_t>(runs) + before.inputs.size() + after.inputs.size() +
                               before.outputs.size() + after.outputs.size();
  if (!is_read || bindings > target.limits.storage_buffers) return false;
  RowsWriter(second, target, &first).render(rendered);
  return true;
}

void render_unpack_rows(const CallKernel& kernel, const Target& target, Rendered& rendered) {
  const auto a = kernel::attributes_of<graph::UnpackRows>(kernel);
  if (kernel.shape().numel() == 0) return;
  rendered.dispatches.push_back(unpack(kernel.name, static_cast<BlockType>(a.block_type), kernel.reads[0], a.n,
                                       kernel.shape()[1], &kernel.reads[1], kernel.out(), kernel.shape()[0], target));
}

}  // namespace weft::webgpu
