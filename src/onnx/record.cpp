#include "onnx/record.hpp"

#include <fmt/format.h>

#include <utility>

namespace weft::onnx {

void Record::begin(std::string_view op, Where where) {
  op_ = op;
  where_ = where;
}

// No name of a model begins so, because names of inputs and outputs are those of the model.
std::string Record::fresh() { return fmt::format("\x01{}", names_++); }

std::string Record::add(RecordStep step) {
  const std::string name = fresh();
  step.outputs = {name};
  step.op = op_;
  step.where = where_;
  steps_.push_back(std::move(step));
  return name;
}

std::string Record::node(std::string_view type, Names inputs, const Attributes& attributes) {
  return add({.type = std::string(type), .inputs = {inputs.begin(), inputs.end()}, .attributes = attributes});
}

void Record::node(std::string_view type, Names inputs, Names outputs, const Attributes& attributes) {
  steps_.push_back({.type = std::string(type),
                    .inputs = {inputs.begin(), inputs.end()},
                    .outputs = {outputs.begin(), outputs.end()},
                    .attributes = attributes,
                    .op = op_,
                    .where = where_});
}

std::string Record::stored(std::string_view label, const Tensor& tensor) {
  return add({.kind = RecordStep::Kind::stored, .tensor = tensor, .label = std::string(label)});
}

std::string Record::integers(std::vector<Extent> values) {
  return add({.kind = RecordStep::Kind::integers, .integers = std::move(values)});
}

std::string Record::number(double value, DType type) {
  return add({.kind = RecordStep::Kind::number, .value = value, .dtype = type});
}

std::string Record::cast(const std::string& x, DType type) {
  return node("Cast", {x}, Attributes().integer("to", onnx_type(type)));
}

std::string Record::reshape(const std::string& x, std::vector<Extent> shape) {
  return add({.kind = RecordStep::Kind::reshape, .inputs = {x}, .integers = std::move(shape)});
}

std::string Record::range(const Shape& line, int axis, DType type) {
  return add({.kind = RecordStep::Kind::range, .integers = {axis, line[axis]}, .dtype = type, .rank = line.rank()});
}

std::string Record::windows(Extent count, Extent size, Extent step, Extent dilation) {
  return add({.kind = RecordStep::Kind::windows, .integers = {count, size, step, dilation}, .dtype = DType::i64});
}

void Record::quotient(Extent numerator, Extent divisor) {
  if (divisor > 1) add({.kind = RecordStep::Kind::quotient, .integers = {numerator, divisor}});
}

}  // namespace weft::onnx
