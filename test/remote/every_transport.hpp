// One service behind every transport, and clients of each that are used in the same way.
#pragma once

#include <array>
#include <atomic>
#include <mutex>

#include "base/sanitized.hpp"
#include "catalogue/wire.hpp"
#include "remote/grpc/client.hpp"
#include "remote/grpc/server.hpp"
#include "remote/http/client.hpp"
#include "remote/http/server.hpp"
#include "remote/nats_service.hpp"

namespace weft::remote::every_transport {

namespace op = operations;
using namespace std::chrono_literals;
/// What each test uploads, in elements of f32; the server has room for one of them at a time over HTTP.
inline constexpr Extent kUpload = test::kSanitized ? 1 << 16 : 1 << 20;
inline constexpr std::uint64_t kUploadsBytesMax = 10 * kUpload;
inline constexpr auto kHandleTime = test::kSanitized ? 15s : 2s;

template <class Condition>
bool soon(const Condition& condition) {
  return nats_test::soon(condition, test::kSanitized ? 90s : 20s);
}

enum class Way : std::uint8_t { grpc, http, mcp, nats };
// gRPC keeps step with locks of Abseil, which is not instrumented: to ThreadSanitizer nothing that its threads hand over is handed over.
#ifdef __SANITIZE_THREAD__
inline constexpr bool kTriesGrpc = false;
#else
inline constexpr bool kTriesGrpc = true;
#endif
/// All, or all that the sanitizer of this build understands.
inline const std::vector<Way>& ways() {
  static const std::vector<Way> all =
      kTriesGrpc ? std::vector{Way::grpc, Way::http, Way::mcp, Way::nats} : std::vector{Way::http, Way::mcp, Way::nats};
  return all;
}
inline const char* name_of(Way way) {
  static const char* const kNames[] = {"gRPC", "HTTP", "MCP", "NATS"};
  return kNames[static_cast<int>(way)];
}

/// A client by one of the ways. Over HTTP and MCP it sends what it is told to, right or wrong.
class AnyClient {
 public:
  /// Errors of all functions: OperationError.
  AnyClient(Way way, std::string address, std::string token)
      : way_(way), address_(std::move(address)), token_(std::move(token)) {
    if (way == Way::grpc)
      caller_ = std::make_shared<GrpcClient>(GrpcClientOptions{.address = address_, .token = token_});
    if (way == Way::nats)
      caller_ = std::make_shared<NatsClient>(
          NatsClientOptions{.nats = {.url = address_}, .token = token_, .silence = 5s, .find_time = 100ms});
    if (way == Way::mcp)
      rpc("initialize",
          R"({"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "t", "version": "0"}})");
  }

  /// The first answer. With `follows`, all are read, which may take for ever.
  Value call(const std::string& id, const Value& input, bool keeps_tensors = false, bool follows = false) {
    if (caller_) {
      Value first;
      caller_->run(id, input, {.keeps_tensors = keeps_tensors}, [&](op::Envelope envelope) {
        first = std::move(envelope.data);
        return follows;
      });
      return first;
    }
    op::Handles none;
    const std::string json = op::to_wire(input, op::WireTensors::data, none, "").to_json();
    if (way_ == Way::mcp) {
      const Value result = rpc("tools/call", fmt::format(R"({{"name": "{}", "arguments": {}}})", id, json));
      if (result["isError"] == Value(true)) fail(result["_meta"]["error"]);
      return result["structuredContent"];
    }
    Headers headers;
    if (keeps_tensors) headers.emplace_back("Weft-Tensors", "handles");
    return post("/v1/operations/" + id, json, headers, follows)["data"];
  }

 private:
  using Headers = std::vector<std::pair<std::string, std::string>>;

  [[noreturn]] static void fail(const Value& error) {
    throw op::OperationError(error["code"].string(), error["message"].string());
  }

  Value rpc(const std::string& method, const std::string& params) {
    const std::string message =
        fmt::format(R"({{"jsonrpc": "2.0", "id": {}, "method": "{}", "params": {}}})", ++last_id_, method, params);
    Value answer = post("/mcp", message, {}, false);
    if (const Value* error = answer.find("error")) {
      constexpr int kInvalidParams = -32602;  // there is no such tool
      throw op::OperationError((*error)["code"] == Value(kInvalidParams) ? op::kNotFound : op::kUnknownError,
                               (*error)["message"].string());
    }
    return answer["result"];
  }

  // The JSON of the answer, or of the first event.
  Value post(const std::string& path, const std::string& body, Headers headers, bool follows) {
    HttpRequest request{.method = "POST", .url = HttpUrl::parse("http://" + address_ + path)};
    request.headers = std::move(headers);
    request.headers.emplace_back("Content-Type", "application/json");
    if (!token_.empty()) request.headers.emplace_back("Authorization", "Bearer " + token_);
    if (!session_.empty()) request.headers.emplace_back("Mcp-Session-Id", session_);
    request.body = body;
    request.deadline = op::Clock::now() + 1h;
    std::string text;
    bool is_stream = false;
    const HttpReply reply = http_request(request, [&](const HttpReply& head, std::string_view bytes) {
      is_stream = head.header("Content-Type") == "text/event-stream";
      text += bytes;
      return follows || !is_stream || text.find("\n\n") == std::string::npos;
    });
    if (const std::string_view session = reply.header("Mcp-Session-Id"); !session.empty()) session_ = session;
    if (is_stream) {
      const auto data = text.find("data: ");
      const Value value = Value::parse(text.substr(data + 6, text.find('\n', data) - data - 6));
      if (!text.starts_with("event: call.responded")) fail(value);
      return value;
    }
    Value value = Value::parse(text);
    if (reply.status != 200) fail(value["error"]);
    return value;
  }

  const Way way_;
  const std::string address_, token_;
  std::string session_;
  int last_id_ = 0;
  std::shared_ptr<serve::Caller> caller_;
};

/// The fixture. Tests add operations, and then `begin`.
class EveryTransport : public nats_test::Nats {
 protected:
  /// `tokens`: the list of a file of tokens.
  void begin(const Value& tokens, std::chrono::seconds handle_time = kHandleTime) {
    const auto file = folder_ / "every_transport.json";
    std::ofstream(file) << Value::object({{"tokens", tokens}}).to_json();
    const auto load = [&] { return serve::Tokens::load(file, *registry_); };
    const auto log = [this](std::string_view line) {
      const std::lock_guard lock(log_mutex_);
      log_ += std::string(line) + "\n";
    };
    const serve::Service service{exchange_, catalogue_.handles()};
    if (kTriesGrpc) grpc_.emplace(service, load(), GrpcOptions{.log = log});
    http_.emplace(service, load(),
                  HttpOptions{.bodies_bytes_max = kUploadsBytesMax, .handle_time = handle_time, .log = log});
    nats_.emplace(service, load(), NatsWorkerOptions{.nats = {.url = url_}, .heartbeat = 100ms, .log = log});
  }
  std::string address(Way way) const {
    if (way == Way::nats) return url_;
    return fmt::format("127.0.0.1:{}", way == Way::grpc ? grpc_->port() : http_->port());
  }
  AnyClient client(Way way, std::string token) const { return {way, address(way), std::move(token)}; }
  op::Handles& handles() { return catalogue_.handles(); }
  std::string log() {
    const std::lock_guard lock(log_mutex_);
    return log_;
  }

  std::mutex log_mutex_;
  std::string log_;
  std::shared_ptr<op::Registry> registry_ = std::make_shared<op::Registry>();
  op::Catalogue catalogue_{registry_};
  op::Exchange exchange_{registry_};
  std::optional<GrpcServer> grpc_;
  std::optional<HttpServer> http_;
  std::optional<NatsWorker> nats_;
};

}  // namespace weft::remote::every_transport
