#include "backend/webgpu/wgsl/matmul.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <limits>

#include "backend/webgpu/wgsl/loop.hpp"
#include "backend/webgpu/wgsl/steps.hpp"
#include "weft/error.hpp"

namespace weft::webgpu {
namespace {

using kernel::Level;
using kernel::LoopKernel;
using kernel::MatmulKernel;
using kernel::Step;
using kernel::StepKind;

// Larger tiles reuse more, smaller ones fill the device sooner. Measured on an H200 at 4096.
constexpr int kPatchRows = 4, kPatchColumns = 8;  // threads
constexpr Tile kTiles[] = {
    {"128x128x16", MathUnit::f32_registers, 128, 128, 16, 8, 8, 0.75, 2},
    {"128x64x16", MathUnit::f32_registers, 128, 64, 16, 8, 8, 0.72, 4},
    {"64x128x16", MathUnit::f32_registers, 64, 128, 16, 8, 8, 0.71, 4},
    {"64x64x16", MathUnit::f32_registers, 64, 64, 16, 8, 4, 0.66, 5},
    {"64x64x16s", MathUnit::f32_registers, 64, 64, 16, 4, 4, 0.45, 4},
    {"64x32x16", MathUnit::f32_registers, 64, 32, 16, 4, 4, 0.42, 8},
    {"32x64x16", MathUnit::f32_registers, 32, 64, 16, 4, 4, 0.42, 8},
    {"32x32x16", MathUnit::f32_registers, 32, 32, 16, 4, 4, 0.38, 14},
};

// The device that the estimate knows: H100/H200.
constexpr double kPeakFlopsPerMultiprocessor = 67e12 / 132;
constexpr double kBytesPerSecond = 2.5e12;
constexpr double kDispatchMicroseconds = 4.5;  // with the first read and the last write
constexpr double kJoinMicroseconds = 5;        // of the second dispatch that a split needs
// Kernels of fewer products are written compactly, those of more products for the most speed.
constexpr double kCompactProducts = 0x1p30, kWrittenTwiceProducts = 0x1p35;
constexpr std::size_t kWrittenEpilogueSteps = 6;  // longer epilogues stand in the text once, in a loop over the results
constexpr double kCyclesPerMicrosecond = 1700, kStepCycles = 10, kProductCycles = 1.25;  // of one thread and one k
constexpr double kStepMicroseconds = 0.35;  // one step of k in a multiprocessor that has little else to do

bool fits(const Tile& tile, const Target& target) {
  return tile.workgroup_bytes() <= static_cast<int>(target.limits.workgroup_bytes) &&
         tile.threads() <= static_cast<int>(target.limits.workgroup_invocations);
}

// --- The product as a reduction ---------------------------------------------------------------------------------------

kernel::View with_inner_dims(const kernel::View& batch, std::initializer_list<std::pair<Extent, Extent>> dims) {
  kernel::View view = batch;
  for (const auto& [extent, stride] : dims) {
    view.extents.push_back(extent);
    view.strides.push_back(stride);
    if (!batch.bounds.empty()) view.bounds.push_back({0, extent});
  }
  return view;
}

/// Appends the epilogue's steps and stores to a kernel whose step `product` is the matrix product.
void append_epilogue(LoopKernel& loop, const LoopKernel& given, int product) {
  const LoopKernel epilogue = without_inner(given);
  const int input_shift = static_cast<int>(loop.inputs.size());
  loop.inputs.insert(loop.inputs.end(), epilogue.inputs.begin(), epilogue.inputs.end());
  loop.outputs = epilogue.outputs;
  const int step_shift = static_cast<int>(loop.steps.size());
  for (Step step : epilogue.steps) {
    for (int* operand : {&step.a, &step.b, &step.c})
      if (*operand >= 0) *operand += step_shift;
    if (step.operand >= 0) step.operand += input_shift;
    if (step.kind == StepKind::accumulator) {
      step.kind = StepKind::map;
      step.op = scalar::Op::cast;
      step.a = product;
    }
    loop.steps.push_back(step);
  }
  for (kernel::Store store : epilogue.stores) {
    store.value += step_shift;
    loop.stores.push_back(store);
  }
}

Step load_step(DType type, int operand, kernel::View view) {
  Step step{StepKind::load, type, Level::inner};
  step.operand = operand;
  step.view = std::move(view);
  return step;
}

Step sum_step(DType type, int of) {
  Step step{StepKind::reduce, type, Level::outer};
  step.a = of;
  return step;
}

void render_as_reduction(const MatmulKernel& kernel, const Target& target, Scratch& scratch, Rendered& rendered) {
  LoopKernel loop;
  loop.name = kernel.name;
  loop.outer = kernel.batch * kernel.m * kernel.n;
  loop.inner = kernel.k;
  loop.inputs = {kernel.a, kernel.b};
  const DType type = kernel.a.type;
  loop.steps.push_back(load_step(
      type, 0, with_inner_dims(kernel.a_batch, {{kernel.m, kernel.a_row}, {kernel.n, 0}, {kernel.k, kernel.a_col}})));
  loop.steps.push_back(load_step(
      type, 1, with_inner_dims(kernel.b_batch, {{kernel.m, 0}, {kernel.n, kernel.b_col}, {kernel.k, kernel.b_row}})));
  Step multiply{StepKind::map, type, Level::inner};
  multiply.op = scalar::Op::mul;
  multiply.a = 0;
  multiply.b = 1;
  loop.steps.push_back(multiply);
  loop.steps.push_back(sum_step(type, 2));
  append_epilogue(loop, kernel.epilogue, 3);
  render(loop, target, scratch, rendered);
}

// --- The tiled product ------------------------------------------------------------------------------------------------

/// How one operand travels from its buffer to workgroup memory, where it lies with one k a line.
struct Staging {
  char name;  // 'a' or 'b'
  int handle = -1;
  Extent extent = 0;  // rows of A or columns of B
  Extent stride = 0, k_stride = 0;
  int tile = 0;            // of that extent
  bool along_k = false;    // neighbouring elements follow k: transposed on the way
  bool vectors = false;    // read in aligned groups of four
  bool reordered = false;  // rows come in another order
  std::string batch_offset;

  int pitch() const { return tile / 4 + (along_k ? 1 : 0); }                  // groups of four from one k to the next
  int line_vectors(int depth) const { return (along_k ? depth : tile) / 4; }  // in one line as read
  bool guarded() const { return extent % tile != 0; }
};

class TileWriter {
 public:
  /// `order`: see render_ordered; or null.
  TileWriter(const MatmulKernel& kernel, const kernel::Operand* order, const Tile& tile, int split,
             const Target& target, Scratch& scratch, Rendered& rendered)
      : kernel_(kernel),
        order_(order),
        tile_(tile),
        split_(split),
        target_(target),
        scratch_(scratch),
        rendered_(rendered) {
    const Extent steps = divide_up(kernel.k, tile.depth);
    steps_per_split_ = divide_up(steps, split);
    split_ = static_cast<int>(divide_up(steps, steps_per_split_));  // none is empty
  }

  void render() {
    Bindings bindings(target_, kernel_.name);
    Helpers helpers;
    Staging a = stage('a', kernel_.a, kernel_.m, kernel_.a_row, kernel_.a_col, tile_.rows, kernel_.a_batch, bindings);
    Staging b =
        stage('b', kernel_.b, kernel_.n, kernel_.b_col, kernel_.b_row, tile_.columns, kernel_.b_batch, bindings);
    const int order = order_ ? bindings.add(*order_, false) : -1;

    LoopKernel epilogue = without_inner(kernel_.epilogue), join;
    std::vector<Axis> axes = {{"b", kernel_.batch}, {"i", kernel_.m}, {"j", kernel_.n}};
    if (split_ > 1) {
      const Extent results = kernel_.batch * kernel_.m * kernel_.n;
      const kernel::Operand partial = scratch_.add(DType::f32, results * split_);
      join = join_kernel(partial, results);
      epilogue = partial_kernel(partial, results);
      axes.insert(axes.begin(), {"s", split_});
    }
    const bool wide = kernel_.n % 4 == 0;
    const Space space{axes, wide ? static_cast<int>(axes.size()) - 1 : -1};
    StepWriter writer(epilogue, bindings, helpers, space, space);
    bindings.resolve();
    locate_batch(a, kernel_.a_batch, bindings);
    locate_batch(b, kernel_.b_batch, bindings);

    if (order_) {
      const auto at = [&](const std::string& i) {
        return bindings.load(order, fmt::format("{} + {}u", i, bindings.base(order)));
      };
      text_ = fmt::format("fn row_at(slot: u32) -> u32 {{ return {}; }}\nfn chosen_rows() -> u32 {{ return {}; }}\n",
                          at("slot"), at(fmt::format("{}u", kernel_.m)));
    }
    const std::string finish = finish_function(epilogue, writer, helpers, wide);
    const Extent tiles_m = divide_up(kernel_.m, tile_.rows), tiles_n = divide_up(kernel_.n, tile_.columns);
    const auto groups = static_cast<std::uint64_t>(tiles_m * tiles_n * kernel_.batch * split_);
    const WorkgroupNumber number = workgroup_number(groups, target_);

    text_ = bindings.declarations() + helpers.text() + text_;
    if (order_) text_ += "var<workgroup> shared_rows: array<u32, 1>;\n";
    for (const Staging* s : {&a, &b})
      text_ += fmt::format("var<workgroup> shared_{}: array<vec4f, {}>;\n", s->name, tile_.depth * s->pitch());
    text_ += finish;
    text_ += fmt::format("@compute @workgroup_size({})\nfn main({}) {{\n  let group = {};\n{}", tile_.threads(),
                         number.parameters, number.text, number.guard);
    write_place(tiles_m, tiles_n);
    for (const Staging* s : {&a, &b}) write_staging_places(*s);
    write_registers(a, b);
    if (order_) {
      // Through workgroup memory, as what is read of a buffer may differ between threads for all a compiler knows.
      line("if (thread == 0u) { shared_rows[0] = chosen_rows(); }");
      line("if (row0 < workgroupUniformLoad(&shared_rows[0])) {");
    }
    write_product(a, b, bindings);
    if (order_) line("}");
    write_results(wide);
    text_ += "}\n";
    rendered_.dispatches.push_back(
        {split_ > 1 ? kernel_.name + ".part" : kernel_.name, std::move(text_), bindings.ranges(), groups});
    if (split_ > 1) webgpu::render(join, target_, scratch_, rendered_);
  }

 private:
  static bool by_fours(const kernel::View& view) {
    return view.bounds.empty() && view.offset % 4 == 0 &&
           std::all_of(view.strides.begin(), view.strides.end(), [](Extent stride) { return stride % 4 == 0; });
  }

  Staging stage(char name, const kernel::Operand& operand, Extent extent, Extent stride, Extent k_stride, int tile,
                const kernel::View& batch, Bindings& bindings) {
    Staging s{name, bindings.add(operand, false), extent, stride, k_stride, tile};
    s.along_k = stride != 1 && (k_stride == 1 || std::abs(k_stride) < std::abs(stride));
    const Extent along = s.along_k ? k_stride : stride, across = s.along_k ? stride : k_stride;
    s.reordered = order_ && name == 'a';
    s.vectors = along == 1 && across % 4 == 0 && (s.along_k || !s.reordered) && operand.offset % 4 == 0 &&
                (s.along_k ? kernel_.k : extent) % 4 == 0 && by_fours(batch);
    if (s.vectors) bindings.want_vectors(s.handle);
    return s;
  }

  void locate_batch(Staging& s, const kernel::View& batch, const Bindings& bindings) {
    s.vectors = s.vectors && bindings.has_vectors(s.handle);
    s.batch_offset = Index(batch, {{{"b", kernel_.batch}}, -1}).offset(bindings.base(s.handle));
  }

  LoopKernel partial_kernel(const kernel::Operand& partial, Extent results) const {
    LoopKernel kernel;
    kernel.name = kernel_.name;
    kernel.outer = results * split_;
    kernel.outputs = {partial};
    kernel.steps = {Step{StepKind::accumulator, DType::f32, Level::outer}};
    kernel.stores = {{0, 0, {{kernel.outer}, {1}, 0, {}}}};
    return kernel;
  }

  LoopKernel join_kernel(const kernel::Operand& partial, Extent results) const {
    LoopKernel kernel;
    kernel.name = kernel_.name + ".join";
    kernel.outer = results;
    kernel.inner = split_;
    kernel.inputs = {partial};
    kernel.steps.push_back(load_step(DType::f32, 0, {{results, split_}, {1, results}, 0, {}}));
    kernel.steps.push_back(sum_step(DType::f32, 0));
    append_epilogue(kernel, kernel_.epilogue, 1);
    return kernel;
  }

  // One call takes four results of a row (or one, where n is not a multiple of four) through the epilogue.
  std::string finish_function(const LoopKernel& epilogue, StepWriter& writer, Helpers& helpers, bool wide) const {
    const std::vector<bool> needed = needed_steps(epilogue);
    std::vector<std::string> lanes{"v"};
    if (wide) lanes = {"v.x", "v.y", "v.z", "v.w"};
    for (std::size_t s = 0; s < epilogue.steps.size(); ++s) {
      if (!needed[s]) continue;
      if (epilogue.steps[s].kind != StepKind::accumulator) {
        writer.write(static_cast<int>(s));
        continue;
      }
      std::vector<std::string> values;
      for (const std::string& lane : lanes)
        values.push_back(render_cast({lane, DType::f32, {}}, epilogue.steps[s].type, helpers));
      writer.define(static_cast<int>(s), values);
    }
    for (const kernel::Store& store : epilogue.stores) writer.write_store(store);
    std::string guard;
    const char* row = order_ ? "slot" : "i";
    const char* type = wide ? "vec4f" : "f32";
    if (kernel_.m % tile_.rows != 0) guard += fmt::format("{} >= {}u", row, kernel_.m);
    if (kernel_.n % tile_.columns != 0) guard += fmt::format("{}j >= {}u", guard.empty() ? "" : " || ", kernel_.n);
    if (!guard.empty()) guard = fmt::format("  if ({}) {{ return; }}\n", guard);
    if (order_)
      guard += fmt::format("  let i = row_at(slot);\n  let v = select({}(), made, slot < chosen_rows());\n", type);
    return fmt::format("fn finish({}b: u32, {}: u32, j: u32, {}: {}) {{\n{}{}}}\n", split_ > 1 ? "s: u32, " : "", row,
                       order_ ? "made" : "v", type, guard, writer.take_text());
  }

  void line(const std::string& text) { text_ += "  " + text + "\n"; }

  // Which tile this workgroup computes, and which results this thread. Workgroups take tiles in groups of up to eight rows of
  // tiles, so that those at work at one time share what they read.
  void write_place(Extent tiles_m, Extent tiles_n) {
    Extent together = 8;
    while (tiles_m % together != 0) --together;
    const Extent tiles = tiles_m * tiles_n;
    line(fmt::format("let tile = {};", modulo("group", tiles)));
    const std::string rest = divided("group", tiles);
    if (split_ > 1) line(fmt::format("let s = {};", modulo(rest, split_)));
    line(fmt::format("let b = {};", kernel_.batch == 1 ? "0u" : divided(rest, split_)));
    const std::string within = modulo("tile", together * tiles_n);
    line(fmt::format("let row0 = ({} * {}u + {}) * {}u;", divided("tile", together * tiles_n), together,
                     modulo(within, together), tile_.rows));
    line(fmt::format("let column0 = {} * {}u;", divided(within, together), tile_.columns));
    const int patches = tile_.columns / (kPatchColumns * tile_.thread_columns);  // side by side
    // Numbers down and across a patch alternate in the lowest bits of a thread's: four neighbours then read two vectors of
    // either operand, which workgroup memory serves in half the time.
    line("let patch_number = thread / 32u;");
    line("let place = thread % 32u;");
    line(fmt::format("let m0 = {} * {}u + (((place >> 1u) & 1u) | ((place >> 3u) & 2u));",
                     divided("patch_number", patches), kPatchRows * tile_.thread_rows / 4));
    line(fmt::format("let n0 = {} * {}u + ((place & 1u) | ((place >> 1u) & 6u));", modulo("patch_number", patches),
                     kPatchColumns * tile_.thread_columns / 4));
  }

  int loads(const Staging& s) const { return s.tile * tile_.depth / 4 / tile_.threads(); }  // of a thread, a tile
  int lines_apart(const Staging& s) const {
    return tile_.threads() / s.line_vectors(tile_.depth);
  }  // from one load to the next

  /// Whether loads stand at fixed distances, all of them inside the operand: one address is enough, and registers are few.
  bool is_flat(const Staging& s) const {
    return s.vectors && !s.reordered && !s.guarded() && kernel_.k % tile_.depth == 0;
  }
  // Vectors from one line of a flat operand to the next.
  static std::string line_stride(const Staging& s) {
    return fmt::format("{}u", static_cast<std::uint32_t>((s.along_k ? s.stride : s.k_stride) / 4));
  }

  // The part of addresses that does not change with k: one for each load where rows have to be clamped to the operand.
  void write_staging_places(const Staging& s) {
    const std::string first = s.name == 'a' ? "row0" : "column0";
    const std::string last = fmt::format("{}u", s.extent - 1);
    line(fmt::format("let {}_line = {};", s.name, divided("thread", s.line_vectors(tile_.depth))));
    line(fmt::format("let {}_vector = {};", s.name, modulo("thread", s.line_vectors(tile_.depth))));
    const auto clamped = [&](const std::string& at) {
      const std::string inside = s.guarded() ? fmt::format("min({}, {})", at, last) : at;
      return s.reordered ? fmt::format("row_at({})", inside) : inside;
    };
    if (is_flat(s)) {
      const std::string lines =
          s.along_k ? fmt::format("({} + {}_line)", first, s.name) : fmt::format("{}_line", s.name);
      line(fmt::format("let {0}_at = ({1}) / 4u + {2} * {3} + {4}{0}_vector;", s.name, s.batch_offset, lines,
                       line_stride(s), s.along_k ? "" : first + " / 4u + "));
    } else if (s.along_k) {
      for (int i = 0; i < loads(s); ++i) {
        const std::string at = clamped(fmt::format("{} + {}_line + {}u", first, s.name, i * lines_apart(s)));
        line(fmt::format("let {}_at{} = ({} + ({}) * {}u){};", s.name, i, s.batch_offset, at,
                         static_cast<std::uint32_t>(s.stride), s.vectors ? " / 4u" : ""));
      }
    } else if (s.vectors) {
      const std::string at = s.guarded() ? fmt::format("min({} / 4u + {}_vector, {}u)", first, s.name, s.extent / 4 - 1)
                                         : fmt::format("{} / 4u + {}_vector", first, s.name);
      line(fmt::format("let {}_at0 = ({}) / 4u + {};", s.name, s.batch_offset, at));
    } else {
      for (int e = 0; e < 4; ++e)
        line(fmt::format("let {}_at{} = {} + ({}) * {}u;", s.name, e, s.batch_offset,
                         clamped(fmt::format("{} + {}_vector * 4u + {}u", first, s.name, e)),
                         static_cast<std::uint32_t>(s.stride)));
    }
  }

  std::string k_end() const { return fmt::format("{}u", kernel_.k); }

  // Reads step `step` of k into this thread's registers. Beyond k both operands are zero.
  void write_loads(const Staging& s, const std::string& step, const Bindings& bindings, const std::string& indent) {
    const bool guarded = kernel_.k % tile_.depth != 0;
    const auto emit = [&](const std::string& text) { text_ += indent + text + "\n"; };
    const auto k_stride = [&](Extent by) { return fmt::format("{}u", static_cast<std::uint32_t>(s.k_stride / by)); };
    const auto inside = [&](const std::string& k, const std::string& value, const char* zero) {
      return guarded ? fmt::format("select({}, {}, {} < {})", zero, value, k, k_end()) : value;
    };
    for (int i = 0; i < loads(s); ++i) {
      const std::string target = fmt::format("{}_next{}", s.name, i);
      if (is_flat(s)) {
        const Extent ahead = s.along_k ? tile_.depth / 4 : tile_.depth * s.k_stride / 4;
        const Extent apart = i * lines_apart(s) * (s.along_k ? s.stride : s.k_stride) / 4;
        emit(fmt::format("{} = {};", target,
                         bindings.vector(s.handle, fmt::format("{}_at + {} * {}u + {}u", s.name, step,
                                                               static_cast<std::uint32_t>(ahead),
                                                               static_cast<std::uint32_t>(apart)))));
      } else if (s.along_k && s.vectors) {
        const std::string k = fmt::format("({} * {}u + {}_vector * 4u)", step, tile_.depth, s.name);
        const std::string vector = fmt::format("({} * {}u + {}_vector)", step, tile_.depth / 4, s.name);
        const std::string at = guarded ? fmt::format("min({}, {}u)", vector, kernel_.k / 4 - 1) : vector;
        emit(fmt::format("{} = {};", target,
                         inside(k, bindings.vector(s.handle, fmt::format("{}_at{} + {}", s.name, i, at)), "vec4f()")));
      } else if (s.vectors) {
        const std::string k = fmt::format("({} * {}u + {}_line + {}u)", step, tile_.depth, s.name, i * lines_apart(s));
        const std::string at = guarded ? fmt::format("min({}, {}u)", k, kernel_.k - 1) : k;
        emit(fmt::format(
            "{} = {};", target,
            inside(k, bindings.vector(s.handle, fmt::format("{}_at0 + {} * {}", s.name, at, k_stride(4))), "vec4f()")));
      } else {
        std::string values;
        for (int e = 0; e < 4; ++e) {
          const std::string k =
              s.along_k ? fmt::format("({} * {}u + {}_vector * 4u + {}u)", step, tile_.depth, s.name, e)
                        : fmt::format("({} * {}u + {}_line + {}u)", step, tile_.depth, s.name, i * lines_apart(s));
          const std::string at = guarded ? fmt::format("min({}, {}u)", k, kernel_.k - 1) : k;
          const std::string index = fmt::format("{}_at{} + {} * {}", s.name, s.along_k ? i : e, at, k_stride(1));
          values += (e ? ", " : "") + inside(k, bindings.load(s.handle, index), "0f");
        }
        emit(fmt::format("{} = vec4f({});", target, values));
      }
    }
  }

  void write_shared(const Staging& s, const std::string& indent) {
    for (int i = 0; i < loads(s); ++i) {
      const int apart = i * lines_apart(s);
      if (!s.along_k) {
        text_ += fmt::format("{}shared_{}[({}_line + {}u) * {}u + {}_vector] = {}_next{};\n", indent, s.name, s.name,
                             apart, s.pitch(), s.name, s.name, i);
        continue;
      }
      for (int e = 0; e < 4; ++e)
        text_ += fmt::format(
            "{0}shared_{1}[({1}_vector * 4u + {2}u) * {3}u + ({1}_line + {4}u) / 4u][{1}_line % 4u] = "
            "{1}_next{5}.{6};\n",
            indent, s.name, e, s.pitch(), apart, i, "xyzw"[e]);
    }
  }

  int row_groups() const { return tile_.thread_rows / 4; }
  int column_groups() const { return tile_.thread_columns / 4; }

  // The steps of k in workgroup memory: 4 x 4 products of a row group and a column group each.
  void write_multiply(const Staging& a, const Staging& b, const std::string& indent) {
    const int written = !target_.unroll ? 1 : compact() ? 4 : tile_.depth;
    const bool loops = written < tile_.depth;
    if (loops) text_ += fmt::format("{}for (var k = 0u; k < depth; k += {}u) {{\n", indent, written);
    for (int k = 0; k < written; ++k) {
      text_ += indent + "{\n";
      const auto line_of = [&](const Staging& s, int group) {
        return loops ? fmt::format("(k + {}u) * {}u + {}u", k, s.pitch(), group)
                     : fmt::format("{}u", k * s.pitch() + group);
      };
      for (int g = 0; g < row_groups(); ++g)
        text_ += fmt::format("{}  let a{} = shared_a[m0 + {}];\n", indent, g, line_of(a, g * kPatchRows));
      for (int h = 0; h < column_groups(); ++h)
        text_ += fmt::format("{}  let b{} = shared_b[n0 + {}];\n", indent, h, line_of(b, h * kPatchColumns));
      for (int r = 0; r < tile_.thread_rows; ++r)
        for (int h = 0; h < column_groups(); ++h)
          text_ += fmt::format("{0}  c{1}_{2} = fma(vec4f(a{3}.{4}), b{2}, c{1}_{2});\n", indent, r, h, r / 4,
                               "xyzw"[r % 4]);
      text_ += indent + "}\n";
    }
    if (loops) text_ += indent + "}\n";
  }

  void write_registers(const Staging& a, const Staging& b) {
    for (int r = 0; r < tile_.thread_rows; ++r)
      for (int h = 0; h < column_groups(); ++h) line(fmt::format("var c{}_{} = vec4f();", r, h));
    for (const Staging* s : {&a, &b})
      for (int i = 0; i < loads(*s); ++i) line(fmt::format("var {}_next{}: vec4f;", s->name, i));
  }

  // One buffer in workgroup memory; the next step is read into registers while this one is multiplied.
  void write_product(const Staging& a, const Staging& b, const Bindings& bindings) {
    const Extent steps = divide_up(kernel_.k, tile_.depth);
    std::string first = "0u", end = fmt::format("{}u", steps);
    if (split_ > 1) {
      line(fmt::format("let first = s * {}u;", steps_per_split_));
      first = "first";
      end = steps % steps_per_split_ == 0 ? fmt::format("first + {}u", steps_per_split_)
                                          : fmt::format("min(first + {}u, {}u)", steps_per_split_, steps);
    }
    if (!target_.unroll) return write_plain_loop(a, b, bindings, first, end);
    if (compact()) line(opaque_depth());
    for (const Staging* s : {&a, &b}) write_loads(*s, first, bindings, "  ");
    for (const Staging* s : {&a, &b}) write_shared(*s, "  ");
    line("workgroupBarrier();");
    if (steps_per_split_ == 1) return write_multiply(a, b, "  ");
    if (written_twice()) {
      line(fmt::format("for (var step = {} + 1u; step < {}; step++) {{", first, end));
      for (const Staging* s : {&a, &b}) write_loads(*s, "step", bindings, "    ");
      write_multiply(a, b, "    ");
      line("  workgroupBarrier();");
      for (const Staging* s : {&a, &b}) write_shared(*s, "    ");
      line("  workgroupBarrier();");
      line("}");
      return write_multiply(a, b, "  ");
    }
    line(fmt::format("for (var step = {} + 1u; step <= {}; step++) {{", first, end));
    line(fmt::format("  let more = step < {};", end));
    line("  if (more) {");
    for (const Staging* s : {&a, &b}) write_loads(*s, "step", bindings, "      ");
    line("  }");
    write_multiply(a, b, "    ");
    line("  workgroupBarrier();");
    line("  if (more) {");
    for (const Staging* s : {&a, &b}) write_shared(*s, "      ");
    line("  }");
    line("  workgroupBarrier();");
    line("}");
  }

  // A kernel that runs for microseconds spends them on fetching its instructions, so there had better be few.
  bool compact() const { return target_.unroll && products() < kCompactProducts; }
  // The last step apart from the loop, so that the loop has no branch: some percent faster, and slower to compile.
  bool written_twice() const { return products() >= kWrittenTwiceProducts; }
  double products() const {
    return static_cast<double>(kernel_.batch * kernel_.m * kernel_.n) * static_cast<double>(kernel_.k);
  }
  // The depth, kept from compilers (a thread has a number below 2^16), lest they unroll the loop over it.
  std::string opaque_depth() const { return fmt::format("let depth = {}u + (thread >> 16u);", tile_.depth); }

  // The least text, for compilers that are slow: nothing is read ahead.
  void write_plain_loop(const Staging& a, const Staging& b, const Bindings& bindings, const std::string& first,
                        const std::string& end) {
    line(opaque_depth());
    line(fmt::format("for (var step = {}; step < {}; step++) {{", first, end));
    for (const Staging* s : {&a, &b}) write_loads(*s, "step", bindings, "    ");
    for (const Staging* s : {&a, &b}) write_shared(*s, "    ");
    line("  workgroupBarrier();");
    write_multiply(a, b, "    ");
    line("  workgroupBarrier();");
    line("}");
  }

  void write_results(bool wide) {
    if (!target_.unroll || (split_ == 1 && kernel_.epilogue.steps.size() > kWrittenEpilogueSteps))
      return write_results_in_loop(wide);
    for (int r = 0; r < tile_.thread_rows; ++r)
      for (int h = 0; h < column_groups(); ++h) {
        const std::string where = fmt::format("{}b, row0 + (m0 + {}u) * 4u + {}u, column0 + (n0 + {}u) * 4u",
                                              split_ > 1 ? "s, " : "", r / 4 * kPatchRows, r % 4, h * kPatchColumns);
        if (wide) {
          line(fmt::format("finish({}, c{}_{});", where, r, h));
        } else {
          for (int e = 0; e < 4; ++e) line(fmt::format("finish({} + {}u, c{}_{}.{});", where, e, r, h, "xyzw"[e]));
        }
      }
  }

  // One call in the text, as compilers copy the epilogue to each.
  void write_results_in_loop(bool wide) {
    std::string all;
    for (int r = 0; r < tile_.thread_rows; ++r)
      for (int h = 0; h < column_groups(); ++h) all += fmt::format("{}c{}_{}", all.empty() ? "" : ", ", r, h);
    const int count = tile_.thread_rows * column_groups();
    line(fmt::format("var results = array<vec4f, {}>({});", count, all));
    line(fmt::format("for (var at = 0u; at < {}u + (thread >> 16u); at++) {{", count));
    line(fmt::format("  let r = {};", divided("at", column_groups())));
    line(fmt::format("  let i = row0 + (m0 + (r >> 2u) * {}u) * 4u + (r & 3u);", kPatchRows));
    line(fmt::format("  let j = column0 + (n0 + {} * {}u) * 4u;", modulo("at", column_groups()), kPatchColumns));
    const std::string place = split_ > 1 ? "s, b, i, " : "b, i, ";
    line(wide ? fmt::format("  finish({}j, results[at]);", place)
              : fmt::format("  for (var e = 0u; e < 4u + (thread >> 16u); e++) {{ finish({}j + e, results[at][e]); }}",
                            place));
    line("}");
  }

  const MatmulKernel& kernel_;
  const kernel::Operand* order_;
  const Tile& tile_;
  int split_;
  Extent steps_per_split_ = 1;
  const Target& target_;
  Scratch& scratch_;
  Rendered& rendered_;
  std::string text_;
};

}  // namespace

std::span<const Tile> tiles() { return kTiles; }

double estimate(const Tile& tile, int split, Extent batch, Extent m, Extent n, Extent k, const Target& target) {
  const double groups = static_cast<double>(divide_up(m, tile.rows) * divide_up(n, tile.columns) * batch) * split;
  const double steps = static_cast<double>(divide_up(divide_up(k, tile.depth), split));
  const double alone =
      2.0 * tile.rows * tile.columns * tile.depth * steps / (kPeakFlopsPerMultiprocessor * tile.efficiency) * 1e6;
  const double slots = static_cast<double>(target.multiprocessors) * tile.resident;
  const double full = std::floor(groups / slots);
  // In the last round a multiprocessor that holds few workgroups waits: for memory, and each thread for its own results.
  const double last = std::ceil((groups - full * slots) / target.multiprocessors);
  const double thread_alone = steps * tile.depth *
                              (kStepCycles + kProductCycles * tile.thread_rows * tile.thread_columns) /
                              kCyclesPerMicrosecond;
  double time = full * tile.resident * alone;
  if (last > 0) time += std::max({last * alone, thread_alone, steps * kStepMicroseconds});
  time += kDispatchMicroseconds;
  if (split > 1) time += kJoinMicroseconds + 8.0 * static_cast<double>(batch * m * n) * split / kBytesPerSecond * 1e6;
  return time;
}

bool split_fits(Extent batch, Extent m, Extent n, int split, const Target& target) {
  return split == 1 || static_cast<double>(batch) * static_cast<double>(m) * static_cast<double>(n) * split * 4 <
                           static_cast<double>(target.limits.binding_bytes);
}

TileChoice choose_tile(Extent batch, Extent m, Extent n, Extent k, const Target& target) {
  TileChoice best{-1, 1};
  double least = std::numeric_limits<double>::infinity();
  for (int t = 0; t < static_cast<int>(std::size(kTiles)); ++t) {
    const Tile& tile = kTiles[t];
    if (!fits(tile, target)) continue;
    if (!target.unroll) {
      // Software adapters spend their time between the multiplications, the more the less a thread has of them.
      const double time =
          static_cast<double>(divide_up(m, tile.rows) * tile.rows * divide_up(n, tile.columns) * tile.columns) /
          (tile.thread_rows * tile.thread_columns);
      if (time < least) {
        least = time;
        best = {t, 1};
      }
      continue;
    }
    const Extent steps = divide_up(k, tile.depth);
    const Extent split_max = std::clamp<Extent>(steps / 4, 1, 64);
    for (int split = 1; split <= split_max && split_fits(batch, m, n, split, target); ++split) {
      const double time = estimate(tile, split, batch, m, n, k, target);
      if (time < least * 0.999) {
        least = time;
        best = {t, split};
      }
    }
  }
  if (best.tile < 0)
    throw DeviceError(fmt::format("webgpu: no matrix product kernel fits {} bytes of workgroup memory and {} threads",
                                  target.limits.workgroup_bytes, target.limits.workgroup_invocations));
  return best;
}

void render(const MatmulKernel& kernel, const Target& target, Scratch& scratch, Rendered& rendered,
            std::optional<TileChoice> choice) {
  if (kernel.batch * kernel.m * kernel.n == 0) return;
  const bool tiled =
      is_tiled(kernel.m, kernel.n, kernel.k) && kernel.a.type == DType::f32 && kernel.b.type == DType::f32;
  if (!tiled && !choice) return render_as_reduction(kernel, target, scratch, rendered);
  if (!choice) choice = choose_tile(kernel.batch, kernel.m, kernel.n, kernel.k, target);
  TileWriter(kernel, nullptr, kTiles[choice->tile], choice->split, target, scratch, rendered).render();
}

bool is_tiled(Extent m, Extent n, Extent k) { return k > 0 && m > 4 && n > 4; }

void render_ordered(const MatmulKernel& kernel, const kernel::Operand& order, const Target& target, Scratch& scratch,
                    Rendered& rendered) {
  const TileChoice choice = choose_tile(kernel.batch, kernel.m, kernel.n, kernel.k, target);
  TileWriter(kernel, &order, kTiles[choice.tile], choice.split, target, scratch, rendered).render();
}

}  // namespace weft::webgpu
