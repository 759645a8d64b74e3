#include "backend/webgpu/wgsl/quantised/computed_rows.hpp"

#include <fmt/format.h>

namespace weft::webgpu {

ComputedRows::ComputedRows(const kernel::LoopKernel& rows, Bindings& bindings, Helpers& helpers)
    : rows_(without_stores(rows)),
      factors_(*compiler::row_factors(rows)),
      elements_(rows_, bindings, helpers, outer(), inner(), wanted()),
      scales_(rows_, bindings, helpers, outer(), inner(), factors_.outer) {}

void ComputedRows::declare(ShaderPieces& shader) {
  std::string pointers, numbers, adds, product;
  for (std::size_t r = 0; r < factors_.sums.size(); ++r) {
    pointers += fmt::format(", sum{}: ptr<function, vec4f>", r);
    numbers += fmt::format(", sum{}: f32", r);
    const int summed = rows_.steps[static_cast<std::size_t>(factors_.sums[r])].a;
    elements_.write(summed);
    adds += fmt::format("  *sum{} += {};\n", r, four(summed));
    scales_.define(factors_.sums[r], {fmt::format("sum{}", r)});
  }
  for (const int step : factors_.inner) {
    elements_.write(step);
    product += (product.empty() ? "" : " * ") + four(step);
  }
  std::string scale;
  for (const int step : factors_.outer) {
    scales_.write(step);
    scale += (scale.empty() ? "" : " * ") + scales_.value(step).text;
  }
  const std::string at = fmt::format("  let i = min(row, {}u);\n", rows_.outer - 1);
  shader.functions.push_back({"activations", fmt::format("(row: u32, e: u32{}) -> vec4f {{\n{}{}{}  return {};\n}}\n",
                                                         pointers, at, elements_.take_text(), adds, product)});
  shader.functions.push_back({"row_factor", fmt::format("(row: u32{}) -> f32 {{\n{}{}  return {};\n}}\n", numbers, at,
                                                        scales_.take_text(), scale)});
}

kernel::LoopKernel ComputedRows::without_stores(kernel::LoopKernel rows) {
  rows.stores.clear();
  rows.outputs.clear();
  return rows;
}

std::vector<int> ComputedRows::wanted() const {
  std::vector<int> steps = factors_.inner;
  for (const int sum : factors_.sums) steps.push_back(rows_.steps[static_cast<std::size_t>(sum)].a);
  return steps;
}

std::string ComputedRows::four(int step) const {
  if (elements_.is_uniform(step)) return fmt::format("vec4f({})", elements_.value(step).text);
  return fmt::format("vec4f({}, {}, {}, {})", elements_.value(step, 0).text, elements_.value(step, 1).text,
                     elements_.value(step, 2).text, elements_.value(step, 3).text);
}

}  // namespace weft::webgpu
