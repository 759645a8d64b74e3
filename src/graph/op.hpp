// The one table of ops. A row says everything about an op of any kind: C++ functions, `weft eval`, the self-test, gradient
// checks, comparisons with PyTorch and documentation read it. Elementwise ops and reductions have rows of another form
// (ops/table.hpp), which enter the table automatically.
#pragma once

#include <functional>
#include <initializer_list>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "graph/attributes.hpp"
#include "graph/node.hpp"
#include "ops/table.hpp"
#include "weft/tensor.hpp"

namespace weft::graph {

using Tensors = std::vector<Tensor>;
struct OpRow;

struct InputSpec {
  std::string name;
  ops::DTypes dtypes = ops::DTypes::all;
  bool optional = false;
  bool repeated = false;         // takes every input given from here on, at least one
  std::vector<DType> only = {};  // exactly these dtypes, if no value of `dtypes` means them
  bool allows(DType type) const;
  std::string dtypes_text() const;  // "f32 f64"
};

/// Dtype and shape of one result of an op.
struct Result {
  DType type;
  Shape shape;
};
/// Dtype and shape of an input.
inline Result like(const Tensor& x) { return {x.dtype(), x.shape()}; }

/// One use of an op: its inputs (undefined if an optional one is left out) and attributes.
class Call {
 public:
  Call(const OpRow& row, Tensors inputs, Words words, Where where)
      : row_(row), inputs_(std::move(inputs)), words_(std::move(words)), where_(where) {}
  /// The call of a node.
  explicit Call(const Node& node);

  const OpRow& row() const { return row_; }
  const Tensors& inputs() const { return inputs_; }
  const Tensor& input(std::size_t i) const { return inputs_[i]; }
  const Words& words() const { return words_; }
  Where where() const { return where_; }
  template <class S>
  S attributes() const;

  /// Errors that name the op, the fact, each operand and the caller.
  [[noreturn]] void shape_error(std::string_view fact) const;
  [[noreturn]] void dtype_error(std::string_view fact) const;
  [[noreturn]] void usage_error(std::string_view fact) const;
  /// `axis` of input 0, counted from its start.
  int axis(Extent axis) const;

 private:
  std::vector<std::pair<std::string, Tensor>> operands() const;
  const OpRow& row_;
  Tensors inputs_;
  Words words_;
  Where where_;
};

/// A call and its incoming gradients: one for each result, undefined if none flows.
struct GradientCall {
  const Call& call;
  const Tensors& results;
  const Tensors& gradients;
};

/// The inputs and attributes of an op that is applied by name.
class Arguments {
 public:
  Arguments(const OpRow& row, Tensors inputs, std::vector<AttributeValue> values)
      : row_(row), inputs_(std::move(inputs)), values_(std::move(values)) {}
  const Tensor& input(std::size_t i) const { return inputs_[i]; }
  const Tensors& inputs() const { return inputs_; }
  const OpRow& row() const { return row_; }
  const std::vector<AttributeValue>& values() const { return values_; }

  Extent integer(std::string_view name) const { return std::get<Extent>(value(name)); }
  /// The same, with `fallback` for null.
  Extent integer_or(std::string_view name, Extent fallback) const;
  /// For parameters of type int; UsageError beyond its range.
  int small(std::string_view name) const;
  double number(std::string_view name) const { return std::get<double>(value(name)); }
  bool boolean(std::string_view name) const { return std::get<bool>(value(name)); }
  const std::vector<Extent>& integers(std::string_view name) const {
    return std::get<std::vector<Extent>>(value(name));
  }
  std::vector<int> axes(std::string_view name) const;
  Shape shape(std::string_view name) const { return Shape(integers(name)); }
  const Numbers& numbers(std::string_view name) const { return std::get<Numbers>(value(name)); }
  const Pairs& pairs(std::string_view name) const { return std::get<Pairs>(value(name)); }
  DType dtype(std::string_view name) const { return std::get<DType>(value(name)); }
  const std::string& word(std::string_view name) const { return std::get<std::string>(value(name)); }
  /// The index of the word among the attribute's choices.
  int choice(std::string_view name) const;

 private:
  const AttributeValue& value(std::string_view name) const;
  const OpRow& row_;
  Tensors inputs_;
  std::vector<AttributeValue> values_;  // in the order of the row's attributes
};

/// An input of a tested case: random numbers between lo and hi, or the values given. A float dtype means the float type that
/// the test computes in.
struct CaseInput {
  Shape shape;
  double lo = -2, hi = 2;
  DType type = DType::f32;
  std::vector<double> values = {};
  bool absent = false;  // an optional input left out
};
using CaseAttributes = std::vector<std::pair<std::string, AttributeValue>>;
/// Inputs that tests run on every device: results and gradients are compared with the decomposition in f64, and with PyTorch if
/// the row has a PyTorch expression.
struct OpCase {
  std::string name;
  std::vector<CaseInput> inputs = {};
  CaseAttributes attributes = {};
  bool compares_gradients = true;  // false if inputs are at a kink
};
/// Inputs that the op refuses, and a part of the message.
struct ErrorCase {
  std::string name;
  std::vector<CaseInput> inputs = {};
  CaseAttributes attributes = {};
  std::string message;
};

/// The form of a device's kernel for a call, which determines the operands of the kernel.
enum class KernelForm : std::uint8_t {
  none,            // no kernels: the op is replaced by its parts
  routine,         // whole contiguous operands and results
  attention,       // [batch, position, head, channel] by strides
  scatter_add,     // whole contiguous operands; the result may be inside a concat
  packed_product,  // rows by strides times packed weights, with an epilogue
};

struct OpRow {
  std::string name;
  std::vector<std::string> aliases = {};
  std::string family;
  std::vector<InputSpec> inputs = {};
  std::vector<AttributeSpec> attributes = {};
  std::string result = "that of x";  // dtype of the result, in words
  bool differentiable = true;
  bool several_outputs = false;  // the caller names them, and so gives their number
  std::string doc;               // a sentence
  std::string formula = {};

  /// Names in other libraries. `torch` is a Python expression over the inputs' and attributes' names, such as "torch.cumsum(x,
  /// axis)"; `onnx` is the operator's type.
  std::string torch = {}, numpy = {}, onnx = {};

  /// Dtypes and shapes of the results. Reports mistakes of the user through the call.
  std::function<std::vector<Result>(const Call&)> infer = {};
  /// The results in other ops, which defines what the op means. Null for an op that other ops cannot express.
  std::function<Tensors(const Call&)> decompose = {};
  /// Gradients of the inputs (undefined: none). If empty, or if it returns no tensors, the decomposition is differentiated.
  std::function<Tensors(const GradientCall&)> gradient = {};
  /// Why there is no gradient and what to do instead, for an op without a decomposition.
  std::string no_gradient = {};

  /// What to do on a device without a kernel, for an op without a decomposition.
  std::string no_kernel = "use the CPU";

  bool reads_packed = false;  // takes matrices in the layout of `has_packed_layout`
  KernelForm form = KernelForm::none;
  int in_place =
      -1;  // the input whose memory the result may reuse: elements that are not written keep the input's value
  std::function<double(const Call&)> flops = {};  // floating-point operations; empty: one per result element

  std::vector<OpCase> cases = {};
  std::vector<ErrorCase> errors = {};

  /// The op by name. Empty: a call of this row.
  std::function<Tensors(const Arguments&)> apply = {};
  const ops::ElementwiseRow* elementwise = nullptr;
  const ops::ReduceRow* reduction = nullptr;

  /// True for an op that is decomposed when it is called.
  bool is_composite() const { return form == KernelForm::none && decompose != nullptr; }
};

template <class S>
S Call::attributes() const {
  return struct_of<S>(row_.attributes, words_.data());
}

// ---- Calls ------------------------------------------------------------------------------------------------------------

/// A call of the row as nodes, one for each result. Checks the inputs and the types that the row infers.
/// Errors  UsageError: an input without a value; DeviceError: inputs on different devices; DTypeError: a dtype that the
///         input does not take; otherwise as the row.
std::vector<NodeRef> call_nodes(const OpRow& row, Tensors inputs, Words words, Where where = Where::current());

/// The result of an op with one result, as its public function returns it.
Tensor call(const OpRow& row, Tensors inputs, Words words, Where where);
template <class S>
Tensor call(const OpRow& row, Tensors inputs, const S& attributes, Where where) {
  return call(row, std::move(inputs), words_of(row.attributes, attributes), where);
}
struct NoAttributes {};

/// Attributes of a call node.
template <class S>
S attributes_of(const Node& node) {
  return Call(node).attributes<S>();
}

inline bool has_form(const Node& node, KernelForm form) { return node.kind == Kind::call && node.op->form == form; }
/// Matrix products, which take epilogues.
inline bool is_product(const Node& node) {
  return node.kind == Kind::matmul || has_form(node, KernelForm::packed_product);
}
/// Whether its results are read through `project` nodes; a call keeps their number in Node::value.
inline bool has_several_results(const Node& call) { return call.value > 1; }
inline bool is_call_of(const Node& node, const OpRow& row) { return node.kind == Kind::call && node.op == &row; }
/// The results of a call in terms of primitives and other calls: its stored parts, or its decomposition. Empty if there is
/// none.
std::vector<NodeRef> decompose(const Node& call);

// ---- The table ---------------------------------------------------------------------------------------------------------

/// All rows: elementwise, reductions, the other families, then those registered later. Never freed. Thread safe.
std::vector<const OpRow*> op_rows();
/// The row of a name or alias. Errors: UsageError that names the nearest op.
const OpRow& op_row(std::string_view name);
/// Null if there is none.
const OpRow* find_op_row(std::string_view name);
/// The attribute of a name or alias. Errors: UsageError that lists the known ones.
const AttributeSpec& attribute_of(const OpRow& row, std::string_view name);
/// Adds rows. Errors: UsageError for a name that is taken.
void register_rows(const std::vector<const OpRow*>& rows);
/// Adds a row that the table keeps.
const OpRow& register_row(OpRow row);

/// Applies an op by name: attributes that are not given take their defaults.
/// Errors  UsageError: a missing or surplus input, an attribute that is unknown (the known ones are listed), missing, of
///         another type or out of its range. Otherwise as the op.
Tensors apply(const OpRow& row, Tensors inputs, const CaseAttributes& attributes, Where where = Where::current());

}  // namespace weft::graph
