// What comes from other programs: OpenAPI descriptions, frames, messages of MCP to our server and from other servers. Damaged ones are
// taken or refused by name, in time and within little memory, and nothing crashes.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <random>
#include <thread>

#include "base/mutations.hpp"
#include "catalogue/frame.hpp"
#include "serve/mcp.hpp"
#include "serve/mcp_client.hpp"
#include "serve/openapi_import.hpp"
#include "weft/catalogue.hpp"
#include "weft/weft.hpp"

namespace weft::serve::hostile_test {
namespace {

namespace op = operations;
constexpr std::size_t kMemory = std::size_t{512} << 20;

// Visits texts with damage: every kind of `for_each_mutation`, and then words that mean something where they should not be.
template <class Visit>
void for_each_damage(const std::string& good, const Visit& visit) {
  const test::MemoryLimit limit(kMemory);
  test::for_each_mutation(good, good.size(), 500, visit);
  static const char* const kWords[] = {"null",
                                       "{}",
                                       "[]",
                                       "-1",
                                       "1e308",
                                       "\"\"",
                                       "\"$ref\": \"#\",",
                                       "\"#/\"",
                                       "18446744073709551616",
                                       "\"/{a}{a}\"",
                                       "\"http://a@b/\"",
                                       "[[[[[[[[",
                                       "\\ud800",
                                       "\"tools/call\"",
                                       "\"2.0\"",
                                       "\xff",
                                       "\"$tensor\": 3,",
                                       "true"};
  std::mt19937_64 random(9);
  const int rounds = test::every_mutation() ? 200'000 : 3'000;
  for (int i = 0; i < rounds; ++i) {
    std::string text = good;
    for (std::uint64_t k = 1 + random() % 3; k > 0; --k) {
      const std::string word = kWords[random() % std::size(kWords)];
      // In place of a value: from a colon or a comma to the next comma or brace.
      std::size_t at = text.find_first_of(":,[", random() % text.size());
      if (at == std::string::npos) continue;
      const std::size_t end = text.find_first_of(",}]", at + 1);
      if (end == std::string::npos) continue;
      text.replace(at + 1, random() % 3 ? end - at - 1 : 0, word);
    }
    visit(text, "round " + std::to_string(i));
  }
}

// Reads every text with damage. Errors for users are refusals, of which there must be many, as there must be texts that pass.
template <class Read>
void expect_taken_or_refused(const std::vector<std::string>& good, const Read& read) {
  int taken = 0, refused = 0;
  for (const std::string& each : good)
    for_each_damage(each, [&](const std::string& text, const std::string& what) {
      SCOPED_TRACE(what);
      try {
        read(text);
        ++taken;
      } catch (const InternalError& error) {
        ADD_FAILURE() << error.what();
      } catch (const Error&) {
        ++refused;
      }
    });
  EXPECT_GT(taken, 100);
  EXPECT_GT(refused, 100);
  fmt::print("{} inputs were taken, {} refused\n", taken, refused);
}

TEST(HostileOpenApi, DamagedDescriptionsAreTakenOrRefused) {
  const std::string good =
      R"({"openapi": "3.1.0", "info": {"title": "Pets & more", "version": "1"}, "servers": [{"url": "/api"}],
    "paths": {"/pets/{name}": {"parameters": [{"$ref": "#/components/parameters/Name"}],
        "get": {"operationId": "findPet", "parameters": [{"name": "tag", "in": "query", "schema": {"type": "array", "items": {"type": "string"}}}],
          "responses": {"200": {"description": "", "content": {"application/json": {"schema": {"$ref": "#/components/schemas/Pet"}}}}}},
        "put": {"requestBody": {"required": true, "content": {"application/json": {"schema": {"$ref": "#/components/schemas/Pet"}}}}, "responses": {}}},
      "/x": {"post": {"operationId": "a.b", "responses": {"default": {"description": ""}}}}},
    "components": {"parameters": {"Name": {"name": "name", "in": "path", "required": true, "schema": {"type": "string"}}},
      "schemas": {"Pet": {"type": "object", "properties": {"age": {"type": "integer"}, "friends": {"items": {"$ref": "#/components/schemas/Pet"}}}}}}})";
  expect_taken_or_refused({good}, [](const std::string& text) {
    op::Registry registry;
    for (const HttpOperation& each : read_openapi(Value::parse(text), {.base = "http://127.0.0.1/"})) {
      try {
        (void)each.url(Value::parse(R"({"name": "Rex/..", "tag": ["a", "b"], "body": {}})"));
      } catch (const op::OperationError& error) {
        EXPECT_EQ(error.code(), op::kValidationError);
      }
      if (!registry.find(each.specification.id(), true))
        registry.add(each.specification, [](op::Context&) { return Value(); });
    }
  });
}

struct HostileService : testing::Test {
  HostileService() { set_default_device(kCpu); }
  std::shared_ptr<op::Registry> registry = std::make_shared<op::Registry>();
  op::Catalogue catalogue{registry, {.tensor_bytes_max = 1 << 20, .handle_bytes_max = 1 << 20}};
  op::Exchange exchange{registry};
  Service service{exchange, catalogue.handles()};
};

TEST_F(HostileService, DamagedFramesAreTakenOrRefused) {
  const Tensor x = tensor({{1.0f, -2.5f, 3.0f}}), n = tensor({7, 8});
  const Value value = Value::object({{"x", Value::array({x, 3})}, {"n", n}, {"text", "four"}});
  const std::string frame = op::Frame(value, op::WireTensors::data, catalogue.handles(), "me").to_string();
  const std::string json = op::to_wire(value, op::WireTensors::data, catalogue.handles(), "me").to_json();
  expect_taken_or_refused({frame, json}, [&](const std::string& bytes) {
    try {
      const Value read = op::from_frame(bytes, catalogue.handles(), "me");
      (void)op::Frame(read, op::WireTensors::data, catalogue.handles(), "me").to_string();
    } catch (const op::OperationError& error) {
      EXPECT_EQ(error.code(), op::kValidationError) << error.what();
      throw;
    } catch (const Error& error) {
      ADD_FAILURE() << "an error without a code: " << error.what();
    }
  });
}

TEST_F(HostileService, DamagedMessagesOfMcpAreAnswered) {
  McpSession session(service, {.identity = registry->owner()});
  const std::string messages[] = {
      R"({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "t", "version": "0"}}})",
      R"({"jsonrpc": "2.0", "id": "a", "method": "tools/list", "params": {"cursor": "100"}})",
      R"({"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": {"name": "tensor.add", "arguments": {"x": {"$tensor": {"dtype": "f32", "shape": [2], "data": "AACAPwAAAEA="}}, "y": 1}, "_meta": {"progressToken": 3}}})",
      R"({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 2}})"};
  for (const std::string& good : messages)
    for_each_damage(good, [&](const std::string& text, const std::string& what) {
      SCOPED_TRACE(what);
      (void)look_at_mcp(text);
      session.take(text, [&](std::string_view line) {
        EXPECT_TRUE(Value::parse(line).is_object()) << line;
        return true;
      });
    });
  for (int i = 0; i < 2000 && session.is_busy(); ++i) std::this_thread::sleep_for(std::chrono::milliseconds(5));
  EXPECT_FALSE(session.is_busy());
}

// Whoever has an answer may give its id to the next call.
TEST_F(HostileService, AnIdOfMcpMayBeUsedAgainAtOnce) {
  McpSession session(service, {.identity = registry->owner()});
  std::atomic<int> answered = 0, refused = 0;
  for (int i = 0; i < 2000; ++i) {
    session.take(
        R"({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "handle.list", "arguments": {}}})",
        [&](std::string_view line) {
          if (Value::parse(line).find("error")) ++refused;
          ++answered;
          return true;
        });
    while (answered <= i) std::this_thread::yield();
  }
  EXPECT_EQ(refused, 0);
}

// A server whose answers are damaged in turn.
class DamagedServer : public McpTransport {
 public:
  DamagedServer(std::size_t damaged, const std::string& text) : damaged_(damaged), text_(text) {}
  void start(McpReports reports) override { reports_ = std::move(reports); }
  void send(const std::string& message, std::int64_t request) override {
    if (request == 0) return;
    const std::string method = Value::parse(message)["method"].string();
    const std::size_t place = method == "initialize" ? 0 : method == "tools/list" ? 1 : 2;
    std::string answer = place == damaged_ ? text_ : good(place);
    if (const auto at = answer.find("ID"); at != std::string::npos) answer.replace(at, 2, std::to_string(request));
    if (reports_.take(answer) != request)
      reports_.failed(request, {.kind = McpFailure::Kind::refused, .reason = "it is damaged"});
  }
  static std::string good(std::size_t place) {
    static const char* const kAnswers[] = {
        R"({"jsonrpc": "2.0", "id": ID, "result": {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}, "serverInfo": {"name": "a b", "version": "1"}}})",
        R"({"jsonrpc": "2.0", "id": ID, "result": {"tools": [{"name": "say", "description": "d", "inputSchema": {"type": "object", "properties": {"x": {"$ref": "#/$defs/n"}}, "$defs": {"n": {"type": "number", "default": 3}}}, "outputSchema": {"type": "object", "properties": {"t": {"x-tensor": true, "type": "object"}}}, "annotations": {"readOnlyHint": true}}, {"name": "a.b", "inputSchema": {"type": "object"}}]}})",
        R"({"jsonrpc": "2.0", "id": ID, "result": {"content": [{"type": "text", "text": "hello"}], "structuredContent": {"t": {"$tensor": {"dtype": "f32", "shape": [1], "data": "AACAPw=="}}}, "isError": false}})"};
    return kAnswers[place];
  }

 private:
  const std::size_t damaged_;
  const std::string text_;
  McpReports reports_;
};

TEST_F(HostileService, DamagedAnswersOfMcpServersAreErrors) {
  for (std::size_t place = 0; place < 3; ++place)
    expect_taken_or_refused({DamagedServer::good(place)}, [&](const std::string& text) {
      const auto client = std::make_shared<McpClient>(
          std::make_unique<DamagedServer>(place, text),
          McpClientOptions{.patience = std::chrono::milliseconds(200), .pause = std::chrono::milliseconds(1)});
      op::Registry imported;
      from_call(imported, client);
      for (const op::Specification& each : client->operations())
        client->call(each.id(), Value::parse(R"({"x": 1})"), {});
    });
}

}  // namespace
}  // namespace weft::serve::hostile_test
