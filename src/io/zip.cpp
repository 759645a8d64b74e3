#include "io/zip.hpp"

#include <fmt/format.h>
#include <zlib.h>

#include <algorithm>
#include <limits>
#include <optional>

#include "base/checked.hpp"
#include "base/quote.hpp"
#include "base/utf8.hpp"
#include "weft/error.hpp"

// Layouts are those of the .ZIP File Format Specification (APPNOTE) 6.3.10, sections 4.3.7 to 4.3.16 and 4.5.3.
namespace weft::io {
namespace {

constexpr std::uint32_t kLocalHeader = 0x04034b50, kCentralHeader = 0x02014b50, kEnd = 0x06054b50, kEnd64 = 0x06064b50,
                        kEnd64Locator = 0x07064b50;
constexpr std::size_t kLocalBytes = 30, kCentralBytes = 46, kEndBytes = 22, kEnd64Bytes = 56, kLocatorBytes = 20;
constexpr std::uint32_t kMax32 = 0xFFFFFFFF;
constexpr std::uint16_t kMax16 = 0xFFFF, kStored = 0, kDeflated = 8, kEncrypted = 1, kUtf8Names = 1 << 11,
                        kZip64Extra = 1;
constexpr std::uint16_t kDate1980 = 1 << 5 | 1;
// Deflate packs at most 258 bytes into 2 bits, so a larger claim is false: https://zlib.net/zlib_tech.html
constexpr std::uint64_t kMaxDeflateRatio = 1032;

class Reader {
 public:
  Reader(std::span<const std::byte> bytes, std::string_view source) : bytes_(bytes), source_(source) {}

  [[noreturn]] void fail(const std::string& what) const { throw FileError(fmt::format("{}: {}", source_, what)); }
  std::size_t size() const { return bytes_.size(); }
  std::span<const std::byte> at(std::uint64_t begin, std::uint64_t count, std::string_view what) const {
    if (begin > bytes_.size() || count > bytes_.size() - begin)
      fail(fmt::format("{} reaches past the end of the file; the archive is truncated or damaged", what));
    return bytes_.subspan(begin, count);
  }

 private:
  std::span<const std::byte> bytes_;
  std::string_view source_;
};

/// Little-endian numbers one after the other.
class Fields {
 public:
  explicit Fields(std::span<const std::byte> bytes) : bytes_(bytes) {}
  std::uint16_t u16() { return static_cast<std::uint16_t>(number(2)); }
  std::uint32_t u32() { return static_cast<std::uint32_t>(number(4)); }
  std::uint64_t u64() { return number(8); }
  void skip(std::size_t count) { bytes_ = bytes_.subspan(count); }
  std::size_t left() const { return bytes_.size(); }

 private:
  std::uint64_t number(std::size_t count) {
    std::uint64_t value = 0;
    for (std::size_t i = count; i-- > 0;) value = value << 8 | static_cast<std::uint64_t>(bytes_[i]);
    skip(count);
    return value;
  }
  std::span<const std::byte> bytes_;
};

struct Directory {
  std::uint64_t members, bytes, at;
};

/// Place of the end record: the last one whose comment ends with the file.
std::size_t find_end(const Reader& file) {
  if (file.size() < kEndBytes)
    file.fail(
        fmt::format("holds {} bytes, too few for a zip archive; it is truncated or not a .npz file", file.size()));
  const std::size_t lowest = file.size() - std::min<std::size_t>(file.size(), kEndBytes + kMax16);
  for (std::size_t at = file.size() - kEndBytes + 1; at-- > lowest;) {
    Fields fields(file.at(at, kEndBytes, "the end record"));
    if (fields.u32() != kEnd) continue;
    fields.skip(16);
    if (fields.u16() == file.size() - at - kEndBytes) return at;
  }
  file.fail("has no zip directory at its end; it is truncated or not a .npz file");
}

Directory find_directory(const Reader& file, std::uint64_t* directory_limit) {
  const std::size_t end = find_end(file);
  *directory_limit = end;
  Fields fields(file.at(end, kEndBytes, "the end record"));
  fields.skip(4);
  const std::uint16_t disk = fields.u16(), directory_disk = fields.u16(), members_here = fields.u16(),
                      members = fields.u16();
  const std::uint32_t bytes = fields.u32(), at = fields.u32();
  Directory directory{members, bytes, at};
  std::uint64_t members_on_disk = members_here;
  if (members == kMax16 || bytes == kMax32 || at == kMax32) {
    if (end < kLocatorBytes) file.fail("lacks the zip64 record that its end record refers to");
    Fields locator(file.at(end - kLocatorBytes, kLocatorBytes, "the zip64 locator"));
    if (locator.u32() == kEnd64Locator) {
      locator.skip(4);
      const std::uint64_t at64 = locator.u64();
      Fields end64(file.at(at64, kEnd64Bytes, "the zip64 end record"));
      if (end64.u32() != kEnd64) file.fail("the zip64 locator does not point at a zip64 end record");
      end64.skip(20);
      members_on_disk = end64.u64();
      directory.members = end64.u64();
      directory.bytes = end64.u64();
      directory.at = end64.u64();
      *directory_limit = at64;
    } else if (bytes == kMax32 || at == kMax32) {
      file.fail("lacks the zip64 record that its end record refers to");
    }
  }
  if ((disk != 0 && disk != kMax16) || (directory_disk != 0 && directory_disk != kMax16) ||
      members_on_disk != directory.members)
    file.fail("is one part of an archive over several disks; save it as one file");
  return directory;
}

struct Central {
  ZipMember member;
  std::uint64_t packed_bytes;
  std::uint64_t local_at;
  std::uint64_t end;  ///< of its data
};

std::string as_text(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

/// Replaces fields that have their maximum by those of the zip64 extra field.
void apply_zip64(const Reader& file, std::span<const std::byte> extra, Central& central, const std::string& name) {
  std::uint64_t* const wide[] = {&central.member.size_bytes, &central.packed_bytes, &central.local_at};
  if (std::none_of(std::begin(wide), std::end(wide), [](const std::uint64_t* field) { return *field == kMax32; }))
    return;
  Fields fields(extra);
  while (fields.left() >= 4) {
    const std::uint16_t id = fields.u16(), size = fields.u16();
    if (size > fields.left()) break;
    if (id != kZip64Extra) {
      fields.skip(size);
      continue;
    }
    std::size_t left = size;
    for (std::uint64_t* field : wide) {
      if (*field != kMax32) continue;
      if (left < 8) file.fail(fmt::format("member {}: its zip64 field is too short", name));
      *field = fields.u64();
      left -= 8;
    }
    return;
  }
  file.fail(fmt::format("member {}: its zip64 field is missing", name));
}

/// Checks the local header and finds the packed bytes.
void locate(const Reader& file, Central& central, std::uint64_t directory_at, const std::string& name) {
  Fields local(file.at(central.local_at, kLocalBytes, fmt::format("member {}: its header", name)));
  if (local.u32() != kLocalHeader)
    file.fail(fmt::format("member {}: there is no local header at byte {}", name, central.local_at));
  local.skip(4);
  const std::uint16_t method = local.u16();
  local.skip(16);
  const std::uint16_t name_bytes = local.u16(), extra_bytes = local.u16();
  if (method != (central.member.deflated ? kDeflated : kStored) ||
      as_text(file.at(central.local_at + kLocalBytes, name_bytes, fmt::format("member {}: its name", name))) !=
          central.member.name)
    file.fail(fmt::format("member {}: the local header and the directory differ", name));
  const std::uint64_t data_at = central.local_at + kLocalBytes + name_bytes + extra_bytes;
  central.member.packed = file.at(data_at, central.packed_bytes, fmt::format("member {}: its data", name));
  central.end = data_at + central.packed_bytes;
  if (central.end > directory_at) file.fail(fmt::format("member {}: its data overlaps the directory", name));
}

}  // namespace

std::vector<ZipMember> read_zip_directory(std::span<const std::byte> bytes, std::string_view source,
                                          const ZipLimits& limits) {
  const Reader file(bytes, source);
  std::uint64_t directory_limit = 0;
  const Directory directory = find_directory(file, &directory_limit);
  if (directory.members > limits.max_members)
    file.fail(fmt::format("holds {} members, over the limit of {}; split it", directory.members, limits.max_members));
  if (directory.bytes > directory_limit || directory.at != directory_limit - directory.bytes)
    file.fail(fmt::format("its directory of {} bytes at byte {} does not end at its end record; the archive is damaged",
                          directory.bytes, directory.at));
  if (directory.members * kCentralBytes > directory.bytes)
    file.fail(fmt::format("a directory of {} bytes cannot hold {} members", directory.bytes, directory.members));

  std::vector<Central> centrals;
  std::unordered_set<std::string> names;
  std::uint64_t at = directory.at, total = 0;
  for (std::uint64_t i = 0; i < directory.members; ++i) {
    Fields fields(file.at(at, kCentralBytes, "the directory"));
    if (fields.u32() != kCentralHeader) file.fail(fmt::format("entry {} of the directory is damaged", i));
    fields.skip(4);
    const std::uint16_t flags = fields.u16(), method = fields.u16();
    fields.skip(4);
    Central central{};
    central.member.crc32 = fields.u32();
    central.packed_bytes = fields.u32();
    central.member.size_bytes = fields.u32();
    const std::uint16_t name_bytes = fields.u16(), extra_bytes = fields.u16(), comment_bytes = fields.u16(),
                        disk = fields.u16();
    fields.skip(6);
    central.local_at = fields.u32();
    central.member.name = as_text(file.at(at + kCentralBytes, name_bytes, "the directory"));
    const std::string name = quote(central.member.name);
    const auto extra = file.at(at + kCentralBytes + name_bytes, extra_bytes, "the directory");
    at += kCentralBytes + name_bytes + extra_bytes + comment_bytes;
    if (at > directory_limit) file.fail(fmt::format("entry {} of the directory reaches past its end", i));

    if (find_invalid_utf8(central.member.name)) file.fail(fmt::format("member {}: its name is not UTF-8", name));
    if (!names.insert(central.member.name).second) file.fail(fmt::format("two members are named {}", name));
    if (flags & kEncrypted) file.fail(fmt::format("member {}: it is encrypted; save it without a password", name));
    if (method != kStored && method != kDeflated)
      file.fail(fmt::format("member {}: packing method {} is not read; save it with numpy.savez or savez_compressed",
                            name, method));
    if (disk != 0) file.fail(fmt::format("member {}: it is on another disk", name));
    central.member.deflated = method == kDeflated;
    apply_zip64(file, extra, central, name);
    if (!central.member.deflated && central.packed_bytes != central.member.size_bytes)
      file.fail(fmt::format("member {}: it is stored, but {} packed bytes should give {}", name, central.packed_bytes,
                            central.member.size_bytes));
    locate(file, central, directory.at, name);
    if (central.member.deflated && central.member.size_bytes / kMaxDeflateRatio > central.packed_bytes)
      file.fail(fmt::format("member {}: {} packed bytes cannot give {}", name, central.packed_bytes,
                            central.member.size_bytes));
    total = checked_add(total, central.member.size_bytes, source);
    if (total > limits.max_total_bytes)
      file.fail(fmt::format("its members unpack to more than the limit of {} bytes; split it", limits.max_total_bytes));
    centrals.push_back(std::move(central));
  }
  if (at != directory_limit) file.fail("the directory holds more than its members");

  // Members over the same bytes make archives that unpack to far more than their size.
  std::vector<const Central*> by_place;
  for (const Central& central : centrals) by_place.push_back(&central);
  std::sort(by_place.begin(), by_place.end(),
            [](const Central* a, const Central* b) { return a->local_at < b->local_at; });
  for (std::size_t i = 1; i < by_place.size(); ++i)
    if (by_place[i]->local_at < by_place[i - 1]->end)
      file.fail(fmt::format("members {} and {} overlap", quote(by_place[i - 1]->member.name),
                            quote(by_place[i]->member.name)));

  std::vector<ZipMember> members;
  for (Central& central : centrals) members.push_back(std::move(central.member));
  return members;
}

std::vector<std::byte> unpack(const ZipMember& member, std::string_view source) {
  const auto fail = [&](std::string_view what) {
    throw FileError(fmt::format("{}: member {}: {}; the archive is damaged", source, quote(member.name), what));
  };
  std::vector<std::byte> bytes(checked_cast<std::size_t>(member.size_bytes, source));
  if (!member.deflated) {
    std::copy(member.packed.begin(), member.packed.end(), bytes.begin());
  } else {
    z_stream stream{};
    if (inflateInit2(&stream, -MAX_WBITS) != Z_OK) fail("zlib cannot start");
    std::span<const std::byte> in = member.packed;
    std::span<std::byte> out = bytes;
    std::byte extra{};  // one byte more than claimed, to detect longer data
    int result = Z_OK;
    while (result == Z_OK) {
      constexpr std::size_t kMaxPiece = std::numeric_limits<uInt>::max();
      std::span<std::byte> room =
          out.empty() ? std::span<std::byte>(&extra, 1) : out.first(std::min(out.size(), kMaxPiece));
      const auto piece = in.first(std::min(in.size(), kMaxPiece));
      stream.next_in = const_cast<Bytef*>(reinterpret_cast<const Bytef*>(piece.data()));
      stream.avail_in = static_cast<uInt>(piece.size());
      stream.next_out = reinterpret_cast<Bytef*>(room.data());
      stream.avail_out = static_cast<uInt>(room.size());
      result = inflate(&stream, Z_NO_FLUSH);
      const std::size_t produced = room.size() - stream.avail_out;
      in = in.subspan(piece.size() - stream.avail_in);
      if (out.empty() && produced > 0) result = Z_BUF_ERROR;
      if (!out.empty()) out = out.subspan(produced);
    }
    inflateEnd(&stream);
    if (result != Z_STREAM_END || !out.empty() || !in.empty())
      fail(fmt::format("its data does not unpack to exactly {} bytes", member.size_bytes));
  }
  if (crc32_z(crc32_z(0, nullptr, 0), reinterpret_cast<const Bytef*>(bytes.data()), bytes.size()) != member.crc32)
    fail("its bytes do not have the CRC-32 of the directory");
  return bytes;
}

namespace {

void put(std::string& out, std::uint64_t value, int count) {
  for (int i = 0; i < count; ++i, value >>= 8) out += static_cast<char>(value & 0xFF);
}

/// The fields that local headers and directory entries share, from "version needed" to "extra length".
std::string shared_fields(std::uint32_t crc32, std::uint32_t size_bytes, std::size_t name_bytes) {
  std::string out;
  put(out, 20, 2);  // version 2.0
  put(out, kUtf8Names, 2);
  put(out, kStored, 2);
  put(out, 0, 2);
  put(out, kDate1980, 2);
  put(out, crc32, 4);
  put(out, size_bytes, 4);
  put(out, size_bytes, 4);
  put(out, name_bytes, 2);
  put(out, 0, 2);
  return out;
}

}  // namespace

void ZipWriter::add(const std::string& name, std::span<const std::byte> contents) {
  if (!names_.insert(name).second)
    throw UsageError(fmt::format("zip: two members are named {}; give each its own name", quote(name)));
  if (name.size() > kMax16)
    throw UsageError(fmt::format("zip: the name {} is over 65535 bytes long; choose a shorter one", quote(name)));
  const std::uint64_t header_bytes = kLocalBytes + name.size();
  if (contents.size() >= kMax32 || at_ + header_bytes + contents.size() >= kMax32 || written_.size() + 1 >= kMax16)
    throw UsageError(
        fmt::format("zip: with member {} of {} bytes the archive outgrows 4 GiB or 65534 members; write several files",
                    quote(name), contents.size()));
  Written entry{name, 0, static_cast<std::uint32_t>(contents.size()), static_cast<std::uint32_t>(at_)};
  entry.crc32 = static_cast<std::uint32_t>(
      crc32_z(crc32_z(0, nullptr, 0), reinterpret_cast<const Bytef*>(contents.data()), contents.size()));
  std::string header;
  put(header, kLocalHeader, 4);
  header += shared_fields(entry.crc32, entry.size_bytes, name.size()) + name;
  file_.write(header);
  file_.write(contents);
  at_ += header_bytes + contents.size();
  written_.push_back(std::move(entry));
}

void ZipWriter::finish() {
  std::string directory;
  for (const Written& entry : written_) {
    put(directory, kCentralHeader, 4);
    put(directory, 20, 2);
    directory += shared_fields(entry.crc32, entry.size_bytes, entry.name.size());
    put(directory, 0, 2 + 2 + 2 + 4);  // comment, disk, attributes
    put(directory, entry.at, 4);
    directory += entry.name;
  }
  if (at_ + directory.size() >= kMax32) throw UsageError("zip: the archive outgrows 4 GiB; write several files");
  const std::size_t directory_bytes = directory.size();
  put(directory, kEnd, 4);
  put(directory, 0, 4);
  put(directory, written_.size(), 2);
  put(directory, written_.size(), 2);
  put(directory, directory_bytes, 4);
  put(directory, at_, 4);
  put(directory, 0, 2);
  file_.write(directory);
}

}  // namespace weft::io
