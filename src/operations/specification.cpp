#include "weft/operations/specification.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "base/quote.hpp"
#include "weft/error.hpp"

namespace weft::operations {
namespace {

constexpr std::string_view kKinds[] = {"query", "mutation", "subscription"};

Value list_of(const std::vector<std::string>& texts) { return Value::Array(texts.begin(), texts.end()); }

std::vector<std::string> texts_of(const Value& value) {
  std::vector<std::string> texts;
  for (const Value& each : value.elements()) texts.push_back(each.string());
  return texts;
}

// Reads the members of an object; the rest are unknown.
class Members {
 public:
  Members(const Value& value, std::string_view what) : object_(value.members()), what_(what) {}
  template <class Read>
  void read(std::string_view name, bool required, const Read& read) {
    known_.push_back(name);
    const Value* member = object_.find(name);
    if (!member) {
      if (required) throw UsageError(fmt::format("{}: {} is missing", what_, quote(name)));
      return;
    }
    try {
      read(*member);
    } catch (Error& error) {
      error.add_context(fmt::format("reading {} of {}", quote(name), what_));
      throw;
    }
  }
  void read(std::string_view name, std::string& to, bool required = false) {
    read(name, required, [&](const Value& value) { to = value.string(); });
  }
  void read(std::string_view name, std::vector<std::string>& to) {
    read(name, false, [&](const Value& value) { to = texts_of(value); });
  }
  void done() const {
    for (const auto& [key, value] : object_)
      if (std::find(known_.begin(), known_.end(), key) == known_.end())
        throw UsageError(fmt::format("{}: unknown member {}", what_, quote(key)));
  }

 private:
  const Value::Object& object_;
  std::string_view what_;
  std::vector<std::string_view> known_;
};

bool holds(const std::vector<std::string>& list, std::string_view wanted) {
  return std::find(list.begin(), list.end(), wanted) != list.end();
}

}  // namespace

std::string_view name_of(Kind kind) { return kKinds[static_cast<std::size_t>(kind)]; }

Value to_value(const Specification& s) {
  Value::Object object;
  object.set("namespace", s.space);
  object.set("name", s.name);
  object.set("version", s.version);
  object.set("type", name_of(s.kind));
  if (!s.title.empty()) object.set("title", s.title);
  if (!s.description.empty()) object.set("description", s.description);
  if (!s.tags.empty()) object.set("tags", list_of(s.tags));
  object.set("inputSchema", s.input);
  object.set("outputSchema", s.output);
  if (!s.errors.empty()) {
    Value::Array errors;
    for (const DeclaredError& error : s.errors)
      errors.push_back(Value::object({{"code", error.code},
                                      {"description", error.description},
                                      {"schema", error.schema},
                                      {"httpStatus", error.http_status}}));
    object.set("errors", std::move(errors));
  }
  if (!s.access.is_open()) {
    Value::Object access;
    if (!s.access.scopes.empty()) access.set("requiredScopes", list_of(s.access.scopes));
    if (!s.access.any_scopes.empty()) access.set("requiredScopesAny", list_of(s.access.any_scopes));
    if (!s.access.resource_type.empty()) {
      access.set("resourceType", s.access.resource_type);
      access.set("resourceAction", s.access.resource_action);
      access.set("resourceInput", s.access.resource_input);
    }
    if (!s.access.function.empty()) access.set("function", s.access.function);
    object.set("accessControl", std::move(access));
  }
  if (s.metadata.is_object() && !s.metadata.members().empty()) object.set("metadata", s.metadata);
  return object;
}

Specification specification_from(const Value& value) {
  Specification s;
  Members members(value, "a specification");
  members.read("namespace", s.space, true);
  members.read("name", s.name, true);
  members.read("version", s.version);
  members.read("type", true, [&](const Value& kind) {
    const auto found = std::find(std::begin(kKinds), std::end(kKinds), kind.string());
    if (found == std::end(kKinds))
      throw UsageError(fmt::format("{} is not query, mutation or subscription", quote(kind.string())));
    s.kind = static_cast<Kind>(found - std::begin(kKinds));
  });
  members.read("title", s.title);
  members.read("description", s.description);
  members.read("tags", s.tags);
  members.read("inputSchema", false, [&](const Value& schema) { s.input = schema; });
  members.read("outputSchema", false, [&](const Value& schema) { s.output = schema; });
  members.read("errors", false, [&](const Value& errors) {
    for (const Value& each : errors.elements()) {
      DeclaredError error;
      Members fields(each, "a declared error");
      fields.read("code", error.code, true);
      fields.read("description", error.description);
      fields.read("schema", false, [&](const Value& schema) { error.schema = schema; });
      fields.read("httpStatus", false, [&](const Value& status) {
        const std::int64_t code = status.integer();
        if (code < 400 || code > 599) throw UsageError(fmt::format("{} is not an HTTP status of an error", code));
        error.http_status = static_cast<int>(code);
      });
      fields.done();
      s.errors.push_back(std::move(error));
    }
  });
  members.read("accessControl", false, [&](const Value& access) {
    Members fields(access, "the access control");
    fields.read("requiredScopes", s.access.scopes);
    fields.read("requiredScopesAny", s.access.any_scopes);
    fields.read("resourceType", s.access.resource_type);
    fields.read("resourceAction", s.access.resource_action);
    fields.read("resourceInput", s.access.resource_input);
    fields.read("function", s.access.function);
    fields.done();
  });
  members.read("metadata", false, [&](const Value& metadata) {
    metadata.members();
    s.metadata = metadata;
  });
  members.done();
  return s;
}

bool Identity::has_scope(std::string_view scope) const { return holds(scopes, scope); }

bool Identity::may(std::string_view type, std::string_view resource, std::string_view action) const {
  for (const std::string& key : {fmt::format("{}:{}", type, resource), fmt::format("{}:*", type)})
    if (const auto found = resources.find(key); found != resources.end())
      if (holds(found->second, action) || holds(found->second, "*")) return true;
  return false;
}

}  // namespace weft::operations
