#include "remote/nats/objects.hpp"

#include <fmt/format.h>
#include <nats/nats.h>
#include <openssl/evp.h>

#include <algorithm>
#include <chrono>
#include <ctime>
#include <memory>

#include "base/quote.hpp"
#include "base/utc_time.hpp"
#include "catalogue/wire.hpp"
#include "weft/operations/envelope.hpp"
#include "weft/value.hpp"

namespace weft::remote {
namespace {

using operations::OperationError;

constexpr std::size_t kChunk = 512 << 10;
constexpr std::int64_t kAge = 600'000'000'000;  // ns
constexpr std::int64_t kWait = 10'000;          // ms

void check_store(natsStatus status, int code, std::string_view doing) {
  if (status == NATS_OK) return;
  throw OperationError("UNAVAILABLE",
                       fmt::format("the object store of NATS: cannot {}: {}{}", doing, natsStatus_GetText(status),
                                   code ? fmt::format(" (JetStream {})", code) : ""));
}

std::string url_base64(std::string_view bytes) {
  std::string text = operations::encode_base64(bytes);
  for (char& c : text) c = c == '+' ? '-' : c == '/' ? '_' : c;
  return text;
}

std::string digest_of(std::string_view bytes) {
  unsigned char hash[EVP_MAX_MD_SIZE];
  unsigned int length = 0;
  if (EVP_Digest(bytes.data(), bytes.size(), hash, &length, EVP_sha256(), nullptr) != 1)
    throw OperationError("UNAVAILABLE", "SHA-256 failed");
  return "SHA-256=" + url_base64({reinterpret_cast<const char*>(hash), length});
}

template <class T, void (*destroy)(T*)>
struct Destroy {
  void operator()(T* value) const { destroy(value); }
};
using Message = std::unique_ptr<natsMsg, Destroy<natsMsg, natsMsg_Destroy>>;
using Listening = std::unique_ptr<natsSubscription, Destroy<natsSubscription, natsSubscription_Destroy>>;

}  // namespace

NatsObjects::NatsObjects(NatsConnection& connection, std::string bucket)
    : connection_(connection), bucket_(std::move(bucket)), stream_("OBJ_" + bucket_) {}

NatsObjects::~NatsObjects() { jsCtx_Destroy(context_); }

std::string NatsObjects::subject_of(const std::string& name) const {
  return fmt::format("$O.{}.M.{}", bucket_, url_base64(name));
}

// The store is made when it is first needed: servers without JetStream serve small messages.
void NatsObjects::open() {
  const std::lock_guard lock(mutex_);
  if (context_) return;
  jsOptions options;
  jsOptions_Init(&options);
  options.Wait = kWait;
  options.PublishAsync.MaxPending = 64;
  jsCtx* context = nullptr;
  check_store(natsConnection_JetStream(&context, connection_.handle(), &options), 0, "begin");
  const std::string chunks = fmt::format("$O.{}.C.>", bucket_), names = fmt::format("$O.{}.M.>", bucket_);
  const char* subjects[] = {chunks.c_str(), names.c_str()};
  jsStreamConfig config;
  jsStreamConfig_Init(&config);
  config.Name = stream_.c_str();
  config.Subjects = subjects;
  config.SubjectsLen = 2;
  config.Discard = js_DiscardNew;
  config.Storage = js_MemoryStorage;
  config.AllowRollup = true;
  config.AllowDirect = true;
  config.MaxAge = kAge;
  jsErrCode code = {};
  jsStreamInfo* info = nullptr;
  natsStatus status = js_GetStreamInfo(&info, context, stream_.c_str(), nullptr, &code);
  if (status == NATS_NOT_FOUND) status = js_AddStream(&info, context, &config, nullptr, &code);
  jsStreamInfo_Destroy(info);
  if (status != NATS_OK) {
    jsCtx_Destroy(context);
    check_store(status, code, "open it; a server without JetStream (nats-server -js) takes no large messages");
  }
  context_ = context;
}

std::string NatsObjects::put(std::string_view bytes) {
  open();
  const std::string id = NatsConnection::inbox().substr(7);  // without "_INBOX."
  const std::string subject = fmt::format("$O.{}.C.{}", bucket_, id);
  std::size_t chunks = 0;
  // Chunks wait for their acknowledgement one window behind.
  for (std::size_t at = 0; at < bytes.size(); at += kChunk, ++chunks) {
    const std::string_view chunk = bytes.substr(at, kChunk);
    check_store(js_PublishAsync(context_, subject.c_str(), chunk.data(), static_cast<int>(chunk.size()), nullptr), 0,
                "store a chunk");
  }
  jsPubOptions wait;
  jsPubOptions_Init(&wait);
  wait.MaxWait = kWait;
  check_store(js_PublishAsyncComplete(context_, &wait), 0, "store all chunks");
  const Value meta = Value::object({{"name", id},
                                    {"options", Value::object({{"max_chunk_size", kChunk}})},
                                    {"bucket", bucket_},
                                    {"nuid", id},
                                    {"size", bytes.size()},
                                    {"mtime", utc_text(std::time(nullptr))},
                                    {"chunks", chunks},
                                    {"digest", digest_of(bytes)}});
  const std::string text = meta.to_json();
  natsMsg* raw = nullptr;
  check_store(natsMsg_Create(&raw, subject_of(id).c_str(), nullptr, text.data(), static_cast<int>(text.size())), 0,
              "describe an object");
  const Message message(raw);
  natsMsgHeader_Set(raw, "Nats-Rollup", "sub");
  jsErrCode code = {};
  check_store(js_PublishMsg(nullptr, context_, raw, nullptr, &code), code, "describe an object");
  return id;
}

std::string NatsObjects::get(const std::string& name, std::uint64_t bytes_max) {
  open();
  jsErrCode code = {};
  natsMsg* raw = nullptr;
  const natsStatus found = js_GetLastMsg(&raw, context_, stream_.c_str(), subject_of(name).c_str(), nullptr, &code);
  if (found == NATS_NOT_FOUND)
    throw OperationError("OBJECT_NOT_FOUND", fmt::format("the store has no object {}", quote(name, 80)));
  check_store(found, code, "find an object");
  const Message described(raw);
  std::uint64_t size = 0, chunks = 0;
  std::string id, digest;
  try {
    const Value meta = Value::parse({natsMsg_GetData(raw), static_cast<std::size_t>(natsMsg_GetDataLength(raw))},
                                    "an object's description", 1000);
    if (const Value* deleted = meta.find("deleted"); deleted && *deleted == Value(true))
      throw OperationError("OBJECT_NOT_FOUND", fmt::format("the object {} was deleted", quote(name, 80)));
    size = meta["size"].unsigned_integer();
    chunks = meta["chunks"].unsigned_integer();
    id = meta["nuid"].string();
    if (const Value* given = meta.find("digest")) digest = given->string();
  } catch (const OperationError&) {
    throw;
  } catch (const Error& error) {
    throw OperationError(operations::kValidationError, fmt::format("an object's description: {}", error.what()));
  }
  if (size > bytes_max)
    throw OperationError(operations::kValidationError,
                         fmt::format("the object has {} bytes, and a message has at most {}", size, bytes_max));
  std::string bytes;
  bytes.reserve(size);
  if (chunks > 0) {
    jsSubOptions options;
    jsSubOptions_Init(&options);
    options.Stream = stream_.c_str();
    options.Ordered = true;
    natsSubscription* subscribed = nullptr;
    const std::string subject = fmt::format("$O.{}.C.{}", bucket_, id);
    check_store(js_SubscribeSync(&subscribed, context_, subject.c_str(), nullptr, &options, &code), code,
                "read an object");
    const Listening listening(subscribed);
    for (std::uint64_t i = 0; i < chunks; ++i) {
      natsMsg* part = nullptr;
      check_store(natsSubscription_NextMsg(&part, subscribed, kWait), 0, "read a chunk");
      const Message chunk(part);
      const auto length = static_cast<std::size_t>(natsMsg_GetDataLength(part));
      if (length > size - bytes.size()) break;  // the digest will not fit either
      bytes.append(natsMsg_GetData(part), length);
    }
    natsSubscription_Unsubscribe(subscribed);
  }
  if (bytes.size() != size || (!digest.empty() && digest.substr(0, digest.find_last_not_of('=') + 1) !=
                                                      digest_of(bytes).substr(0, digest.find_last_not_of('=') + 1)))
    throw OperationError(operations::kValidationError, "an object's bytes do not have the digest of its description");
  return bytes;
}

void NatsObjects::remove(const std::string& name) {
  try {
    open();
    jsOptions options;
    jsOptions_Init(&options);
    options.Wait = kWait;
    for (const std::string& subject : {fmt::format("$O.{}.C.{}", bucket_, name), subject_of(name)}) {
      options.Stream.Purge.Subject = subject.c_str();
      js_PurgeStream(context_, stream_.c_str(), &options, nullptr);
    }
  } catch (const Error&) {  // it ends by its age
  }
}

}  // namespace weft::remote
