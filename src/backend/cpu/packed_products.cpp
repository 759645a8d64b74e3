#include "backend/cpu/packed_products.hpp"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "base/threads.hpp"

namespace weft::cpu {
namespace {

constexpr std::int64_t kRowsOfAnEpilogue = 16;

/// The rows of y, sorted by their experts: those of expert e are `rows` from `ends[e - 1]` to `ends[e]`.
struct RowsOfExperts {
  std::vector<std::int64_t> ends, rows, place;  // place[i]: of row i in `rows`, or -1 if it has no expert

  void sort(const std::int32_t* of_row, std::int64_t m, std::int64_t experts) {
    ends.assign(static_cast<std::size_t>(experts), 0);
    place.assign(static_cast<std::size_t>(m), -1);
    const auto has = [&](std::int64_t i) { return of_row[i] >= 0 && of_row[i] < experts; };
    for (std::int64_t i = 0; i < m; ++i)
      if (has(i)) ++ends[static_cast<std::size_t>(of_row[i])];
    std::int64_t count = 0;
    for (std::int64_t& end : ends) count += std::exchange(end, count);  // now where each begins
    rows.resize(static_cast<std::size_t>(count));
    for (std::int64_t i = 0; i < m; ++i) {
      if (!has(i)) continue;
      const std::int64_t at = ends[static_cast<std::size_t>(of_row[i])]++;
      rows[static_cast<std::size_t>(at)] = i;
      place[static_cast<std::size_t>(i)] = at;
    }
  }
};

/// Memory that a thread which starts products keeps.
struct ExpertScratch {
  RowsOfExperts sorted;
  std::vector<float> gathered, made;
};
thread_local ExpertScratch expert_scratch;

/// Rows of `made` in their own order, through the epilogue; zeros for rows without an expert.
void finish_rows(const QuantProduct& product, std::int64_t n, const float* made, std::span<const std::int64_t> place,
                 std::int64_t begin, std::int64_t end) {
  thread_local std::vector<float> tile;
  float* to = product.y + begin * product.y_row;
  std::int64_t to_row = product.y_row;
  if (product.y == nullptr) {
    tile.resize(static_cast<std::size_t>(kRowsOfAnEpilogue * n));
    to = tile.data(), to_row = n;
  }
  for (std::int64_t i = begin; i < end; ++i) {
    const std::int64_t at = place[static_cast<std::size_t>(i)];
    if (at < 0)
      std::fill_n(to + (i - begin) * to_row, n, 0.0f);
    else
      std::copy_n(made + at * n, n, to + (i - begin) * to_row);
  }
  if (product.y == nullptr)
    product.after_tile(shifted(to, -begin * to_row), to_row, begin, end, 0, n);
  else if (product.after_block)
    product.after_block(0, begin, end, 0, n);
}

/// `quant_matmul` of rows that each have the weights of their expert. Rows do not depend on each other, so the bits are the same with
/// and without other rows. `products` have y of `m` rows of `n` numbers, and the weights of all experts.
void multiply_by_experts(std::span<const QuantProduct> products, std::span<const std::int64_t> widths, const float* x,
                         std::int64_t x_row, std::int64_t share, const std::int32_t* of_row, std::int64_t m,
                         std::int64_t experts, Activations activations) {
  ExpertScratch& scratch = expert_scratch;  // of this thread, although other threads read it
  const std::int64_t k = products[0].weights->k();
  scratch.sorted.sort(of_row, m, experts);
  const std::vector<std::int64_t>& rows = scratch.sorted.rows;
  const auto count = static_cast<std::int64_t>(rows.size());
  scratch.gathered.resize(static_cast<std::size_t>(count * k));
  for (std::int64_t at = 0; at < count; ++at)
    std::copy_n(x + rows[static_cast<std::size_t>(at)] / share * x_row, k, scratch.gathered.begin() + at * k);
  std::int64_t columns = 0;
  for (const std::int64_t n : widths) columns += n;
  scratch.made.resize(static_cast<std::size_t>(count * columns));

  std::vector<QuantisedMatrix> weights(products.size());
  std::vector<QuantProduct> of_expert(products.size());
  std::int64_t first = 0;
  for (std::int64_t e = 0; e < experts; ++e) {
    const std::int64_t last = scratch.sorted.ends[static_cast<std::size_t>(e)];
    if (last == first) continue;
    float* y = scratch.made.data();
    for (std::size_t p = 0; p < products.size(); y += count * widths[p++]) {
      weights[p] = products[p].weights->rows(e * widths[p], widths[p]);
      of_expert[p] = {&weights[p], y + first * widths[p], widths[p], {}, {}};
    }
    quant_matmul(of_expert, scratch.gathered.data() + first * k, last - first, k, activations);
    first = last;
  }

  const float* made = scratch.made.data();
  const std::span<const std::int64_t> place = scratch.sorted.place;
  for (std::size_t p = 0; p < products.size(); made += count * widths[p++]) {
    const std::int64_t tasks = (m + kRowsOfAnEpilogue - 1) / kRowsOfAnEpilogue;
    const auto finish = [&](std::int64_t task) {
      const std::int64_t begin = task * kRowsOfAnEpilogue;
      finish_rows(products[p], widths[p], made, place, begin, std::min(m, begin + kRowsOfAnEpilogue));
    };
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
      matrix(QuantisedMatrix::without_data(type, kernel.rows_of_weights(), k)) {}

PackedProducts::PackedProducts(std::span<const kernel::PackedMatmulKernel* const> kernels)
    : a_(kernels[0]->a),
      x_row_(kernels[0]->a_row),
      m_(kernels[0]->m),
      activations_(kernels[0]->exact ? Activations::exact : Activations::eight_bit),
      experts_(kernels[0]->experts) {
  for (const kernel::PackedMatmulKernel* kernel : kernels) {
    products_.push_back({&members_.emplace_back(*kernel).matrix, nullptr, kernel->n, {}, {}});
    widths_.push_back(kernel->n);
  }
  if (experts_) return;
  tasks_.emplace(products_, m_, activations_);
  if (!tasks_->is_small()) tasks_.reset();
}

bool PackedProducts::may_join(const kernel::PackedMatmulKernel& k,
                              std::span<const kernel::PackedMatmulKernel* const> others) {
  const auto touches = [](const kernel::PackedMatmulKernel& writer, const kernel::PackedMatmulKernel& user) {
    for (const kernel::Operand& out : writer.epilogue.outputs) {
      if (overlap(out, user.a) || overlap(out, user.weights) || (user.experts && overlap(out, user.experts->of_row)))
        return true;
      for (const auto* list : {&user.epilogue.inputs, &user.epilogue.outputs})
        for (const kernel::Operand& operand : *list)
          if (overlap(out, operand)) return true;
    }
    return false;
  };
  return std::all_of(others.begin(), others.end(), [&](const kernel::PackedMatmulKernel* o) {
    return k.a == o->a && k.a_row == o->a_row && k.m == o->m && k.k == o->k && k.exact == o->exact &&
           k.experts == o->experts && !touches(*o, k) && !touches(k, *o);
  });
}

void PackedProducts::bind(const Memory& memory) {
  x_ = reinterpret_cast<const float*>(memory.at(a_));
  if (experts_) of_row_ = reinterpret_cast<const std::int32_t*>(memory.at(experts_->of_row));
  for (std::size_t i = 0; i < products_.size(); ++i) {
    Member& member = members_[i];
    QuantProduct& product = products_[i];
    member.matrix = QuantisedMatrix::view(member.type,
                                          {reinterpret_cast<const std::byte*>(memory.at(member.weights)),
                                           static_cast<std::size_t>(member.weights.count) * 4},
                                          member.matrix.n(), member.k);
    product.y = reinterpret_cast<float*>(member.epilogue.bind(memory));
    if (product.y == nullptr)
      product.after_tile = member.epilogue;
    else if (!member.epilogue.is_empty())
      product.after_block = member.epilogue;
  }
}

void PackedProducts::run_products(std::size_t first, std::size_t count) const {
  const auto products = std::span(products_).subspan(first, count);
  if (experts_)
    multiply_by_experts(products, std::span(widths_).subspan(first, count), x_, x_row_, experts_->share, of_row_, m_,
                        experts_->count, activations_);
  else
    quant_matmul(products, x_, m_, x_row_, activations_);
}

std::string PackedProducts::to_string() const {
  std::string text;
  for (const Member& member : members_)
    text += fmt::format("{} product {}: [{}, {}] x [{}, {}]{}{}", name_of(member.type), member.name, m_, member.k,
                        member.k, member.n, experts_ ? fmt::format(", {} experts", experts_->count) : "",
                        member.epilogue.to_string());
  return text;
}

std::size_t PackedProducts::scratch_bytes() const {
  std::size_t bytes = 0;
  for (const Member& member : members_) bytes += member.epilogue.scratch_bytes();
  return bytes;
}

}  // namespace weft::cpu
