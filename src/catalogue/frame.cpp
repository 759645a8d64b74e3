#include "catalogue/frame.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "weft/error.hpp"

namespace weft::operations {
namespace {

constexpr std::string_view kMagic = "WEFT";
constexpr std::uint32_t kFrameVersion = 1;
constexpr std::size_t kHead = 16;

[[noreturn]] void refuse_frame(const std::string& fact) {
  throw OperationError(kValidationError, fmt::format("the frame is damaged: {}", fact));
}

std::uint64_t section_start_of(std::uint64_t json_bytes) {
  constexpr std::uint64_t k = TensorSection::kAlignment;
  return (kHead + json_bytes + k - 1) / k * k;
}

}  // namespace

bool is_frame(std::string_view bytes) { return bytes.starts_with(kMagic); }

Value from_frame(std::string_view bytes, Handles& handles, std::string_view owner, std::uint64_t values_max) {
  std::string_view json = bytes;
  std::string_view section;
  const bool framed = is_frame(bytes);
  if (framed) {
    if (bytes.size() < kHead)
      refuse_frame(fmt::format("it has {} bytes, and its head alone has {}", bytes.size(), kHead));
    std::uint32_t version = 0;
    std::uint64_t length = 0;
    std::memcpy(&version, bytes.data() + 4, 4);
    std::memcpy(&length, bytes.data() + 8, 8);
    if (version != kFrameVersion)
      refuse_frame(fmt::format("its version is {}, and this reads {}", version, kFrameVersion));
    if (length > bytes.size() - kHead)
      refuse_frame(fmt::format("its JSON has {} bytes, and {} are left", length, bytes.size() - kHead));
    json = bytes.substr(kHead, length);
    section = bytes.substr(std::min<std::uint64_t>(section_start_of(length), bytes.size()));
  }
  Value value;
  try {
    value = Value::parse(json, "the message", values_max);
  } catch (const Error& error) {
    throw OperationError(kValidationError, error.what());
  }
  return framed ? from_wire(std::move(value), section, handles, owner) : from_wire(std::move(value), handles, owner);
}

Frame::Frame(const Value& value, WireTensors form, Handles& handles, const Holder& holder)
    : json_(to_wire(value, form, section_, handles, holder).to_json()) {}

std::uint64_t Frame::section_start() const { return section_start_of(json_.size()); }

std::uint64_t Frame::bytes() const { return has_tensors() ? section_start() + section_.bytes() : kHead + json_.size(); }

void Frame::write(char* out) const {
  const std::uint64_t length = json_.size();
  std::memcpy(out, kMagic.data(), 4);
  std::memcpy(out + 4, &kFrameVersion, 4);
  std::memcpy(out + 8, &length, 8);
  std::memcpy(out + kHead, json_.data(), json_.size());
  if (!has_tensors()) return;
  std::fill(out + kHead + length, out + section_start(), '\0');
  section_.write(out + section_start());
}

std::string Frame::to_string() const {
  std::string text(bytes(), '\0');
  write(text.data());
  return text;
}

}  // namespace weft::operations
