// Examples side by side in rows of equal length.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <numeric>

#include "base/philox.hpp"
#include "tune/rows.hpp"
#include "weft/error.hpp"

namespace weft::tune {
namespace {

/// The positions that an example takes: its last token is only a target.
std::size_t places_of(const Example& example) { return example.tokens.size() - 1; }

Extent checked_texts(Extent texts) {
  if (texts < 1 || texts > Rows::kTextsMax)
    throw UsageError(fmt::format("tune: {} texts in a row; give 1 to {}", texts, Rows::kTextsMax));
  return texts;
}

}  // namespace

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

Rows no_rows(Extent count, Extent context, bool of_preferences) {
  Rows rows{count, context};
  const auto size = static_cast<std::size_t>(count * context),
             texts = static_cast<std::size_t>(count * Rows::kTextsMax);
  rows.tokens.assign(size, 0);
  rows.positions.assign(size, 0);
  rows.texts.assign(size, -1);
  rows.targets.assign(size, Rows::kIgnored);
  rows.lengths.assign(texts, 0);
  if (!of_preferences) return rows;
  rows.pairs.assign(texts / 2, -1);
  rows.reference.assign(texts, 0);
  return rows;
}

std::int64_t Rows::counted() const {
  return static_cast<std::int64_t>(targets.size()) - std::count(targets.begin(), targets.end(), kIgnored);
}

RowStream::RowStream(std::span<const Example> examples, Extent context, std::uint64_t seed, bool shuffled, Extent texts)
    : context_(context), texts_(checked_texts(texts)), seed_(seed), shuffled_(shuffled) {
  if (examples.empty()) throw UsageError("tune: there are no examples");
  for (const Example& example : examples) add_example(example);
}

RowStream::RowStream(std::span<const Preference> preferences, Extent context, std::uint64_t seed, bool shuffled,
                     Extent texts)
    : sides_(2), context_(context), texts_(checked_texts(texts)), seed_(seed), shuffled_(shuffled) {
  if (preferences.empty()) throw UsageError("tune: there are no preferences");
  for (const Preference& preference : preferences) {
    add_example(preference.chosen);
    add_example(preference.rejected);
  }
}

void RowStream::add_example(const Example& example) {
  if (example.tokens.size() < 2 || example.counts.size() != example.tokens.size() ||
      places_of(example) > static_cast<std::size_t>(context_))
    throw UsageError(fmt::format(
        "tune: an example of {} tokens with {} marks in a context of {}; give 2 to {} tokens, and a mark for each",
        example.tokens.size(), example.counts.size(), context_, context_ + 1));
  examples_.push_back(&example);
}

void RowStream::add_epoch() {
  const auto sides = static_cast<std::size_t>(sides_);
  const std::size_t count = examples_.size() / sides;
  std::vector<std::uint32_t> order(count);
  std::iota(order.begin(), order.end(), 0U);
  if (shuffled_) order = order_of(count, seed_, static_cast<std::uint32_t>(ends_.size()));
  std::array<std::size_t, 2> room{};
  bool is_first = true;
  for (const std::uint32_t number : order) {
    bool fits = !is_first && rows_.back().size() < static_cast<std::size_t>(texts_);
    for (std::size_t side = 0; side < sides; ++side)
      fits = fits && places_of(*examples_[number * sides + side]) <= room[side];
    if (!fits) {
      rows_.emplace_back();
      room.fill(static_cast<std::size_t>(context_));
      is_first = false;
    }
    rows_.back().push_back(number);
    for (std::size_t side = 0; side < sides; ++side) room[side] -= places_of(*examples_[number * sides + side]);
  }
  ends_.push_back(static_cast<std::int64_t>(rows_.size()));
}

std::int64_t RowStream::rows_of_epochs(std::int64_t epochs) {
  while (static_cast<std::int64_t>(ends_.size()) < epochs) add_epoch();
  return epochs > 0 ? ends_[static_cast<std::size_t>(epochs) - 1] * sides_ : 0;
}

Rows RowStream::batch(std::int64_t first, Extent count) {
  if (first % sides_ != 0 || count % sides_ != 0)
    throw UsageError(fmt::format("tune: rows {} to {} of preferences, whose rows come in twos", first, first + count));
  while (static_cast<std::int64_t>(rows_.size()) * sides_ < first + count) add_epoch();
  Rows rows = no_rows(count, context_, sides_ == 2);
  const auto width = static_cast<std::size_t>(context_), most = static_cast<std::size_t>(Rows::kTextsMax),
             sides = static_cast<std::size_t>(sides_);
  for (std::size_t r = 0; r < static_cast<std::size_t>(count); ++r) {
    const std::vector<std::uint32_t>& numbers = rows_[(static_cast<std::size_t>(first) + r) / sides];
    std::size_t at = r * width;
    for (std::size_t text = 0; text < numbers.size(); ++text) {
      const Example& example = *examples_[numbers[text] * sides + r % sides];
      rows.lengths[r * most + text] = static_cast<std::int32_t>(places_of(example));
      if (sides == 2) rows.pairs[r / 2 * most + text] = static_cast<std::int32_t>(numbers[text]);
      for (std::size_t t = 0; t < places_of(example); ++t, ++at) {
        rows.tokens[at] = example.tokens[t];
        rows.positions[at] = static_cast<std::int32_t>(t);
        rows.texts[at] = static_cast<std::int32_t>(text);
        if (example.counts[t + 1]) rows.targets[at] = example.tokens[t + 1];
      }
    }
  }
  return rows;
}

}  // namespace weft::tune
