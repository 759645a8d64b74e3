// Reading GGUF: each count is checked against the remaining bytes before memory is allocated for it.
#include "io/gguf.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <unordered_set>

#include "base/checked.hpp"
#include "base/quote.hpp"
#include "io/gguf_rules.hpp"
#include "weft/error.hpp"

namespace weft::io {
namespace {

/// Takes values off the front of a file.
class Cursor {
 public:
  Cursor(std::span<const std::byte> bytes, const std::string& source) : bytes_(bytes), source_(source) {}

  std::uint64_t at() const { return at_; }
  std::uint64_t left() const { return bytes_.size() - at_; }
  /// Sets the part that is being read, for messages: "metadata 3".
  void set_context(std::string context) { context_ = std::move(context); }

  [[noreturn]] void error(std::string_view what) const {
    throw FileError(fmt::format("{}: byte {}: {}{}{}", source_, at_, context_, context_.empty() ? "" : ": ", what));
  }

  template <class T>
  T number(std::string_view what) {
    need(sizeof(T), what);
    T value;
    std::memcpy(&value, bytes_.data() + at_, sizeof(T));
    at_ += sizeof(T);
    return value;
  }

  bool boolean(std::string_view what) {
    const auto value = number<std::uint8_t>(what);
    if (value > 1) {
      --at_;
      error(fmt::format("{} is a bool with the byte {}; only 0 and 1 are truth values", what, value));
    }
    return value != 0;
  }

  /// A length and that many bytes.
  std::string_view text(std::string_view what, std::uint64_t most = gguf::kMaxStringBytes) {
    const auto length = number<std::uint64_t>(what);
    if (length > most) error(fmt::format("{} has {} bytes; at most {} are allowed", what, length, most));
    need(length, what);
    const std::string_view result(reinterpret_cast<const char*>(bytes_.data()) + at_, length);
    at_ += length;
    return result;
  }

  /// Refuses a count of things that each take at least `least_bytes`, if they do not fit.
  void check_count(std::uint64_t count, std::uint64_t least_bytes, std::string_view what) const {
    if (count > left() / least_bytes)
      error(fmt::format("{} {} do not fit into the {} bytes that are left; the file is damaged or cut off", count, what,
                        left()));
  }

 private:
  void need(std::uint64_t count, std::string_view what) const {
    if (count > left())
      error(fmt::format("{} takes {} bytes, but the file ends after {}; it is cut off: fetch it again", what, count,
                        left()));
  }

  std::span<const std::byte> bytes_;
  const std::string& source_;
  std::uint64_t at_ = 0;
  std::string context_;
};

/// Calls `use` with a value of the C++ type of elements of a GGUF type; false for the types that are none.
template <class Use>
bool with_element_type(std::uint32_t type, const Use& use) {
  switch (static_cast<GgufType>(type)) {
    case GgufType::u8: use(std::uint8_t{}); return true;
    case GgufType::i8: use(std::int8_t{}); return true;
    case GgufType::u16: use(std::uint16_t{}); return true;
    case GgufType::i16: use(std::int16_t{}); return true;
    case GgufType::u32: use(std::uint32_t{}); return true;
    case GgufType::i32: use(std::int32_t{}); return true;
    case GgufType::f32: use(float{}); return true;
    case GgufType::boolean: use(bool{}); return true;
    case GgufType::string: use(std::string{}); return true;
    case GgufType::u64: use(std::uint64_t{}); return true;
    case GgufType::i64: use(std::int64_t{}); return true;
    case GgufType::f64: use(double{}); return true;
    case GgufType::array: break;
  }
  return false;
}

template <class T>
T read_element(Cursor& cursor, std::string_view what) {
  if constexpr (std::is_same_v<T, std::string>)
    return std::string(cursor.text(what));
  else if constexpr (std::is_same_v<T, bool>)
    return cursor.boolean(what);
  else
    return cursor.number<T>(what);
}

GgufArray read_array(Cursor& cursor) {
  const auto type = cursor.number<std::uint32_t>("element type");
  const auto count = cursor.number<std::uint64_t>("number of elements");
  if (type == static_cast<std::uint32_t>(GgufType::array))
    cursor.error("it is an array of arrays; arrays hold numbers, bools or strings");
  GgufArray array;
  const bool known = with_element_type(type, [&](auto element) {
    using T = decltype(element);
    if (count > gguf::kMaxArrayElements)
      cursor.error(fmt::format("the array has {} elements; at most {} are allowed", count, gguf::kMaxArrayElements));
    cursor.check_count(count, std::is_same_v<T, std::string> ? 8 : sizeof(T), "elements");
    std::vector<T> elements;
    elements.reserve(count);
    for (std::uint64_t i = 0; i < count; ++i) elements.push_back(read_element<T>(cursor, "an element"));
    array = std::move(elements);
  });
  if (!known) cursor.error(fmt::format("elements of the unknown type {}; types are 0 to 12", type));
  return array;
}

GgufValue read_value(Cursor& cursor) {
  const auto type = cursor.number<std::uint32_t>("type of the value");
  if (type == static_cast<std::uint32_t>(GgufType::array)) return read_array(cursor);
  GgufValue value;
  const bool known =
      with_element_type(type, [&](auto element) { value = read_element<decltype(element)>(cursor, "the value"); });
  if (!known) cursor.error(fmt::format("a value of the unknown type {}; types are 0 to 12", type));
  return value;
}

struct Head {
  std::uint32_t version;
  std::uint64_t tensor_count, metadata_count;
};

Head read_head(Cursor& cursor, std::span<const std::byte> bytes) {
  const std::string_view start(reinterpret_cast<const char*>(bytes.data()), std::min<std::size_t>(bytes.size(), 4));
  if (start != gguf::kMagic)
    cursor.error(fmt::format("not a GGUF file: it begins with {}, not with \"GGUF\"", quote(start)));
  cursor.number<std::uint32_t>("magic");
  const auto version = cursor.number<std::uint32_t>("version");
  if (version != 0 && (version & 0xFFFF) == 0)
    cursor.error(
        fmt::format("version {:#010x} is that of a big-endian file; convert it to little-endian, as with "
                    "gguf-convert-endian of the Python package gguf",
                    version));
  if (version < 2)
    cursor.error(
        fmt::format("version {} is older than 2, the first with 64-bit counts; convert the model again with a "
                    "current converter",
                    version));
  if (version > gguf::kVersion)
    cursor.error(
        fmt::format("version {} is newer than {}, the newest known here; use a newer Weft", version, gguf::kVersion));
  Head head{version, cursor.number<std::uint64_t>("number of tensors"), 0};
  head.metadata_count = cursor.number<std::uint64_t>("number of metadata values");
  // The smallest tensor: name of one byte, rank 0, type, offset. The smallest value: key of one byte, type, one byte.
  cursor.check_count(head.tensor_count, 9 + 4 + 4 + 8, "tensors");
  cursor.check_count(head.metadata_count, 9 + 4 + 1, "metadata values");
  return head;
}

void read_metadata(Cursor& cursor, std::uint64_t count, GgufMetadata& metadata) {
  for (std::uint64_t i = 0; i < count; ++i) {
    cursor.set_context(fmt::format("metadata {} of {}", i + 1, count));
    const std::string_view key = cursor.text("key", gguf::kMaxKeyBytes);
    cursor.set_context(fmt::format("metadata {}", quote(key)));
    if (const auto problem = gguf::problem_of_key(key); !problem.empty()) cursor.error(problem);
    if (metadata.contains(key)) cursor.error("the key occurs twice");
    metadata.set(std::string(key), read_value(cursor));
  }
  cursor.set_context("");
}

std::uint32_t alignment_of(const GgufMetadata& metadata) {
  const GgufValue* value = metadata.find(gguf::kAlignmentKey);
  if (!value) return gguf::kDefaultAlignment;
  const std::uint32_t* alignment = std::get_if<std::uint32_t>(value);
  if (!alignment || !gguf::is_alignment(*alignment))
    throw FileError(fmt::format("{}: metadata \"{}\" is {}; it must be a u32, a power of two from 8 to {}",
                                metadata.source(), gguf::kAlignmentKey,
                                alignment ? fmt::to_string(*alignment) : describe_type(*value), gguf::kMaxAlignment));
  return *alignment;
}

struct Entry {
  GgufTensor tensor;
  std::uint64_t offset, size;
};

Shape read_shape(Cursor& cursor) {
  const auto rank = cursor.number<std::uint32_t>("rank");
  if (rank > static_cast<std::uint32_t>(gguf::kMaxRank))
    cursor.error(fmt::format("rank {} is over the limit of {}", rank, gguf::kMaxRank));
  std::vector<Extent> extents;
  for (std::uint32_t i = 0; i < rank; ++i) {
    const auto extent = cursor.number<std::uint64_t>("extent");
    if (!std::in_range<Extent>(extent)) cursor.error(fmt::format("extent {} overflows 63 bits", extent));
    extents.push_back(static_cast<Extent>(extent));
  }
  std::reverse(extents.begin(), extents.end());  // the file has the innermost first
  return Shape(std::move(extents));
}

BlockType read_type(Cursor& cursor) {
  const auto id = cursor.number<std::uint32_t>("type");
  if (const BlockFormat* format = find_block_format(id)) return format->type;
  const std::string_view name = unread_gguf_type(id);
  if (name.empty())
    cursor.error(fmt::format("type {} is unknown; the file is damaged, or of a newer kind: {} are read", id,
                             block_format_list()));
  cursor.error(
      fmt::format("its type {} ({}) is not read here; use a file in one of {}", name, id, block_format_list()));
}

std::vector<Entry> read_tensors(Cursor& cursor, std::uint64_t count, std::uint32_t alignment,
                                const std::string& source) {
  std::vector<Entry> entries;
  std::unordered_set<std::string_view> names;
  std::uint64_t next = 0;
  for (std::uint64_t i = 0; i < count; ++i) {
    cursor.set_context(fmt::format("tensor {} of {}", i + 1, count));
    const std::string_view name = cursor.text("name", gguf::kMaxNameBytes);
    cursor.set_context(fmt::format("tensor {}", quote(name)));
    if (const auto problem = gguf::problem_of_name(name); !problem.empty()) cursor.error(problem);
    if (!names.insert(name).second) cursor.error("the name occurs twice");
    Entry entry{{std::string(name), read_shape(cursor), BlockType::f32, {}}, 0, 0};
    entry.tensor.type = read_type(cursor);
    const std::string context = fmt::format("{}: byte {}: tensor {}", source, cursor.at(), quote(name));
    entry.size = bytes_for(entry.tensor.type, entry.tensor.shape, context);
    entry.offset = cursor.number<std::uint64_t>("offset");
    if (entry.offset != next)
      cursor.error(
          fmt::format("its data is at offset {}, but that of the tensors before it ends, aligned to {}, at {}; "
                      "there must be no gaps or overlaps",
                      entry.offset, alignment, next));
    next = checked_align_up<FileError, std::uint64_t>(checked_add<FileError>(next, entry.size, context), alignment,
                                                      context);
    entries.push_back(std::move(entry));
  }
  cursor.set_context("");
  return entries;
}

}  // namespace

GgufFile GgufFile::parse(std::span<const std::byte> bytes, std::string source) {
  GgufFile file;
  file.source_ = std::move(source);
  file.metadata_ = GgufMetadata(file.source_);
  file.file_bytes_ = bytes.size();
  Cursor cursor(bytes, file.source_);
  const Head head = read_head(cursor, bytes);
  file.version_ = head.version;
  read_metadata(cursor, head.metadata_count, file.metadata_);
  file.alignment_ = alignment_of(file.metadata_);
  cursor.check_count(head.tensor_count, 9 + 4 + 4 + 8, "tensors");
  std::vector<Entry> entries = read_tensors(cursor, head.tensor_count, file.alignment_, file.source_);

  const std::uint64_t data = checked_align_up<FileError, std::uint64_t>(cursor.at(), file.alignment_, file.source_);
  for (Entry& entry : entries) {
    const std::string context = fmt::format("{}: tensor {}", file.source_, quote(entry.tensor.name));
    const std::uint64_t begin = checked_add<FileError>(data, entry.offset, context);
    const std::uint64_t end = checked_add<FileError>(begin, entry.size, context);
    if (end > bytes.size())
      throw FileError(fmt::format("{}: its data ends at byte {} of {}; the file is cut off: fetch it again", context,
                                  end, bytes.size()));
    entry.tensor.data = bytes.subspan(begin, entry.size);
    file.tensors_.push_back(std::move(entry.tensor));
  }
  file.index_tensors();
  return file;
}

void GgufFile::index_tensors() {
  index_.clear();
  for (std::size_t i = 0; i < tensors_.size(); ++i)
    if (!index_.try_emplace(tensors_[i].name, i).second)
      throw FileError(fmt::format("{}: tensor {} is in two parts; fetch the parts again, all of one model", source_,
                                  quote(tensors_[i].name)));
}

GgufFile GgufFile::open_part(const std::filesystem::path& path) {
  const MappedFile mapping(path);
  GgufFile file = parse(mapping.bytes(), path.string());
  file.mappings_.push_back(mapping);
  return file;
}

void GgufFile::forget_metadata() {
  metadata_ = GgufMetadata(source_);
  for (const MappedFile& mapping : mappings_) {
    std::size_t head = mapping.bytes().size();
    for (const GgufTensor& tensor : tensors_) {
      const auto at = static_cast<std::size_t>(tensor.data.data() - mapping.bytes().data());
      if (tensor.data.data() >= mapping.bytes().data() && at < head) head = at;
    }
    release_pages(mapping.bytes().first(head));
  }
}

GgufFile GgufFile::open(const std::filesystem::path& path) {
  GgufFile opened = open_part(path);
  const auto count = opened.metadata_.get_or<std::uint16_t>("split.count", 0);
  if (count <= 1) return opened;

  // The names of the other parts follow from the file's name; nothing inside the file names a file.
  const std::string name = path.filename().string();
  const std::string tail = fmt::format("-of-{:05}.gguf", count);
  const auto number = opened.metadata_.get<std::uint16_t>("split.no");
  const std::string own = fmt::format("-{:05}{}", number + 1, tail);
  if (!name.ends_with(own))
    throw FileError(
        fmt::format("{}: part {} of {} of a split model, but its name does not end in \"{}\"; give all parts "
                    "the names they had",
                    opened.source_, number + 1, count, own));
  const std::string stem = name.substr(0, name.size() - own.size());
  GgufFile whole;
  for (int part = 0; part < count; ++part) {
    const auto sibling = path.parent_path() / fmt::format("{}-{:05}{}", stem, part + 1, tail);
    std::error_code ignored;
    if (!std::filesystem::exists(sibling, ignored))
      throw FileError(fmt::format("{}: part {} of {} is missing: '{}'; fetch it into the same folder", opened.source_,
                                  part + 1, count, sibling.string()));
    GgufFile next = open_part(sibling);
    if (next.metadata_.get<std::uint16_t>("split.no") != part ||
        next.metadata_.get<std::uint16_t>("split.count") != count)
      throw FileError(
          fmt::format("{}: split.no and split.count are not those of part {} of {}, as its name says; fetch "
                      "the parts again, all of one model",
                      next.source_, part + 1, count));
    if (part == 0) {
      whole = std::move(next);
      continue;
    }
    whole.mappings_.push_back(next.mappings_[0]);
    whole.file_bytes_ += next.file_bytes_;
    whole.tensors_.insert(whole.tensors_.end(), std::make_move_iterator(next.tensors_.begin()),
                          std::make_move_iterator(next.tensors_.end()));
  }
  whole.part_count_ = count;
  whole.index_tensors();
  if (const auto total = whole.metadata_.get_if<std::uint64_t>("split.tensors.count");
      total && *total != whole.tensors_.size())
    throw FileError(
        fmt::format("{}: the parts hold {} tensors, but split.tensors.count is {}; fetch the parts again, all "
                    "of one model",
                    whole.source_, whole.tensors_.size(), *total));
  return whole;
}

const GgufTensor* GgufFile::find(std::string_view name) const {
  const auto found = index_.find(name);
  return found == index_.end() ? nullptr : &tensors_[found->second];
}

const GgufTensor& GgufFile::at(std::string_view name) const {
  if (const GgufTensor* found = find(name)) return *found;
  std::string names;
  for (std::size_t i = 0; i < std::min<std::size_t>(tensors_.size(), 5); ++i)
    names += (i ? ", " : "") + quote(tensors_[i].name);
  if (tensors_.size() > 5) names += fmt::format(" and {} more", tensors_.size() - 5);
  throw FileError(fmt::format("{}: there is no tensor {}; it holds {}", source_, quote(name),
                              names.empty() ? std::string("none") : names));
}

}  // namespace weft::io
