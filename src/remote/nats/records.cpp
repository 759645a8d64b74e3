#include "remote/nats/records.hpp"

#include <fmt/format.h>
#include <nats/nats.h>
#include <openssl/evp.h>

#include <memory>

#include "weft/operations/envelope.hpp"
#include "weft/value.hpp"

namespace weft::remote {
namespace {

using operations::OperationError;

constexpr std::int64_t kRecordWait = 5000;  // ms

[[noreturn]] void no_records(std::string_view doing, natsStatus status) {
  throw OperationError(
      "UNAVAILABLE",
      fmt::format("the records of calls in JetStream: cannot {}: {}; a mutation with Weft-Request-Id needs "
                  "a server with JetStream (nats-server -js)",
                  doing, natsStatus_GetText(status)));
}

// A line of JSON, and the body.
std::string to_text(const CallRecord& record) {
  const Value head = Value::object({{"call", record.call},
                                    {"worker", record.worker},
                                    {"input", record.input},
                                    {"event", record.event},
                                    {"status", record.status},
                                    {"has_body", record.has_body}});
  return head.to_json() + "\n" + record.body;
}

CallRecord to_record(std::string_view text) {
  try {
    const auto end = text.find('\n');
    const Value head = Value::parse(text.substr(0, end), "the record of a call", 100);
    return {.call = head["call"].string(),
            .worker = head["worker"].string(),
            .input = head["input"].string(),
            .event = head["event"].string(),
            .status = head["status"].string(),
            .body = std::string(end == std::string_view::npos ? "" : text.substr(end + 1)),
            .has_body = head["has_body"].boolean()};
  } catch (const Error& error) {
    throw OperationError("UNAVAILABLE", fmt::format("the record of a call cannot be read: {}", error.what()));
  }
}

}  // namespace

CallRecords::CallRecords(NatsConnection& connection, std::string bucket, std::chrono::seconds age)
    : connection_(connection), bucket_(std::move(bucket)), age_(age) {}

CallRecords::~CallRecords() {
  kvStore_Destroy(store_);
  jsCtx_Destroy(context_);
}

std::string CallRecords::hash_of(std::string_view bytes) {
  unsigned char hash[EVP_MAX_MD_SIZE];
  unsigned int length = 0;
  if (EVP_Digest(bytes.data(), bytes.size(), hash, &length, EVP_sha256(), nullptr) != 1)
    throw OperationError("UNAVAILABLE", "SHA-256 failed");
  std::string text;
  for (unsigned int i = 0; i < length; ++i) text += fmt::format("{:02x}", hash[i]);
  return text;
}

std::string CallRecords::key_of(std::string_view identity, std::string_view operation, std::string_view request) {
  // Lengths keep different triples different.
  return hash_of(fmt::format("{} {} {}{}{}", identity.size(), operation.size(), identity, operation, request));
}

// The bucket is made when it is first needed: servers without JetStream serve calls without request ids.
kvStore* CallRecords::open() {
  const std::lock_guard lock(mutex_);
  if (store_) return store_;
  if (!context_) {
    jsOptions options;
    jsOptions_Init(&options);
    options.Wait = kRecordWait;
    if (const natsStatus status = natsConnection_JetStream(&context_, connection_.handle(), &options);
        status != NATS_OK)
      no_records("begin", status);
  }
  natsStatus status = js_KeyValue(&store_, context_, bucket_.c_str());
  if (status == NATS_NOT_FOUND) {
    kvConfig config;
    kvConfig_Init(&config);
    config.Bucket = bucket_.c_str();
    config.History = 1;
    config.TTL = std::chrono::nanoseconds(age_).count();
    config.StorageType = js_FileStorage;  // they outlive the server
    status = js_CreateKeyValue(&store_, context_, &config);
  }
  if (status != NATS_OK) no_records("open them", status);
  return store_;
}

std::optional<CallRecord> CallRecords::find(const std::string& key) {
  kvEntry* raw = nullptr;
  const natsStatus status = kvStore_Get(&raw, open(), key.c_str());
  if (status == NATS_NOT_FOUND) return std::nullopt;
  if (status != NATS_OK) no_records("read one", status);
  const std::unique_ptr<kvEntry, void (*)(kvEntry*)> entry(raw, kvEntry_Destroy);
  return to_record({static_cast<const char*>(kvEntry_Value(raw)), static_cast<std::size_t>(kvEntry_ValueLen(raw))});
}

std::optional<CallRecord> CallRecords::create(const std::string& key, const CallRecord& record) {
  const std::string text = to_text(record);
  const natsStatus status = kvStore_Create(nullptr, open(), key.c_str(), text.data(), static_cast<int>(text.size()));
  if (status == NATS_OK) return std::nullopt;
  // There may be one, or only the server's confirmation was lost.
  auto found = find(key);
  if (!found) no_records("create one", status);
  if (found->call == record.call) return std::nullopt;
  return found;
}

void CallRecords::finish(const std::string& key, const CallRecord& record) {
  const std::string text = to_text(record);
  const natsStatus status = kvStore_Put(nullptr, open(), key.c_str(), text.data(), static_cast<int>(text.size()));
  if (status != NATS_OK) no_records("write one", status);
}

}  // namespace weft::remote
