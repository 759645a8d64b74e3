// User-defined ops with their own kernels, for computations that neither elementwise text nor other ops can express.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "weft/tensor.hpp"

namespace weft {

/// An input or a result: dtype and shape.
struct ValueType {
  DType dtype = DType::f32;
  Shape shape;
};

/// Elements of an operand. An index out of range is an error that names the op and the operand; no memory is touched.
template <class T>
class Elements {
 public:
  Elements(T* data, Extent count, const std::string& name) : data_(data), count_(count), name_(&name) {}
  T& operator[](Extent i) const {
    if (i < 0 || i >= count_) out_of_bounds(i);
    return data_[i];
  }
  Extent size() const { return count_; }
  /// Unchecked, for inner loops.
  T* data() const { return data_; }

 private:
  [[noreturn]] void out_of_bounds(Extent i) const;
  T* data_;
  Extent count_;
  const std::string* name_;
};
[[noreturn]] void throw_out_of_bounds(const std::string& operand, Extent index, Extent count);
template <class T>
void Elements<T>::out_of_bounds(Extent i) const {
  throw_out_of_bounds(*name_, i, count_);
}

/// Attributes of one use of the op, by name.
using KernelAttributes = std::map<std::string, double>;

/// The operands and attributes of a call of the CPU function. Operands are contiguous, row-major.
class KernelArguments {
 public:
  struct Operand {
    std::string name;  // "my_op: x"
    ValueType type;
    void* data = nullptr;
  };
  KernelArguments(std::vector<Operand> inputs, std::vector<Operand> outputs, KernelAttributes attributes)
      : inputs_(std::move(inputs)), outputs_(std::move(outputs)), attributes_(std::move(attributes)) {}

  /// Errors: DTypeError if T is not the operand's dtype.
  template <class T>
  Elements<const T> input(std::size_t i) const {
    const Operand& operand = checked(inputs_, i, dtype_of<T>);
    return {static_cast<const T*>(operand.data), operand.type.shape.numel(), operand.name};
  }
  template <class T>
  Elements<T> output(std::size_t i = 0) const {
    const Operand& operand = checked(outputs_, i, dtype_of<T>);
    return {static_cast<T*>(operand.data), operand.type.shape.numel(), operand.name};
  }
  DType input_type(std::size_t i) const { return inputs_.at(i).type.dtype; }
  const Shape& input_shape(std::size_t i) const { return inputs_.at(i).type.shape; }
  const Shape& output_shape(std::size_t i = 0) const { return outputs_.at(i).type.shape; }
  double attribute(const std::string& name) const { return attributes_.at(name); }

 private:
  static const Operand& checked(const std::vector<Operand>& operands, std::size_t i, DType type);
  std::vector<Operand> inputs_, outputs_;
  KernelAttributes attributes_;
};

/// The operands and incoming gradients of the op.
struct KernelGradient {
  std::vector<Tensor> inputs, outputs;
  std::vector<Tensor> output_gradients;  // undefined if no gradient flows
  KernelAttributes attributes;
};

/// An op defined by its kernels. Only name, inputs, shape and one of cpu and wgsl are needed.
struct KernelDefinition {
  std::string name;
  std::vector<std::string> inputs;
  std::vector<std::pair<std::string, double>> attributes = {};  // name and default
  /// Dtypes and shapes of the results. Throw a ShapeError, DTypeError or UsageError for inputs that do not fit.
  std::function<std::vector<ValueType>(const std::vector<ValueType>& inputs, const KernelAttributes&)> shape;

  /// The CPU's kernel.
  std::function<void(const KernelArguments&)> cpu = {};

  /// Statements of a WGSL kernel. They see, for an input x: `x(i)`, its element i (u32) as f32, i32, u32 or bool, and 0
  /// outside; for result k: `store0(i, value)`, `store1(...)`, which does nothing outside; `x_size`, `out0_size` and
  /// `x_shape`, `out0_shape` (arrays of u32); attributes by name, as f32 constants; `group` and `thread`, the numbers of
  /// the workgroup and of the thread in it, and `index`, of the thread among all. No statement reaches another buffer.
  std::string wgsl = {};
  int workgroup_size = 64;
  /// Number of workgroups: an expression over sizes (x_size, out0_size), extents (x_0, x_1, out0_0, ...), attributes and
  /// workgroup_size, rounded up.
  std::string workgroups = "out0_size / workgroup_size";

  /// Gradients of the inputs (undefined: none). Absent: the op has none.
  std::function<std::vector<Tensor>(const KernelGradient&)> gradient = {};
  std::string doc = {};
};

/// A registered op, to call.
class CustomKernel {
 public:
  explicit CustomKernel(std::string name) : name_(std::move(name)) {}
  template <class... T>
  Tensor operator()(const Tensor& first, const T&... rest) const {
    return call({first, rest...}).at(0);
  }
  /// Returns all results. Missing attributes take their defaults.
  std::vector<Tensor> call(const std::vector<Tensor>& inputs, const KernelAttributes& attributes = {},
                           Where where = Where::current()) const;
  const std::string& name() const { return name_; }

 private:
  std::string name_;
};

/// Adds the op to the table, so `weft::op` and the command know it too. Calling it on a device without a kernel for it is a
/// DeviceError.
/// Errors  UsageError: the name is taken, an input or attribute lacks a name, both kernels are missing, or `workgroups` does
///         not parse
CustomKernel register_kernel(KernelDefinition definition);

/// Any op by name, whatever its kind. Attributes are numbers; booleans are 0 and 1.
/// Errors  UsageError for an unknown name, input or attribute (the nearest name is suggested); otherwise as the op
std::vector<Tensor> op(std::string_view name, const std::vector<Tensor>& inputs,
                       const KernelAttributes& attributes = {}, Where where = Where::current());

}  // namespace weft
