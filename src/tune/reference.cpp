#include "tune/reference.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "weft/error.hpp"

namespace weft::tune {
namespace {

/// Calls `use` with the place of each text of preferences in [rows, kTextsMax], and its place among the values.
template <class F>
void for_each_text(const Rows& rows, F&& use) {
  constexpr auto kMost = static_cast<std::size_t>(Rows::kTextsMax);
  for (std::size_t i = 0; i < rows.pairs.size(); ++i)
    for (std::size_t side = 0; rows.pairs[i] >= 0 && side < 2; ++side)
      use((2 * (i / kMost) + side) * kMost + i % kMost, 2 * static_cast<std::size_t>(rows.pairs[i]) + side);
}

}  // namespace

Reference::Reference(std::size_t preferences) : values_(2 * preferences, std::nanf("")) {}

void Reference::set(Rows& rows) const {
  for_each_text(rows, [&](std::size_t place, std::size_t text) { rows.reference[place] = values_[text]; });
}

void Reference::compute(Tuner& tuner, RowStream& stream, std::int64_t rows, Extent batch, const std::stop_token& stop) {
  for (std::int64_t first = 0; first < rows && !stop.stop_requested(); first += batch) {
    const Rows given = stream.batch(first, batch);
    const std::vector<float> values = tuner.log_probabilities(given);
    for_each_text(given, [&](std::size_t place, std::size_t text) {
      if (std::isnan(values_[text])) values_[text] = values[place];
    });
  }
}

void Reference::put_into(nn::StateDict& state, const char* name) const {
  const auto bytes = std::as_bytes(std::span(values_));
  state.push_back({name, DType::f32, {static_cast<Extent>(values_.size())}, {bytes.begin(), bytes.end()}});
}

void Reference::take_from(nn::StateDict& state, const char* name) {
  const auto found = std::find_if(state.begin(), state.end(), [&](const auto& array) { return array.name == name; });
  if (found == state.end() || found->dtype != DType::f32 || found->bytes.size() != values_.size() * sizeof(float))
    throw UsageError(fmt::format("{} is missing, or has not the numbers of {} preferences", name, count()));
  std::memcpy(values_.data(), found->bytes.data(), found->bytes.size());
  state.erase(found);
}

}  // namespace weft::tune
