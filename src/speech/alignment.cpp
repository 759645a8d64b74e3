#include "speech/alignment.hpp"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>

namespace weft::speech {
namespace {

constexpr Extent kMedianWidth = 7;

/// Softmax of the first `kept` of each row, rows side by side.
std::vector<float> shares_of(std::span<const float> scores, Extent tokens, Extent states, Extent kept) {
  std::vector<float> shares(static_cast<std::size_t>(tokens * kept));
  for (Extent t = 0; t < tokens; ++t) {
    const float* row = scores.data() + t * states;
    float* out = shares.data() + t * kept;
    const float largest = *std::max_element(row, row + kept);
    float sum = 0;
    for (Extent s = 0; s < kept; ++s) sum += out[s] = std::exp(row[s] - largest);
    for (Extent s = 0; s < kept; ++s) out[s] /= sum;
  }
  return shares;
}

/// Each state's shares less their mean over the tokens, by their deviation.
void normalize(std::span<float> shares, Extent tokens, Extent kept) {
  for (Extent s = 0; s < kept; ++s) {
    double sum = 0, squares = 0;
    for (Extent t = 0; t < tokens; ++t) sum += static_cast<double>(shares[static_cast<std::size_t>(t * kept + s)]);
    const double mean = sum / static_cast<double>(tokens);
    for (Extent t = 0; t < tokens; ++t) {
      const double apart = static_cast<double>(shares[static_cast<std::size_t>(t * kept + s)]) - mean;
      squares += apart * apart;
    }
    const double deviation = std::sqrt(squares / static_cast<double>(tokens));
    for (Extent t = 0; t < tokens; ++t) {
      float& share = shares[static_cast<std::size_t>(t * kept + s)];
      // A state that all tokens hear alike tells nothing.
      share = deviation > 0 ? static_cast<float>((static_cast<double>(share) - mean) / deviation) : 0;
    }
  }
}

}  // namespace

void median_filter(std::span<float> row, Extent width) {
  const Extent size = static_cast<Extent>(row.size()), margin = width / 2;
  if (size <= margin) return;
  const std::vector<float> given(row.begin(), row.end());
  std::vector<float> around(static_cast<std::size_t>(width));
  for (Extent i = 0; i < size; ++i) {
    for (Extent k = 0; k < width; ++k) {
      Extent at = std::abs(i + k - margin);
      if (at >= size) at = 2 * (size - 1) - at;
      around[static_cast<std::size_t>(k)] = given[static_cast<std::size_t>(at)];
    }
    std::nth_element(around.begin(), around.begin() + margin, around.end());
    row[static_cast<std::size_t>(i)] = around[static_cast<std::size_t>(margin)];
  }
}

std::vector<float> heard_in(std::span<const float> scores, Extent heads, Extent tokens, Extent states, Extent kept) {
  std::vector<float> mean(static_cast<std::size_t>(tokens * kept), 0);
  for (Extent h = 0; h < heads; ++h) {
    std::vector<float> shares =
        shares_of(scores.subspan(static_cast<std::size_t>(h * tokens * states)), tokens, states, kept);
    normalize(shares, tokens, kept);
    for (Extent t = 0; t < tokens; ++t)
      median_filter(std::span(shares).subspan(static_cast<std::size_t>(t * kept), static_cast<std::size_t>(kept)),
                    kMedianWidth);
    for (std::size_t i = 0; i < mean.size(); ++i) mean[i] += shares[i] / static_cast<float>(heads);
  }
  return mean;
}

std::vector<Extent> path_begins(std::span<const float> costs, Extent rows, Extent columns) {
  enum Step : std::uint8_t { both, down, on };
  std::vector<Step> steps(static_cast<std::size_t>(rows * columns));
  // The cost of the cheapest path to each cell of a row; cell 0 is before the first column.
  std::vector<double> above(static_cast<std::size_t>(columns) + 1, std::numeric_limits<double>::infinity());
  std::vector<double> here(above.size());
  above[0] = 0;
  for (Extent r = 0; r < rows; ++r) {
    here[0] = std::numeric_limits<double>::infinity();
    for (Extent c = 0; c < columns; ++c) {
      const auto at = static_cast<std::size_t>(c);
      const double from_both = above[at], from_above = above[at + 1], from_left = here[at];
      Step step = on;
      if (from_both < from_above && from_both < from_left)
        step = both;
      else if (from_above < from_both && from_above < from_left)
        step = down;
      const double before = step == both ? from_both : step == down ? from_above : from_left;
      here[at + 1] = before + static_cast<double>(costs[static_cast<std::size_t>(r * columns + c)]);
      steps[static_cast<std::size_t>(r * columns + c)] = step;
    }
    std::swap(above, here);
  }
  std::vector<Extent> begins(static_cast<std::size_t>(rows), 0);
  for (Extent r = rows - 1, c = columns - 1; r >= 0;) {
    begins[static_cast<std::size_t>(r)] = c;
    // Only one way leads along the first row and the first column.
    const Step step = r == 0 ? on : c == 0 ? down : steps[static_cast<std::size_t>(r * columns + c)];
    if (r == 0 && c == 0) break;
    if (step != on) --r;
    if (step != down) --c;
  }
  return begins;
}

}  // namespace weft::speech
