#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/quote.hpp"
#include "base/utf8.hpp"
#include "memory/store_state.hpp"
#include "weft/error.hpp"
#include "weft/ops.hpp"

namespace weft::memory {
namespace {

constexpr Extent kWidthMax = 65'536;

/// v / |v|. Errors: UsageError.
std::vector<float> normalised(std::span<const float> given, Extent width, std::string_view what) {
  if (static_cast<Extent>(given.size()) != width)
    throw UsageError(fmt::format("memory: {} has {} numbers; the store has width {}", what, given.size(), width));
  double squares = 0;
  for (const float x : given) squares += static_cast<double>(x) * x;
  if (!std::isfinite(squares) || squares == 0)
    throw UsageError(fmt::format("memory: {} is zero, or has numbers that are not finite", what));
  const double scale = 1 / std::sqrt(squares);
  std::vector<float> made(given.size());
  std::transform(given.begin(), given.end(), made.begin(),
                 [&](float x) { return static_cast<float>(static_cast<double>(x) * scale); });
  return made;
}

bool has_members(const Value& metadata, const Value& where) {
  return std::all_of(where.members().begin(), where.members().end(), [&](const ValueObject::Member& wanted) {
    const Value* given = metadata.find(wanted.key);
    return given && *given == wanted.value;
  });
}

bool has_tensor(const Value& value) {
  if (value.is_tensor()) return true;
  if (value.is_array()) return std::any_of(value.elements().begin(), value.elements().end(), has_tensor);
  return value.is_object() && std::any_of(value.members().begin(), value.members().end(),
                                          [](const ValueObject::Member& each) { return has_tensor(each.value); });
}

}  // namespace

Store::Store(Extent width) : state_(std::make_unique<State>()) {
  if (width < 1 || width > kWidthMax)
    throw UsageError(fmt::format("memory: a width of {}; 1 to {} are possible", width, kWidthMax));
  state_->width = width;
}
Store::~Store() = default;
Store::Store(Store&&) noexcept = default;
Store& Store::operator=(Store&&) noexcept = default;

Extent Store::width() const { return state_->width; }
std::size_t Store::size() const { return state_->entries.size(); }
const std::vector<Entry>& Store::entries() const { return state_->entries; }

std::string Store::add(Entry entry, std::span<const float> embedding) {
  const std::vector<float> row = normalised(embedding, state_->width, "an embedding");
  for (const std::string* text : {&entry.id, &entry.name_space, &entry.text})
    if (find_invalid_utf8(*text)) throw UsageError(fmt::format("memory: {} is not UTF-8", quote(*text)));
  if (!entry.metadata.is_object() || has_tensor(entry.metadata))
    throw UsageError("memory: the metadata of an entry are an object of JSON");
  if (entry.id.empty()) entry.id = state_->new_id();
  if (state_->places.contains(entry.id))
    throw UsageError(fmt::format("memory: the id {} is taken; remove that entry first", quote(entry.id)));
  state_->append(row);
  state_->places.emplace(entry.id, state_->entries.size());
  state_->entries.push_back(std::move(entry));
  return state_->entries.back().id;
}

void Store::State::restore(Store& store, Entry entry, std::span<const float> row) {
  const std::size_t place = entries.size();
  if (entry.id.empty()) throw UsageError(fmt::format("entry {} has no id", place));
  store.add(std::move(entry), row);
  std::copy(row.begin(), row.end(), this->row(place).begin());
}

bool Store::remove(std::string_view id) {
  State& s = *state_;
  const auto found = s.places.find(id);
  if (found == s.places.end()) return false;
  const std::size_t at = found->second, last = s.entries.size() - 1;
  s.places.erase(found);
  if (at != last) {
    std::copy_n(s.row(last).begin(), s.width, s.row(at).begin());
    s.blocks[at / kBlockRows].tensor = {};
    s.entries[at] = std::move(s.entries[last]);
    s.places.find(s.entries[at].id)->second = at;
  }
  s.entries.pop_back();
  State::Block& block = s.blocks.back();
  block.rows.resize(block.rows.size() - static_cast<std::size_t>(s.width));
  block.tensor = {};
  if (block.rows.empty()) s.blocks.pop_back();
  return true;
}

const Entry* Store::find(std::string_view id) const {
  const auto found = state_->places.find(id);
  return found == state_->places.end() ? nullptr : &state_->entries[found->second];
}

std::map<std::string, std::size_t> Store::namespaces() const {
  std::map<std::string, std::size_t> counts;
  for (const Entry& entry : state_->entries) ++counts[entry.name_space];
  return counts;
}

std::vector<Match> Store::search(std::span<const float> query, const SearchOptions& options) const {
  if (!options.where.is_object()) throw UsageError("memory: `where` is an object of members that metadata must have");
  const std::vector<float> unit = normalised(query, state_->width, "the query");
  const Tensor column = tensor<float>(std::span<const float>(unit), {state_->width, 1});
  // The best so far, as a heap with the worst on top.
  struct Found {
    float similarity;
    std::size_t place;
  };
  const auto is_better = [](const Found& a, const Found& b) {
    return a.similarity != b.similarity ? a.similarity > b.similarity : a.place < b.place;
  };
  std::vector<Found> best;
  for (std::size_t b = 0; b < state_->blocks.size() && options.top_k > 0; ++b) {
    const std::vector<float> scores = matmul(state_->tensor_of(state_->blocks[b]), column).to_vector<float>();
    const std::size_t first = b * kBlockRows, count = std::min(kBlockRows, state_->entries.size() - first);
    for (std::size_t i = 0; i < count; ++i) {
      const Found found{std::clamp(scores[i], -1.0f, 1.0f), first + i};
      if (found.similarity < options.similarity_min) continue;
      if (best.size() == options.top_k && !is_better(found, best.front())) continue;
      const Entry& entry = state_->entries[found.place];
      if (options.name_space && entry.name_space != *options.name_space) continue;
      if (!has_members(entry.metadata, options.where)) continue;
      if (best.size() == options.top_k) {
        std::pop_heap(best.begin(), best.end(), is_better);
        best.pop_back();
      }
      best.push_back(found);
      std::push_heap(best.begin(), best.end(), is_better);
    }
  }
  std::sort(best.begin(), best.end(), is_better);
  std::vector<Match> matches;
  for (const Found& each : best) matches.push_back({state_->entries[each.place], static_cast<double>(each.similarity)});
  return matches;
}

std::size_t estimated_tokens(std::string_view text) { return (text.size() + 3) / 4; }

Recall Store::recall(std::span<const float> query, const RecallOptions& options) const {
  Recall made;
  for (Match& match : search(query, options.search)) {
    std::string longer = made.text + fmt::format("[{}] {}\n", made.matches.size() + 1, match.entry.text);
    // Counted as a whole: tokens do not end where texts do.
    const std::size_t tokens = options.tokens(longer);
    if (tokens > options.token_budget) continue;
    made.text = std::move(longer);
    made.tokens = tokens;
    made.matches.push_back(std::move(match));
  }
  return made;
}

Value to_value(const Match& match) {
  return Value::object({{"id", match.entry.id},
                        {"namespace", match.entry.name_space},
                        {"text", match.entry.text},
                        {"metadata", match.entry.metadata},
                        {"similarity", match.similarity}});
}

}  // namespace weft::memory
