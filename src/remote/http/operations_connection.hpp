// Operations, handles, sessions, and messages of MCP over a connection.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "remote/http/connection.hpp"
#include "remote/http/mcp_sessions.hpp"
#include "serve/service.hpp"

namespace weft::remote {

struct OperationsShared : HttpShared {
  serve::Service service;
  serve::Tokens tokens;
  McpSessions mcp;

  OperationsShared(const serve::Service& service, serve::Tokens tokens, const HttpOptions& options)
      : HttpShared{options}, service(service), tokens(std::move(tokens)), mcp(this->service, options.version) {}
};

/// Calls run on threads of the exchange; the connection waits for them and looks whether the client is still there.
class OperationsConnection : public HttpConnection {
 public:
  OperationsConnection(OperationsShared& shared, OpenSocket socket)
      : HttpConnection(shared, std::move(socket)), shared_(shared) {}

 protected:
  void authorise(const Request& head) override;
  bool answer(const Request& request) override;
  Value error_body(int status, const operations::OperationError& error) const override;
  int status_of(const operations::OperationError& error) const override;
  void add_headers(Response& response) override;
  std::string_view client() const override;

 private:
  bool call(const std::string& id, const Request& request);
  bool mcp(const Request& request);
  bool send_reply(McpReplies& replies);
  bool send_replies(McpReplies& replies);
  bool send_events(operations::Subscription& answers, operations::WireTensors form, const operations::Holder& holder);
  std::string session_key(std::string_view name) const;

  OperationsShared& shared_;
  std::string session_;
  const operations::Identity* identity_ = nullptr;
  std::shared_ptr<const operations::Specification> specification_;
};

}  // namespace weft::remote
