#include "weft/evolve/population.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "grid/random_draws.hpp"

namespace weft::evolve {

std::string to_string(const Generation& g) {
  return fmt::format("generation {}: best {:.6g}, mean {:.6g}, worst {:.6g}", g.number, g.best, g.mean, g.worst);
}

Population::Population(const Network& ancestor, PopulationOptions options) : options_(std::move(options)) {
  if (options_.size < 1) throw UsageError("population: the size is 0; give at least one member");
  for (std::size_t i = 0; i < options_.size; ++i) {
    options_.mutation.seed = next_seed();
    members_.push_back(mutate(ancestor, options_.mutation));
  }
}

std::uint64_t Population::next_seed() {
  return grid::RandomDraws(options_.seed, fmt::format("evolve.population.{}", children_++)).word();
}

Generation Population::evolve(const std::function<double(const Network&)>& fitness) {
  constexpr double kWorst = -std::numeric_limits<double>::infinity();
  const std::size_t n = members_.size();
  std::vector<double> scores;
  for (const auto& member : members_) {
    const double score = fitness(*member);
    scores.push_back(std::isnan(score) ? kWorst : score);
  }
  std::vector<std::size_t> order(n);
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return scores[a] > scores[b]; });

  const std::size_t elite = std::max<std::size_t>(1, n / 4);
  std::vector<std::unique_ptr<Network>> next;
  for (std::size_t i = 0; i < elite; ++i) next.push_back(std::move(members_[order[i]]));
  while (next.size() < n) {
    const std::uint64_t seed = next_seed();
    grid::RandomDraws draws(seed, "evolve.parents");
    options_.mutation.seed = draws.word();
    if (elite == 1) {
      next.push_back(mutate(*next[0], options_.mutation));
      continue;
    }
    // Two different ones, the fitter first.
    std::size_t a = draws.below(elite), b = draws.below(elite - 1);
    if (b >= a) ++b;
    if (a > b) std::swap(a, b);
    SpliceOptions splice_options = options_.splice;
    splice_options.seed = draws.word();
    const double fitness_a = scores[order[a]], fitness_b = scores[order[b]];
    if (std::isfinite(fitness_a) && std::isfinite(fitness_b)) {
      splice_options.fitness_a = fitness_a;
      splice_options.fitness_b = fitness_b;
    }
    next.push_back(mutate(*splice(*next[a], *next[b], splice_options), options_.mutation));
  }
  members_ = std::move(next);

  Generation g;
  g.number = static_cast<std::int64_t>(generations_.size()) + 1;
  g.best = scores[order.front()];
  g.worst = scores[order.back()];
  g.mean = std::accumulate(scores.begin(), scores.end(), 0.0) / static_cast<double>(n);
  generations_.push_back(g);
  return g;
}

double Population::best_fitness() const {
  if (generations_.empty()) throw UsageError("population: nothing has been evaluated yet; call evolve");
  return generations_.back().best;
}

}  // namespace weft::evolve
