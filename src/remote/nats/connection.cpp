#include "remote/nats/connection.hpp"

#include <fmt/format.h>
#include <nats/nats.h>

#include "base/quote.hpp"
#include "serve/caller.hpp"
#include "weft/operations/envelope.hpp"

namespace weft::remote {
namespace {

using operations::OperationError;

constexpr int kThreads = 4;  // of all connections of the process, that give messages to functions

void check_nats(natsStatus status, const std::string& server, std::string_view doing) {
  if (status == NATS_OK) return;
  if (status == NATS_MAX_PAYLOAD) throw OperationError("TOO_LARGE", "the message is larger than the NATS server takes");
  throw OperationError("UNAVAILABLE",
                       fmt::format("NATS at {}: cannot {}: {}", server, doing, natsStatus_GetText(status)));
}

// A header has one line.
std::string one_line(std::string_view text) {
  std::string line(text);
  for (char& c : line)
    if (static_cast<unsigned char>(c) < ' ') c = ' ';
  return line;
}

}  // namespace

NatsMessage::~NatsMessage() { natsMsg_Destroy(message_); }
std::string_view NatsMessage::subject() const { return natsMsg_GetSubject(message_); }
std::string_view NatsMessage::reply() const {
  const char* reply = natsMsg_GetReply(message_);
  return reply ? reply : "";
}
std::string_view NatsMessage::data() const {
  return {natsMsg_GetData(message_), static_cast<std::size_t>(natsMsg_GetDataLength(message_))};
}
std::string_view NatsMessage::header(const char* name) const {
  const char* value = nullptr;
  return natsMsgHeader_Get(message_, name, &value) == NATS_OK && value ? value : "";
}
bool NatsMessage::is_no_responders() const { return natsMsg_IsNoResponders(message_); }

NatsConnection::NatsConnection(const NatsOptions& options, const std::string& name)
    : server_(serve::server_of(options.url)) {
  static const natsStatus opened = [] {
    const natsStatus status = nats_Open(-1);
    return status == NATS_OK ? nats_SetMessageDeliveryPoolSize(kThreads) : status;
  }();
  check_nats(opened, server_, "begin");
  natsOptions* raw = nullptr;
  check_nats(natsOptions_Create(&raw), server_, "begin");
  const std::unique_ptr<natsOptions, void (*)(natsOptions*)> made(raw, natsOptions_Destroy);
  check_nats(natsOptions_SetURL(raw, options.url.c_str()), server_, "read the URL");
  natsOptions_SetName(raw, name.c_str());
  natsOptions_UseGlobalMessageDelivery(raw, true);
  natsOptions_SetSendAsap(raw, true);  // a call waits for each message
  natsOptions_SetMaxReconnect(raw, -1);
  natsOptions_SetReconnectWait(raw, 100);
  natsOptions_SetReconnectJitter(raw, 100, 100);
  natsOptions_SetTimeout(raw, 5000);
  natsOptions_SetPingInterval(raw, 5000);
  natsOptions_SetIOBufSize(raw, 256 << 10);
  natsOptions_SetErrorHandler(
      raw, [](natsConnection*, natsSubscription*, natsStatus, void*) {}, nullptr);  // not on stderr
  if (!options.credentials.empty())
    check_nats(natsOptions_SetUserCredentialsFromFiles(raw, options.credentials.c_str(), nullptr), server_,
               "read the credentials");
  if (!options.authority.empty()) {
    check_nats(natsOptions_SetSecure(raw, true), server_, "use TLS");
    check_nats(natsOptions_LoadCATrustedCertificates(raw, options.authority.c_str()), server_,
               "read the authority's certificate");
  }
  if (!options.certificate.empty())
    check_nats(natsOptions_LoadCertificatesChain(raw, options.certificate.c_str(), options.key.c_str()), server_,
               "read the certificate and its key");
  check_nats(natsConnection_Connect(&connection_, raw), server_, "connect");
}

NatsConnection::~NatsConnection() { close(); }

void NatsConnection::close() {
  {
    const std::lock_guard lock(mutex_);
    if (closed_) return;
    closed_ = true;
  }
  natsConnection_FlushTimeout(connection_, 1000);
  for (Listener& each : listeners_) natsSubscription_Unsubscribe(each.subscription);
  {
    // The library says when the last function has returned.
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, std::chrono::seconds(10), [&] {
      for (const Listener& each : listeners_)
        if (!each.done) return false;
      return true;
    });
  }
  natsConnection_Close(connection_);
  for (Listener& each : listeners_) natsSubscription_Destroy(each.subscription);
  natsConnection_Destroy(connection_);
}

void NatsConnection::publish(const std::string& subject, const std::string& reply, const NatsHeaders& headers,
                             std::string_view data) {
  natsMsg* raw = nullptr;
  check_nats(natsMsg_Create(&raw, subject.c_str(), reply.empty() ? nullptr : reply.c_str(), data.data(),
                            static_cast<int>(data.size())),
             server_, "make a message");
  const std::unique_ptr<natsMsg, void (*)(natsMsg*)> message(raw, natsMsg_Destroy);
  for (const auto& [name, value] : headers)
    check_nats(natsMsgHeader_Set(raw, std::string(name).c_str(), one_line(value).c_str()), server_, "make a message");
  check_nats(natsConnection_PublishMsg(connection_, raw), server_, "send");
}

void NatsConnection::subscribe(const std::string& subject, const std::string& queue,
                               std::function<void(NatsMessage)> function, std::int64_t pending_bytes_max) {
  Listener* listener = nullptr;
  {
    const std::lock_guard lock(mutex_);
    listeners_.push_back({this, std::move(function)});
    listener = &listeners_.back();
  }
  const auto take = [](natsConnection*, natsSubscription*, natsMsg* message, void* closure) {
    NatsMessage taken(message);
    try {
      static_cast<Listener*>(closure)->function(std::move(taken));
    } catch (const std::exception&) {  // one bad message does not end the connection
    }
  };
  const natsStatus status =
      queue.empty() ? natsConnection_Subscribe(&listener->subscription, connection_, subject.c_str(), take, listener)
                    : natsConnection_QueueSubscribe(&listener->subscription, connection_, subject.c_str(),
                                                    queue.c_str(), take, listener);
  if (status != NATS_OK) {
    const std::lock_guard lock(mutex_);
    listeners_.remove_if([&](const Listener& each) { return &each == listener; });
  }
  check_nats(status, server_, fmt::format("subscribe to {}", quote(subject)));
  natsSubscription_SetPendingLimits(listener->subscription, static_cast<int>(pending_bytes_max >> 10),
                                    static_cast<int>(pending_bytes_max));
  natsSubscription_SetOnCompleteCB(
      listener->subscription,
      [](void* closure) {
        auto* ended = static_cast<Listener*>(closure);
        NatsConnection* connection = ended->connection;
        const std::lock_guard lock(connection->mutex_);
        ended->done = true;
        connection->changed_.notify_all();
      },
      listener);
}

void NatsConnection::flush() { check_nats(natsConnection_FlushTimeout(connection_, 5000), server_, "send"); }

bool NatsConnection::is_somebody_at(const std::string& subject, std::chrono::milliseconds wait) {
  natsMsg* reply = nullptr;
  const natsStatus status = natsConnection_RequestString(&reply, connection_, subject.c_str(), "", wait.count());
  natsMsg_Destroy(reply);
  return status != NATS_NO_RESPONDERS;
}

bool nats_reaches(const NatsOptions& from, const NatsOptions& to) {
  std::mutex mutex;
  std::condition_variable changed;
  bool heard = false;
  NatsConnection listening(to, "weft"), speaking(from, "weft");
  const std::string subject = NatsConnection::inbox();
  listening.subscribe(subject, "", [&](const NatsMessage&) {
    const std::lock_guard lock(mutex);
    heard = true;
    changed.notify_all();
  });
  listening.flush();
  // Servers of a cluster tell each other of subscriptions, which takes a moment.
  for (int i = 0; i < 5; ++i) {
    speaking.publish(subject, "", {}, {});
    speaking.flush();
    std::unique_lock lock(mutex);
    if (changed.wait_for(lock, std::chrono::milliseconds(100), [&] { return heard; })) return true;
  }
  return false;
}

std::string NatsConnection::inbox() {
  natsInbox* inbox = nullptr;
  if (natsInbox_Create(&inbox) != NATS_OK) throw OperationError("UNAVAILABLE", "NATS: cannot make an inbox");
  std::string name = inbox;
  natsInbox_Destroy(inbox);
  return name;
}

std::uint64_t NatsConnection::payload_max() const {
  return static_cast<std::uint64_t>(natsConnection_GetMaxPayload(connection_));
}

}  // namespace weft::remote
