#include "script/files.hpp"

#include <dirent.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <random>

#include "base/quote.hpp"
#include "script/engine.hpp"

namespace weft::script {
namespace {

namespace fs = std::filesystem;
constexpr std::size_t kFileBytesMax = std::size_t{1} << 30;

[[noreturn]] void refuse_path(std::string_view path, std::string_view fact) {
  throw AccessError(fmt::format("{} {}", quote(path), fact));
}
[[noreturn]] void fail_path(std::string_view path, int error) {
  throw FileError(fmt::format("{}: {}", quote(path), std::strerror(error)));
}

std::string joined(const std::vector<std::string>& parts) { return fmt::format("{}", fmt::join(parts, "/")); }

// The folder that holds the last part.
Descriptor folder_of(const Files::Place& place) {
  if (place.parts.empty()) refuse_path(place.root.string(), "is a folder, not a file");
  return open_beneath(place.root, {place.parts.begin(), place.parts.end() - 1}, O_RDONLY | O_DIRECTORY);
}

}  // namespace

Descriptor& Descriptor::operator=(Descriptor&& other) noexcept {
  std::swap(number_, other.number_);
  return *this;
}
Descriptor::~Descriptor() {
  if (number_ >= 0) ::close(number_);
}
fs::path Descriptor::path() const { return fmt::format("/proc/self/fd/{}", number_); }

bool parts_below(const fs::path& root, const fs::path& path, std::vector<std::string>& parts) {
  const fs::path relative = path.lexically_normal().lexically_relative(root);
  if (relative.empty() || *relative.begin() == "..") return false;
  parts.clear();
  for (const fs::path& part : relative)
    if (part != "." && !part.empty()) parts.push_back(part.string());
  return true;
}

Descriptor open_beneath(const fs::path& root, const std::vector<std::string>& parts, int flags) {
  Descriptor at(::open(root.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (at.number() < 0) fail_path(root.string(), errno);
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const bool is_last = i + 1 == parts.size();
    const int more = is_last ? flags : O_RDONLY | O_DIRECTORY;
    // O_NONBLOCK: opening a pipe would wait for its other end.
    Descriptor next(::openat(at.number(), parts[i].c_str(), more | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK, 0644));
    if (next.number() < 0) {
      const int error = errno;
      struct stat facts {};
      if (::fstatat(at.number(), parts[i].c_str(), &facts, AT_SYMLINK_NOFOLLOW) == 0 && S_ISLNK(facts.st_mode))
        refuse_path(joined(parts), "leads over a link; scripts follow none");
      fail_path(joined(parts), error);
    }
    at = std::move(next);
  }
  return at;
}

std::string read_all(const Descriptor& file, std::string_view name, std::size_t bytes_max) {
  struct stat facts {};
  if (::fstat(file.number(), &facts) != 0) fail_path(name, errno);
  if (!S_ISREG(facts.st_mode)) throw FileError(fmt::format("{} is not a regular file", quote(name)));
  std::string bytes;
  char part[1 << 16];
  for (;;) {
    const ssize_t count = ::read(file.number(), part, sizeof part);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) fail_path(name, errno);
    if (count == 0) return bytes;
    if (bytes.size() + static_cast<std::size_t>(count) > bytes_max)
      throw FileError(fmt::format("{} has more than {} bytes", quote(name), bytes_max));
    bytes.append(part, static_cast<std::size_t>(count));
  }
}

std::vector<fs::path> real_folders(const std::vector<fs::path>& given) {
  std::vector<fs::path> roots;
  for (const fs::path& folder : given) {
    std::error_code error;
    fs::path root = fs::canonical(folder, error);
    if (error || !fs::is_directory(root)) throw FileError(fmt::format("{} is not a folder", quote(folder.string())));
    roots.push_back(std::move(root));
  }
  return roots;
}

Files::Files(const std::vector<fs::path>& read, const std::vector<fs::path>& write)
    : read_roots(real_folders(read)), write_roots(real_folders(write)) {}

Files::Place Files::place(std::string_view path, bool writes) const {
  if (path.empty() || path.size() > 4096 || path.find('\0') != std::string_view::npos)
    refuse_path(path, "is not a path");
  const auto& roots = writes ? write_roots : read_roots;
  const fs::path given(path);
  Place place;
  for (const fs::path& root : roots) {
    const fs::path absolute = given.is_absolute() ? given : fs::current_path() / given;
    if (parts_below(root, absolute, place.parts)) {
      place.root = root;
      return place;
    }
  }
  // The folder itself may have been named by way of a link.
  if (given.has_parent_path()) {
    std::error_code error;
    const fs::path folder = fs::canonical(given.parent_path(), error);
    if (!error && std::none_of(given.begin(), given.end(), [](const fs::path& part) { return part == ".."; }))
      for (const fs::path& root : roots)
        if (folder == root) {
          place.root = root;
          place.parts = {given.filename().string()};
          return place;
        }
  }
  refuse_path(path, writes ? "is in no folder that the script may write; grant one with --allow-write"
                           : "is in no folder that the script may read; grant one with --allow-read");
}

Descriptor Files::open(const Place& place) const {
  if (place.parts.empty()) refuse_path(place.root.string(), "is a folder, not a file");
  Descriptor file = open_beneath(place.root, place.parts, O_RDONLY);
  struct stat facts {};
  if (::fstat(file.number(), &facts) != 0 || !S_ISREG(facts.st_mode))
    throw FileError(fmt::format("{} is not a regular file", quote(joined(place.parts))));
  return file;
}

Descriptor Files::open_folder(const Place& place) const {
  return open_beneath(place.root, place.parts, O_RDONLY | O_DIRECTORY);
}

std::string Files::read(std::string_view path) const { return read_all(open(place(path, false)), path, kFileBytesMax); }

Files::Pending Files::begin(std::string_view path) const {
  const Place target = place(path, true);
  Pending pending{folder_of(target), {}, target.parts.back(), {}};
  struct stat facts {};
  if (::fstatat(pending.folder.number(), pending.name.c_str(), &facts, AT_SYMLINK_NOFOLLOW) == 0 &&
      !S_ISREG(facts.st_mode))
    refuse_path(path, S_ISLNK(facts.st_mode) ? "is a link; scripts follow none" : "is not a regular file");
  pending.temporary = fmt::format(".{}.tmp-{:08x}", pending.name.substr(0, 200), std::random_device()());
  pending.path = pending.folder.path() / pending.temporary;
  return pending;
}

void Files::finish(const Pending& pending) const {
  const int folder = pending.folder.number();
  const Descriptor file(::openat(folder, pending.temporary.c_str(), O_RDONLY | O_NOFOLLOW | O_CLOEXEC));
  if (file.number() < 0 || ::fsync(file.number()) != 0 ||
      ::renameat(folder, pending.temporary.c_str(), folder, pending.name.c_str()) != 0) {
    const int error = errno;
    abandon(pending);
    fail_path(pending.name, error);
  }
  ::fsync(folder);
}

void Files::abandon(const Pending& pending) { ::unlinkat(pending.folder.number(), pending.temporary.c_str(), 0); }

void Files::save(std::string_view path, const std::function<void(const std::filesystem::path&)>& write) const {
  const Pending pending = begin(path);
  try {
    write(pending.path);
  } catch (...) {
    abandon(pending);
    throw;
  }
  finish(pending);
}

void Files::write(std::string_view path, std::string_view bytes) const {
  const Pending pending = begin(path);
  {
    const Descriptor file(::openat(pending.folder.number(), pending.temporary.c_str(),
                                   O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0644));
    if (file.number() < 0) fail_path(path, errno);
    while (!bytes.empty()) {
      const ssize_t count = ::write(file.number(), bytes.data(), bytes.size());
      if (count < 0 && errno == EINTR) continue;
      if (count < 0) {
        const int error = errno;
        abandon(pending);
        fail_path(path, error);
      }
      bytes.remove_prefix(static_cast<std::size_t>(count));
    }
  }
  finish(pending);
}

std::vector<std::string> Files::list(std::string_view path) const {
  const Place where = place(path, false);
  const Descriptor folder = open_folder(where);
  const int copy = ::dup(folder.number());
  DIR* const entries = copy < 0 ? nullptr : ::fdopendir(copy);
  if (!entries) fail_path(path, errno);
  std::vector<std::string> names;
  while (const dirent* entry = ::readdir(entries)) {
    const std::string name = entry->d_name;
    if (name == "." || name == "..") continue;
    names.push_back(entry->d_type == DT_DIR ? name + "/" : name);
  }
  ::closedir(entries);
  std::sort(names.begin(), names.end());
  return names;
}

bool Files::exists(std::string_view path) const {
  const Place where = place(path, false);
  if (where.parts.empty()) return true;
  try {
    const Descriptor folder = folder_of(where);
    struct stat facts {};
    return ::fstatat(folder.number(), where.parts.back().c_str(), &facts, AT_SYMLINK_NOFOLLOW) == 0;
  } catch (const FileError&) {
    return false;
  }
}

void Files::remove(std::string_view path) const {
  const Place where = place(path, true);
  const Descriptor folder = folder_of(where);
  if (::unlinkat(folder.number(), where.parts.back().c_str(), 0) != 0) fail_path(path, errno);
}

}  // namespace weft::script
