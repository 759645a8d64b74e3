#include "weft/workflow/call_graph.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "base/quote.hpp"
#include "weft/error.hpp"

namespace weft::workflow {
namespace {

constexpr std::string_view kStatuses[] = {"idle", "waiting", "ready", "running", "completed", "failed", "aborted"};

using operations::Clock;
using Milliseconds = std::chrono::milliseconds;

std::int64_t milliseconds(Clock::time_point time) {
  return std::chrono::duration_cast<Milliseconds>(time.time_since_epoch()).count();
}

}  // namespace

std::string_view name_of(Status status) { return kStatuses[static_cast<std::size_t>(status)]; }

CallGraph::Node& CallGraph::node_of(std::string_view id) {
  const auto found = places_.find(id);
  if (found != places_.end()) return nodes_[found->second];
  places_.emplace(id, nodes_.size());
  nodes_.emplace_back();
  nodes_.back().id = id;
  return nodes_.back();
}

void CallGraph::add(const operations::Event& event, Clock::time_point now) {
  if (event.request_id.empty()) return;
  Node& node = node_of(event.request_id);
  node.request_id = event.request_id;
  switch (event.type) {
    case operations::Event::Type::requested:
      node.operation = event.operation_id;
      node.parent = event.parent_request_id == event.request_id ? "" : event.parent_request_id;
      node.status = Status::running;
      node.started = now;
      return;
    case operations::Event::Type::responded:
      // Of a subscription more may come; the last answer's time is as near to its end as events tell.
    case operations::Event::Type::completed: node.status = Status::completed; break;
    case operations::Event::Type::aborted: node.status = Status::aborted; break;
    case operations::Event::Type::error:
      node.status = Status::failed;
      node.code = event.code;
      node.message = event.message;
      break;
  }
  node.ended = now;
}

void CallGraph::set(Node node) {
  if (node.id.empty()) throw UsageError("a node of a call graph needs an id");
  std::string_view ancestor = node.parent;
  while (!ancestor.empty()) {
    if (ancestor == node.id) throw UsageError(fmt::format("{} would be its own ancestor", quote(node.id)));
    const Node* found = find(ancestor);
    ancestor = found ? std::string_view(found->parent) : std::string_view();
  }
  node_of(node.id) = std::move(node);
}

const CallGraph::Node* CallGraph::find(std::string_view id) const {
  const auto found = places_.find(id);
  return found == places_.end() ? nullptr : &nodes_[found->second];
}

std::vector<std::string> CallGraph::with_status(Status status) const {
  std::vector<std::string> ids;
  for (const Node& node : nodes_)
    if (node.status == status) ids.push_back(node.id);
  return ids;
}

std::vector<std::string> CallGraph::roots() const {
  std::vector<std::string> ids;
  for (const Node& node : nodes_)
    if (node.parent.empty() || !find(node.parent)) ids.push_back(node.id);
  return ids;
}

std::vector<std::string> CallGraph::children(std::string_view id) const {
  std::vector<std::string> ids;
  for (const Node& node : nodes_)
    if (node.parent == id) ids.push_back(node.id);
  return ids;
}

std::vector<std::string> CallGraph::dependents(std::string_view id) const {
  std::vector<std::string> ids;
  for (const Node& node : nodes_)
    if (std::find(node.depends_on.begin(), node.depends_on.end(), id) != node.depends_on.end()) ids.push_back(node.id);
  return ids;
}

std::vector<std::string> CallGraph::lineage(std::string_view id) const {
  const Node* node = find(id);
  if (!node) throw UsageError(fmt::format("the call graph has no node {}", quote(id)));
  std::vector<std::string> ids;
  while (node && ids.size() <= nodes_.size()) {
    ids.push_back(node->id);
    node = node->parent.empty() ? nullptr : find(node->parent);
  }
  std::reverse(ids.begin(), ids.end());
  return ids;
}

std::optional<std::chrono::nanoseconds> CallGraph::duration(std::string_view id) const {
  const Node* node = find(id);
  if (!node) throw UsageError(fmt::format("the call graph has no node {}", quote(id)));
  if (!node->started) return std::nullopt;
  return node->ended.value_or(Clock::now()) - *node->started;
}

Value to_value(const CallGraph& graph) {
  Value::Array nodes, edges;
  for (const CallGraph::Node& node : graph.nodes()) {
    Value::Object object{{"id", node.id}};
    for (const auto& [name, text] : {std::pair("operation", &node.operation), std::pair("name", &node.name),
                                     std::pair("requestId", &node.request_id)})
      if (!text->empty()) object.set(name, *text);
    object.set("status", name_of(node.status));
    if (node.started) object.set("started", milliseconds(*node.started));
    if (node.ended) object.set("ended", milliseconds(*node.ended));
    if (!node.code.empty()) object.set("code", node.code);
    if (!node.message.empty()) object.set("message", node.message);
    nodes.push_back(std::move(object));
    if (!node.parent.empty())
      edges.push_back(Value::object({{"from", node.parent}, {"to", node.id}, {"kind", "triggered"}}));
    for (const std::string& each : node.depends_on)
      edges.push_back(Value::object({{"from", each}, {"to", node.id}, {"kind", "depends_on"}}));
  }
  return Value::object({{"nodes", std::move(nodes)}, {"edges", std::move(edges)}});
}

CallGraph call_graph_from(const Value& value) {
  CallGraph graph;
  std::map<std::string, CallGraph::Node> read;
  std::vector<std::string> order;
  const auto text = [](const Value& object, std::string_view name) {
    const Value* found = object.find(name);
    return found ? found->string() : std::string();
  };
  const auto time = [](const Value& object, std::string_view name) -> std::optional<Clock::time_point> {
    const Value* found = object.find(name);
    if (!found) return std::nullopt;
    constexpr std::int64_t kLatest = std::int64_t{1} << 43;  // in the year 2248, before nanoseconds overflow
    if (found->integer() < 0 || found->integer() > kLatest) throw UsageError(fmt::format("{} is not a time", name));
    return Clock::time_point(Milliseconds(found->integer()));
  };
  for (const Value& each : value["nodes"].elements()) {
    CallGraph::Node node;
    node.id = each["id"].string();
    node.operation = text(each, "operation");
    node.name = text(each, "name");
    node.request_id = text(each, "requestId");
    node.code = text(each, "code");
    node.message = text(each, "message");
    const auto status = std::find(std::begin(kStatuses), std::end(kStatuses), each["status"].string());
    if (status == std::end(kStatuses))
      throw UsageError(fmt::format("there is no status {}", quote(each["status"].string(), 40)));
    node.status = static_cast<Status>(status - std::begin(kStatuses));
    node.started = time(each, "started");
    node.ended = time(each, "ended");
    order.push_back(node.id);
    if (!read.emplace(node.id, std::move(node)).second)
      throw UsageError(fmt::format("the node {} occurs twice", quote(order.back())));
  }
  for (const Value& edge : value["edges"].elements()) {
    const auto found = read.find(edge["to"].string());
    if (found == read.end())
      throw UsageError(fmt::format("an edge leads to {}, which is not a node", quote(edge["to"].string())));
    if (edge["kind"] == Value("triggered"))
      found->second.parent = edge["from"].string();
    else if (edge["kind"] == Value("depends_on"))
      found->second.depends_on.push_back(edge["from"].string());
    else
      throw UsageError("an edge is neither triggered nor depends_on");
  }
  for (const std::string& id : order) graph.set(std::move(read.at(id)));
  return graph;
}

}  // namespace weft::workflow
