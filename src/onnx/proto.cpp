#include "onnx/proto.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "base/checked.hpp"
#include "base/quote.hpp"

namespace weft::onnx {
namespace {

// What a file may still allocate. Small messages become larger objects, so their number is limited.
struct Budget {
  std::size_t messages = kMaxMessages;
  void take(const WireReader& reader) {
    if (messages-- == 0) reader.fail(fmt::format("the file has more than {} messages", kMaxMessages));
  }
};

GraphProto parse_graph(Bytes bytes, const std::string& source, Budget& budget, int depth);

std::pair<std::string_view, std::string_view> parse_entry(Bytes bytes, const std::string& source) {
  std::pair<std::string_view, std::string_view> entry;
  for (WireReader r(bytes, source, "key and value"); r.next();) {
    if (r.field() == 1) entry.first = r.text();
    if (r.field() == 2) entry.second = r.text();
  }
  return entry;
}

TensorProto parse_tensor_within(Bytes bytes, const std::string& source, Budget& budget) {
  TensorProto tensor;
  tensor.message = bytes;
  WireReader r(bytes, source, "tensor");
  TensorProto::External external;
  bool is_external = false;
  const auto size_of = [&](std::string_view text) {
    std::uint64_t value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error != std::errc() || end != text.data() + text.size())
      r.fail(fmt::format("{} is not a size in bytes", quote(text)));
    return value;
  };
  while (r.next()) {
    switch (r.field()) {
      case 1:
        r.each_number([&](std::uint64_t extent) {
          if (tensor.dims.size() == kMaxDims) r.fail(fmt::format("more than {} axes", kMaxDims));
          tensor.dims.push_back(static_cast<Extent>(extent));
        });
        break;
      case 2: tensor.type = r.integer(); break;
      case 3: r.fail("a tensor in segments; write it whole"); break;
      case 8: tensor.name = r.text(); break;
      case 13: {
        budget.take(r);
        const auto [key, value] = parse_entry(r.bytes(), source);
        if (key == "location") external.location = value;
        if (key == "offset") external.offset = size_of(value);
        if (key == "length") external.length = size_of(value);
        break;
      }
      case 14: is_external = r.integer() == 1; break;
      default: break;
    }
  }
  if (is_external) tensor.external = external;
  return tensor;
}

AttributeProto parse_attribute(Bytes bytes, const std::string& source, Budget& budget, int depth) {
  AttributeProto a;
  WireReader r(bytes, source, "attribute");
  const auto infer = [&](AttributeProto::Type type) {
    if (a.type == AttributeProto::kUndefined) a.type = type;
  };
  while (r.next()) {
    switch (r.field()) {
      case 1: a.name = r.text(); break;
      case 2: a.real = r.real(), infer(AttributeProto::kReal); break;
      case 3: a.integer = r.integer(), infer(AttributeProto::kInteger); break;
      case 4: a.text = r.text(), infer(AttributeProto::kText); break;
      case 5:
        budget.take(r);
        a.tensor = std::make_shared<TensorProto>(parse_tensor_within(r.bytes(), source, budget));
        break;
      case 6:
        budget.take(r);
        a.graph = std::make_shared<GraphProto>(parse_graph(r.bytes(), source, budget, depth + 1));
        break;
      case 7: {
        const Bytes elements = r.fixed_elements();
        if (elements.size() % 4) r.fail("floats of a size that four does not divide");
        for (std::size_t i = 0; i < elements.size(); i += 4) {
          a.reals.emplace_back();
          std::memcpy(&a.reals.back(), elements.data() + i, 4);
        }
        break;
      }
      case 8:
        r.each_number([&](std::uint64_t value) { a.integers.push_back(static_cast<std::int64_t>(value)); });
        break;
      case 9: budget.take(r), a.texts.push_back(r.text()); break;
      case 20: a.type = r.integer(); break;
      case 21: a.reference = r.text(); break;
      default: break;
    }
  }
  return a;
}

NodeProto parse_node(Bytes bytes, const std::string& source, Budget& budget, int depth) {
  NodeProto node;
  WireReader r(bytes, source, "node");
  while (r.next()) {
    switch (r.field()) {
      case 1: budget.take(r), node.inputs.push_back(r.text()); break;
      case 2: budget.take(r), node.outputs.push_back(r.text()); break;
      case 3: node.name = r.text(); break;
      case 4: node.type = r.text(); break;
      case 5: budget.take(r), node.attributes.push_back(parse_attribute(r.bytes(), source, budget, depth)); break;
      case 7: node.domain = r.text(); break;
      default: break;
    }
  }
  if (node.domain == "ai.onnx") node.domain = "";
  return node;
}

void parse_tensor_type(Bytes bytes, const std::string& source, Budget& budget, ValueInfo& info) {
  for (WireReader r(bytes, source, "type of a value"); r.next();) {
    if (r.field() == 1) info.type = r.integer();
    if (r.field() != 2) continue;
    info.has_shape = true;
    for (WireReader shape(r.bytes(), source, "shape of a value"); shape.next();) {
      if (shape.field() != 1) continue;
      budget.take(r);
      if (info.dims.size() == kMaxDims) shape.fail(fmt::format("more than {} axes", kMaxDims));
      ValueInfo::Dim& dim = info.dims.emplace_back();
      for (WireReader d(shape.bytes(), source, "extent of a value"); d.next();) {
        if (d.field() == 1) dim.extent = d.integer();
        if (d.field() == 2) dim.parameter = d.text();
      }
      if (dim.extent && *dim.extent < 0) dim.extent.reset();  // some exporters write -1 for "any"
    }
  }
}

ValueInfo parse_value(Bytes bytes, const std::string& source, Budget& budget) {
  ValueInfo info;
  for (WireReader r(bytes, source, "description of a value"); r.next();) {
    if (r.field() == 1) info.name = r.text();
    if (r.field() != 2) continue;
    for (WireReader type(r.bytes(), source, "type of a value"); type.next();) {
      switch (type.field()) {
        case 1: info.kind = "tensor", parse_tensor_type(type.bytes(), source, budget, info); break;
        case 4: info.kind = "sequence"; break;
        case 5: info.kind = "map"; break;
        case 8: info.kind = "sparse tensor"; break;
        case 9: info.kind = "optional"; break;
        default: break;
      }
    }
  }
  return info;
}

GraphProto parse_graph(Bytes bytes, const std::string& source, Budget& budget, int depth) {
  GraphProto graph;
  WireReader r(bytes, source, "graph");
  if (depth > kMaxDepth) r.fail(fmt::format("graphs are nested more than {} deep", kMaxDepth));
  while (r.next()) {
    switch (r.field()) {
      case 1: budget.take(r), graph.nodes.push_back(parse_node(r.bytes(), source, budget, depth)); break;
      case 2: graph.name = r.text(); break;
      case 5: budget.take(r), graph.initialisers.push_back(parse_tensor_within(r.bytes(), source, budget)); break;
      case 11: budget.take(r), graph.inputs.push_back(parse_value(r.bytes(), source, budget)); break;
      case 12: budget.take(r), graph.outputs.push_back(parse_value(r.bytes(), source, budget)); break;
      case 15: r.fail("sparse initialisers; write them as dense tensors"); break;
      default: break;
    }
  }
  return graph;
}

void parse_opset(Bytes bytes, const std::string& source, Opsets& opsets) {
  std::string domain;
  std::int64_t version = 0;
  for (WireReader r(bytes, source, "opset"); r.next();) {
    if (r.field() == 1) domain = r.text();
    if (r.field() == 2) version = r.integer();
  }
  opsets[domain == "ai.onnx" ? "" : domain] = version;
}

FunctionProto parse_function(Bytes bytes, const std::string& source, Budget& budget) {
  FunctionProto f;
  WireReader r(bytes, source, "function");
  while (r.next()) {
    switch (r.field()) {
      case 1: f.name = r.text(); break;
      case 4: budget.take(r), f.inputs.push_back(r.text()); break;
      case 5: budget.take(r), f.outputs.push_back(r.text()); break;
      case 6: budget.take(r), f.attributes.push_back(r.text()); break;
      case 7: budget.take(r), f.nodes.push_back(parse_node(r.bytes(), source, budget, 1)); break;
      case 9: budget.take(r), parse_opset(r.bytes(), source, f.opsets); break;
      case 10: f.domain = r.text(); break;
      case 11: budget.take(r), f.defaults.push_back(parse_attribute(r.bytes(), source, budget, 1)); break;
      default: break;
    }
  }
  return f;
}

}  // namespace

const AttributeProto* NodeProto::attribute(std::string_view wanted) const {
  for (const AttributeProto& a : attributes)
    if (a.name == wanted) return &a;
  return nullptr;
}

std::string NodeProto::title() const {
  std::string kind = quote(type, 60);
  kind = kind.substr(1, kind.size() - 2);
  if (!name.empty()) return fmt::format("{} {}", kind, quote(name));
  if (!outputs.empty() && !outputs[0].empty()) return fmt::format("{} that makes {}", kind, quote(outputs[0]));
  return kind;
}

TensorProto parse_tensor(Bytes bytes, const std::string& source) {
  Budget budget;
  return parse_tensor_within(bytes, source, budget);
}

ModelProto parse_model(Bytes bytes, const std::string& source) {
  ModelProto model;
  Budget budget;
  bool has_graph = false;
  WireReader r(bytes, source, "model");
  while (r.next()) {
    switch (r.field()) {
      case 1: model.ir_version = r.integer(); break;
      case 2: model.producer = r.text(); break;
      case 3: model.producer_version = r.text(); break;
      case 7: has_graph = true, model.graph = parse_graph(r.bytes(), source, budget, 1); break;
      case 8: budget.take(r), parse_opset(r.bytes(), source, model.opsets); break;
      case 14: budget.take(r), model.metadata.push_back(parse_entry(r.bytes(), source)); break;
      case 25: budget.take(r), model.functions.push_back(parse_function(r.bytes(), source, budget)); break;
      default: break;
    }
  }
  for (const FunctionProto& f : model.functions) model.function_by_name[{f.domain, f.name}] = &f;
  if (!has_graph) r.fail("there is no graph; this is not an ONNX model");
  return model;
}

}  // namespace weft::onnx
