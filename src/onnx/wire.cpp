#include "onnx/wire.hpp"

#include <fmt/format.h>

#include <cstring>

#include "weft/error.hpp"

namespace weft::onnx {

void WireReader::fail(std::string_view fact) const {
  throw FileError(fmt::format("{}: {}: {}", *source_, what_, fact));
}

std::uint64_t WireReader::take_number(Bytes& rest) const {
  std::uint64_t value = 0;
  for (int shift = 0; shift < 70; shift += 7) {
    if (rest.empty()) fail("the file ends inside of a number; it is truncated");
    const auto byte = static_cast<std::uint64_t>(rest.front());
    rest = rest.subspan(1);
    if (shift == 63 && byte > 1) break;
    value |= (byte & 0x7f) << shift;
    if (byte < 0x80) return value;
  }
  fail("a number has more than 64 bits");
}

Bytes WireReader::take(std::uint64_t count) {
  if (count > bytes_.size())
    fail(fmt::format("field {} has {} bytes, of which only {} are there", field_, count, bytes_.size()));
  const Bytes taken = bytes_.first(count);
  bytes_ = bytes_.subspan(count);
  return taken;
}

bool WireReader::next() {
  if (bytes_.empty()) return false;
  const std::uint64_t tag = take_number(bytes_);
  if (tag >> 3 == 0 || tag >> 3 > 0x1fffffff) fail(fmt::format("field number {} is out of range", tag >> 3));
  field_ = static_cast<std::uint32_t>(tag >> 3);
  form_ = static_cast<std::uint32_t>(tag & 7);
  switch (form_) {
    case kNumber: value_ = take_number(bytes_); break;
    case kBytes: body_ = take(take_number(bytes_)); break;
    case kFixed64: body_ = take(8); break;
    case kFixed32: body_ = take(4); break;
    default: fail(fmt::format("field {} has the unknown form {}; this is not an ONNX file", field_, form_));
  }
  return true;
}

void WireReader::read_as(Form form) const {
  if (form_ != form) fail(fmt::format("field {} has form {}; expected {}", field_, form_, static_cast<int>(form)));
}

float WireReader::real() const {
  read_as(kFixed32);
  float value = 0;
  std::memcpy(&value, body_.data(), 4);
  return value;
}

double WireReader::long_real() const {
  read_as(kFixed64);
  double value = 0;
  std::memcpy(&value, body_.data(), 8);
  return value;
}

Bytes WireReader::fixed_elements() const {
  if (form_ == kNumber) read_as(kBytes);
  return body_;
}

void WireWriter::put(std::uint64_t value) {
  for (; value >= 0x80; value >>= 7) out_.push_back(static_cast<char>(value | 0x80));
  out_.push_back(static_cast<char>(value));
}

void WireWriter::number(std::uint32_t field, std::uint64_t value) {
  put(std::uint64_t{field} << 3);
  put(value);
}

void WireWriter::real(std::uint32_t field, float value) {
  put(std::uint64_t{field} << 3 | 5);
  char bytes[4];
  std::memcpy(bytes, &value, 4);
  out_.append(bytes, 4);
}

void WireWriter::text(std::uint32_t field, std::string_view text) {
  put(std::uint64_t{field} << 3 | 2);
  put(text.size());
  out_.append(text);
}

}  // namespace weft::onnx
