#include "llm/constant_values.hpp"

#include <fmt/format.h>

#include <map>
#include <memory>

#include "base/quote.hpp"
#include "llm/adapter_tensors.hpp"
#include "llm/weights.hpp"
#include "weft/error.hpp"

namespace weft::llm {
namespace {

/// Puts the values of a constant to their places in its tensor.
void put(const TensorDesc& constant, const std::vector<float>& from, std::vector<float>& to) {
  if (const auto& cut = constant.cut) {
    const auto group = static_cast<std::size_t>(cut->rows * cut->columns),
               part = static_cast<std::size_t>(cut->numel());
    for (std::size_t i = 0; i < from.size(); ++i)
      to[i / part * group + static_cast<std::size_t>(cut->place(static_cast<Extent>(i % part)))] = from[i];
    return;
  }
  if (!constant.transposed) {
    to = from;
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

void require_trainable(const ModelGraph& graph) {
  for (const OpNode& node : graph.nodes)
    if (node.op == OpType::experts)
      throw UsageError(
          fmt::format("{}: {} mixes experts, and all weights of such models do not train; train an adapter",
                      graph.config.source, quote(node.id, 80)));
}

io::TensorSource with_values(const io::TensorSource& source, const ModelGraph& graph,
                             std::function<std::vector<float>(const std::string& constant)> values_of) {
  require_trainable(graph);
  const TensorNames names(source);
  std::map<const io::SourceTensor*, std::vector<TensorDesc>> parts;  // constants by their tensors
  for (const TensorDesc& tensor : graph.tensors)
    if (tensor.storage == TensorStorage::constant) parts[names.find(tensor.keys[0])].push_back(tensor);
  const auto base = std::make_shared<const io::TensorSource>(source);
  std::vector<io::SourceTensor> tensors = source.tensors();
  for (auto& [found, constants] : parts)
    tensors[static_cast<std::size_t>(found - source.tensors().data())] =
        edited(base, *found, [constants = std::move(constants), values_of](std::vector<float>& values) {
          for (const TensorDesc& constant : constants) put(constant, values_of(constant.name), values);
        });
  return source.with_tensors(std::move(tensors));
}

}  // namespace weft::llm
