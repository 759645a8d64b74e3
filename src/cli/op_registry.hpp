// Every op by its public name, with inputs and attributes described: what `weft eval` runs, `weft ops list` prints and
// `weft doctor` tests. Rows of the op table enter by themselves; each other op has an entry here.
#pragma once

#include <functional>
#include <limits>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.hpp"
#include "ops/table.hpp"
#include "weft/ops.hpp"

namespace weft::cli {

/// What the value of an attribute is, in JSON.
enum class AttributeType {
  integer,   // 3
  number,    // 0.5, or "inf", "-inf", "nan"
  boolean,   // true
  integers,  // [0, 2]; a single integer stands for a list of one
  pairs,     // [[1, 1], [0, 2]]
  dtype,     // "f32"
  choice,    // one of some words
};
std::string_view name_of(AttributeType type);

struct InputSpec {
  std::string name;
  bool optional = false;
  bool repeated = false;  // takes every input given from here on, at least one
};

struct AttributeSpec {
  std::string name;
  AttributeType type = AttributeType::number;
  std::optional<Json> default_value = {};  // none: it must be given
  std::string doc = {};
  std::vector<std::string> aliases = {};
  std::vector<std::string> choices = {};
};

struct OpSpec;

/// The inputs and checked attributes of one use of an op.
class Arguments {
 public:
  Arguments(const OpSpec& spec, std::vector<Tensor> inputs, std::map<std::string, Json> attributes)
      : spec_(spec), inputs_(std::move(inputs)), attributes_(std::move(attributes)) {}
  /// Undefined where an optional input is left out.
  const Tensor& input(std::size_t i) const { return inputs_[i]; }
  std::span<const Tensor> inputs() const { return inputs_; }
  const OpSpec& spec() const { return spec_; }

  Extent integer(std::string_view name) const;
  /// The same where null stands for `fallback`.
  Extent integer_or(std::string_view name, Extent fallback) const;
  /// For parameters that are an int; UsageError beyond its range.
  int small(std::string_view name) const;
  double number(std::string_view name) const;
  bool boolean(std::string_view name) const;
  std::vector<Extent> integers(std::string_view name) const;
  Axes axes(std::string_view name) const;
  Shape shape(std::string_view name) const { return Shape(integers(name)); }
  std::vector<std::pair<Extent, Extent>> pairs(std::string_view name) const;
  DType dtype(std::string_view name) const;
  std::string word(std::string_view name) const;

 private:
  const Json& value(std::string_view name) const;
  const OpSpec& spec_;
  std::vector<Tensor> inputs_;
  std::map<std::string, Json> attributes_;
};

struct OpSpec {
  std::string name;
  std::vector<std::string> aliases = {};
  std::string family;
  std::vector<InputSpec> inputs = {};
  std::vector<AttributeSpec> attributes = {};
  std::string dtypes;  // that the inputs may have: "f32 f64"
  std::string result;  // dtype of the result, in words
  bool differentiable = true;
  bool several_outputs = false;  // split, updates: as many as `output` of the step names
  std::string doc;
  std::function<std::vector<Tensor>(const Arguments&)> apply;
  const ops::ElementwiseRow* row = nullptr;
  const ops::ReduceRow* reduce = nullptr;
};

/// All ops: elementwise rows, reductions, then the others by family. Those registered at run time later are not in it.
std::span<const OpSpec> op_specs();
/// The op of a name or alias. Errors: UsageError that names the nearest op.
const OpSpec& find_op(std::string_view name);

/// Applies the op. `inputs` has an undefined tensor for each optional input left out; `attributes` is a JSON object.
/// Errors  UsageError: a missing or surplus input, an attribute that is unknown (the known ones are listed), missing or of
///         another type. Otherwise as the op.
std::vector<Tensor> apply_op(const OpSpec& spec, std::vector<Tensor> inputs, const Json& attributes);

// Entries of the families that are no rows.
inline constexpr const char* kSameAsX = "that of x";
std::vector<OpSpec> shape_ops();      // making tensors, views, joining, cast
std::vector<OpSpec> composite_ops();  // products, gathers, composites, losses, random numbers, updates

}  // namespace weft::cli
