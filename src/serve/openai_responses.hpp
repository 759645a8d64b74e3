// The Responses API of OpenAI: conversations of items, which become chats, and the events of their answers.
#pragma once

#include <cstdint>
#include <filesystem>
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
/// The list of the items that a response answered.
Value input_items(const StoredResponse& stored);

/// The latest responses, in memory and perhaps in a folder, where a later store finds them. The oldest go first. Each response is a
/// file that appears whole or not at all, and is on the disk before its request ends. One store at a time may use a folder.
/// Thread safety: any thread may call any function.
class ResponseStore {
 public:
  static constexpr std::size_t kResponsesMax = 1000, kBytesMax = std::size_t{64} << 20;

  /// Without a folder responses are forgotten at the end. The folder is made if it is missing, for this user alone, and its
  /// responses are read. Errors: FileError for a folder that cannot be made, read or written, or that another store uses.
  explicit ResponseStore(std::filesystem::path folder = {});
  ~ResponseStore();
  ResponseStore(const ResponseStore&) = delete;

  std::optional<StoredResponse> find(std::string_view id) const;
  /// Does not keep a response that is larger than all of them may be together. Gives what went wrong on the disk, or "": the response
  /// is then in memory alone.
  std::string put(const std::string& id, StoredResponse response);
  bool remove(std::string_view id);
  /// Files that were left out, because they are damaged.
  const std::vector<std::string>& problems() const { return problems_; }

 private:
  struct Entry {
    std::string id;
    StoredResponse response;
    std::size_t bytes;
    std::uint64_t number;  // in the order of time
  };
  std::filesystem::path file_of(std::string_view id) const;
  void read_folder();
  void add(Entry entry);
  void forget(std::list<Entry>::iterator entry);

  std::filesystem::path folder_;
  int lock_ = -1;
  std::vector<std::string> problems_;
  std::uint64_t next_number_ = 1;
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
