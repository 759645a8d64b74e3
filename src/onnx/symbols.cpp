#include "onnx/symbols.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace weft::onnx {

std::int64_t Polynomial::at(std::span<const Extent> s) const {
  // Numbers that are no extents, such as the lowest integer as the end of a slice, wrap around, and then fit nothing else.
  const auto word = [](std::int64_t value) { return static_cast<std::uint64_t>(value); };
  std::uint64_t sum = word(constant);
  for (std::size_t j = 0; j < linear.size(); ++j) {
    sum += word(linear[j]) * word(s[j]);
    for (std::size_t k = j; k < linear.size(); ++k) sum += word(square[j][k - j]) * word(s[j]) * word(s[k]);
  }
  return static_cast<std::int64_t>(sum);
}

bool Polynomial::is_constant() const {
  const auto is_zero = [](std::int64_t c) { return c == 0; };
  return std::all_of(linear.begin(), linear.end(), is_zero) &&
         std::all_of(square.begin(), square.end(),
                     [&](const auto& row) { return std::all_of(row.begin(), row.end(), is_zero); });
}

std::string Polynomial::to_string(std::span<const std::string> names) const {
  std::string text;
  const auto add = [&](std::int64_t coefficient, const std::string& of) {
    if (coefficient == 0) return;
    if (!text.empty())
      text += coefficient < 0 ? " - " : " + ";
    else if (coefficient < 0)
      text += "-";
    const std::int64_t size = coefficient < 0 ? -coefficient : coefficient;
    text += of.empty() ? fmt::format("{}", size) : size == 1 ? of : fmt::format("{}*{}", size, of);
  };
  for (std::size_t j = 0; j < linear.size(); ++j)
    for (std::size_t k = j; k < linear.size(); ++k) add(square[j][k - j], fmt::format("{}*{}", names[j], names[k]));
  for (std::size_t j = 0; j < linear.size(); ++j) add(linear[j], names[j]);
  add(constant, "");
  return text.empty() ? "0" : text;
}

// Order: the base; a step along each symbol; two steps along each; a step along both of each pair; what confirms.
TracePoints TracePoints::from(const std::vector<Extent>& base, Extent step) {
  TracePoints points{{base}, base.size(), step};
  const auto moved = [&](std::size_t k, Extent steps, std::vector<Extent> from) {
    from[k] += steps * step;
    return from;
  };
  for (const Extent steps : {1, 2})
    for (std::size_t k = 0; k < base.size(); ++k) points.at.push_back(moved(k, steps, base));
  for (std::size_t j = 0; j < base.size(); ++j)
    for (std::size_t k = j + 1; k < base.size(); ++k) points.at.push_back(moved(j, 1, moved(k, 1, base)));
  std::vector<Extent> beyond = base;
  for (std::size_t k = 0; k < base.size(); ++k) beyond = moved(k, 3, beyond);
  points.at.push_back(beyond);
  return points;
}

Polynomial TracePoints::constant(std::int64_t value) const {
  Polynomial p{.constant = value, .linear = std::vector<std::int64_t>(symbols), .square = {}};
  for (std::size_t j = 0; j < symbols; ++j) p.square.emplace_back(symbols - j);
  return p;
}

std::optional<Polynomial> TracePoints::polynomial(std::span<const std::int64_t> values) const {
  // Differences, in unsigned arithmetic, which wraps around.
  const auto word = [&](std::size_t i) { return static_cast<std::uint64_t>(values[i]); };
  const std::uint64_t f = word(0);
  std::vector<std::uint64_t> linear(symbols), squares(symbols);
  Polynomial p = this->constant(0);
  std::uint64_t constant = f;
  const auto base = [&](std::size_t k) { return static_cast<std::uint64_t>(at[0][k]); };
  const auto sign = static_cast<std::uint64_t>(step);
  // f(base + step * t) = f + sum (d_k - q_k) t_k + q_k t_k^2 + sum c_jk t_j t_k, and t_k = step * (s_k - base_k).
  for (std::size_t k = 0; k < symbols; ++k) {
    const std::uint64_t once = word(1 + k) - f, twice = word(1 + symbols + k) - f;
    const auto second = static_cast<std::int64_t>(twice - 2 * once);
    if (second % 2 != 0) return {};
    const auto q = static_cast<std::uint64_t>(second / 2), d = (once - q) * sign;
    squares[k] += q;
    linear[k] += d - 2 * q * base(k);
    constant += q * base(k) * base(k) - d * base(k);
  }
  std::size_t pair = 1 + 2 * symbols;
  for (std::size_t j = 0; j < symbols; ++j)
    for (std::size_t k = j + 1; k < symbols; ++k) {
      const std::uint64_t c = word(pair++) - word(1 + j) - word(1 + k) + f;
      p.square[j][k - j] = static_cast<std::int64_t>(c);
      linear[j] -= c * base(k);
      linear[k] -= c * base(j);
      constant += c * base(j) * base(k);
    }
  for (std::size_t k = 0; k < symbols; ++k) {
    p.linear[k] = static_cast<std::int64_t>(linear[k]);
    p.square[k][0] = static_cast<std::int64_t>(squares[k]);
  }
  p.constant = static_cast<std::int64_t>(constant);
  for (std::size_t i = 0; i < at.size(); ++i)
    if (p.at(at[i]) != values[i]) return {};
  return p;
}

std::string TracePoints::to_string(std::size_t point, std::span<const std::string> names) const {
  std::string text;
  for (std::size_t k = 0; k < symbols; ++k) text += fmt::format("{}{} = {}", k ? ", " : "", names[k], at[point][k]);
  return text;
}

}  // namespace weft::onnx
