#include "weft/nn/tree_model.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <map>
#include <set>

#include "base/quote.hpp"
#include "graph/trace_scope.hpp"
#include "schema/value_options.hpp"
#include "weft/nn/images.hpp"
#include "weft/nn/layers.hpp"
#include "weft/ops.hpp"

namespace weft::nn {
namespace {

/// A mistake whose place is in its message already.
struct PlacedError : UsageError {
  using UsageError::UsageError;
};
[[noreturn]] void refuse_element(const std::string& path, std::string_view fact) {
  throw PlacedError(fmt::format("{}: {}", path.empty() ? "the element" : path, fact));
}

// So that the sizes of parameters fit 64 bits.
constexpr Extent kTreeWidthMax = Extent{1} << 20, kTreeKernelMax = 64;

/// What an element does, and the module with its parameters; null if it has none.
struct Part {
  std::shared_ptr<Module> module;
  std::function<Tensor(const Tensor&)> run;
};

template <class M, class... Arguments>
Part module_part(Arguments&&... arguments) {
  auto made = std::make_shared<M>(std::forward<Arguments>(arguments)...);
  return {made, [m = made.get()](const Tensor& x) { return (*m)(x); }};
}

/// Reads props. What is read with a lowest value is required.
class Props {
 public:
  Props(const Value& props, const std::string& type) : options_(props, type), type_(type) {
    options_.read("key", key_);  // of the tree, and not of the layer
  }
  Extent extent(const char* name, Extent least, Extent most = kTreeWidthMax) {
    Extent value = least - 1;
    options_.read(name, value);
    if (value < least || value > most)
      throw UsageError(value == least - 1
                           ? fmt::format("{}: needs the prop {}", type_, name)
                           : fmt::format("{}: {} is {}; {} to {} are possible", type_, name, value, least, most));
    return value;
  }
  template <class T>
  T other(const char* name, T otherwise) {
    options_.read(name, otherwise);
    return otherwise;
  }
  void finish() const { options_.finish(); }

 private:
  ValueOptions options_;
  std::string type_;
  Value key_;
};

template <class M>
Part convolution_part(Props& p) {
  const Extent inputs = p.extent("inputs", 1), outputs = p.extent("outputs", 1);
  const Extent kernel = p.extent("kernel", 1, kTreeKernelMax);
  ConvOptions options;
  options.stride = PerAxis(p.other<Extent>("stride", 1));
  options.padding = PerAxis(p.other<Extent>("padding", 0));
  options.bias = p.other("bias", true);
  return module_part<M>(inputs, outputs, PerAxis(kernel), options);
}
Part function_part(Tensor (*run)(const Tensor&)) { return {nullptr, run}; }

using MakePart = Part (*)(Props&);
const std::map<std::string, MakePart, std::less<>>& leaves() {
  static const std::map<std::string, MakePart, std::less<>> all = {
      {"Linear",
       [](Props& p) {
         const Extent inputs = p.extent("inputs", 1), outputs = p.extent("outputs", 1);
         return module_part<Linear>(inputs, outputs, LinearOptions{.bias = p.other("bias", true)});
       }},
      {"Embedding",
       [](Props& p) {
         const Extent rows = p.extent("rows", 1);
         return module_part<Embedding>(rows, p.extent("width", 1));
       }},
      {"LayerNorm",
       [](Props& p) {
         const Extent width = p.extent("width", 1);
         return module_part<LayerNorm>(width, true, p.other("eps", 1e-5));
       }},
      {"RMSNorm",
       [](Props& p) {
         const Extent width = p.extent("width", 1);
         return module_part<RMSNorm>(width, p.other("eps", 1e-6));
       }},
      {"BatchNorm", [](Props& p) { return module_part<BatchNorm>(p.extent("channels", 1)); }},
      {"Conv1d", convolution_part<Conv1d>},
      {"Conv2d", convolution_part<Conv2d>},
      {"Conv3d", convolution_part<Conv3d>},
      {"MaxPool", [](Props& p) { return module_part<MaxPool>(PerAxis(p.extent("kernel", 1, kTreeKernelMax))); }},
      {"AvgPool", [](Props& p) { return module_part<AvgPool>(PerAxis(p.extent("kernel", 1, kTreeKernelMax))); }},
      {"Dropout", [](Props& p) { return module_part<Dropout>(p.other("p", 0.5)); }},
      {"Flatten",
       [](Props& p) {
         const int axis = p.other("axis", 1);
         return Part{nullptr, [axis](const Tensor& x) { return flatten(x, axis); }};
       }},
      {"Relu", [](Props&) { return function_part([](const Tensor& x) { return relu(x); }); }},
      {"Gelu", [](Props&) { return function_part([](const Tensor& x) { return gelu(x); }); }},
      {"Silu", [](Props&) { return function_part([](const Tensor& x) { return silu(x); }); }},
      {"Tanh", [](Props&) { return function_part([](const Tensor& x) { return tanh(x); }); }},
      {"Sigmoid", [](Props&) { return function_part([](const Tensor& x) { return sigmoid(x); }); }},
      {"Softmax", [](Props&) { return function_part([](const Tensor& x) { return softmax(x, -1); }); }},
  };
  return all;
}
bool is_container(const std::string& type) { return type == "Sequential" || type == "Residual" || type == "Parallel"; }

/// A module without parameters of its own, for the children of a container.
struct Branch : Module {
  using Module::add;
  explicit Branch(std::string title) : title(std::move(title)) {}
  std::string describe() const override { return title; }
  std::string title;
};

}  // namespace

/// An element that was made. Modules of leaves are shared by versions of the tree; branches are made anew with each.
struct TreeModel::Node {
  Value element;
  std::shared_ptr<Module> leaf;
  std::unique_ptr<Branch> branch;
  std::function<Tensor(const Tensor&)> run;
  std::vector<std::unique_ptr<Node>> children;

  std::string name(std::size_t place) const {
    const Value* key = element["props"].find("key");
    return !key ? std::to_string(place) : key->is_string() ? key->string() : key->to_json();
  }
};

TreeModel::~TreeModel() = default;

void TreeModel::check_names(const Node& node, const std::string& path) {
  std::set<std::string> names;
  for (std::size_t i = 0; i < node.children.size(); ++i) {
    const std::string name = node.children[i]->name(i), place = fmt::format("{}/children/{}", path, i);
    if (name.empty() || name.find('.') != std::string::npos)
      refuse_element(place, fmt::format("the key {} is empty or has a dot; names are joined by dots", quote(name)));
    if (!names.insert(name).second)
      refuse_element(place, fmt::format("the name {} is taken by a sibling's key", quote(name)));
    check_names(*node.children[i], place);
  }
}

/// Names the modules of a node below `parent`.
void TreeModel::adopt(Node& node, const std::function<void(std::string_view, Module&)>& add) {
  for (std::size_t i = 0; i < node.children.size(); ++i) {
    Node& child = *node.children[i];
    if (child.leaf) add(child.name(i), *child.leaf);
    if (child.children.empty()) continue;
    child.branch = std::make_unique<Branch>(child.element["type"].string());
    adopt(child, [&](std::string_view name, Module& module) { child.branch->add(name, module); });
    add(child.name(i), *child.branch);
  }
}

void TreeModel::release(Node& node) {
  node.branch.reset();
  for (const auto& child : node.children) release(*child);
}

namespace {

std::function<Tensor(const Tensor&)> joined_run(const std::string& type,
                                                std::vector<std::function<Tensor(const Tensor&)>> steps, bool adds,
                                                int axis) {
  if (type == "Parallel")
    return [steps = std::move(steps), adds, axis](const Tensor& x) {
      std::vector<Tensor> results;
      for (const auto& step : steps) results.push_back(step(x));
      if (!adds) return concat(results, axis);
      Tensor sum = results[0];
      for (std::size_t i = 1; i < results.size(); ++i) sum = sum + results[i];
      return sum;
    };
  return [steps = std::move(steps), is_residual = type == "Residual"](const Tensor& x) {
    Tensor y = x;
    for (const auto& step : steps) y = step(y);
    return is_residual ? x + y : y;
  };
}

}  // namespace

std::unique_ptr<TreeModel::Node> TreeModel::made_of(const Value& element, const Node* older, const std::string& path,
                                                    Extent& parameters) {
  auto node = std::make_unique<Node>();
  node->element = element;
  ++element_count_;
  const std::string& type = element["type"].string();
  const Value::Array& children = element["children"].elements();
  try {
    Props props(element["props"], type);
    if (is_container(type)) {
      std::string combine = "add";
      int axis = -1;
      if (type == "Parallel") {
        combine = props.other<std::string>("combine", combine);
        axis = props.other("axis", axis);
        if (combine != "add" && combine != "concat")
          throw UsageError(fmt::format("Parallel: combine is {}; add and concat are possible", quote(combine)));
        if (children.empty()) throw UsageError("Parallel: needs a child");
      }
      props.finish();
      const bool is_version = older && older->element["type"] == element["type"];
      const auto versions = is_version ? tree::match(older->element["children"].elements(), children)
                                       : std::vector<std::optional<std::size_t>>(children.size());
      std::vector<std::function<Tensor(const Tensor&)>> steps;
      for (std::size_t i = 0; i < children.size(); ++i) {
        const Node* const before = versions[i] ? older->children[*versions[i]].get() : nullptr;
        node->children.push_back(made_of(children[i], before, fmt::format("{}/children/{}", path, i), parameters));
        steps.push_back(node->children.back()->run);
      }
      node->run = joined_run(type, std::move(steps), combine == "add", axis);
      return node;
    }
    const auto make = leaves().find(type);
    if (make == leaves().end()) throw UsageError(fmt::format("there is no element {}", quote(type)));
    if (!children.empty()) throw UsageError(fmt::format("a {} has no children", type));
    // Equal but for the key: the same layer.
    const auto layer_of = [](const Value& each) {
      Value::Object props = each["props"].members();
      props.remove("key");
      return Value(std::move(props));
    };
    if (older && older->element["type"] == element["type"] && layer_of(older->element) == layer_of(element)) {
      node->leaf = older->leaf;
      node->run = older->run;
    } else {
      Part part = make->second(props);
      props.finish();
      node->leaf = std::move(part.module);
      node->run = std::move(part.run);
    }
  } catch (const PlacedError&) {
    throw;
  } catch (const Error& error) {
    refuse_element(path, error.what());
  }
  if (node->leaf) parameters += std::min(node->leaf->parameter_count(), parameters_max_ + 1);
  if (parameters > parameters_max_)
    refuse_element(path, fmt::format("the model would have {} parameters or more; at most {} are allowed", parameters,
                                     parameters_max_));
  return node;
}

TreeModel::TreeModel(const Value& element, Extent parameters_max)
    : parameters_max_(parameters_max), is_current_(std::make_shared<std::atomic<bool>>(true)) {
  render(element);
}

std::vector<tree::Edit> TreeModel::render(const Value& element) {
  Value next = tree::normalised(element);
  std::vector<tree::Edit> edits;
  if (root_) {
    edits = tree::difference(element_, next);
    if (edits.empty()) return edits;
  }
  const std::size_t count = std::exchange(element_count_, 0);
  std::unique_ptr<Node> made;
  Extent parameters = 0;
  try {
    // Names of children are checked where they are added, so branches are made before anything changes.
    made = made_of(next, root_.get(), "", parameters);
    check_names(*made, "");
  } catch (...) {
    element_count_ = count;
    throw;
  }
  // From here on nothing fails: modules that stay change their parents.
  for (const auto& [name, child] : children()) remove(*const_cast<Module*>(child));
  if (root_) release(*root_);
  root_ = std::move(made);
  element_ = std::move(next);
  if (root_->leaf) add("0", *root_->leaf);
  adopt(*root_, [&](std::string_view name, Module& module) { add(name, module); });
  train(is_training());
  *is_current_ = false;
  is_current_ = std::make_shared<std::atomic<bool>>(true);
  return edits;
}

Tensor TreeModel::operator()(const Tensor& x) const {
  if (auto* trace = graph::TraceScope::current()) trace->note(is_current_, *is_current_);
  return with_hooks(x, [&](const Tensor& given) { return root_->run(given); });
}

}  // namespace weft::nn
