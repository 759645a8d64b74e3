#include "weft/operations/registry.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <mutex>
#include <set>
#include <shared_mutex>

#include "base/quote.hpp"
#include "base/text_map.hpp"
#include "operations/registry_entry.hpp"
#include "weft/error.hpp"

namespace weft::operations {
namespace {

void check_name(std::string_view name, std::string_view what) {
  const auto is_letter = [](char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; };
  const bool good =
      !name.empty() && name.size() <= 128 && is_letter(name[0]) &&
      std::all_of(name.begin(), name.end(), [&](char c) { return is_letter(c) || (c >= '0' && c <= '9') || c == '-'; });
  if (!good)
    throw UsageError(
        fmt::format("the {} of an operation is {}; it may have letters, digits, _ and -, and begins with a letter",
                    what, quote(name)));
}

}  // namespace

struct Registry::State {
  mutable std::shared_mutex mutex;
  TextMap<std::shared_ptr<const Entry>> entries;
  std::map<std::string, AccessFunction, std::less<>> functions;
  std::vector<std::shared_ptr<const void>> kept;

  std::mutex observing;  // held while observers are called
  std::map<std::size_t, std::function<void()>> observers;
  std::size_t last_observer = 0;

  void changed(const Entry& entry) {
    if (entry.specification->visibility == Visibility::internal) return;
    const std::lock_guard lock(observing);
    for (const auto& [number, observer] : observers) observer();
  }
};

Registry::Registry() : state_(std::make_unique<State>()) {}
Registry::~Registry() {
  std::vector<std::shared_ptr<const void>> kept;  // what ends may still use the registry
  {
    const std::unique_lock lock(state_->mutex);
    kept.swap(state_->kept);
  }
}

std::size_t Registry::observe(std::function<void()> observer) {
  const std::lock_guard lock(state_->observing);
  state_->observers.emplace(++state_->last_observer, std::move(observer));
  return state_->last_observer;
}
void Registry::forget(std::size_t observer) {
  const std::lock_guard lock(state_->observing);
  state_->observers.erase(observer);
}
void Registry::keep(std::shared_ptr<const void> object) {
  const std::unique_lock lock(state_->mutex);
  state_->kept.push_back(std::move(object));
}

void Registry::add(Specification specification, Handler handler) {
  check_name(specification.space, "namespace");
  check_name(specification.name, "name");
  const std::string id = specification.id();
  for (const DeclaredError& error : specification.errors) schema::Schema{Value(error.schema)};  // is it one?
  auto entry = [&] {
    try {
      return std::make_shared<Entry>(
          Entry{nullptr, id, schema::Schema(specification.input), schema::Schema(specification.output), nullptr});
    } catch (Error& error) {
      error.add_context(fmt::format("adding the operation {}", id));
      throw;
    }
  }();
  entry->specification = std::make_shared<const Specification>(std::move(specification));
  if (handler.run) entry->handler = std::make_shared<const Handler>(std::move(handler));
  {
    const std::unique_lock lock(state_->mutex);
    if (!state_->entries.emplace(id, entry).second)
      throw UsageError(fmt::format("there already is an operation {}", id));
  }
  state_->changed(*entry);
}

void Registry::add(Specification specification) { add(std::move(specification), Handler{}); }

void Registry::add(Specification specification, std::function<Value(Context&)> run) {
  add(std::move(specification), Handler{.run = std::move(run)});
}

void Registry::set_handler(std::string_view id, Handler handler) {
  const std::unique_lock lock(state_->mutex);
  const auto found = state_->entries.find(id);
  if (found == state_->entries.end()) throw UsageError(fmt::format("there is no operation {}", quote(id)));
  if (found->second->handler) throw UsageError(fmt::format("operation {} already has a handler", id));
  auto entry = std::make_shared<Entry>(*found->second);
  entry->handler = std::make_shared<const Handler>(std::move(handler));
  found->second = std::move(entry);
}

void Registry::remove(std::string_view id) {
  std::shared_ptr<const Entry> removed;  // destroyed without the lock: a handler may be the last to hold what it uses
  {
    const std::unique_lock lock(state_->mutex);
    const auto found = state_->entries.find(id);
    if (found == state_->entries.end()) return;
    removed = std::move(found->second);
    state_->entries.erase(found);
  }
  state_->changed(*removed);
}

void Registry::add_access_function(std::string_view name, AccessFunction function) {
  const std::unique_lock lock(state_->mutex);
  if (!state_->functions.emplace(name, std::move(function)).second)
    throw UsageError(fmt::format("there already is an access function {}", quote(name)));
}

std::vector<std::shared_ptr<const Specification>> Registry::list(bool internal) const {
  std::vector<std::shared_ptr<const Specification>> all;
  {
    const std::shared_lock lock(state_->mutex);
    for (const auto& [id, entry] : state_->entries)
      if (internal || entry->specification->visibility == Visibility::external) all.push_back(entry->specification);
  }
  std::sort(all.begin(), all.end(), [](const auto& a, const auto& b) {
    return a->space != b->space ? a->space < b->space : a->name < b->name;
  });
  return all;
}

std::shared_ptr<const Registry::Entry> Registry::entry(std::string_view id) const {
  const std::shared_lock lock(state_->mutex);
  const auto found = state_->entries.find(id);
  return found == state_->entries.end() ? nullptr : found->second;
}

std::shared_ptr<const Specification> Registry::find(std::string_view id, bool internal) const {
  const auto found = entry(id);
  return found && (internal || found->specification->visibility == Visibility::external) ? found->specification
                                                                                         : nullptr;
}

std::optional<std::string> Registry::refusal(const Specification& specification, const Identity* identity,
                                             const Value& input) const {
  const Access& access = specification.access;
  if (access.is_open()) return std::nullopt;
  const bool needs_identity = !access.scopes.empty() || !access.any_scopes.empty() || !access.resource_type.empty();
  if (needs_identity && !identity) return "it is for callers with an identity";
  for (const std::string& scope : access.scopes)
    if (!identity->has_scope(scope)) return fmt::format("the scope {} is needed", quote(scope));
  if (!access.any_scopes.empty() && std::none_of(access.any_scopes.begin(), access.any_scopes.end(),
                                                 [&](const std::string& scope) { return identity->has_scope(scope); }))
    return fmt::format("one of the scopes {} is needed", fmt::join(access.any_scopes, ", "));
  if (!access.resource_type.empty()) {
    const Value* resource = input.is_object() ? input.find(access.resource_input) : nullptr;
    // Without its id no resource can be allowed; the input's schema will ask for it.
    if (!resource || !resource->is_string() ||
        !identity->may(access.resource_type, resource->string(), access.resource_action))
      return fmt::format("the action {} on this {} is not allowed", quote(access.resource_action),
                         access.resource_type);
  }
  if (!access.function.empty()) {
    AccessFunction function;
    {
      const std::shared_lock lock(state_->mutex);
      if (const auto found = state_->functions.find(access.function); found != state_->functions.end())
        function = found->second;
    }
    if (!function || !function(identity, input)) return fmt::format("{} does not allow it", quote(access.function));
  }
  return std::nullopt;
}

Identity Registry::owner() const {
  Identity owner{.id = "owner"};
  std::set<std::string> scopes;
  for (const auto& specification : list(true)) {
    scopes.insert(specification->access.scopes.begin(), specification->access.scopes.end());
    scopes.insert(specification->access.any_scopes.begin(), specification->access.any_scopes.end());
    if (!specification->access.resource_type.empty())
      owner.resources[specification->access.resource_type + ":*"] = {"*"};
  }
  owner.scopes.assign(scopes.begin(), scopes.end());
  return owner;
}

}  // namespace weft::operations
