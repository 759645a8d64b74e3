// Where a function is traced, and the polynomials that its numbers are.
//
// An export with changing extents traces the function at several points, each of which gives every symbol an extent. A number
// that differs between the traces must be a polynomial of the symbols and of the quotients that ops declare. The points
// determine it, and further points confirm it.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "onnx/symbols.hpp"
#include "weft/shape.hpp"

namespace weft::onnx {

class TracePoints {
 public:
  /// The extents of the symbols.
  using Point = std::vector<Extent>;

  /// One point, for a function without symbols.
  TracePoints() { add(Point{}); }
  /// From `base` on in steps of 1 or -1: what determines polynomials of the symbols, and a point that confirms them.
  TracePoints(const Point& base, Extent step);

  const std::vector<Point>& at() const { return at_; }
  Extent step() const { return step_; }
  bool may_change() const { return !at_[0].empty(); }
  /// Number of symbols and quotients.
  std::size_t variables() const { return at_[0].size() + quotients_.size(); }
  const std::vector<Quotient>& quotients() const { return quotients_; }

  void add(const Point& point);
  /// From here on, numbers may depend on the quotient too. False if it is known, or there are too many to tell apart.
  bool add(const Quotient& quotient);

  /// The polynomial with these values at the points, if there is one.
  std::optional<Polynomial> polynomial(std::span<const std::int64_t> values) const;
  /// Whether a trace at the point would tell polynomials apart that are equal at the points so far.
  bool tells_more(const Point& point) const;
  /// Points around the base at which every quotient takes several values and leaves every remainder, near ones first.
  std::vector<Point> candidates() const;

  /// "batch = 4, length = 7".
  std::string to_string(std::size_t point, std::span<const std::string> names) const;

 private:
  // A sum of rows of monomials, one row for each point, and the points that it is made of. Words are numbers modulo a prime.
  struct Row {
    std::vector<std::uint64_t> monomials, points;
    std::size_t lead = 0;  // the first monomial that is not 0; it is 1
  };
  std::vector<std::int64_t> variables_at(const Point& point) const;
  std::vector<Polynomial::Term> monomials() const;
  std::vector<std::int64_t> monomials_at(const Point& point) const;
  std::vector<Extent> period_of(const Quotient& quotient) const;
  std::optional<Row> independent(const std::vector<std::int64_t>& monomials) const;
  std::optional<Polynomial> checked(std::span<const std::int64_t> coefficients,
                                    std::span<const std::int64_t> values) const;
  void extend(std::size_t number);

  Extent step_ = 1;
  std::vector<Point> at_;
  std::vector<Quotient> quotients_;
  std::vector<std::vector<Extent>>
      periods_;  // of each quotient: after so many steps of a symbol its remainders come again
  std::vector<std::vector<std::int64_t>> matrix_;  // the monomials of each point, 1 first
  std::vector<Row> rows_;                          // independent; by lead
};

}  // namespace weft::onnx
