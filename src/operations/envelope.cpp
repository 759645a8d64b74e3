#include "weft/operations/envelope.hpp"

#include <fmt/format.h>

#include "base/quote.hpp"
#include "weft/error.hpp"

namespace weft::operations {
namespace {

std::int64_t milliseconds(Clock::time_point time) {
  return std::chrono::duration_cast<std::chrono::milliseconds>(time.time_since_epoch()).count();
}

}  // namespace

Value to_value(const Envelope& envelope) {
  Value::Object meta;
  if (const auto* local = std::get_if<LocalSource>(&envelope.source)) {
    meta.set("source", "local");
    meta.set("operationId", local->operation_id);
    meta.set("timestamp", milliseconds(local->timestamp));
  } else if (const auto* http = std::get_if<HttpSource>(&envelope.source)) {
    meta.set("source", "http");
    meta.set("statusCode", http->status_code);
    Value::Object headers;
    for (const auto& [name, value] : http->headers) headers.set(name, value);
    meta.set("headers", std::move(headers));
    meta.set("contentType", http->content_type);
  } else {
    const auto& mcp = std::get<McpSource>(envelope.source);
    meta.set("source", "mcp");
    meta.set("isError", mcp.is_error);
    meta.set("content", mcp.content);
    if (mcp.structured_content) meta.set("structuredContent", *mcp.structured_content);
    if (mcp.meta) meta.set("_meta", *mcp.meta);
  }
  if (!envelope.warnings.empty())
    meta.set("warnings", Value::Array(envelope.warnings.begin(), envelope.warnings.end()));
  return Value::object({{"data", envelope.data}, {"meta", std::move(meta)}});
}

Envelope envelope_from(const Value& value) {
  try {
    Envelope envelope{.data = value["data"]};
    const Value& meta = value["meta"];
    const std::string& source = meta["source"].string();
    if (source == "local") {
      envelope.source = LocalSource{meta["operationId"].string(),
                                    Clock::time_point(std::chrono::milliseconds(meta["timestamp"].integer()))};
    } else if (source == "http") {
      HttpSource http{static_cast<int>(meta["statusCode"].integer()), {}, meta["contentType"].string()};
      for (const auto& [name, text] : meta["headers"].members()) http.headers.emplace_back(name, text.string());
      envelope.source = std::move(http);
    } else if (source == "mcp") {
      McpSource mcp{meta["isError"].boolean(), meta["content"], std::nullopt, std::nullopt};
      if (const Value* content = meta.find("structuredContent")) mcp.structured_content = *content;
      if (const Value* inner = meta.find("_meta")) mcp.meta = *inner;
      envelope.source = std::move(mcp);
    } else {
      throw UsageError(fmt::format("its source is {}, and not local, http or mcp", quote(source)));
    }
    if (const Value* warnings = meta.find("warnings"))
      for (const Value& warning : warnings->elements()) envelope.warnings.push_back(warning.string());
    return envelope;
  } catch (const UsageError& error) {
    throw UsageError(fmt::format("this is not an envelope {{data, meta}}: {}", error.what()));
  }
}

std::string_view name_of(Event::Type type) {
  constexpr std::string_view kNames[] = {"call.requested", "call.responded", "call.completed", "call.aborted",
                                         "call.error"};
  return kNames[static_cast<std::size_t>(type)];
}

Value to_value(const Event& event) {
  Value::Object object;
  object.set("event", name_of(event.type));
  object.set("requestId", event.request_id);
  switch (event.type) {
    case Event::Type::requested:
      object.set("operationId", event.operation_id);
      object.set("input", event.input);
      if (!event.parent_request_id.empty()) object.set("parentRequestId", event.parent_request_id);
      if (event.deadline) object.set("deadline", milliseconds(*event.deadline));
      if (!event.identity.empty()) object.set("identity", event.identity);
      break;
    case Event::Type::responded: object.set("output", to_value(*event.output)); break;
    case Event::Type::error:
      object.set("code", event.code);
      object.set("message", event.message);
      if (!event.details.is_null()) object.set("details", event.details);
      break;
    case Event::Type::completed:
    case Event::Type::aborted: break;
  }
  return object;
}

}  // namespace weft::operations
