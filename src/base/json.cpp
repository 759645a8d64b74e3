#include "base/json.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <unordered_set>
#include <vector>

#include "base/file.hpp"
#include "base/quote.hpp"
#include "base/utf8.hpp"
#include "weft/error.hpp"

namespace weft {
namespace {

/// Input of the parser that counts the characters read, because nlohmann's event interface gives no positions.
class CountingIterator {
 public:
  using iterator_category = std::forward_iterator_tag;
  using value_type = char;
  using difference_type = std::ptrdiff_t;
  using pointer = const char*;
  using reference = const char&;

  CountingIterator() = default;
  CountingIterator(const char* at, const char* begin, std::size_t* read) : at_(at), begin_(begin), read_(read) {}
  reference operator*() const { return *at_; }
  CountingIterator& operator++() {
    ++at_;
    *read_ = static_cast<std::size_t>(at_ - begin_);
    return *this;
  }
  CountingIterator operator++(int) {
    CountingIterator before = *this;
    ++*this;
    return before;
  }
  bool operator==(const CountingIterator& other) const { return at_ == other.at_; }
  bool operator!=(const CountingIterator& other) const { return at_ != other.at_; }

 private:
  const char* at_ = nullptr;
  const char* begin_ = nullptr;
  std::size_t* read_ = nullptr;
};

/// "[json.exception.parse_error.101] parse error at ...: syntax error while parsing value - FACT; last read: '...'" ->
/// FACT.
std::string parser_fact(std::string_view message) {
  if (const auto dash = message.find(" - "); dash != std::string_view::npos) {
    message.remove_prefix(dash + 3);
  } else if (const auto bracket = message.find("] "); bracket != std::string_view::npos) {
    message.remove_prefix(bracket + 2);
  }
  const auto last_read = message.find("; last read: '");
  const auto expected = message.rfind("; expected ");
  std::string fact(message.substr(0, std::min(last_read, message.find(" parsing '"))));
  if (last_read != std::string_view::npos && expected != std::string_view::npos && expected > last_read)
    fact += message.substr(expected);
  return fact;
}

}  // namespace

std::string JsonCursor::place(std::string_view what) const {
  const std::string_view before = text_.substr(0, byte_ == 0 ? 0 : byte_ - 1);
  const auto line = 1 + std::count(before.begin(), before.end(), '\n');
  const auto newline = before.rfind('\n');
  const std::string_view row = newline == std::string_view::npos ? before : before.substr(newline + 1);
  const auto column = 1 + std::count_if(row.begin(), row.end(), [](char c) { return (c & 0xC0) != 0x80; });
  return fmt::format("{}: line {}, column {}: {}", source_, line, column, what);
}

void JsonCursor::error(std::string_view what, JsonError::Fact fact) const { throw JsonError(place(what), fact, byte_); }

/// Checks the rules that nlohmann's parser does not check, and passes the pieces on.
struct JsonEvents : nlohmann::json_sax<Json> {
  JsonEvents(JsonHandler& handler_, JsonCursor& cursor_, const JsonLimits& limits_)
      : handler(handler_), cursor(cursor_), limits(limits_) {}

  void count() {
    if (++values > limits.max_values)
      cursor.error(fmt::format("more than {} values; the file is too large to be read", limits.max_values),
                   JsonError::Fact::limit);
  }
  bool scalar(Json value) {
    count();
    handler.value(std::move(value), cursor);
    return true;
  }
  bool start(bool object) {
    count();
    if (static_cast<int>(keys.size()) >= limits.max_depth)
      cursor.error(fmt::format("arrays and objects are nested deeper than {}", limits.max_depth),
                   JsonError::Fact::limit);
    keys.emplace_back();
    handler.start(object, cursor);
    return true;
  }
  bool end(bool object) {
    keys.pop_back();
    handler.end(object, cursor);
    return true;
  }

  bool null() override { return scalar(nullptr); }
  bool boolean(bool value) override { return scalar(value); }
  bool number_integer(number_integer_t value) override { return scalar(value); }
  bool number_unsigned(number_unsigned_t value) override { return scalar(value); }
  bool number_float(number_float_t value, const string_t&) override { return scalar(value); }
  bool string(string_t& value) override { return scalar(std::move(value)); }
  bool binary(binary_t&) override { throw InternalError("binary values cannot occur in JSON text"); }
  bool start_object(std::size_t) override { return start(true); }
  bool end_object() override { return end(true); }
  bool start_array(std::size_t) override { return start(false); }
  bool end_array() override { return end(false); }
  bool key(string_t& name) override {
    count();
    if (!keys.back().insert(name).second)
      cursor.error(fmt::format("key {} occurs twice; keep one", quote(name)), JsonError::Fact::duplicate_key);
    handler.key(name, cursor);
    return true;
  }
  bool parse_error(std::size_t position, const std::string& last, const nlohmann::detail::exception& failure) override {
    cursor.byte_ = position;  // exact if the parser had read one character ahead; after the text at its end
    const std::string near = last.empty() ? "" : fmt::format(", near {}", quote(last, 40));
    cursor.error(fmt::format("not valid JSON: {}{}", parser_fact(failure.what()), near), JsonError::Fact::syntax);
  }

  JsonHandler& handler;
  JsonCursor& cursor;
  const JsonLimits& limits;
  std::uint64_t values = 0;
  std::vector<std::unordered_set<std::string>> keys;  // one set for each level
};

/// Runs the parser; only this class may move the cursor.
class JsonReader {
 public:
  static void read(std::string_view text, std::string_view source, JsonHandler& handler, const JsonLimits& limits) {
    JsonCursor cursor(text, source);
    JsonEvents events(handler, cursor, limits);
    const char* const begin = text.data();
    const CountingIterator first(begin, begin, &cursor.byte_), last(begin + text.size(), begin, &cursor.byte_);
    Json::sax_parse(first, last, &events);
  }
};

void parse_json_events(std::string_view text, std::string_view source, JsonHandler& handler, const JsonLimits& limits) {
  if (text.size() > limits.max_bytes)
    throw FileError(
        fmt::format("{}: the JSON text holds {} bytes, over the limit of {}", source, text.size(), limits.max_bytes));
  if (text.starts_with("\xEF\xBB\xBF"))
    throw FileError(fmt::format(
        "{}: line 1, column 1: JSON must not begin with a byte order mark; remove the first three bytes", source));
  require_utf8(text, source);
  if (const auto nul = text.find('\0');
      nul != std::string_view::npos)  // nlohmann's lexer treats it as the end of the text
    throw FileError(fmt::format("{}: not valid JSON: byte {} is NUL", source, nul));
  JsonReader::read(text, source, handler, limits);
}

namespace {

/// Builds the document; `open_` leads from the root to the container being filled.
class DocumentBuilder : public JsonHandler {
 public:
  void value(Json scalar, const JsonCursor&) override { place(std::move(scalar)); }
  void key(std::string name, const JsonCursor&) override { key_ = std::move(name); }
  void start(bool object, const JsonCursor&) override {
    open_.push_back(place(object ? Json::object() : Json::array()));
  }
  void end(bool, const JsonCursor&) override { open_.pop_back(); }
  Json take() { return std::move(root_); }

 private:
  // Pointers to containers stay valid: only the innermost one grows, and no open container is inside it.
  Json* place(Json value) {
    if (open_.empty()) return &(root_ = std::move(value));
    Json& container = *open_.back();
    if (container.is_object()) return &(container[key_] = std::move(value));
    return &container.emplace_back(std::move(value));
  }

  Json root_;
  std::vector<Json*> open_;
  std::string key_;
};

}  // namespace

Json parse_json(std::string_view text, std::string_view source, const JsonLimits& limits) {
  DocumentBuilder builder;
  parse_json_events(text, source, builder, limits);
  return builder.take();
}

Json read_json_file(const std::filesystem::path& path, const JsonLimits& limits) {
  return parse_json(read_text_file(path, limits.max_bytes), path.string(), limits);
}

}  // namespace weft
