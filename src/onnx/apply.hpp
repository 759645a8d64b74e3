// The application of a model's nodes: values by name, and what an operator's translation sees of its node.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "onnx/proto.hpp"
#include "weft/device.hpp"
#include "weft/ops.hpp"
#include "weft/tensor.hpp"

namespace weft::onnx {

/// A value of a model while it runs. What depends on constants alone also (or only) has a tensor on the CPU, `known`, whose
/// elements can be read while a graph is built.
struct Value {
  Tensor tensor;        // on the model's device; undefined until it is asked for
  Tensor known;         // on the CPU
  bool trains = false;  // depends on a parameter, so gradients must flow through `tensor`
  std::shared_ptr<const std::vector<Value>> sequence = {};  // of a sequence
  bool is_tensor() const { return tensor.defined() || known.defined(); }
};

/// Integers that are known while a graph is built, on the CPU whatever the default device is.
Value known_integers(const std::vector<Extent>& values, const Shape& shape);

/// Calls f, which computes values that depend on no argument of a function being compiled, also inside of such a function.
void outside_of_traces(const std::function<void()>& f);
template <class T>
std::vector<T> read_elements(const Tensor& x) {
  std::vector<T> elements;
  outside_of_traces([&] { elements = x.to_vector<T>(); });
  return elements;
}
/// A tensor on another device, with i64 as i32 where the device lacks it. Errors: DTypeError for a value beyond i32.
Tensor moved(const Tensor& x, Device device);

class Application;
struct Operator {
  enum class Mode : std::uint8_t {
    tensors,  // a function of tensors: computed on the CPU where all inputs are known
    draws,    // the same, but never the same twice
    values,   // control flow and sequences
  };
  std::string_view type;
  void (*apply)(Application&);
  Mode mode = Mode::tensors;
};
/// Null if Weft has no such operator. Domains: "", "ai.onnx.ml", "ai.onnx.preview.training" and "com.microsoft".
const Operator* find_operator(std::string_view domain, std::string_view type);
/// Domain and type of every operator.
std::vector<std::pair<std::string_view, std::string_view>> operator_names();

// Tables by family.
std::span<const Operator> math_operators();
std::span<const Operator> shape_operators();
std::span<const Operator> index_operators();
std::span<const Operator> network_operators();
std::span<const Operator> recurrent_operators();
std::span<const Operator> resampling_operators();
std::span<const Operator> quantised_operators();
std::span<const Operator> loss_operators();
std::span<const Operator> making_operators();
std::span<const Operator> spectral_operators();
std::span<const Operator> control_operators();
std::span<const Operator> attention_operators();
/// Of ai.onnx.ml.
std::span<const Operator> learning_operators();
/// Of ONNX Runtime: the domain com.microsoft.
std::span<const Operator> contrib_operators();
std::span<const Operator> contrib_attention_operators();
std::span<const Operator> contrib_quantised_operators();

/// Names and their values, in a graph or in the call of a function.
struct Scope {
  std::unordered_map<std::string_view, Value> values = {};
  const Scope* parent = nullptr;
  const Opsets* opsets = nullptr;
  const Application* call = nullptr;  // of a function
  const FunctionProto* function = nullptr;

  const Value* find(std::string_view name) const;
};

/// One run of a model.
struct Run {
  const ModelProto& model;
  Device device;
  std::size_t applications_left = 1'000'000;
  int depth = 0;  // of functions and graphs
  /// Nodes that are still to be applied in a graph, and the values that they find.
  struct Frame {
    std::span<const NodeProto> rest;
    const Scope* scope;
  };
  std::vector<Frame> frames = {};

  void apply_nodes(std::span<const NodeProto> nodes, Scope& scope);
  /// Outputs of a graph inside of a node. Errors: UsageError for another number of inputs.
  std::vector<Value> apply_graph(const GraphProto& graph, const Scope& parent, std::vector<Value> inputs);
  /// The tensor on the run's device.
  Tensor on_device(const Value& value) const;
  /// Computes x, whose elements are about to be read. Values that it is made of and that later nodes read too are computed with
  /// it and kept: each later read would compute them again. Nothing while a function is being compiled.
  void settle(const Tensor& x) const;

 private:
  void apply(const NodeProto& node, Scope& scope);
  void apply_function(const FunctionProto& function, Application& call, Scope& scope);
};

/// A node with its inputs.
class Application {
 public:
  Application(const NodeProto& node, Run& run, const Scope& scope, Device device);

  const NodeProto& node() const { return node_; }
  Run& run() const { return run_; }
  const Scope& scope() const { return scope_; }
  std::int64_t opset() const { return opset_; }
  Device device() const { return device_; }
  bool on_cpu() const { return device_.kind == Device::Kind::cpu; }

  // ---- Inputs

  std::size_t input_count() const { return node_.inputs.size(); }
  /// Whether the input is there; an optional one may be left out.
  bool has(std::size_t i) const { return i < values_.size() && values_[i]; }
  /// Errors: UsageError if it is left out, or is not a tensor.
  const Tensor& operator[](std::size_t i) const;
  /// Undefined if it is left out.
  Tensor optional(std::size_t i) const { return has(i) ? (*this)[i] : Tensor(); }
  std::vector<Tensor> all() const;
  const Value& value(std::size_t i) const;
  /// The elements of an input, row-major. Errors: UsageError if they depend on an argument of a function being compiled.
  std::vector<Extent> integers_of(std::size_t i) const;
  std::vector<double> numbers_of(std::size_t i) const;
  /// The input, computed, for an operator whose result has a size that depends on its elements.
  const Tensor& settled(std::size_t i) const;
  /// The one element of an input. Errors: also UsageError for another number of elements.
  Extent integer_of(std::size_t i) const;
  double number_of(std::size_t i) const;

  // ---- Attributes

  const AttributeProto* attribute(std::string_view name) const;
  Extent integer(std::string_view name, std::optional<Extent> fallback = {}) const;
  bool flag(std::string_view name, bool fallback) const { return integer(name, fallback) != 0; }
  double number(std::string_view name, double fallback) const;
  std::string_view word(std::string_view name, std::string_view fallback) const;
  std::vector<Extent> integers(std::string_view name, std::vector<Extent> fallback = {}) const;
  std::vector<double> numbers(std::string_view name) const;
  std::vector<std::string_view> words(std::string_view name) const;
  const GraphProto& graph(std::string_view name) const;
  /// Integers that newer opsets give as input i, and older ones as an attribute.
  std::vector<Extent> integers(std::string_view name, std::size_t i) const;

  // ---- Results

  std::size_t output_count() const { return node_.outputs.size(); }
  bool wants(std::size_t i) const { return i < node_.outputs.size() && !node_.outputs[i].empty(); }
  void give(Tensor result) { give(0, std::move(result)); }
  void give(std::size_t i, Tensor result);
  /// Positions, as i64 where the device has it.
  void give_positions(std::size_t i, const Tensor& positions);
  void give_value(std::size_t i, Value value);
  std::vector<Value>& results() { return results_; }

  // ---- Help

  /// i64, or i32 where the device lacks it; f64 is left, for the device to refuse.
  DType type_here(DType type) const;
  /// An axis counted from the start. Errors: ShapeError.
  int axis(Extent axis, int rank) const;
  std::vector<int> axes(const std::vector<Extent>& axes, int rank) const;
  /// A tensor of integers (i64, or i32) or of floats on the device.
  Tensor make(const std::vector<Extent>& values, const Shape& shape) const;
  Tensor make(const std::vector<double>& values, const Shape& shape, DType type) const;
  [[noreturn]] void usage_error(std::string_view fact) const;
  [[noreturn]] void shape_error(std::string_view fact) const;

 private:
  friend struct Run;
  Tensor readable(std::size_t i) const;
  void check_has_one(std::size_t i) const;

  const NodeProto& node_;
  Run& run_;
  const Scope& scope_;
  Device device_;
  std::int64_t opset_ = 0;
  std::vector<const Value*> values_;
  std::vector<Tensor> tensors_;
  std::vector<Value> results_;
};

/// What a node of Gemm gives: alpha A B + beta C, of A and B as its attributes turn them.
Tensor general_product(const Application& a);

/// The most axes of a value.
inline constexpr int kMaxAxes = static_cast<int>(kMaxDims);
/// The most elements of a tensor that an operator makes from numbers in a file, and the most steps of a loop.
inline constexpr Extent kMaxMadeElements = Extent{1} << 31;
inline constexpr Extent kMaxSteps = 65536;

}  // namespace weft::onnx
