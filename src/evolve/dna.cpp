#include "weft/evolve/dna.hpp"

#include <algorithm>

#include "evolve/layer_weights.hpp"

namespace weft::evolve {
namespace {

/// Reads the parameters of a tree of layers in one run.
class DirectionReader {
 public:
  explicit DirectionReader(const Network& network) {
    for (std::size_t i = 0; i < network.description().layers.size(); ++i) collect(network.layer(i));
    eval(values_);
  }

  std::vector<float> direction(const grid::LayerModule& module) const {
    std::vector<float> result;
    const auto append = [&](const std::vector<float>& part) { result.insert(result.end(), part.begin(), part.end()); };
    const auto [first, count] = places_.at(&module);
    for (std::size_t i = 0; i < count; ++i) append(values_[first + i].to_vector<float>());
    for (const auto& child : module.inside())
      if (!child->layer().link) append(direction(*child));
    if (module.gate() && !module.gate()->layer().link) append(direction(*module.gate()));
    if (result.empty()) return {1};
    normalise(result);
    return result;
  }

 private:
  void collect(const grid::LayerModule& module) {
    const std::vector<Tensor> weights = module.weights();
    places_[&module] = {values_.size(), weights.size()};
    values_.insert(values_.end(), weights.begin(), weights.end());
    for (const auto& child : module.inside()) collect(*child);
    if (module.gate()) collect(*module.gate());
  }

  std::vector<Tensor> values_;
  std::map<const grid::LayerModule*, std::pair<std::size_t, std::size_t>> places_;
};

bool is_zero(const Signature& s) {
  return std::all_of(s.direction.begin(), s.direction.end(), [](float x) { return x == 0; });
}

}  // namespace

std::vector<Signature> extract_dna(const Network& network) {
  const grid::Description& d = network.description();
  const DirectionReader reader(network);
  std::vector<Signature> dna;
  for (std::size_t i = 0; i < d.layers.size(); ++i)
    if (!grid::is_fresh(d.layers[i]))
      dna.push_back({d.coordinate(i), d.layers[i].type, d.layers[i].dtype, reader.direction(network.layer(i))});
  return dna;
}

double similarity(const Signature& a, const Signature& b) {
  if (a.type != b.type || a.dtype != b.dtype || a.direction.size() != b.direction.size()) return 0;
  if (is_zero(a) || is_zero(b)) return is_zero(a) && is_zero(b) ? 1 : 0;
  double product = 0;
  for (std::size_t i = 0; i < a.direction.size(); ++i)
    product += static_cast<double>(a.direction[i]) * static_cast<double>(b.direction[i]);
  return std::clamp(product, -1.0, 1.0);
}

Comparison compare(const std::vector<Signature>& a, const std::vector<Signature>& b, double shift_above) {
  Comparison result;
  std::map<Coordinate, const Signature*> by_place;
  for (const Signature& s : b) by_place.emplace(s.at, &s);
  double total = 0;
  for (const Signature& s : a) {
    if (const auto other = by_place.find(s.at); other != by_place.end())
      total += result.layers[s.at] = similarity(s, *other->second);
    const Signature* best = nullptr;
    double closest = shift_above;
    for (const Signature& other : b)
      if (const double alike = similarity(s, other); alike > closest) {
        best = &other;
        closest = alike;
      }
    if (best && best->at != s.at) result.shifts.push_back({s.at, best->at, closest});
  }
  if (!result.layers.empty()) result.overall = total / static_cast<double>(result.layers.size());
  return result;
}

}  // namespace weft::evolve
