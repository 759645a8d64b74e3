#include "weft/evolve/clustering.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "grid/random_draws.hpp"
#include "weft/error.hpp"

namespace weft::evolve {
namespace {

double squared_distance(const Point& a, const Point& b) {
  if (a.size() != b.size())
    throw UsageError(
        fmt::format("points of {} and {} dimensions have no distance; give all the same", a.size(), b.size()));
  double sum = 0;
  for (std::size_t i = 0; i < a.size(); ++i) sum += (a[i] - b[i]) * (a[i] - b[i]);
  return sum;
}

std::size_t nearest(const Point& point, const std::vector<Point>& centres) {
  std::size_t best = 0;
  double least = std::numeric_limits<double>::infinity();
  for (std::size_t i = 0; i < centres.size(); ++i)
    if (const double d = squared_distance(point, centres[i]); d < least) {
      best = i;
      least = d;
    }
  return best;
}

/// Moves each centre to the mean of its points; a cluster without points takes the point farthest from its centre.
void move_centres(const std::vector<Point>& points, Clusters& clusters) {
  const std::size_t k = clusters.centres.size(), dimensions = points[0].size();
  std::vector<Point> sums(k, Point(dimensions));
  std::vector<std::size_t> counts(k);
  for (std::size_t i = 0; i < points.size(); ++i) {
    ++counts[clusters.assignments[i]];
    for (std::size_t d = 0; d < dimensions; ++d) sums[clusters.assignments[i]][d] += points[i][d];
  }
  for (std::size_t c = 0; c < k; ++c) {
    if (counts[c] == 0) {
      // Of a cluster that keeps other points, or another one would be empty.
      std::size_t farthest = points.size();
      double most = -1;
      for (std::size_t i = 0; i < points.size(); ++i) {
        const std::size_t of = clusters.assignments[i];
        const double d = squared_distance(points[i], clusters.centres[of]);
        if (counts[of] > 1 && d > most) {
          farthest = i;
          most = d;
        }
      }
      if (farthest == points.size()) continue;
      const std::size_t from = clusters.assignments[farthest];
      --counts[from];
      for (std::size_t d = 0; d < dimensions; ++d) sums[from][d] -= points[farthest][d];
      counts[c] = 1;
      sums[c] = points[farthest];
      clusters.assignments[farthest] = c;
    }
  }
  for (std::size_t c = 0; c < k; ++c)
    if (counts[c] > 0)
      for (std::size_t d = 0; d < dimensions; ++d) clusters.centres[c][d] = sums[c][d] / static_cast<double>(counts[c]);
}

}  // namespace

double euclidean_distance(const Point& a, const Point& b) { return std::sqrt(squared_distance(a, b)); }

double cosine_distance(const Point& a, const Point& b) {
  squared_distance(a, b);  // checks the dimensions
  double product = 0, norm_a = 0, norm_b = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    product += a[i] * b[i];
    norm_a += a[i] * a[i];
    norm_b += b[i] * b[i];
  }
  return norm_a > 0 && norm_b > 0 ? 1 - product / std::sqrt(norm_a * norm_b) : 1;
}

Clusters kmeans(const std::vector<Point>& points, std::size_t k, std::uint64_t seed, int iterations_max) {
  if (k < 1 || k > points.size())
    throw UsageError(
        fmt::format("kmeans: {} clusters of {} points; give between 1 and their number", k, points.size()));
  for (const Point& p : points) {
    squared_distance(points[0], p);
    for (const double x : p)
      if (!std::isfinite(x)) throw UsageError(fmt::format("kmeans: a coordinate is {}", x));
  }
  grid::RandomDraws draws(seed, "evolve.kmeans");
  std::vector<std::size_t> order(points.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  Clusters clusters;
  for (std::size_t i = 0; i < k; ++i) {
    std::swap(order[i], order[i + draws.below(order.size() - i)]);
    clusters.centres.push_back(points[order[i]]);
  }
  for (clusters.iterations = 0; clusters.iterations < iterations_max;) {
    std::vector<std::size_t> assignments;
    for (const Point& p : points) assignments.push_back(nearest(p, clusters.centres));
    const bool is_done = assignments == clusters.assignments;
    clusters.assignments = std::move(assignments);
    if (is_done) break;
    ++clusters.iterations;
    move_centres(points, clusters);
  }
  clusters.assignments.resize(points.size());
  for (std::size_t i = 0; i < points.size(); ++i)
    clusters.inertia += squared_distance(points[i], clusters.centres[clusters.assignments[i]]);
  return clusters;
}

double silhouette(const std::vector<Point>& points, const std::vector<std::size_t>& assignments) {
  if (points.size() != assignments.size() || points.empty())
    throw UsageError(
        fmt::format("silhouette: {} assignments of {} points; give one for each", assignments.size(), points.size()));
  std::vector<std::size_t> labels = assignments;
  std::sort(labels.begin(), labels.end());
  labels.erase(std::unique(labels.begin(), labels.end()), labels.end());
  if (labels.size() < 2) throw UsageError("silhouette: all points are in one cluster; it compares at least two");
  const auto place = [&](std::size_t label) {
    return static_cast<std::size_t>(std::lower_bound(labels.begin(), labels.end(), label) - labels.begin());
  };
  std::vector<std::size_t> counts(labels.size());
  for (const std::size_t label : assignments) ++counts[place(label)];
  double total = 0;
  for (std::size_t i = 0; i < points.size(); ++i) {
    std::vector<double> distances(labels.size());
    for (std::size_t j = 0; j < points.size(); ++j)
      distances[place(assignments[j])] += euclidean_distance(points[i], points[j]);
    const std::size_t own = place(assignments[i]);
    if (counts[own] == 1) continue;
    const double inside = distances[own] / static_cast<double>(counts[own] - 1);
    double outside = std::numeric_limits<double>::infinity();
    for (std::size_t c = 0; c < labels.size(); ++c)
      if (c != own) outside = std::min(outside, distances[c] / static_cast<double>(counts[c]));
    if (const double larger = std::max(inside, outside); larger > 0) total += (outside - inside) / larger;
  }
  return total / static_cast<double>(points.size());
}

std::vector<std::vector<std::size_t>> group_by_distance(const std::vector<Point>& points, double distance,
                                                        double (*between)(const Point&, const Point&)) {
  if (!(distance >= 0)) throw UsageError(fmt::format("group by distance: the distance is {}", distance));
  std::vector<std::vector<std::size_t>> groups;
  std::vector<bool> is_taken(points.size());
  for (std::size_t first = 0; first < points.size(); ++first) {
    if (is_taken[first]) continue;
    std::vector<std::size_t> group{first};
    is_taken[first] = true;
    for (std::size_t next = 0; next < group.size(); ++next)  // grows while it is walked
      for (std::size_t i = 0; i < points.size(); ++i)
        if (!is_taken[i] && between(points[group[next]], points[i]) <= distance) {
          is_taken[i] = true;
          group.push_back(i);
        }
    std::sort(group.begin(), group.end());
    groups.push_back(std::move(group));
  }
  return groups;
}

}  // namespace weft::evolve
