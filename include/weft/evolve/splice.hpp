// Splicing: a child network with parameters of two parents.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "weft/evolve/dna.hpp"

namespace weft::evolve {

/// How the parameters of a layer come from those of its parents a and b, in the order of storage.
enum class SpliceMode : std::uint8_t {
  blend,   ///< (1 - t) a + t b
  point,   ///< the first ones from a, the rest from b
  uniform  ///< each one from a or b by chance
};

struct SpliceOptions {
  SpliceMode mode = SpliceMode::blend;
  double split_ratio = 0.5;  ///< point: the share of a
  double blend_alpha = 0.5;  ///< blend: t, without fitnesses
  /// With both: uniform takes from a with probability share(a), and blend has t = share(b) (1 + similarity of the layers) / 2, where
  /// share(a) = a / (a + b). If one of them is negative, or both are 0, the shares are 1 / (1 + e^(b - a)) and its complement.
  std::optional<double> fitness_a = {}, fitness_b = {};
  std::uint64_t seed = 1;
};

struct Splice {
  std::unique_ptr<Network> child;
  std::vector<Signature> dna_a, dna_b, dna_child;
  std::map<Coordinate, double> similarities;  ///< of the parents, by place
  std::size_t similar = 0;                    ///< places whose similarity is above 0
  std::size_t spliced = 0;                    ///< layers with parameters of both parents
};

/// A clone of a in which each layer of the grid that has as many parameters in b has parameters of both. The parents stay as they
/// are. The same options give the same child.
/// Errors  UsageError: an option out of its range, a fitness that is NaN or infinite
std::unique_ptr<Network> splice(const Network& a, const Network& b, const SpliceOptions& options = {});
/// The same with what was alike.
Splice splice_with_report(const Network& a, const Network& b, const SpliceOptions& options = {});

}  // namespace weft::evolve
