#include "backend/webgpu/blob_cache.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <string>

#include "base/cache_folder.hpp"
#include "base/hash.hpp"

namespace weft::webgpu {
namespace fs = std::filesystem;
namespace {

constexpr std::uint64_t kMagic = 0x31626f6c62746657;  // "Wftblob1"
constexpr std::uint64_t kEntryBytesMax = 256 << 20;

// Head of an entry's file; key and value follow.
struct Header {
  std::uint64_t magic, key_bytes, value_bytes, checksum;
};

std::uint64_t digest_of(std::string_view first, std::string_view second = {}) {
  Hasher hasher;
  hasher.add(first);
  hasher.add(second);
  return hasher.digest();
}

std::vector<fs::path> files_below(const fs::path& folder) {
  std::vector<fs::path> files;
  std::error_code error;
  for (fs::recursive_directory_iterator it(folder, error), end; !error && it != end; it.increment(error)) {
    std::error_code ignored;
    if (it->is_regular_file(ignored)) files.push_back(it->path());
  }
  return files;
}

/// The bytes of an entry; none unless it is a file of this user.
std::vector<std::byte> read_entry(const fs::path& path) {
  std::vector<std::byte> bytes;
  const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
  if (file < 0) return bytes;
  struct ::stat status {};
  if (::fstat(file, &status) == 0 && S_ISREG(status.st_mode) && status.st_uid == ::geteuid() &&
      (status.st_mode & (S_IWGRP | S_IWOTH)) == 0 && static_cast<std::uint64_t>(status.st_size) <= 2 * kEntryBytesMax) {
    bytes.resize(static_cast<std::size_t>(status.st_size));
    for (std::size_t at = 0; at < bytes.size();) {
      const ssize_t got = ::read(file, bytes.data() + at, bytes.size() - at);
      if (got < 0 && errno == EINTR) continue;
      if (got <= 0) {
        bytes.clear();
        break;
      }
      at += static_cast<std::size_t>(got);
    }
  }
  ::close(file);
  return bytes;
}

bool write_all(int file, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t put = ::write(file, bytes.data(), bytes.size());
    if (put < 0 && errno == EINTR) continue;
    if (put <= 0) return false;
    bytes.remove_prefix(static_cast<std::size_t>(put));
  }
  return true;
}

}  // namespace

BlobCache::BlobCache(const fs::path& folder, std::string_view owner, std::uint64_t bytes_max, std::size_t entries_max) {
  if (folder.empty()) return;
  const fs::path root = folder / "webgpu";
  folder_ = root / fmt::format("{:016x}", digest_of(owner));
  // These files become code on the device.
  if (!make_private_folder(root) || !make_private_folder(folder_))
    folder_.clear();
  else
    remove_oldest(files_below(root), bytes_max, entries_max);
}

fs::path BlobCache::file_of(std::string_view key) const { return folder_ / fmt::format("{:016x}", digest_of(key)); }

std::vector<std::byte> BlobCache::load(std::string_view key) {
  std::vector<std::byte> value;
  if (folder_.empty()) return value;
  const std::vector<std::byte> bytes = read_entry(file_of(key));
  Header header{};
  bool good = bytes.size() >= sizeof header;
  if (good) std::memcpy(&header, bytes.data(), sizeof header);
  good = good && header.magic == kMagic && header.key_bytes == key.size() && header.value_bytes <= kEntryBytesMax &&
         bytes.size() == sizeof header + header.key_bytes + header.value_bytes;
  if (good) {
    const auto* const text = reinterpret_cast<const char*>(bytes.data()) + sizeof header;
    const std::string_view stored(text + key.size(), header.value_bytes);
    good = std::string_view(text, key.size()) == key && digest_of(key, stored) == header.checksum;
    if (good) value.assign(bytes.end() - static_cast<std::ptrdiff_t>(stored.size()), bytes.end());
  }
  ++(good ? hits_ : misses_);
  return value;
}

void BlobCache::store(std::string_view key, std::string_view value) {
  if (folder_.empty() || value.size() > kEntryBytesMax) return;
  const fs::path path = file_of(key);
  std::string temporary = path.string() + ".tmp-XXXXXX";
  const int file = ::mkstemp(temporary.data());  // a new file of a name that nobody knows, for this user only
  if (file < 0) return;
  const Header header{kMagic, key.size(), value.size(), digest_of(key, value)};
  std::string bytes(reinterpret_cast<const char*>(&header), sizeof header);
  bytes.append(key).append(value);
  const bool written = write_all(file, bytes);
  std::error_code ignored;
  if (::close(file) == 0 && written) {
    fs::rename(temporary, path, ignored);
    if (!ignored) return;
  }
  fs::remove(temporary, ignored);
}

}  // namespace weft::webgpu
