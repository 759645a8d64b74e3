// Ensembles, clusters and metrics.
#include <gtest/gtest.h>

#include <cmath>

#include "weft/error.hpp"
#include "weft/evolve.hpp"
#include "weft/grid/builders.hpp"
#include "weft/ops.hpp"

namespace weft::evolve::evaluation {
namespace {

// Trap: ties depended on the order of a hash map.
TEST(Ensemble, MostVotesWinAndTiesGoToTheSmallestClass) {
  EXPECT_EQ(majority_vote({{1, 2, 7}, {1, 0, 5}, {3, 2, 6}}), (std::vector<std::int32_t>{1, 2, 5}));
  EXPECT_EQ(majority_vote({{4, -1}, {2, 3}}), (std::vector<std::int32_t>{2, -1}));
  EXPECT_THROW(majority_vote({}), UsageError);
  EXPECT_THROW(majority_vote({{1}, {1, 2}}), UsageError);
}

TEST(Ensemble, ComplementaryPairsComeByCoverageThenOverlap) {
  const std::vector<CorrectMask> masks = {
      {true, true, false, false}, {false, false, true, true}, {true, true, true, false}};
  EXPECT_EQ(performance_similarity(masks[0], masks[1]), 0);
  EXPECT_NEAR(performance_similarity(masks[0], masks[2]), 2 / std::sqrt(6.0), 1e-12);
  EXPECT_EQ(performance_similarity({false}, {true}), 0);
  const std::vector<Match> matches = complementary_matches(masks, 0.75);
  ASSERT_EQ(matches.size(), 3u);
  EXPECT_EQ(std::pair(matches[0].a, matches[0].b), std::pair(std::size_t{0}, std::size_t{1}));
  EXPECT_EQ(matches[0].coverage, 1);
  EXPECT_EQ(matches[0].overlap, 0);
  EXPECT_EQ(std::pair(matches[1].a, matches[1].b), std::pair(std::size_t{1}, std::size_t{2}));
  EXPECT_EQ(matches[2].coverage, 0.75);
  EXPECT_EQ(complementary_matches(masks, 0.9).size(), 2u);
  EXPECT_THROW(complementary_matches({{true}, {true, false}}), UsageError);
}

std::vector<Point> three_clouds() {
  std::vector<Point> points;
  for (int i = 0; i < 30; ++i) {
    const double angle = 0.7 * i;
    points.push_back({10.0 * (i % 3) + 0.5 * std::cos(angle), 5.0 * (i % 3 == 1) + 0.5 * std::sin(angle)});
  }
  return points;
}

TEST(Clustering, LloydFindsCloudsThatAreApart) {
  const std::vector<Point> points = three_clouds();
  for (std::uint64_t seed = 0; seed < 5; ++seed) {
    const Clusters c = kmeans(points, 3, seed);
    const Clusters again = kmeans(points, 3, seed);
    EXPECT_EQ(c.assignments, again.assignments);
    double inertia = 0;
    for (std::size_t i = 0; i < points.size(); ++i) {
      const double own = euclidean_distance(points[i], c.centres[c.assignments[i]]);
      inertia += own * own;
      for (const Point& centre : c.centres) EXPECT_LE(own, euclidean_distance(points[i], centre) + 1e-12);
    }
    EXPECT_NEAR(c.inertia, inertia, 1e-9);
  }
  // Lloyd's algorithm may end in a local optimum; the best of a few starts does not.
  Clusters best = kmeans(points, 3, 0);
  for (std::uint64_t seed = 1; seed < 10; ++seed)
    if (const Clusters c = kmeans(points, 3, seed); c.inertia < best.inertia) best = c;
  for (std::size_t i = 0; i < points.size(); ++i) EXPECT_EQ(best.assignments[i], best.assignments[i % 3]);
  EXPECT_GT(silhouette(points, best.assignments), 0.8);
}

TEST(Clustering, EmptyClustersBeginAnew) {
  // Two of the first centres are the same point.
  const std::vector<Point> points = {{0}, {0}, {0}, {5}, {9}};
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    const Clusters c = kmeans(points, 3, seed);
    EXPECT_EQ(c.inertia, 0) << seed;
  }
  EXPECT_THROW(kmeans(points, 6), UsageError);
  EXPECT_THROW(kmeans(points, 0), UsageError);
  EXPECT_THROW(kmeans({{1}, {1, 2}}, 1), UsageError);
  EXPECT_THROW(kmeans({{NAN}}, 1), UsageError);
}

TEST(Clustering, SilhouetteIsItsFormula) {
  const std::vector<Point> points = {{0}, {1}, {4}, {6}};
  // a = 1, 1, 2, 2; b = 5, 4, 3.5, 5.5
  EXPECT_NEAR(silhouette(points, {7, 7, 2, 2}), (4.0 / 5 + 3.0 / 4 + 1.5 / 3.5 + 3.5 / 5.5) / 4, 1e-12);
  EXPECT_NEAR(silhouette(points, {0, 1, 1, 1}), (0 + (1 - 4.0) / 4 + (4 - 2.5) / 4 + (6 - 3.5) / 6) / 4, 1e-12);
  EXPECT_THROW(silhouette(points, {0, 0, 0, 0}), UsageError);
  EXPECT_THROW(silhouette(points, {0}), UsageError);
}

TEST(Clustering, ChainsOfShortStepsAreGroups) {
  const std::vector<Point> points = {{0}, {10}, {1}, {2}, {11}, {20}};
  EXPECT_EQ(group_by_distance(points, 1), (std::vector<std::vector<std::size_t>>{{0, 2, 3}, {1, 4}, {5}}));
  EXPECT_EQ(group_by_distance({{1, 0}, {2, 0}, {0, 1}}, 0.1, cosine_distance),
            (std::vector<std::vector<std::size_t>>{{0, 1}, {2}}));
  EXPECT_EQ(cosine_distance({0, 0}, {1, 0}), 1);
  EXPECT_THROW(group_by_distance(points, -1), UsageError);
}

TEST(Metrics, DeviationsAreCountedInTheirRanges) {
  EXPECT_EQ(deviation(11, 10), 10);
  EXPECT_EQ(deviation(-5, -10), 50);
  EXPECT_EQ(deviation(0.5, 0), 50);
  EXPECT_EQ(deviation(NAN, 1), 100);
  EXPECT_EQ(deviation(INFINITY, 1), 100);
  DeviationMetrics m;
  for (const double actual : {10.0, 11.0, 11.5, 12.5, 13.5, 14.5, 18.0, 30.0}) m.add(actual, 10);
  EXPECT_EQ(m.counts(), (std::array<std::int64_t, 7>{2, 1, 1, 1, 1, 1, 1}));
  EXPECT_EQ(m.failures(), 1);
  EXPECT_EQ(m.accuracy(), 1.0 / 8);
  EXPECT_NEAR(m.score(), (100 + 90 + 85 + 75 + 65 + 55 + 20 + 0) / 8.0, 1e-9);
  EXPECT_NEAR(m.mean_deviation(), (0 + 10 + 15 + 25 + 35 + 45 + 80 + 200) / 8.0, 1e-9);
  EXPECT_EQ(DeviationMetrics().score(), 0);
}

TEST(Metrics, NetworksAreEvaluatedOnValuesAndClasses) {
  grid::Network network(grid::mlp({2, 2}));
  Variable weight = network.parameters()[0];
  weight.assign(tensor<float>({1, 0, 0, 1}, {2, 2}));
  const Tensor x = tensor<float>({3, 1, 1, 2, 5, 4}, {3, 2});
  EXPECT_EQ(evaluate(network, x, tensor<std::int32_t>({0, 1, 1})).accuracy(), 2.0 / 3);
  EXPECT_EQ(evaluate(network, x, x).score(), 100);
  EXPECT_THROW(evaluate(network, x, zeros({3})), ShapeError);
  DeviationMetrics m;
  const float scores[] = {NAN, 1, 3, 3};
  m.add_scores(scores, 2);
  EXPECT_EQ(m.accuracy(), 1);
  EXPECT_THROW(m.add_scores({}, 0), UsageError);
}

TEST(Metrics, TheBetterMethodHasMoreAccuracyOrLessLoss) {
  const std::vector<MethodResult> results = {{"a", 90, 0.5}, {"b", 90.5, 0.6}, {"c", 89.5, 0.4}, {"d", 80, 0.1}};
  EXPECT_EQ(best_method(results), 2u);
  EXPECT_EQ(best_method(std::vector<MethodResult>{{"a", 50, 1}, {"b", 52, 9}}), 1u);
  EXPECT_THROW(best_method({}), UsageError);
}

TEST(Metrics, AdaptationIsAccuracyByWindow) {
  AdaptationTracker tracker(1);
  tracker.change_task("chase", 0);
  for (int i = 0; i < 4; ++i) tracker.record(true, 0.2 * i);
  tracker.change_task("avoid", 1);
  for (int i = 0; i < 4; ++i) tracker.record(i == 0, 1.1 + 0.2 * i);
  for (int i = 0; i < 2; ++i) tracker.record(true, 3.1 + 0.2 * i);
  const auto windows = tracker.windows();
  ASSERT_EQ(windows.size(), 4u);
  EXPECT_EQ(windows[0].accuracy, 1);
  EXPECT_EQ(windows[1].accuracy, 0.25);
  EXPECT_EQ(windows[1].task, "avoid");
  EXPECT_EQ(windows[2].outputs, 0);
  EXPECT_EQ(windows[3].rate, 2);
  const auto changes = tracker.changes();
  ASSERT_EQ(changes.size(), 2u);
  EXPECT_EQ(changes[0].recovery, -1);
  EXPECT_NEAR(changes[1].recovery, 3, 1e-12);
  EXPECT_THROW(tracker.record(true, 2), UsageError);
  EXPECT_THROW(tracker.record(true, 1e30), UsageError);
  EXPECT_THROW(AdaptationTracker(0), UsageError);
}

}  // namespace
}  // namespace weft::evolve::evaluation
