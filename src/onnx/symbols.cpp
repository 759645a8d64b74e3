#include "onnx/symbols.hpp"

#include <fmt/format.h>

namespace weft::onnx {
namespace {

std::int64_t floor_modulo(std::int64_t a, std::int64_t b) { return (a % b + b) % b; }

}  // namespace

std::int64_t Polynomial::at(std::span<const std::int64_t> variables) const {
  const auto word = [](std::int64_t value) { return static_cast<std::uint64_t>(value); };
  const auto variable = [&](int k) { return word(variables[static_cast<std::size_t>(k)]); };
  std::uint64_t sum = word(constant);
  for (const Term& t : terms) sum += word(t.coefficient) * variable(t.a) * (t.b < 0 ? 1 : variable(t.b));
  return static_cast<std::int64_t>(sum);
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
  const auto name = [&](int k) { return names[static_cast<std::size_t>(k)]; };
  for (const bool is_square : {true, false})
    for (const Term& t : terms)
      if ((t.b >= 0) == is_square) add(t.coefficient, is_square ? name(t.a) + "*" + name(t.b) : name(t.a));
  add(constant, "");
  return text.empty() ? "0" : text;
}

std::int64_t Quotient::at(std::span<const std::int64_t> variables) const {
  const std::int64_t n = numerator.at(variables);
  return (n - floor_modulo(n, divisor)) / divisor;
}

std::string Quotient::to_string(std::span<const std::string> names) const {
  const std::string sum = numerator.to_string(names);
  const bool is_name = numerator.constant == 0 && sum.find_first_of("*+ ") == std::string::npos;
  return is_name ? fmt::format("floor({}/{})", sum, divisor) : fmt::format("floor(({})/{})", sum, divisor);
}

Quotient Quotient::remainder() const {
  Quotient rest{{.constant = floor_modulo(numerator.constant, divisor), .terms = {}}, divisor};
  for (Polynomial::Term t : numerator.terms) {
    t.coefficient = floor_modulo(t.coefficient, divisor);
    if (t.coefficient) rest.numerator.terms.push_back(t);
  }
  return rest;
}

}  // namespace weft::onnx
