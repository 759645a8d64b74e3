// JSON from files that may be hostile: duplicate keys refused, depth and size bounded, errors with file, line and
// column.
#pragma once

#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "weft/error.hpp"

namespace weft {

using Json = nlohmann::json;

/// A text that is refused at one of its bytes.
class JsonError : public FileError {
 public:
  enum class Fact : std::uint8_t { syntax, duplicate_key, limit, refused };
  JsonError(const std::string& message, Fact fact, std::size_t byte) : FileError(message), fact_(fact), byte_(byte) {}
  Fact fact() const { return fact_; }
  std::size_t byte() const { return byte_; }

 private:
  Fact fact_;
  std::size_t byte_;
};

struct JsonLimits {
  int max_depth = 64;                                  ///< nested arrays and objects
  std::uint64_t max_bytes = std::uint64_t{256} << 20;  ///< of text
  std::uint64_t max_values = 20'000'000;               ///< keys and values together; one takes about 40 bytes
};

/// Parses all of `text`. FileError "source: line 3, column 12: ..." if it is not JSON (RFC 8259, in UTF-8, no byte order mark),
/// repeats a key in one object, or exceeds a limit; the error is a JsonError where it has a byte.
Json parse_json(std::string_view text, std::string_view source, const JsonLimits& limits = {});

/// Reads and parses a file. FileError as `read_file` and `parse_json`.
Json read_json_file(const std::filesystem::path& path, const JsonLimits& limits = {});

/// Receives a document piece by piece, for large documents of a known form. A handler refuses a piece by throwing a FileError
/// made with `JsonCursor::error`.
class JsonCursor;
class JsonHandler {
 public:
  virtual ~JsonHandler() = default;
  virtual void value(Json scalar, const JsonCursor& cursor) = 0;  ///< null, boolean, number or string
  virtual void key(std::string name, const JsonCursor& cursor) = 0;
  virtual void start(bool object, const JsonCursor& cursor) = 0;  ///< of an object or an array
  virtual void end(bool object, const JsonCursor& cursor) = 0;
};

/// The parser's position, just after the piece that was passed on.
class JsonCursor {
 public:
  JsonCursor(std::string_view text, std::string_view source) : text_(text), source_(source) {}
  std::size_t byte() const { return byte_; }
  /// "source: line 3, column 12: what"; columns count characters from 1.
  std::string place(std::string_view what) const;
  /// Throws a JsonError with this message.
  [[noreturn]] void error(std::string_view what, JsonError::Fact fact = JsonError::Fact::refused) const;

 private:
  friend struct JsonEvents;
  friend class JsonReader;
  std::string_view text_;
  std::string_view source_;
  std::size_t byte_ = 0;
};

/// Like `parse_json`, but passes the document to `handler`. Errors as `parse_json`.
void parse_json_events(std::string_view text, std::string_view source, JsonHandler& handler,
                       const JsonLimits& limits = {});

}  // namespace weft
