// Clusters of points, such as the outputs or scores of networks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace weft::evolve {

using Point = std::vector<double>;

/// sqrt(sum (a - b)^2). Errors: UsageError for points of different dimensions.
double euclidean_distance(const Point& a, const Point& b);
/// 1 - cosine; 1 if one of them is 0. Errors: as euclidean_distance.
double cosine_distance(const Point& a, const Point& b);

struct Clusters {
  std::vector<std::size_t> assignments;  ///< of each point
  std::vector<Point> centres;
  double inertia = 0;  ///< sum of squared distances of points to their centres
  int iterations = 0;
};
/// Lloyd's algorithm from k different points that `seed` chooses, until no assignment changes. A point at equal distances goes to the
/// first centre; a cluster that has lost all points begins anew at the point that is farthest from its centre.
/// Source    Lloyd 1982, "Least squares quantization in PCM"
/// Errors    UsageError: not 1 <= k <= points, points of different dimensions, coordinates that are not finite
Clusters kmeans(const std::vector<Point>& points, std::size_t k, std::uint64_t seed = 1, int iterations_max = 100);

/// The mean over points of (b - a) / max(a, b), where a is the mean distance to the others of its cluster, and b the least mean
/// distance to the points of another one. 0 for a point alone in its cluster; in [-1, 1].
/// Source    Rousseeuw 1987, "Silhouettes"
/// Errors    UsageError: not an assignment for each point, fewer than two clusters
double silhouette(const std::vector<Point>& points, const std::vector<std::size_t>& assignments);

/// Single linkage: the points that chains of steps of at most `distance` connect are a group. Groups are in the order of their first
/// points. Errors: as euclidean_distance; UsageError for a distance that is negative or NaN
std::vector<std::vector<std::size_t>> group_by_distance(const std::vector<Point>& points, double distance,
                                                        double (*between)(const Point&,
                                                                          const Point&) = euclidean_distance);

}  // namespace weft::evolve
