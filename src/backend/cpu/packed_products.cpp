#include "backend/cpu/packed_products.hpp"

#include <algorithm>

#include <fmt/format.h>

#include "base/threads.hpp"

namespace weft::cpu {
namespace {

constexpr std::int64_t kRowsOfAnEpilogue = 16;

/// `quant_matmul` of the chosen rows of x, gathered. Rows do not depend on each other, so the bits are the same with and
/// without other rows.
void multiply_chosen_rows(std::span<const QuantProduct> products, const float* x, std::int64_t m, std::int64_t x_row,
                          ChosenRows chosen, Activations activations) {
  const std::int64_t k = products[0].weights->k();
  thread_local std::vector<std::int64_t> scratch_rows;
  std::vector<std::int64_t>& rows = scratch_rows;  // of this thread, although other threads read it
  rows.clear();
  for (std::int64_t i = 0; i < m; ++i)
    if (chosen.has(i)) rows.push_back(i);
  const auto count = static_cast<std::int64_t>(rows.size());
  if (count == m) return quant_matmul(products, x, m, x_row, activations);

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

PackedProducts::Member::Member(const kernel::PackedMatmulKernel& kernel)
    : name(kernel.name),
      weights(kernel.weights),
      type(kernel.block_type),
      n(kernel.n),
      k(kernel.k),
      epilogue(kernel),
      matrix(QuantisedMatrix::without_data(type, n, k)) {}

PackedProducts::PackedProducts(std::span<const kernel::PackedMatmulKernel* const> kernels)
    : a_(kernels[0]->a),
      x_row_(kernels[0]->a_row),
      m_(kernels[0]->m),
      activations_(kernels[0]->exact ? Activations::exact : Activations::eight_bit),
      chosen_(kernels[0]->chosen),
      chosen_stride_(kernels[0]->chosen_stride) {
  for (const kernel::PackedMatmulKernel* kernel : kernels)
    products_.push_back({&members_.emplace_back(*kernel).matrix, nullptr, kernel->n, {}, {}});
  tasks_.emplace(products_, m_, activations_);
  if (!tasks_->is_small()) tasks_.reset();
}

bool PackedProducts::may_join(const kernel::PackedMatmulKernel& k,
                              std::span<const kernel::PackedMatmulKernel* const> others) {
  const auto touches = [](const kernel::PackedMatmulKernel& writer, const kernel::PackedMatmulKernel& user) {
    for (const kernel::Operand& out : writer.epilogue.outputs) {
      if (overlap(out, user.a) || overlap(out, user.weights) || (user.chosen && overlap(out, *user.chosen)))
        return true;
      for (const auto* list : {&user.epilogue.inputs, &user.epilogue.outputs})
        for (const kernel::Operand& operand : *list)
          if (overlap(out, operand)) return true;
    }
    return false;
  };
  return std::all_of(others.begin(), others.end(), [&](const kernel::PackedMatmulKernel* o) {
    return k.a == o->a && k.a_row == o->a_row && k.m == o->m && k.k == o->k && k.exact == o->exact &&
           k.chosen == o->chosen && k.chosen_stride == o->chosen_stride && !touches(*o, k) && !touches(k, *o);
  });
}

void PackedProducts::bind(const Memory& memory) {
  x_ = reinterpret_cast<const float*>(memory.at(a_));
  if (chosen_) rows_ = {reinterpret_cast<const float*>(memory.at(*chosen_)), chosen_stride_};
  for (std::size_t i = 0; i < products_.size(); ++i) {
    Member& member = members_[i];
    QuantProduct& product = products_[i];
    member.matrix = QuantisedMatrix::view(member.type,
                                          {reinterpret_cast<const std::byte*>(memory.at(member.weights)),
                                           static_cast<std::size_t>(member.weights.count) * 4},
                                          member.n, member.k);
    product.y = reinterpret_cast<float*>(member.epilogue.bind(memory));
    if (product.y == nullptr)
      product.after_tile = member.epilogue;
    else if (!member.epilogue.is_empty())
      product.after_block = member.epilogue;
  }
}

void PackedProducts::run_products(std::span<const QuantProduct> products) const {
  multiply_chosen_rows(products, x_, m_, x_row_, rows_, activations_);
}

std::string PackedProducts::to_string() const {
  std::string text;
  for (const Member& member : members_)
    text += fmt::format("{} product {}: [{}, {}] x [{}, {}]{}", name_of(member.type), member.name, m_, member.k,
                        member.k, member.n, member.epilogue.to_string());
  return text;
}

std::size_t PackedProducts::scratch_bytes() const {
  std::size_t bytes = 0;
  for (const Member& member : members_) bytes += member.epilogue.scratch_bytes();
  return bytes;
}

}  // namespace weft::cpu
