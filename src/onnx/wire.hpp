// The wire format of protocol buffers: fields of a number and one of four forms. The reader never leaves its bytes and copies
// nothing; what a message means is for its caller.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace weft::onnx {

using Bytes = std::span<const std::byte>;

inline std::string_view text_of(Bytes bytes) { return {reinterpret_cast<const char*>(bytes.data()), bytes.size()}; }

/// The fields of a message, one after another:
///
///     while (reader.next()) switch (reader.field()) { case 1: name = reader.text(); break; ... }
///
/// A field that the caller does not read is skipped. Errors: FileError "source: what: fact" for bytes that end inside of a
/// field, numbers of more than 64 bits, unknown forms, and a value that is read in another form than it has.
class WireReader {
 public:
  /// `source` names the file and must outlive the reader; `what` names the message.
  WireReader(Bytes bytes, const std::string& source, const char* what) : bytes_(bytes), source_(&source), what_(what) {}

  bool next();
  std::uint32_t field() const { return field_; }
  /// Whether the value has its own bytes: texts, messages, packed numbers.
  bool has_bytes() const { return form_ == kBytes; }

  std::uint64_t number() const { return read_as(kNumber), value_; }
  std::int64_t integer() const { return static_cast<std::int64_t>(number()); }
  float real() const;
  double long_real() const;
  Bytes bytes() const { return read_as(kBytes), body_; }
  std::string_view text() const { return text_of(bytes()); }

  /// Calls f for each number of a repeated field, packed or not.
  template <class F>
  void each_number(F f) const {
    if (!has_bytes()) return f(number());
    Bytes rest = body_;
    while (!rest.empty()) f(take_number(rest));
  }
  /// The elements of a repeated field of fixed size, packed or not, as bytes.
  Bytes fixed_elements() const;

  const std::string& source() const { return *source_; }
  [[noreturn]] void fail(std::string_view fact) const;

 private:
  enum Form : std::uint32_t { kNumber = 0, kFixed64 = 1, kBytes = 2, kFixed32 = 5 };
  void read_as(Form form) const;
  std::uint64_t take_number(Bytes& rest) const;
  Bytes take(std::uint64_t count);

  Bytes bytes_, body_;
  const std::string* source_;
  const char* what_;
  std::uint32_t field_ = 0, form_ = 0;
  std::uint64_t value_ = 0;
};

/// A message under construction.
class WireWriter {
 public:
  void number(std::uint32_t field, std::uint64_t value);
  void integer(std::uint32_t field, std::int64_t value) { number(field, static_cast<std::uint64_t>(value)); }
  void real(std::uint32_t field, float value);
  void text(std::uint32_t field, std::string_view text);
  void message(std::uint32_t field, const WireWriter& message) { text(field, message.out_); }
  const std::string& bytes() const { return out_; }
  bool operator==(const WireWriter&) const = default;

 private:
  void put(std::uint64_t value);
  std::string out_;
};

}  // namespace weft::onnx
