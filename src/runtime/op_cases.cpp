#include "runtime/op_cases.hpp"

#include <cmath>

#include "tensor/element.hpp"
#include "weft/grad.hpp"
#include "weft/ops.hpp"

namespace weft::runtime {

std::vector<double> random_numbers(Extent count, double lo, double hi, std::uint32_t seed) {
  std::vector<double> values;
  for (Extent i = 0; i < count; ++i) {
    // A multiply-xorshift hash is random enough for test inputs.
    std::uint64_t h = (static_cast<std::uint64_t>(seed) << 32 | static_cast<std::uint64_t>(i)) * 0x9e3779b97f4a7c15ull;
    h = (h ^ h >> 32) * 0xd6e8feb86659fd93ull;
    const double unit = static_cast<double>((h ^ h >> 32) >> 40) * 0x1p-24;
    values.push_back(static_cast<float>(lo + (hi - lo) * unit));
  }
  return values;
}

Tensor tensor_of(const std::vector<double>& numbers, const Shape& shape, DType type) {
  std::vector<std::byte> bytes(bytes_of(type, numbers.size()));
  for (std::size_t i = 0; i < numbers.size(); ++i) write_element(type, numbers[i], bytes.data(), i);
  return tensor_from_bytes(bytes.data(), shape, type);
}

std::vector<double> numbers_of(const Tensor& t) {
  const auto count = static_cast<std::size_t>(t.numel());
  std::vector<std::byte> bytes(bytes_of(t.dtype(), count));
  t.copy_to(bytes.data(), bytes.size());
  std::vector<double> numbers;
  for (std::size_t i = 0; i < count; ++i) numbers.push_back(read_element(t.dtype(), bytes.data(), i));
  return numbers;
}

graph::Tensors case_inputs(const std::vector<graph::CaseInput>& inputs, DType type) {
  graph::Tensors tensors;
  std::uint32_t seed = 0;
  for (const graph::CaseInput& input : inputs) {
    ++seed;
    if (input.absent) {
      tensors.emplace_back();
      continue;
    }
    const bool is_real = is_float(input.type);
    // Integer inputs get hi as often as every other whole number.
    std::vector<double> numbers =
        input.values.empty() ? random_numbers(input.shape.numel(), input.lo, input.hi + (is_real ? 0 : 1), seed)
                             : input.values;
    if (!is_real)
      for (double& number : numbers) number = std::floor(number);
    tensors.push_back(tensor_of(numbers, input.shape, is_real ? type : input.type));
  }
  return tensors;
}

bool takes(const graph::OpRow& row, const std::vector<graph::CaseInput>& inputs, DType type) {
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    const graph::InputSpec& spec = row.inputs[std::min(i, row.inputs.size() - 1)];
    if (!inputs[i].absent && is_float(inputs[i].type) && !spec.allows(type)) return false;
  }
  return true;
}

graph::Tensors case_results(const graph::OpRow& row, const graph::OpCase& one, DType type, bool with_gradients) {
  const graph::Tensors inputs = case_inputs(one.inputs, type);
  graph::Tensors results = graph::apply(row, inputs, one.attributes);
  if (!with_gradients || !is_float(results[0].dtype())) return results;
  graph::Tensors real;
  for (const Tensor& input : inputs)
    if (input.defined() && is_float(input.dtype())) real.push_back(input);
  const Tensor& y = results[0];
  const Tensor weights = tensor_of(random_numbers(y.numel(), 0.5, 1.5, 99), y.shape(), y.dtype());
  const graph::Tensors gradients = grad(y, real, weights);
  results.insert(results.end(), gradients.begin(), gradients.end());
  return results;
}

}  // namespace weft::runtime
