// Builders, and templates as JSON.
#include "weft/workflow/template.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "base/quote.hpp"
#include "weft/error.hpp"
#include "workflow/reference.hpp"

namespace weft::workflow {
namespace {

constexpr std::string_view kTypes[] = {"Operation", "Sequential", "Parallel", "Conditional", "Map"};
constexpr int kElementsDeep = 60;
constexpr std::string_view kOnFailure[] = {"abort-dependents", "continue-running"};

[[noreturn]] void refuse(const std::string& path, std::string_view fact) {
  throw UsageError(fmt::format("{}: {}", path.empty() ? "the template" : path, fact));
}

/// Reads the members of an object; the rest are unknown.
class Members {
 public:
  Members(const Value& value, std::string path) : value_(value), path_(std::move(path)) {
    if (!value.is_object()) refuse(path_, fmt::format("is {}, and not an object", with_article(value.kind())));
  }
  const Value* find(std::string_view name) {
    known_.push_back(name);
    return value_.find(name);
  }
  const Value* find(std::string_view name, Value::Kind kind) {
    const Value* found = find(name);
    if (found && found->kind() != kind)
      refuse(place(name), fmt::format("is {}, and not {}", with_article(found->kind()), with_article(kind)));
    return found;
  }
  const Value& get(std::string_view name, Value::Kind kind) {
    const Value* found = find(name, kind);
    if (!found) refuse(path_, fmt::format("{} is missing", quote(name)));
    return *found;
  }
  void text(std::string_view name, std::string& to) {
    if (const Value* found = find(name, Value::Kind::string)) to = found->string();
  }
  void any(std::string_view name, std::optional<Value>& to) {
    if (const Value* found = find(name)) to = *found;
  }
  std::string place(std::string_view name) const { return fmt::format("{}/{}", path_, name); }
  void done() const {
    for (const auto& [key, member] : value_.members())
      if (std::find(known_.begin(), known_.end(), key) == known_.end())
        refuse(path_, fmt::format("there is no member {} here", quote(key)));
  }

 private:
  const Value& value_;
  std::string path_;
  std::vector<std::string_view> known_;
};

Element read_element(const Value& value, const std::string& path, int depth) {
  if (depth > kElementsDeep) refuse(path, fmt::format("elements are nested deeper than {}", kElementsDeep));
  Members members(value, path);
  const std::string& type = members.get("type", Value::Kind::string).string();
  const auto found = std::find(std::begin(kTypes), std::end(kTypes), type);
  if (found == std::end(kTypes))
    refuse(members.place("type"),
           fmt::format("there is no element {}; there are Operation, Sequential, Parallel, Conditional "
                       "and Map",
                       quote(type, 40)));
  Element element;
  element.type = static_cast<Type>(found - std::begin(kTypes));
  static const Value kNone = Value::Object();
  const Value* given = members.find("props");
  Members props(given && !given->is_null() ? *given : kNone, members.place("props"));
  props.text("id", element.id);
  if (element.type == Type::operation) {
    element.operation = props.get("name", Value::Kind::string).string();
    props.any("input", element.input);
    if (const Value* timeout = props.find("timeout")) {
      if (!timeout->is_number() || !(timeout->number() > 0) || timeout->number() > 1e9)
        refuse(props.place("timeout"), "is not a positive number of seconds");
      element.timeout = timeout->number();
    }
    if (const Value* retries = props.find("retries")) {
      if (!retries->is_integer() || compare_numbers(*retries, 0) < 0 || compare_numbers(*retries, kRetriesMax) > 0)
        refuse(props.place("retries"), fmt::format("is not a whole number from 0 to {}", kRetriesMax));
      element.retries = static_cast<int>(retries->integer());
    }
    if (const Value* delay = props.find("retryDelay")) {
      if (!delay->is_number() || !(delay->number() >= 0) || delay->number() > 1e9)
        refuse(props.place("retryDelay"), "is not a number of seconds");
      element.retry_delay = delay->number();
    }
  } else {
    props.any("output", element.output);
  }
  if (element.type == Type::parallel || element.type == Type::map)
    if (const Value* most = props.find("maxConcurrency")) {
      if (!most->is_integer() || compare_numbers(*most, 1) < 0 || compare_numbers(*most, 1'000'000) > 0)
        refuse(props.place("maxConcurrency"), "is not a whole number from 1 to 1000000");
      element.max_concurrency = static_cast<std::size_t>(most->integer());
    }
  if (element.type == Type::conditional) props.any("test", element.test);
  if (element.type == Type::map) {
    if (const Value* over = props.find("over")) element.over = *over;
    props.text("as", element.as);
    props.any("initial", element.initial);
  }
  props.done();
  if (const Value* children = members.find("children", Value::Kind::array))
    for (std::size_t i = 0; i < children->elements().size(); ++i)
      element.children.push_back(
          read_element(children->elements()[i], fmt::format("{}/children/{}", path, i), depth + 1));
  members.done();
  return element;
}

Element with_children(Type type, std::vector<Element> children) {
  Element element;
  element.type = type;
  element.children = std::move(children);
  return element;
}

}  // namespace

std::string_view name_of(Type type) { return kTypes[static_cast<std::size_t>(type)]; }

Element operation(std::string_view operation, std::optional<Value> input) {
  Element element;
  element.type = Type::operation;
  element.operation = operation;
  element.input = std::move(input);
  return element;
}

Element sequential(std::vector<Element> children) { return with_children(Type::sequential, std::move(children)); }

Element parallel(std::vector<Element> children, std::size_t max_concurrency) {
  Element element = with_children(Type::parallel, std::move(children));
  element.max_concurrency = max_concurrency;
  return element;
}

Element conditional(Value test, Element then) {
  Element element = with_children(Type::conditional, {std::move(then)});
  element.test = std::move(test);
  return element;
}

Element conditional(Value test, Element then, Element otherwise) {
  Element element = conditional(std::move(test), std::move(then));
  element.children.push_back(std::move(otherwise));
  return element;
}

Element conditional(Test test, Element then) {
  Element element = with_children(Type::conditional, {std::move(then)});
  element.test_function = std::move(test);
  return element;
}

Element conditional(Test test, Element then, Element otherwise) {
  Element element = conditional(std::move(test), std::move(then));
  element.children.push_back(std::move(otherwise));
  return element;
}

Element map(Value over, std::string_view as, Element body) {
  Element element = with_children(Type::map, {std::move(body)});
  element.over = std::move(over);
  element.as = as;
  return element;
}

Element named(std::string_view id, Element element) {
  element.id = id;
  return element;
}

Element with_output(Element element, Value output) {
  element.output = std::move(output);
  return element;
}

Value to_value(const Element& element) {
  if (element.test_function)
    throw UsageError("a conditional's test is a function of C++, which JSON cannot hold; use a reference or a schema");
  Value::Object props;
  if (element.type == Type::operation) props.set("name", element.operation);
  if (!element.id.empty()) props.set("id", element.id);
  if (element.input) props.set("input", *element.input);
  if (element.timeout) props.set("timeout", *element.timeout);
  if (element.retries > 0) {
    props.set("retries", element.retries);
    props.set("retryDelay", element.retry_delay);
  }
  if (element.max_concurrency > 0) props.set("maxConcurrency", element.max_concurrency);
  if (element.test) props.set("test", *element.test);
  if (element.type == Type::map) {
    props.set("over", element.over);
    props.set("as", element.as);
  }
  if (element.initial) props.set("initial", *element.initial);
  if (element.output) props.set("output", *element.output);
  Value::Object object{{"type", name_of(element.type)}, {"props", std::move(props)}};
  if (!element.children.empty()) {
    Value::Array children;
    for (const Element& child : element.children) children.push_back(to_value(child));
    object.set("children", std::move(children));
  }
  return object;
}

Value to_value(const Template& workflow) {
  Value::Object object;
  if (!workflow.name.empty()) object.set("name", workflow.name);
  if (!workflow.description.empty()) object.set("description", workflow.description);
  if (workflow.input_schema != Value(true)) object.set("inputSchema", workflow.input_schema);
  if (workflow.output_schema != Value(true)) object.set("outputSchema", workflow.output_schema);
  if (workflow.on_failure != OnFailure::abort_dependents)
    object.set("onFailure", kOnFailure[static_cast<std::size_t>(workflow.on_failure)]);
  object.set("tree", to_value(workflow.tree));
  return object;
}

Element element_from(const Value& value) { return read_element(value, "", 0); }

Template template_from(const Value& value) {
  Template workflow;
  Members members(value, "");
  if (value.find("type")) {
    workflow.tree = read_element(value, "", 0);
    return workflow;
  }
  members.text("name", workflow.name);
  members.text("description", workflow.description);
  if (const Value* schema = members.find("inputSchema")) workflow.input_schema = *schema;
  if (const Value* schema = members.find("outputSchema")) workflow.output_schema = *schema;
  if (const Value* policy = members.find("onFailure", Value::Kind::string)) {
    const auto found = std::find(std::begin(kOnFailure), std::end(kOnFailure), policy->string());
    if (found == std::end(kOnFailure))
      refuse("/onFailure",
             fmt::format("{} is neither abort-dependents nor continue-running", quote(policy->string(), 40)));
    workflow.on_failure = static_cast<OnFailure>(found - std::begin(kOnFailure));
  }
  workflow.tree = read_element(members.get("tree", Value::Kind::object), "/tree", 0);
  members.done();
  return workflow;
}

}  // namespace weft::workflow
