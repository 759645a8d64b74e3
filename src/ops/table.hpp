// The op table: each row says everything about an elementwise op or a reduction. Dispatch, gradients, kernels, the generated
// header, documentation and tests read the rows.
#pragma once

#include <array>
#include <initializer_list>
#include <limits>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "ops/parse.hpp"
#include "ops/scalar.hpp"

namespace weft::ops {

/// A field that a row must give: there is no default, so a row without it does not compile.
template <class T>
struct Required {
  T value;
  constexpr Required(T given) : value(given) {}
  constexpr operator T() const { return value; }
};
struct Text : std::string_view {
  constexpr Text(std::string_view text) : std::string_view(text) {}
  constexpr Text(const char* text) : std::string_view(text) {}
};

/// A few values held in the row itself.
template <class T, std::size_t N>
class List {
 public:
  constexpr List() = default;
  constexpr List(std::initializer_list<T> values) {
    for (const T& value : values) push_back(value);
  }
  constexpr void push_back(const T& value) {
    if (size_ == N) throw std::length_error("too many values in a field of an op row");
    values_[size_++] = value;
  }
  constexpr const T* begin() const { return values_.data(); }
  constexpr const T* end() const { return values_.data() + size_; }
  constexpr std::size_t size() const { return size_; }
  constexpr bool empty() const { return size_ == 0; }
  constexpr const T& operator[](std::size_t i) const { return values_[i]; }

 private:
  std::array<T, N> values_{};
  std::size_t size_ = 0;
};

inline constexpr std::size_t kOperandsMax = 8;  // inputs and attributes of a row together

struct Range {
  double lo = 0, hi = 0;
};
/// Values that a row must give.
struct TestedRange : Range {
  constexpr TestedRange(double lo, double hi) : Range{lo, hi} {}
};
struct InputNames : List<std::string_view, kOperandsMax> {
  template <class... Rest>
  constexpr InputNames(std::string_view first, Rest... rest) : List{first, std::string_view(rest)...} {}
  explicit constexpr InputNames(const List& names) : List(names) {}
};
struct Ranges : List<Range, kOperandsMax> {
  constexpr Ranges(Range all) : List{all} {}
  constexpr Ranges(Range first, Range second) : List{first, second} {}
  constexpr Ranges(Range first, Range second, Range third) : List{first, second, third} {}
  /// The range of input i: its own, or the shared one.
  constexpr Range of(std::size_t i) const { return (*this)[i < size() ? i : size() - 1]; }
};

/// Input types that an op takes. `scalar::typed` then determines the type that it computes in.
enum class DTypes : std::uint8_t {
  floats,
  numbers,  // floats and integers
  integers,
  bits,  // integers and bool
  all,   // except storage types
};
bool allows(DTypes set, DType type);

/// Type of the result, of inputs whose promoted type is T.
enum class Result : std::uint8_t {
  same,      // T (i32 for bools in arithmetic)
  floating,  // T if it is a float, else f32; inputs are cast first, so that 1 / 2 is 0.5 for integers too
  boolean,
  integer,  // i32
};

/// A number given with the call. It travels as a runtime value of type `attribute_type`, and never promotes the inputs.
struct Attribute {
  std::string_view name;
  double default_value = 0;
  double tested = 0;  // the value that tests use; differs from the default if that would hide a mistake
  std::string_view doc;
};

struct ElementwiseRow {
  Text name;
  List<std::string_view, 4> aliases = {};
  InputNames inputs;                              // names in the texts
  List<Attribute, kOperandsMax> attributes = {};  // further operands after the inputs
  Text forward;                                   // over inputs and attributes
  /// Gradient texts of the inputs, over inputs, attributes, `output` and `g`; "" or absent: derived from forward. Given
  /// where the derived one is less exact or the convention at a kink differs.
  List<std::string_view, kOperandsMax> gradients = {};
  /// Functions in gradient texts that are ops of the same name with the same operands. Their calls become calls of these ops, whose
  /// gradients are then those of their rows, and not what would be derived from the text.
  List<std::string_view, 2> gradient_ops = {};
  Required<DTypes> dtypes;
  Required<Result> result;
  Ranges tested;                         // values that tests draw: one range for all inputs, or one for each
  List<std::string_view, 4> kinks = {};  // texts over inputs and attributes; gradient checks stay away from their zeros
  Required<double> max_ulp;              // error of the f32 result over the tested range
  double ulp_floor = 0;                  // smaller results are compared with the ulp of this size (where digits cancel)
  bool differentiable = true;
  bool second_order = true;  // whether the gradient's own derivative is checked too
  Text doc;                  // a sentence: formula, then conventions
};

/// A reduction over some axes: post(reduce(pre(x))). Every text may use the attributes.
struct ReduceRow {
  Text name;
  List<std::string_view, 4> aliases = {};
  List<Attribute, kOperandsMax> attributes = {};
  /// Name of a reduction done first over the same axes, whose result (kept as extent 1) is `c` in pre and post; "": none.
  std::string_view center = "";
  bool center_is_constant = false;  // the result does not depend on c, so no gradient flows through c
  Text pre;                         // over x (, c), attributes
  Required<scalar::Reduction> reduction;
  Text post;  // over r (the reduced value), n (the number of elements, as a float) (, c), attributes
  Required<DTypes> dtypes;
  Required<Result> result;  // `same`: integers keep their type, bools are counted in i32 (amax, amin: stay bool)
  TestedRange tested;
  Required<double> max_ulp;  // error of the f32 result for up to 1000 elements
  double ulp_floor = 0;      // as in ElementwiseRow
  bool differentiable = true;
  bool allows_empty = true;  // false: an error over an empty axis (amax, argmax)
  Text doc;
};

/// All elementwise rows: unary, binary, ternary, then those registered at run time, in that order. Returns a copy of pointers,
/// which stay valid.
std::vector<const ElementwiseRow*> elementwise_rows();
/// The row of a name or alias; nullptr if there is none. Thread safe.
const ElementwiseRow* find_elementwise(std::string_view name);
/// The same; throws UsageError that names the nearest op.
const ElementwiseRow& elementwise_row(std::string_view name);

std::span<const ReduceRow> reduce_rows();
const ReduceRow* find_reduce(std::string_view name);
const ReduceRow& reduce_row(std::string_view name);

/// Parsed once, never freed, thread safe. Untyped. `forward` is over inputs, then attributes; `gradients` has one expression
/// for each of these, over (inputs..., attributes..., output, g).
const scalar::Expression& forward(const ElementwiseRow& row);
const std::vector<scalar::Expression>& gradients(const ElementwiseRow& row);

/// A gradient whose further operands are the results of calls of ops (see `gradient_ops`).
struct GradientOfCalls {
  scalar::Expression gradient;  // over (inputs..., attributes..., output, g, calls...)
  std::vector<scalar::OpCall> calls;
};
/// For each input and attribute; empty for a row without `gradient_ops`.
const std::vector<GradientOfCalls>& gradients_of_calls(const ElementwiseRow& row);

/// The type of attributes beside inputs of these types: the type that the op computes in (i32 for bools).
DType attribute_type(const ElementwiseRow& row, std::span<const DType> inputs);
/// `forward` with types and casts for inputs of these types (attributes are of `attribute_type`). Cached, thread safe. Throws
/// DTypeError if the row does not take a type (the message states only the fact; the caller knows the tensors), UsageError for
/// a wrong number of inputs.
const scalar::Expression& typed_forward(const ElementwiseRow& row, std::span<const DType> inputs);
/// Throws UsageError if there are too many values, or one that `type` cannot hold (0.5 for an i32). Returns all values,
/// the defaults filled in; infinities saturate in integer types.
std::vector<double> checked_attributes(const ElementwiseRow& row, std::span<const double> values, DType type);

/// Texts of a reduction, parsed once. `pre` is over (x, attributes...) or with a center (x, c, attributes...); `post` over
/// (r, n, attributes...) or (r, n, c, attributes...).
struct ReduceExpressions {
  scalar::Expression pre, post;
};
const ReduceExpressions& expressions(const ReduceRow& row);
/// The type that x is cast to before a reduction, and the type of the result. Both are x's type except for narrow types, and
/// where the row says otherwise. Sums and products of integers of 8 and 16 bits are i32 or u32. Throws DTypeError where the row
/// does not take the type.
struct ReduceTypes {
  DType computed, result;
};
ReduceTypes reduce_types(const ReduceRow& row, DType x);
/// `pre` with types and casts for x (and c) of this type, not a narrow one. The reduction keeps its result's type; argmax
/// and argmin give i32. Throws DTypeError where the row does not take the type.
scalar::Expression typed_pre(const ReduceRow& row, DType x);
/// `post` with types, for x of this type; n and attributes are of type `reduce_scalar_type(x)`.
scalar::Expression typed_post(const ReduceRow& row, DType x);
/// Type of n and of attributes: f64 for f64, else f32.
DType reduce_scalar_type(DType x);

/// An op that a user registers. Only the first three fields are needed.
struct CustomOp {
  std::string name;
  std::vector<std::string> inputs;
  std::string forward;
  std::vector<std::pair<std::string, double>> attributes = {};  // name, default
  std::vector<std::string> gradients = {};                      // as in ElementwiseRow
  std::vector<std::string> aliases = {};
  std::string doc = {};
};
/// Adds a row to the table; the op then works everywhere. Registering the same definition again returns the same row.
/// Thread safe. Throws UsageError for a name that is taken or not an identifier, or a text that does not parse.
const ElementwiseRow& register_elementwise(const CustomOp& op);

}  // namespace weft::ops
