// Changes of a memory that are not in its file yet: PATH.journal.
//
// A header: "WEFTMEMJ", then numbers of 64 bits: the version 1, the generation of the file that the changes are of, and the width. Then a
// record for each commit: a mark, the bytes of its body, the checksum of its body, and the checksum of these three. A body has the bytes of
// its JSON (64 bits), the JSON, and the rows of the added entries in f32. The JSON is a list of {"remove": id} and
// {"id", "namespace", "text", "metadata"}, in order. All numbers are little-endian.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <span>
#include <string_view>
#include <vector>

#include "weft/memory.hpp"

namespace weft::memory {

std::filesystem::path journal_path(const std::filesystem::path& path);

std::vector<std::byte> journal_header(std::uint64_t generation, Extent width);
std::vector<std::byte> journal_record(const Value::Array& changes, std::span<const float> rows);

/// A change, as it was committed.
struct Change {
  std::string removed = {};  ///< an id; empty: an entry was added
  Entry entry = {};
  std::span<const std::byte> row = {};
};

/// Calls `apply` with each change, and returns the bytes up to the end of the last whole record. 0: the journal is not of this file.
/// What a crash left of a last record is passed over; damage before whole records is a FileError, as is a record that is no such thing.
std::uint64_t read_journal(std::span<const std::byte> bytes, const std::filesystem::path& path,
                           std::uint64_t generation, Extent width, const std::function<void(Change)>& apply);

}  // namespace weft::memory
