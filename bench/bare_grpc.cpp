#include "bare_grpc.hpp"

#include <grpcpp/grpcpp.h>
#include <grpcpp/impl/codegen/client_unary_call.h>
#include <grpcpp/impl/codegen/method_handler.h>
#include <grpcpp/impl/codegen/rpc_service_method.h>

#include <stdexcept>
#include <string>

#include "remote/grpc/channel.hpp"

namespace weft::bench {
namespace {

using grpc::ByteBuffer;

ByteBuffer lent(const std::string& bytes) {
  const grpc::Slice slice(const_cast<char*>(bytes.data()), bytes.size(), [](void*) {});
  return {&slice, 1};
}

}  // namespace

struct BareGrpc::State : grpc::Service {
  explicit State(std::size_t bytes) : large(bytes, 'x') {
    const auto method = [this](const char* name, const std::string& reply) {
      AddMethod(new grpc::internal::RpcServiceMethod(
          name, grpc::internal::RpcMethod::NORMAL_RPC,
          new grpc::internal::RpcMethodHandler<State, ByteBuffer, ByteBuffer>(
              [&reply](State*, grpc::ServerContext*, const ByteBuffer*, ByteBuffer* out) {
                *out = lent(reply);
                return grpc::Status::OK;
              },
              this)));
    };
    method("/bare/send", small);
    method("/bare/receive", large);
    method("/bare/call", small);
    grpc::ServerBuilder builder;
    int port = 0;
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
    builder.RegisterService(this);
    builder.SetMaxReceiveMessageSize(-1);
    remote::set_transport_options([&](const char* name, int value) { builder.AddChannelArgument(name, value); });
    server = builder.BuildAndStart();
    if (!server) throw std::runtime_error("gRPC cannot listen");
    grpc::ChannelArguments arguments;
    arguments.SetMaxReceiveMessageSize(-1);
    remote::set_transport_options([&](const char* name, int value) { arguments.SetInt(name, value); });
    channel =
        grpc::CreateCustomChannel("127.0.0.1:" + std::to_string(port), grpc::InsecureChannelCredentials(), arguments);
  }

  void call(const char* name, const std::string& request) {
    grpc::ClientContext context;
    ByteBuffer reply;
    const auto status = grpc::internal::BlockingUnaryCall<ByteBuffer, ByteBuffer>(
        channel.get(), {name, grpc::internal::RpcMethod::NORMAL_RPC}, &context, lent(request), &reply);
    if (!status.ok()) throw std::runtime_error(status.error_message());
  }

  const std::string large, small = "x";
  std::unique_ptr<grpc::Server> server;
  std::shared_ptr<grpc::Channel> channel;
};

BareGrpc::BareGrpc(std::size_t bytes) : state_(std::make_unique<State>(bytes)) {}
BareGrpc::~BareGrpc() { state_->server->Shutdown(); }
void BareGrpc::send() { state_->call("/bare/send", state_->large); }
void BareGrpc::call() { state_->call("/bare/call", state_->small); }
void BareGrpc::receive() { state_->call("/bare/receive", state_->small); }

}  // namespace weft::bench
