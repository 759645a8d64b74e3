#include "encoder/distances.hpp"

#include <algorithm>
#include <cmath>
#include <cstdlib>

namespace weft::encoder {

std::vector<std::int32_t> t5_buckets(Extent length, Extent buckets, Extent most) {
  const Extent half = buckets / 2, exact = half / 2;
  std::vector<std::int32_t> all;
  for (Extent distance = 1 - length; distance < length; ++distance) {
    const Extent n = std::abs(distance);
    Extent bucket = n;
    if (n >= exact) {
      // In f32, as models were trained: where a logarithm is nearly whole, the bucket depends on it.
      const float grown = std::log(static_cast<float>(n) / static_cast<float>(exact)) /
                          static_cast<float>(std::log(static_cast<double>(most) / static_cast<double>(exact))) *
                          static_cast<float>(half - exact);
      bucket = std::min(exact + static_cast<Extent>(grown), half - 1);
    }
    all.push_back(static_cast<std::int32_t>(bucket + (distance > 0 ? half : 0)));
  }
  return all;
}

std::vector<std::int32_t> deberta_rows(Extent length, Extent buckets, Extent most) {
  const Extent span = buckets > 0 ? buckets : most, middle = buckets / 2;
  std::vector<std::int32_t> all;
  for (Extent distance = 1 - length; distance < length; ++distance) {
    Extent place = distance;
    if (const Extent n = std::abs(distance); buckets > 0 && n > middle) {
      const float grown = std::ceil(std::log(static_cast<float>(n) / static_cast<float>(middle)) /
                                    std::log(static_cast<float>(most - 1) / static_cast<float>(middle)) *
                                    static_cast<float>(middle - 1));
      place = (static_cast<Extent>(grown) + middle) * (distance < 0 ? -1 : 1);
    }
    all.push_back(static_cast<std::int32_t>(std::clamp<Extent>(place + span, 0, 2 * span - 1)));
  }
  return all;
}

}  // namespace weft::encoder
