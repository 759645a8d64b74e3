#include "grammar/recognizer.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "weft/error.hpp"

namespace weft::grammar {
namespace {

std::uint64_t mixed(std::uint64_t x) {
  x = (x ^ (x >> 33)) * 0xFF51AFD7ED558CCDu;
  x = (x ^ (x >> 33)) * 0xC4CEB9FE1A85EC53u;
  return x ^ (x >> 33);
}

}  // namespace

Recognizer::Recognizer(std::shared_ptr<const Network> network) : network_(std::move(network)), slots_(256) {
  ++era_;
  std::vector<Item> items;
  add(items, {network_->rules[0].start, kHere});
  intern(std::move(items));
}

Recognizer::Place Recognizer::step(Place place, std::string_view bytes) {
  for (const char c : bytes) {
    if (place == kDead) break;
    place = step(place, static_cast<std::uint8_t>(c));
  }
  return place;
}

void Recognizer::add(std::vector<Item>& items, Item item) {
  if (2 * (items.size() + 1) > slots_.size()) {
    slots_.assign(2 * slots_.size(), Slot{});
    era_ = 1;
    std::vector<Item> old = std::move(items);
    items.clear();
    items.reserve(2 * old.size());
    for (const Item& each : old) add(items, each);
  }
  const std::size_t mask = slots_.size() - 1;
  std::size_t at = mixed(std::uint64_t{item.state} << 32 | item.origin) & mask;
  for (; slots_[at].era == era_; at = (at + 1) & mask)
    if (slots_[at].item == item) return;
  slots_[at] = {item, era_};
  items.push_back(item);
  if (items.size() > kItemsMax)
    throw UsageError(
        fmt::format("grammar: more than {} ways to read the text so far; make the grammar less ambiguous", kItemsMax));
}

Recognizer::Place Recognizer::new_step(Place place, std::uint8_t byte) {
  ++era_;
  std::vector<Item> items;
  for (const Item& item : sets_[place].items)
    for (const Network::ByteEdge& edge : network_->byte_edges_of(item.state))
      if (byte >= edge.first && byte <= edge.last)
        add(items, {edge.target, item.origin == kHere ? place : item.origin});
  const Place next = items.empty() ? kDead : intern(std::move(items));
  auto& table = sets_[place].next;
  if (!table) {
    table = std::make_unique<std::array<Place, 256>>();
    table->fill(kUnknown);
    bytes_ += sizeof *table;
  }
  (*table)[byte] = next;
  return next;
}

Recognizer::Place Recognizer::intern(std::vector<Item> items) {
  for (std::size_t i = 0; i < items.size(); ++i) {
    const Item item = items[i];
    const Network::State& state = network_->states[item.state];
    // A rule that ends where it began fits the empty text, and whoever called it has gone on already.
    if (state.ends_rule && item.origin != kHere) {
      const auto& waiting = sets_[item.origin].waiting;
      auto caller = std::lower_bound(waiting.begin(), waiting.end(), state.rule,
                                     [](const Waiting& w, RuleId rule) { return w.rule < rule; });
      for (; caller != waiting.end() && caller->rule == state.rule; ++caller)
        add(items, {caller->target, caller->origin == kHere ? item.origin : caller->origin});
    }
    for (const Network::Call& call : network_->calls_of(item.state)) {
      const Network::Rule& rule = network_->rules[call.rule];
      add(items, {rule.start, kHere});
      if (rule.is_nullable) add(items, {call.target, item.origin});
    }
  }
  // Beginnings follow from the other items, which therefore tell sets apart. The first set alone has no others.
  std::vector<Item> kernel;
  for (const Item& item : items)
    if (item.origin != kHere) kernel.push_back(item);
  std::sort(kernel.begin(), kernel.end());
  std::uint64_t hash = kernel.size();
  for (const Item& item : kernel) hash = mixed(hash ^ (std::uint64_t{item.state} << 32 | item.origin));
  for (auto [at, end] = by_hash_.equal_range(hash); at != end; ++at)
    if (kernels_[at->second] == kernel) return at->second;

  const auto place = static_cast<Place>(sets_.size());
  Set set;
  for (const Item& item : items) {
    const Network::State& state = network_->states[item.state];
    const bool is_whole = item.origin == 0 || (place == 0 && item.origin == kHere);
    if (state.ends_rule && state.rule == 0 && is_whole) set.accepts = true;
    for (const Network::Call& call : network_->calls_of(item.state))
      set.waiting.push_back({call.rule, call.target, item.origin});
  }
  std::sort(set.waiting.begin(), set.waiting.end(), [](const auto& x, const auto& y) { return x.rule < y.rule; });
  // Only items that a byte may follow are needed from now on.
  std::erase_if(items, [&](const Item& item) { return network_->byte_edges_of(item.state).empty(); });
  items.shrink_to_fit();
  set.items = std::move(items);
  bytes_ += sizeof set + 64 + (set.items.size() + kernel.size()) * sizeof(Item) + set.waiting.size() * sizeof(Waiting);
  if (bytes_ > kBytesMax)
    throw UsageError(
        fmt::format("grammar: the places of the text need more than {} MB; make the grammar less ambiguous, or its "
                    "repetitions shorter",
                    kBytesMax >> 20));
  sets_.push_back(std::move(set));
  kernels_.push_back(std::move(kernel));
  by_hash_.emplace(hash, place);
  return place;
}

}  // namespace weft::grammar
