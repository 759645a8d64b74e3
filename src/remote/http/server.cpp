#include "remote/http/server.hpp"

#include <optional>

#include "remote/http/listener.hpp"
#include "remote/http/operations_connection.hpp"

namespace weft::remote {

struct HttpServer::State {
  OperationsShared shared;
  std::optional<HttpListener> listener;

  State(const serve::Service& service, serve::Tokens tokens, const HttpOptions& options)
      : shared(service, std::move(tokens), options) {
    listener.emplace(
        shared, [this](OpenSocket socket) { return std::make_unique<OperationsConnection>(shared, std::move(socket)); },
        [this] {
          shared.service.handles.free_unused_for(shared.options.handle_time);
          shared.mcp.close_unused_for(shared.options.handle_time);
        });
  }
};

HttpServer::HttpServer(const serve::Service& service, serve::Tokens tokens, const HttpOptions& options)
    : state_(std::make_unique<State>(service, std::move(tokens), options)) {}

HttpServer::~HttpServer() {
  state_->listener.reset();
  state_->shared.mcp.close_all();
}

std::uint16_t HttpServer::port() const { return state_->listener->port(); }

}  // namespace weft::remote
