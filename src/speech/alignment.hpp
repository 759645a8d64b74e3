// Which part of a window each token was heard in: the scores of the heads of alignment, and the cheapest path through them.
#pragma once

#include <span>
#include <vector>

#include "weft/shape.hpp"

namespace weft::speech {

/// The median of the `width` (odd) values around each one, mirrored at both ends. Rows of at most width / 2 values stay as they are.
void median_filter(std::span<float> row, Extent width);

/// How much each token is heard in each state: for every head the softmax over the first `kept` states, less its mean over all tokens
/// and by its deviation there, then the median of 7 states; the mean over the heads.
/// `scores` [heads, tokens, states] -> [tokens, kept]
std::vector<float> heard_in(std::span<const float> scores, Extent heads, Extent tokens, Extent states, Extent kept);

/// The columns where the rows of the cheapest path begin, for a path from the first to the last cell of costs [rows, columns] that goes
/// one row down, one column on, or both. As many as rows.
std::vector<Extent> path_begins(std::span<const float> costs, Extent rows, Extent columns);

}  // namespace weft::speech
