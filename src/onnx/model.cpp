// The model as users see it: checks when it is loaded, and runs.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <set>

#include "base/checked.hpp"
#include "base/file.hpp"
#include "base/quote.hpp"
#include "graph/trace_scope.hpp"
#include "onnx/apply.hpp"
#include "onnx/node_order.hpp"
#include "onnx/proto.hpp"
#include "ops/names.hpp"
#include "weft/error.hpp"
#include "weft/onnx.hpp"

namespace weft::onnx {
namespace {

constexpr std::int64_t kOpsetMin = 1, kOpsetMax = 28;
constexpr std::size_t kShownOperators = 30;  // of those that are missing
// Initialisers of floats up to this size are also kept on the CPU, since they may be scales or bounds.
constexpr Extent kKnownElements = 4096;

Port port_of(const ValueInfo& info) {
  Port port{.name = std::string(info.name), .type = {}, .has_shape = info.has_shape, .shape = {}};
  if (info.kind == "tensor") {
    try {
      port.type = dtype_of_element(info.type);
    } catch (const DTypeError&) {  // reported when the value is used
    }
  }
  for (const ValueInfo::Dim& dim : info.dims) port.shape.push_back({dim.extent, std::string(dim.parameter)});
  return port;
}

// Checks names: each is made once, before it is read. Collects the types of operators that Weft lacks.
class Checker {
 public:
  Checker(const ModelProto& model, const std::string& source) : model_(model), source_(source) {}

  void check() {
    for (const FunctionProto& f : model_.functions) {
      Names names;
      for (const std::string_view input : f.inputs) names.made.insert(input);
      check_nodes(f.nodes, names, fmt::format("function {}", quote(f.name)));
      for (const std::string_view output : f.outputs)
        check_made(output, names, fmt::format("function {}", quote(f.name)));
      // Functions may only use functions before them, so that none needs itself.
      if (!functions_.emplace(f.domain, f.name).second) fail(fmt::format("two functions {}", quote(f.name)));
    }
    check_graph(model_.graph, nullptr, "the graph");
    if (unknown_.empty()) return;
    std::string list;
    std::size_t shown = 0;
    for (const auto& [type, uses] : unknown_) {
      if (++shown > kShownOperators) {
        list += fmt::format(", and {} more", unknown_.size() - kShownOperators);
        break;
      }
      list += fmt::format("{}{} ({} use{})", list.empty() ? "" : ", ", type, uses, uses == 1 ? "" : "s");
    }
    throw UsageError(fmt::format("{}: operators that Weft does not have: {}", source_, list));
  }

  const std::map<std::string, std::size_t>& uses() const { return uses_; }

 private:
  struct Names {
    std::set<std::string_view> made = {};
    const Names* parent = nullptr;
    bool has(std::string_view name) const {
      for (const Names* n = this; n; n = n->parent)
        if (n->made.contains(name)) return true;
      return false;
    }
  };
  [[noreturn]] void fail(std::string_view fact) const { throw FileError(fmt::format("{}: {}", source_, fact)); }

  void check_made(std::string_view name, const Names& names, std::string_view where) {
    if (!names.has(name)) fail(fmt::format("nothing makes the output {} of {}", quote(name), where));
  }

  void check_graph(const GraphProto& graph, const Names* parent, const std::string& where) {
    Names names{.parent = parent};
    std::set<std::string_view> inputs, initialisers;
    for (const ValueInfo& input : graph.inputs) {
      if (input.name.empty()) fail(fmt::format("an input of {} has no name", where));
      if (!inputs.insert(input.name).second) fail(fmt::format("{} has two inputs {}", where, quote(input.name)));
    }
    for (const TensorProto& tensor : graph.initialisers)
      if (!initialisers.insert(tensor.name).second)
        fail(fmt::format("{} has two initialisers {}", where, quote(tensor.name)));
    names.made = inputs;
    names.made.insert(initialisers.begin(), initialisers.end());
    check_nodes(graph.nodes, names, where);
    for (const ValueInfo& output : graph.outputs) check_made(output.name, names, where);
  }

  void check_nodes(const std::vector<NodeProto>& nodes, Names& names, const std::string& where) {
    for (const NodeProto& node : nodes) {
      check_type(node);
      for (const std::string_view input : node.inputs)
        if (!input.empty() && !names.has(input)) fail(fact_of_missing(input, node, nodes, names));
      for (const AttributeProto& a : node.attributes)
        if (a.graph) check_graph(*a.graph, &names, fmt::format("the graph {} of {}", quote(a.name), node.title()));
      for (const std::string_view output : node.outputs)
        if (!output.empty() && !names.made.insert(output).second)
          fail(fmt::format("{}: its output {} is made twice in {}", node.title(), quote(output), where));
    }
  }

  std::string fact_of_missing(std::string_view input, const NodeProto& node, const std::vector<NodeProto>& nodes,
                              const Names& names) const {
    for (const NodeProto& other : nodes)
      if (std::find(other.outputs.begin(), other.outputs.end(), input) != other.outputs.end())
        return fmt::format("{}: its input {} is made by {}, which is not before it; the nodes form a cycle",
                           node.title(), quote(input), other.title());
    const std::vector<std::string_view> known(names.made.begin(), names.made.end());
    const std::string_view nearest = nearest_name(input, known);
    return fmt::format("{}: nothing makes its input {}{}", node.title(), quote(input),
                       nearest.empty() ? "" : fmt::format("; did you mean {}?", quote(nearest)));
  }

  void check_type(const NodeProto& node) {
    const std::string name =
        node.domain.empty() ? std::string(node.type) : fmt::format("{}.{}", node.domain, node.type);
    ++uses_[name];
    if (functions_.contains({node.domain, node.type}) || find_operator(node.domain, node.type)) return;
    std::string shown = quote(name, 80);
    ++unknown_[shown.substr(1, shown.size() - 2)];
  }

  const ModelProto& model_;
  const std::string& source_;
  std::set<std::pair<std::string_view, std::string_view>> functions_;
  std::map<std::string, std::size_t> uses_, unknown_;
};

void check_opsets(const ModelProto& model, const std::string& source) {
  const auto own = model.opsets.find("");
  if (own == model.opsets.end()) {
    const auto is_own = [](const NodeProto& node) { return node.domain.empty(); };
    if (model.opsets.empty() || std::any_of(model.graph.nodes.begin(), model.graph.nodes.end(), is_own))
      throw FileError(fmt::format("{}: the model names no opset of ONNX", source));
    return;
  }
  if (own->second < kOpsetMin || own->second > kOpsetMax)
    throw UsageError(fmt::format("{}: opset {}; Weft reads {} to {}. onnx.version_converter changes a model's opset",
                                 source, own->second, kOpsetMin, kOpsetMax));
}

}  // namespace

std::string Port::to_string() const {
  std::string text = type ? std::string(name_of(*type)) : "?";
  if (!has_shape) return text + " of any shape";
  text += " [";
  for (std::size_t i = 0; i < shape.size(); ++i) {
    if (i) text += ", ";
    const std::string name = quote(shape[i].name, 60);
    text += shape[i].value          ? std::to_string(*shape[i].value)
            : shape[i].name.empty() ? "?"
                                    : name.substr(1, name.size() - 2);
  }
  return text + "]";
}

struct Model::Impl {
  std::string source;
  std::shared_ptr<const MappedFile> file;  // what the messages look at
  ModelProto proto;
  Device device;
  std::vector<Port> inputs, outputs;
  std::vector<std::string_view> input_names;
  std::vector<nn::NamedParameter> parameters;
  struct Initialiser {
    std::string_view name;
    std::optional<std::size_t> parameter;  // read anew in each run: its value changes
    Value value;
  };
  std::vector<Initialiser> initialisers;
  std::map<std::string, std::size_t> uses;
  std::uint64_t initialiser_bytes = 0;

  void add(const TensorProto& tensor, const std::filesystem::path& folder) {
    const ElementView elements = view_elements(tensor, source, folder, Narrow::widen);
    initialiser_bytes += elements.bytes.size();
    Initialiser made{tensor.name, {}, {}};
    const auto on = [&](Device where) {
      return tensor_from_bytes(elements.bytes.data(), elements.shape, elements.dtype, where);
    };
    if (is_float(elements.dtype)) {
      made.parameter = parameters.size();
      parameters.push_back({std::string(tensor.name), Variable(on(device), tensor.name), elements.shape.rank() >= 2});
      made.value.trains = true;
      if (elements.shape.numel() <= kKnownElements) made.value.known = on(kCpu);
    } else {
      made.value.known = on(kCpu);
      made.value.tensor = moved(made.value.known, device);
    }
    if (elements.made.empty()) release_pages(elements.bytes);  // the tensor has a copy
    initialisers.push_back(std::move(made));
  }

  // The tensor as the declaration wants it.
  void check_input(const Port& port, const Tensor& x, std::map<std::string, Extent>& extents) const {
    const auto told = [&](std::string_view fact) {
      return fmt::format("{}: input {} {}\n  declared  {}\n  given     {} {}", source, quote(port.name), fact,
                         port.to_string(), name_of(x.dtype()), x.shape().to_string());
    };
    if (x.device() != device)
      throw DeviceError(fmt::format("{}: input {} is on {}, and the model on {}", source, quote(port.name),
                                    x.device().to_string(), device.to_string()));
    const bool narrowed = port.type == DType::i64 && x.dtype() == DType::i32 && device != kCpu;
    if (port.type && x.dtype() != *port.type && !narrowed) throw DTypeError(told("has another dtype"));
    if (!port.has_shape) return;
    if (x.rank() != static_cast<int>(port.shape.size())) throw ShapeError(told("has another number of axes"));
    for (int i = 0; i < x.rank(); ++i) {
      const Port::Extent& wanted = port.shape[static_cast<std::size_t>(i)];
      if (wanted.value && *wanted.value != x.dim(i)) throw ShapeError(told("has another shape"));
      if (!wanted.value && !wanted.name.empty()) {
        const auto [found, fresh] = extents.emplace(wanted.name, x.dim(i));
        if (!fresh && found->second != x.dim(i))
          throw ShapeError(told(
              fmt::format("has {} for {}, which is {} in another input", x.dim(i), quote(wanted.name), found->second)));
      }
    }
  }

  std::vector<Tensor> run(std::span<const Tensor> given) const {
    if (given.size() != inputs.size())
      throw UsageError(fmt::format("{}: {} inputs are given; it takes {}", source, given.size(), inputs.size()));
    Run run{.model = proto, .device = device};
    Scope scope{.opsets = &proto.opsets};
    for (const Initialiser& i : initialisers) {
      Value value = i.value;
      if (i.parameter) value.tensor = parameters[*i.parameter].variable.value();
      scope.values.emplace(i.name, std::move(value));
    }
    std::map<std::string, Extent> extents;
    for (std::size_t i = 0; i < given.size(); ++i) {
      check_input(inputs[i], given[i], extents);
      scope.values.insert_or_assign(input_names[i], Value{.tensor = given[i], .known = {}});
    }
    run.apply_nodes(proto.graph.nodes, scope);
    std::vector<Tensor> results;
    for (const ValueInfo& output : proto.graph.outputs) {
      const Value* value = scope.find(output.name);
      if (!value || !value->is_tensor())
        throw UsageError(fmt::format("{}: output {} is not a tensor", source, quote(output.name)));
      results.push_back(run.on_device(*value));
    }
    return results;
  }
};

Model Model::load(const std::filesystem::path& path, Device device) {
  auto impl = std::make_shared<Impl>();
  impl->source = path.string();
  impl->file = std::make_shared<MappedFile>(path);
  impl->device = device;
  impl->proto = parse_model(impl->file->bytes(), impl->source);
  check_opsets(impl->proto, impl->source);
  order_nodes(impl->proto);
  Checker checker(impl->proto, impl->source);
  checker.check();
  impl->uses = checker.uses();
  std::filesystem::path folder = path.parent_path();
  if (folder.empty()) folder = ".";
  std::set<std::string_view> initialised;
  for (const TensorProto& tensor : impl->proto.graph.initialisers) {
    impl->add(tensor, folder);
    initialised.insert(tensor.name);
  }
  for (const ValueInfo& input : impl->proto.graph.inputs) {
    if (initialised.contains(input.name)) continue;  // older files list initialisers as inputs with a default
    impl->inputs.push_back(port_of(input));
    impl->input_names.push_back(input.name);
  }
  for (const ValueInfo& output : impl->proto.graph.outputs) impl->outputs.push_back(port_of(output));
  return Model(std::move(impl));
}

const std::vector<Port>& Model::inputs() const { return impl_->inputs; }
const std::vector<Port>& Model::outputs() const { return impl_->outputs; }
Device Model::device() const { return impl_->device; }
std::vector<nn::NamedParameter> Model::named_parameters() const { return impl_->parameters; }

std::vector<Variable> Model::parameters() const {
  std::vector<Variable> variables;
  for (const nn::NamedParameter& p : impl_->parameters) variables.push_back(p.variable);
  return variables;
}

std::vector<Tensor> Model::operator()(std::span<const Tensor> inputs) const {
  try {
    return impl_->run(inputs);
  } catch (Error& error) {
    error.add_context("running " + impl_->source);
    throw;
  }
}

NamedTensors Model::run(const NamedTensors& inputs) const {
  std::vector<Tensor> given;
  for (const Port& port : impl_->inputs) {
    const auto found = inputs.find(port.name);
    if (found == inputs.end()) {
      std::vector<std::string> names;
      for (const Port& p : impl_->inputs) names.push_back(quote(p.name) + " " + p.to_string());
      throw UsageError(fmt::format("{}: input {} is missing; the model takes {}", impl_->source, quote(port.name),
                                   fmt::join(names, ", ")));
    }
    given.push_back(moved(found->second, impl_->device));
  }
  for (const auto& [name, tensor] : inputs) {
    if (std::any_of(impl_->inputs.begin(), impl_->inputs.end(), [&](const Port& p) { return p.name == name; }))
      continue;
    std::vector<std::string_view> known;
    for (const Port& p : impl_->inputs) known.push_back(p.name);
    const std::string_view nearest = nearest_name(name, known);
    throw UsageError(fmt::format("{}: the model has no input {}{}", impl_->source, quote(name),
                                 nearest.empty() ? "" : fmt::format("; did you mean {}?", quote(nearest))));
  }
  const std::vector<Tensor> results = (*this)(given);
  eval(results);
  NamedTensors named;
  for (std::size_t i = 0; i < results.size(); ++i) named[impl_->outputs[i].name] = results[i];
  return named;
}

std::string Model::describe() const {
  const ModelProto& m = impl_->proto;
  std::string text = quote(impl_->source, 4096) + "\n";
  const auto line = [&](std::string_view key, std::string_view value) {
    text += fmt::format("  {:<12}  {}\n", key, value);
  };
  const auto bare = [](std::string_view raw) {
    const std::string shown = quote(raw, 100);
    return shown.substr(1, shown.size() - 2);
  };
  line("format", fmt::format("ONNX, IR version {}", m.ir_version));
  for (const auto& [domain, version] : m.opsets)
    line("opset", domain.empty() ? std::to_string(version) : bare(domain) + " " + std::to_string(version));
  if (!m.producer.empty()) line("producer", bare(m.producer) + " " + bare(m.producer_version));
  line("file_bytes", std::to_string(impl_->file->bytes().size()));
  line("initialisers", fmt::format("{} in {} bytes", impl_->initialisers.size(), impl_->initialiser_bytes));
  for (const auto& [key, value] : m.metadata) line("metadata", bare(key) + " = " + bare(value));
  text += "\nInputs\n";
  for (const Port& p : impl_->inputs) text += fmt::format("  {}  {}\n", quote(p.name), p.to_string());
  text += "\nOutputs\n";
  for (const Port& p : impl_->outputs) text += fmt::format("  {}  {}\n", quote(p.name), p.to_string());
  text += "\nOperators\n";
  std::vector<std::pair<std::string, std::size_t>> uses(impl_->uses.begin(), impl_->uses.end());
  std::stable_sort(uses.begin(), uses.end(), [](const auto& a, const auto& b) { return a.second > b.second; });
  for (const auto& [type, count] : uses) text += fmt::format("  {:<24}  {}\n", bare(type), count);
  return text;
}

}  // namespace weft::onnx
