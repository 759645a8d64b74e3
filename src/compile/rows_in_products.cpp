#include "compile/rows_in_products.hpp"

#include <algorithm>
#include <unordered_map>

#include "compile/row_factors.hpp"

namespace weft::compiler {
namespace {

using graph::Node;

constexpr Extent kPackedBlock = 32;  // columns in a block of packed weights

/// The loop, if it is such a norm: it writes its rows whole and in order.
const kernel::LoopKernel* norm_of_few_rows(const DraftKernel& draft, const Target& target) {
  const auto* loop = std::get_if<kernel::LoopKernel>(&draft.kernel);
  if (!loop || loop->outer > target.computed_rows_max || loop->inner % kPackedBlock != 0 || draft.writes.size() != 1 ||
      !row_factors(*loop))
    return nullptr;
  const kernel::View in_order{{loop->outer * loop->inner}, {1}, 0, {}};
  return loop->stores[0].view == in_order ? loop : nullptr;
}

/// Whether the kernel is a product with packed weights whose first operand is exactly these rows.
bool can_compute(const DraftKernel& reader, const Node* rows, const kernel::LoopKernel& norm, const Target& target) {
  constexpr std::size_t kOfPackedWeights = 3;  // operands that packed weights may take beyond the first
  const auto* product = std::get_if<kernel::PackedMatmulKernel>(&reader.kernel);
  return product && !product->experts && product->m == norm.outer && product->k == norm.inner &&
         product->a.offset == 0 && product->a_row == product->k && reader.reads[0] == rows &&
         std::count(reader.reads.begin(), reader.reads.end(), rows) == 1 &&
         reader.reads.size() + norm.inputs.size() + reader.writes.size() + kOfPackedWeights <=
             static_cast<std::size_t>(target.operands_max);
}

}  // namespace

void compute_rows_in_products(std::vector<DraftKernel>& kernels, const Placement& placement, const Target& target) {
  if (target.computed_rows_max == 0) return;
  std::unordered_map<const Node*, std::vector<std::size_t>> readers, writers;
  for (std::size_t i = 0; i < kernels.size(); ++i) {
    for (const Node* owner : kernels[i].reads) readers[owner].push_back(i);
    for (const Node* owner : kernels[i].writes) writers[owner].push_back(i);
  }
  std::vector<bool> is_gone(kernels.size(), false);
  for (std::size_t i = 0; i < kernels.size(); ++i) {
    const kernel::LoopKernel* norm = norm_of_few_rows(kernels[i], target);
    if (!norm) continue;
    const Node* rows = kernels[i].writes[0];
    const std::vector<std::size_t>& of_rows = readers[rows];
    if (placement.stored.contains(rows) || placement.places.contains(rows) || writers[rows].size() != 1 ||
        of_rows.empty() || !std::all_of(of_rows.begin(), of_rows.end(), [&](std::size_t reader) {
          return can_compute(kernels[reader], rows, *norm, target);
        }))
      continue;
    for (const std::size_t reader : of_rows) {
      DraftKernel& draft = kernels[reader];
      std::get<kernel::PackedMatmulKernel>(draft.kernel).rows = *norm;
      draft.reads.erase(draft.reads.begin());
      draft.reads.insert(draft.reads.end(), kernels[i].reads.begin(), kernels[i].reads.end());
    }
    is_gone[i] = true;
  }
  std::vector<DraftKernel> left;
  for (std::size_t i = 0; i < kernels.size(); ++i)
    if (!is_gone[i]) left.push_back(std::move(kernels[i]));
  kernels = std::move(left);
}

}  // namespace weft::compiler
