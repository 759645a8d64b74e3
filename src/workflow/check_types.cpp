// What data flows where: schemas of results and of templates' values, and whether they fit the operations that take them.
#include <fmt/format.h>

#include <algorithm>

#include "base/quote.hpp"
#include "weft/error.hpp"
#include "weft/schema.hpp"
#include "workflow/plan.hpp"
#include "workflow/reference.hpp"

namespace weft::workflow {
namespace {

Value list_schema(Value items) { return Value::object({{"type", "array"}, {"items", std::move(items)}}); }

class TypeChecker {
 public:
  TypeChecker(const Template& workflow, Plan& plan) : workflow_(workflow), plan_(plan) {}

  std::map<const PlanNode*, Fit> run() {
    for (const auto& [schema, name] :
         {std::pair(&workflow_.input_schema, "inputSchema"), std::pair(&workflow_.output_schema, "outputSchema")})
      try {
        const schema::Schema is_one(*schema);
      } catch (const Error& error) {
        plan_.report("INVALID_ELEMENT", fmt::format("/{}", name), error.what());
        return {};
      }
    for (const PlanNode& node : plan_.nodes()) {
      for_each_value(node, [&](const Value& value, const std::string& path, bool is_output) {
        for_each_reference(value, path, [&](const std::string& text, const std::string& place) {
          schema_of_reference(text, node, is_output, &place);
        });
      });
      if (node.element->type == Type::operation) check_input(node);
      if (node.element->type == Type::map) check_over(node);
      if (node.element->type == Type::conditional && node.element->test && node.element->test->is_string())
        expect(schema_of_value(*node.element->test, node, false), Value::object({{"type", "boolean"}}),
               node.path + "/props/test");
    }
    expect(schema_of(plan_.root()), workflow_.output_schema, "/outputSchema");
    return std::move(fits_);
  }

 private:
  void expect(const Value& given, const Value& wanted, const std::string& path) {
    const Fit result = fit(given, wanted);
    if (result.kind == Fit::Kind::incompatible) plan_.report("TYPE_MISMATCH", path, result.detail);
  }
  void check_input(const PlanNode& node) {
    if (!node.specification) return;
    const bool is_given = node.element->input.has_value();
    const Value given = is_given ? schema_of_value(*node.element->input, node, false) : schema_of_previous(node);
    const Fit result = fit(given, node.specification->input);
    fits_.emplace(&node, result);
    if (result.kind == Fit::Kind::incompatible)
      plan_.report("TYPE_MISMATCH", node.path + (is_given ? "/props/input" : ""),
                   fmt::format("{} cannot take {}: {}", node.element->operation,
                               is_given ? "this input" : "the result before it", result.detail));
  }
  void check_over(const PlanNode& node) {
    if (node.element->over.is_array()) return;
    expect(schema_of_value(node.element->over, node, false), list_schema(true), node.path + "/props/over");
  }

  /// Of an element's result. `true` where a circle through "$.previous" of a map leads back.
  Value schema_of(const PlanNode& node) {
    if (const auto known = known_.find(&node); known != known_.end()) return known->second;
    if (node.element->type == Type::operation) return own_schema_of(node);
    if (!open_.insert(&node).second) return true;
    Value schema = node.element->output ? schema_of_value(*node.element->output, node, true) : own_schema_of(node);
    open_.erase(&node);
    if (weight_of(schema) > kSchemaWeightMax) schema = true;
    known_.emplace(&node, schema);
    return schema;
  }

  // Parts of a schema. Results of results may double at every step; a schema that has become too large says nothing.
  static constexpr std::int64_t kSchemaWeightMax = 5000;
  static std::int64_t weight_of(const Value& value) {
    std::int64_t weight = 1;
    if (value.is_array())
      for (const Value& each : value.elements()) weight += weight_of(each);
    if (value.is_object())
      for (const auto& [name, member] : value.members()) weight += weight_of(member);
    return weight;
  }

  Value own_schema_of(const PlanNode& node) {
    switch (node.element->type) {
      case Type::operation: return node.specification ? node.specification->output : Value(true);
      case Type::sequential: return node.children.empty() ? Value(true) : schema_of(*node.children.back());
      case Type::parallel: {
        Value::Array items;
        for (const PlanNode* child : node.children) items.push_back(schema_of(*child));
        return Value::object({{"type", "array"}, {"prefixItems", std::move(items)}});
      }
      case Type::conditional: {
        Value::Array forms;
        for (const PlanNode* child : node.children) forms.push_back(schema_of(*child));
        if (forms.size() == 1) forms.push_back(Value::object({{"const", nullptr}}));
        return Value::object({{"anyOf", std::move(forms)}});
      }
      case Type::map: return node.children.empty() ? Value(true) : list_schema(schema_of(*node.children[0]));
    }
    return true;
  }

  Value schema_of_previous(const PlanNode& node) {
    const PlanNode* map = nullptr;
    const PlanNode* previous = plan_.previous_of(node, &map);
    if (map) return schema_before(*map);
    return previous ? schema_of(*previous) : workflow_.input_schema;
  }

  /// Of the result of the item before.
  Value schema_before(const PlanNode& map) {
    const Value first =
        map.element->initial ? schema_of_value(*map.element->initial, map, false) : Value::object({{"const", nullptr}});
    return Value::object({{"anyOf", Value::array({first, schema_of(*map.children[0])})}});
  }

  /// Of a value as it stands in the template.
  Value schema_of_value(const Value& value, const PlanNode& node, bool is_output) {
    if (value.is_tensor())
      return Value::object(
          {{"x-tensor", Value::object({{"dtypes", Value::array({name_of(value.tensor().dtype())})}})}});
    if (value.is_string() && is_reference(value.string()))
      return schema_of_reference(value.string(), node, is_output, nullptr);
    if (value.is_string() && is_escaped(value.string())) return Value::object({{"const", value.string().substr(1)}});
    if (value.is_array() && !value.elements().empty()) {
      Value::Array items;
      for (const Value& each : value.elements()) items.push_back(schema_of_value(each, node, is_output));
      return Value::object({{"type", "array"}, {"prefixItems", std::move(items)}});
    }
    if (value.is_object()) {
      std::vector<Value::Object::Member> properties;
      Value::Array names;
      for (const auto& [name, member] : value.members()) {
        properties.push_back({name, schema_of_value(member, node, is_output)});
        names.push_back(name);
      }
      return Value::object({{"type", "object"},
                            {"properties", Value::Object(std::move(properties))},
                            {"required", std::move(names)},
                            {"x-written", true}});
    }
    return Value::object({{"const", value}});
  }

  /// With a place, members that the schema does not have are reported there.
  Value schema_of_reference(const std::string& text, const PlanNode& node, bool is_output, const std::string* place) {
    const Reference reference = parse_reference(text);
    Value schema = schema_of_name(reference.name, node, is_output);
    const Value root = schema;
    for (const Step& step : reference.steps) {
      schema = part_of(schema, root, step, text, place);
      if (schema == Value(true)) break;
    }
    return schema;
  }

  Value schema_of_name(const std::string& name, const PlanNode& node, bool is_output) {
    if (is_output) {
      if (const PlanNode* inside = plan_.result_inside(name, node)) return schema_of(*inside);
      if (name == "previous") return own_schema_of(node);
    }
    const Source source = plan_.source_of(name, node);
    switch (source.kind) {
      case Source::Kind::input: return workflow_.input_schema;
      case Source::Kind::previous: return schema_of_previous(node);
      case Source::Kind::before: return schema_before(*source.node);
      case Source::Kind::index: return Value::object({{"type", "integer"}, {"minimum", 0}});
      case Source::Kind::item: {
        const Value& over = source.node->element->over;
        if (over.is_array()) return true;
        const Value list = schema_of_value(over, *source.node, false);
        const Value* items = list.is_object() ? list.find("items") : nullptr;
        return items ? with_definitions(*items, list) : Value(true);
      }
      case Source::Kind::result: return schema_of(*source.node);
      case Source::Kind::none: break;
    }
    return true;
  }

  // A part of a schema takes the definitions along to which it may refer.
  static Value with_definitions(Value part, const Value& whole) {
    const Value* definitions = whole.is_object() ? whole.find("$defs") : nullptr;
    if (definitions && part.is_object()) part.members().set("$defs", *definitions);
    return part;
  }

  Value part_of(const Value& schema, const Value& root, const Step& step, const std::string& text,
                const std::string* place) {
    if (!schema.is_object() || schema.find("$ref") || schema.find("anyOf") || schema.find("oneOf") ||
        schema.find("allOf"))
      return true;
    if (const Value* constant = schema.find("const")) {
      const Value* part = constant->is_object() ? constant->find(step.name) : nullptr;
      return part ? Value::object({{"const", *part}}) : Value(true);
    }
    const auto missing = [&](std::string_view fact) {
      if (place) plan_.report("MISSING_RESULT", *place, fmt::format("{}: {}", quote(text), fact));
      return Value(true);
    };
    const Value* type = schema.find("type");
    if (schema.find("x-tensor")) return missing("a tensor has no members");
    if (type && *type == Value("array")) {
      if (!step.index) return missing(fmt::format("a list has no member {}", quote(step.name)));
      const Value* prefix = schema.find("prefixItems");
      if (prefix && prefix->is_array() && *step.index < prefix->elements().size())
        return with_definitions(prefix->elements()[*step.index], root);
      if (prefix && !schema.find("items"))
        return missing(fmt::format("the list has {} elements", prefix->elements().size()));
      const Value* items = schema.find("items");
      return items ? with_definitions(*items, root) : Value(true);
    }
    const Value* properties = schema.find("properties");
    const Value* found = properties && properties->is_object() ? properties->find(step.name) : nullptr;
    if (found) return with_definitions(*found, root);
    const Value* others = schema.find("additionalProperties");
    const bool is_closed = (others && *others == Value(false)) || schema.find("x-written");
    if (type && *type == Value("object") && is_closed)
      return missing(fmt::format("the result has no member {}", quote(step.name)));
    if (type && type->is_string() && *type != Value("object"))
      return missing(fmt::format("the result is of type {}, which has no members", type->string()));
    return others && others->is_object() ? with_definitions(*others, root) : Value(true);
  }

  const Template& workflow_;
  Plan& plan_;
  std::map<const PlanNode*, Value> known_;
  std::set<const PlanNode*> open_;
  std::map<const PlanNode*, Fit> fits_;
};

}  // namespace

std::map<const PlanNode*, Fit> check_types(const Template& workflow, Plan& plan) {
  return TypeChecker(workflow, plan).run();
}

// ---- The graph of operations --------------------------------------------------------------------------------------------------

namespace {

constexpr std::size_t kEdgesMax = 200'000;

/// Operations that run last, or first, in an element: what comes after it, or before it, is ordered by these.
void ends_of(const PlanNode& node, bool last, std::vector<const PlanNode*>& out) {
  const std::vector<PlanNode*>& children = node.children;
  switch (node.element->type) {
    case Type::operation: out.push_back(&node); return;
    case Type::sequential:
      if (!children.empty()) ends_of(last ? *children.back() : *children.front(), last, out);
      return;
    default:
      for (const PlanNode* child : children) ends_of(*child, last, out);
  }
}

}  // namespace

OperationGraph operation_graph(const Template& workflow, const operations::Registry& registry, bool internal) {
  Plan plan(workflow, &registry, internal);
  std::map<const PlanNode*, Fit> fits;
  if (plan.problems().empty()) fits = check_types(workflow, plan);
  if (!plan.problems().empty()) throw UsageError("the workflow cannot run:\n" + to_string(plan.problems()));
  OperationGraph graph;
  std::map<std::pair<std::size_t, std::size_t>, bool> edges;  // to whether data goes along
  std::map<const PlanNode*, std::size_t> places;
  std::vector<const PlanNode*> order;
  // Depth first, a parallel's children after those that they wait for.
  const std::function<void(const PlanNode&)> visit = [&](const PlanNode& node) {
    if (node.element->type == Type::operation) {
      places.emplace(&node, order.size());
      order.push_back(&node);
      return;
    }
    std::vector<bool> done(node.children.size());
    const std::function<void(std::size_t)> place = [&](std::size_t i) {
      if (done[i]) return;
      done[i] = true;
      for (const std::size_t before : node.children[i]->waits_for) place(before);
      visit(*node.children[i]);
    };
    for (std::size_t i = 0; i < node.children.size(); ++i) place(i);
  };
  visit(plan.root());
  const auto connect = [&](const PlanNode& from, const PlanNode& to, bool is_data) {
    std::vector<const PlanNode*> ends, begins;
    ends_of(from, true, ends);
    ends_of(to, false, begins);
    for (const PlanNode* end : ends)
      for (const PlanNode* begin : begins)
        if (end != begin) edges[{places.at(end), places.at(begin)}] |= is_data;
    if (edges.size() > kEdgesMax) throw UsageError(fmt::format("the graph has more than {} edges", kEdgesMax));
  };
  for (const PlanNode& node : plan.nodes()) {
    if (node.element->type == Type::sequential)
      for (std::size_t i = 1; i < node.children.size(); ++i) connect(*node.children[i - 1], *node.children[i], false);
    if (node.element->type == Type::operation) {
      for (const PlanNode* read : node.reads) connect(*read, node, true);
      bool uses_previous = !node.element->input;
      if (node.element->input)
        for_each_reference(*node.element->input, "", [&](const std::string& text, const std::string&) {
          uses_previous |= parse_reference(text).name == "previous";
        });
      const PlanNode* map = nullptr;
      const PlanNode* previous = plan.previous_of(node, &map);
      if (uses_previous && previous && !map) connect(*previous, node, true);
    }
  }
  for (const PlanNode* node : order) graph.nodes.push_back({node->path, node->element->operation, node->element->id});
  for (const auto& [ends, is_data] : edges)
    graph.edges.push_back({ends.first, ends.second, is_data, is_data ? fits[order[ends.second]] : Fit{}});
  return graph;
}

Value to_value(const OperationGraph& graph) {
  constexpr std::string_view kFits[] = {"fits", "unknown", "incompatible"};
  Value::Array nodes, edges;
  for (const OperationGraph::Node& node : graph.nodes) {
    Value::Object object{{"path", node.path}, {"operation", node.operation}};
    if (!node.id.empty()) object.set("id", node.id);
    nodes.push_back(std::move(object));
  }
  for (const OperationGraph::Edge& edge : graph.edges) {
    Value::Object object{{"from", graph.nodes[edge.from].path},
                         {"to", graph.nodes[edge.to].path},
                         {"kind", edge.is_data ? "data" : "order"}};
    if (edge.is_data) object.set("fit", kFits[static_cast<std::size_t>(edge.fit.kind)]);
    if (edge.is_data && !edge.fit.detail.empty()) object.set("detail", edge.fit.detail);
    edges.push_back(std::move(object));
  }
  return Value::object({{"nodes", std::move(nodes)}, {"edges", std::move(edges)}});
}

}  // namespace weft::workflow
