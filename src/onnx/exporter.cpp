#include "onnx/exporter.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "graph/op.hpp"
#include "ops/table.hpp"
#include "weft/error.hpp"
#include "weft/ops.hpp"

namespace weft::onnx {
namespace {

using graph::Kind;
using graph::Node;
using graph::NodeRef;
using Attributes = Record::Attributes;
using Names = std::vector<std::string>;

std::vector<Extent> extents_of(const Shape& shape) { return shape.vector(); }

class Exporter {
 public:
  Exporter(Record& record, std::unordered_map<const Node*, Names> known) : record_(record), names_(std::move(known)) {}

  /// Writes what the value needs, and the value.
  std::string write(const NodeRef& root) {
    struct Step {
      NodeRef node;
      const Node* reader;  // not a view; for messages
    };
    std::vector<Step> stack{{root, root.get()}};
    while (!stack.empty()) {
      const auto [node, reader] = stack.back();
      if (names_.contains(node.get())) {
        stack.pop_back();
        continue;
      }
      const std::size_t before = stack.size();
      for (const NodeRef& source : sources_of(node))
        if (!names_.contains(source.get())) stack.push_back({source, graph::is_view(node->kind) ? reader : node.get()});
      if (stack.size() != before) continue;
      begin(node->kind == Kind::constant ? *reader : *node);
      names_[node.get()] = written(*node);
      kept_.push_back(node);
      stack.pop_back();
    }
    return whole(*root);
  }

 private:
  // What must be written before a node: its inputs, or its parts.
  const std::vector<NodeRef>& sources_of(const NodeRef& node) {
    static const std::vector<NodeRef> kNone;
    if (node->storage) return kNone;  // the value is in memory
    if (node->kind != Kind::call || is_direct(*node)) return node->inputs;
    auto [found, fresh] = parts_.try_emplace(node.get());
    if (fresh) {
      found->second = graph::decompose(*node);
      if (found->second.empty())
        throw UsageError(fmt::format("onnx::save: ONNX has no operator for {}", node->op->name));
    }
    return found->second;
  }

  static bool is_direct(const Node& node) {
    const std::string& name = node.op->name;
    if (name == "layer_norm") return graph::Call(node).input(1).defined();
    return name == "softmax" || name == "log_softmax" || name == "cumsum" || name == "sort" ||
           (name.size() == 6 && name.starts_with("conv") && name.ends_with("d"));
  }

  // The value with all its elements: constants are kept as one number until they are needed whole.
  std::string whole(const Node& node, int output = 0) {
    const std::string& name = names_.at(&node)[static_cast<std::size_t>(output)];
    if (node.kind != Kind::constant || node.shape.rank() == 0) return name;
    std::string& expanded = expanded_[&node];
    if (expanded.empty()) expanded = record_.node("Expand", {name, record_.integers(extents_of(node.shape))});
    return expanded;
  }
  std::string in(const Node& node, std::size_t i) { return whole(*node.inputs[i]); }

  // Tells the record which op of the user the next steps are a part of.
  void begin(const Node& node) {
    const std::string op = node.within.op            ? node.within.op->name
                           : node.kind == Kind::call ? node.op->name
                           : node.name.empty()       ? std::string(name_of(node.kind))
                                                     : node.name;
    const bool has_line = node.kind == Kind::map || node.kind == Kind::call;  // views do not know the user's line
    record_.begin(op, has_line ? node.where : Where());
  }

  Names written(const Node& node) {
    if (node.storage && node.kind != Kind::constant) return {stored(node)};
    switch (node.kind) {
      case Kind::constant: return {record_.number(node.value, node.type)};
      case Kind::data: return {stored(node)};
      case Kind::input: throw InternalError("onnx::save: an input without a name");
      case Kind::iota: return {coordinates(node)};
      case Kind::reshape: return {record_.reshape(in(node, 0), extents_of(node.shape))};
      case Kind::permute: return {record_.node("Transpose", {in(node, 0)}, Attributes().integers("perm", node.ints))};
      case Kind::expand: return {record_.node("Expand", {in(node, 0), record_.integers(extents_of(node.shape))})};
      case Kind::slice: return {slice(node)};
      case Kind::pad: return {pad(node)};
      case Kind::window: return {window(node)};
      case Kind::detach: return {in(node, 0)};
      case Kind::map: return {map(node)};
      case Kind::reduce: return {reduce(node)};
      case Kind::matmul: return {record_.node("MatMul", {in(node, 0), in(node, 1)})};
      case Kind::gather: return {gather(node)};
      case Kind::concat: {
        Names parts;
        for (std::size_t i = 0; i < node.inputs.size(); ++i) parts.push_back(in(node, i));
        return {record_.node("Concat", parts, Attributes().integer("axis", node.ints[0]))};
      }
      case Kind::call: return call(node);
      case Kind::project: return {names_.at(node.inputs[0].get())[static_cast<std::size_t>(node.ints[0])]};
    }
    throw InternalError("onnx::save: an unknown kind of node");
  }

  std::string stored(const Node& node) { return record_.stored(node.label, Tensor(node.shared_from_this())); }

  std::string coordinates(const Node& node) {
    const auto axis = static_cast<int>(node.ints[0]);
    Shape line(std::vector<Extent>(node.shape.size(), 1));
    line[axis] = node.shape[axis];
    const std::string row = record_.range(line, axis, node.type);
    return line == node.shape ? row : record_.node("Expand", {row, record_.integers(extents_of(node.shape))});
  }

  std::string slice(const Node& node) {
    std::vector<Extent> starts, ends, axes, steps;
    for (int i = 0; i < node.shape.rank(); ++i) {
      const Extent start = node.ints[static_cast<std::size_t>(2 * i)],
                   step = node.ints[static_cast<std::size_t>(2 * i + 1)];
      const Extent n = node.inputs[0]->shape[i];
      if (start == 0 && step == 1 && node.shape[i] == n) continue;
      const Extent last = start + step * (node.shape[i] - 1);
      axes.push_back(i), starts.push_back(start), steps.push_back(step);
      ends.push_back(step > 0 ? last + 1 : last == 0 ? INT64_MIN : last - 1);
      if (node.shape[i] == 0) ends.back() = starts.back() = 0;
    }
    return record_.node("Slice", {in(node, 0), record_.integers(starts), record_.integers(ends), record_.integers(axes),
                                  record_.integers(steps)});
  }

  std::string pad(const Node& node) {
    std::vector<Extent> before, after;
    for (std::size_t i = 0; i < node.shape.size(); ++i)
      before.push_back(node.ints[2 * i]), after.push_back(node.ints[2 * i + 1]);
    before.insert(before.end(), after.begin(), after.end());
    const bool is_bool = node.type == DType::boolean;  // runtimes pad numbers
    const std::string x = is_bool ? record_.cast(in(node, 0), DType::i32) : in(node, 0);
    const std::string y = record_.node("Pad", {x, record_.integers(before)});
    return is_bool ? record_.cast(y, node.type) : y;
  }

  // Each window's positions along the axis, read by a gather.
  std::string window(const Node& node) {
    const auto axis = static_cast<int>(node.ints[0]);
    const Extent step = node.ints[1], dilation = node.ints[2], count = node.shape[axis], size = node.shape.back();
    const std::string at = record_.windows(count, size, step, dilation);
    const std::string read = record_.node("Gather", {in(node, 0), at}, Attributes().integer("axis", axis));
    std::vector<Extent> order;
    for (int i = 0; i < node.shape.rank(); ++i)
      if (i != axis + 1) order.push_back(i);
    order.push_back(axis + 1);
    return record_.node("Transpose", {read}, Attributes().integers("perm", order));
  }

  std::string reduce(const Node& node) {
    const Node& x = *node.inputs[0];
    std::string in_name = in(node, 0);
    using scalar::Reduction;
    const bool is_bool = x.type == DType::boolean;
    if (is_bool) in_name = record_.cast(in_name, DType::i32);
    std::string y;
    if (node.reduction == Reduction::argmax || node.reduction == Reduction::argmin) {
      // The axes move to the end and become one.
      std::vector<Extent> order, shape;
      for (Extent i = 0; i < x.shape.rank(); ++i)
        if (std::find(node.ints.begin(), node.ints.end(), i) == node.ints.end()) {
          order.push_back(i);
          shape.push_back(x.shape[static_cast<int>(i)]);
        }
      order.insert(order.end(), node.ints.begin(), node.ints.end());
      Extent together = 1;
      for (const Extent axis : node.ints) together *= x.shape[static_cast<int>(axis)];
      shape.push_back(together);
      in_name = record_.node("Transpose", {in_name}, Attributes().integers("perm", order));
      in_name = record_.reshape(in_name, shape);
      y = record_.node(node.reduction == Reduction::argmax ? "ArgMax" : "ArgMin", {in_name},
                       Attributes().integer("axis", -1).integer("keepdims", 0));
      return record_.cast(y, node.type);
    }
    const char* type = node.reduction == Reduction::sum    ? "ReduceSum"
                       : node.reduction == Reduction::prod ? "ReduceProd"
                       : node.reduction == Reduction::max  ? "ReduceMax"
                                                           : "ReduceMin";
    if (is_bool && node.reduction == Reduction::sum) type = "ReduceMax";   // or
    if (is_bool && node.reduction == Reduction::prod) type = "ReduceMin";  // and
    y = record_.node(type, {in_name, record_.integers(node.ints)}, Attributes().integer("keepdims", 0));
    return is_bool ? record_.cast(y, node.type) : y;
  }

  // Reads zeros outside of the axis.
  std::string gather(const Node& node) {
    const auto axis = static_cast<int>(node.ints[0]);
    const Node &x = *node.inputs[0], &indices = *node.inputs[1];
    const Extent n = x.shape[axis];
    if (n == 0) return record_.node("Expand", {record_.number(0, node.type), record_.integers(extents_of(node.shape))});
    // One index for whole slices is a Gather.
    bool slices = indices.kind == Kind::expand && node.shape.rank() == x.shape.rank();
    if (slices) {
      const Shape& s = indices.inputs[0]->shape;
      const int missing = node.shape.rank() - s.rank();
      for (int i = 0; i < node.shape.rank(); ++i) {
        const Extent own = i < missing ? 1 : s[i - missing];
        slices = slices && (i == axis ? own == node.shape[i] : own == 1 && node.shape[i] == x.shape[i]);
      }
    }
    std::string at = record_.cast(slices ? whole(*indices.inputs[0]) : whole(indices), DType::i64);
    const std::string inside = record_.node(
        "Clip", {at, record_.number(0, DType::i64), record_.number(static_cast<double>(n - 1), DType::i64)});
    std::string holds = record_.node("Equal", {at, inside}), y;
    if (slices) {
      Shape line(std::vector<Extent>(node.shape.size(), 1));
      line[axis] = node.shape[axis];
      const std::string flat = record_.reshape(inside, {node.shape[axis]});
      y = record_.node("Gather", {whole(x), flat}, Attributes().integer("axis", axis));
      holds = record_.reshape(holds, extents_of(line));
    } else {
      y = record_.node("GatherElements", {whole(x), inside}, Attributes().integer("axis", axis));
    }
    return select(holds, y, record_.number(0, node.type), node.type);
  }

  // Runtimes lack Where for some types.
  std::string select(const std::string& c, const std::string& a, const std::string& b, DType type) {
    if (type == DType::boolean)
      return record_.node("Or", {record_.node("And", {c, a}), record_.node("And", {record_.node("Not", {c}), b})});
    const bool narrow = type == DType::i8 || type == DType::i16 || type == DType::u16 || type == DType::u32;
    if (!narrow) return record_.node("Where", {c, a, b});
    const std::string wide = record_.node("Where", {c, record_.cast(a, DType::i64), record_.cast(b, DType::i64)});
    return record_.cast(wide, type);
  }

  // ---- Calls that ONNX has ------------------------------------------------------------------------------------------------

  std::vector<Extent> attribute_words(const Node& node, std::string_view wanted) const {
    const graph::Call call(node);
    const Extent* at = call.words().data();
    for (const graph::AttributeSpec& spec : call.row().attributes) {
      using graph::AttributeType;
      std::size_t count = 1;
      if (spec.type == AttributeType::integers) count = static_cast<std::size_t>(*at++);
      if (spec.type == AttributeType::pairs) count = 2 * static_cast<std::size_t>(*at++);
      if (spec.name == wanted) return {at, at + count};
      at += count;
    }
    throw InternalError(fmt::format("onnx::save: {} has no attribute {}", node.op->name, wanted));
  }

  Names call(const Node& node) {
    if (!is_direct(node)) {
      Names names;
      for (const NodeRef& part : parts_.at(&node)) names.push_back(whole(*part));
      return names;
    }
    const std::string& name = node.op->name;
    const graph::Call c(node);
    const auto operand = [&](std::size_t i) {
      return c.input(i).defined() ? whole(*c.input(i).node()) : std::string();
    };
    const auto axis = [&] {
      const Extent given = attribute_words(node, "axis")[0];
      return given < 0 ? given + node.shape.rank() : given;
    };
    if (name == "softmax" || name == "log_softmax")
      return {record_.node(name == "softmax" ? "Softmax" : "LogSoftmax", {operand(0)},
                           Attributes().integer("axis", axis()))};
    if (name == "layer_norm") {
      const DType type = node.type;
      const auto same = [&](std::size_t i) {
        return c.input(i).dtype() == type ? operand(i) : record_.cast(operand(i), type);
      };
      Names inputs{operand(0), same(1)};
      if (c.input(2).defined()) inputs.push_back(same(2));
      return {record_.node(
          "LayerNormalization", inputs,
          Attributes().integer("axis", -1).real("epsilon", graph::real_of(attribute_words(node, "eps")[0])))};
    }
    if (name == "cumsum") {
      const bool is_bool = c.input(0).dtype() == DType::boolean;
      const std::string x = is_bool ? record_.cast(operand(0), node.type) : operand(0);
      return {record_.node("CumSum", {x, record_.number(static_cast<double>(axis()), DType::i64)},
                           Attributes()
                               .integer("exclusive", attribute_words(node, "exclusive")[0])
                               .integer("reverse", attribute_words(node, "reverse")[0]))};
    }
    if (name == "sort") {
      const Extent first = attribute_words(node, "first")[0], last = first + node.shape[static_cast<int>(axis())];
      Names results{record_.fresh(), record_.fresh()};
      const Names inputs{operand(0), record_.integers({last})};
      record_.node("TopK", inputs, results,
                   Attributes().integer("axis", axis()).integer("largest", attribute_words(node, "descending")[0]));
      if (first > 0)
        for (std::string& each : results)
          each = record_.node("Slice",
                              {each, record_.integers({first}), record_.integers({last}), record_.integers({axis()})});
      return {results[0], record_.cast(results[1], DType::i32)};
    }
    return {convolution(node, c, {operand(0), operand(1), operand(2)})};
  }

  std::string convolution(const Node& node, const graph::Call& c, Names inputs) {
    const auto axes = static_cast<std::size_t>(node.shape.rank() - 2);
    const auto each = [&](std::string_view name, Extent fallback) {
      std::vector<Extent> values = attribute_words(node, name);
      if (values.empty()) values = {fallback};
      if (values.size() == 1) values.resize(axes, values[0]);
      return values;
    };
    const std::vector<Extent> stride = each("stride", 1), dilation = each("dilation", 1);
    std::vector<Extent> pads = each("padding", 0);
    pads.insert(pads.end(), pads.begin(), pads.begin() + static_cast<std::ptrdiff_t>(axes));
    if (attribute_words(node, "same")[0])
      for (std::size_t i = 0; i < axes; ++i) {
        const int a = static_cast<int>(i) + 2;
        const Extent n = c.input(0).dim(a), windows = (n + stride[i] - 1) / stride[i];
        const Extent total =
            std::max<Extent>((windows - 1) * stride[i] + dilation[i] * (c.input(1).dim(a) - 1) + 1 - n, 0);
        pads[i] = total / 2;
        pads[axes + i] = total - pads[i];
      }
    if (inputs.back().empty()) inputs.pop_back();
    return record_.node("Conv", inputs,
                        Attributes()
                            .integers("strides", stride)
                            .integers("dilations", dilation)
                            .integers("pads", pads)
                            .integer("group", attribute_words(node, "groups")[0]));
  }

  // ---- Elementwise: the instructions of the expression ----------------------------------------------------------------------

  std::string map(const Node& node) {
    if (node.row && node.inputs[0]->type == node.type && !is_narrow(node.type)) {
      if (node.row->name == "relu" && element(node.type).is_signed) return record_.node("Relu", {in(node, 0)});
      if (node.row->name == "sigmoid" && is_float(node.type)) return record_.node("Sigmoid", {in(node, 0)});
    }
    Names values;
    std::vector<DType> types;
    bool expanded = false;
    for (const scalar::Instruction& i : node.expression->code) {
      if (i.op == scalar::Op::input) {
        const Node& source = *node.inputs[static_cast<std::size_t>(i.slot)];
        values.push_back(names_.at(&source)[0]);
        types.push_back(source.type);
        expanded = expanded || source.kind != Kind::constant || source.shape.rank() == 0;
      } else {
        const auto divisor = i.op == scalar::Op::div || i.op == scalar::Op::rem
                                 ? &node.expression->code[static_cast<std::size_t>(i.b)]
                                 : nullptr;
        const bool is_whole = divisor && !is_float(types[static_cast<std::size_t>(i.a)]);
        values.push_back(is_whole ? whole_division(i, *divisor, values, types[static_cast<std::size_t>(i.a)])
                                  : instruction(i, values, types));
        types.push_back(i.type);
      }
    }
    std::string result = values.back();
    if (!expanded && node.shape.rank() > 0)  // made of constants alone
      result = record_.node("Expand", {result, record_.integers(extents_of(node.shape))});
    return result;
  }

  // a / b and a % b of integers. Where b is 0 they are a and 0 here, and nothing in ONNX; the same holds for the least number by -1.
  std::string whole_division(const scalar::Instruction& i, const scalar::Instruction& divisor, const Names& values,
                             DType type) {
    const std::string &a = values[static_cast<std::size_t>(i.a)], &b = values[static_cast<std::size_t>(i.b)];
    const auto number = [&](double value) { return record_.number(value, type); };
    const bool is_rem = i.op == scalar::Op::rem;
    const auto divided = [&](const std::string& by) {
      return is_rem ? record_.node("Mod", {a, by}, Attributes().integer("fmod", 1)) : record_.node("Div", {a, by});
    };
    if (divisor.op == scalar::Op::constant && divisor.value != 0 && divisor.value != -1) return divided(b);
    std::string odd = record_.node("Equal", {b, number(0)});
    if (!element(type).is_signed) return divided(select(odd, number(1), b, type));
    const std::string negates = record_.node("Equal", {b, number(-1)});
    odd = record_.node("Or", {odd, negates});
    const std::string result = divided(select(odd, number(1), b, type));
    return is_rem ? result : select(negates, record_.node("Sub", {number(0), a}), result, type);
  }

  std::string instruction(const scalar::Instruction& i, const Names& values, const std::vector<DType>& types) {
    using scalar::Op;
    const auto operand = [&](int at) { return values[static_cast<std::size_t>(at)]; };
    const std::string a = i.a >= 0 ? operand(i.a) : "", b = i.b >= 0 ? operand(i.b) : "",
                      c = i.c >= 0 ? operand(i.c) : "";
    const DType of = i.a >= 0 ? types[static_cast<std::size_t>(i.a)] : i.type;
    const auto number = [&](double value) { return record_.number(value, of); };
    const auto one = [&](std::string_view type) { return record_.node(type, {a}); };
    const auto two = [&](std::string_view type) { return record_.node(type, {a, b}); };
    const bool real = is_float(of), is_bool = of == DType::boolean;
    switch (i.op) {
      case Op::input: break;
      case Op::constant: return record_.number(i.value, i.type);
      case Op::neg: return element(of).is_signed ? one("Neg") : record_.node("Sub", {number(0), a});
      case Op::abs: return one("Abs");
      case Op::sign: return one("Sign");
      case Op::floor: return real ? one("Floor") : a;
      case Op::ceil: return real ? one("Ceil") : a;
      case Op::round: return real ? one("Round") : a;
      case Op::trunc: return real ? record_.node("Mul", {one("Sign"), record_.node("Floor", {one("Abs")})}) : a;
      case Op::sqrt: return one("Sqrt");
      case Op::rsqrt: return record_.node("Reciprocal", {one("Sqrt")});
      case Op::exp: return one("Exp");
      case Op::exp2: return record_.node("Exp", {record_.node("Mul", {a, number(M_LN2)})});
      case Op::expm1: {  // 2 tanh(x / 2) / (1 - tanh(x / 2)), which keeps the digits of small numbers
        const std::string t = record_.node("Tanh", {record_.node("Mul", {a, number(0.5)})});
        const std::string small =
            record_.node("Div", {record_.node("Mul", {t, number(2)}), record_.node("Sub", {number(1), t})});
        const std::string large = record_.node("Sub", {one("Exp"), number(1)});
        return record_.node("Where", {record_.node("Less", {one("Abs"), number(0.5)}), small, large});
      }
      case Op::log: return one("Log");
      case Op::log2: return record_.node("Mul", {one("Log"), number(M_LOG2E)});
      case Op::log10: return record_.node("Mul", {one("Log"), number(M_LOG10E)});
      case Op::log1p: {  // 2 atanh(x / (2 + x)) for small x
        const std::string ratio = record_.node("Div", {a, record_.node("Add", {a, number(2)})});
        const std::string small = record_.node("Mul", {record_.node("Atanh", {ratio}), number(2)});
        const std::string large = record_.node("Log", {record_.node("Add", {a, number(1)})});
        return record_.node("Where", {record_.node("Less", {one("Abs"), number(0.5)}), small, large});
      }
      case Op::sin: return one("Sin");
      case Op::cos: return one("Cos");
      case Op::tan: return one("Tan");
      case Op::asin: return one("Asin");
      case Op::acos: return one("Acos");
      case Op::atan: return one("Atan");
      case Op::sinh: return one("Sinh");
      case Op::cosh: return one("Cosh");
      case Op::tanh: return one("Tanh");
      case Op::asinh: return one("Asinh");
      case Op::acosh: return one("Acosh");
      case Op::atanh: return one("Atanh");
      case Op::erf: return one("Erf");
      case Op::is_nan: return real ? one("IsNaN") : record_.node("Not", {record_.node("Equal", {a, a})});
      case Op::logical_not: return is_bool ? one("Not") : record_.node("Equal", {a, number(0)});
      case Op::bit_not: return is_bool ? one("Not") : one("BitwiseNot");
      case Op::cast: return of == i.type ? a : record_.cast(a, i.type);
      case Op::add: return two("Add");
      case Op::sub: return two("Sub");
      case Op::mul: return two("Mul");
      case Op::div: return two("Div");
      case Op::rem: return record_.node("Mod", {a, b}, Attributes().integer("fmod", 1));
      case Op::pow: return two("Pow");
      case Op::atan2: return angle(a, b, of);
      case Op::min: return is_bool ? two("And") : two("Min");
      case Op::max: return is_bool ? two("Or") : two("Max");
      case Op::copysign: {
        const std::string size = one("Abs");
        // The reciprocal tells -0 from 0.
        const std::string negative = record_.node(
            "Or",
            {record_.node("Less", {b, number(0)}), record_.node("Less", {record_.node("Reciprocal", {b}), number(0)})});
        return record_.node("Where", {negative, record_.node("Neg", {size}), size});
      }
      case Op::eq: return two("Equal");
      case Op::ne: return record_.node("Not", {two("Equal")});
      case Op::lt: return two("Less");
      case Op::le: return two("LessOrEqual");
      case Op::gt: return two("Greater");
      case Op::ge: return two("GreaterOrEqual");
      case Op::logical_and: return two("And");
      case Op::logical_or: return two("Or");
      case Op::bit_and: return is_bool ? two("And") : two("BitwiseAnd");
      case Op::bit_or: return is_bool ? two("Or") : two("BitwiseOr");
      case Op::bit_xor: return is_bool ? two("Xor") : two("BitwiseXor");
      case Op::select: return select(a, b, c, i.type);
      case Op::shl:
      case Op::shr: throw UsageError("onnx::save: ONNX has no shifts of signed numbers");
      case Op::philox:
        throw UsageError("onnx::save: random draws cannot be written; call eval() of modules with dropout");
    }
    throw InternalError("onnx::save: an unknown instruction");
  }

  // atan2(y, x), by quadrants. The sign of zeros is not kept.
  std::string angle(const std::string& y, const std::string& x, DType type) {
    const auto number = [&](double value) { return record_.number(value, type); };
    const std::string zero = number(0), slope = record_.node("Atan", {record_.node("Div", {y, x})});
    const std::string below = record_.node("Less", {y, zero});
    const std::string turned = record_.node("Where", {below, number(-M_PI), number(M_PI)});
    const std::string left = record_.node("Add", {slope, turned});
    const std::string upright = record_.node("Mul", {record_.node("Sign", {y}), number(M_PI / 2)});
    const std::string sides = record_.node("Where", {record_.node("Less", {x, zero}), left, slope});
    return record_.node("Where", {record_.node("Equal", {x, zero}), upright, sides});
  }

  Record& record_;
  std::unordered_map<const Node*, Names> names_;  // of each result
  std::unordered_map<const Node*, std::string> expanded_;
  std::unordered_map<const Node*, std::vector<NodeRef>> parts_;
  std::vector<NodeRef> kept_;  // so that no address is used again
};

}  // namespace

std::vector<std::string> record_graph(Record& record, std::unordered_map<const Node*, Names> known,
                                      std::span<const NodeRef> results) {
  Exporter exporter(record, std::move(known));
  std::vector<std::string> names;
  for (const NodeRef& result : results) names.push_back(exporter.write(result));
  return names;
}

}  // namespace weft::onnx
