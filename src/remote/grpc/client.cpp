#include "remote/grpc/client.hpp"

#include <fmt/format.h>
#include <grpcpp/channel.h>
#include <grpcpp/client_context.h>
#include <grpcpp/create_channel.h>
#include <grpcpp/impl/codegen/client_unary_call.h>
#include <grpcpp/impl/codegen/proto_utils.h>
#include <grpcpp/impl/codegen/rpc_method.h>
#include <grpcpp/support/channel_arguments.h>
#include <grpcpp/support/sync_stream.h>

#include <algorithm>
#include <mutex>
#include <set>
#include <thread>

#include "base/file.hpp"
#include "operations.pb.h"
#include "remote/grpc/channel.hpp"
#include "remote/grpc/log.hpp"
#include "remote/grpc/message.hpp"
#include "serve/service.hpp"
#include "weft/catalogue.hpp"

namespace weft::remote {
namespace detail {

namespace op = operations;

// What a status says, in the words of operations.
op::OperationError error_of(const grpc::Status& status, const grpc::ClientContext& context) {
  const auto& trailer = context.GetServerTrailingMetadata();
  if (const auto found = trailer.find("weft-error-bin"); found != trailer.end()) {
    try {
      const Value error = Value::parse({found->second.data(), found->second.size()}, "the error", 10'000);
      const Value* details = error.find("details");
      return {error["code"].string(), error["message"].string(), details ? *details : Value()};
    } catch (const Error&) {  // a server of another kind
    }
  }
  const std::string_view code = status.error_code() == grpc::DEADLINE_EXCEEDED ? op::kTimeout
                                : status.error_code() == grpc::CANCELLED       ? op::kAborted
                                : status.error_code() == grpc::UNAVAILABLE     ? std::string_view("UNAVAILABLE")
                                                                               : op::kUnknownError;
  return {code, fmt::format("gRPC: {}", status.error_message().empty() ? "the call failed" : status.error_message())};
}

}  // namespace detail

struct GrpcClient::State {
  GrpcClientOptions options;
  std::shared_ptr<grpc::Channel> channel;
  operations::Handles handles;  // none: answers have their tensors' bytes
  // The stream that keeps this client's handles alive, once there are any.
  const std::string session = fmt::format("{:p}-{}", static_cast<const void*>(this),
                                          std::chrono::steady_clock::now().time_since_epoch().count());
  std::mutex mutex;
  std::unique_ptr<grpc::ClientContext> holding;
  std::unique_ptr<grpc::ClientReader<v1::Held>> held;

  void begin(grpc::ClientContext& context, const serve::RemoteCallOptions& call) const {
    context.AddMetadata("authorization", "Bearer " + options.token);
    if (call.deadline) context.set_deadline(*call.deadline);
    if (!call.via.empty()) context.AddMetadata("weft-via", serve::via_text(call.via));
  }

  grpc::ByteBuffer request(std::string_view id, const Value& input, const serve::RemoteCallOptions& call);
  operations::Envelope answer(std::string_view id, const grpc::ByteBuffer& message, bool keeps_tensors);

  void hold() {
    const std::lock_guard lock(mutex);
    if (held) return;
    holding = std::make_unique<grpc::ClientContext>();
    begin(*holding, {});
    v1::HoldRequest request;
    request.set_session(session);
    static const grpc::internal::RpcMethod method("/weft.v1.Operations/Hold",
                                                  grpc::internal::RpcMethod::SERVER_STREAMING);
    held.reset(grpc::internal::ClientReaderFactory<v1::Held>::Create(channel.get(), method, holding.get(), request));
    v1::Held opened;
    if (!held->Read(&opened)) {
      const grpc::Status status = held->Finish();
      held.reset();
      throw detail::error_of(status, *holding);
    }
  }
};

GrpcClient::GrpcClient(const GrpcClientOptions& options) : state_(std::make_unique<State>()) {
  send_grpc_log();
  state_->options = options;
  std::shared_ptr<grpc::ChannelCredentials> credentials = grpc::InsecureChannelCredentials();
  if (!options.authority.empty()) {
    grpc::SslCredentialsOptions tls{.pem_root_certs = read_text_file(options.authority)};
    if (!options.certificate.empty()) {
      tls.pem_cert_chain = read_text_file(options.certificate);
      tls.pem_private_key = read_text_file(options.key);
    }
    credentials = grpc::SslCredentials(tls);
  }
  grpc::ChannelArguments arguments;
  arguments.SetMaxReceiveMessageSize(-1);
  set_transport_options([&](const char* name, int value) { arguments.SetInt(name, value); });
  state_->channel = grpc::CreateCustomChannel(options.address, credentials, arguments);
}

GrpcClient::~GrpcClient() {
  if (!state_->held) return;
  state_->holding->TryCancel();
  state_->held->Finish();
}

std::vector<operations::Specification> GrpcClient::operations() {
  grpc::ClientContext context;
  state_->begin(context, {});
  static const grpc::internal::RpcMethod method("/weft.v1.Operations/Describe", grpc::internal::RpcMethod::NORMAL_RPC);
  v1::DescribeReply reply;
  const grpc::Status status = grpc::internal::BlockingUnaryCall<v1::DescribeRequest, v1::DescribeReply>(
      state_->channel.get(), method, &context, {}, &reply);
  if (!status.ok()) throw detail::error_of(status, context);
  std::vector<operations::Specification> list;
  for (const std::string& each : reply.specifications())
    list.push_back(operations::specification_from(Value::parse(each, "a specification")));
  return list;
}

grpc::ByteBuffer GrpcClient::State::request(std::string_view id, const Value& input,
                                            const serve::RemoteCallOptions& call) {
  const bool leaves_handles = call.keeps_tensors || id == "handle.create";
  if (leaves_handles) hold();
  operations::TensorSection section;
  const std::string json = operations::to_wire(input, operations::WireTensors::data, section, handles, "").to_json();
  return call_message(id, json, section, call.keeps_tensors, leaves_handles ? session : "", call.request_id);
}

// Errors: OperationError EXECUTION_ERROR.
operations::Envelope GrpcClient::State::answer(std::string_view id, const grpc::ByteBuffer& message,
                                               bool keeps_tensors) {
  const Whole received = whole(message);
  std::string_view envelope, tensors;
  try {
    if (!read_answer(received.text, envelope, tensors)) throw UsageError("the message is not an Answer");
    Value value = Value::parse(envelope, "the answer");
    if (!keeps_tensors)
      value = operations::from_wire(std::move(value), tensors, handles, "", received.memory_for(tensors));
    return operations::envelope_from(value);
  } catch (const Error& error) {
    throw operations::OperationError(operations::kExecutionError,
                                     fmt::format("{}: the server's answer cannot be read: {}", id, error.what()));
  }
}

operations::Envelope GrpcClient::call(std::string_view id, const Value& input,
                                      const serve::RemoteCallOptions& options) {
  const grpc::ByteBuffer request = state_->request(id, input, options);
  grpc::ClientContext context;
  state_->begin(context, options);
  const std::stop_callback on_stop(options.stop, [&] { context.TryCancel(); });
  static const grpc::internal::RpcMethod method("/weft.v1.Operations/Call", grpc::internal::RpcMethod::NORMAL_RPC);
  grpc::ByteBuffer reply;
  const grpc::Status status = grpc::internal::BlockingUnaryCall<grpc::ByteBuffer, grpc::ByteBuffer>(
      state_->channel.get(), method, &context, request, &reply);
  if (!status.ok()) throw detail::error_of(status, context);
  return state_->answer(id, reply, options.keeps_tensors);
}

void GrpcClient::run(std::string_view id, const Value& input, const serve::RemoteCallOptions& options,
                     const std::function<bool(operations::Envelope)>& take) {
  const grpc::ByteBuffer request = state_->request(id, input, options);
  grpc::ClientContext context;
  state_->begin(context, options);
  const std::stop_callback on_stop(options.stop, [&] { context.TryCancel(); });
  static const grpc::internal::RpcMethod method("/weft.v1.Operations/Subscribe",
                                                grpc::internal::RpcMethod::SERVER_STREAMING);
  const std::unique_ptr<grpc::ClientReader<grpc::ByteBuffer>> reader(
      grpc::internal::ClientReaderFactory<grpc::ByteBuffer>::Create(state_->channel.get(), method, &context, request));
  bool left = false;
  try {
    for (grpc::ByteBuffer message; !left && reader->Read(&message);)
      left = !take(state_->answer(id, message, options.keeps_tensors));
  } catch (...) {
    context.TryCancel();
    reader->Finish();
    throw;
  }
  if (left) context.TryCancel();
  const grpc::Status status = reader->Finish();
  if (!left && !status.ok()) throw detail::error_of(status, context);
}

}  // namespace weft::remote
