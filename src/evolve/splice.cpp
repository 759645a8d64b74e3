#include "weft/evolve/splice.hpp"

#include <fmt/format.h>

#include <cmath>

#include "evolve/layer_weights.hpp"
#include "grid/random_draws.hpp"

namespace weft::evolve {
namespace {

void check_options(const SpliceOptions& o) {
  for (const auto& [name, value] : {std::pair("split_ratio", o.split_ratio), std::pair("blend_alpha", o.blend_alpha)})
    if (!(value >= 0 && value <= 1)) throw UsageError(fmt::format("splice: {} is {}; it is in [0, 1]", name, value));
  for (const auto& fitness : {o.fitness_a, o.fitness_b})
    if (fitness && !std::isfinite(*fitness)) throw UsageError(fmt::format("splice: a fitness is {}", *fitness));
  if (o.fitness_a.has_value() != o.fitness_b.has_value())
    throw UsageError("splice: give the fitnesses of both parents, or none");
}

/// The share of a.
double share_of_first(double a, double b) {
  if (a >= 0 && b >= 0 && a + b > 0) return a / (a + b);
  return 1 / (1 + std::exp(b - a));
}

/// The arrays of each layer, by the name of the layer.
using Layers = std::map<std::string, std::vector<std::size_t>>;
Layers layers_of(const nn::StateDict& state) {
  Layers layers;
  for (std::size_t i = 0; i < state.size(); ++i) layers[layer_name(state[i].name)].push_back(i);
  return layers;
}

std::vector<float> joined(const nn::StateDict& state, const std::vector<std::size_t>& arrays) {
  std::vector<float> all;
  for (const std::size_t i : arrays) {
    const auto values = values_of(state[i]);
    all.insert(all.end(), values.begin(), values.end());
  }
  return all;
}

void put_back(const std::vector<float>& all, const std::vector<std::size_t>& arrays, nn::StateDict& state) {
  std::size_t next = 0;
  for (const std::size_t i : arrays)
    for (float& value : values_of(state[i])) value = all[next++];
}

void mix(std::vector<float>& a, const std::vector<float>& b, double similarity, const SpliceOptions& o,
         grid::RandomDraws& draws) {
  const bool has_fitness = o.fitness_a.has_value();
  const double share = has_fitness ? share_of_first(*o.fitness_a, *o.fitness_b) : 0.5;
  switch (o.mode) {
    case SpliceMode::point: {
      const auto first = static_cast<std::size_t>(o.split_ratio * static_cast<double>(a.size()));
      for (std::size_t i = first; i < a.size(); ++i) a[i] = b[i];
      break;
    }
    case SpliceMode::uniform:
      for (std::size_t i = 0; i < a.size(); ++i)
        if (!draws.chance(share)) a[i] = b[i];
      break;
    case SpliceMode::blend: {
      const double t = has_fitness ? (1 - share) * (0.5 + 0.5 * similarity) : o.blend_alpha;
      for (std::size_t i = 0; i < a.size(); ++i)
        a[i] = static_cast<float>((1 - t) * static_cast<double>(a[i]) + t * static_cast<double>(b[i]));
      break;
    }
  }
}

/// The child, given the similarities by the names of layers.
std::unique_ptr<Network> make_child(const Network& a, const Network& b,
                                    const std::map<std::string, double>& similarities, const SpliceOptions& options,
                                    std::size_t* spliced) {
  auto child = a.clone();
  nn::StateDict state = child->state_dict();
  const nn::StateDict other = b.state_dict();
  const Layers mine = layers_of(state), theirs = layers_of(other);
  grid::RandomDraws draws(options.seed, "evolve.splice");
  for (const auto& [name, arrays] : mine) {
    const auto counterpart = theirs.find(name);
    if (counterpart == theirs.end()) continue;
    std::vector<float> values = joined(state, arrays);
    const std::vector<float> others = joined(other, counterpart->second);
    if (values.size() != others.size()) continue;
    const auto similarity = similarities.find(name);
    mix(values, others, similarity == similarities.end() ? 0 : similarity->second, options, draws);
    put_back(values, arrays, state);
    ++*spliced;
  }
  child->load_state_dict(state);
  return child;
}

std::string name_at(const Coordinate& at) { return fmt::format("z{}y{}x{}l{}", at.z, at.y, at.x, at.layer); }

}  // namespace

Splice splice_with_report(const Network& a, const Network& b, const SpliceOptions& options) {
  check_options(options);
  Splice result;
  result.dna_a = extract_dna(a);
  result.dna_b = extract_dna(b);
  result.similarities = compare(result.dna_a, result.dna_b).layers;
  std::map<std::string, double> by_name;
  for (const auto& [at, alike] : result.similarities) {
    by_name[name_at(at)] = alike;
    result.similar += alike > 0;
  }
  result.child = make_child(a, b, by_name, options, &result.spliced);
  result.dna_child = extract_dna(*result.child);
  return result;
}

std::unique_ptr<Network> splice(const Network& a, const Network& b, const SpliceOptions& options) {
  check_options(options);
  std::map<std::string, double> by_name;
  if (options.mode == SpliceMode::blend && options.fitness_a)
    for (const auto& [at, alike] : compare(extract_dna(a), extract_dna(b)).layers) by_name[name_at(at)] = alike;
  std::size_t spliced = 0;
  return make_child(a, b, by_name, options, &spliced);
}

}  // namespace weft::evolve
