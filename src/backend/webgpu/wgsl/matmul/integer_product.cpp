#include "backend/webgpu/wgsl/matmul/integer_product.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "backend/webgpu/wgsl/loop.hpp"
#include "backend/webgpu/wgsl/matmul/as_reduction.hpp"
#include "backend/webgpu/wgsl/matmul/product_writer.hpp"

namespace weft::webgpu {
namespace {

using kernel::Level;
using kernel::LoopKernel;
using kernel::MatmulKernel;
using kernel::Operand;
using kernel::Step;
using kernel::StepKind;

constexpr int kSide = 16, kDeep = 32;  // of matrices: of results, and of k
constexpr Extent kMiddle = 128;        // what u8 is shifted by
constexpr int kPatch = 4;              // results of a thread, down and across, by dots

// With many results, the large tile; its figures are the fastest of a table measured on an H200.
constexpr IntegerTile kLargeTile{128, 128, 128, 64, 64}, kSmallTile{64, 64, 64, 32, 32}, kDotsTile{64, 64, 64, 8, 64};

/// One operand, packed.
struct PackedIntegers {
  Operand words;  // u32, each of four neighbours along k
  Operand sums;   // i32, of each row of A or column of B; without elements where none are needed
  Extent batch = 1, extent = 0;
  bool shifted = false;
};

Operand bytes_of_words(const Operand& words) { return {words.buffer, DType::i8, words.offset * 4, words.count * 4}; }

Step at_inner(Step step) {
  step.level = Level::inner;
  return step;
}

PackedIntegers pack(const MatmulKernel& kernel, const Operand& operand, const kernel::MatrixView& view, Extent extent,
                    Extent depth, char name, bool with_sums, const Target& target, Scratch& scratch,
                    Rendered& rendered) {
  const auto& strides = view.at.batch.strides;
  const bool batched = std::any_of(strides.begin(), strides.end(), [](Extent stride) { return stride != 0; });
  PackedIntegers p{.batch = batched ? kernel.batch : 1, .extent = extent, .shifted = operand.type == DType::u8};
  const Extent lines = p.batch * extent;
  p.words = scratch.add(DType::u32, lines * depth / 4);
  LoopKernel loop;
  loop.name = fmt::format("{}.pack_{}", kernel.name, name);
  loop.outer = lines * depth;
  loop.inputs = {operand};
  kernel::View from{{}, {}, view.at.batch.offset, {}};
  if (batched) from = view.at.batch;
  from.extents.insert(from.extents.end(), {extent, depth});
  from.strides.insert(from.strides.end(), {view.row(), view.column()});
  if (depth != kernel.k) {
    for (const Extent each : from.extents) from.bounds.push_back({0, each});
    from.bounds.back().hi = kernel.k;
  }
  Step load{StepKind::load, DType::i32};
  load.operand = 0, load.view = from;
  loop.steps = {load};
  if (p.shifted) {
    Step middle{StepKind::constant, DType::i32};
    middle.value = kMiddle;
    Step shift{StepKind::map, DType::i32};
    shift.op = scalar::Op::sub, shift.a = 0, shift.b = 1;
    loop.steps.push_back(middle);
    loop.steps.push_back(shift);
  }
  loop.outputs = {bytes_of_words(p.words)};
  loop.stores = {{static_cast<int>(loop.steps.size()) - 1, 0, {{loop.outer}, {1}, 0, {}}}};
  render(loop, target, scratch, rendered);
  if (!with_sums) return p;
  p.sums = scratch.add(DType::i32, lines);
  LoopKernel sum;
  sum.name = fmt::format("{}.sums_{}", kernel.name, name);
  sum.outer = lines, sum.inner = depth;
  sum.inputs = {bytes_of_words(p.words)};
  sum.steps = {at_inner(load_step(DType::i32, 0, {{lines, depth}, {depth, 1}, 0, {}})), sum_step(DType::i32, 0)};
  sum.outputs = {p.sums};
  sum.stores = {{1, 0, {{lines}, {1}, 0, {}}}};
  render(sum, target, scratch, rendered);
  return p;
}

class IntegerWriter : ProductWriter {
 public:
  IntegerWriter(const MatmulKernel& kernel, const IntegerTile& tile, IntegerForm form, const PackedIntegers& a,
                const PackedIntegers& b, Extent depth, const Target& target, Scratch& scratch, Rendered& rendered)
      : ProductWriter(kernel, nullptr, {tile.rows, tile.columns, tile.depth}, 1, 1, target, scratch, rendered),
        tile_(tile),
        form_(form),
        operands_{&a, &b},
        depth_(depth) {
    sum_type_ = DType::i32;
  }

  void render() {
    Bindings bindings(target_, kernel_.name);
    for (int o = 0; o < 2; ++o) {
      handles_[o] = bindings.add(operands_[o]->words, false);
      bindings.want_vectors(handles_[o]);
      sums_[o] = operands_[o]->sums.count > 0 ? bindings.add(operands_[o]->sums, false) : -1;
      if (sums_[o] >= 0) bindings.forbid_vectors(sums_[o]);
    }
    const LoopKernel results = begin_results();
    StepWriter writer(results, bindings, helpers_, results_space(), results_space());
    bindings.resolve();
    ShaderPieces shader{.threads = tile_.threads(), .matrices = form_ == IntegerForm::matrices};
    shader.share("staged", "vec4<u32>", shared_vectors());
    shader.functions.push_back(finish_function(results, writer));
    if (corrects()) shader.functions.push_back(correct_function(bindings));
    write_tile_place();
    line(fmt::format("let line = {};", divided("thread", vectors())));
    line(fmt::format("let vector = {};", modulo("thread", vectors())));
    for (int o = 0; o < 2; ++o) write_places(o, bindings);
    if (form_ == IntegerForm::matrices) {
      const int across = tile_.columns / tile_.subgroup_columns;
      line(fmt::format("let m0 = {} * {}u;", divided("subgroup", across), tile_.subgroup_rows));
      line(fmt::format("let n0 = {} * {}u;", modulo("subgroup", across), tile_.subgroup_columns));
      for (int r = 0; r < down(); ++r)
        for (int c = 0; c < this->across(); ++c)
          line(fmt::format("var sum{}_{}: subgroup_matrix_result<i32, {}, {}>;", r, c, kSide, kSide));
    } else {
      line("let down = thread / 16u; let across = thread % 16u;");
      for (int r = 0; r < kPatch; ++r)
        for (int c = 0; c < kPatch; ++c) line(fmt::format("var sum{}_{} = 0i;", r, c));
    }
    for (int o = 0; o < 2; ++o) write_load(o, "0u", bindings), write_store(o);
    line("workgroupBarrier();");
    const Extent steps = depth_ / tile_.depth;
    if (steps > 1) {
      line(fmt::format("for (var it = 1u; it < {}u; it++) {{", steps));
      for (int o = 0; o < 2; ++o) write_load(o, "it", bindings);
      write_multiply();
      line("workgroupBarrier();");
      for (int o = 0; o < 2; ++o) write_store(o);
      line("workgroupBarrier();");
      line("}");
    }
    write_multiply();
    form_ == IntegerForm::matrices ? write_matrix_results() : write_dot_results();
    add_dispatches(std::move(shader), bindings, form_ == IntegerForm::matrices ? ".matrices" : ".dots");
  }

 private:
  int vectors() const { return tile_.depth / 16; }
  int pitch() const { return vectors() + 1; }
  int lines_of(int o) const { return o == 0 ? tile_.rows : tile_.columns; }
  int loads(int o) const { return lines_of(o) * vectors() / tile_.threads(); }
  int down() const { return tile_.subgroup_rows / kSide; }
  int across() const { return tile_.subgroup_columns / kSide; }
  int result_pitch() const { return tile_.columns / 4 + 2; }
  bool corrects() const { return operands_[0]->shifted || operands_[1]->shifted; }
  Extent shared_vectors() const {
    const int staged = (tile_.rows + tile_.columns) * pitch();
    const int results = form_ == IntegerForm::matrices ? tile_.rows / tile_.subgroup_rows * kSide * result_pitch() : 0;
    return std::max(staged, results);
  }
  static const char* name_of(int o) { return o == 0 ? "a" : "b"; }

  void write_places(int o, const Bindings& bindings) {
    const PackedIntegers& p = *operands_[o];
    const std::string matrix = p.batch > 1 ? fmt::format("b * {}u + ", p.extent) : "";
    for (int i = 0; i < loads(o); ++i) {
      const std::string row = fmt::format("min({} + line + {}u, {}u)", o == 0 ? "row0" : "column0",
                                          i * tile_.threads() / vectors(), p.extent - 1);
      line(fmt::format("let {}_at{} = ({}{}) * {}u + vector + {}u;", name_of(o), i, matrix, row, depth_ / 16,
                       bindings.base(handles_[o]) / 4));
      line(fmt::format("var {}_next{}: vec4<u32>;", name_of(o), i));
    }
  }
  void write_load(int o, const std::string& it, const Bindings& bindings) {
    for (int i = 0; i < loads(o); ++i)
      line(fmt::format("{0}_next{1} = {2}[{0}_at{1} + {3} * {4}u];", name_of(o), i, bindings.array_of(handles_[o]), it,
                       vectors()));
  }
  void write_store(int o) {
    for (int i = 0; i < loads(o); ++i)
      line(fmt::format("$staged[(line + {}u) * {}u + vector] = {}_next{};",
                       (o == 0 ? 0 : tile_.rows) + i * tile_.threads() / vectors(), pitch(), name_of(o), i));
  }

  void write_multiply() { form_ == IntegerForm::matrices ? multiply_matrices() : multiply_dots(); }
  void multiply_matrices() {
    for (int part = 0; part < tile_.depth / kDeep; ++part) {
      line("{");
      for (int r = 0; r < down(); ++r)
        line(
            fmt::format("let a{} = subgroupMatrixLoad<subgroup_matrix_left<i8, {}, {}>, row_major>(&$staged, (m0 + "
                        "{}u) * {}u + {}u, {}u);",
                        r, kDeep, kSide, r * kSide, pitch(), part * kDeep / 16, pitch()));
      for (int c = 0; c < across(); ++c)
        line(
            fmt::format("let b{} = subgroupMatrixLoad<subgroup_matrix_right<i8, {}, {}>, col_major>(&$staged, (n0 + "
                        "{}u) * {}u + {}u, {}u);",
                        c, kSide, kDeep, tile_.rows + c * kSide, pitch(), part * kDeep / 16, pitch()));
      for (int r = 0; r < down(); ++r)
        for (int c = 0; c < across(); ++c)
          line(fmt::format("sum{0}_{1} = subgroupMatrixMultiplyAccumulate(a{0}, b{1}, sum{0}_{1});", r, c));
      line("}");
    }
  }
  void multiply_dots() {
    line(fmt::format("for (var v = 0u; v < {}u; v++) {{", vectors()));
    for (int r = 0; r < kPatch; ++r)
      line(fmt::format("let a{} = $staged[(down + {}u) * {}u + v];", r, 16 * r, pitch()));
    for (int c = 0; c < kPatch; ++c)
      line(fmt::format("let b{} = $staged[(across * {}u + {}u) * {}u + v];", c, kPatch, tile_.rows + c, pitch()));
    for (int r = 0; r < kPatch; ++r)
      for (int c = 0; c < kPatch; ++c)
        line(
            fmt::format("sum{0}_{1} += (dot4I8Packed(a{0}.x, b{1}.x) + dot4I8Packed(a{0}.y, b{1}.y)) + "
                        "(dot4I8Packed(a{0}.z, b{1}.z) + dot4I8Packed(a{0}.w, b{1}.w));",
                        r, c));
    line("}");
  }

  // What the shifts have taken: (a' + s)(b' + t) = a' b' + s b' + t a' + s t, summed over k.
  ShaderPieces::Function correct_function(const Bindings& bindings) const {
    const auto sum_at = [&](int o, const std::string& at) {
      const PackedIntegers& p = *operands_[o];
      return fmt::format("{}i * {}", kMiddle,
                         bindings.load(sums_[o], fmt::format("{}min({}, {}u) + {}u",
                                                             p.batch > 1 ? fmt::format("b * {}u + ", p.extent) : "", at,
                                                             p.extent - 1, bindings.base(sums_[o]))));
    };
    std::string text = "(b: u32, i: u32, j: u32, sums: vec4<i32>) -> vec4<i32> {\n  var more = vec4<i32>();\n";
    if (operands_[0]->shifted)
      text += fmt::format("  more += vec4<i32>({}, {}, {}, {});\n", sum_at(1, "j"), sum_at(1, "j + 1u"),
                          sum_at(1, "j + 2u"), sum_at(1, "j + 3u"));
    if (operands_[1]->shifted) text += fmt::format("  more += vec4<i32>({});\n", sum_at(0, "i"));
    if (operands_[0]->shifted && operands_[1]->shifted)
      text += fmt::format("  more += vec4<i32>(bitcast<i32>({}u));\n",
                          static_cast<std::uint32_t>(kMiddle * kMiddle * depth_));
    return {"corrected", text + "  return sums + more;\n}\n"};
  }
  void write_finish(const std::string& sums) {
    line(fmt::format("let made = {};", corrects() ? fmt::format("$corrected(b, i, j, {})", sums) : sums));
    if (wide()) return line(fmt::format("$finish({}i, j, made);", finish_batch()));
    for (int e = 0; e < 4; ++e) line(fmt::format("$finish({}i, j + {}u, made.{});", finish_batch(), e, "xyzw"[e]));
  }

  // Sixteen rows of each subgroup at a time go through workgroup memory.
  void write_matrix_results() {
    const int sideways = tile_.columns / tile_.subgroup_columns, rows = tile_.rows / tile_.subgroup_rows * kSide;
    const int fours = tile_.columns / 4;
    for (int r = 0; r < down(); ++r) {
      line("workgroupBarrier();");
      for (int c = 0; c < across(); ++c)
        line(fmt::format("subgroupMatrixStore<row_major>(&$staged, {} * {}u + n0 / 4u + {}u, sum{}_{}, {}u);",
                         divided("subgroup", sideways), kSide * result_pitch(), c * kSide / 4, r, c, result_pitch()));
      line("workgroupBarrier();");
      line(fmt::format("for (var at = thread; at < {}u; at += {}u) {{", rows * fours, tile_.threads()));
      line(fmt::format("let r = {};", divided("at", fours)));
      line(fmt::format("let c = {};", modulo("at", fours)));
      line(fmt::format("let i = row0 + {} * {}u + {}u + {};", divided("r", kSide), tile_.subgroup_rows, r * kSide,
                       modulo("r", kSide)));
      line("let j = column0 + c * 4u;");
      write_finish(fmt::format("bitcast<vec4<i32>>($staged[r * {}u + c])", result_pitch()));
      line("}");
    }
  }
  void write_dot_results() {
    for (int r = 0; r < kPatch; ++r) {
      line("{");
      line(fmt::format("let i = row0 + down + {}u;", 16 * r));
      line(fmt::format("let j = column0 + across * {}u;", kPatch));
      write_finish(fmt::format("vec4<i32>(sum{0}_0, sum{0}_1, sum{0}_2, sum{0}_3)", r));
      line("}");
    }
  }

  const IntegerTile& tile_;
  IntegerForm form_;
  const PackedIntegers* operands_[2];
  Extent depth_;
  int handles_[2] = {-1, -1}, sums_[2] = {-1, -1};
};

}  // namespace

bool suits_integers(const MatmulKernel& kernel) {
  const auto suits = [](const Operand& operand, const kernel::MatrixView& view) {
    return (operand.type == DType::i8 || operand.type == DType::u8) && view.is_plain() && view.at.batch.bounds.empty();
  };
  return kernel.k > 0 && suits(kernel.a, kernel.a_view) && suits(kernel.b, kernel.b_view);
}

void render_integers(const MatmulKernel& kernel, IntegerForm form, const Target& target, Scratch& scratch,
                     Rendered& rendered) {
  if (kernel.batch * kernel.m * kernel.n == 0) return;
  const bool many = kernel.batch * divide_up(kernel.m, kLargeTile.rows) * divide_up(kernel.n, kLargeTile.columns) >=
                    target.profile.compute_units;
  const IntegerTile& tile = form == IntegerForm::dots ? kDotsTile : many ? kLargeTile : kSmallTile;
  const Extent depth = divide_up(kernel.k, tile.depth) * tile.depth;
  const bool a_shifted = kernel.a.type == DType::u8, b_shifted = kernel.b.type == DType::u8;
  const PackedIntegers a =
      pack(kernel, kernel.a, kernel.a_view, kernel.m, depth, 'a', b_shifted, target, scratch, rendered);
  const PackedIntegers b =
      pack(kernel, kernel.b, kernel.b_view.transposed(), kernel.n, depth, 'b', a_shifted, target, scratch, rendered);
  IntegerWriter(kernel, tile, form, a, b, depth, target, scratch, rendered).render();
}

}  // namespace weft::webgpu
