#include "serve/openapi_import.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <set>

#include "base/quote.hpp"
#include "operations/names.hpp"
#include "schema/definitions.hpp"
#include "weft/error.hpp"
#include "weft/operations/envelope.hpp"
#include "weft/operations/schema_import.hpp"
#include "weft/schema.hpp"

namespace weft::serve {
namespace {

namespace op = operations;

constexpr int kReferencesMax = 20;
constexpr std::string_view kSchemas = "#/components/schemas/";
constexpr std::string_view kMethods[] = {"get", "put", "post", "delete", "patch"};

[[noreturn]] void refuse_openapi(std::string_view place, std::string_view fact) {
  throw UsageError(fmt::format("OpenAPI: {}: {}", place, fact));
}

const Value& needed_member(const Value& object, std::string_view name, std::string_view place) {
  const Value* found = object.is_object() ? object.find(name) : nullptr;
  if (!found) refuse_openapi(place, fmt::format("{} is missing", quote(name)));
  return *found;
}

std::string text_member(const Value& object, std::string_view name, std::string_view place) {
  const Value& value = needed_member(object, name, place);
  if (!value.is_string()) refuse_openapi(place, fmt::format("{} is not a string", quote(name)));
  return value.string();
}

std::string optional_text(const Value& object, std::string_view name) {
  const Value* value = object.find(name);
  return value && value->is_string() ? value->string().substr(0, 10'000) : "";
}

// Headers that mean something to the connection, or that OpenAPI leaves to other members, are not those of a caller.
bool may_be_header(std::string_view name) {
  static constexpr std::string_view kNever[] = {
      "accept",  "authorization",     "connection", "content-length", "content-type",       "cookie", "host", "te",
      "trailer", "transfer-encoding", "upgrade",    "expect",         "proxy-authorization"};
  std::string lower;
  for (const char c : name) {
    if (!std::isalnum(static_cast<unsigned char>(c)) && c != '-' && c != '_') return false;
    lower += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  }
  return !lower.empty() && std::find(std::begin(kNever), std::end(kNever), lower) == std::end(kNever);
}

class OpenApiReader {
 public:
  OpenApiReader(const Value& document, const OpenApiOptions& options) : document_(document), options_(options) {}

  std::vector<HttpOperation> read() {
    if (!document_.is_object()) refuse_openapi("the description", "is not an object");
    if (const std::string version = text_member(document_, "openapi", "the description"); !version.starts_with("3.1."))
      refuse_openapi("the description", fmt::format("has version {}; 3.1 is read", quote(version, 40)));
    title_ = op::name_from(text_member(needed_member(document_, "info", "the description"), "title", "\"info\""));
    const std::string server = server_of_list(document_, "the description");
    const Value* paths = document_.find("paths");
    if (!paths || !paths->is_object()) refuse_openapi("the description", "\"paths\" is not an object");
    for (const auto& [path, item] : paths->members()) read_path(path, resolve(item, path), server);
    return std::move(operations_);
  }

 private:
  // What a value refers to, if it is a reference.
  const Value& resolve(const Value& value, std::string_view place) const {
    const Value* at = &value;
    for (int i = 0; i < kReferencesMax; ++i) {
      const Value* reference = at->is_object() ? at->find("$ref") : nullptr;
      if (!reference) return *at;
      if (!reference->is_string() || !reference->string().starts_with("#/"))
        refuse_openapi(place, "a reference leads to another document");
      at = &document_;
      std::string_view rest = std::string_view(reference->string()).substr(2);
      while (true) {
        const auto slash = rest.find('/');
        const std::string key = schema::unescaped(rest.substr(0, slash));
        at = at->is_object() ? at->find(key) : nullptr;
        if (!at) refuse_openapi(place, fmt::format("the reference {} leads nowhere", quote(reference->string(), 200)));
        if (slash == std::string_view::npos) break;
        rest = rest.substr(slash + 1);
      }
    }
    refuse_openapi(place, "references go in a circle");
  }

  std::string server_of_list(const Value& object, std::string_view place) const {
    const Value* list = object.find("servers");
    std::string url = "/";
    if (list && list->is_array() && !list->elements().empty())
      url = text_member(list->elements()[0], "url", fmt::format("\"servers\" of {}", place));
    if (url.find('{') != std::string::npos) refuse_openapi(place, "the URL of a server has variables");
    if (url.find("://") == std::string::npos) {
      if (options_.base.empty())
        refuse_openapi(place, "the URL of the server is relative; say where the description is from");
      const std::string& base = options_.base;
      const auto host_end = base.find('/', base.find("://") + 3);
      url = url.starts_with('/')
                ? base.substr(0, host_end) + url
                : base.substr(0, host_end == std::string::npos ? host_end : base.rfind('/')) + "/" + url;
    }
    while (url.ends_with('/')) url.pop_back();
    return url;
  }

  void read_path(const std::string& path, const Value& item, const std::string& all_server) {
    if (!item.is_object() || !path.starts_with('/')) refuse_openapi(quote(path, 200), "is not a path with an object");
    const std::string server = item.find("servers") ? server_of_list(item, path) : all_server;
    for (const std::string_view method : kMethods)
      if (const Value* operation = item.find(method)) {
        if (!operation->is_object()) refuse_openapi(path, fmt::format("{} is not an object", method));
        read_operation(path, std::string(method), *operation, item,
                       operation->find("servers") ? server_of_list(*operation, path) : server);
        if (operations_.size() > options_.operations_max)
          refuse_openapi("the description", fmt::format("has more than {} operations", options_.operations_max));
      }
  }

  void read_operation(const std::string& path, const std::string& method, const Value& operation, const Value& item,
                      const std::string& server) {
    const std::string place = fmt::format("{} {}", method, quote(path, 200));
    HttpOperation result{.server = server, .path = path};
    for (const char c : method) result.method += static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
    Value::Object properties;
    Value::Array required;
    // Parameters of the operation win over those of its path.
    for (const Value* owner : {&operation, &item}) {
      const Value* list = owner->find("parameters");
      if (!list) continue;
      if (!list->is_array()) refuse_openapi(place, "\"parameters\" is not a list");
      for (const Value& each : list->elements()) {
        const Value& parameter = resolve(each, place);
        const std::string name = text_member(parameter, "name", place), in = text_member(parameter, "in", place);
        if (in == "cookie") return;  // left out
        if (in == "header" && !may_be_header(name)) continue;
        if (in != "path" && in != "query" && in != "header")
          refuse_openapi(place, fmt::format("a parameter in {}", quote(in, 40)));
        if (properties.contains(name)) {
          if (owner == &operation) refuse_openapi(place, fmt::format("two parameters named {}", quote(name, 80)));
          continue;
        }
        const Value* schema = parameter.find("schema");
        properties.set(name, schema ? *schema : Value(true));
        const Value* needed = parameter.find("required");
        if (in == "path" || (needed && *needed == Value(true))) required.push_back(name);
        result.parameters.push_back({name, in});
      }
    }
    if (const Value* body = operation.find("requestBody")) {
      const Value& what = resolve(*body, place);
      const Value& content = needed_member(what, "content", place);
      const Value* json = content.is_object() ? content.find("application/json") : nullptr;
      if (!json || properties.contains("body")) return;  // left out
      const Value* schema = json->is_object() ? json->find("schema") : nullptr;
      properties.set("body", schema ? *schema : Value(true));
      const Value* needed = what.find("required");
      if (needed && *needed == Value(true)) required.push_back("body");
      result.has_body = true;
    }
    op::Specification& s = result.specification;
    s.kind = method == "get" ? op::Kind::query : op::Kind::mutation;
    s.title = optional_text(operation, "summary");
    s.description = optional_text(operation, "description");
    s.tags = {"http"};
    s.access.scopes = {"http:call"};
    Value::Object input{{"type", "object"}, {"properties", std::move(properties)}, {"additionalProperties", false}};
    if (!required.empty()) input.set("required", std::move(required));
    s.input = complete(Value(std::move(input)), place);
    s.output = output_of(operation, place);
    std::string name = optional_text(operation, "operationId");
    if (name.empty()) name = method + path;
    std::tie(s.space, s.name) = op::id_from(name, title_);
    for (int i = 2; !ids_.insert(s.id()).second; ++i)
      s.name = fmt::format("{}_{}", op::name_from(name.substr(0, 100)), i);
    try {
      schema::Schema{Value(s.input)};
      schema::Schema{Value(s.output)};
    } catch (Error& error) {
      error.add_context(fmt::format("reading {} of an OpenAPI description", place));
      throw;
    }
    operations_.push_back(std::move(result));
  }

  // The schema of the first answer of success, if that is JSON.
  Value output_of(const Value& operation, const std::string& place) {
    const Value* responses = operation.find("responses");
    if (!responses || !responses->is_object()) return true;
    for (const auto& [status, response] : responses->members()) {
      if (!status.starts_with('2')) continue;
      const Value& what = resolve(response, place);
      const Value* content = what.is_object() ? what.find("content") : nullptr;
      const Value* json = content && content->is_object() ? content->find("application/json") : nullptr;
      const Value* schema = json && json->is_object() ? json->find("schema") : nullptr;
      return schema ? complete(*schema, place) : Value(true);
    }
    return true;
  }

  Value complete(const Value& schema, const std::string& place) const {
    return schema::with_definitions(schema,
                                    {.prefixes = {kSchemas},
                                     .find = [&](const std::string& name) -> const Value& {
                                       return resolve(Value::object({{"$ref", std::string(kSchemas) + name}}), place);
                                     },
                                     .refuse = [&](const std::string& fact) { refuse_openapi(place, fact); },
                                     .definitions_max = options_.definitions_max});
  }

  const Value& document_;
  const OpenApiOptions& options_;
  std::string title_;
  std::set<std::string> ids_;
  std::vector<HttpOperation> operations_;
};

std::string percent_encoded(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (std::isalnum(static_cast<unsigned char>(c)) || c == '-' || c == '_' || c == '.' || c == '~')
      out += c;
    else
      out += fmt::format("%{:02X}", static_cast<unsigned char>(c));
  }
  return out;
}

std::string text_of_parameter(const Value& value, const std::string& name) {
  if (value.is_string()) return value.string();
  if (value.is_number() || value.is_boolean()) return value.to_json();
  throw op::OperationError(op::kValidationError,
                           fmt::format("the parameter {} is neither a text, a number nor a boolean", quote(name, 80)));
}

}  // namespace

std::string HttpOperation::url(const Value& input) const {
  std::string filled = path, query;
  for (const Parameter& each : parameters) {
    const Value* value = input.find(each.name);
    if (!value || value->is_null()) continue;
    if (each.in == "path") {
      const std::string text = percent_encoded(text_of_parameter(*value, each.name)), hole = "{" + each.name + "}";
      if (text.empty() || text == "." || text == "..")
        throw op::OperationError(op::kValidationError,
                                 fmt::format("the parameter {} would change the path", quote(each.name, 80)));
      for (auto at = filled.find(hole); at != std::string::npos; at = filled.find(hole, at + text.size()))
        filled.replace(at, hole.size(), text);
    } else if (each.in == "query") {
      const Value one = value->is_array() ? *value : Value::array({*value});
      for (const Value& item : one.elements())
        query += fmt::format("{}{}={}", query.empty() ? "?" : "&", percent_encoded(each.name),
                             percent_encoded(text_of_parameter(item, each.name)));
    }
  }
  return server + filled + query;
}

std::vector<HttpOperation> read_schema_operations(const Value& document, std::string base, const std::string& space) {
  while (base.ends_with('/')) base.pop_back();
  std::vector<HttpOperation> operations;
  for (op::Specification& s : op::specifications_from_schema(document, {.space = space})) {
    if (s.kind == op::Kind::subscription)
      throw UsageError(fmt::format("{} is a subscription; a URL answers queries and mutations", s.id()));
    if (s.access.is_open()) s.access.scopes = {"http:call"};
    std::string path = "/" + s.name;
    operations.push_back({.specification = std::move(s),
                          .method = "POST",
                          .server = base,
                          .path = std::move(path),
                          .parameters = {},
                          .input_is_body = true});
  }
  return operations;
}

std::vector<HttpOperation> read_openapi(const Value& description, const OpenApiOptions& options) {
  return OpenApiReader(description, options).read();
}

}  // namespace weft::serve
