// Responses that later requests refer to, in memory and in a folder.
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <cstring>

#include "base/cache_folder.hpp"
#include "base/file.hpp"
#include "serve/openai_responses.hpp"
#include "weft/error.hpp"

namespace weft::serve {
namespace fs = std::filesystem;
namespace {

constexpr std::string_view kEnding = ".json";
constexpr unsigned kOwnerOnly = 0600;

/// Ids become names of files.
bool is_plain_id(std::string_view id) {
  return !id.empty() && id.size() <= 200 && std::all_of(id.begin(), id.end(), [](unsigned char c) {
    return std::isalnum(c) != 0 || c == '_' || c == '-';
  });
}

}  // namespace

ResponseStore::ResponseStore(fs::path folder) : folder_(std::move(folder)) {
  if (folder_.empty()) return;
  if (!make_private_folder(folder_))
    throw FileError(
        fmt::format("{}: the folder of responses cannot be made, or belongs to another user", folder_.string()));
  const fs::path path = folder_ / "lock";
  lock_ = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, kOwnerOnly);
  if (lock_ < 0) throw FileError(fmt::format("{}: cannot be written: {}", path.string(), std::strerror(errno)));
  if (::flock(lock_, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) {
    ::close(lock_);
    throw FileError(fmt::format("{}: another server keeps its responses here; give another folder", folder_.string()));
  }
  try {
    read_folder();
  } catch (...) {
    ::close(lock_);
    throw;
  }
}

ResponseStore::~ResponseStore() {
  if (lock_ >= 0) ::close(lock_);
}

fs::path ResponseStore::file_of(std::string_view id) const {
  return folder_ / (std::string(id) + std::string(kEnding));
}

void ResponseStore::read_folder() {
  std::error_code error;
  for (const fs::path& leftover : find_leftovers(folder_)) fs::remove(leftover, error);  // of a server that was killed
  std::vector<Entry> found;
  fs::directory_iterator it(folder_, error), end;
  if (error) throw FileError(fmt::format("{}: cannot be read: {}", folder_.string(), error.message()));
  for (; !error && it != end; it.increment(error)) {
    const fs::path path = it->path();
    const std::string id = path.stem().string();
    if (path.extension() != kEnding || !is_plain_id(id)) continue;
    try {
      const std::string text = read_text_file(path, 2 * kBytesMax);
      const Value value = Value::parse(text);
      const Value *number = value.is_object() ? value.find("number") : nullptr,
                  *response = number ? value.find("response") : nullptr,
                  *items = response ? value.find("items") : nullptr;
      if (!items || !items->is_array() || !response->is_object() || !number->is_integer() || number->number() < 1)
        throw FileError("it is not a stored response");
      found.push_back({id, {*response, items->elements()}, text.size(), static_cast<std::uint64_t>(number->number())});
    } catch (const Error& damaged) {
      problems_.push_back(fmt::format("{}: left out: {}", path.string(), damaged.what()));
    }
  }
  std::sort(found.begin(), found.end(), [](const Entry& a, const Entry& b) { return a.number < b.number; });
  for (Entry& entry : found) {
    next_number_ = entry.number + 1;
    add(std::move(entry));
  }
}

void ResponseStore::forget(std::list<Entry>::iterator entry) {
  bytes_ -= entry->bytes;
  if (!folder_.empty()) {
    std::error_code ignored;
    fs::remove(file_of(entry->id), ignored);
  }
  by_id_.erase(entry->id);
  entries_.erase(entry);
}

void ResponseStore::add(Entry entry) {
  bytes_ += entry.bytes;
  entries_.push_back(std::move(entry));
  by_id_[entries_.back().id] = std::prev(entries_.end());
  while (entries_.size() > kResponsesMax || bytes_ > kBytesMax) forget(entries_.begin());
}

std::optional<StoredResponse> ResponseStore::find(std::string_view id) const {
  const std::lock_guard lock(mutex_);
  const auto found = by_id_.find(std::string(id));
  if (found == by_id_.end()) return std::nullopt;
  return found->second->response;
}

std::string ResponseStore::put(const std::string& id, StoredResponse response) {
  std::uint64_t number = 0;
  {
    const std::lock_guard lock(mutex_);
    number = next_number_++;
  }
  const std::string text = Value::object({{"number", static_cast<std::int64_t>(number)},
                                          {"response", response.response},
                                          {"items", Value(response.items)}})
                               .to_json();
  if (text.size() > kBytesMax) return "";
  std::string problem;
  if (!folder_.empty() && is_plain_id(id)) try {
      AtomicFile file(file_of(id), {.keep_previous = false, .expected_bytes = text.size(), .mode = kOwnerOnly});
      file.write(text);
      file.commit();
    } catch (const FileError& error) {
      problem = error.what();
    }
  const std::lock_guard lock(mutex_);
  if (const auto found = by_id_.find(id); found != by_id_.end()) {
    bytes_ -= found->second->bytes;
    entries_.erase(found->second);
  }
  add({id, std::move(response), text.size(), number});
  return problem;
}

bool ResponseStore::remove(std::string_view id) {
  const std::lock_guard lock(mutex_);
  const auto found = by_id_.find(std::string(id));
  if (found == by_id_.end()) return false;
  forget(found->second);
  return true;
}

}  // namespace weft::serve
