#include "backend/webgpu/blob_cache.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <fstream>
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

}  // namespace

BlobCache::BlobCache(const fs::path& folder, std::string_view owner, std::uint64_t bytes_max, std::size_t entries_max) {
  if (folder.empty()) return;
  const fs::path root = folder / "webgpu";
  folder_ = root / fmt::format("{:016x}", digest_of(owner));
  std::error_code error;
  fs::create_directories(folder_, error);
  if (!error) fs::permissions(folder_, fs::perms::owner_all, error);  // what is read here becomes code on the device
  if (error)
    folder_.clear();
  else
    remove_oldest(files_below(root), bytes_max, entries_max);
}

fs::path BlobCache::file_of(std::string_view key) const { return folder_ / fmt::format("{:016x}", digest_of(key)); }

std::vector<std::byte> BlobCache::load(std::string_view key) {
  std::vector<std::byte> value;
  if (folder_.empty()) return value;
  std::ifstream file(file_of(key), std::ios::binary);
  Header header{};
  std::string stored_key;
  bool good = file && file.read(reinterpret_cast<char*>(&header), sizeof header) && header.magic == kMagic &&
              header.key_bytes == key.size() && header.value_bytes <= kEntryBytesMax;
  if (good) {
    stored_key.resize(header.key_bytes);
    good = file.read(stored_key.data(), static_cast<std::streamsize>(stored_key.size())) && stored_key == key;
  }
  if (good) {
    // The length is checked before it is believed: a damaged header must not ask for memory.
    const auto start = file.tellg();
    file.seekg(0, std::ios::end);
    good = static_cast<std::uint64_t>(file.tellg() - start) == header.value_bytes;
    file.seekg(start);
  }
  if (good) {
    value.resize(header.value_bytes);
    good =
        static_cast<bool>(file.read(reinterpret_cast<char*>(value.data()), static_cast<std::streamsize>(value.size())));
    good = good && digest_of(key, {reinterpret_cast<const char*>(value.data()), value.size()}) == header.checksum;
    if (!good) value.clear();
  }
  ++(good ? hits_ : misses_);
  return value;
}

void BlobCache::store(std::string_view key, std::string_view value) {
  if (folder_.empty() || value.size() > kEntryBytesMax) return;
  const fs::path path = file_of(key);
  const fs::path temporary = path.string() + fmt::format(".tmp-{}-{}", getpid(), written_++);
  std::error_code ignored;
  {
    std::ofstream file(temporary, std::ios::binary | std::ios::trunc);
    const Header header{kMagic, key.size(), value.size(), digest_of(key, value)};
    file.write(reinterpret_cast<const char*>(&header), sizeof header);
    file.write(key.data(), static_cast<std::streamsize>(key.size()));
    file.write(value.data(), static_cast<std::streamsize>(value.size()));
    if (!file.flush()) {
      file.close();
      fs::remove(temporary, ignored);
      return;
    }
  }
  fs::rename(temporary, path, ignored);
  if (ignored) fs::remove(temporary, ignored);
}

}  // namespace weft::webgpu
