// The Responses API of OpenAI: conversations of items, which become chats, and the events of their answers.
#pragma once

#include <cstdint>
#include <list>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "serve/openai.hpp"

namespace weft::serve {

/// A response that was given, and the items of its conversation: those of the request, and its own.
struct StoredResponse {
  Value response;
  Value::Array items;
};

/// The latest responses, in memory. The oldest go first. Thread safety: any thread may call any function.
class ResponseStore {
 public:
  static constexpr std::size_t kResponsesMax = 1000, kBytesMax = std::size_t{64} << 20;

  std::optional<StoredResponse> find(std::string_view id) const;
  /// Does not keep a response that is larger than all of them may be together.
  void put(const std::string& id, StoredResponse response);
  bool remove(std::string_view id);

 private:
  struct Entry {
    std::string id;
    StoredResponse response;
    std::size_t bytes;
  };
  mutable std::mutex mutex_;
  std::list<Entry> entries_;  // the oldest first
  std::unordered_map<std::string, std::list<Entry>::iterator> by_id_;
  std::size_t bytes_ = 0;
};

struct ResponseRequest {
  CompletionRequest completion;  ///< one text, in chunks
  bool streams = false, stores = true;
  Value settings;      ///< members of the request that the response repeats
  Value::Array items;  ///< of the conversation so far
};

/// Reads the body of POST /v1/responses. Fields that are not known are ignored. Errors: OpenAiError with status 400 and the name of
/// the field; 404 for another model, or an earlier response that is not stored.
ResponseRequest read_response_request(const Value& body, const OpenAiModel& model, const ResponseStore& store);

/// Makes the answer from the events of its text.
class ResponseAnswer {
 public:
  ResponseAnswer(ResponseRequest request, const OpenAiModel& model, std::int64_t created);

  const std::string& id() const { return id_; }
  bool streams() const { return streams_; }
  /// The first events of a stream, and those that follow from an event of the text; the last of them ends the response.
  std::vector<Value> begin();
  std::vector<Value> take(const GenerationEvent& event);
  /// The event that ends a stream with an error.
  Value failure(std::string_view message);
  /// The response as it is.
  Value body() const;
  /// The whole conversation, once the text has ended; nothing unless it was to be stored.
  std::optional<StoredResponse> to_store() const;

 private:
  enum class Open : std::uint8_t { nothing, reasoning, message, call };
  struct Item {
    Open kind;
    std::string id, text;            // of a call: its arguments
    std::string name, call_id = {};  // of a call
    bool is_done = false;
  };
  Value event(std::string_view type, Value::Object members);
  Value item_value(const Item& item) const;
  Value part_value(const Item& item) const;
  void open(Open kind, std::vector<Value>& events, const std::string& name = {}, const std::string& call_id = {});
  void add_text(std::string_view text, std::vector<Value>& events);
  void close(std::vector<Value>& events);

  bool streams_, stores_;
  Value settings_;
  Value::Array items_;
  CompletionAnswer completion_;
  std::string id_, model_, status_ = "in_progress", error_;
  std::int64_t created_;
  std::vector<Item> output_;
  Value usage_;
  bool was_cut_ = false;
  std::size_t reasoning_tokens_ = 0;
  std::size_t number_ = 0;  // of the next event
};

}  // namespace weft::serve
