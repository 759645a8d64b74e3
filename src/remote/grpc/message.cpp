#include "remote/grpc/message.hpp"

#include <cstdint>
#include <vector>

namespace weft::remote {
namespace {

constexpr int kVarint = 0, kFixed64 = 1, kBytes = 2, kFixed32 = 5;

bool take_varint(std::string_view& rest, std::uint64_t& value) {
  value = 0;
  for (int shift = 0; shift < 64; shift += 7) {
    if (rest.empty()) return false;
    const auto byte = static_cast<unsigned char>(rest[0]);
    rest.remove_prefix(1);
    value |= static_cast<std::uint64_t>(byte & 0x7f) << shift;
    if (byte < 0x80) return true;
  }
  return false;
}

// Calls `field(number, bytes, number_value)` for each field.
template <class Function>
bool each_field(std::string_view rest, const Function& field) {
  while (!rest.empty()) {
    std::uint64_t key = 0, value = 0;
    if (!take_varint(rest, key) || key >> 3 == 0 || key >> 32) return false;
    std::string_view bytes;
    switch (key & 7) {
      case kVarint:
        if (!take_varint(rest, value)) return false;
        break;
      case kFixed64:
      case kFixed32: {
        const std::size_t size = (key & 7) == kFixed64 ? 8 : 4;
        if (rest.size() < size) return false;
        rest.remove_prefix(size);
        break;
      }
      case kBytes:
        if (!take_varint(rest, value) || value > rest.size()) return false;
        bytes = rest.substr(0, value);
        rest.remove_prefix(value);
        break;
      default: return false;
    }
    if (!field(static_cast<std::uint32_t>(key >> 3), static_cast<int>(key & 7), bytes, value)) return false;
  }
  return true;
}

void put_varint(std::string& out, std::uint64_t value) {
  for (; value >= 0x80; value >>= 7) out += static_cast<char>(value | 0x80);
  out += static_cast<char>(value);
}

void put_bytes(std::string& out, std::uint32_t field, std::string_view bytes) {
  if (bytes.empty()) return;
  put_varint(out, field << 3 | kBytes);
  put_varint(out, bytes.size());
  out += bytes;
}

// `head`, and behind it the section as a field.
grpc::ByteBuffer with_section(std::string head, std::uint32_t field, const operations::TensorSection& section) {
  if (section.bytes() == 0) {
    const grpc::Slice slice(head);
    return {&slice, 1};
  }
  put_varint(head, field << 3 | kBytes);
  put_varint(head, section.bytes());
  const grpc::Slice slices[] = {grpc::Slice(head), grpc::Slice(section.bytes())};
  section.write(const_cast<char*>(reinterpret_cast<const char*>(slices[1].begin())));  // memory that was made for this
  return {slices, 2};
}

}  // namespace

grpc::Slice whole(const grpc::ByteBuffer& buffer) {
  grpc::Slice slice;
  if (!buffer.TrySingleSlice(&slice).ok()) buffer.DumpToSingleSlice(&slice);
  return slice;
}

std::string_view text_of(const grpc::Slice& slice) {
  return {reinterpret_cast<const char*>(slice.begin()), slice.size()};
}

bool read_call(std::string_view message, CallFields& fields) {
  return each_field(message, [&](std::uint32_t field, int type, std::string_view bytes, std::uint64_t value) {
    std::string_view* const texts[] = {nullptr, &fields.operation, &fields.input, &fields.tensors, &fields.request_id,
                                       nullptr, &fields.session};
    if (field == 5) {
      fields.keep_tensors = value != 0;
      return type == kVarint;
    }
    if (field >= std::size(texts)) return true;
    *texts[field] = bytes;
    return type == kBytes;
  });
}

bool read_answer(std::string_view message, std::string_view& envelope, std::string_view& tensors) {
  return each_field(message, [&](std::uint32_t field, int type, std::string_view bytes, std::uint64_t) {
    if (field == 1) envelope = bytes;
    if (field == 2) tensors = bytes;
    return field > 2 || type == kBytes;
  });
}

grpc::ByteBuffer call_message(std::string_view operation, std::string_view input,
                              const operations::TensorSection& section, bool keep_tensors, std::string_view session) {
  std::string head;
  put_bytes(head, 1, operation);
  put_bytes(head, 2, input);
  if (keep_tensors) head += {5 << 3 | kVarint, 1};
  put_bytes(head, 6, session);
  return with_section(std::move(head), 3, section);
}

grpc::ByteBuffer answer_message(std::string_view envelope, const operations::TensorSection& section) {
  std::string head;
  put_bytes(head, 1, envelope);
  return with_section(std::move(head), 2, section);
}

}  // namespace weft::remote
