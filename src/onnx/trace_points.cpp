#include "onnx/trace_points.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <tuple>

namespace weft::onnx {
namespace {

// Polynomials are found modulo a prime, where every number but 0 divides, and are then checked in whole numbers.
constexpr std::uint64_t kPrime = (std::uint64_t{1} << 61) - 1;
constexpr std::int64_t kGreatestCoefficient = std::int64_t{1} << 40;

std::uint64_t product(std::uint64_t a, std::uint64_t b) {
  return static_cast<std::uint64_t>(static_cast<unsigned __int128>(a) * b % kPrime);
}
std::uint64_t difference(std::uint64_t a, std::uint64_t b) { return a >= b ? a - b : a + kPrime - b; }
std::uint64_t reciprocal(std::uint64_t a) {
  std::uint64_t y = 1;
  for (std::uint64_t exponent = kPrime - 2; exponent; exponent >>= 1, a = product(a, a))
    if (exponent & 1) y = product(y, a);
  return y;
}
std::uint64_t modulo(std::int64_t value) {
  const auto prime = static_cast<std::int64_t>(kPrime);
  return static_cast<std::uint64_t>((value % prime + prime) % prime);
}

}  // namespace

// The base; a step along each symbol; two steps along each; a step along both of each pair; what confirms.
TracePoints::TracePoints(const Point& base, Extent step) : step_(step) {
  const auto moved = [&](std::size_t k, Extent steps, Point from) {
    from[k] += steps * step;
    return from;
  };
  add(base);
  for (const Extent steps : {1, 2})
    for (std::size_t k = 0; k < base.size(); ++k) add(moved(k, steps, base));
  for (std::size_t j = 0; j < base.size(); ++j)
    for (std::size_t k = j + 1; k < base.size(); ++k) add(moved(j, 1, moved(k, 1, base)));
  Point beyond = base;
  for (std::size_t k = 0; k < base.size(); ++k) beyond = moved(k, 3, beyond);
  add(beyond);
}

void TracePoints::add(const Point& point) {
  at_.push_back(point);
  extend(at_.size() - 1);
}

bool TracePoints::add(const Quotient& quotient) {
  constexpr std::size_t kMost = 16;
  constexpr Extent kLongestPeriod = 4096;
  const std::vector<Extent> period = period_of(quotient);
  if (quotients_.size() == kMost || *std::max_element(period.begin(), period.end()) > kLongestPeriod ||
      std::find(quotients_.begin(), quotients_.end(), quotient) != quotients_.end())
    return false;
  quotients_.push_back(quotient);
  periods_.push_back(period);
  rows_.clear();
  matrix_.clear();
  for (std::size_t i = 0; i < at_.size(); ++i) extend(i);
  return true;
}

void TracePoints::extend(std::size_t number) {
  matrix_.push_back(monomials_at(at_[number]));
  std::optional<Row> row = independent(matrix_.back());
  if (!row) return;
  row->points.resize(number + 1);
  row->points[number] = 1;
  const std::uint64_t scale = reciprocal(row->monomials[row->lead]);
  for (std::uint64_t& word : row->monomials) word = product(word, scale);
  for (std::uint64_t& word : row->points) word = product(word, scale);
  const auto place = std::find_if(rows_.begin(), rows_.end(), [&](const Row& r) { return r.lead > row->lead; });
  rows_.insert(place, std::move(*row));
}

std::vector<Extent> TracePoints::period_of(const Quotient& quotient) const {
  std::vector<Extent> period(at_[0].size(), 0);
  for (const Polynomial::Term& t : quotient.numerator.terms)
    for (const int variable : {t.a, t.b}) {
      const auto v = static_cast<std::size_t>(variable);
      if (variable < 0) continue;
      for (std::size_t k = 0; k < period.size(); ++k) {
        const Extent own = v < period.size() ? (v == k ? 1 : 0) : periods_[v - period.size()][k];
        period[k] = std::max(period[k], own * quotient.divisor);
      }
    }
  return period;
}

std::vector<std::int64_t> TracePoints::variables_at(const Point& point) const {
  std::vector<std::int64_t> values(point.begin(), point.end());
  for (const Quotient& q : quotients_) values.push_back(q.at(values));
  return values;
}

// Monomials that depend on those before them are not used: s^2 is a sum of q^2, s q, q and s if q is floor(s / 2), with whole
// coefficients, and q^2 is none of the others. So those of later variables come first.
std::vector<Polynomial::Term> TracePoints::monomials() const {
  const int n = static_cast<int>(variables());
  std::vector<Polynomial::Term> all;
  for (int a = 0; a < n; ++a) all.push_back({a});
  for (int a = n; a-- > 0;)
    for (int b = n; b-- > a;) all.push_back({a, b});
  return all;
}

std::vector<std::int64_t> TracePoints::monomials_at(const Point& point) const {
  const std::vector<std::int64_t> variables = variables_at(point);
  std::vector<std::int64_t> values{1};
  for (const Polynomial::Term& m : monomials()) values.push_back(Polynomial{0, {m}}.at(variables));
  return values;
}

// The row of a point less its part in the rows so far, if anything is left.
std::optional<TracePoints::Row> TracePoints::independent(const std::vector<std::int64_t>& monomials) const {
  Row row;
  for (const std::int64_t value : monomials) row.monomials.push_back(modulo(value));
  row.points.resize(at_.size());
  for (const Row& other : rows_) {
    const std::uint64_t scale = row.monomials[other.lead];
    if (scale == 0) continue;
    for (std::size_t i = other.lead; i < row.monomials.size(); ++i)
      row.monomials[i] = difference(row.monomials[i], product(scale, other.monomials[i]));
    for (std::size_t i = 0; i < other.points.size(); ++i)
      row.points[i] = difference(row.points[i], product(scale, other.points[i]));
  }
  const auto lead = std::find_if(row.monomials.begin(), row.monomials.end(), [](std::uint64_t word) { return word; });
  if (lead == row.monomials.end()) return {};
  row.lead = static_cast<std::size_t>(lead - row.monomials.begin());
  return row;
}

bool TracePoints::tells_more(const Point& point) const { return independent(monomials_at(point)).has_value(); }

std::optional<Polynomial> TracePoints::checked(std::span<const std::int64_t> coefficients,
                                               std::span<const std::int64_t> values) const {
  for (const std::int64_t c : coefficients)
    if (c > kGreatestCoefficient || c < -kGreatestCoefficient) return {};
  // Numbers that are not extents, such as the lowest integer as the end of a slice, wrap around, and then fit nothing else.
  for (std::size_t i = 0; i < at_.size(); ++i) {
    std::uint64_t sum = 0;
    for (std::size_t k = 0; k < coefficients.size(); ++k)
      sum += static_cast<std::uint64_t>(coefficients[k]) * static_cast<std::uint64_t>(matrix_[i][k]);
    if (static_cast<std::int64_t>(sum) != values[i]) return {};
  }
  Polynomial p{.constant = coefficients[0], .terms = {}};
  const std::vector<Polynomial::Term> all = monomials();
  for (std::size_t i = 0; i < all.size(); ++i)
    if (coefficients[i + 1]) p.terms.push_back({all[i].a, all[i].b, coefficients[i + 1]});
  std::sort(p.terms.begin(), p.terms.end(), [](const Polynomial::Term& x, const Polynomial::Term& y) {
    return std::tuple(x.b >= 0, x.a, x.b) < std::tuple(y.b >= 0, y.a, y.b);
  });
  return p;
}

std::optional<Polynomial> TracePoints::polynomial(std::span<const std::int64_t> values) const {
  const std::size_t count = matrix_[0].size();
  std::vector<std::int64_t> whole(count);
  const auto other = std::find_if(values.begin(), values.end(), [&](std::int64_t v) { return v != values[0]; });
  if (other == values.end()) return Polynomial{.constant = values[0], .terms = {}};
  // Most sizes are `scale * m + constant`. There may be longer sums for the same values.
  const std::vector<std::int64_t>& at_other = matrix_[static_cast<std::size_t>(other - values.begin())];
  for (std::size_t i = 1; i < count; ++i) {
    const std::int64_t step = at_other[i] - matrix_[0][i], rise = *other - values[0];
    if (step == 0 || rise % step != 0) continue;
    whole[i] = rise / step;
    whole[0] = values[0] - whole[i] * matrix_[0][i];
    if (const auto p = checked(whole, values)) return p;
    whole[i] = 0;
  }
  // From the last row to the first: each gives the coefficient of its lead.
  std::vector<std::uint64_t> coefficients(count);
  for (auto row = rows_.rbegin(); row != rows_.rend(); ++row) {
    std::uint64_t sum = 0;
    for (std::size_t i = 0; i < row->points.size(); ++i)
      sum = (sum + product(row->points[i], modulo(values[i]))) % kPrime;
    for (std::size_t i = row->lead + 1; i < count; ++i)
      sum = difference(sum, product(row->monomials[i], coefficients[i]));
    coefficients[row->lead] = sum;
  }
  for (std::size_t i = 0; i < count; ++i)
    whole[i] = static_cast<std::int64_t>(coefficients[i]) -
               (coefficients[i] > kPrime / 2 ? static_cast<std::int64_t>(kPrime) : 0);
  return checked(whole, values);
}

std::vector<TracePoints::Point> TracePoints::candidates() const {
  constexpr Extent kLeast = 2;
  const Point& base = at_[0];
  std::vector<Extent> reach(base.size(), 1);
  for (const std::vector<Extent>& period : periods_)
    for (std::size_t k = 0; k < base.size(); ++k) reach[k] = std::max(reach[k], period[k]);
  for (Extent& r : reach) r = 3 * r + 3;
  std::vector<Point> points;
  // A function may take no longer extents, or no shorter ones, so the other direction comes last.
  for (const Extent step : {step_, -step_}) {
    for (std::size_t k = 0; k < base.size(); ++k)
      for (Extent by = 1; by <= reach[k]; ++by) {
        Point point = base;
        point[k] += by * step;
        if (point[k] < kLeast) break;
        points.push_back(point);
      }
    std::uint64_t state = 1;
    for (int i = 0; i < 2000; ++i) {
      Point point = base;
      for (std::size_t k = 0; k < base.size(); ++k) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        const auto by = static_cast<Extent>((state >> 33) % static_cast<std::uint64_t>(reach[k]));
        point[k] = std::max(kLeast, point[k] + step * by);
      }
      points.push_back(point);
    }
  }
  return points;
}

std::string TracePoints::to_string(std::size_t point, std::span<const std::string> names) const {
  std::string text;
  for (std::size_t k = 0; k < at_[point].size(); ++k)
    text += fmt::format("{}{} = {}", k ? ", " : "", names[k], at_[point][k]);
  return text;
}

}  // namespace weft::onnx
