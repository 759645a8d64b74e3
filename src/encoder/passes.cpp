#include "encoder/passes.hpp"

#include <algorithm>
#include <bit>
#include <numeric>

namespace weft::encoder {
namespace {

// To a sixteenth of the power of two below, but at least to 8: at most one token in eight is padding for that reason.
Extent rounded(Extent length) {
  const auto below = static_cast<Extent>(std::bit_floor(static_cast<std::uint64_t>(std::max<Extent>(length, 1))));
  const Extent step = std::max<Extent>(below / 8, 8);
  return (length + step - 1) / step * step;
}

}  // namespace

std::vector<Pass> passes_of(const std::vector<TokenText>& texts, Extent tokens_max, Extent length_max) {
  std::vector<std::size_t> order(texts.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return texts[a].tokens.size() > texts[b].tokens.size(); });
  std::vector<Pass> passes;
  for (std::size_t at = 0; at < order.size();) {
    Pass pass;
    const auto longest = static_cast<Extent>(texts[order[at]].tokens.size());
    pass.length = std::max(longest, std::min(rounded(longest), length_max));
    const auto fit = static_cast<std::uint64_t>(std::max<Extent>(tokens_max / pass.length, 1));
    const std::size_t most = std::min<std::size_t>(std::bit_floor(fit), order.size() - at);
    // Texts that are much shorter go into a pass of their own, but a few may fill up this one.
    std::size_t count = 0;
    while (count < most && 2 * static_cast<Extent>(texts[order[at + count]].tokens.size()) > pass.length) ++count;
    count = std::max<std::size_t>(std::min(std::bit_ceil(std::max<std::size_t>(count, 1)), most), 1);
    pass.texts.assign(order.begin() + static_cast<std::ptrdiff_t>(at),
                      order.begin() + static_cast<std::ptrdiff_t>(at + count));
    pass.rows = static_cast<Extent>(std::bit_ceil(count));
    at += count;
    passes.push_back(std::move(pass));
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
