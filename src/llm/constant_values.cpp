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

  /// Of the first axis. Experts may have a tensor each; all keys of a cut name one tensor.
  Extent count() const {
    const Extent all = constant.shape.empty() ? 1 : constant.shape[0].value;
    return constant.cut ? all : all / static_cast<Extent>(constant.keys.size());
  }
};

/// Calls `put` with the place in the tensor of each value of a part.
template <class Put>
void for_each_place(const Part& part, std::size_t numel, const Put& put) {
  const TensorDesc& constant = part.constant;
  if (const auto& cut = constant.cut) {
    const auto group = static_cast<std::size_t>(cut->rows * cut->columns),
               count = static_cast<std::size_t>(cut->numel());
    for (std::size_t i = 0; i < numel; ++i)
      put(i, i / count * group + static_cast<std::size_t>(cut->place(static_cast<Extent>(i % count))));
    return;
  }
  if (!constant.transposed) {
    for (std::size_t i = 0; i < numel; ++i) put(i, i);
    return;
  }
  const auto rows = static_cast<std::size_t>(constant.shape[0].value),
             columns = static_cast<std::size_t>(constant.shape[1].value);
  for (std::size_t r = 0; r < rows; ++r)
    for (std::size_t c = 0; c < columns; ++c) put(r * columns + c, c * rows + r);
}

/// A tensor that some parts change.
io::TensorSource with_parts(const io::TensorSource& source, const std::vector<TensorDesc>& constants,
                            const ConstantValues& values_of, bool adds) {
  const TensorNames names(source);
  std::map<const io::SourceTensor*, std::vector<Part>> parts;  // by their tensors
  for (const TensorDesc& tensor : constants)
    for (std::size_t key = 0; key < (tensor.cut ? 1 : tensor.keys.size()); ++key)
      parts[names.find(tensor.keys[key])].push_back({tensor, key});
  const auto base = std::make_shared<const io::TensorSource>(source);
  std::vector<io::SourceTensor> tensors = source.tensors();
  for (auto& [found, changed] : parts)
    tensors[static_cast<std::size_t>(found - source.tensors().data())] =
        edited(base, *found, [changed = std::move(changed), values_of, adds](std::vector<float>& values) {
          for (const Part& part : changed) {
            const auto given =
                values_of(part.constant.name, static_cast<Extent>(part.key) * part.count(), part.count());
            if (!given) continue;
            for_each_place(part, given->size(), [&](std::size_t from, std::size_t to) {
              values[to] = adds ? values[to] + (*given)[from] : (*given)[from];
            });
          }
        });
  return source.with_tensors(std::move(tensors));
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

io::TensorSource with_values(const io::TensorSource& source, const ModelGraph& graph, ConstantValues values_of) {
  std::vector<TensorDesc> constants;
  for (const TensorDesc& tensor : graph.tensors)
    if (tensor.storage == TensorStorage::constant) constants.push_back(tensor);
  return with_parts(source, constants, values_of, false);
}

io::TensorSource with_added_values(const io::TensorSource& source, const ModelGraph& graph, ConstantValues values_of) {
  std::vector<TensorDesc> constants;
  for (const OpNode& node : graph.nodes)
    if (node.op == OpType::experts)
      for (std::size_t i = 2; i < 5; ++i)
        if (values_of(node.inputs[i], 0, 0)) constants.push_back(graph.at(node.inputs[i]));
  return constants.empty() ? source : with_parts(source, constants, values_of, true);
}

}  // namespace weft::llm
