// Answers of calls, their errors, and the events that report calls to observers.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "weft/error.hpp"
#include "weft/operations/specification.hpp"
#include "weft/value.hpp"

namespace weft::operations {

using Clock = std::chrono::system_clock;

// Error codes that every operation may return.
inline constexpr std::string_view kNotFound = "OPERATION_NOT_FOUND";
inline constexpr std::string_view kAccessDenied = "ACCESS_DENIED";
inline constexpr std::string_view kValidationError = "VALIDATION_ERROR";
inline constexpr std::string_view kTimeout = "TIMEOUT";
inline constexpr std::string_view kAborted = "ABORTED";
inline constexpr std::string_view kExecutionError = "EXECUTION_ERROR";
inline constexpr std::string_view kUnknownError = "UNKNOWN_ERROR";
inline constexpr std::string_view kOverloaded = "OVERLOADED";  ///< more calls at once than the exchange allows
inline constexpr std::string_view kLoop = "LOOP";              ///< the call came back to an exchange that it had passed

/// A call that failed: a code, a message for people, and details that fit the schema of the declared error.
class OperationError : public Error {
 public:
  OperationError(std::string_view code, const std::string& message, Value details = nullptr)
      : Error(message), code_(code), details_(std::move(details)) {}
  const std::string& code() const { return code_; }
  const Value& details() const { return details_; }

 private:
  std::string code_;
  Value details_;
};

/// Where an answer came from.
struct LocalSource {
  std::string operation_id;
  Clock::time_point timestamp;
};
struct HttpSource {
  int status_code = 200;
  std::vector<std::pair<std::string, std::string>> headers;
  std::string content_type;
};
struct McpSource {
  bool is_error = false;
  Value content = Value::Array();
  std::optional<Value> structured_content, meta;
};

/// An answer: the data, and where it came from. Handlers return plain data; the exchange wraps it.
struct Envelope {
  Value data;
  std::variant<LocalSource, HttpSource, McpSource> source;
  std::vector<std::string> warnings;  ///< violations of the output's schema
};
/// {"data": ..., "meta": {"source": "local", ...}}.
Value to_value(const Envelope& envelope);
/// The inverse. Errors: UsageError if the value is not an envelope.
Envelope envelope_from(const Value& value);

/// One event of a call. The names on a wire are "call.requested" and so on.
struct Event {
  enum class Type : std::uint8_t { requested, responded, completed, aborted, error };
  Type type = Type::requested;
  std::string request_id;
  // Of a request.
  std::string operation_id;
  Value input;
  std::string parent_request_id;
  std::optional<Clock::time_point> deadline;
  std::string identity;  // the id only
  // Of an answer.
  std::optional<Envelope> output;
  // Of an error.
  std::string code, message;
  Value details;
};
std::string_view name_of(Event::Type type);
Value to_value(const Event& event);

}  // namespace weft::operations
