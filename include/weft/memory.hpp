// Vector memory: texts with embeddings, searched exactly by cosine, and packed into a context for a language model.
//
//   memory::Store store(model.width());
//   store.add({.text = "The cat sat on the mat."}, embedding);
//   for (const memory::Match& match : store.search(query, {.top_k = 3})) ...
//   store.recall(query, {.token_budget = 200}).text;             // the best texts that fit
//   store.save("notes.metatensor");
//
//   memory::StoreFile notes = memory::StoreFile::open("notes.metatensor", model.width());
//   notes.add({.text = "The dog barked."}, embedding);
//   notes.commit();                                               // appends: the cost is that of what is new
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "weft/tensor.hpp"
#include "weft/value.hpp"

namespace weft::memory {

struct Entry {
  std::string id;               ///< unique in a store; made by `add` if it is empty
  std::string name_space = {};  ///< such as "notes"; searches may be limited to one
  std::string text = {};
  Value metadata = Value::Object();
};

struct Match {
  Entry entry;
  double similarity = 0;  ///< the cosine of query and embedding
};

struct SearchOptions {
  std::size_t top_k = 10;
  std::optional<std::string> name_space = {};  ///< unset: all
  /// Members that an entry's metadata must have, with equal values.
  Value where = Value::Object();
  double similarity_min = -1;
};

/// How many tokens a text takes.
using TokenCount = std::function<std::size_t(std::string_view text)>;
/// A quarter of the bytes, rounded up: an estimate for texts without a tokenizer.
std::size_t estimated_tokens(std::string_view text);

struct RecallOptions {
  std::size_t token_budget = 500;
  TokenCount tokens = estimated_tokens;
  SearchOptions search = {.top_k = 50};
};
/// Texts for a prompt.
struct Recall {
  /// For each text "[1] the text\n", the best first; "" if none fits.
  std::string text;
  std::size_t tokens = 0;      ///< of `text`
  std::vector<Match> matches;  ///< those whose texts are in it, in its order
};

/// Entries with embeddings of one width. Embeddings are kept in f32, divided by their norm. Thread safety: one thread at a time.
class Store {
 public:
  /// Errors: UsageError unless 1 <= width <= 65536.
  explicit Store(Extent width);
  ~Store();
  Store(Store&&) noexcept;
  Store& operator=(Store&&) noexcept;

  /// Returns the id. Errors: UsageError for an id that is taken, texts that are not UTF-8, metadata that are not an object of JSON, or
  /// an embedding of another width, of zeros, or with numbers that are not finite.
  std::string add(Entry entry, std::span<const float> embedding);
  /// False if the store does not hold the entry.
  bool remove(std::string_view id);
  /// Null if there is none.
  const Entry* find(std::string_view id) const;

  Extent width() const;
  std::size_t size() const;
  /// The entries in the order of their storage; a removal moves the last one to its place.
  const std::vector<Entry>& entries() const;
  /// Entries of each namespace.
  std::map<std::string, std::size_t> namespaces() const;

  /// The entries that are most alike, the best first; of equal ones those that were stored earlier. Exact: all embeddings are
  /// multiplied with the query, in blocks, on the default device. Errors: UsageError as `add` for the query.
  std::vector<Match> search(std::span<const float> query, const SearchOptions& options = {}) const;
  /// Searches, and takes the texts in the order of their similarity as long as they fit; a text that is too long is left out, and
  /// shorter ones behind it may still fit. Errors: as `search`.
  Recall recall(std::span<const float> query, const RecallOptions& options = {}) const;

  /// A metatensor file (weft/metatensor.hpp) with the tensor "embeddings" f32 [entries, width] and the blob "entries", JSON each.
  /// It appears whole or not at all: after a crash it is the old one or the new one. Changes that a StoreFile has appended to the file
  /// that is replaced go with it. Errors: FileError.
  void save(const std::filesystem::path& path) const;
  /// The file, with the changes that a StoreFile has appended to it. Errors: FileError for a file that is missing or damaged, or not
  /// such a file.
  static Store load(const std::filesystem::path& path);

 private:
  friend class StoreFile;
  struct State;
  std::unique_ptr<State> state_;
};

/// A store and its file, to which changes are appended: into a journal beside it, PATH.journal, which `Store::load` reads too. A journal
/// that has grown larger than the file (and than a megabyte) is worked into it. One object has a file at a time.
class StoreFile {
 public:
  /// Loads the file; makes an empty one of this width if there is none. Errors: FileError as Store::load, if there is no file and no
  /// width, or if another StoreFile, of this or another program, has it; UsageError for a width that is not that of the file.
  static StoreFile open(const std::filesystem::path& path, std::optional<Extent> width = {});
  ~StoreFile();
  StoreFile(StoreFile&&) noexcept;
  StoreFile& operator=(StoreFile&&) noexcept;

  const Store& store() const;
  /// As those of Store. The file has the change after `commit`.
  std::string add(Entry entry, std::span<const float> embedding);
  bool remove(std::string_view id);
  /// Appends the changes since the last commit, and waits until they are on the disk. After a crash the file has all of them or none.
  /// Errors: FileError; then the file has none of them, and `commit` may be tried again, unless another program has replaced the file.
  void commit();
  /// Writes the whole file, as Store::save does, and empties the journal. Errors: as `commit`.
  void compact();
  /// Bytes of the journal.
  std::uint64_t journal_bytes() const;
  /// Lets go of the file, and gives the store as it is, with changes that were not committed.
  Store release() &&;

 private:
  friend class Store;
  struct State;
  explicit StoreFile(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

/// {"id", "namespace", "text", "metadata", "similarity"}.
Value to_value(const Match& match);

}  // namespace weft::memory
