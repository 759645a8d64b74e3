// Kernel IR: what backends run. The compiler turns a graph into a Plan, a list of kernels over buffers; each backend renders
// the kernels in its own form (the CPU as blocked bytecode, WebGPU as WGSL text).
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <type_traits>
#include <variant>
#include <vector>

#include "ops/scalar.hpp"
#include "tensor/block_format.hpp"
#include "weft/dtype.hpp"
#include "weft/product_precision.hpp"
#include "weft/shape.hpp"

namespace weft::graph {
struct OpRow;
}

namespace weft::kernel {

/// The places of elements. A linear index i over the iteration space splits row-major over `extents` (their product is the
/// space's size) into coordinates c; the element is offset + sum c[d] * strides[d] (offset of the operand comes on top). With
/// bounds, an element outside lo <= c[d] < hi for any d reads as 0 (and is not stored).
struct View {
  struct Bound {
    Extent lo, hi;
    bool operator==(const Bound&) const = default;
  };
  std::vector<Extent> extents;
  std::vector<Extent> strides;
  Extent offset = 0;
  std::vector<Bound> bounds;  // empty: none; else one for each extent
  bool operator==(const View&) const = default;
};

/// The places of the elements of a product's operand [batch, rows, columns]. Windows of a convolution, for example, have
/// several strides along each of the three.
struct MatrixView {
  /// A number for each (b, i, j): the sum of the places of three views without bounds.
  struct Sum {
    View batch, rows, columns;
    bool operator==(const Sum&) const = default;
  };
  /// Elements whose `value` is outside lo <= value < hi read as 0. Values are not negative.
  struct Edge {
    Sum value;
    Extent lo, hi;
    bool operator==(const Edge&) const = default;
  };
  static constexpr std::size_t kEdgesMax = 8;
  Sum at;
  std::vector<Edge> edges = {};
  bool operator==(const MatrixView&) const = default;

  /// One stride for rows and one for columns, and no edges.
  bool is_plain() const { return at.rows.extents.size() == 1 && at.columns.extents.size() == 1 && edges.empty(); }
  /// The strides of a plain view.
  Extent row() const { return at.rows.strides[0]; }
  Extent column() const { return at.columns.strides[0]; }
  /// The same elements as [batch, columns, rows].
  MatrixView transposed() const;
};
/// A plain view.
MatrixView matrix_view(View batch, Extent rows, Extent row, Extent columns, Extent column);

/// A run of elements in a buffer of the plan.
struct Operand {
  int buffer = -1;  // index into Plan::buffers
  DType type = DType::f32;
  Extent offset = 0;  // in elements, from the buffer's start
  Extent count = 0;   // elements that views of this operand may touch, from `offset`
  bool operator==(const Operand&) const = default;
};

/// A value of a loop kernel: at `outer` level one for each outer index, at `inner` level one for each (outer, inner).
enum class Level : std::uint8_t { outer, inner };

enum class StepKind : std::uint8_t {
  constant,  // value
  load,      // inputs[operand] through view
  gather,  // as load, plus clamp(a, 0, axis_extent - 1) * axis_stride elements, a an i32/u32 step; out of range reads 0
  index,   // the element number that view computes, as i32 (or u32 by type); no operand
  map,     // scalar op on steps a, b, c
  reduce,  // inner-level step a to an outer-level value, by `reduction`
  accumulator,  // the matrix product's element (epilogues only)
};

struct Step {
  StepKind kind;
  DType type = DType::f32;
  Level level = Level::outer;
  scalar::Op op = scalar::Op::input;                     // map
  scalar::Reduction reduction = scalar::Reduction::sum;  // reduce
  int a = -1, b = -1, c = -1;                            // earlier steps
  int operand = -1;                                      // load, gather: index into inputs
  Extent axis_stride = 0, axis_extent = 0;               // gather
  double value = 0;                                      // constant
  View view =
      {};  // load, gather, index: over the outer space at outer level, over outer x inner (inner fastest) at inner level
  bool operator==(const Step&) const = default;
};

/// Writes step `value` to outputs[output] through `view` (over the space of the step's level).
struct Store {
  int value = -1;
  int output = -1;
  View view = {};
  bool operator==(const Store&) const = default;
};

/// For every outer index, over `inner` inner indices: loads, maps, reductions over inner (several, one after another, as in
/// softmax), maps of their results, stores at either level. inner = 1 without inner-level steps is plain elementwise work. An
/// output may be the same buffer range as an input when both views are equal and at the same level (update in place).
struct LoopKernel {
  std::string name;  // for printing: "add.gelu", "softmax"
  Extent outer = 1, inner = 1;
  std::vector<Operand> inputs, outputs;
  std::vector<Step> steps;
  std::vector<Store> stores;
};

/// C[b, i, j] = sum_k A[b, i, k] * B[b, k, j], accumulated in f32 (f64 for f64, i32 for i32), then the epilogue, an elementwise
/// loop kernel over batch * m * n (row-major) whose steps read the product as `accumulator`. Each operand has the type of the
/// product, or one of Capabilities::product_reads that computes in it: then its elements are converted, exactly, as they are
/// read. The two may differ. A product of i32 reads both operands directly, or both as Capabilities::integer_product_reads says. An element outside an edge is a zero of the product's type. An operand of a packed type begins at
/// a whole byte.
struct MatmulKernel {
  std::string name;
  Extent batch = 1, m = 0, n = 0, k = 0;
  Operand a, b;
  MatrixView a_view, b_view;  // [batch, m, k] and [batch, k, n]
  LoopKernel epilogue;
  ProductPrecision precision = ProductPrecision::exact;  // at least, where it computes in f32

  /// The type of the product before the epilogue.
  DType type() const { return compute_type(a.type); }
};

/// C[i, j] = sum_k A[i, k] * W[j, k] in f32, then the epilogue, as in MatmulKernel. W [n, k] of this type is packed for the
/// device.
struct PackedMatmulKernel {
  /// W is [count, n, k]: row i of C is row i / share of A times matrix of_row[i], or zeros if there is none of this number.
  struct Experts {
    Operand of_row;  // i32 [m]
    Extent count = 0, share = 1;
    bool operator==(const Experts&) const = default;
  };
  std::string name;
  Extent m = 0, n = 0, k = 0;
  BlockType block_type = BlockType::f32;
  bool exact = true;  // A stays f32; else the device may round it, as packed_linear says (weft/inference.hpp)
  Operand a;          // rows are a_row elements apart, and the elements of a row are neighbours
  Extent a_row = 0;
  Operand weights;  // all of the packed matrix, as u32 words
  std::optional<Experts> experts;
  /// If set, A is computed while it is read: its rows are those that the loop (outer m, inner k) stores. The loop is of the
  /// kind that compile/row_factors.hpp describes, and `a` is then not an operand.
  std::optional<LoopKernel> rows;
  LoopKernel epilogue;

  Extent rows_of_a() const { return experts ? m / experts->share : m; }
  Extent rows_of_weights() const { return experts ? experts->count * n : n; }
};

/// out[r, c] = sum over i with indices[i] == r of updates[i, c], in the order of i; indices outside [0, rows) are
/// dropped. indices and updates are contiguous, out is too and is written whole.
struct ScatterAddKernel {
  std::string name;
  Extent count = 0, rows = 0, columns = 0;
  Operand indices, updates, out;
};

/// Attention of one head per (b, h): O = softmax(scale * Q K^T, masked) V, and the logsumexp of each row, L, contiguous [batch,
/// heads, queries]. Strides are for [batch, head, position, channel]; k and v have kv_heads. `logsumexp` has the type that it
/// computes in. Each of q, k, v, d_o and the o that it reads has that type too, or a type of Capabilities::attention_reads that
/// computes in it; its elements are converted while reading. Results have that type, or one of Capabilities::attention_writes.
struct AttentionKernel {
  struct Tensor {
    Operand operand;
    Extent batch_stride = 0, head_stride = 0, row_stride = 0;  // channel stride is 1
    bool operator==(const Tensor&) const = default;
  };
  std::string name;
  Extent batch = 0, heads = 0, queries = 0, keys = 0, width = 0;
  Extent kv_heads = 0;  // of k and v: a divisor of heads, each shared by heads / kv_heads neighbouring ones
  double scale = 1;
  Extent shift = 0;    // query i is at position p = i + shift of the keys
  bool causal = true;  // it sees keys j <= p
  Extent window = 0;   // and only those with j > p - window (and j < p + window); 0: no window
  bool backward = false;
  Tensor q, k, v;        // read
  Tensor o;              // written by forward, read by backward
  Operand logsumexp;     // written by forward, read by backward
  Tensor d_o;            // backward: read
  Tensor d_q, d_k, d_v;  // backward: written
  /// Read. Of bools: whether the query sees the key. Of the type that it computes in: added to the scaled score; it hides the
  /// key if it is not above graph::kHiddenBias.
  struct Mask {
    Operand operand;
    Extent batch_stride = 0, head_stride = 0, row_stride = 0, key_stride = 0;  // 0: the same for all
  };
  std::optional<Mask> mask;
  /// Read, i32 pairs (first, end): the keys that a query may see, [batch, queries, 2]; and the same mask as the queries that may
  /// see a key, [batch, keys, 2], which only backward reads.
  std::optional<Operand> key_spans, query_spans;
  /// Whether values outside of a query's span may be infinite or NaN without a trace in its result, although the weight of each
  /// is 0: they may be rows of other sequences in a cache. Needs spans; only forward, of f16, on subgroup matrices.
  bool guards_values = false;
  /// A share is dropped if its byte (`kept_shares` in graph/ops/attention.cpp) is below this, of 256; the others grow by 256 / (256 - dropped).
  Extent dropped = 0;
  std::optional<Operand> seed;  // read if shares are dropped: u32 seed and stream

  /// The type that it computes in.
  DType type() const { return compute_type(q.operand.type); }
};

/// A call of an op that the device has a kernel for (graph/op.hpp): contiguous operands, attributes as their words. If the
/// result overwrites an input, the two are the same range of one buffer.
struct CallKernel {
  std::string name;
  const graph::OpRow* op = nullptr;
  std::vector<Operand> reads;
  std::vector<Shape> shapes;  // of the inputs
  /// Types of the inputs and of the results. Operands have these types, except that a packed matrix is an operand of u32 words.
  std::vector<DType> types = {}, out_types = {};
  std::vector<Operand> outs;
  std::vector<Shape> out_shapes;
  std::vector<Extent> attributes;
  double flops = 0;
  /// For each input of the op whether it is given; empty: all are. Only those are among the reads.
  std::vector<bool> given = {};

  const Operand& out() const { return outs.front(); }
  const Shape& shape() const { return out_shapes.front(); }
  /// The operand of an input of the op; null for an optional one that is left out.
  const Operand* input(std::size_t i) const {
    if (given.empty()) return i < reads.size() ? &reads[i] : nullptr;
    if (i >= given.size() || !given[i]) return nullptr;
    return &reads[static_cast<std::size_t>(
        std::count(given.begin(), given.begin() + static_cast<std::ptrdiff_t>(i), true))];
  }
};

using Kernel =
    std::variant<LoopKernel, MatmulKernel, PackedMatmulKernel, ScatterAddKernel, AttentionKernel, CallKernel>;

/// Calls visit(operand, is_written) for each operand of the kernel (const or not): those that it reads in order, then those
/// that it writes. An operand that is updated in place is visited twice.
template <class AnyKernel, class Visit>
void visit_operands(AnyKernel& kernel, Visit visit) {
  constexpr bool kRead = false, kWritten = true;
  auto visit_all = [&](auto& operands, bool is_written) {
    for (auto& operand : operands) visit(operand, is_written);
  };
  auto visit_form = [&](auto& k) {
    using Form = std::remove_cvref_t<decltype(k)>;
    if constexpr (std::is_same_v<Form, LoopKernel>) {
      visit_all(k.inputs, kRead);
      visit_all(k.outputs, kWritten);
    } else if constexpr (std::is_same_v<Form, MatmulKernel>) {
      visit(k.a, kRead);
      visit(k.b, kRead);
      visit_all(k.epilogue.inputs, kRead);
      visit_all(k.epilogue.outputs, kWritten);
    } else if constexpr (std::is_same_v<Form, PackedMatmulKernel>) {
      if (!k.rows) visit(k.a, kRead);
      visit(k.weights, kRead);
      visit_all(k.epilogue.inputs, kRead);
      if (k.experts) visit(k.experts->of_row, kRead);
      if (k.rows) visit_all(k.rows->inputs, kRead);
      visit_all(k.epilogue.outputs, kWritten);
    } else if constexpr (std::is_same_v<Form, ScatterAddKernel>) {
      if (k.count > 0) visit(k.indices, kRead);
      if (k.count > 0) visit(k.updates, kRead);
      visit(k.out, kWritten);
    } else if constexpr (std::is_same_v<Form, AttentionKernel>) {
      for (auto* tensor : {&k.q, &k.k, &k.v}) visit(tensor->operand, kRead);
      if (k.mask) visit(k.mask->operand, kRead);
      if (k.key_spans) visit(*k.key_spans, kRead);
      if (k.seed) visit(*k.seed, kRead);
      if (k.backward) {
        visit(k.o.operand, kRead);
        visit(k.logsumexp, kRead);
        visit(k.d_o.operand, kRead);
        if (k.query_spans) visit(*k.query_spans, kRead);
        for (auto* tensor : {&k.d_q, &k.d_k, &k.d_v}) visit(tensor->operand, kWritten);
      } else {
        visit(k.o.operand, kWritten);
        visit(k.logsumexp, kWritten);
      }
    } else {
      static_assert(std::is_same_v<Form, CallKernel>);
      visit_all(k.reads, kRead);
      visit_all(k.outs, kWritten);
    }
  };
  if constexpr (std::is_same_v<std::remove_const_t<AnyKernel>, Kernel>)
    std::visit(visit_form, kernel);
  else
    visit_form(kernel);
}

/// Calls visit(loop) for each loop that is part of the kernel: itself, an epilogue, rows that are computed while reading.
template <class AnyKernel, class Visit>
void visit_loops(AnyKernel& kernel, Visit visit) {
  if (auto* loop = std::get_if<LoopKernel>(&kernel)) visit(*loop);
  if (auto* product = std::get_if<MatmulKernel>(&kernel)) visit(product->epilogue);
  if (auto* product = std::get_if<PackedMatmulKernel>(&kernel)) {
    if (product->rows) visit(*product->rows);
    visit(product->epilogue);
  }
}

/// A buffer of a plan: given by the caller at each run (external, in the order of their ordinals), or the plan's own scratch,
/// whose contents do not matter between runs.
struct BufferInfo {
  int external = -1;  // ordinal; -1: scratch
  std::size_t bytes = 0;
  std::string label;
};

/// Kernels in the order they run. The planner promises: no kernel writes a buffer that it also reads, except the same
/// operand range in place; ranges of one buffer that a kernel writes do not overlap.
struct Plan {
  std::vector<BufferInfo> buffers;
  std::vector<Kernel> kernels;
};

/// The plan as text: a line for each kernel and each step.
std::string to_string(const Kernel& kernel);
std::string to_string(const Plan& plan);
/// Floating-point operations, and the fewest bytes moved (each operand once).
double flops(const Kernel& kernel);
double bytes_moved(const Kernel& kernel);

}  // namespace weft::kernel
