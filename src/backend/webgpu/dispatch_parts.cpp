#include "backend/webgpu/dispatch_parts.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>

namespace weft::webgpu {
namespace {

std::string pooled_name(const std::string& element, std::size_t number) {
  std::string name = "shared_";
  for (const char c : element)
    if (std::isalnum(static_cast<unsigned char>(c))) name += c;
  return fmt::format("{}_{}", name, number);
}

}  // namespace

bool overlap(const BoundRange& a, const BoundRange& b) {
  return a.buffer == b.buffer && a.offset < b.offset + b.bytes && b.offset < a.offset + a.bytes;
}

void WorkgroupPool::add(const ShaderPieces& shader) {
  std::map<std::string, std::size_t, std::less<>> used;
  for (const ShaderPieces::Shared& array : shader.shared) {
    std::vector<std::int64_t>& counts = counts_[array.element];
    const std::size_t at = used[array.element]++;
    if (at == counts.size()) counts.push_back(0);
    counts[at] = std::max(counts[at], array.count);
  }
}

std::int64_t WorkgroupPool::bytes() const {
  std::int64_t bytes = 0;
  for (const auto& [element, counts] : counts_)
    for (const std::int64_t count : counts) bytes += (shared_element_bytes(element) * count + 15) / 16 * 16;
  return bytes;
}

void WorkgroupPool::name(const ShaderPieces& shader, ShaderNames& names) {
  std::map<std::string, std::size_t, std::less<>> used;
  for (const ShaderPieces::Shared& array : shader.shared)
    names[array.name] = pooled_name(array.element, used[array.element]++);
}

void WorkgroupPool::declare(ShaderPieces& joined) const {
  for (const auto& [element, counts] : counts_)
    for (std::size_t i = 0; i < counts.size(); ++i) joined.share(pooled_name(element, i), element, counts[i]);
}

void replace_meeting_marks(ShaderPieces& shader, std::string_view by) {
  const auto replace = [&](std::string& text) {
    for (std::size_t at = text.find(kMeetingMark); at != std::string::npos;
         at = text.find(kMeetingMark, at + by.size()))
      text.replace(at, kMeetingMark.size(), by);
  };
  for (ShaderPieces::Function& function : shader.functions) replace(function.text);
  replace(shader.body);
}

void add_functions(const ShaderPieces& shader, std::size_t number, ShaderNames& names, ShaderPieces& joined) {
  for (const ShaderPieces::Function& function : shader.functions)
    names[function.name] = fmt::format("{}_{}", function.name, number);
  for (const ShaderPieces::Function& function : shader.functions)
    joined.functions.push_back({names.at(function.name), with_new_names(function.text, names)});
}

}  // namespace weft::webgpu
