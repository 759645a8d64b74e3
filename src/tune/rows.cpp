// Examples side by side in rows of equal length.
#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "base/philox.hpp"
#include "weft/error.hpp"
#include "weft/tune.hpp"

namespace weft::tune {
namespace {

/// The positions that an example takes: its last token is only a target.
std::size_t places_of(const Example& example) { return example.tokens.size() - 1; }

/// 0 to n - 1 in the order of an epoch (Fisher and Yates).
std::vector<std::uint32_t> order_of(std::size_t n, std::uint64_t seed, std::uint32_t epoch) {
  std::vector<std::uint32_t> order(n);
  std::iota(order.begin(), order.end(), 0U);
  const philox::Key key{static_cast<std::uint32_t>(seed), static_cast<std::uint32_t>(seed >> 32)};
  for (std::size_t i = n; i > 1; --i) {
    const philox::Block words =
        philox::block(key, {static_cast<std::uint32_t>(i), epoch, 1, static_cast<std::uint32_t>(philox::Use::batches)});
    std::swap(order[i - 1], order[philox::to_below(i, words[0], words[1])]);
  }
  return order;
}

}  // namespace

std::int64_t Rows::counted() const {
  return static_cast<std::int64_t>(targets.size()) - std::count(targets.begin(), targets.end(), kIgnored);
}

RowStream::RowStream(std::span<const Example> examples, Extent context, std::uint64_t seed, bool shuffled)
    : examples_(examples), context_(context), seed_(seed), shuffled_(shuffled) {
  if (examples.empty()) throw UsageError("tune: there are no examples");
  for (const Example& example : examples)
    if (example.tokens.size() < 2 || example.counts.size() != example.tokens.size() ||
        places_of(example) > static_cast<std::size_t>(context))
      throw UsageError(fmt::format(
          "tune: an example of {} tokens with {} marks in a context of {}; give 2 to {} tokens, and a mark for each",
          example.tokens.size(), example.counts.size(), context, context + 1));
}

void RowStream::add_epoch() {
  std::vector<std::uint32_t> order(examples_.size());
  std::iota(order.begin(), order.end(), 0U);
  if (shuffled_) order = order_of(examples_.size(), seed_, static_cast<std::uint32_t>(ends_.size()));
  std::size_t room = 0;
  bool is_first = true;
  for (const std::uint32_t number : order) {
    const std::size_t needed = places_of(examples_[number]);
    if (is_first || needed > room || rows_.back().size() == static_cast<std::size_t>(Rows::kTextsMax)) {
      rows_.emplace_back();
      room = static_cast<std::size_t>(context_);
      is_first = false;
    }
    rows_.back().push_back(number);
    room -= needed;
  }
  ends_.push_back(static_cast<std::int64_t>(rows_.size()));
}

std::int64_t RowStream::rows_of_epochs(std::int64_t epochs) {
  while (static_cast<std::int64_t>(ends_.size()) < epochs) add_epoch();
  return epochs > 0 ? ends_[static_cast<std::size_t>(epochs) - 1] : 0;
}

Rows RowStream::batch(std::int64_t first, Extent count) {
  while (static_cast<std::int64_t>(rows_.size()) < first + count) add_epoch();
  Rows rows{count, context_};
  const auto size = static_cast<std::size_t>(count * context_), width = static_cast<std::size_t>(context_);
  rows.tokens.assign(size, 0);
  rows.positions.assign(size, 0);
  rows.texts.assign(size, -1);
  rows.targets.assign(size, Rows::kIgnored);
  rows.lengths.assign(static_cast<std::size_t>(count * Rows::kTextsMax), 0);
  for (std::size_t r = 0; r < static_cast<std::size_t>(count); ++r) {
    std::size_t at = r * width;
    std::int32_t text = 0;
    for (const std::uint32_t number : rows_[static_cast<std::size_t>(first) + r]) {
      const Example& example = examples_[number];
      rows.lengths[r * static_cast<std::size_t>(Rows::kTextsMax) + static_cast<std::size_t>(text)] =
          static_cast<std::int32_t>(places_of(example));
      for (std::size_t t = 0; t < places_of(example); ++t, ++at) {
        rows.tokens[at] = example.tokens[t];
        rows.positions[at] = static_cast<std::int32_t>(t);
        rows.texts[at] = text;
        if (example.counts[t + 1]) rows.targets[at] = example.tokens[t + 1];
      }
      ++text;
    }
  }
  return rows;
}

}  // namespace weft::tune
