#include "ops/table.hpp"
#include "snapshot/cases.hpp"
#include "snapshot/inputs.hpp"

namespace weft::snapshot {
namespace {

bool takes_floats(ops::DTypes types) { return ops::allows(types, DType::f32); }

void run_row(const ops::ElementwiseRow& row) {
  for (const DType type : {DType::f32, DType::i32, DType::u32, DType::boolean}) {
    if (!ops::allows(row.dtypes, type)) continue;
    std::vector<double> attributes;  // integers have no 1.5
    for (const ops::Attribute& attribute : row.attributes)
      attributes.push_back(type == DType::f32 ? attribute.tested : attribute.default_value);
    std::vector<Tensor> inputs;  // the second is broadcast
    for (std::size_t i = 0; i < row.inputs.size(); ++i)
      inputs.push_back(leaf(i == 1 ? Shape{1, 33} : Shape{5, 33}, type));
    const Tensor y = elementwise(row.name, inputs, attributes);
    y.eval();
    if (type == DType::f32 && row.differentiable) eval(grad(sum(cast(y, DType::f32)), inputs));
  }
}

void run_row(const ops::ReduceRow& row) {
  std::vector<double> attributes;
  for (const ops::Attribute& attribute : row.attributes) attributes.push_back(attribute.tested);
  const bool one_axis = row.reduction == scalar::Reduction::argmax || row.reduction == scalar::Reduction::argmin;
  for (const DType type : {DType::f32, DType::i32}) {
    if (!ops::allows(row.dtypes, type)) continue;
    const Tensor x = leaf({6, 7, 130}, type), large = leaf({300000}, type);
    for (const Axes& axes : {Axes{2}, Axes{0}, Axes{1}, Axes{0, 2}, Axes{}}) {
      if (one_axis && axes.size() != 1) continue;
      const Tensor y = reduce(row.name, x, axes, {}, attributes);
      y.eval();
      if (type == DType::f32 && row.differentiable) grad(sum(cast(y, DType::f32)), x).eval();
    }
    reduce(row.name, large, {0}, {}, attributes).eval();
  }
}

}  // namespace

std::vector<Case> elementwise_cases() {
  std::vector<Case> cases;
  for (const ops::ElementwiseRow* row : ops::elementwise_rows())
    cases.push_back({"elementwise_" + std::string(row->name), [row] { run_row(*row); }});
  for (const ops::ReduceRow& row : ops::reduce_rows())
    cases.push_back({"reduce_" + std::string(row.name), [&row] { run_row(row); }, takes_floats(row.dtypes)});
  return cases;
}

}  // namespace weft::snapshot
