// Memories in files: whole ones, and changes appended to them.
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstring>

#include "base/append_file.hpp"
#include "base/file.hpp"
#include "base/file_system.hpp"
#include "memory/journal.hpp"
#include "memory/store_state.hpp"
#include "weft/error.hpp"
#include "weft/metatensor.hpp"

namespace weft::memory {
namespace {

namespace fs = std::filesystem;

constexpr const char* kFormatKey = "weft.memory";
// A number that every file has anew, so that a journal is not taken for that of another file.
constexpr const char* kGenerationKey = "weft.memory.generation";
constexpr std::uint64_t kJournalBytesMin = 1 << 20;

Value entry_value(const Entry& entry) {
  return Value::object(
      {{"id", entry.id}, {"namespace", entry.name_space}, {"text", entry.text}, {"metadata", entry.metadata}});
}

std::vector<float> floats_of(std::span<const std::byte> bytes) {
  std::vector<float> row(bytes.size() / sizeof(float));
  std::memcpy(row.data(), bytes.data(), row.size() * sizeof(float));
  return row;
}

[[noreturn]] void refuse_file(const fs::path& path, std::string_view fact) {
  throw FileError(fmt::format("{}: {}; give a file that a memory was saved in", path.string(), fact));
}

/// FileError for a file that is not a memory.
metatensor::File open_file(const fs::path& path) {
  metatensor::File file = metatensor::File::open(path);
  const auto format = file.metadata().find(kFormatKey);
  if (format == file.metadata().end() || format->second != "1") refuse_file(path, "it is not a memory of version 1");
  return file;
}

}  // namespace

/// What is in a file and its journal.
struct LoadedStore {
  Store store;
  std::uint64_t generation = 0, journal_end = 0, file_bytes = 0;
};

struct StoreFile::State {
  fs::path path;
  Store store;
  std::uint64_t generation, file_bytes;
  std::unique_ptr<AppendFile> journal;
  // Since the last commit.
  Value::Array changes = {};
  std::vector<float> rows = {};

  static LoadedStore load(const fs::path& path);
  /// Returns the bytes of the file.
  static std::uint64_t save(const Store& store, const fs::path& path, std::uint64_t generation);
  /// An empty journal. The cut is on the disk before anything is written, so that no old record follows the new header.
  void begin_journal() {
    journal->cut(0);
    journal->sync();
    journal->append(journal_header(generation, store.width()));
  }
  void check_place() const {
    if (!journal->is_in_place())
      throw FileError(fmt::format("{}: another program has replaced the memory; open it again", path.string()));
  }
};

std::uint64_t StoreFile::State::save(const Store& store, const fs::path& path, std::uint64_t generation) {
  const auto& state = *store.state_;
  std::vector<std::string> texts;
  for (const Entry& entry : state.entries) texts.push_back(entry_value(entry).to_json());
  const auto rows = [&](const std::function<void(std::span<const std::byte>)>& put) {
    for (const auto& block : state.blocks) put(std::as_bytes(std::span(block.rows)));
  };
  metatensor::Writer()
      .tensor("embeddings", DType::f32, {static_cast<Extent>(state.entries.size()), state.width}, rows)
      .blob("entries", texts)
      .metadata(kFormatKey, "1")
      .metadata(kGenerationKey, fmt::format("{:016x}", generation))
      .save(path);
  return stamp_of(path).bytes;
}

LoadedStore StoreFile::State::load(const fs::path& path) {
  const metatensor::File file = open_file(path);
  const auto refuse = [&](std::string_view fact) { refuse_file(path, fact); };
  const metatensor::Node *const embeddings = file.schema().find("embeddings"), *const entries =
                                                                                   file.schema().find("entries");
  if (!embeddings || embeddings->kind != metatensor::Kind::flat || embeddings->dtype != DType::f32 ||
      embeddings->shape.rank() != 2 || !entries || entries->kind != metatensor::Kind::blob ||
      entries->count != static_cast<std::uint64_t>(embeddings->shape[0]))
    refuse("it has not the embeddings f32 [entries, width] and as many entries");
  const std::span<const std::byte> bytes = file.bytes("embeddings");
  const auto width = static_cast<std::size_t>(embeddings->shape[1]);
  try {
    LoadedStore made{Store(embeddings->shape[1])};
    Store& store = made.store;
    for (std::uint64_t i = 0; i < entries->count; ++i) {
      const std::span<const std::byte> text = file.bytes(fmt::format("entries.{}", i));
      const Value entry = Value::parse({reinterpret_cast<const char*>(text.data()), text.size()}, "an entry");
      store.state_->restore(
          store, {entry["id"].string(), entry["namespace"].string(), entry["text"].string(), entry["metadata"]},
          floats_of(bytes.subspan(i * width * sizeof(float), width * sizeof(float))));
    }
    made.file_bytes = stamp_of(path).bytes;
    if (const auto found = file.metadata().find(kGenerationKey); found != file.metadata().end())
      std::from_chars(found->second.data(), found->second.data() + found->second.size(), made.generation, 16);
    const fs::path journal = journal_path(path);
    if (made.generation != 0 && fs::exists(journal))
      made.journal_end =
          read_journal(MappedFile(journal).bytes(), journal, made.generation, store.width(), [&](Change change) {
            if (change.removed.empty())
              store.state_->restore(store, std::move(change.entry), floats_of(change.row));
            else if (!store.remove(change.removed))
              throw UsageError(fmt::format("it removes {}, which there is not", change.removed));
          });
    return made;
  } catch (const UsageError& error) {
    throw FileError(fmt::format("{}: {}", path.string(), error.what()));
  }
}

// The file is replaced first: a crash then leaves a journal of an older file, which nobody reads.
void Store::save(const fs::path& path) const {
  StoreFile::State::save(*this, path, std::max<std::uint64_t>(1, state_->random()));
  const fs::path journal = journal_path(path);
  if (fs::exists(journal)) file_system().unlink(journal.c_str());
}

Store Store::load(const fs::path& path) { return std::move(StoreFile::State::load(path).store); }

StoreFile::StoreFile(std::unique_ptr<State> state) : state_(std::move(state)) {}
StoreFile::~StoreFile() = default;
StoreFile::StoreFile(StoreFile&&) noexcept = default;
StoreFile& StoreFile::operator=(StoreFile&&) noexcept = default;

StoreFile StoreFile::open(const fs::path& path, std::optional<Extent> width) {
  if (!fs::exists(path)) {
    if (!width)
      throw FileError(
          fmt::format("{}: there is no such file; give the width of the embeddings to make one", path.string()));
    Store(*width).save(path);
  } else {
    open_file(path);  // a file of another kind gets no journal
  }
  auto journal = std::make_unique<AppendFile>(journal_path(path));  // from here on nobody else appends
  LoadedStore loaded = State::load(path);
  if (width && *width != loaded.store.width())
    throw UsageError(fmt::format("{}: the memory has the width {}, and the embeddings {}", path.string(),
                                 loaded.store.width(), *width));
  StoreFile made(std::make_unique<State>(
      State{path, std::move(loaded.store), loaded.generation, loaded.file_bytes, std::move(journal)}));
  State& s = *made.state_;
  if (loaded.generation == 0)
    made.compact();  // a file of an older Weft
  else if (loaded.journal_end == 0)
    s.begin_journal();
  else if (loaded.journal_end < s.journal->size())
    s.journal->cut(loaded.journal_end);
  return made;
}

const Store& StoreFile::store() const { return state_->store; }
std::uint64_t StoreFile::journal_bytes() const { return state_->journal->size(); }

Store StoreFile::release() && {
  Store store = std::move(state_->store);
  state_.reset();
  return store;
}

std::string StoreFile::add(Entry entry, std::span<const float> embedding) {
  const std::string id = state_->store.add(std::move(entry), embedding);
  Store::State& held = *state_->store.state_;
  const std::size_t place = held.entries.size() - 1;
  state_->changes.push_back(entry_value(held.entries[place]));
  const std::span<const float> row = held.row(place);
  state_->rows.insert(state_->rows.end(), row.begin(), row.end());
  return id;
}

bool StoreFile::remove(std::string_view id) {
  if (!state_->store.remove(id)) return false;
  state_->changes.push_back(Value::object({{"remove", std::string(id)}}));
  return true;
}

void StoreFile::commit() {
  State& s = *state_;
  if (s.changes.empty()) return;
  s.check_place();
  const std::uint64_t before = s.journal->size();
  s.journal->append(journal_record(s.changes, s.rows));
  try {
    s.journal->sync();
  } catch (...) {
    s.journal->cut(before);
    throw;
  }
  s.changes.clear();
  s.rows.clear();
  if (s.journal->size() > std::max(kJournalBytesMin, s.file_bytes)) compact();
}

void StoreFile::compact() {
  State& s = *state_;
  s.check_place();
  const std::uint64_t generation = std::max<std::uint64_t>(1, s.store.state_->random());
  s.file_bytes = State::save(s.store, s.path, generation);
  s.generation = generation;
  s.changes.clear();
  s.rows.clear();
  s.begin_journal();
}

}  // namespace weft::memory
