// Looking a template through: form, names, operations, references, order, cycles.
#include "workflow/plan.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "base/quote.hpp"
#include "ops/names.hpp"
#include "weft/error.hpp"
#include "workflow/reference.hpp"

namespace weft::workflow {
namespace {

constexpr std::size_t kProblemsMax = 100, kNodesMax = 10'000;
constexpr int kTreeDeep = 60;
constexpr std::string_view kReserved[] = {"input", "previous", "before", "index"};

bool is_reserved(std::string_view name) {
  return std::find(std::begin(kReserved), std::end(kReserved), name) != std::end(kReserved);
}

/// The elements from the root to a node.
std::vector<const PlanNode*> line_of(const PlanNode& node) {
  std::vector<const PlanNode*> line;
  for (const PlanNode* at = &node; at; at = at->parent) line.push_back(at);
  std::reverse(line.begin(), line.end());
  return line;
}

std::string shown(const PlanNode& node) { return node.element->id.empty() ? node.path : quote(node.element->id); }

}  // namespace

Plan::Plan(const Template& workflow, const operations::Registry* registry, bool internal) : workflow_(workflow) {
  root_ = add(workflow.tree, nullptr, 0, "/tree", "root");
  for (PlanNode& node : nodes_) {
    check_element(node);
    if (registry && node.element->type == Type::operation) find_operation(node, *registry, internal);
  }
  for (PlanNode& node : nodes_) check_references(node);
  for (const PlanNode& node : nodes_)
    if (node.element->type == Type::parallel) check_cycles(node);
}

void Plan::report(std::string_view code, std::string path, std::string message) {
  if (problems_.size() < kProblemsMax) problems_.push_back({std::string(code), std::move(path), std::move(message)});
}

PlanNode* Plan::add(const Element& element, PlanNode* parent, std::size_t index, std::string path, std::string key) {
  if (nodes_.size() >= kNodesMax) throw UsageError(fmt::format("a template has at most {} elements", kNodesMax));
  if (std::count(key.begin(), key.end(), '.') > kTreeDeep)
    throw UsageError(fmt::format("{}: elements are nested deeper than {}", path, kTreeDeep));
  PlanNode& node = nodes_.emplace_back();
  node.element = &element;
  node.parent = parent;
  node.index = index;
  node.path = std::move(path);
  node.key = std::move(key);
  if (element.type == Type::map) items_.insert(element.as);
  for (std::size_t i = 0; i < element.children.size(); ++i)
    node.children.push_back(add(element.children[i], &node, i, fmt::format("{}/children/{}", node.path, i),
                                fmt::format("{}.{}", node.key, i)));
  return &node;
}

// ---- One element --------------------------------------------------------------------------------------------------------------

void Plan::check_element(PlanNode& node) {
  const Element& element = *node.element;
  const auto invalid = [&](std::string_view place, std::string fact) {
    report("INVALID_ELEMENT", fmt::format("{}{}", node.path, place), std::move(fact));
  };
  const std::size_t count = element.children.size();
  switch (element.type) {
    case Type::operation:
      if (count > 0) invalid("/children", "an Operation has no children");
      if (element.output)
        invalid("/props/output", "an Operation has no output of its own making; put it into a Sequential");
      if (element.operation.empty()) invalid("/props/name", "an Operation has the name of an operation");
      if (element.timeout && !(*element.timeout > 0 && *element.timeout <= 1e9))
        invalid("/props/timeout", "is not a positive number of seconds");
      if (element.retries < 0 || element.retries > kRetriesMax)
        invalid("/props/retries", fmt::format("is not a whole number from 0 to {}", kRetriesMax));
      if (!(element.retry_delay >= 0 && element.retry_delay <= 1e9))
        invalid("/props/retryDelay", "is not a number of seconds");
      break;
    case Type::sequential:
    case Type::parallel:
      if (count == 0) invalid("", fmt::format("a {} has children", name_of(element.type)));
      break;
    case Type::conditional:
      if (count < 1 || count > 2) invalid("", fmt::format("a Conditional has one or two children, and not {}", count));
      if (element.test.has_value() == static_cast<bool>(element.test_function)) {
        invalid("/props", "a Conditional has one test");
      } else if (element.test) {
        const Value& test = *element.test;
        if (test.is_object()) {
          if (!test.find("value") || !test.find("matches") || test.members().size() != 2)
            invalid("/props/test", "a test is a reference to a boolean, or has a value and the schema that it matches");
          else
            try {
              const schema::Schema schema(test["matches"]);
            } catch (const Error& error) {
              invalid("/props/test/matches", error.what());
            }
        } else if (!test.is_string() || !is_reference(test.string())) {
          invalid("/props/test", "a test is a reference to a boolean, or has a value and the schema that it matches");
        }
      }
      break;
    case Type::map:
      if (count != 1) invalid("", fmt::format("a Map has one child, and not {}", count));
      if (!element.over.is_array() && !(element.over.is_string() && is_reference(element.over.string())))
        invalid("/props/over", "is neither a list nor a reference to one");
      if (element.as.empty() || is_reserved(element.as) || element.as.find_first_of(".[") != std::string::npos)
        invalid("/props/as", fmt::format("{} cannot be the name of an item", quote(element.as)));
      if (element.initial && element.max_concurrency > 1)
        invalid("/props/initial", "items that run at once have none before them; leave out initial or maxConcurrency");
      break;
  }
  if (element.id.empty()) return;
  if (element.id.find_first_of(".[") != std::string::npos)
    return invalid("/props/id",
                   fmt::format("{} has a dot or a bracket, with which references go on", quote(element.id)));
  if (is_reserved(element.id) || items_.contains(element.id))
    return report("DUPLICATE_ID", node.path + "/props/id",
                  fmt::format("the name {} has a meaning already", quote(element.id)));
  if (const auto [found, is_new] = ids_.emplace(element.id, &node); !is_new)
    report("DUPLICATE_ID", node.path + "/props/id",
           fmt::format("the id {} is that of {} too", quote(element.id), found->second->path));
}

void Plan::find_operation(PlanNode& node, const operations::Registry& registry, bool internal) {
  const std::string& id = node.element->operation;
  if (problems_.size() >= kProblemsMax) return;
  node.specification = registry.find(id, internal);
  if (!node.specification) {
    std::vector<std::string> ids;
    for (const auto& each : registry.list(internal)) ids.push_back(each->id());
    const std::vector<std::string_view> names(ids.begin(), ids.end());
    const std::string_view nearest = nearest_name(id, names);
    report("UNKNOWN_OPERATION", node.path + "/props/name",
           fmt::format("there is no operation {}{}", quote(id),
                       nearest.empty() ? "" : fmt::format(". Did you mean {}?", nearest)));
  } else if (node.specification->kind == operations::Kind::subscription) {
    report("UNKNOWN_OPERATION", node.path + "/props/name",
           fmt::format("{} is a subscription; workflows call queries and mutations", id));
  }
}

void for_each_value(const PlanNode& node,
                    const std::function<void(const Value& value, const std::string& path, bool is_output)>& visit) {
  const Element& element = *node.element;
  const auto each = [&](const std::optional<Value>& value, std::string_view name, bool is_output = false) {
    if (value) visit(*value, fmt::format("{}/props/{}", node.path, name), is_output);
  };
  each(element.input, "input");
  if (element.test) {
    const Value* value = element.test->is_object() ? element.test->find("value") : nullptr;
    visit(value ? *value : *element.test, fmt::format("{}/props/test{}", node.path, value ? "/value" : ""), false);
  }
  if (element.type == Type::map) visit(element.over, node.path + "/props/over", false);
  each(element.initial, "initial");
  each(element.output, "output", true);
}

// ---- References ---------------------------------------------------------------------------------------------------------------

void Plan::check_references(PlanNode& node) {
  for_each_value(node, [&](const Value& value, const std::string& path, bool is_output) {
    for_each_reference(value, path, [&](const std::string& text, const std::string& place) {
      check_reference(node, text, place, is_output);
    });
  });
}

void Plan::check_reference(PlanNode& node, const std::string& text, const std::string& path, bool is_output) {
  std::string name;
  try {
    name = parse_reference(text).name;
  } catch (const Error& error) {
    return report("INVALID_REFERENCE", path, error.what());
  }
  if (is_output && result_inside(name, node)) return;
  std::string fact;
  const Source source = source_of(name, node, &fact);
  if (source.kind == Source::Kind::none)
    return report("MISSING_RESULT", path, fmt::format("{}: {}", quote(text), fact));
  if (source.kind == Source::Kind::result) depend(node, *source.node, path, text);
}

const PlanNode* Plan::result_inside(std::string_view name, const PlanNode& node) const {
  const auto found = ids_.find(name);
  if (found == ids_.end()) return nullptr;
  for (const PlanNode* at = found->second->parent; at; at = at->parent) {
    if (at->element->type == Type::map || at->element->type == Type::conditional) return nullptr;
    if (at == &node) return found->second;
  }
  return nullptr;
}

const PlanNode* Plan::previous_of(const PlanNode& at, const PlanNode** map) const {
  if (map) *map = nullptr;
  for (const PlanNode* node = &at; node->parent; node = node->parent) {
    if (node->parent->element->type == Type::sequential && node->index > 0)
      return node->parent->children[node->index - 1];
    if (node->parent->element->type == Type::map && node->parent->element->max_concurrency <= 1) {
      if (map) *map = node->parent;
      return node->parent;
    }
  }
  return nullptr;
}

Source Plan::source_of(std::string_view name, const PlanNode& at, std::string* fact) const {
  const auto none = [&](std::string why) {
    if (fact) *fact = std::move(why);
    return Source{};
  };
  if (name == "input") return {Source::Kind::input, nullptr};
  if (name == "previous") return {Source::Kind::previous, nullptr};
  for (const PlanNode* node = at.parent; node; node = node->parent) {
    if (node->element->type != Type::map) continue;
    if (name == "before") {
      if (node->element->max_concurrency <= 1) return {Source::Kind::before, node};
      return none("items of this Map run at once, so that none is before another");
    }
    if (node->element->as == name || name == "index")
      return {name == "index" ? Source::Kind::index : Source::Kind::item, node};
  }
  if (name == "index" || name == "before")
    return none(fmt::format("{} has a meaning inside of a Map only", quote(name)));
  const auto found = ids_.find(name);
  if (found == ids_.end()) {
    std::vector<std::string_view> names(std::begin(kReserved), std::end(kReserved));
    for (const auto& [id, node] : ids_) names.push_back(id);
    const std::string_view nearest = nearest_name(name, names);
    return none(fmt::format("there is no result {}{}", quote(name),
                            nearest.empty() ? "" : fmt::format(". Did you mean {}?", nearest)));
  }
  // What is inside of a map has many results, and what is inside of a conditional may have none.
  const auto here = line_of(at), there = line_of(*found->second);
  for (std::size_t i = 0; i + 1 < there.size(); ++i) {
    const bool is_shared = i < here.size() && here[i] == there[i] && i + 1 < here.size() && here[i + 1] == there[i + 1];
    const Type type = there[i]->element->type;
    if (!is_shared && (type == Type::map || type == Type::conditional))
      return none(fmt::format("{} is inside of a {}, and cannot be seen from here; refer to the {} by an id",
                              quote(name), name_of(type), name_of(type)));
  }
  return {Source::Kind::result, found->second};
}

void Plan::depend(PlanNode& from, const PlanNode& on, const std::string& path, const std::string& text) {
  const auto here = line_of(from), there = line_of(on);
  std::size_t fork = 0;
  while (fork < here.size() && fork < there.size() && here[fork] == there[fork]) ++fork;
  if (fork == here.size() || fork == there.size())
    return report("LATER_RESULT", path,
                  fmt::format("{}: {} contains this element, or is inside of it; its result comes later", quote(text),
                              shown(on)));
  const PlanNode& shared = *here[fork - 1];
  if (shared.element->type == Type::sequential && there[fork]->index > here[fork]->index)
    return report("LATER_RESULT", path, fmt::format("{}: {} comes later", quote(text), shown(on)));
  if (shared.element->type == Type::parallel) const_cast<PlanNode*>(here[fork])->waits_for.insert(there[fork]->index);
  for (std::size_t i = fork; i < here.size(); ++i) const_cast<PlanNode*>(here[i])->reads.insert(&on);
}

// Children of a parallel wait for each other; a circle would wait for ever.
void Plan::check_cycles(const PlanNode& node) {
  enum class Mark : std::uint8_t { fresh, open, done };
  std::vector<Mark> marks(node.children.size(), Mark::fresh);
  std::vector<std::size_t> path;
  const std::function<bool(std::size_t)> visit = [&](std::size_t i) {
    if (marks[i] == Mark::done) return false;
    path.push_back(i);
    if (marks[i] == Mark::open) return true;
    marks[i] = Mark::open;
    for (const std::size_t next : node.children[i]->waits_for)
      if (visit(next)) return true;
    path.pop_back();
    marks[i] = Mark::done;
    return false;
  };
  for (std::size_t i = 0; i < node.children.size(); ++i) {
    if (!visit(i)) continue;
    std::string circle;
    for (auto at = std::find(path.begin(), path.end(), path.back()); at != path.end(); ++at)
      circle += (circle.empty() ? "" : " -> ") + shown(*node.children[*at]);
    return report("CYCLE", node.path, fmt::format("elements wait for each other: {}", circle));
  }
}

// ---- Public -------------------------------------------------------------------------------------------------------------------

std::string to_string(const std::vector<Problem>& problems) {
  std::string text;
  for (const Problem& each : problems)
    text += fmt::format("{}{}: {} ({})", text.empty() ? "" : "\n", each.path, each.message, each.code);
  return text;
}

std::vector<Problem> check(const Template& workflow, const operations::Registry& registry, bool internal) {
  Plan plan(workflow, &registry, internal);
  if (plan.problems().empty()) check_types(workflow, plan);
  return plan.problems();
}

}  // namespace weft::workflow
