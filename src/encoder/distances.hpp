// Distances between tokens, put into buckets.
#pragma once

#include <cstdint>
#include <vector>

#include "weft/shape.hpp"

namespace weft::encoder {

/// The bucket of each distance key - query from -(length - 1) to length - 1, of T5: half of the buckets are for keys behind the
/// query. Of each half, the first half has one distance each, and the other grows like a logarithm until `most`.
/// Source    Raffel et al. 2020, arXiv:1910.10683
std::vector<std::int32_t> t5_buckets(Extent length, Extent buckets, Extent most);

/// The row, of 2 span, for each distance query - key from -(length - 1) to length - 1, of DeBERTa. Distances are rows themselves, or
/// with `buckets` above 0 beyond half of them their logarithm; `most` is the largest distance.
/// Source    He et al. 2021, arXiv:2111.09543
std::vector<std::int32_t> deberta_rows(Extent length, Extent buckets, Extent most);

}  // namespace weft::encoder
