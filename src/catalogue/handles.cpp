#include <fmt/format.h>

#include <map>
#include <mutex>
#include <random>
#include <unordered_map>

#include "base/text_map.hpp"
#include "catalogue/families.hpp"
#include "weft/catalogue.hpp"

namespace weft::operations {

struct Handles::State {
  struct Entry {
    Tensor tensor;
    std::string owner, session;
    std::uint64_t bytes, number;
    std::chrono::steady_clock::time_point used;
  };
  struct Owner {
    std::map<std::uint64_t, std::string> handles;  // by their numbers
    std::uint64_t bytes = 0;
  };
  std::size_t handles_max;
  std::uint64_t handle_bytes_max;
  mutable std::mutex mutex;
  TextMap<Entry> entries;
  TextMap<Owner> owners;
  std::uint64_t next = 1;
  std::random_device random;

  TextMap<Entry>::iterator find(std::string_view handle, std::string_view owner) {
    const auto found = entries.find(handle);
    return found != entries.end() && found->second.owner == owner ? found : entries.end();
  }
  Tensor remove(TextMap<Entry>::iterator entry) {
    const auto owner = owners.find(entry->second.owner);
    owner->second.handles.erase(entry->second.number);
    owner->second.bytes -= entry->second.bytes;
    if (owner->second.handles.empty()) owners.erase(owner);
    Tensor tensor = std::move(entry->second.tensor);
    entries.erase(entry);
    return tensor;
  }
};

Handles::Handles(const CatalogueOptions& options) : state_(std::make_unique<State>()) {
  state_->handles_max = options.handles_max;
  state_->handle_bytes_max = options.handle_bytes_max;
}
Handles::~Handles() = default;

std::string Handles::put(Tensor tensor, std::string_view owner, std::string_view session) {
  const std::uint64_t bytes = bytes_of(tensor.dtype(), static_cast<std::size_t>(tensor.numel()));
  const auto check = [&] {
    const auto found = state_->owners.find(owner);
    const std::size_t count = found == state_->owners.end() ? 0 : found->second.handles.size();
    const std::uint64_t held = found == state_->owners.end() ? 0 : found->second.bytes;
    if (count >= state_->handles_max)
      throw OperationError("HANDLE_LIMIT",
                           fmt::format("{} tensors are held already, which is the limit; free some", count));
    if (bytes > state_->handle_bytes_max - std::min(held, state_->handle_bytes_max))
      throw OperationError(
          "HANDLE_LIMIT",
          fmt::format("{} bytes are held already, and {} more would exceed the limit of {}; free some tensors", held,
                      bytes, state_->handle_bytes_max));
  };
  {
    const std::lock_guard lock(state_->mutex);
    check();
  }
  tensor.eval();  // a handle keeps a value, not the graph that computes it
  const std::lock_guard lock(state_->mutex);
  check();
  std::string handle;
  do {
    handle = fmt::format("t-{:08x}{:08x}{:08x}{:08x}", state_->random(), state_->random(), state_->random(),
                         state_->random());
  } while (state_->entries.contains(handle));
  const std::uint64_t number = state_->next++;
  State::Owner& of = state_->owners[std::string(owner)];
  of.handles.emplace(number, handle);
  of.bytes += bytes;
  state_->entries.emplace(handle, State::Entry{std::move(tensor), std::string(owner), std::string(session), bytes,
                                               number, std::chrono::steady_clock::now()});
  return handle;
}

std::optional<Tensor> Handles::find(std::string_view handle, std::string_view owner) {
  const std::lock_guard lock(state_->mutex);
  const auto found = state_->find(handle, owner);
  if (found == state_->entries.end()) return std::nullopt;
  found->second.used = std::chrono::steady_clock::now();
  return found->second.tensor;
}

bool Handles::free(std::string_view handle, std::string_view owner) {
  Tensor freed;  // released after the lock
  const std::lock_guard lock(state_->mutex);
  const auto found = state_->find(handle, owner);
  if (found == state_->entries.end()) return false;
  freed = state_->remove(found);
  return true;
}

std::vector<std::string> Handles::list(std::string_view owner) const {
  const std::lock_guard lock(state_->mutex);
  std::vector<std::string> all;
  if (const auto found = state_->owners.find(owner); found != state_->owners.end())
    for (const auto& [number, handle] : found->second.handles) all.push_back(handle);
  return all;
}

void Handles::free_all_of(std::string_view owner) {
  for (const std::string& handle : list(owner)) free(handle, owner);
}

void Handles::free_session(std::string_view session) {
  if (session.empty()) return;
  std::vector<Tensor> freed;  // released after the lock
  const std::lock_guard lock(state_->mutex);
  for (auto entry = state_->entries.begin(); entry != state_->entries.end();) {
    const auto at = entry++;
    if (at->second.session == session) freed.push_back(state_->remove(at));
  }
}

void Handles::free_unused_for(std::chrono::seconds age) {
  std::vector<Tensor> freed;
  const std::lock_guard lock(state_->mutex);
  const auto oldest = std::chrono::steady_clock::now() - age;
  for (auto entry = state_->entries.begin(); entry != state_->entries.end();) {
    const auto at = entry++;
    if (at->second.used < oldest) freed.push_back(state_->remove(at));
  }
}

std::size_t Handles::size() const {
  const std::lock_guard lock(state_->mutex);
  return state_->entries.size();
}

std::uint64_t Handles::bytes() const {
  const std::lock_guard lock(state_->mutex);
  std::uint64_t sum = 0;
  for (const auto& [owner, of] : state_->owners) sum += of.bytes;
  return sum;
}

// ---- As operations ------------------------------------------------------------------------------------------------------------

void add_handle_operations(Registry& registry, std::shared_ptr<Handles> handles) {
  const DeclaredError missing{"HANDLE_NOT_FOUND", "no such handle, or one of another caller", true, 404};
  const DeclaredError limit{"HANDLE_LIMIT", "more tensors or bytes than one caller may hold", true, 429};
  const Access access{.scopes = {"tensor:run"}};
  const Value handle_input = schema_of(R"({"type": "object", "required": ["handle"], "additionalProperties": false,
    "properties": {"handle": {"type": "string"}}})");
  const auto not_found = [](const std::string& handle) {
    return OperationError("HANDLE_NOT_FOUND", fmt::format("there is no handle \"{}\"", handle.substr(0, 64)));
  };

  registry.add(
      {.space = "handle",
       .name = "create",
       .kind = Kind::mutation,
       .title = "create a tensor",
       .description = "Computes a tensor and keeps it on its device, under a handle that later inputs may name.",
       .input = schema_of(R"({"type": "object", "required": ["tensor"], "additionalProperties": false,
                  "properties": {"tensor": {"x-tensor": true}}})"),
       .output = handle_input,
       .errors = {limit},
       .access = access},
      [handles](Context& call) {
        return Value::object({{"handle", handles->put(call.input("tensor").tensor(), owner_of(call), call.session())}});
      });
  registry.add({.space = "handle",
                .name = "read",
                .title = "read a tensor",
                .description = "The tensor of a handle.",
                .input = handle_input,
                .output = schema_of(R"({"type": "object", "properties": {"tensor": {"x-tensor": true}}})"),
                .errors = {missing},
                .access = access},
               [handles, not_found](Context& call) {
                 const std::string& handle = call.input("handle").string();
                 const auto tensor = handles->find(handle, owner_of(call));
                 if (!tensor) throw not_found(handle);
                 return Value::object({{"tensor", *tensor}});
               });
  registry.add({.space = "handle",
                .name = "free",
                .kind = Kind::mutation,
                .title = "free a tensor",
                .description = "Gives up a handle and its memory.",
                .input = handle_input,
                .errors = {missing},
                .access = access},
               [handles, not_found](Context& call) {
                 const std::string& handle = call.input("handle").string();
                 if (!handles->free(handle, owner_of(call))) throw not_found(handle);
                 return Value(Value::Object());
               });
  registry.add(
      {.space = "handle",
       .name = "list",
       .title = "list tensors",
       .description = "The caller's handles, with dtypes and shapes.",
       .input = schema_of(R"({"type": ["object", "null"]})"),
       .output = schema_of(R"({"type": "object", "properties": {"handles": {"type": "array", "items": {"type": "object",
                  "properties": {"handle": {"type": "string"}, "dtype": {"type": "string"}, "shape": {"type": "array", "items": {"type": "integer"}}}}}}})"),
       .access = access},
      [handles](Context& call) {
        Value::Array all;
        for (const std::string& handle : handles->list(owner_of(call)))
          if (const auto tensor = handles->find(handle, owner_of(call)))
            all.push_back(Value::object({{"handle", handle},
                                         {"dtype", name_of(tensor->dtype())},
                                         {"shape", Value::Array(tensor->shape().begin(), tensor->shape().end())}}));
        return Value::object({{"handles", std::move(all)}});
      });
}

}  // namespace weft::operations
