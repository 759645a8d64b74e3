// Zip archives: the features that .npz files need, safe for hostile archives.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <unordered_set>
#include <vector>

#include "base/file.hpp"

namespace weft::io {

struct ZipLimits {
  std::uint64_t max_members = 65'536;
  std::uint64_t max_total_bytes = std::uint64_t{4} << 30;  ///< of all members, unpacked
};

/// A member as the central directory describes it.
struct ZipMember {
  std::string name;
  bool deflated = false;
  std::uint32_t crc32 = 0;
  std::span<const std::byte> packed;
  std::uint64_t size_bytes = 0;  ///< unpacked
};

/// Reads the directory of an archive in memory (zip64 included) and checks it whole before anything is unpacked: limits,
/// places inside the file, no two members over the same bytes, no name twice, methods stored and deflated only, no
/// encryption, one disk. The local headers must agree in name and method. FileError "source: ...".
std::vector<ZipMember> read_zip_directory(std::span<const std::byte> bytes, std::string_view source,
                                          const ZipLimits& limits = {});

/// Unpacks a member and checks its size and CRC-32. FileError "source: ...".
std::vector<std::byte> unpack(const ZipMember& member, std::string_view source);

/// Writes members stored (not packed) to `file`, dated 1980-01-01 so that equal contents give equal archives.
class ZipWriter {
 public:
  explicit ZipWriter(AtomicFile& file) : file_(file) {}
  /// UsageError for a name used twice, a name over 65,535 bytes, and for archives over the 4 GiB and 65,535 members that
  /// the plain format can describe.
  void add(const std::string& name, std::span<const std::byte> contents);
  /// Writes the directory; last call.
  void finish();

 private:
  struct Written {
    std::string name;
    std::uint32_t crc32;
    std::uint32_t size_bytes;
    std::uint32_t at;
  };
  AtomicFile& file_;
  std::uint64_t at_ = 0;
  std::vector<Written> written_;
  std::unordered_set<std::string> names_;
};

}  // namespace weft::io
