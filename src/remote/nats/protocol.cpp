#include "remote/nats/protocol.hpp"

#include <algorithm>
#include <charconv>

namespace weft::remote::wire {

std::optional<double> number_of(std::string_view text) {
  double number = 0;
  const auto read = std::from_chars(text.data(), text.data() + text.size(), number);
  if (read.ec != std::errc() || read.ptr != text.data() + text.size()) return std::nullopt;
  return number;
}

bool is_session(std::string_view subject, std::string_view prefix) {
  constexpr std::size_t kBytesMax = 200;
  const auto wrong = [](char c) { return static_cast<unsigned char>(c) <= ' ' || c == 127 || c == '*' || c == '>'; };
  const bool is_subject = !subject.empty() && subject.size() <= kBytesMax &&
                          std::none_of(subject.begin(), subject.end(), wrong) && !subject.starts_with('.') &&
                          !subject.ends_with('.') && subject.find("..") == std::string_view::npos;
  const bool is_of_workers = subject.starts_with(prefix) && subject.substr(prefix.size()).starts_with('.');
  return is_subject && !subject.starts_with('$') && !is_of_workers;
}

}  // namespace weft::remote::wire
