#include "onnx/writer.hpp"

#include <fmt/format.h>

#include <algorithm>

#include <bit>

#include "weft/error.hpp"
#include "weft/half.hpp"

namespace weft::onnx {

using Attributes = GraphWriter::Attributes;

Attributes& Attributes::integer(std::string_view name, std::int64_t value) {
  WireWriter a;
  a.text(1, name);
  a.integer(3, value);
  a.number(20, 2);
  all_.push_back(std::move(a));
  return *this;
}

Attributes& Attributes::integers(std::string_view name, std::span<const std::int64_t> values) {
  WireWriter a;
  a.text(1, name);
  for (const std::int64_t value : values) a.integer(8, value);
  a.number(20, 7);
  all_.push_back(std::move(a));
  return *this;
}

Attributes& Attributes::real(std::string_view name, double value) {
  WireWriter a;
  a.text(1, name);
  a.real(2, static_cast<float>(value));
  a.number(20, 1);
  all_.push_back(std::move(a));
  return *this;
}

std::int64_t onnx_type(DType type) {
  if (element(type).onnx < 0 || is_storage(type))
    throw DTypeError(fmt::format("onnx::save: {} has no type in ONNX", name_of(type)));
  return element(type).onnx;
}

std::string GraphWriter::fresh(std::string_view like) {
  std::string name = like.empty() ? fmt::format("v{}", count_++) : std::string(like);
  while (!names_.insert(name).second) name = fmt::format("{}_{}", like.empty() ? "v" : like, count_++);
  return name;
}

void GraphWriter::node(std::string_view type, std::span<const std::string> inputs, std::span<const std::string> outputs,
                       const Attributes& attributes) {
  WireWriter n;
  for (const std::string& input : inputs) n.text(1, input);
  for (const std::string& output : outputs) n.text(2, output);
  n.text(3, fmt::format("{}_{}", type, count_++));
  n.text(4, type);
  for (const WireWriter& a : attributes.all_) n.message(5, a);
  graph_.message(1, n);
}

std::string GraphWriter::node(std::string_view type, std::span<const std::string> inputs,
                              const Attributes& attributes) {
  const std::string name = fresh("");
  node(type, inputs, {&name, 1}, attributes);
  return name;
}

std::string GraphWriter::initialiser(std::string_view wanted, DType type, const Shape& shape, Bytes elements) {
  if (element(type).onnx < 0 || is_storage(type))
    throw DTypeError(fmt::format("onnx::save: {} has no type in ONNX; cast it to a float first", name_of(type)));
  WireWriter t;
  for (const Extent e : shape) t.integer(1, e);
  t.number(2, static_cast<std::uint64_t>(element(type).onnx));
  const std::string name = fresh(wanted);
  t.text(8, name);
  t.text(9, text_of(elements));
  graph_.message(5, t);
  return name;
}

std::string GraphWriter::integers(const std::vector<Extent>& values) {
  std::string& name = integers_[values];
  if (name.empty())
    name = initialiser("", DType::i64, {static_cast<Extent>(values.size())}, std::as_bytes(std::span(values)));
  return name;
}

std::string GraphWriter::number(double value, DType type) {
  std::string& name = numbers_[{std::bit_cast<std::uint64_t>(value), type}];
  if (!name.empty()) return name;
  const auto store = [&](auto exact) { return initialiser("", type, {}, std::as_bytes(std::span(&exact, 1))); };
  switch (type) {
    case DType::f32: return name = store(static_cast<float>(value));
    case DType::f64: return name = store(value);
    case DType::f16: return name = store(Float16(static_cast<float>(value)));
    case DType::bf16: return name = store(BFloat16(static_cast<float>(value)));
    case DType::i8: return name = store(static_cast<std::int8_t>(value));
    case DType::i16: return name = store(static_cast<std::int16_t>(value));
    case DType::i32: return name = store(static_cast<std::int32_t>(value));
    case DType::i64: return name = store(static_cast<std::int64_t>(value));
    case DType::u8: return name = store(static_cast<std::uint8_t>(value));
    case DType::u16: return name = store(static_cast<std::uint16_t>(value));
    case DType::u32: return name = store(static_cast<std::uint32_t>(value));
    case DType::u64: return name = store(static_cast<std::uint64_t>(value));
    case DType::boolean: return name = store(static_cast<std::uint8_t>(value != 0));
    default: throw DTypeError(fmt::format("onnx::save: {} has no type in ONNX", name_of(type)));
  }
}

std::string GraphWriter::reshape(const std::string& x, const std::vector<Extent>& shape) {
  // An extent of 0 means that of the input, unless this says that it is 0.
  Attributes attributes;
  if (std::find(shape.begin(), shape.end(), 0) != shape.end()) attributes.integer("allowzero", 1);
  return node("Reshape", {x, integers(shape)}, attributes);
}

std::string GraphWriter::cast(const std::string& x, DType type) {
  return node("Cast", {x}, Attributes().integer("to", onnx_type(type)));
}

void GraphWriter::value(std::uint32_t field, std::string_view name, DType type, std::span<const Dim> shape) {
  WireWriter extents, tensor_type, wrapped, info;
  for (const Dim& each : shape) {
    WireWriter dim;
    if (each.value) dim.integer(1, *each.value);
    if (!each.name.empty()) dim.text(2, each.name);
    extents.message(1, dim);
  }
  tensor_type.number(1, static_cast<std::uint64_t>(onnx_type(type)));
  tensor_type.message(2, extents);
  wrapped.message(1, tensor_type);
  info.text(1, name);
  info.message(2, wrapped);
  graph_.message(field, info);
}

std::string GraphWriter::model() const {
  if (graph_.bytes().size() >= std::size_t{2'000'000'000})
    throw FileError(fmt::format("onnx::save: the model would have {} bytes; a file of ONNX has less than 2 GB",
                                graph_.bytes().size()));
  WireWriter graph = graph_, opset, model;
  graph.text(2, "weft");
  opset.text(1, "");
  opset.integer(2, kWrittenOpset);
  model.integer(1, kWrittenIr);
  model.text(2, "weft");
  model.message(7, graph);
  model.message(8, opset);
  return model.bytes();
}

}  // namespace weft::onnx
