// Files that a script may use: those below folders that were granted, found one part of the path at a time, so that neither ".."
// nor a link leads out, whatever happens to the folders meanwhile.
#pragma once

#include <filesystem>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace weft::script {

/// An open file descriptor.
class Descriptor {
 public:
  explicit Descriptor(int number = -1) : number_(number) {}
  Descriptor(Descriptor&& other) noexcept : number_(other.number_) { other.number_ = -1; }
  Descriptor& operator=(Descriptor&& other) noexcept;
  ~Descriptor();
  int number() const { return number_; }
  /// A path of the open file, for readers that want one.
  std::filesystem::path path() const;

 private:
  int number_;
};

struct Files {
  Files(const std::vector<std::filesystem::path>& read, const std::vector<std::filesystem::path>& write);

  /// A path that is inside a folder that may be read, or written, as folder and the parts below it. Errors: AccessError.
  struct Place {
    std::filesystem::path root;
    std::vector<std::string> parts;
  };
  Place place(std::string_view path, bool writes) const;

  /// Opens a regular file for reading. Errors: AccessError for a path that is not granted, or that leads over a link; FileError.
  Descriptor open(const Place& place) const;
  /// Opens a folder. Errors: as `open`.
  Descriptor open_folder(const Place& place) const;
  std::string read(std::string_view path) const;
  /// Replaces a file whole or not at all. Makes no folders. Errors: as `open`.
  void write(std::string_view path, std::string_view bytes) const;
  /// The same for a file that `write` writes at the path that it is given, beside the target.
  void save(std::string_view path, const std::function<void(const std::filesystem::path&)>& write) const;
  /// Names in a folder, sorted; folders end with "/".
  std::vector<std::string> list(std::string_view path) const;
  bool exists(std::string_view path) const;
  void remove(std::string_view path) const;

  std::vector<std::filesystem::path> read_roots, write_roots;

 private:
  /// A temporary file beside the target, which `finish` renames.
  struct Pending {
    Descriptor folder;
    std::string temporary, name;
    std::filesystem::path path;  // of the temporary file
  };
  Pending begin(std::string_view path) const;
  void finish(const Pending& pending) const;
  static void abandon(const Pending& pending);
};

/// The folders by their real paths. Errors: FileError for one that is not a folder.
std::vector<std::filesystem::path> real_folders(const std::vector<std::filesystem::path>& given);
/// Opens a file below a folder without following links. Errors: AccessError; FileError.
Descriptor open_beneath(const std::filesystem::path& root, const std::vector<std::string>& parts, int flags);
/// The whole of an open file, at most `bytes_max`. Errors: FileError.
std::string read_all(const Descriptor& file, std::string_view name, std::size_t bytes_max);
/// The parts of a path below a folder; nothing if it is not below it. Links are not looked at.
bool parts_below(const std::filesystem::path& root, const std::filesystem::path& path, std::vector<std::string>& parts);

}  // namespace weft::script
