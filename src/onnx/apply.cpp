#include "onnx/apply.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <exception>
#include <map>
#include <thread>

#include "base/quote.hpp"
#include "base/session_state.hpp"
#include "graph/node.hpp"
#include "graph/trace_scope.hpp"
#include "weft/error.hpp"

namespace weft::onnx {
namespace {

constexpr int kMaxNesting = 64;  // of functions and graphs in a run

const std::map<std::pair<std::string_view, std::string_view>, const Operator*>& operator_table() {
  static const auto* table = [] {
    auto* made = new std::map<std::pair<std::string_view, std::string_view>, const Operator*>;
    for (const auto rows : {math_operators(), shape_operators(), index_operators(), network_operators(),
                            recurrent_operators(), resampling_operators(), quantised_operators(), loss_operators(),
                            making_operators(), spectral_operators(), control_operators(), attention_operators()})
      for (const Operator& row : rows) made->emplace(std::pair("", row.type), &row);
    for (const std::string_view type : {"Adagrad", "Adam", "Momentum"}) {
      const auto found = made->extract({"", type});
      made->emplace(std::pair("ai.onnx.preview.training", type), found.mapped());
    }
    for (const Operator& row : learning_operators()) made->emplace(std::pair("ai.onnx.ml", row.type), &row);
    for (const auto rows : {contrib_operators(), contrib_attention_operators(), contrib_quantised_operators()})
      for (const Operator& row : rows) made->emplace(std::pair("com.microsoft", row.type), &row);
    // Operators of ONNX Runtime that are ONNX's own for more types, or from before ONNX had them.
    for (const std::string_view type : {"QuantizeLinear", "DequantizeLinear", "QLinearConv", "Gelu", "Trilu"})
      made->emplace(std::pair("com.microsoft", type), made->at({"", type}));
    return made;
  }();
  return *table;
}

bool has_long_types(Device device) { return device.kind != Device::Kind::webgpu; }

}  // namespace

const Operator* find_operator(std::string_view domain, std::string_view type) {
  const auto found = operator_table().find({domain, type});
  return found == operator_table().end() ? nullptr : found->second;
}

std::vector<std::pair<std::string_view, std::string_view>> operator_names() {
  std::vector<std::pair<std::string_view, std::string_view>> names;
  for (const auto& [key, row] : operator_table()) names.push_back(key);
  return names;
}

Value known_integers(const std::vector<Extent>& values, const Shape& shape) {
  return {.tensor = {}, .known = tensor_from_bytes(values.data(), shape, DType::i64, kCpu)};
}

void outside_of_traces(const std::function<void()>& f) {
  if (!graph::TraceScope::current()) return f();
  // A thread of its own is outside of the trace.
  std::exception_ptr error;
  std::thread([&, session = &SessionState::current()] {
    const SessionState::Scope scope(*session);
    try {
      f();
    } catch (...) {
      error = std::current_exception();
    }
  }).join();
  if (error) std::rethrow_exception(error);
}

Tensor moved(const Tensor& x, Device device) {
  if (x.device() == device) return x;
  if (x.dtype() != DType::i64 || has_long_types(device)) {
    Tensor there;
    outside_of_traces([&] { there = x.to(device); });
    return there;
  }
  std::vector<std::int32_t> narrow;
  narrow.reserve(static_cast<std::size_t>(x.numel()));
  for (const std::int64_t value : read_elements<std::int64_t>(x)) {
    // Slices to the end are written with the largest number.
    if (value == INT64_MAX || value == INT64_MIN) {
      narrow.push_back(value > 0 ? INT32_MAX : INT32_MIN);
      continue;
    }
    if (value != static_cast<std::int32_t>(value))
      throw DTypeError(
          fmt::format("{} is not an i32, and {} does not hold i64; use the CPU", value, device.to_string()));
    narrow.push_back(static_cast<std::int32_t>(value));
  }
  return tensor_from_bytes(narrow.data(), x.shape(), DType::i32, device);
}

const Value* Scope::find(std::string_view name) const {
  for (const Scope* scope = this; scope; scope = scope->parent)
    if (const auto found = scope->values.find(name); found != scope->values.end()) return &found->second;
  return nullptr;
}

// ---- Application --------------------------------------------------------------------------------------------------------

Application::Application(const NodeProto& node, Run& run, const Scope& scope, Device device)
    : node_(node), run_(run), scope_(scope), device_(device), results_(node.outputs.size()) {
  if (const auto found = scope.opsets->find(node.domain); found != scope.opsets->end()) opset_ = found->second;
  for (const std::string_view name : node.inputs) {
    const Value* value = name.empty() ? nullptr : scope.find(name);
    if (!name.empty() && !value) usage_error(fmt::format("nothing makes its input {}", quote(name)));
    if (value && !value->is_tensor() && !value->sequence) value = nullptr;  // an input of a function that is left out
    values_.push_back(value);
  }
  tensors_.resize(values_.size());
}

const Value& Application::value(std::size_t i) const {
  if (!has(i)) usage_error(fmt::format("its input {} is missing", i));
  return *values_[i];
}

const Tensor& Application::operator[](std::size_t i) const {
  const Value& v = value(i);
  if (!v.is_tensor()) usage_error(fmt::format("its input {} is not a tensor", quote(node_.inputs[i])));
  return tensors_[i];
}

std::vector<Tensor> Application::all() const {
  std::vector<Tensor> tensors;
  for (std::size_t i = 0; i < input_count(); ++i) tensors.push_back((*this)[i]);
  if (tensors.empty()) usage_error("it has no inputs");
  return tensors;
}

Tensor Application::readable(std::size_t i) const {
  const Value& v = value(i);
  if (v.known.defined()) return v.known;
  const Tensor& x = (*this)[i];
  if (graph::TraceScope::current())
    usage_error(fmt::format(
        "its input {} must be known while the graph is built, but depends on an argument of a function being compiled",
        quote(node_.inputs[i])));
  run_.settle(x);
  return x.to(kCpu);
}

const Tensor& Application::settled(std::size_t i) const {
  const Tensor& x = (*this)[i];
  run_.settle(x);
  return x;
}

std::vector<Extent> Application::integers_of(std::size_t i) const {
  return read_elements<std::int64_t>(cast(readable(i), DType::i64));
}

std::vector<double> Application::numbers_of(std::size_t i) const {
  return read_elements<double>(cast(readable(i), DType::f64));
}

void Application::check_has_one(std::size_t i) const {
  if (const Extent count = readable(i).numel(); count != 1)
    usage_error(fmt::format("its input {} has {} elements; one is needed", i, count));
}

Extent Application::integer_of(std::size_t i) const {
  check_has_one(i);
  return integers_of(i)[0];
}

double Application::number_of(std::size_t i) const {
  check_has_one(i);
  return numbers_of(i)[0];
}

const AttributeProto* Application::attribute(std::string_view name) const {
  const AttributeProto* found = node_.attribute(name);
  if (!found || found->reference.empty()) return found;
  // Inside of a function: the attribute of the call, or the function's default.
  const Scope* scope = &scope_;
  while (scope && !scope->call) scope = scope->parent;
  if (!scope) usage_error(fmt::format("attribute {} refers to a function's attribute outside of one", quote(name)));
  if (const AttributeProto* given = scope->call->attribute(found->reference)) return given;
  for (const AttributeProto& fallback : scope->function->defaults)
    if (fallback.name == found->reference) return &fallback;
  return nullptr;
}

namespace {

[[noreturn]] void wrong_type(const Application& application, std::string_view name, std::string_view wanted) {
  application.usage_error(fmt::format("attribute {} is not {}", quote(name), wanted));
}

}  // namespace

Extent Application::integer(std::string_view name, std::optional<Extent> fallback) const {
  const AttributeProto* a = attribute(name);
  if (a && a->type != AttributeProto::kInteger) wrong_type(*this, name, "an integer");
  if (a) return a->integer;
  if (!fallback) usage_error(fmt::format("attribute {} is missing", quote(name)));
  return *fallback;
}

double Application::number(std::string_view name, double fallback) const {
  const AttributeProto* a = attribute(name);
  if (a && a->type != AttributeProto::kReal) wrong_type(*this, name, "a number");
  return a ? static_cast<double>(a->real) : fallback;
}

std::string_view Application::word(std::string_view name, std::string_view fallback) const {
  const AttributeProto* a = attribute(name);
  if (a && a->type != AttributeProto::kText) wrong_type(*this, name, "a text");
  return a ? a->text : fallback;
}

std::vector<Extent> Application::integers(std::string_view name, std::vector<Extent> fallback) const {
  const AttributeProto* a = attribute(name);
  if (a && a->type != AttributeProto::kIntegers) wrong_type(*this, name, "a list of integers");
  return a ? a->integers : fallback;
}

std::vector<double> Application::numbers(std::string_view name) const {
  const AttributeProto* a = attribute(name);
  if (a && a->type != AttributeProto::kReals) wrong_type(*this, name, "a list of numbers");
  return a ? std::vector<double>(a->reals.begin(), a->reals.end()) : std::vector<double>{};
}

std::vector<std::string_view> Application::words(std::string_view name) const {
  const AttributeProto* a = attribute(name);
  if (a && a->type != AttributeProto::kTexts) wrong_type(*this, name, "a list of texts");
  return a ? a->texts : std::vector<std::string_view>{};
}

const GraphProto& Application::graph(std::string_view name) const {
  const AttributeProto* a = attribute(name);
  if (!a || !a->graph) wrong_type(*this, name, "a graph");
  return *a->graph;
}

std::vector<Extent> Application::integers(std::string_view name, std::size_t i) const {
  return has(i) ? integers_of(i) : integers(name);
}

void Application::give(std::size_t i, Tensor result) {
  if (result.rank() > kMaxAxes)
    shape_error(fmt::format("a result of {} axes; at most {} are possible", result.rank(), kMaxAxes));
  if (i < results_.size()) results_[i].tensor = std::move(result);
}

void Application::give_positions(std::size_t i, const Tensor& positions) {
  give(i, cast(positions, type_here(DType::i64)));
}

void Application::give_value(std::size_t i, Value value) {
  if (i < results_.size()) results_[i] = std::move(value);
}

DType Application::type_here(DType type) const {
  return type == DType::i64 && !has_long_types(device_) ? DType::i32 : type;
}

int Application::axis(Extent axis, int rank) const {
  if (axis < -rank || axis >= rank) shape_error(fmt::format("axis {} is out of range for {} axes", axis, rank));
  return static_cast<int>(axis < 0 ? axis + rank : axis);
}

std::vector<int> Application::axes(const std::vector<Extent>& given, int rank) const {
  std::vector<int> result;
  for (const Extent a : given) result.push_back(axis(a, rank));
  return result;
}

Tensor Application::make(const std::vector<Extent>& values, const Shape& shape) const {
  return moved(tensor_from_bytes(values.data(), shape, DType::i64, kCpu), device_);
}

Tensor Application::make(const std::vector<double>& values, const Shape& shape, DType type) const {
  return moved(cast(tensor_from_bytes(values.data(), shape, DType::f64, kCpu), type), device_);
}

void Application::usage_error(std::string_view fact) const {
  throw UsageError(fmt::format("{}: {}", node_.title(), fact));
}

void Application::shape_error(std::string_view fact) const {
  std::string text = fmt::format("{}: {}", node_.title(), fact);
  for (std::size_t i = 0; i < values_.size(); ++i)
    if (tensors_[i].defined())
      text += fmt::format("\n  {}  {} {}", quote(node_.inputs[i]), name_of(tensors_[i].dtype()),
                          tensors_[i].shape().to_string());
  throw ShapeError(text);
}

// ---- Run ----------------------------------------------------------------------------------------------------------------

Tensor Run::on_device(const Value& value) const {
  return value.tensor.defined() ? value.tensor : moved(value.known, device);
}

namespace {

// Calls f with each name that a node reads elements of, also in graphs inside of it.
template <class F>
void each_read(const NodeProto& node, const F& f) {
  if (node.domain.empty() && (node.type == "Shape" || node.type == "Size")) return;
  for (const std::string_view name : node.inputs) f(name);
  for (const AttributeProto& a : node.attributes) {
    if (!a.graph) continue;
    for (const NodeProto& inner : a.graph->nodes) each_read(inner, f);
    for (const ValueInfo& output : a.graph->outputs) f(output.name);
  }
}

}  // namespace

void Run::settle(const Tensor& x) const {
  if (graph::TraceScope::current() || x.node()->storage) return;
  std::unordered_map<const graph::Node*, const Tensor*> later;
  for (const Frame& frame : frames)
    for (const NodeProto& node : frame.rest)
      each_read(node, [&](std::string_view name) {
        const Value* value = name.empty() ? nullptr : frame.scope->find(name);
        if (value && value->tensor.defined() && !value->tensor.node()->storage)
          later.emplace(value->tensor.node().get(), &value->tensor);
      });
  std::vector<const Tensor*> wanted{&x};
  const std::vector<graph::NodeRef> roots{x.node()};
  for (const graph::Node* node : graph::topological_order(roots, [](const graph::Node& n) { return bool(n.storage); }))
    if (const auto found = later.find(node); found != later.end() && found->second->node() != x.node())
      wanted.push_back(found->second);
  eval(std::span<const Tensor* const>(wanted));
}

void Run::apply_nodes(std::span<const NodeProto> nodes, Scope& scope) {
  frames.push_back({nodes, &scope});
  const std::unique_ptr<std::vector<Frame>, void (*)(std::vector<Frame>*)> frame(
      &frames, [](std::vector<Frame>* all) { all->pop_back(); });
  for (const NodeProto& node : nodes) {
    frames.back().rest = frames.back().rest.subspan(1);
    try {
      apply(node, scope);
    } catch (Error& error) {
      error.add_context("applying " + node.title());
      throw;
    }
  }
}

void Run::apply(const NodeProto& node, Scope& scope) {
  if (applications_left-- == 0) throw UsageError("more than a million nodes are applied in one run");
  const auto function = model.function_by_name.find({node.domain, node.type});
  const auto store = [&](std::vector<Value>& results) {
    for (std::size_t i = 0; i < node.outputs.size(); ++i) {
      if (node.outputs[i].empty()) continue;
      if (!results[i].is_tensor() && !results[i].sequence)
        throw UsageError(fmt::format("{}: output {} ({}) is not supported", node.title(), i, quote(node.outputs[i])));
      scope.values.insert_or_assign(node.outputs[i], std::move(results[i]));
    }
  };
  if (function != model.function_by_name.end()) {
    Application call(node, *this, scope, device);
    apply_function(*function->second, call, scope);
    return store(call.results());
  }
  const Operator* op = find_operator(node.domain, node.type);
  if (!op) throw UsageError(fmt::format("{}: Weft has no such operator", node.title()));
  Application there(node, *this, scope, device);
  if (op->mode == Operator::Mode::values) {
    for (std::size_t i = 0; i < there.values_.size(); ++i)
      if (const Value* v = there.values_[i]) there.tensors_[i] = v->tensor.defined() ? v->tensor : v->known;
    op->apply(there);
    return store(there.results());
  }
  bool known = op->mode == Operator::Mode::tensors, trains = false;
  for (const Value* value : there.values_) {
    if (!value) continue;
    known = known && value->known.defined();
    trains = trains || value->trains;
  }
  std::vector<Value> results(node.outputs.size());
  if (known) {
    Application here(node, *this, scope, kCpu);
    for (std::size_t i = 0; i < here.values_.size(); ++i)
      if (here.values_[i]) here.tensors_[i] = here.values_[i]->known;
    op->apply(here);
    for (std::size_t i = 0; i < results.size(); ++i) {
      results[i].known = here.results_[i].tensor;
      if (!trains && device == kCpu) results[i].tensor = results[i].known;
    }
  }
  if (!known || trains) {
    for (std::size_t i = 0; i < there.values_.size(); ++i)
      if (there.values_[i] && there.values_[i]->is_tensor()) there.tensors_[i] = on_device(*there.values_[i]);
    op->apply(there);
    for (std::size_t i = 0; i < results.size(); ++i) {
      results[i].tensor = there.results_[i].tensor;
      results[i].trains = trains;
    }
  }
  store(results);
}

void Run::apply_function(const FunctionProto& function, Application& call, Scope& scope) {
  if (++depth > kMaxNesting) call.usage_error(fmt::format("functions are nested more than {} deep", kMaxNesting));
  Scope inner{
      .opsets = function.opsets.empty() ? scope.opsets : &function.opsets, .call = &call, .function = &function};
  for (std::size_t i = 0; i < function.inputs.size(); ++i)
    inner.values[function.inputs[i]] = call.has(i) ? call.value(i) : Value{};
  apply_nodes(function.nodes, inner);
  for (std::size_t i = 0; i < call.output_count() && i < function.outputs.size(); ++i) {
    const Value* found = inner.find(function.outputs[i]);
    if (!found) call.usage_error(fmt::format("nothing makes the function's output {}", quote(function.outputs[i])));
    call.give_value(i, *found);
  }
  --depth;
}

std::vector<Value> Run::apply_graph(const GraphProto& graph, const Scope& parent, std::vector<Value> inputs) {
  if (++depth > kMaxNesting) throw UsageError(fmt::format("graphs are nested more than {} deep", kMaxNesting));
  if (graph.inputs.size() != inputs.size())
    throw UsageError(
        fmt::format("the graph {} takes {} inputs and gets {}", quote(graph.name), graph.inputs.size(), inputs.size()));
  Scope scope{.parent = &parent, .opsets = parent.opsets};
  for (const TensorProto& tensor : graph.initialisers) {
    const io::Array array = elements_of(tensor, "the graph " + quote(graph.name), {});
    scope.values[tensor.name] = {.tensor = {},
                                 .known = tensor_from_bytes(array.data.data(), array.shape, array.dtype, kCpu)};
  }
  for (std::size_t i = 0; i < inputs.size(); ++i) scope.values[graph.inputs[i].name] = std::move(inputs[i]);
  apply_nodes(graph.nodes, scope);
  std::vector<Value> outputs;
  for (const ValueInfo& output : graph.outputs) {
    const Value* found = scope.find(output.name);
    if (!found) throw UsageError(fmt::format("nothing makes the output {} of a graph", quote(output.name)));
    outputs.push_back(*found);
  }
  --depth;
  return outputs;
}

}  // namespace weft::onnx
