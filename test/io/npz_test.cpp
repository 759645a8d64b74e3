// .npz and the zip archives below it: round trips, one bad archive for each rule, bombs, damaged bytes.
#include "io/npz.hpp"
#include "base/message_of.hpp"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <zlib.h>

#include <functional>

#include "base/temporary_folder.hpp"
#include "io/damage.hpp"
#include "io/npy.hpp"
#include "weft/error.hpp"

namespace weft::io::npz_test {
namespace {

using test::message_of;
using test::TemporaryFolder;

std::span<const std::byte> as_bytes(const std::string& text) { return std::as_bytes(std::span(text)); }

std::string number(std::uint64_t value, int bytes) {
  std::string text;
  for (int i = 0; i < bytes; ++i) text += static_cast<char>(value >> (8 * i) & 0xFF);
  return text;
}

std::string deflated(const std::string& text) {
  z_stream stream{};
  deflateInit2(&stream, 9, Z_DEFLATED, -MAX_WBITS, 8, Z_DEFAULT_STRATEGY);
  std::string out(deflateBound(&stream, text.size()), '\0');
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(text.data()));
  stream.avail_in = static_cast<uInt>(text.size());
  stream.next_out = reinterpret_cast<Bytef*>(out.data());
  stream.avail_out = static_cast<uInt>(out.size());
  deflate(&stream, Z_FINISH);
  out.resize(stream.total_out);
  deflateEnd(&stream);
  return out;
}

std::uint32_t crc_of(const std::string& text) {
  return static_cast<std::uint32_t>(
      crc32(0, reinterpret_cast<const Bytef*>(text.data()), static_cast<uInt>(text.size())));
}

/// One member; a test bends single fields. The values of the directory, `local_` ones of the local header.
struct Member {
  std::string name = "a.npy", contents;
  std::uint16_t method = 0, flags = 0, disk = 0, local_method = 0;
  std::uint32_t crc = 0, packed = 0, size = 0, local_at = 0, signature = 0x02014b50, local_signature = 0x04034b50;
  std::string local_name, extra, local_extra;

  Member(std::string name_, std::string contents_, bool pack = false)
      : name(std::move(name_)), contents(std::move(contents_)) {
    crc = crc_of(contents);
    size = static_cast<std::uint32_t>(contents.size());
    if (pack) contents = deflated(contents), method = local_method = 8;
    packed = static_cast<std::uint32_t>(contents.size());
    local_name = name;
  }
};

struct Archive {
  std::vector<Member> members;
  std::uint16_t disk = 0;
  int extra_members = 0, extra_directory_bytes = 0, directory_shift = 0;
  std::string comment;
  bool zip64 = false;  // the end record's numbers are in a zip64 record
  bool keep_places = false;

  std::string text() {
    std::string out, directory;
    for (Member& m : members) {
      if (!keep_places) m.local_at = static_cast<std::uint32_t>(out.size());
      out += number(m.local_signature, 4) + number(20, 2) + number(m.flags, 2) + number(m.local_method, 2) +
             number(0, 4) + number(m.crc, 4) + number(m.packed, 4) + number(m.size, 4) +
             number(m.local_name.size(), 2) + number(m.local_extra.size(), 2) + m.local_name + m.local_extra +
             m.contents;
    }
    for (const Member& m : members)
      directory += number(m.signature, 4) + number(20, 2) + number(20, 2) + number(m.flags, 2) + number(m.method, 2) +
                   number(0, 4) + number(m.crc, 4) + number(m.packed, 4) + number(m.size, 4) +
                   number(m.name.size(), 2) + number(m.extra.size(), 2) + number(0, 2) + number(m.disk, 2) +
                   number(0, 6) + number(m.local_at, 4) + m.name + m.extra;
    const std::uint64_t at = out.size() + static_cast<std::uint64_t>(directory_shift),
                        count = members.size() + static_cast<std::uint64_t>(extra_members);
    const std::uint64_t bytes = directory.size() + static_cast<std::uint64_t>(extra_directory_bytes);
    out += directory;
    const std::uint64_t end64_at = out.size();
    if (zip64)
      out += number(0x06064b50, 4) + number(44, 8) + number(45, 2) + number(45, 2) + number(0, 8) + number(count, 8) +
             number(count, 8) + number(bytes, 8) + number(at, 8) + number(0x07064b50, 4) + number(0, 4) +
             number(end64_at, 8) + number(1, 4);
    out += number(0x06054b50, 4) + number(disk, 2) + number(0, 2) + number(zip64 ? 0xFFFF : count, 2) +
           number(zip64 ? 0xFFFF : count, 2) + number(zip64 ? 0xFFFFFFFF : bytes, 4) +
           number(zip64 ? 0xFFFFFFFF : at, 4) + number(comment.size(), 2) + comment;
    return out;
  }
};

Array small_array() { return Array::of<float>({2, 2}, {1, 2, 3, 4}); }
std::string npy_text(const Array& array = small_array()) {
  const auto bytes = npy_bytes(array);
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

Arrays parse(const std::string& file, const ZipLimits& limits = {}) {
  return parse_npz(as_bytes(file), "x.npz", limits);
}
std::string error_of(const std::string& file, const ZipLimits& limits = {}) {
  return message_of<FileError>([&] { parse(file, limits); });
}

TEST(Npz, RoundTrip) {
  const TemporaryFolder folder;
  const Arrays arrays = {{"x", small_array()},
                         {"scalar", Array::of<double>({}, {2.5})},
                         {"empty", Array::of<bool>({0}, {})},
                         {"layer/wéight", Array::of<std::int32_t>({3}, {1, -2, 3})}};
  write_npz(folder / "x.npz", arrays);
  EXPECT_EQ(read_npz(folder / "x.npz"), arrays);
  const std::string first = read_text_file(folder / "x.npz");
  write_npz(folder / "x.npz", arrays);
  EXPECT_EQ(read_text_file(folder / "x.npz"), first);  // equal contents give equal archives
  write_npz(folder / "x.npz", {});
  EXPECT_TRUE(read_npz(folder / "x.npz").empty());
}

TEST(Npz, PackedCommentedAndWideArchives) {
  const Arrays expected = {{"a", small_array()}, {"b", small_array()}};
  const auto archive = [](bool pack) {
    return Archive{.members = {{"a.npy", npy_text(), pack}, {"b.npy", npy_text(), !pack}}};
  };
  EXPECT_EQ(parse(archive(true).text()), expected);
  Archive commented = archive(false);
  commented.comment = "a comment with PK\5\6 inside";
  EXPECT_EQ(parse(commented.text()), expected);
  Archive wide = archive(true);
  wide.zip64 = true;
  EXPECT_EQ(parse(wide.text()), expected);
  Archive fields = archive(false);  // sizes and place in the zip64 field, after a field of another kind
  Member& member = fields.members[1];
  member.extra = number(0x9999, 2) + number(1, 2) + "x" + number(1, 2) + number(16, 2) + number(member.size, 8) +
                 number(member.packed, 8);
  member.size = member.packed = 0xFFFFFFFF;
  EXPECT_EQ(parse(fields.text()), expected);
  Archive local = archive(false);
  local.members[0].local_extra = "some local bytes";
  EXPECT_EQ(parse(local.text()), expected);
}

struct BadArchive {
  const char* name;
  std::function<void(Archive&)> bend;
  const char* message;
};

TEST(Npz, EachRuleHasItsOwnMessage) {
  const BadArchive cases[] = {
      {"not .npy", [](Archive& a) { a.members[0].name = a.members[0].local_name = "a.txt"; },
       "member \"a.txt\" is not a .npy file"},
      {"no name", [](Archive& a) { a.members[0].name = a.members[0].local_name = ".npy"; },
       "member \".npy\" is not a .npy file"},
      {"folder", [](Archive& a) { a.members[0].name = a.members[0].local_name = "a/"; },
       "member \"a/\" is not a .npy file"},
      {"name not UTF-8", [](Archive& a) { a.members[0].name = a.members[0].local_name = "\xff.npy"; },
       "its name is not UTF-8"},
      {"name twice", [](Archive& a) { a.members[1].name = a.members[1].local_name = "a.npy"; },
       "two members are named \"a.npy\""},
      {"encrypted", [](Archive& a) { a.members[0].flags = 1; }, "it is encrypted; save it without a password"},
      {"other method", [](Archive& a) { a.members[0].method = a.members[0].local_method = 12; },
       "packing method 12 is not read"},
      {"member on another disk", [](Archive& a) { a.members[0].disk = 1; }, "it is on another disk"},
      {"archive over disks", [](Archive& a) { a.disk = 1; }, "one part of an archive over several disks"},
      {"stored sizes differ", [](Archive& a) { a.members[0].size += 1; }, "it is stored, but"},
      {"bad CRC", [](Archive& a) { a.members[0].crc ^= 1; }, "its bytes do not have the CRC-32 of the directory"},
      {"bad CRC of packed", [](Archive& a) { a.members[1].crc ^= 1; }, "its bytes do not have the CRC-32"},
      {"local name differs", [](Archive& a) { a.members[0].local_name = "b.npy"; },
       "the local header and the directory differ"},
      {"local method differs", [](Archive& a) { a.members[0].local_method = 8; },
       "the local header and the directory differ"},
      {"no local header", [](Archive& a) { a.members[0].local_signature = 1; }, "there is no local header at byte 0"},
      {"no directory entry", [](Archive& a) { a.members[1].signature = 1; }, "entry 1 of the directory is damaged"},
      {"place past the end", [](Archive& a) { a.keep_places = true, a.members[0].local_at = 1u << 30; },
       "its header reaches past the end of the file"},
      {"data past the end", [](Archive& a) { a.members[1].packed = 1u << 30; },
       "its data reaches past the end of the file"},
      {"data over the directory", [](Archive& a) { a.members[1].packed += 20; }, "its data overlaps the directory"},
      {"member inside another",
       [](Archive& a) {
         a.members[0].contents += Archive{.members = {a.members[1]}}.text();
         a.members[0].size = a.members[0].packed = static_cast<std::uint32_t>(a.members[0].contents.size());
         a.keep_places = true;
         a.members[1].local_at = 35 + static_cast<std::uint32_t>(npy_text().size());
       },
       "members \"a.npy\" and \"b.npy\" overlap"},
      {"longer than claimed", [](Archive& a) { a.members[1].size -= 1; }, "its data does not unpack to exactly"},
      {"shorter than claimed", [](Archive& a) { a.members[1].size += 1; }, "its data does not unpack to exactly"},
      {"claim beyond deflate", [](Archive& a) { a.members[1].size = 0xFFFFFFF0; },
       "packed bytes cannot give 4294967280"},
      {"damaged packed bytes", [](Archive& a) { a.members[1].contents[0] = '\x07'; },
       "its data does not unpack to exactly"},
      {"cut packed bytes", [](Archive& a) { a.members[1].contents.resize(20), a.members[1].packed = 20; },
       "its data does not unpack to exactly"},
      {"bytes behind packed ones", [](Archive& a) { a.members[1].contents += "x", a.members[1].packed += 1; },
       "its data does not unpack to exactly"},
      {"zip64 field missing", [](Archive& a) { a.members[0].size = 0xFFFFFFFF; }, "its zip64 field is missing"},
      {"zip64 field short",
       [](Archive& a) { a.members[0].size = 0xFFFFFFFF, a.members[0].extra = number(1, 2) + number(4, 2) + "1234"; },
       "its zip64 field is too short"},
      {"zip64 field cut",
       [](Archive& a) { a.members[0].size = 0xFFFFFFFF, a.members[0].extra = number(1, 2) + number(8, 2) + "1234"; },
       "its zip64 field is missing"},
      {"more members than entries",
       [](Archive& a) {
         a.extra_members = 1;
         a.members[0].name = a.members[0].local_name = std::string(60, 'n') + ".npy";
       },
       "the directory reaches past the end of the file"},
      {"more members than fit", [](Archive& a) { a.extra_members = 1; },
       "a directory of 102 bytes cannot hold 3 members"},
      {"fewer members than entries", [](Archive& a) { a.extra_members = -1; },
       "the directory holds more than its members"},
      {"members that cannot fit", [](Archive& a) { a.extra_members = 1000; }, "cannot hold 1002 members"},
      {"directory elsewhere", [](Archive& a) { a.directory_shift = 1; }, "does not end at its end record"},
      {"directory too long", [](Archive& a) { a.extra_directory_bytes = 1 << 20; }, "does not end at its end record"},
      {"bad array",
       [](Archive& a) { a.members[0].contents[0] = 'x', a.members[0].crc = crc_of(a.members[0].contents); },
       "x.npz: array \"a\": does not begin with \\x93NUMPY"},
  };
  for (const BadArchive& bad : cases) {
    Archive archive{.members = {{"a.npy", npy_text()}, {"b.npy", npy_text(), true}}};
    bad.bend(archive);
    const std::string message = error_of(archive.text());
    EXPECT_TRUE(message.starts_with("x.npz: ")) << bad.name << ": " << message;
    EXPECT_NE(message.find(bad.message), std::string::npos) << bad.name << ": " << message;
  }
}

TEST(Npz, FilesThatAreNoArchives) {
  Archive wide{.members = {{"a.npy", npy_text()}}, .zip64 = true};
  std::string no_record = wide.text(), no_locator = wide.text(), far_record = wide.text();
  no_record[no_record.size() - 22 - 20 - 56] = 'x';
  no_locator[no_locator.size() - 22 - 20] = 'x';
  far_record[far_record.size() - 22 - 20 + 8 + 7] = '\x7f';
  const std::pair<std::string, const char*> cases[] = {
      {"", "holds 0 bytes, too few for a zip archive"},
      {std::string(21, 'x'), "holds 21 bytes, too few"},
      {std::string(1000, 'x'), "has no zip directory at its end"},
      {npy_text(), "has no zip directory at its end"},
      {Archive{.members = {{"a.npy", npy_text()}}}.text() + "x", "has no zip directory at its end"},
      {no_record, "does not point at a zip64 end record"},
      {no_locator, "lacks the zip64 record"},
      {far_record, "the zip64 end record reaches past the end"},
  };
  for (const auto& [file, part] : cases) EXPECT_NE(error_of(file).find(part), std::string::npos) << error_of(file);
}

TEST(Npz, LimitsHoldBeforeAnythingIsUnpacked) {
  const std::string zeros = npy_text(Array::of<float>({1 << 20}, std::vector<float>(1 << 20)));
  const std::string bomb = Archive{.members = {{"a.npy", zeros, true}, {"b.npy", zeros, true}}}.text();
  ASSERT_LT(bomb.size(), 20'000u);
  EXPECT_EQ(parse(bomb).size(), 2u);
  EXPECT_NE(error_of(bomb, {.max_total_bytes = 6 << 20})
                .find("its members unpack to more than the limit of 6291456 bytes; split it"),
            std::string::npos);
  EXPECT_NE(error_of(bomb, {.max_members = 1}).find("holds 2 members, over the limit of 1"), std::string::npos);
}

TEST(Npz, WriterRefusesNamesThatCannotBeRead) {
  const TemporaryFolder folder;
  for (const std::string& name :
       {std::string(""), std::string("\xff"), std::string("a\0b", 3), std::string(70'000, 'x')}) {
    EXPECT_THROW(write_npz(folder / "x.npz", {{name, small_array()}}), UsageError) << name.substr(0, 10);
    EXPECT_FALSE(std::filesystem::exists(folder / "x.npz"));
  }
}

TEST(Zip, WriterRefusesWhatThePlainFormatCannotDescribe) {
  const TemporaryFolder folder;
  AtomicFile file(folder / "x.zip");
  ZipWriter zip(file);
  zip.add("a", {});
  EXPECT_NE(message_of<UsageError>([&] { zip.add("a", {}); }).find("two members are named \"a\""), std::string::npos);
  const std::size_t bytes = std::size_t{1} << 32;
  void* const zeros =
      ::mmap(nullptr, bytes, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);  // takes no memory
  ASSERT_NE(zeros, MAP_FAILED);
  EXPECT_NE(message_of<UsageError>([&] {
              zip.add("b", {static_cast<const std::byte*>(zeros), bytes});
            }).find("outgrows 4 GiB"),
            std::string::npos);
  ::munmap(zeros, bytes);
}

void load_or_refuse(const std::string& text) {
  const std::string heap(text);
  try {
    parse(heap);
  } catch (const FileError&) {
  }
}

TEST(NpzMutations, EveryTruncationIsRefused) {
  const std::string file = Archive{.members = {{"a.npy", npy_text()}, {"b.npy", npy_text(), true}}}.text();
  for (std::size_t length = 0; length < file.size(); ++length)
    EXPECT_NE(error_of(file.substr(0, length)), "no error") << length;
}

TEST(NpzMutations, EveryFlippedBitLoadsOrIsRefused) {
  for (const bool zip64 : {false, true}) {
    const std::string file =
        Archive{.members = {{"a.npy", npy_text()}, {"b.npy", npy_text(), true}}, .zip64 = zip64}.text();
    for (std::size_t bit = 0; bit < 8 * file.size(); ++bit) {
      std::string mutated = file;
      mutated[bit / 8] = static_cast<char>(mutated[bit / 8] ^ (1 << bit % 8));
      load_or_refuse(mutated);
    }
  }
}

TEST(NpzMutations, MuchDamageIsReadOrRefused) {
  const std::string zeros = npy_text(Array::of<float>({100, 10}, std::vector<float>(1000)));
  survive_damage(
      {Archive{.members = {{"a.npy", npy_text()}, {"b.npy", zeros, true}}}.text(),
       Archive{.members = {{"b.npy", zeros, true}}, .zip64 = true}.text()},
      [](const std::string& text) {
        for (const auto& [name, array] : parse(text))
          ASSERT_EQ(array.data.size(), static_cast<std::size_t>(array.shape.numel()) * size_bytes(array.dtype)) << name;
      });
}

}  // namespace
}  // namespace weft::io::npz_test
