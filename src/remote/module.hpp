// What the command uses of this folder. The folder is a shared library, libweft_remote.so, that the command loads when it needs the
// network: gRPC and NATS bring 50 libraries, which would triple the time that the command takes to start. The library uses the
// engine that is in the command.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "remote/grpc/client.hpp"
#include "remote/grpc/server.hpp"
#include "remote/http/mcp_transport.hpp"
#include "remote/http/openai_server.hpp"
#include "remote/http/openapi_client.hpp"
#include "remote/http/server.hpp"
#include "remote/nats/client.hpp"
#include "remote/nats/worker.hpp"

namespace weft::remote {

/// Serves until it is destroyed.
class Server {
 public:
  virtual ~Server() = default;
  virtual std::string name() const = 0;  ///< its port, or the id of a worker
};

class OpenAiService : public Server {
 public:
  virtual void set_model(llm::Model model) = 0;
  virtual void set_transcriber(speech::Transcriber transcriber, std::optional<speech::Detector> detector,
                               const std::string& name) = 0;
  virtual void set_voice(speech::Voice voice, const std::string& name) = 0;
  virtual void set_encoder(encoder::Model model, const std::string& name) = 0;
  virtual void set_reranker(encoder::Model model, const std::string& name) = 0;
  virtual void drain(std::chrono::milliseconds time) = 0;
};

struct Module {
  const char* version;  ///< of Weft; another version's command does not fit
  std::unique_ptr<OpenAiService> (*serve_openai)(const OpenAiOptions&);
  std::unique_ptr<Server> (*serve_http)(const serve::Service&, serve::Tokens, const HttpOptions&);
  std::unique_ptr<Server> (*serve_grpc)(const serve::Service&, serve::Tokens, const GrpcOptions&);
  std::unique_ptr<Server> (*serve_nats)(const serve::Service&, serve::Tokens, const NatsWorkerOptions&);
  std::shared_ptr<serve::Caller> (*call_grpc)(const GrpcClientOptions&);
  std::shared_ptr<serve::Caller> (*call_nats)(const NatsClientOptions&);
  bool (*nats_reaches)(const NatsOptions&, const NatsOptions&);
  std::unique_ptr<serve::McpTransport> (*mcp_over_http)(const McpHttpOptions&);
  std::shared_ptr<serve::Caller> (*call_openapi)(const OpenApiClientOptions&);
};

/// The one function that the library exports.
extern "C" const Module* weft_remote_module();

}  // namespace weft::remote
