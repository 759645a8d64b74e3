// The tensor handle: a lazy, immutable value. Ops make new values; nothing runs until you ask for elements.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <iosfwd>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "weft/device.hpp"
#include "weft/dtype.hpp"
#include "weft/error.hpp"
#include "weft/shape.hpp"

namespace weft {

namespace graph {
class Node;
struct Cell;
}  // namespace graph
class Variable;

/// The end of an axis, in slices.
inline constexpr Extent kEnd = INT64_MAX;

/// Positions start, start + step, ... before stop along an axis. Negative positions count from the end; positions outside the
/// axis are skipped. The default start is the first position, or the last one with a negative step.
struct Slice {
  static constexpr Extent kStart = INT64_MIN;
  Extent start = kStart, stop = kEnd, step = 1;
};
inline constexpr Slice kAll;

/// One position along an axis, or a slice of it, with the caller's line for messages.
struct Index {
  template <std::integral T>
  Index(T position, Where where = Where::current()) : position(static_cast<Extent>(position)), where(where) {}
  Index(const Slice& slice, Where where = Where::current()) : slice(slice), is_slice(true), where(where) {}
  Extent position = 0;
  Slice slice;
  bool is_slice = false;
  Where where;
};
struct Term;

/// A handle to a value of known shape, dtype and device. Cheap to copy. The same op on the same inputs gives the same value.
/// Thread safety: several threads may use handles, but only one thread at a time may use the same handle.
class Tensor {
 public:
  Tensor() = default;  // no value; every use but `defined` is a UsageError
  explicit Tensor(std::shared_ptr<const graph::Node> node) : node_(std::move(node)) {}

  bool defined() const { return node_ != nullptr; }
  const Shape& shape(Where where = Where::current()) const;
  int rank(Where where = Where::current()) const { return shape(where).rank(); }
  /// Extent of an axis; -1 is the last. Errors: ShapeError if there is no such axis.
  Extent dim(int axis, Where where = Where::current()) const;
  Extent numel(Where where = Where::current()) const { return shape(where).numel(); }
  DType dtype(Where where = Where::current()) const;
  Device device(Where where = Where::current()) const;
  /// The same value with a name for messages and listings.
  Tensor named(std::string_view label, Where where = Where::current()) const;
  const std::string& label(Where where = Where::current()) const;

  /// Computes the value now (and every pending update of a Variable on this device). Then the handle releases the inputs of the
  /// value, unless a Variable that requires a gradient is among them. So a loop like `state = f(state).eval()` keeps nothing of
  /// earlier steps, and no gradient flows from `state` to them. Reading elements (`item`, printing) releases nothing.
  const Tensor& eval(Where where = Where::current()) const;
  /// The one element of a tensor with one element. Errors: ShapeError if there are more; DTypeError if T is not its dtype.
  template <class T>
  T item(Where where = Where::current()) const;
  /// All elements, row-major. Errors: DTypeError if T is not its dtype.
  template <class T>
  std::vector<T> to_vector(Where where = Where::current()) const;
  /// Copies all elements, row-major, in host form (a bool is one byte). Errors: UsageError if `bytes` does not fit exactly.
  void copy_to(void* out, std::size_t bytes, Where where = Where::current()) const;
  /// The value on another device. Evaluates it on its own device first, if the devices differ.
  Tensor to(Device device, Where where = Where::current()) const;
  /// Values, abbreviated if there are many: "f32 [2, 2] [[1, 2], [3, 4]]".
  std::string to_string(Where where = Where::current()) const;

  // Parts along the first axes, as in NumPy: x[i], x[{i, kAll, Slice{1, 4}}], x[positions], x[mask]. Gradient: zeros around the
  // part; gradients of repeated positions add up.
  // Errors  ShapeError: a position outside of its axis, more places than axes, a mask of another shape than x's first axes.
  //         DTypeError: positions that are not integers.

  /// The part at a position (-1 is the last) along the first axis, which is removed; or a slice of the first axis.
  Tensor operator[](const Index& index) const;
  /// A position, a Slice or kAll along each of the first axes.
  Tensor operator[](std::initializer_list<Index> indices) const;
  /// With integers: the parts at these positions along the first axis, in the shape of the positions. Negative positions count
  /// from the end; a position outside reads zeros. With a bool mask: the elements where it is true, in order. Their number
  /// depends on the mask, so the mask is evaluated here. Errors: UsageError for a mask inside a compiled function.
  Tensor operator[](const Term& positions_or_mask) const;

  const std::shared_ptr<const graph::Node>& node() const { return node_; }

 private:
  friend void eval(std::span<const Tensor* const> tensors);

  mutable std::shared_ptr<const graph::Node> node_;  // `eval` changes it to a node without inputs
};

// ---- Making tensors -------------------------------------------------------------------------------------------------

/// Values given flat, row-major. Errors: ShapeError if their number is not the shape's.
template <class T>
Tensor tensor(std::span<const T> values, const Shape& shape, Where where = Where::current());
template <class T>
Tensor tensor(const std::vector<T>& values) {
  return tensor<T>(std::span<const T>(values), Shape{static_cast<Extent>(values.size())});
}
/// One element, of rank 0.
template <class T>
requires requires { DTypeOf<T>::value; }
Tensor tensor(T value) { return tensor<T>(std::span<const T>(&value, 1), Shape{}); }
namespace detail {
/// Throws a ShapeError unless the two are equal.
void check_row_length(Extent length, Extent wanted, Where where);
}  // namespace detail
/// A row of numbers, or rows of them: tensor({{1.0f, 2.0f}, {3.0f, 4.0f}}). Errors: ShapeError if rows differ in length.
template <class T>
Tensor tensor(std::initializer_list<T> values) {
  return tensor<T>(std::span<const T>(values.begin(), values.size()), Shape{static_cast<Extent>(values.size())});
}
template <class T>
Tensor tensor(std::initializer_list<std::initializer_list<T>> rows, Where where = Where::current()) {
  std::vector<T> values;
  for (const auto& row : rows) values.insert(values.end(), row.begin(), row.end());
  const auto columns = static_cast<Extent>(rows.size() ? rows.begin()->size() : 0);
  for (const auto& row : rows) detail::check_row_length(static_cast<Extent>(row.size()), columns, where);
  return tensor<T>(std::span<const T>(values), Shape{static_cast<Extent>(rows.size()), columns}, where);
}
template <class T>
Tensor tensor(std::initializer_list<T> values, const Shape& shape, Where where = Where::current()) {
  return tensor<T>(std::span<const T>(values.begin(), values.size()), shape, where);
}
/// From raw host elements of `type`, or blocks as GGUF files have them. Errors: ShapeError for rows that are not whole blocks.
Tensor tensor_from_bytes(const void* data, const Shape& shape, DType type, Device device = default_device());

/// `value` everywhere. full({}, 3) is a scalar.
Tensor full(const Shape& shape, double value, DType type = DType::f32, Device device = default_device());
Tensor zeros(const Shape& shape, DType type = DType::f32, Device device = default_device());
Tensor ones(const Shape& shape, DType type = DType::f32, Device device = default_device());
/// 0, 1, ..., n-1.
Tensor arange(Extent n, DType type = DType::i32, Device device = default_device());
/// A scalar of like's dtype and device that broadcasts against it.
Tensor scalar_like(double value, const Tensor& like);
Tensor zeros_like(const Tensor& like);
Tensor ones_like(const Tensor& like);

// ---- Elementwise ops ------------------------------------------------------------------------------------------------
// One function for each row of the op table (weft/elementwise.hpp, generated) calls this one.

/// The elementwise op of that name (or alias) on broadcast inputs. Missing attributes take their defaults.
/// Errors  UsageError: no such op (the nearest is named), wrong number of inputs. ShapeError: shapes do not broadcast.
///         DTypeError: a dtype the op does not take. DeviceError: operands on different devices.
Tensor elementwise(std::string_view name, std::initializer_list<Tensor> inputs,
                   std::initializer_list<double> attributes = {}, Where where = Where::current());
Tensor elementwise(std::string_view name, std::span<const Tensor> inputs, std::span<const double> attributes,
                   Where where = Where::current());

/// Converts elements: float to integer truncates and saturates; to bool is x != 0; to blocks (q4_k) rounds, on the CPU.
/// Errors: ShapeError for rows that are not whole blocks. Gradient: cast back (between floats; none otherwise).
Tensor cast(const Tensor& x, DType type, Where where = Where::current());

// ---- Operators ------------------------------------------------------------------------------------------------------

/// An operand of an operator: a Tensor, or a value that converts to one (a Variable, a parameter of a module), with the
/// caller's line for messages.
struct Term {
  template <class T>
  requires std::convertible_to<const T&, Tensor> Term(const T& value, Where where = Where::current())
      : tensor(value), where(where) {}
  Tensor tensor;
  Where where;
};

/// 64-bit integers keep all their bits beside an i64 or u64 tensor; beside others they become doubles.
template <class T>
concept LongInteger = std::integral<T> && sizeof(T) == 8;
/// Like `scalar_like`, for the integer with these bits.
Tensor long_scalar_like(std::uint64_t bits, bool is_signed, const Tensor& like);
template <LongInteger T>
Tensor scalar_like(T value, const Tensor& like) {
  return long_scalar_like(static_cast<std::uint64_t>(value), std::signed_integral<T>, like);
}

// Arithmetic; comparisons, which give bool (for equality use `eq` and `ne`, because C++ containers expect one bool from ==);
// and bit operators, which are logical operators for bool. A number takes the tensor's dtype, as in `scalar_like`. Errors: as
// `elementwise`.
#define WEFT_OPERATOR(symbol)                                \
  Tensor operator symbol(const Term& x, const Term& y);      \
  Tensor operator symbol(const Term& x, double y);           \
  Tensor operator symbol(double x, const Term& y);           \
  template <LongInteger T>                                   \
  Tensor operator symbol(const Term& x, T y) {               \
    return x symbol Term(scalar_like(y, x.tensor), x.where); \
  }                                                          \
  template <LongInteger T>                                   \
  Tensor operator symbol(T x, const Term& y) {               \
    return Term(scalar_like(x, y.tensor), y.where) symbol y; \
  }
WEFT_OPERATOR(+)
WEFT_OPERATOR(-)
WEFT_OPERATOR(*)
WEFT_OPERATOR(/)
WEFT_OPERATOR(<)
WEFT_OPERATOR(<=)
WEFT_OPERATOR(>)
WEFT_OPERATOR(>=)
WEFT_OPERATOR(&)
WEFT_OPERATOR(|)
WEFT_OPERATOR(^)
#undef WEFT_OPERATOR
Tensor operator-(const Term& x);
/// Inverts every bit; inverts a bool.
Tensor operator~(const Term& x);
/// bool: x == 0.
Tensor operator!(const Term& x);

// x += y gives the handle another value; y is broadcast to the shape of x. Other handles keep theirs; tensors never change. For
// a Variable it assigns. Errors: as the operator; ShapeError or DTypeError if the result differs from x in shape or dtype.
#define WEFT_ASSIGNMENT(symbol)                          \
  Tensor& operator symbol(Tensor& x, const Term& y);     \
  Tensor& operator symbol(Tensor& x, double y);          \
  Variable& operator symbol(Variable& x, const Term& y); \
  Variable& operator symbol(Variable& x, double y);
WEFT_ASSIGNMENT(+=)
WEFT_ASSIGNMENT(-=)
WEFT_ASSIGNMENT(*=)
WEFT_ASSIGNMENT(/=)
#undef WEFT_ASSIGNMENT

/// Prints rows and columns like NumPy, then dtype and shape; evaluates the value. Omits the middle of long axes.
std::ostream& operator<<(std::ostream& out, const Tensor& x);

// ---- Variables ------------------------------------------------------------------------------------------------------

/// State that changes: parameters, optimiser state, running statistics, random state. Reading gives the current value as a
/// Tensor; `assign` sets the next one, which is computed at the next evaluation. Copies share the state.
class Variable {
 public:
  Variable() = default;
  explicit Variable(const Tensor& initial, std::string_view name = "", bool requires_grad = true);

  bool defined() const { return cell_ != nullptr; }
  Tensor value(Where where = Where::current()) const;
  operator Tensor() const { return value(); }
  Tensor operator[](const Index& index) const { return value()[index]; }
  Tensor operator[](std::initializer_list<Index> indices) const { return value()[indices]; }
  Tensor operator[](const Term& positions_or_mask) const { return value()[positions_or_mask]; }
  /// Errors: ShapeError or DTypeError if `next` differs in shape or dtype; DeviceError if it is on another device.
  void assign(const Tensor& next, Where where = Where::current());

  const Shape& shape(Where where = Where::current()) const;
  DType dtype(Where where = Where::current()) const;
  Device device(Where where = Where::current()) const;
  Extent numel(Where where = Where::current()) const { return shape(where).numel(); }
  const std::string& name(Where where = Where::current()) const;
  void set_name(std::string_view name);
  bool requires_grad() const;
  void set_requires_grad(bool value);
  /// The gradient that `backward` accumulated; undefined before `backward`, and after `clear_grad`.
  const Tensor& grad() const;
  void set_grad(const Tensor& grad);
  void clear_grad();

  bool operator==(const Variable& other) const { return cell_ == other.cell_; }
  const std::shared_ptr<graph::Cell>& cell() const { return cell_; }

 private:
  friend class WeakVariable;
  std::shared_ptr<graph::Cell> cell_;
};

/// A reference that does not keep the state of a Variable alive, for objects that the Variable itself owns, such as its hooks.
class WeakVariable {
 public:
  WeakVariable() = default;
  WeakVariable(const Variable& variable) : cell_(variable.cell()) {}
  /// The Variable; undefined if its state was freed.
  Variable lock() const {
    Variable variable;
    variable.cell_ = cell_.lock();
    return variable;
  }
  bool expired() const { return cell_.expired(); }

 private:
  std::weak_ptr<graph::Cell> cell_;
};

/// Puts the variables in this order into a single variable and makes each a slice of it, so that an optimiser updates all in
/// one pass. They keep names, values and gradients. Errors: UsageError unless all have one dtype and device. Slices of an
/// earlier shared variable may be given again only all together, in the same order.
Variable flatten_together(std::span<const Variable> variables, std::string_view name);

/// Computes all the tensors in one run; each handle releases inputs as Tensor::eval does.
void eval(std::span<const Tensor* const> tensors);
void eval(std::span<const Tensor> tensors);
template <std::same_as<Tensor>... Tensors>
void eval(const Tensor& first, const Tensors&... others) {
  const Tensor* const list[] = {&first, &others...};
  eval(std::span<const Tensor* const>(list));
}
/// Runs every pending update of every Variable.
void eval_pending();

}  // namespace weft
