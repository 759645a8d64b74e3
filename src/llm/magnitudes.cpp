#include "llm/magnitudes.hpp"

#include <algorithm>

#include "runtime/packed_matrix.hpp"
#include "weft/grad.hpp"
#include "weft/inference.hpp"
#include "weft/ops.hpp"

namespace weft::llm {
namespace {

Tensor as_tensor(const std::vector<float>& values, const Shape& shape) {
  return tensor_from_bytes(values.data(), shape, DType::f32, kCpu);
}

}  // namespace

Tensor row_squares(const Tensor& weight) {
  const Tensor plain = cast(weight, DType::f32);
  return sum(plain * plain, {1});
}

Tensor row_lengths(const Tensor& weight, const Tensor& squares, const Tensor& a, const Tensor& b, double scale) {
  const Tensor through = is_packed_matrix(weight) ? packed_linear(a, weight, {}, true) : linear(a, weight);  // A W^T
  const Tensor both = sum(transpose(through) * b, {1}), own = sum(matmul(b, matmul(a, transpose(a))) * b, {1});
  const Tensor all = squares + both * (2 * scale) + own * (scale * scale);
  return detach(elementwise("sqrt", {elementwise("maximum", {all, scalar_like(0, all)})}));
}

void forget_magnitudes(std::vector<LowRank>& changes) {
  for (LowRank& change : changes) {
    if (!change.magnitude.empty()) change.gain.assign(change.magnitude.size(), 1.0F);
    change.magnitude.clear();
  }
}

void make_gains(std::vector<LowRank>& changes, const ModelGraph& graph, const TensorNames& names) {
  if (std::all_of(changes.begin(), changes.end(), [](const LowRank& change) { return change.magnitude.empty(); }))
    return;
  check_tensors(graph, names);
  for (LowRank& change : changes) {
    if (change.magnitude.empty()) continue;
    const auto product = std::find_if(graph.nodes.begin(), graph.nodes.end(),
                                      [&](const OpNode& node) { return node.id == change.node; });
    const Tensor weight = dense_weight(graph.at(product->inputs[1]), names, kCpu);
    const Tensor lengths = row_lengths(weight, row_squares(weight), as_tensor(change.a, {change.rank, change.in}),
                                       as_tensor(change.b, {change.out, change.rank}), change.scale);
    const std::vector<float> gains = (as_tensor(change.magnitude, {change.out}) / lengths).to_vector<float>();
    const auto rank = static_cast<std::size_t>(change.rank);
    for (std::size_t row = 0; row < gains.size(); ++row) {
      const double gain = double{gains[row]};
      change.gain.push_back(static_cast<float>(1 + change.strength * (gain - 1)));
      for (std::size_t i = 0; i < rank; ++i) {
        float& value = change.b[row * rank + i];
        value = static_cast<float>(value * (change.strength * gain * change.scale));
      }
    }
    change.scale = change.strength = 1;
    change.magnitude.clear();
  }
}

}  // namespace weft::llm
