#include "remote/module.hpp"

namespace weft::remote {
namespace {

template <class T>
class Running : public Server {
 public:
  template <class Options>
  Running(const serve::Service& service, serve::Tokens tokens, const Options& options)
      : server_(service, std::move(tokens), options) {}
  std::string name() const override {
    if constexpr (requires { server_.port(); })
      return std::to_string(server_.port());
    else
      return server_.id();
  }

 private:
  T server_;
};

class RunningOpenAi : public OpenAiService {
 public:
  explicit RunningOpenAi(const OpenAiOptions& options) : server_(options) {}
  std::string name() const override { return std::to_string(server_.port()); }
  void set_model(llm::Model model) override { server_.set_model(std::move(model)); }
  void set_transcriber(speech::Transcriber transcriber, std::optional<speech::Detector> detector,
                       const std::string& name) override {
    server_.set_transcriber(std::move(transcriber), std::move(detector), name);
  }
  void set_voice(speech::Voice voice, const std::string& name) override { server_.set_voice(std::move(voice), name); }
  void set_encoder(encoder::Model model, const std::string& name) override {
    server_.set_encoder(std::move(model), name);
  }
  void set_reranker(encoder::Model model, const std::string& name) override {
    server_.set_reranker(std::move(model), name);
  }
  void drain(std::chrono::milliseconds time) override { server_.drain(time); }

 private:
  OpenAiServer server_;
};

std::unique_ptr<OpenAiService> start_openai(const OpenAiOptions& options) {
  return std::make_unique<RunningOpenAi>(options);
}

template <class T, class Options>
std::unique_ptr<Server> start(const serve::Service& service, serve::Tokens tokens, const Options& options) {
  return std::make_unique<Running<T>>(service, std::move(tokens), options);
}

template <class T, class Options>
std::shared_ptr<serve::Caller> open(const Options& options) {
  return std::make_shared<T>(options);
}

}  // namespace

const Module* weft_remote_module() {
  static constexpr Module kModule{.version = WEFT_VERSION,
                                  .serve_openai = start_openai,
                                  .serve_http = start<HttpServer, HttpOptions>,
                                  .serve_grpc = start<GrpcServer, GrpcOptions>,
                                  .serve_nats = start<NatsWorker, NatsWorkerOptions>,
                                  .call_grpc = open<GrpcClient, GrpcClientOptions>,
                                  .call_nats = open<NatsClient, NatsClientOptions>,
                                  .nats_reaches = nats_reaches,
                                  .mcp_over_http = mcp_over_http,
                                  .call_openapi = call_openapi};
  return &kModule;
}

}  // namespace weft::remote
