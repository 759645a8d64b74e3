#include "parallel/contiguous_parts.hpp"

#include <algorithm>
#include <limits>

namespace weft::parallel {

std::vector<Extent> choose_layers(Extent layers, std::size_t parts,
                                  const std::function<double(std::size_t part, Extent first, Extent last)>& load) {
  const auto ends = static_cast<std::size_t>(layers) + 1;
  constexpr double kNever = std::numeric_limits<double>::infinity();
  // best[p][end]: the smallest largest load of parts 0 to p with the layers before `end`; from[p][end]: where part p begins then.
  std::vector<std::vector<double>> best(parts, std::vector<double>(ends, kNever));
  std::vector<std::vector<std::size_t>> from(parts, std::vector<std::size_t>(ends, 0));
  for (std::size_t p = 0; p < parts; ++p)
    for (std::size_t end = p + 1; end < ends; ++end)
      for (std::size_t begin = p; begin < (p == 0 ? 1 : end); ++begin) {
        const double before = p == 0 ? 0 : best[p - 1][begin];
        const double largest = std::max(before, load(p, static_cast<Extent>(begin), static_cast<Extent>(end)));
        if (largest >= best[p][end]) continue;
        best[p][end] = largest;
        from[p][end] = begin;
      }
  std::vector<Extent> chosen(parts);
  std::size_t end = ends - 1;
  for (std::size_t p = parts; p-- > 0; end = from[p][end]) chosen[p] = static_cast<Extent>(end - from[p][end]);
  return chosen;
}

}  // namespace weft::parallel
