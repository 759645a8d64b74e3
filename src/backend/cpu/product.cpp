// Matrix products with epilogues.
#include "backend/cpu/product.hpp"

#include <algorithm>
#include <cstring>
#include <vector>

#include <fmt/format.h>

#include "backend/cpu/quant_matmul.hpp"
#include "base/threads.hpp"
#include "weft/error.hpp"

namespace weft::cpu {
namespace {

using kernel::StepKind;

/// An output of the product's type that is stored row by row without gaps and that nothing else of this kernel reads: the
/// product is written there, and the epilogue changes it in place.
int output_for_product(const kernel::MatmulKernel& k, Extent* offset) {
  for (const kernel::Store& store : k.epilogue.stores) {
    const kernel::Operand& output = k.epilogue.outputs.at(static_cast<std::size_t>(store.output));
    if (output.type != k.a.type || overlap(output, k.a) || overlap(output, k.b)) continue;
    bool read = false;
    for (const kernel::Operand& input : k.epilogue.inputs) read = read || overlap(output, input);
    int stores = 0;
    for (const kernel::Store& other : k.epilogue.stores) stores += other.output == store.output;
    const Access access = make_access(store.view, 1, k.batch * k.m * k.n, false);
    if (read || stores != 1 || !access.plain_fast() || Access::stride(access.fast) != 1) continue;
    *offset = access.offset;
    return store.output;
  }
  return -1;
}

/// A product that is only stored, with its columns contiguous, as the transposed product, whose rows are: gradients of
/// weights come so.
kernel::MatmulKernel upright(kernel::MatmulKernel k, bool* swapped) {
  if (k.batch != 1 || k.m == 0 || k.n == 0 || k.epilogue.stores.size() != 1) return k;
  kernel::Store& store = k.epilogue.stores[0];
  const kernel::Step& step = k.epilogue.steps.at(static_cast<std::size_t>(store.value));
  const Access access = make_access(store.view, k.m, k.n, false);
  if (step.kind != StepKind::accumulator || !access.plain_slow() || !access.plain_fast() ||
      Access::stride(access.slow) != 1 || Access::stride(access.fast) != k.m)
    return k;
  *swapped = true;
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

constexpr std::int64_t kRowsOfAnEpilogue = 16;

/// `quant_matmul`, in which rows of x that are zero take no part: their rows of y are zero, and where all are, the weights
/// are not read. Experts of a mixture see the tokens of others as such rows. Rows do not depend on each other, so the
/// rest have the same bits with them and without.
void multiply_rows_that_count(std::span<const QuantProduct> products, const float* x, std::int64_t m,
                              std::int64_t x_row, Activations activations) {
  const std::int64_t k = products[0].weights->k();
  thread_local std::vector<std::int64_t> scratch_rows;
  std::vector<std::int64_t>& rows = scratch_rows;  // this thread's, also where others read it
  rows.clear();
  for (std::int64_t i = 0; i < m; ++i)
    if (std::any_of(x + i * x_row, x + i * x_row + k, [](float value) { return value != 0; })) rows.push_back(i);
  const auto count = static_cast<std::int64_t>(rows.size());
  // Rows that are gathered are copied twice, which pays where many are left out.
  if (count > 0 && 4 * count > 3 * m) return quant_matmul(products, x, m, x_row, activations);

  thread_local std::vector<float> gathered, made;
  gathered.resize(static_cast<std::size_t>(count * k));
  for (std::int64_t i = 0; i < count; ++i)
    std::copy_n(x + rows[static_cast<std::size_t>(i)] * x_row, k, gathered.begin() + i * k);
  std::int64_t columns = 0;
  for (const QuantProduct& product : products) columns += product.weights->n();
  made.resize(static_cast<std::size_t>(count * columns));
  std::vector<QuantProduct> dense;
  float* y = made.data();
  for (const QuantProduct& product : products) {
    dense.push_back({product.weights, y, product.weights->n(), {}, {}});
    y += count * product.weights->n();
  }
  if (count > 0) quant_matmul(dense, gathered.data(), count, k, activations);

  for (std::size_t p = 0; p < products.size(); ++p) {
    const QuantProduct& product = products[p];
    const std::int64_t n = product.weights->n();
    const auto finish = [&, from = dense[p].y](std::int64_t task) {
      const std::int64_t begin = task * kRowsOfAnEpilogue, end = std::min(m, begin + kRowsOfAnEpilogue);
      thread_local std::vector<float> tile;
      float* to = product.y + begin * product.y_row;
      std::int64_t to_row = product.y_row;
      if (product.y == nullptr) {
        tile.resize(static_cast<std::size_t>(kRowsOfAnEpilogue * n));
        to = tile.data(), to_row = n;
      }
      auto next = std::lower_bound(rows.begin(), rows.end(), begin);
      for (std::int64_t i = begin; i < end; ++i) {
        if (next != rows.end() && *next == i)
          std::copy_n(from + (next++ - rows.begin()) * n, n, to + (i - begin) * to_row);
        else
          std::fill_n(to + (i - begin) * to_row, n, 0.0f);
      }
      if (product.y == nullptr)
        product.after_tile(shifted(to, -begin * to_row), to_row, begin, end, 0, n);
      else if (product.after_block)
        product.after_block(0, begin, end, 0, n);
    };
    const std::int64_t tasks = (m + kRowsOfAnEpilogue - 1) / kRowsOfAnEpilogue;
    if (tasks == 1)
      finish(0);
    else
      parallel_for(tasks, finish);
  }
}

}  // namespace

ProductProgram::ProductProgram(const kernel::MatmulKernel& asked)
    : kernel_(asked.packed ? asked : upright(asked, &swapped_)),
      product_output_(output_for_product(kernel_, &product_offset_)),
      epilogue_(kernel_.epilogue, kernel_.n, kernel_.a.type, product_output_),
      a_offsets_(batch_offsets(kernel_.a_batch, kernel_.batch)),
      b_offsets_(batch_offsets(kernel_.b_batch, kernel_.batch)) {
  if (!kernel_.packed && (kernel_.a.type == DType::boolean || kernel_.a.type != kernel_.b.type))
    throw DTypeError(fmt::format("{}: the CPU has no product of {} and {}; cast both to one number type", kernel_.name,
                                 name_of(kernel_.a.type), name_of(kernel_.b.type)));
  const auto size = static_cast<std::size_t>(size_bytes(kernel_.a.type));
  plain_ = product_output_ >= 0 && kernel_.epilogue.stores.size() == 1 &&
           kernel_.epilogue.steps.at(static_cast<std::size_t>(kernel_.epilogue.stores[0].value)).kind ==
               StepKind::accumulator;
  // The epilogue holds these as bytecode.
  kernel_.epilogue.steps = {};
  kernel_.epilogue.stores = {};
  in_tiles_ = kernel_.packed && product_output_ < 0 && epilogue_.takes_product_rows(kernel_.n);
  if (product_output_ < 0 && !in_tiles_)
    scratch_.resize(static_cast<std::size_t>(kernel_.batch * kernel_.m * kernel_.n) * size);
  if (kernel_.packed) return;
  if (kernel_.a_row != 1 && kernel_.a_col != 1 && kernel_.m > 1 && kernel_.k > 1)
    packed_a_.resize(static_cast<std::size_t>(kernel_.batch * kernel_.m * kernel_.k) * size);
  if (kernel_.b_row != 1 && kernel_.b_col != 1 && kernel_.k > 1 && kernel_.n > 1)
    packed_b_.resize(static_cast<std::size_t>(kernel_.batch * kernel_.k * kernel_.n) * size);
  if (kernel_.a.type == DType::f32 && packed_a_.empty() && packed_b_.empty())
    tasks_ = GemmTasks<float>(arguments<float>(nullptr, nullptr, {})).count();
}

void ProductProgram::AfterBlock::operator()(std::int64_t batch, std::int64_t row_begin, std::int64_t row_end,
                                            std::int64_t column_begin, std::int64_t column_end) const {
  const Extent first = batch * program->kernel_.m;
  program->epilogue_.run_rectangle(epilogue, first + row_begin, first + row_end, column_begin, column_end);
}

/// What they refer to lives until the next call.
template <class T>
GemmArgs<T> ProductProgram::arguments(const char* a, const char* b, LoopBinding epilogue) {
  const kernel::MatmulKernel& k = kernel_;
  GemmArgs<T> args;
  args.batch = k.batch, args.m = k.m, args.n = k.n, args.k = k.k;
  args.a = {reinterpret_cast<const T*>(a), k.a_row, k.a_col, {0, a_offsets_.data()}};
  args.b = {reinterpret_cast<const T*>(b), k.b_row, k.b_col, {0, b_offsets_.data()}};
  if (!packed_a_.empty()) args.a = {reinterpret_cast<const T*>(packed_a_.data()), k.k, 1, {k.m * k.k, nullptr}};
  if (!packed_b_.empty()) args.b = {reinterpret_cast<const T*>(packed_b_.data()), k.n, 1, {k.k * k.n, nullptr}};
  char* product = scratch_.data();
  if (product_output_ >= 0 && !epilogue.outputs.empty())
    product =
        epilogue.outputs[static_cast<std::size_t>(product_output_)] + product_offset_ * static_cast<Extent>(sizeof(T));
  args.c = {reinterpret_cast<T*>(product), k.n, {k.m * k.n, nullptr}};
  epilogue.product = product;
  after_ = {this, epilogue};
  if (!plain_) args.after_block = after_;
  return args;
}

template <class T>
void ProductProgram::run_as(const char* a, const char* b, LoopBinding epilogue) {
  const kernel::MatmulKernel& k = kernel_;
  if (!packed_a_.empty())
    pack(reinterpret_cast<const T*>(a), a_offsets_, k.m, k.k, k.a_row, k.a_col, reinterpret_cast<T*>(packed_a_.data()));
  if (!packed_b_.empty())
    pack(reinterpret_cast<const T*>(b), b_offsets_, k.k, k.n, k.b_row, k.b_col, reinterpret_cast<T*>(packed_b_.data()));
  gemm(arguments<T>(a, b, epilogue));
}

void ProductProgram::start(const char* a, const char* b, LoopBinding epilogue) {
  if (swapped_) std::swap(a, b);
  started_.emplace(arguments<float>(a, b, epilogue));
}

void ProductProgram::run_packed(std::span<const PackedCall> calls, const char* a) {
  struct Part {
    ProductProgram* program;
    LoopBinding epilogue;
    QuantisedMatrix matrix;

    void operator()(std::int64_t, std::int64_t row_begin, std::int64_t row_end, std::int64_t column_begin,
                    std::int64_t column_end) const {
      program->epilogue_.run_rectangle(epilogue, row_begin, row_end, column_begin, column_end);
    }
    void operator()(const float* y, std::int64_t y_row, std::int64_t row_begin, std::int64_t row_end,
                    std::int64_t column_begin, std::int64_t column_end) const {
      LoopBinding binding = epilogue;
      binding.product = reinterpret_cast<const char*>(y);
      binding.product_row = y_row;
      program->epilogue_.run_rectangle(binding, row_begin, row_end, column_begin, column_end);
    }
  };
  std::vector<Part> parts;
  parts.reserve(calls.size());  // products refer to them
  std::vector<QuantProduct> products;
  for (const PackedCall& call : calls) {
    ProductProgram& p = *call.program;
    const kernel::MatmulKernel& k = p.kernel_;
    char* product = p.scratch_.data();
    if (p.product_output_ >= 0)
      product = call.epilogue.outputs[static_cast<std::size_t>(p.product_output_)] +
                p.product_offset_ * static_cast<Extent>(sizeof(float));
    Part& part = parts.emplace_back(Part{&p, call.epilogue, {}});
    part.epilogue.product = product;
    part.matrix = QuantisedMatrix::view(
        k.block_type, {reinterpret_cast<const std::byte*>(call.weights), static_cast<std::size_t>(k.b.count) * 4}, k.n,
        k.k);
    products.push_back({&part.matrix, reinterpret_cast<float*>(product), k.n, {}, {}});
    if (p.in_tiles_)
      products.back().y = nullptr, products.back().after_tile = part;
    else if (!p.plain_)
      products.back().after_block = part;
  }
  const ProductProgram& first = *calls[0].program;
  multiply_rows_that_count(products, reinterpret_cast<const float*>(a) + first.a_offsets_[0], first.kernel_.m,
                           first.kernel_.a_row, first.kernel_.exact ? Activations::exact : Activations::eight_bit);
}

bool ProductProgram::runs_with(std::span<const ProductProgram* const> others) const {
  const kernel::MatmulKernel& k = kernel_;
  for (const ProductProgram* other : others) {
    const kernel::MatmulKernel& o = other->kernel_;
    if (!k.packed || !o.packed || !(k.a == o.a) || k.a_row != o.a_row || k.m != o.m || k.k != o.k ||
        k.exact != o.exact || a_offsets_[0] != other->a_offsets_[0])
      return false;
    const auto touches = [](const kernel::MatmulKernel& writer, const kernel::MatmulKernel& user) {
      for (const kernel::Operand& out : writer.epilogue.outputs) {
        if (overlap(out, user.a) || overlap(out, user.b)) return true;
        for (const auto* list : {&user.epilogue.inputs, &user.epilogue.outputs})
          for (const kernel::Operand& operand : *list)
            if (overlap(out, operand)) return true;
      }
      return false;
    };
    if (touches(o, k) || touches(k, o)) return false;
  }
  return true;
}

void ProductProgram::run(const char* a, const char* b, LoopBinding epilogue) {
  if (kernel_.packed) {
    const PackedCall call{this, b, epilogue};
    return run_packed({&call, 1}, a);
  }
  if (swapped_) std::swap(a, b);
  switch (kernel_.a.type) {
    case DType::f32: return run_as<float>(a, b, epilogue);
    case DType::f64: return run_as<double>(a, b, epilogue);
    default: return run_as<std::int32_t>(a, b, epilogue);  // u32 wraps as i32 does
  }
}

std::string ProductProgram::to_string() const {
  std::string text = fmt::format("{}product {}: {} x [{}, {}] x [{}, {}]",
                                 kernel_.packed ? fmt::format("{} ", name_of(kernel_.block_type)) : "", kernel_.name,
                                 kernel_.batch, kernel_.m, kernel_.k, kernel_.k, kernel_.n);
  text += product_output_ >= 0 ? fmt::format(" into out{}\n", product_output_)
                               : std::string(in_tiles_ ? " into tiles\n" : " into scratch\n");
  if (!plain_) text += epilogue_.to_string();
  return text;
}

}  // namespace weft::cpu
