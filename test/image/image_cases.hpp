// Files of images that Pillow was asked about, and damage to them.
#pragma once

#include <cstdint>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "base/json.hpp"

namespace weft::test {

inline std::vector<std::uint8_t> bytes_of(const Json& hex) {
  const auto text = hex.get<std::string>();
  std::vector<std::uint8_t> bytes;
  for (std::size_t i = 0; i < text.size(); i += 2)
    bytes.push_back(static_cast<std::uint8_t>(std::stoi(text.substr(i, 2), nullptr, 16)));
  return bytes;
}
inline std::span<const std::byte> view(const std::vector<std::uint8_t>& bytes) {
  return std::as_bytes(std::span(bytes));
}

/// The file with one to four bytes changed or lost, or its end.
inline std::vector<std::uint8_t> damaged(std::vector<std::uint8_t> file, std::mt19937_64& random) {
  for (std::uint64_t n = 1 + random() % 4; n > 0 && !file.empty(); --n) {
    const std::size_t at = random() % file.size();
    switch (random() % 4) {
      case 0: file.resize(at); break;
      case 1: file.erase(file.begin() + static_cast<std::ptrdiff_t>(at)); break;
      default: file[at] = static_cast<std::uint8_t>(random());
    }
  }
  return file;
}

}  // namespace weft::test
