// Reading, mapping, atomic writing and appending. Every failure is a FileError that names the path, the fact and the
// cure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace weft {

inline constexpr std::uint64_t kMaxReadBytes = std::uint64_t{4} << 30;

/// The whole regular file. FileError if it is missing, unreadable, not a regular file, over `max_bytes`, or shrinks while it is
/// read.
std::vector<std::byte> read_file(const std::filesystem::path& path, std::uint64_t max_bytes = kMaxReadBytes);
/// The same as text; the encoding is not checked (see base/utf8.hpp).
std::string read_text_file(const std::filesystem::path& path, std::uint64_t max_bytes = kMaxReadBytes);

/// Identifies a file and its content: another file, or the same file after a write, has another stamp.
struct FileStamp {
  std::uint64_t bytes = 0, node = 0;
  std::int64_t modified = 0, changed = 0;  ///< nanoseconds since 1970; `changed` also moves when `modified` is set

  bool operator==(const FileStamp&) const = default;
};
/// FileError if its properties cannot be read.
FileStamp stamp_of(const std::filesystem::path& path);

/// A regular file mapped read-only. Copies share the mapping; the last one unmaps it. Files that Weft replaces keep
/// their old content in existing mappings; a file that something else truncates in place while mapped ends the process
/// (SIGBUS), as with every mapping.
class MappedFile {
 public:
  /// Whose files are taken: anybody's, or only those of this user that no other may write to, and no symbolic links.
  enum class Trust : std::uint8_t { any, own };
  /// FileError as `read_file`, and for a file that is not to be trusted.
  explicit MappedFile(const std::filesystem::path& path, Trust trust = Trust::any);
  std::span<const std::byte> bytes() const { return bytes_; }
  const std::filesystem::path& path() const { return path_; }
  /// The stamp when the file was mapped.
  const FileStamp& stamp() const { return stamp_; }

 private:
  std::filesystem::path path_;
  FileStamp stamp_;
  std::shared_ptr<const void> mapping_;
  std::span<const std::byte> bytes_;
};

/// Lets the system drop these bytes of a mapping from memory: they are read again when they are next used.
void release_pages(std::span<const std::byte> mapped);
/// Announces that the whole mapped file will be read soon and often. The system starts to read it from disk if it is not in
/// memory, in large pages if it has them for files.
void expect_pages(const MappedFile& file);

struct AtomicFileOptions {
  /// Keeps the replaced file as `previous_path(path)`. At every instant, also after a power failure, `path` (or, on file
  /// systems without hard links, at least one of the two) is a whole file.
  bool keep_previous = false;
  /// Number of bytes to be written, if known: too little free space is then reported before the first write.
  std::uint64_t expected_bytes = 0;
  /// Permissions of a new file, less the umask. A file that is replaced hands its own down.
  unsigned mode = 0666;
};

/// A file that appears whole or not at all: bytes go to `path`.tmp-<16 hex digits> in the same folder, and `commit` flushes it,
/// calls fsync, renames it over `path` and calls fsync on the folder. Without `commit` the temporary file is removed and `path`
/// is unchanged. A symbolic link at `path` is replaced, not followed. One thread at a time.
class AtomicFile {
 public:
  /// FileError if the folder is missing or unwritable, `path` is not a regular file, or free space is short.
  explicit AtomicFile(const std::filesystem::path& path, AtomicFileOptions options = {});
  ~AtomicFile();
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  /// FileError on failure; the object can then only be destroyed.
  void write(std::span<const std::byte> bytes);
  void write(std::string_view text) { write(std::as_bytes(std::span(text))); }
  /// Flushes everything written so far to the disk, so that `commit` has little left to wait for. FileError on failure.
  void sync();
  /// FileError on failure. `path` then holds the old file, except when the very last step fails: the message says so, and
  /// `path` holds the whole new file. Either way the save can be tried again.
  void commit();
  std::uint64_t bytes_written() const { return bytes_written_; }

 private:
  void flush();
  void write_through(std::span<const std::byte> bytes);
  void keep_previous();
  void discard() noexcept;
  [[noreturn]] void fail(std::string_view doing, int error) const;

  std::filesystem::path path_;
  std::filesystem::path folder_;
  std::filesystem::path temporary_;
  AtomicFileOptions options_;
  int fd_ = -1;
  bool temporary_exists_ = false;
  std::uint64_t bytes_written_ = 0;
  std::vector<std::byte> buffer_;
};

/// AtomicFile around `writer`: commits when it returns, leaves `path` alone when it throws.
void write_file_atomically(const std::filesystem::path& path, const std::function<void(AtomicFile&)>& writer,
                           AtomicFileOptions options = {});
void write_file_atomically(const std::filesystem::path& path, std::string_view contents,
                           AtomicFileOptions options = {});

/// `path` + ".previous".
std::filesystem::path previous_path(const std::filesystem::path& path);
/// Temporary files in `folder` of writers that were killed (or are still at work), sorted. FileError if it is
/// unreadable.
std::vector<std::filesystem::path> find_leftovers(const std::filesystem::path& folder);

/// A log of lines, created if missing. Each line is one write to the end of the file, passed to the system at once, so that
/// several processes may append, and a killed process loses nothing it appended. One thread at a time.
class LineLog {
 public:
  /// FileError if the file cannot be opened. A last line without its newline (after a power failure) is ended first, so that
  /// the next line stays whole.
  explicit LineLog(const std::filesystem::path& path);
  ~LineLog();
  LineLog(const LineLog&) = delete;
  LineLog& operator=(const LineLog&) = delete;

  /// Appends `line` and a newline. UsageError if it holds a newline; FileError on failure, which removes a torn line.
  void append(std::string_view line);

 private:
  void append_bytes(std::string_view bytes);

  std::filesystem::path path_;
  int fd_ = -1;
};

/// Opens, appends one line, closes.
void append_line(const std::filesystem::path& path, std::string_view line);

}  // namespace weft
