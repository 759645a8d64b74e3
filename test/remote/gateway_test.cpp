// Calls that pass several places: what the caller calls its request goes along, and a circle of places is refused.
#include <gtest/gtest.h>

#include "remote/every_transport.hpp"
#include "remote/http/mcp_transport.hpp"
#include "remote/http/openapi_client.hpp"
#include "serve/mcp_client.hpp"

namespace weft::remote::gateway_test {
namespace {

using namespace every_transport;

constexpr const char* kToken = "a-token-of-a-gateway";
const Value kAnyObject = Value::object({{"type", "object"}});

class Gateway : public EveryTransport {
 protected:
  Gateway() {
    registry_->add({.space = "place", .name = "tell", .input = kAnyObject, .output = kAnyObject},
                   [](op::Context& call) {
                     Value::Array via;
                     for (const std::string& name : call.via()) via.push_back(name);
                     return Value::object({{"request", call.client_request_id()}, {"via", std::move(via)}});
                   });
    // As from_call offers it, of whatever is the other place by then.
    registry_->add({.space = "place", .name = "circle", .input = kAnyObject, .output = kAnyObject},
                   [this](op::Context& call) {
                     ++turns_;
                     return other_->call(other_id_, call.input(), {.via = call.via()}).data;
                   });
  }
  std::shared_ptr<serve::Caller> caller(Way way) {
    if (way == Way::grpc)
      return std::make_shared<GrpcClient>(GrpcClientOptions{.address = address(way), .token = kToken});
    if (way == Way::nats)
      return std::make_shared<NatsClient>(
          NatsClientOptions{.nats = {.url = url_}, .token = kToken, .silence = 5s, .find_time = 100ms});
    const std::string place = "http://" + address(way);
    if (way == Way::mcp)
      return std::make_shared<serve::McpClient>(mcp_over_http({.url = place + "/mcp", .token = kToken}));
    return call_openapi({.place = place + "/openapi.json", .token = kToken, .allow_hosts = {}});
  }
  // A call of the operation whose id ends with `name`, through a registry that has imported the service.
  static Value through(op::Registry& imported, const std::string& name, const op::CallOptions& options) {
    op::Exchange gate(std::shared_ptr<op::Registry>(&imported, [](op::Registry*) {}));
    for (const auto& each : imported.list())
      if (each->id().ends_with(name)) {
        const bool is_http = each->input.to_json().find("\"body\"") != std::string::npos;
        const Value input = is_http ? Value::object({{"body", Value::Object()}}) : Value(Value::Object());
        Value data = gate.call(each->id(), input, options).data;
        const Value* wrapped = is_http ? data.find("data") : nullptr;  // OpenAPI's answers are whole envelopes
        return wrapped ? *wrapped : data;
      }
    throw UsageError("nothing ends with " + name);
  }

  std::shared_ptr<serve::Caller> other_;
  std::string other_id_;
  std::atomic<int> turns_ = 0;
};

TEST_F(Gateway, PassesOnWhatTheCallerCallsItsRequest) {
  begin(Value::array({Value::object({{"token", kToken}, {"id", "gate"}, {"scopes", Value::array({"*"})}})}));
  for (const Way way : ways()) {
    SCOPED_TRACE(name_of(way));
    op::Registry imported;
    from_call(imported, caller(way));
    op::Identity ann = imported.owner();
    ann.id = "ann";
    const Value told = through(imported, "tell", {.identity = ann, .client_request_id = "order 7", .via = {"first"}});
    EXPECT_EQ(told["request"], Value("ann/order 7"));
    EXPECT_EQ(told["via"].elements().size(), 3u) << "the first place, the gateway, and the service";
    EXPECT_EQ(told["via"].elements()[0], Value("first"));
    EXPECT_EQ(through(imported, "tell", {.identity = ann})["request"], Value(""));
    const std::string long_name(150, 'n');
    const Value shortened = through(imported, "tell", {.identity = ann, .client_request_id = long_name});
    EXPECT_EQ(shortened["request"].string().size(), 32u) << "servers take no longer names than 100";
  }
}

TEST_F(Gateway, ACircleOfPlacesIsRefused) {
  begin(Value::array({Value::object({{"token", kToken}, {"id", "gate"}, {"scopes", Value::array({"*"})}})}));
  for (const Way way : ways()) {
    SCOPED_TRACE(name_of(way));
    other_ = caller(way);
    turns_ = 0;
    for (const op::Specification& each : other_->operations())
      if (each.id().ends_with("circle")) other_id_ = each.id();
    // The refusal comes back through each place; HTTP and MCP have errors of their own that show it.
    std::string text;
    try {
      other_->call(other_id_, Value::Object());
    } catch (const op::OperationError& error) {
      text = error.code() + ": " + error.what() + " " + error.details().to_json();
    }
    EXPECT_TRUE(text.find("LOOP") != std::string::npos || text.find("508") != std::string::npos) << text;
    EXPECT_LE(turns_, 1);
  }
  other_.reset();
}

TEST_F(Gateway, DamagedListsOfPlacesAreRefused) {
  begin(Value::array({Value::object({{"token", kToken}, {"id", "gate"}, {"scopes", Value::array({"*"})}})}));
  const auto status_with = [&](const std::string& via) {
    HttpRequest request{.method = "POST",
                        .url = HttpUrl::parse("http://" + address(Way::http) + "/v1/operations/place.tell")};
    request.headers = {{"Authorization", std::string("Bearer ") + kToken}, {"Weft-Via", via}};
    return http_request(request).status;
  };
  EXPECT_EQ(status_with("a, b"), 200);
  EXPECT_EQ(status_with("a,,b"), 400);
  EXPECT_EQ(status_with(std::string(100, 'x')), 400);
  std::string many = "a";
  for (int i = 0; i < 15; ++i) many += ",a";
  EXPECT_EQ(status_with(many), 508) << "more places than a call passes";
  for (int i = 0; i < 20; ++i) many += ",a";
  EXPECT_EQ(status_with(many), 400);
}

}  // namespace
}  // namespace weft::remote::gateway_test
