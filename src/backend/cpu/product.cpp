#include "backend/cpu/product.hpp"

#include <utility>
#include <vector>

#include <fmt/format.h>

#include "backend/cpu/gemm_view.hpp"
#include "backend/cpu/integer_gemm.hpp"
#include "backend/cpu/loop/tile.hpp"
#include "base/threads.hpp"
#include "weft/error.hpp"

namespace weft::cpu {
namespace {

using kernel::StepKind;

/// Turns a product that is only stored, with contiguous columns, into the transposed product, which has contiguous rows.
/// Gradients of weights are such products.
kernel::MatmulKernel upright(kernel::MatmulKernel k) {
  if (k.batch != 1 || k.m == 0 || k.n == 0 || k.epilogue.stores.size() != 1) return k;
  kernel::Store& store = k.epilogue.stores[0];
  const kernel::Step& step = k.epilogue.steps.at(static_cast<std::size_t>(store.value));
  const Access access = make_access(store.view, k.m, k.n, false);
  if (step.kind != StepKind::accumulator || !access.plain_slow() || !access.plain_fast() ||
      Access::stride(access.slow) != 1 || Access::stride(access.fast) != k.m)
    return k;
  store.view = {{k.n, k.m}, {k.m, 1}, access.offset, {}};
  std::swap(k.m, k.n);
  std::swap(k.a, k.b);
  std::swap(k.a_view, k.b_view);
  k.a_view = k.a_view.transposed();
  k.b_view = k.b_view.transposed();
  return k;
}

std::vector<std::int64_t> batch_offsets(const kernel::View& view, Extent batch) {
  std::vector<std::int64_t> offsets(static_cast<std::size_t>(batch));
  offsets_of(view, {0, batch}, offsets.data());
  return offsets;
}

/// A row-major copy of each matrix. `element` gives the one at a place.
template <class T, class ElementAt>
void pack(ElementAt element, const kernel::MatrixView& view, Extent batch, Extent rows, Extent columns, T* to) {
  parallel_for(batch * rows, [&](Extent i) {
    const auto values = [&](const kernel::MatrixView::Sum& sum) {
      std::vector<std::int64_t> value(static_cast<std::size_t>(columns));
      offsets_of(sum.columns, {0, columns}, value.data());
      const std::int64_t start = offset_at(sum.batch, i / rows) + offset_at(sum.rows, i % rows);
      for (std::int64_t& v : value) v += start;
      return value;
    };
    const std::vector<std::int64_t> at = values(view.at);
    std::vector<char> inside(at.size(), true);
    for (const kernel::MatrixView::Edge& edge : view.edges) {
      const std::vector<std::int64_t> value = values(edge.value);
      for (std::size_t c = 0; c < at.size(); ++c)
        if (value[c] < edge.lo || value[c] >= edge.hi) inside[c] = false;
    }
    for (std::size_t c = 0; c < at.size(); ++c)
      to[i * columns + static_cast<Extent>(c)] = inside[c] ? element(at[c]) : T{0};
  });
}

/// Whether gemm needs a copy: of sources without a stride of 1, and of general views for types that it does not pack.
bool needs_copy(const kernel::MatrixView& view, DType type, Extent rows, Extent columns) {
  if (!view.is_plain()) return type != DType::f32 && type != DType::f64;
  return view.row() != 1 && view.column() != 1 && rows > 1 && columns > 1;
}

/// Number of consecutive elements along the last dimension of an axis.
Extent run_of(const kernel::View& axis) {
  return !axis.extents.empty() && axis.strides.back() == 1 ? axis.extents.back() : 1;
}

template <class T>
GemmSource<T> source_of(const char* data, DType type, const std::vector<char>& copy, const kernel::MatrixView& view,
                        const std::vector<std::int64_t>& offsets, Extent rows, Extent columns) {
  GemmSource<T> source;
  if (!copy.empty()) {
    source.data = reinterpret_cast<const T*>(copy.data());
    source.row = columns;
    source.batch.stride = rows * columns;
    return source;
  }
  source.narrow = {widen_function(type), data, 0, type == DType::bf16};
  if (!source.narrow) source.data = reinterpret_cast<const T*>(data);
  if (view.is_plain()) {
    source.row = view.row();
    source.column = view.column();
    source.batch.each = offsets.data();
    return source;
  }
  const bool along_rows = run_of(view.at.columns) >= run_of(view.at.rows);
  source.row = along_rows ? columns : 1;
  source.column = along_rows ? 1 : rows;
  source.view = &view;
  return source;
}

/// Whether the product reads operands of this type.
bool can_read(DType operand, DType product) {
  return operand == product || (product == DType::f32 && widen_function(operand) != nullptr);
}

/// Whether both operands are integers of eight bits, which have kernels of their own.
bool is_of_bytes(const kernel::MatmulKernel& k) {
  const auto is_byte = [](DType type) { return type == DType::i8 || type == DType::u8; };
  return is_byte(k.a.type) && is_byte(k.b.type);
}

}  // namespace

ProductProgram::ProductProgram(const kernel::MatmulKernel& asked)
    : kernel_(upright(asked)),
      epilogue_(kernel_),
      a_offsets_(batch_offsets(kernel_.a_view.at.batch, kernel_.batch)),
      b_offsets_(batch_offsets(kernel_.b_view.at.batch, kernel_.batch)) {
  const DType type = kernel_.type();
  kernel_.epilogue = {};  // compiled to bytecode instead
  if (is_of_bytes(kernel_)) return;
  if (type == DType::boolean || !can_read(kernel_.a.type, type) || !can_read(kernel_.b.type, type))
    throw DTypeError(fmt::format("{}: the CPU has no product of {} and {}; cast both to one number type", kernel_.name,
                                 name_of(kernel_.a.type), name_of(kernel_.b.type)));
  const std::size_t size = size_bytes(type);
  if (needs_copy(kernel_.a_view, type, kernel_.m, kernel_.k))
    packed_a_.resize(static_cast<std::size_t>(kernel_.batch * kernel_.m * kernel_.k) * size);
  if (needs_copy(kernel_.b_view, type, kernel_.k, kernel_.n))
    packed_b_.resize(static_cast<std::size_t>(kernel_.batch * kernel_.k * kernel_.n) * size);
  if (type == DType::f32 && packed_a_.empty() && packed_b_.empty())
    tasks_ = GemmTasks<float>(arguments<float>()).count();
}

void ProductProgram::bind(const Memory& memory) {
  a_ = memory.at(kernel_.a), b_ = memory.at(kernel_.b);
  c_ = epilogue_.bind(memory);
}

/// The arguments refer to objects that live as long as the program.
template <class T>
GemmArgs<T> ProductProgram::arguments() const {
  const kernel::MatmulKernel& k = kernel_;
  GemmArgs<T> args;
  args.batch = k.batch, args.m = k.m, args.n = k.n, args.k = k.k;
  args.a = source_of<T>(a_, k.a.type, packed_a_, k.a_view, a_offsets_, k.m, k.k);
  args.b = source_of<T>(b_, k.b.type, packed_b_, k.b_view, b_offsets_, k.k, k.n);
  args.c = {reinterpret_cast<T*>(c_), k.n, {k.m * k.n, nullptr}};
  if (!epilogue_.is_empty()) args.after_block = epilogue_;
  return args;
}

template <class T>
void ProductProgram::run_as() {
  const kernel::MatmulKernel& k = kernel_;
  const auto copy = [&](const char* data, DType type, const kernel::MatrixView& view, Extent rows, Extent columns,
                        std::vector<char>& to) {
    if (to.empty()) return;
    const NarrowElements narrow{widen_function(type), data, 0};
    const auto element = [&](std::int64_t at) {
      float wide = 0;
      if (!narrow) return reinterpret_cast<const T*>(data)[at];
      narrow.copy(at, &wide, 1);
      return static_cast<T>(wide);
    };
    pack(element, view, k.batch, rows, columns, reinterpret_cast<T*>(to.data()));
  };
  copy(a_, k.a.type, k.a_view, k.m, k.k, packed_a_);
  copy(b_, k.b.type, k.b_view, k.k, k.n, packed_b_);
  gemm(arguments<T>());
}

void ProductProgram::run_bytes() {
  const kernel::MatmulKernel& k = kernel_;
  IntegerGemm product{.batch = k.batch, .m = k.m, .n = k.n, .k = k.k};
  product.a = {a_, k.a.type == DType::i8, &k.a_view};
  product.b = {b_, k.b.type == DType::i8, &k.b_view};
  product.c = reinterpret_cast<std::int32_t*>(c_);
  if (!epilogue_.is_empty()) product.after_block = epilogue_;
  integer_gemm(product);
}

void ProductProgram::run() {
  if (is_of_bytes(kernel_)) return run_bytes();
  switch (kernel_.type()) {
    case DType::f32: return run_as<float>();
    case DType::f64: return run_as<double>();
    case DType::i64:
    case DType::u64: return run_as<std::int64_t>();  // unsigned numbers wrap as signed ones do
    default: return run_as<std::int32_t>();
  }
}

void ProductProgram::start() { started_.emplace(arguments<float>()); }

std::string ProductProgram::to_string() const {
  const auto matrix = [this](Extent rows, Extent columns, DType type) {
    return fmt::format("[{}, {}]{}", rows, columns, type == kernel_.type() ? "" : fmt::format(" of {}", name_of(type)));
  };
  return fmt::format("product {}: {} x {} x {}{}", kernel_.name, kernel_.batch,
                     matrix(kernel_.m, kernel_.k, kernel_.a.type), matrix(kernel_.k, kernel_.n, kernel_.b.type),
                     epilogue_.to_string());
}

}  // namespace weft::cpu
