#include "llm/constant_values.hpp"

#include <algorithm>
#include <map>
#include <memory>

#include "llm/adapter_tensors.hpp"
#include "llm/weights.hpp"

namespace weft::llm {
namespace {

/// A constant, and which of its keys names the tensor.
struct Part {
  TensorDesc constant;
  std::size_t key = 0;
};

/// Puts the values of a constant that are in one tensor to their places there.
void put(const Part& part, const std::vector<float>& from, std::vector<float>& to) {
  const TensorDesc& constant = part.constant;
  if (const auto& cut = constant.cut) {
    const auto group = static_cast<std::size_t>(cut->rows * cut->columns),
               count = static_cast<std::size_t>(cut->numel());
    for (std::size_t i = 0; i < from.size(); ++i)
      to[i / count * group + static_cast<std::size_t>(cut->place(static_cast<Extent>(i % count)))] = from[i];
    return;
  }
  if (!constant.transposed) {  // experts may have a tensor each
    std::copy_n(from.begin() + static_cast<std::ptrdiff_t>(part.key * to.size()), to.size(), to.begin());
    return;
  }
  const auto rows = static_cast<std::size_t>(constant.shape[0].value),
             columns = static_cast<std::size_t>(constant.shape[1].value);
  for (std::size_t r = 0; r < rows; ++r)
    for (std::size_t c = 0; c < columns; ++c) to[c * rows + r] = from[r * columns + c];
}

}  // namespace

std::int64_t constant_count(const ModelGraph& graph) {
  std::int64_t numbers = 0;
  for (const TensorDesc& tensor : graph.tensors) {
    if (tensor.storage != TensorStorage::constant) continue;
    std::int64_t count = 1;
    for (const Dim& extent : tensor.shape) count *= extent.value;
    numbers += count;
  }
  return numbers;
}

io::TensorSource with_values(const io::TensorSource& source, const ModelGraph& graph,
                             std::function<std::vector<float>(const std::string& constant)> values_of) {
  const TensorNames names(source);
  std::map<const io::SourceTensor*, std::vector<Part>> parts;  // constants by their tensors
  for (const TensorDesc& tensor : graph.tensors) {
    if (tensor.storage != TensorStorage::constant) continue;
    // All keys of a cut name one tensor.
    for (std::size_t key = 0; key < (tensor.cut ? 1 : tensor.keys.size()); ++key)
      parts[names.find(tensor.keys[key])].push_back({tensor, key});
  }
  const auto base = std::make_shared<const io::TensorSource>(source);
  std::vector<io::SourceTensor> tensors = source.tensors();
  for (auto& [found, constants] : parts)
    tensors[static_cast<std::size_t>(found - source.tensors().data())] =
        edited(base, *found, [constants = std::move(constants), values_of](std::vector<float>& values) {
          for (const Part& part : constants) put(part, values_of(part.constant.name), values);
        });
  return source.with_tensors(std::move(tensors));
}

}  // namespace weft::llm
