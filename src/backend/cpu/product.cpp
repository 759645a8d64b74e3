#include "backend/cpu/product.hpp"

#include <utility>
#include <vector>

#include <fmt/format.h>

#include "base/threads.hpp"
#include "weft/error.hpp"

namespace weft::cpu {
namespace {

using kernel::StepKind;

/// A product that is only stored, with its columns contiguous, as the transposed product, whose rows are: gradients of
/// weights come so.
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
  std::swap(k.a_batch, k.b_batch);
  std::swap(k.a_row, k.b_col);
  std::swap(k.a_col, k.b_row);
  return k;
}

std::vector<std::int64_t> batch_offsets(const kernel::View& view, Extent batch) {
  std::vector<std::int64_t> offsets;
  for (Extent b = 0; b < batch; ++b) {
    Extent rest = b, at = view.offset;
    for (std::size_t d = view.extents.size(); d-- > 0;) {
      at += rest % view.extents[d] * view.strides[d];
      rest /= view.extents[d];
    }
    offsets.push_back(at);
  }
  return offsets;
}

/// A row-major copy of each matrix, for sources without a stride of 1.
template <class T>
void pack(const T* from, const std::vector<std::int64_t>& offsets, Extent rows, Extent columns, Extent row,
          Extent column, T* to) {
  parallel_for(static_cast<Extent>(offsets.size()) * rows, [&](Extent i) {
    const T* source = from + offsets[static_cast<std::size_t>(i / rows)] + i % rows * row;
    for (Extent c = 0; c < columns; ++c) to[i * columns + c] = source[c * column];
  });
}

}  // namespace

ProductProgram::ProductProgram(const kernel::MatmulKernel& asked)
    : kernel_(upright(asked)),
      epilogue_(kernel_),
      a_offsets_(batch_offsets(kernel_.a_batch, kernel_.batch)),
      b_offsets_(batch_offsets(kernel_.b_batch, kernel_.batch)) {
  if (kernel_.a.type == DType::boolean || kernel_.a.type != kernel_.b.type)
    throw DTypeError(fmt::format("{}: the CPU has no product of {} and {}; cast both to one number type", kernel_.name,
                                 name_of(kernel_.a.type), name_of(kernel_.b.type)));
  kernel_.epilogue = {};  // held as bytecode
  const auto size = static_cast<std::size_t>(size_bytes(kernel_.a.type));
  if (kernel_.a_row != 1 && kernel_.a_col != 1 && kernel_.m > 1 && kernel_.k > 1)
    packed_a_.resize(static_cast<std::size_t>(kernel_.batch * kernel_.m * kernel_.k) * size);
  if (kernel_.b_row != 1 && kernel_.b_col != 1 && kernel_.k > 1 && kernel_.n > 1)
    packed_b_.resize(static_cast<std::size_t>(kernel_.batch * kernel_.k * kernel_.n) * size);
  if (kernel_.a.type == DType::f32 && packed_a_.empty() && packed_b_.empty())
    tasks_ = GemmTasks<float>(arguments<float>()).count();
}

void ProductProgram::bind(const Memory& memory) {
  a_ = memory.at(kernel_.a), b_ = memory.at(kernel_.b);
  c_ = epilogue_.bind(memory);
}

/// What they refer to lives as long as the program.
template <class T>
GemmArgs<T> ProductProgram::arguments() const {
  const kernel::MatmulKernel& k = kernel_;
  GemmArgs<T> args;
  args.batch = k.batch, args.m = k.m, args.n = k.n, args.k = k.k;
  args.a = {reinterpret_cast<const T*>(a_), k.a_row, k.a_col, {0, a_offsets_.data()}};
  args.b = {reinterpret_cast<const T*>(b_), k.b_row, k.b_col, {0, b_offsets_.data()}};
  if (!packed_a_.empty()) args.a = {reinterpret_cast<const T*>(packed_a_.data()), k.k, 1, {k.m * k.k, nullptr}};
  if (!packed_b_.empty()) args.b = {reinterpret_cast<const T*>(packed_b_.data()), k.n, 1, {k.k * k.n, nullptr}};
  args.c = {reinterpret_cast<T*>(c_), k.n, {k.m * k.n, nullptr}};
  if (!epilogue_.is_empty()) args.after_block = epilogue_;
  return args;
}

template <class T>
void ProductProgram::run_as() {
  const kernel::MatmulKernel& k = kernel_;
  if (!packed_a_.empty())
    pack(reinterpret_cast<const T*>(a_), a_offsets_, k.m, k.k, k.a_row, k.a_col,
         reinterpret_cast<T*>(packed_a_.data()));
  if (!packed_b_.empty())
    pack(reinterpret_cast<const T*>(b_), b_offsets_, k.k, k.n, k.b_row, k.b_col,
         reinterpret_cast<T*>(packed_b_.data()));
  gemm(arguments<T>());
}

void ProductProgram::run() {
  switch (kernel_.a.type) {
    case DType::f32: return run_as<float>();
    case DType::f64: return run_as<double>();
    case DType::i64:
    case DType::u64: return run_as<std::int64_t>();  // unsigned numbers wrap as signed ones do
    default: return run_as<std::int32_t>();
  }
}

void ProductProgram::start() { started_.emplace(arguments<float>()); }

std::string ProductProgram::to_string() const {
  return fmt::format("product {}: {} x [{}, {}] x [{}, {}]{}", kernel_.name, kernel_.batch, kernel_.m, kernel_.k,
                     kernel_.k, kernel_.n, epilogue_.to_string());
}

}  // namespace weft::cpu
