// Calls run on the threads of gRPC. One thread of our own looks for calls that their clients have cancelled, and aborts them.
#include "remote/grpc/server.hpp"

#include <fmt/format.h>
#include <grpcpp/ext/proto_server_reflection_plugin.h>
#include <grpcpp/health_check_service_interface.h>
#include <grpcpp/impl/codegen/method_handler.h>
#include <grpcpp/impl/codegen/proto_utils.h>
#include <grpcpp/impl/codegen/rpc_service_method.h>
#include <grpcpp/impl/codegen/service_type.h>
#include <grpcpp/resource_quota.h>
#include <grpcpp/server.h>
#include <grpcpp/server_builder.h>
#include <grpcpp/server_context.h>

#include <condition_variable>
#include <list>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <thread>

#include "base/file.hpp"
#include "base/quote.hpp"
#include "catalogue/frame.hpp"
#include "operations.pb.h"
#include "remote/grpc/channel.hpp"
#include "remote/grpc/log.hpp"
#include "remote/grpc/message.hpp"
#include "serve/service.hpp"
#include "weft/error.hpp"

namespace weft::remote {
namespace detail {

namespace op = operations;
using namespace std::chrono_literals;
using grpc::ByteBuffer;
using grpc::ServerContext;
using grpc::Status;

constexpr auto kLookForCancelled = 10ms;

grpc::StatusCode status_code_of(std::string_view code) {
  struct Row {
    std::string_view code;
    grpc::StatusCode status;
  };
  static constexpr Row kRows[] = {{op::kNotFound, grpc::NOT_FOUND},
                                  {op::kAccessDenied, grpc::PERMISSION_DENIED},
                                  {op::kValidationError, grpc::INVALID_ARGUMENT},
                                  {op::kTimeout, grpc::DEADLINE_EXCEEDED},
                                  {op::kAborted, grpc::CANCELLED},
                                  {op::kOverloaded, grpc::RESOURCE_EXHAUSTED},
                                  {op::kExecutionError, grpc::INTERNAL},
                                  {op::kUnknownError, grpc::UNKNOWN},
                                  {"UNAUTHENTICATED", grpc::UNAUTHENTICATED},
                                  {"UNAVAILABLE", grpc::UNAVAILABLE}};
  for (const Row& row : kRows)
    if (row.code == code) return row.status;
  return grpc::FAILED_PRECONDITION;
}

// Calls under way, for the thread that looks for cancelled ones.
class Cancellations {
 public:
  struct Watched {
    ServerContext* context;
    std::string request;
  };
  explicit Cancellations(op::Exchange& exchange) : exchange_(exchange), thread_([this] { look(); }) {}
  ~Cancellations() {
    {
      const std::lock_guard lock(mutex_);
      ending_ = true;
    }
    changed_.notify_all();
    thread_.join();
  }
  std::list<Watched>::iterator add(ServerContext* context, std::string request) {
    const std::lock_guard lock(mutex_);
    return watched_.insert(watched_.end(), {context, std::move(request)});
  }
  void remove(std::list<Watched>::iterator at) {
    const std::lock_guard lock(mutex_);
    watched_.erase(at);
  }
  void abort_all() {
    std::vector<std::string> requests;
    {
      const std::lock_guard lock(mutex_);
      for (const Watched& each : watched_) requests.push_back(each.request);
    }
    for (const std::string& each : requests) exchange_.abort(each);
  }

 private:
  void look() {
    std::unique_lock lock(mutex_);
    while (!ending_) {
      changed_.wait_for(lock, kLookForCancelled);
      std::vector<std::string> gone;
      for (const Watched& each : watched_)
        if (each.context->IsCancelled()) gone.push_back(each.request);
      lock.unlock();
      for (const std::string& request : gone) exchange_.abort(request);
      lock.lock();
    }
  }
  op::Exchange& exchange_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::list<Watched> watched_;
  bool ending_ = false;
  std::thread thread_;
};

class OperationsService : public grpc::Service {
 public:
  OperationsService(const serve::Service& service, serve::Tokens tokens, const GrpcOptions& options)
      : service_(service), tokens_(std::move(tokens)), options_(options), cancellations_(service.exchange) {
    const auto unary = [this]<class Request, class Reply>(
                           const char* name,
                           Status (OperationsService::*method)(ServerContext*, const Request*, Reply*)) {
      AddMethod(new grpc::internal::RpcServiceMethod(
          name, grpc::internal::RpcMethod::NORMAL_RPC,
          new grpc::internal::RpcMethodHandler<OperationsService, Request, Reply>(
              [method](OperationsService* self, ServerContext* context, const Request* request, Reply* reply) {
                return (self->*method)(context, request, reply);
              },
              this)));
    };
    const auto streaming = [this]<class Request, class Reply>(
                               const char* name, Status (OperationsService::*method)(ServerContext*, const Request*,
                                                                                     grpc::ServerWriter<Reply>*)) {
      AddMethod(new grpc::internal::RpcServiceMethod(
          name, grpc::internal::RpcMethod::SERVER_STREAMING,
          new grpc::internal::ServerStreamingHandler<OperationsService, Request, Reply>(
              [method](OperationsService* self, ServerContext* context, const Request* request,
                       grpc::ServerWriter<Reply>* writer) { return (self->*method)(context, request, writer); },
              this)));
    };
    unary("/weft.v1.Operations/Call", &OperationsService::call);
    streaming("/weft.v1.Operations/Subscribe", &OperationsService::subscribe);
    unary("/weft.v1.Operations/Describe", &OperationsService::describe);
    unary("/weft.v1.Operations/Abort", &OperationsService::abort);
    streaming("/weft.v1.Operations/Hold", &OperationsService::hold);
  }

  // Running calls end.
  void close() {
    {
      const std::lock_guard lock(mutex_);
      ending_ = true;
    }
    changed_.notify_all();
    cancellations_.abort_all();
  }

 private:
  // Runs a method; its errors become a status.
  template <class Function>
  Status guarded(ServerContext* context, std::string_view method, const Function& function) {
    std::string operation;
    const op::Identity* identity = nullptr;
    std::string outcome = "ok";
    Status status;
    try {
      identity = identity_of(*context);
      if (!identity)
        throw op::OperationError("UNAUTHENTICATED", "a known token is needed: authorization: Bearer TOKEN");
      function(*identity, operation);
    } catch (const op::OperationError& error) {
      outcome = error.code();
      status = failed(context, error);
    } catch (const Error& error) {
      outcome = op::kValidationError;
      status = failed(context, op::OperationError(op::kValidationError, error.what()));
    } catch (const std::exception&) {
      outcome = op::kExecutionError;
      status = failed(context, op::OperationError(op::kExecutionError, "the server failed"));
    }
    if (options_.log)
      options_.log(fmt::format("grpc {} {} {} {}", method, operation.empty() ? "-" : quote(operation, 80), outcome,
                               identity ? identity->id : "-"));
    return status;
  }

  static Status failed(ServerContext* context, const op::OperationError& error) {
    constexpr std::size_t kTextMax = 2000, kDetailsMax = 4000;  // metadata has little room
    std::string details = serve::to_value(error).to_json();
    if (details.size() > kDetailsMax)
      details =
          Value::object({{"code", error.code()}, {"message", std::string_view(error.what()).substr(0, 500)}}).to_json();
    context->AddTrailingMetadata("weft-error-bin", details);
    return Status(status_code_of(error.code()), std::string(std::string_view(error.what()).substr(0, kTextMax)));
  }

  const op::Identity* identity_of(const ServerContext& context) const {
    constexpr std::string_view kBearer = "Bearer ";
    const auto range = context.client_metadata().equal_range("authorization");
    if (range.first == range.second || std::next(range.first) != range.second) return nullptr;
    const std::string_view header(range.first->second.data(), range.first->second.size());
    return header.starts_with(kBearer) ? tokens_.find(header.substr(kBearer.size())) : nullptr;
  }

  static std::string session_key(const op::Identity& identity, std::string_view session) {
    return fmt::format("grpc {} {}", identity.id, session);
  }

  // Runs an operation; `take` gets its answers as messages.
  template <class Take>
  void run(ServerContext* context, const ByteBuffer& request, const op::Identity& identity, std::string& operation,
           const Take& take) {
    const Whole received = whole(request);
    CallFields fields;
    if (!read_call(received.text, fields))
      throw op::OperationError(op::kValidationError, "the message is not a CallRequest");
    operation = fields.operation;
    op::CallOptions call{.identity = identity};
    call.request_id = fields.request_id.empty() ? fmt::format("grpc {}", ++last_)
                                                : fmt::format("{}/{}", identity.id, fields.request_id);
    call.client_request_id = fields.request_id;
    if (const auto via = context->client_metadata().find("weft-via"); via != context->client_metadata().end())
      call.via = serve::read_via({via->second.data(), via->second.size()});
    if (context->deadline() < std::chrono::system_clock::now() + 24h * 365) call.deadline = context->deadline();
    if (!fields.session.empty()) {
      call.session = session_key(identity, fields.session);
      const std::lock_guard lock(mutex_);
      if (!sessions_.contains(call.session))
        throw op::OperationError("NO_SESSION",
                                 fmt::format("the session {} is not held: call Hold first", quote(fields.session, 80)));
    }
    Value input =
        fields.input.empty() ? Value(Value::Object()) : Value::parse(fields.input, "the input", options_.values_max);
    input = op::from_wire(std::move(input), fields.tensors, service_.handles, identity.id,
                          received.memory_for(fields.tensors));
    const auto form = fields.keep_tensors ? op::WireTensors::handles : op::WireTensors::data;
    const op::Holder holder(identity.id, call.session);
    const auto watched = cancellations_.add(context, call.request_id);
    const auto end = [&] {
      cancellations_.remove(watched);
      if (call.session.empty()) return;
      // What an answer has kept is freed here if its client left meanwhile: Hold has ended.
      const std::lock_guard lock(mutex_);
      if (!sessions_.contains(call.session)) service_.handles.free_session(call.session);
    };
    try {
      service_.exchange.run(operation, std::move(input), call, [&](const op::Envelope& envelope) {
        op::TensorSection section;
        const std::string json = op::to_wire(op::to_value(envelope), form, section, service_.handles, holder).to_json();
        return take(answer_message(json, section));
      });
    } catch (...) {
      end();
      throw;
    }
    end();
  }

  Status call(ServerContext* context, const ByteBuffer* request, ByteBuffer* reply) {
    return guarded(context, "Call", [&](const op::Identity& identity, std::string& operation) {
      bool answered = false;
      bool streams = false;  // then the first answer is the last
      try {
        run(context, *request, identity, operation, [&](ByteBuffer answer) {
          answered = true;
          *reply = std::move(answer);
          const auto specification = service_.exchange.registry().find(operation);
          streams = specification && specification->kind == op::Kind::subscription;
          return !streams;
        });
      } catch (const op::OperationError&) {
        if (!streams) throw;
      }
      if (!answered) throw op::OperationError(op::kExecutionError, "the operation ended without an answer");
    });
  }

  Status subscribe(ServerContext* context, const ByteBuffer* request, grpc::ServerWriter<ByteBuffer>* writer) {
    return guarded(context, "Subscribe", [&](const op::Identity& identity, std::string& operation) {
      run(context, *request, identity, operation, [&](const ByteBuffer& answer) { return writer->Write(answer); });
    });
  }

  Status describe(ServerContext* context, const v1::DescribeRequest* request, v1::DescribeReply* reply) {
    return guarded(context, "Describe", [&](const op::Identity&, std::string& operation) {
      operation = request->operation();
      const op::Registry& registry = service_.exchange.registry();
      if (operation.empty()) {
        for (const auto& each : registry.list()) reply->add_specifications(op::to_value(*each).to_json());
        return;
      }
      const auto found = registry.find(operation);
      if (!found)
        throw op::OperationError(op::kNotFound, fmt::format("there is no operation {}", quote(operation, 80)));
      reply->add_specifications(op::to_value(*found).to_json());
    });
  }

  Status abort(ServerContext* context, const v1::AbortRequest* request, v1::AbortReply* reply) {
    return guarded(context, "Abort", [&](const op::Identity& identity, std::string&) {
      reply->set_aborted(service_.exchange.abort(fmt::format("{}/{}", identity.id, request->request_id()), &identity));
    });
  }

  Status hold(ServerContext* context, const v1::HoldRequest* request, grpc::ServerWriter<v1::Held>* writer) {
    return guarded(context, "Hold", [&](const op::Identity& identity, std::string&) {
      if (request->session().empty() || request->session().size() > 100)
        throw op::OperationError(op::kValidationError, "a session has a name of 1 to 100 bytes");
      const std::string session = session_key(identity, request->session());
      std::unique_lock lock(mutex_);
      if (!sessions_.insert(session).second)
        throw op::OperationError("SESSION_EXISTS",
                                 fmt::format("the session {} is held already", quote(request->session())));
      lock.unlock();
      writer->Write(v1::Held());
      lock.lock();
      while (!ending_ && !context->IsCancelled()) changed_.wait_for(lock, 20ms);
      sessions_.erase(session);
      lock.unlock();
      service_.handles.free_session(session);
    });
  }

  const serve::Service service_;
  const serve::Tokens tokens_;
  const GrpcOptions& options_;
  Cancellations cancellations_;
  std::atomic<std::uint64_t> last_ = 0;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::set<std::string> sessions_;
  bool ending_ = false;
};

}  // namespace detail

struct GrpcServer::State {
  GrpcOptions options;
  detail::OperationsService operations;
  int port = 0;
  std::unique_ptr<grpc::Server> server;
  std::mutex mutex;
  std::condition_variable changed;
  bool ending = false;
  std::thread sweeping;

  State(const serve::Service& service, serve::Tokens tokens, const GrpcOptions& options_)
      : options(options_), operations(service, std::move(tokens), options) {
    send_grpc_log();
    grpc::EnableDefaultHealthCheckService(true);
    grpc::reflection::InitProtoReflectionServerBuilderPlugin();
    grpc::ServerBuilder builder;
    builder.AddListeningPort(options.address, credentials(), &port);
    builder.RegisterService(&operations);
    builder.SetMaxReceiveMessageSize(static_cast<int>(std::min<std::uint64_t>(options.message_bytes_max, INT32_MAX)));
    builder.SetMaxSendMessageSize(-1);
    builder.SetResourceQuota(grpc::ResourceQuota("weft").SetMaxThreads(options.threads_max + 16));
    builder.SetSyncServerOption(grpc::ServerBuilder::MAX_POLLERS, 4);
    builder.AddChannelArgument(GRPC_ARG_MAX_METADATA_SIZE, 16 << 10);
    builder.AddChannelArgument(GRPC_ARG_MAX_CONCURRENT_STREAMS, options.threads_max);
    set_transport_options([&](const char* name, int value) { builder.AddChannelArgument(name, value); });
    builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIME_MS, 20'000);  // a client whose machine has gone
    builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, 10'000);
    builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
    server = builder.BuildAndStart();
    if (!server || port == 0)
      throw FileError(fmt::format(
          "cannot listen on {} for gRPC: is the address one of this machine, and is the port free?", options.address));
    if (auto* health = server->GetHealthCheckService()) health->SetServingStatus("weft.v1.Operations", true);
    sweeping = std::thread([this, &handles = service.handles] {
      std::unique_lock lock(mutex);
      while (!changed.wait_for(lock, std::min<std::chrono::seconds>(options.handle_time, std::chrono::seconds(30)),
                               [&] { return ending; }))
        handles.free_unused_for(options.handle_time);
    });
  }

  ~State() {
    if (!server) return;
    operations.close();
    server->Shutdown(std::chrono::system_clock::now() + std::chrono::seconds(2));
    server->Wait();
    {
      const std::lock_guard lock(mutex);
      ending = true;
    }
    changed.notify_all();
    sweeping.join();
  }

  std::shared_ptr<grpc::ServerCredentials> credentials() const {
    if (options.certificate.empty()) return grpc::InsecureServerCredentials();
    grpc::SslServerCredentialsOptions tls(options.client_authority.empty()
                                              ? GRPC_SSL_DONT_REQUEST_CLIENT_CERTIFICATE
                                              : GRPC_SSL_REQUEST_AND_REQUIRE_CLIENT_CERTIFICATE_AND_VERIFY);
    tls.pem_key_cert_pairs.push_back({read_text_file(options.key), read_text_file(options.certificate)});
    if (!options.client_authority.empty()) tls.pem_root_certs = read_text_file(options.client_authority);
    return grpc::SslServerCredentials(tls);
  }
};

GrpcServer::GrpcServer(const serve::Service& service, serve::Tokens tokens, const GrpcOptions& options)
    : state_(std::make_unique<State>(service, std::move(tokens), options)) {}

GrpcServer::~GrpcServer() = default;

int GrpcServer::port() const { return state_->port; }

}  // namespace weft::remote
