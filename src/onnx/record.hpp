// What an export writes, before it is text: steps that can be compared with those of the same function at other extents.
#pragma once

#include <initializer_list>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "onnx/writer.hpp"
#include "weft/error.hpp"
#include "weft/tensor.hpp"

namespace weft::onnx {

/// A step of an export. Values have names that only the record knows; those of the model's inputs and outputs are the model's.
struct RecordStep {
  enum class Kind {
    node,      // `type` with `attributes`
    integers,  // a list of i64
    number,    // `value` in `dtype`, of rank 0
    stored,    // the elements of `tensor`, under a name like `label`
    reshape,   // of the input to `integers`
    range,     // 0, 1, ... along axis integers[0], as many as integers[1]; `rank` axes, the others of extent 1
    windows,   // i64 [count, size]: i * step + j * dilation; integers = {count, size, step, dilation}
    quotient,  // no value: extents may depend on floor(integers[0] / integers[1])
  };
  Kind kind = Kind::node;
  std::string type;
  std::vector<std::string> inputs, outputs;
  GraphWriter::Attributes attributes;
  std::vector<Extent> integers;
  double value = 0;
  DType dtype = DType::f32;
  int rank = 0;
  Tensor tensor;
  std::string label;
  // The op that the step is a part of, for messages.
  std::string op;
  Where where;
};

class Record {
 public:
  using Attributes = GraphWriter::Attributes;
  using Names = std::span<const std::string>;

  /// Steps from now on are parts of this op.
  void begin(std::string_view op, Where where);
  std::string node(std::string_view type, Names inputs, const Attributes& attributes = {});
  std::string node(std::string_view type, std::initializer_list<std::string> inputs,
                   const Attributes& attributes = {}) {
    return node(type, Names(inputs.begin(), inputs.size()), attributes);
  }
  /// The same with several outputs, or with given names.
  void node(std::string_view type, Names inputs, Names outputs, const Attributes& attributes = {});
  std::string stored(std::string_view label, const Tensor& tensor);
  std::string integers(std::vector<Extent> values);
  std::string number(double value, DType type);
  std::string cast(const std::string& x, DType type);
  std::string reshape(const std::string& x, std::vector<Extent> shape);
  std::string range(const Shape& line, int axis, DType type);
  std::string windows(Extent count, Extent size, Extent step, Extent dilation);
  /// Extents of values may depend on floor(numerator / divisor).
  void quotient(Extent numerator, Extent divisor);
  std::string fresh();

  const std::vector<RecordStep>& steps() const { return steps_; }

 private:
  std::string add(RecordStep step);
  std::vector<RecordStep> steps_;
  std::size_t names_ = 0;
  std::string op_;
  Where where_;
};

}  // namespace weft::onnx
