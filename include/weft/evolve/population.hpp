// Populations of networks that evolve.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "weft/evolve/mutation.hpp"
#include "weft/evolve/splice.hpp"

namespace weft::evolve {

struct PopulationOptions {
  std::size_t size = 16;
  MutationOptions mutation;  ///< its seed is drawn anew for each child
  SpliceOptions splice;      ///< its seed and fitnesses are set for each child
  std::uint64_t seed = 1;
};

/// How well a generation did.
struct Generation {
  std::int64_t number = 0;
  double best = 0, mean = 0, worst = 0;
};
/// "generation 3: best 0.9, mean 0.4, worst -0.1".
std::string to_string(const Generation& generation);

/// Networks of one kind. The same seed, options and fitness function give the same networks.
class Population {
 public:
  /// Mutants of a network, which stays as it is. Errors: UsageError for a size below 1; others as `mutate` and `splice`.
  Population(const Network& ancestor, PopulationOptions options);

  /// Evaluates all members, keeps the best quarter (at least one), and replaces the others by children: two of the best are spliced
  /// by their fitnesses, the fitter one as first parent, and the result is mutated. A fitness that is NaN counts as the worst.
  Generation evolve(const std::function<double(const Network&)>& fitness);

  /// After `evolve`, the best ones of that generation come first, in the order of their fitness.
  const std::vector<std::unique_ptr<Network>>& members() const { return members_; }
  /// The best member of the last evaluation; the first one before.
  const Network& best() const { return *members_.front(); }
  /// Its fitness. Errors: UsageError before the first `evolve`.
  double best_fitness() const;
  /// All generations so far.
  const std::vector<Generation>& generations() const { return generations_; }

 private:
  std::uint64_t next_seed();

  PopulationOptions options_;
  std::vector<std::unique_ptr<Network>> members_;
  std::vector<Generation> generations_;
  std::uint64_t children_ = 0;
};

}  // namespace weft::evolve
