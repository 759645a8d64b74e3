#include "encoder/passes.hpp"

#include <algorithm>
#include <bit>
#include <numeric>

namespace weft::encoder {
namespace {

Extent rounded(Extent length) {
  const auto below = static_cast<Extent>(std::bit_floor(static_cast<std::uint64_t>(std::max<Extent>(length, 1))));
  const Extent step = std::max<Extent>(below / 8, 8);
  return (length + step - 1) / step * step;
}

/// Rows that passes may have: 1, 2, 3, 4, 6, 8, 12, 16 ...
Extent more_rows(Extent rows) {
  const bool is_power = std::has_single_bit(static_cast<std::uint64_t>(rows));
  return rows == 1 ? 2 : is_power ? rows / 2 * 3 : rows / 3 * 4;
}

}  // namespace

Extent rounded_length(Extent length, Extent most) { return std::max(length, std::min(rounded(length), most)); }

// Texts in order of their lengths are cut where the sum of all passes' times is least: the best cuts of the shorter texts are found
// first, then those of all from each text on.
std::vector<Pass> passes_of(const std::vector<TokenText>& texts, const PassNeeds& needs) {
  const std::size_t count = texts.size();
  std::vector<std::size_t> order(count);
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return texts[a].tokens.size() > texts[b].tokens.size(); });
  struct Best {
    Extent time = 0, length = 0, rows = 0;  // of this text and all behind it; of the pass that begins with it
  };
  std::vector<Best> best(count + 1);
  for (std::size_t at = count; at-- > 0;) {
    const auto longest = static_cast<Extent>(texts[order[at]].tokens.size());
    const Extent length = rounded_length(longest, needs.length_max);
    const auto left = static_cast<Extent>(count - at);
    for (Extent rows = 1;; rows = more_rows(rows)) {
      const std::size_t next = at + static_cast<std::size_t>(std::min(rows, left));
      const Extent time = rows * length + needs.pass_tokens + best[next].time;
      if (rows == 1 || time < best[at].time) best[at] = {time, length, rows};
      if (rows >= left || more_rows(rows) * length > needs.tokens_max) break;
    }
  }
  std::vector<Pass> passes;
  for (std::size_t at = 0; at < count;) {
    const std::size_t next = std::min(count, at + static_cast<std::size_t>(best[at].rows));
    passes.push_back(
        {{order.begin() + static_cast<std::ptrdiff_t>(at), order.begin() + static_cast<std::ptrdiff_t>(next)},
         best[at].length,
         best[at].rows});
    at = next;
  }
  return passes;
}

Padded padded(const Pass& pass, const std::vector<TokenText>& texts, bool with_types, Device device) {
  const auto rows = static_cast<std::size_t>(pass.rows), length = static_cast<std::size_t>(pass.length);
  std::vector<std::int32_t> tokens(rows * length, 0), types(rows * length, 0), lengths(rows, 0);
  for (std::size_t row = 0; row < pass.texts.size(); ++row) {
    const TokenText& text = texts[pass.texts[row]];
    std::copy(text.tokens.begin(), text.tokens.end(), tokens.begin() + static_cast<std::ptrdiff_t>(row * length));
    std::copy(text.types.begin(), text.types.end(), types.begin() + static_cast<std::ptrdiff_t>(row * length));
    lengths[row] = static_cast<std::int32_t>(text.tokens.size());
  }
  const Shape shape{pass.rows, pass.length};
  return {tensor_from_bytes(tokens.data(), shape, DType::i32, device),
          with_types ? tensor_from_bytes(types.data(), shape, DType::i32, device) : Tensor(),
          tensor_from_bytes(lengths.data(), {pass.rows}, DType::i32, device)};
}

}  // namespace weft::encoder
