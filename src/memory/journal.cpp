#include "memory/journal.hpp"

#include <fmt/format.h>

#include <array>
#include <bit>
#include <cstring>
#include <optional>
#include <string>

#include "base/xxh64.hpp"
#include "weft/error.hpp"

namespace weft::memory {
namespace {

static_assert(std::endian::native == std::endian::little, "journals are little-endian");

constexpr std::string_view kJournalMagic = "WEFTMEMJ";
constexpr std::uint64_t kJournalVersion = 1;
constexpr std::size_t kHeaderBytes = 32, kRecordBytes = 32;
// No UTF-8 has such bytes, so that no text looks like a record.
constexpr std::uint64_t kRecordMark = 0xFFFEFDFC'57524543;

using RecordHead = std::array<std::uint64_t, 4>;

template <class T>
void put(std::vector<std::byte>& to, std::span<const T> values) {
  const auto bytes = std::as_bytes(values);
  to.insert(to.end(), bytes.begin(), bytes.end());
}
std::uint64_t checksum_of(const RecordHead& head) { return xxh64(std::as_bytes(std::span(head).first(3))); }

/// The body of a whole record at this place; nothing if there is none.
std::optional<std::span<const std::byte>> record_at(std::span<const std::byte> bytes, std::size_t at) {
  if (bytes.size() - at < kRecordBytes) return {};
  RecordHead head;
  std::memcpy(head.data(), bytes.data() + at, kRecordBytes);
  if (head[0] != kRecordMark || head[3] != checksum_of(head) || head[1] > bytes.size() - at - kRecordBytes) return {};
  const auto body = bytes.subspan(at + kRecordBytes, head[1]);
  return xxh64(body) == head[2] ? std::optional(body) : std::nullopt;
}

/// Whether a whole record begins anywhere in the bytes.
bool has_record(std::span<const std::byte> bytes) {
  constexpr int kMarksMax = 1000;  // each may cost a pass over the rest; nobody but an attacker writes so many
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  const std::string_view mark(reinterpret_cast<const char*>(&kRecordMark), sizeof kRecordMark);
  int marks = 0;
  for (std::size_t at = text.find(mark); at != text.npos; at = text.find(mark, at + 1))
    if (++marks > kMarksMax || record_at(bytes, at)) return true;
  return false;
}

}  // namespace

std::filesystem::path journal_path(const std::filesystem::path& path) {
  std::filesystem::path made = path;
  return made += ".journal";
}

std::vector<std::byte> journal_header(std::uint64_t generation, Extent width) {
  std::vector<std::byte> made;
  put(made, std::span(kJournalMagic));
  const std::uint64_t numbers[] = {kJournalVersion, generation, static_cast<std::uint64_t>(width)};
  put(made, std::span<const std::uint64_t>(numbers));
  return made;
}

std::vector<std::byte> journal_record(const Value::Array& changes, std::span<const float> rows) {
  const std::string json = Value(changes).to_json();
  std::vector<std::byte> made(kRecordBytes);
  const std::uint64_t size[] = {json.size()};
  put(made, std::span<const std::uint64_t>(size));
  put(made, std::span(std::string_view(json)));
  put(made, rows);
  const auto body = std::span(made).subspan(kRecordBytes);
  RecordHead head{kRecordMark, body.size(), xxh64(body), 0};
  head[3] = checksum_of(head);
  std::memcpy(made.data(), head.data(), kRecordBytes);
  return made;
}

std::uint64_t read_journal(std::span<const std::byte> bytes, const std::filesystem::path& path,
                           std::uint64_t generation, Extent width, const std::function<void(Change)>& apply) {
  const std::vector<std::byte> header = journal_header(generation, width);
  // Of an older file, or of one that a crash left before it was whole.
  if (bytes.size() < kHeaderBytes || std::memcmp(bytes.data(), header.data(), kHeaderBytes) != 0) return 0;
  const auto refuse = [&](std::size_t at, std::string_view fact) {
    throw FileError(
        fmt::format("{}: damaged at byte {}: {}; restore it from a copy, or remove it to lose these changes",
                    path.string(), at, fact));
  };
  const std::size_t row_bytes = static_cast<std::size_t>(width) * sizeof(float);
  std::size_t at = kHeaderBytes;
  while (at < bytes.size()) {
    const auto body = record_at(bytes, at);
    if (!body) {
      // A crash tears the last record only.
      if (has_record(bytes.subspan(at + 1))) refuse(at, "a record is broken, and whole ones follow");
      break;
    }
    std::uint64_t size = 0;
    if (body->size() >= sizeof size) std::memcpy(&size, body->data(), sizeof size);
    if (body->size() < sizeof size || size > body->size() - sizeof size)
      refuse(at, "the changes are longer than their record");
    const auto json = body->subspan(sizeof size, size);
    auto rows = body->subspan(sizeof size + size);
    try {
      const Value changes = Value::parse({reinterpret_cast<const char*>(json.data()), json.size()}, "the changes");
      for (const Value& each : changes.elements()) {
        if (const Value* removed = each.find("remove")) {
          apply({.removed = removed->string()});
          continue;
        }
        if (rows.size() < row_bytes) throw UsageError("an entry has no row");
        apply({.entry = {each["id"].string(), each["namespace"].string(), each["text"].string(), each["metadata"]},
               .row = rows.first(row_bytes)});
        rows = rows.subspan(row_bytes);
      }
      if (!rows.empty()) throw UsageError("there are rows without entries");
    } catch (const UsageError& error) {
      refuse(at, error.what());
    }
    at += kRecordBytes + body->size();
  }
  return at;
}

}  // namespace weft::memory
