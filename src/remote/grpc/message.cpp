#include "remote/grpc/message.hpp"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <deque>
#include <mutex>
#include <new>
#include <vector>

namespace weft::remote {
namespace {

constexpr int kVarint = 0, kFixed64 = 1, kBytes = 2, kFixed32 = 5;
constexpr std::uint32_t kPaddingField = 15;
constexpr std::size_t kLentBytesMin = 64 << 10;  // less is copied faster

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

grpc::Slice copied(std::string_view bytes) { return grpc::Slice(bytes.data(), bytes.size()); }

std::size_t varint_bytes(std::uint64_t value) {
  std::size_t bytes = 1;
  for (; value >= 0x80; value >>= 7) ++bytes;
  return bytes;
}

// `head`, and behind it the section as a field.
grpc::ByteBuffer with_section(std::string head, std::uint32_t field, const operations::TensorSection& section) {
  if (section.bytes() == 0) {
    const grpc::Slice slice = copied(head);
    return {&slice, 1};
  }
  constexpr std::uint64_t kAlignment = operations::TensorSection::kAlignment;
  const std::size_t before = head.size() + 2 + 1 + varint_bytes(section.bytes());  // with the padding's key and length
  const std::size_t padding = (kAlignment - before % kAlignment) % kAlignment;
  put_varint(head, kPaddingField << 3 | kBytes);
  put_varint(head, padding);
  head.append(padding, '\0');
  put_varint(head, field << 3 | kBytes);
  put_varint(head, section.bytes());
  std::vector<grpc::Slice> slices = {copied(head)};
  for (const auto& [memory, bytes] : section.pieces()) {
    if (bytes.size() < kLentBytesMin || !memory) {
      slices.push_back(copied(bytes));
      continue;
    }
    // The slice keeps the memory of the tensor until it has been sent.
    slices.emplace_back(
        const_cast<char*>(bytes.data()), bytes.size(),
        [](void* kept) { delete static_cast<std::shared_ptr<const void>*>(kept); },
        new std::shared_ptr<const void>(memory));
  }
  return {slices.data(), slices.size()};
}

// Memory for large messages that arrive. A block that is not used any more is kept for the next message, because the pages of new
// memory cost as much as the copy into it.
class Blocks {
 public:
  std::shared_ptr<char> take(std::size_t bytes) {
    bytes = (bytes + kPage - 1) / kPage * kPage;
    const std::lock_guard lock(mutex_);
    for (auto at = free_.begin(); at != free_.end(); ++at)
      if (at->bytes >= bytes && at->bytes / 2 <= bytes) {
        Block block = std::move(*at);
        free_.erase(at);
        free_bytes_ -= block.bytes;
        return shared(std::move(block));
      }
    return shared({std::unique_ptr<char, Free>(static_cast<char*>(::operator new(bytes, kAlignment))), bytes});
  }

 private:
  static constexpr std::size_t kPage = 4096, kFreeBytesMax = std::size_t{256} << 20;
  static constexpr std::align_val_t kAlignment{operations::TensorSection::kAlignment};
  struct Free {
    void operator()(char* memory) const { ::operator delete(memory, kAlignment); }
  };
  struct Block {
    std::unique_ptr<char, Free> memory;
    std::size_t bytes;
  };
  std::shared_ptr<char> shared(Block block) {
    char* const memory = block.memory.get();
    auto kept = std::make_shared<Block>(std::move(block));
    return {memory, [this, kept](char*) { give_back(std::move(*kept)); }};
  }
  void give_back(Block block) {
    const std::lock_guard lock(mutex_);
    free_bytes_ += block.bytes;
    free_.push_back(std::move(block));
    while (free_bytes_ > kFreeBytesMax) {
      free_bytes_ -= free_.front().bytes;
      free_.pop_front();
    }
  }
  std::mutex mutex_;
  std::deque<Block> free_;
  std::size_t free_bytes_ = 0;
};

}  // namespace

Whole whole(const grpc::ByteBuffer& buffer) {
  static Blocks& blocks = *new Blocks;  // tensors may use its memory for as long as the program runs
  auto slice = std::make_shared<grpc::Slice>();
  if (buffer.TrySingleSlice(slice.get()).ok()) {
    const std::string_view text(reinterpret_cast<const char*>(slice->begin()), slice->size());
    return {std::move(slice), text};
  }
  std::vector<grpc::Slice> slices;
  if (!buffer.Dump(&slices).ok()) return {};
  const std::shared_ptr<char> memory = blocks.take(buffer.Length());
  char* out = memory.get();
  for (const grpc::Slice& each : slices) {
    std::memcpy(out, each.begin(), each.size());
    out += each.size();
  }
  return {memory, {memory.get(), buffer.Length()}};
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
                              const operations::TensorSection& section, bool keep_tensors, std::string_view session,
                              std::string_view request_id) {
  std::string head;
  put_bytes(head, 1, operation);
  put_bytes(head, 2, input);
  put_bytes(head, 4, request_id);
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
