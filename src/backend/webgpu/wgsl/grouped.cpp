#include "backend/webgpu/wgsl/grouped.hpp"

#include <fmt/format.h>

#include "backend/webgpu/wgsl/matmul.hpp"
#include "compile/call_attributes.hpp"
#include "graph/grouped.hpp"

namespace weft::webgpu {
namespace {

constexpr int kThreads = 64;
constexpr int kRows = 4;  // results of a thread, which share what it reads of one operand

/// The body of a kernel, and the operands that have elements.
class GroupedWriter {
 public:
  GroupedWriter(const kernel::CallKernel& kernel, const Target& target)
      : kernel_(kernel), target_(target), bindings_(target, kernel.name), groups_(kernel.shapes[2][0]) {
    for (std::size_t i = 0; i < 3; ++i) {
      if (kernel.shapes[i].numel() == 0) is_empty_ = true;
    }
    for (const kernel::Operand& read : kernel.reads) from_.push_back(is_empty_ ? -1 : bindings_.add(read, false));
    out_ = bindings_.add(kernel.out(), true);
    bindings_.forbid_vectors(out_);
    bindings_.resolve();
  }

  bool is_empty() const { return is_empty_; }
  Extent groups() const { return groups_; }
  void line(const std::string& statement) { body_ += "  " + statement + "\n"; }
  std::string load(int input, const std::string& at) const {
    return bindings_.load(from_[static_cast<std::size_t>(input)],
                          fmt::format("{} + {}u", at, bindings_.base(from_[static_cast<std::size_t>(input)])));
  }
  void store(const std::string& condition, const std::string& at, const std::string& value) {
    line(fmt::format("if ({}) {{ {} }}", condition,
                     bindings_.store(out_, fmt::format("{} + {}u", at, bindings_.base(out_)), value)));
  }
  /// Sets `first` and `last` to the rows of group `g` (text), given `last` of the group before.
  void next_group(const std::string& g, Extent rows) {
    line("let first = last;");
    line(fmt::format("last = u32(clamp({}, i32(last), {}));", load(2, g), rows));
  }
  RenderedDispatch finish(Extent results) {
    ShaderPieces shader{.threads = kThreads, .body = std::move(body_)};
    const auto groups = static_cast<std::uint64_t>((results + kThreads - 1) / kThreads);
    return dispatch_of(kernel_.name, std::move(shader), bindings_, groups, target_);
  }

 private:
  const kernel::CallKernel& kernel_;
  const Target& target_;
  Bindings bindings_;
  Extent groups_;
  bool is_empty_ = false;
  std::vector<int> from_;
  int out_ = -1;
  std::string body_;
};

/// The kernel as a tiled product [batch, m, n] over k, whose results are stored as they are; without its views.
kernel::MatmulKernel tiled_product(const kernel::CallKernel& kernel, Extent batch, Extent m, Extent n, Extent k) {
  kernel::MatmulKernel product{.name = kernel.name, .batch = batch, .m = m, .n = n, .k = k};
  product.a = kernel.reads[0];
  product.b = kernel.reads[1];
  const Extent results = kernel.shape().numel();
  product.epilogue = {.name = kernel.name, .outer = results, .outputs = {kernel.out()}};
  product.epilogue.steps = {{kernel::StepKind::accumulator, DType::f32, kernel::Level::outer}};
  product.epilogue.stores = {{0, 0, {{results}, {1}, 0, {}}}};
  return product;
}

}  // namespace

void render_grouped_matmul(const kernel::CallKernel& kernel, const Target& target, Scratch& scratch,
                           Rendered& rendered) {
  if (kernel.shape().numel() == 0) return;
  const bool transposed = kernel::attributes_of<graph::GroupedAttributes>(kernel).transposed;
  const Extent n = kernel.shape()[0], m = kernel.shape()[1], k = kernel.shapes[0][1], blocks = (n + kRows - 1) / kRows;
  if (const Extent count = kernel.shapes[2][0]; count > 0 && is_tiled(n, m, k) && can_order(count, target)) {
    kernel::MatmulKernel product = tiled_product(kernel, count, n, m, k);
    product.a_view = kernel::matrix_view({{count}, {0}, 0, {}}, n, k, k, 1);
    const kernel::View each{{count}, {k * m}, 0, {}};
    product.b_view = transposed ? kernel::matrix_view(each, k, 1, m, k) : kernel::matrix_view(each, k, m, m, 1);
    const Tile& tile = tiles()[static_cast<std::size_t>(choose_grouped_tile(n, count, m, k, target))];
    const RowGroups groups(n, count, tile.rows, 1, scratch);
    rendered.dispatches.push_back(order_by_ends(kernel.name, kernel.reads[2], groups, target));
    return render_grouped(product, tile, groups, target, scratch, rendered);
  }
  GroupedWriter w(kernel, target);
  w.line(fmt::format("let number = group * {}u + thread;", kThreads));
  w.line(fmt::format("if (number >= {}u) {{ return; }}", blocks * m));
  w.line(fmt::format("let column = {}; let top = {} * {}u;", modulo("number", m), divided("number", m), kRows));
  for (int i = 0; i < kRows; ++i) w.line(fmt::format("var sum{0} = 0f; let row{0} = min(top + {0}u, {1}u);", i, n - 1));
  if (!w.is_empty()) {
    w.line("var last = 0u;");
    w.line(fmt::format("for (var g = 0u; g < {}u; g++) {{", w.groups()));
    w.next_group("g", n);
    w.line(fmt::format("if (first >= last || last <= top || first >= top + {}u) {{ continue; }}", kRows));
    for (int i = 0; i < kRows; ++i) w.line(fmt::format("let has{0} = top + {0}u >= first && top + {0}u < last;", i));
    w.line(fmt::format("for (var j = 0u; j < {}u; j++) {{", k));
    const std::string at = transposed ? fmt::format("(g * {}u + column) * {}u + j", m, k)
                                      : fmt::format("(g * {}u + j) * {}u + column", k, m);
    w.line(fmt::format("let weight = {};", w.load(1, at)));
    // A row of another group keeps its sum, which infinite or NaN weights of this group must not reach.
    for (int i = 0; i < kRows; ++i)
      w.line(fmt::format("sum{0} = select(sum{0}, fma({1}, weight, sum{0}), has{0});", i,
                         w.load(0, fmt::format("row{} * {}u + j", i, k))));
    w.line("}");
    w.line("}");
  }
  for (int i = 0; i < kRows; ++i)
    w.store(fmt::format("top + {}u < {}u", i, n), fmt::format("(top + {}u) * {}u + column", i, m),
            fmt::format("sum{}", i));
  rendered.dispatches.push_back(w.finish(blocks * m));
}

void render_grouped_outer(const kernel::CallKernel& kernel, const Target& target, Scratch& scratch,
                          Rendered& rendered) {
  if (kernel.shape().numel() == 0) return;
  const Extent k = kernel.shape()[1], m = kernel.shape()[2], n = kernel.shapes[0][0], blocks = (k + kRows - 1) / kRows;
  if (const Extent count = kernel.shapes[2][0]; is_tiled(k, m, n)) {
    kernel::MatmulKernel product = tiled_product(kernel, count, k, m, n);
    const kernel::View same{{count}, {0}, 0, {}};
    product.a_view = kernel::matrix_view(same, k, 1, n, k);
    product.b_view = kernel::matrix_view(same, n, m, m, 1);
    const TileChoice choice = choose_tile(count, k, m, divide_up(n, count), target);
    return render_over_ranges(product, tiles()[static_cast<std::size_t>(choice.tile)], kernel.reads[2], target, scratch,
                              rendered);
  }
  GroupedWriter w(kernel, target);
  const Extent results = kernel.shape()[0] * blocks * m;
  w.line(fmt::format("let number = group * {}u + thread;", kThreads));
  w.line(fmt::format("if (number >= {}u) {{ return; }}", results));
  w.line(fmt::format("let column = {}; let block = {};", modulo("number", m), divided("number", m)));
  w.line(fmt::format("let matrix = {}; let top = {} * {}u;", divided("block", blocks), modulo("block", blocks), kRows));
  for (int i = 0; i < kRows; ++i) w.line(fmt::format("var sum{0} = 0f; let row{0} = min(top + {0}u, {1}u);", i, k - 1));
  if (!w.is_empty()) {
    w.line("var start = 0u; var last = 0u;");
    w.line("for (var g = 0u; g <= matrix; g++) {");
    w.next_group("g", n);
    w.line("start = first;");
    w.line("}");
    w.line("for (var r = start; r < last; r++) {");
    w.line(fmt::format("let right = {};", w.load(1, fmt::format("r * {}u + column", m))));
    for (int i = 0; i < kRows; ++i)
      w.line(fmt::format("sum{0} = fma({1}, right, sum{0});", i, w.load(0, fmt::format("r * {}u + row{}", k, i))));
    w.line("}");
  }
  for (int i = 0; i < kRows; ++i)
    w.store(fmt::format("top + {}u < {}u", i, k), fmt::format("(matrix * {}u + top + {}u) * {}u + column", k, i, m),
            fmt::format("sum{}", i));
  rendered.dispatches.push_back(w.finish(results));
}

}  // namespace weft::webgpu
