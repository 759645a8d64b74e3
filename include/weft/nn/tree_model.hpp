// Models made of component trees, which may be rendered again: what did not change keeps its trained parameters.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "weft/nn/module.hpp"
#include "weft/tree.hpp"

namespace weft::nn {

/// A model of a tree of elements.
///
/// | element | props | |
/// |---|---|---|
/// | Sequential | | the children one after another |
/// | Residual | | x + the children one after another |
/// | Parallel | combine: "add" or "concat", axis (-1) | every child on x |
/// | Linear | inputs, outputs, bias (true) | |
/// | Embedding | rows, width | |
/// | LayerNorm, RMSNorm | width, eps | |
/// | Conv1d, Conv2d, Conv3d | inputs, outputs, kernel, stride (1), padding (0), bias (true) | the same for all axes |
/// | MaxPool, AvgPool | kernel | |
/// | BatchNorm | channels | |
/// | Dropout | p | |
/// | Flatten | axis (1) | |
/// | Relu, Gelu, Silu, Tanh, Sigmoid, Softmax | | of the last axis |
///
/// Every element may have a `key`. A child is named by its key, or else by its place: "encoder.0.weight".
class TreeModel : public Module {
 public:
  /// Errors: UsageError with the path of each mistake: an element that is unknown, props that are unknown, missing or out of range;
  /// as tree::normalised. Models of more than `parameters_max` elements are refused before any is made.
  explicit TreeModel(const Value& element, Extent parameters_max = Extent{1} << 34);
  ~TreeModel() override;

  /// Makes the model one of another tree. An element that has the type and the props of the one that it is a version of (tree::match)
  /// keeps its parameters, wherever it was moved, and optimisers go on training them; others are made anew. Compiled functions that
  /// use the model are traced again. For an equal tree nothing is made and nothing traced. Returns the edits. Errors: as above; then
  /// nothing has changed.
  std::vector<tree::Edit> render(const Value& element);

  Tensor operator()(const Tensor& x) const;
  /// The tree, `normalised`.
  const Value& element() const { return element_; }
  std::string describe() const override { return "Model of " + std::to_string(element_count_) + " elements"; }

 private:
  struct Node;
  std::unique_ptr<Node> made_of(const Value& element, const Node* older, const std::string& path, Extent& parameters);
  static void check_names(const Node& node, const std::string& path);
  static void adopt(Node& node, const std::function<void(std::string_view, Module&)>& add);
  static void release(Node& node);

  Extent parameters_max_;
  Value element_;
  std::size_t element_count_ = 0;
  std::unique_ptr<Node> root_;
  /// True until the tree changes; compiled functions note it.
  std::shared_ptr<std::atomic<bool>> is_current_;
};

}  // namespace weft::nn
