#include "io/npz.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "base/quote.hpp"
#include "base/utf8.hpp"
#include "io/npy.hpp"
#include "weft/error.hpp"

namespace weft::io {
namespace {

constexpr std::string_view kSuffix = ".npy";

}  // namespace

Arrays parse_npz(std::span<const std::byte> bytes, std::string_view source, const ZipLimits& limits) {
  const std::vector<ZipMember> members = read_zip_directory(bytes, source, limits);
  for (const ZipMember& member : members)
    if (!member.name.ends_with(kSuffix) || member.name.size() == kSuffix.size())
      throw FileError(
          fmt::format("{}: member {} is not a .npy file; a .npz holds only those", source, quote(member.name)));
  Arrays arrays;
  for (const ZipMember& member : members) {
    const std::string name = member.name.substr(0, member.name.size() - kSuffix.size());
    arrays[name] = parse_npy(unpack(member, source), fmt::format("{}: array {}", source, quote(name)));
  }
  return arrays;
}

Arrays read_npz(const std::filesystem::path& path, const ZipLimits& limits) {
  return parse_npz(MappedFile(path).bytes(), path.string(), limits);
}

void write_npz(const std::filesystem::path& path, const Arrays& arrays, AtomicFileOptions options) {
  std::uint64_t total = 0;
  for (const auto& [name, array] : arrays) {
    if (name.empty()) throw UsageError("npz: an array has no name; name it");
    if (find_invalid_utf8(name) || name.find('\0') != std::string::npos)
      throw UsageError(fmt::format("npz: the name {} is not UTF-8 without NUL; choose another", quote(name)));
    total += array.data.size();
  }
  options.expected_bytes = std::max(options.expected_bytes, total);
  write_file_atomically(
      path,
      [&](AtomicFile& file) {
        ZipWriter zip(file);
        for (const auto& [name, array] : arrays) zip.add(name + std::string(kSuffix), npy_bytes(array));
        zip.finish();
      },
      options);
}

}  // namespace weft::io
