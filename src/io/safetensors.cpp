// Reading safetensors: the header is parsed piece by piece, so that a hostile header is refused before it is stored.
#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <tuple>

#include "base/checked.hpp"
#include "base/json.hpp"
#include "base/quote.hpp"
#include "io/safetensors.hpp"
#include "io/safetensors_dtype.hpp"
#include "io/safetensors_limits.hpp"
#include "weft/error.hpp"

namespace weft::io {
namespace {

struct HeaderEntry {
  std::string name;
  std::string dtype;
  std::vector<Extent> shape;
  std::vector<std::uint64_t> offsets;
};

/// Accepts exactly {"__metadata__": {text: text}, name: {"dtype": text, "shape": [n...], "data_offsets": [n, n]}, ...}.
class HeaderHandler : public JsonHandler {
 public:
  HeaderHandler(std::vector<HeaderEntry>& entries, SafetensorsMetadata& metadata)
      : entries_(entries), metadata_(metadata) {}

  void key(std::string name, const JsonCursor& cursor) override {
    if (at_ == Place::header) {
      name_ = std::move(name);
    } else if (at_ == Place::metadata) {
      metadata_key_ = std::move(name);
    } else {
      field_ =
          name == "dtype"   ? Field::dtype
          : name == "shape" ? Field::shape
          : name == "data_offsets"
              ? Field::offsets
              : refuse(cursor, fmt::format("unknown key {}; a tensor has dtype, shape and data_offsets", quote(name)));
      seen_[static_cast<int>(field_)] = true;
    }
  }

  void start(bool object, const JsonCursor& cursor) override {
    switch (at_) {
      case Place::outside:
        if (!object) cursor.error("the header is an array; it must be an object");
        at_ = Place::header;
        return;
      case Place::header:
        if (name_ == kMetadataName) {
          if (!object) cursor.error("__metadata__ is an array; it must be an object of texts");
          at_ = Place::metadata;
          return;
        }
        if (!object) refuse(cursor, "is an array; it must be an object with dtype, shape and data_offsets");
        entries_.push_back({name_, {}, {}, {}});
        std::fill(std::begin(seen_), std::end(seen_), false);
        at_ = Place::tensor;
        return;
      case Place::metadata:
        cursor.error(fmt::format("__metadata__ {} is not a string; metadata maps text to text", quote(metadata_key_)));
      case Place::tensor:
        if (field_ == Field::dtype) refuse(cursor, "dtype is not a string");
        if (object) refuse(cursor, fmt::format("{} is an object; it must be an array", field_name()));
        at_ = Place::list;
        return;
      case Place::list: refuse(cursor, fmt::format("{} holds something other than numbers", field_name()));
    }
  }

  void end(bool, const JsonCursor& cursor) override {
    switch (at_) {
      case Place::list:
        if (field_ == Field::offsets && entries_.back().offsets.size() != 2)
          refuse(cursor, fmt::format("data_offsets holds {} numbers; it must hold a begin and an end",
                                     entries_.back().offsets.size()));
        at_ = Place::tensor;
        return;
      case Place::tensor:
        for (const Field field : {Field::dtype, Field::shape, Field::offsets})
          if (field_ = field; !seen_[static_cast<int>(field)])
            refuse(cursor, fmt::format("{} is missing", field_name()));
        at_ = Place::header;
        return;
      case Place::metadata: at_ = Place::header; return;
      default: at_ = Place::outside;
    }
  }

  void value(Json scalar, const JsonCursor& cursor) override {
    switch (at_) {
      case Place::outside: cursor.error("the header is not an object");
      case Place::header:
        if (name_ == kMetadataName) cursor.error("__metadata__ is not an object of strings");
        refuse(cursor, "is not an object with dtype, shape and data_offsets");
      case Place::metadata:
        if (!scalar.is_string())
          cursor.error(
              fmt::format("__metadata__ {} is not a string; metadata maps text to text", quote(metadata_key_)));
        metadata_[metadata_key_] = scalar.get<std::string>();
        return;
      case Place::tensor:
        if (field_ != Field::dtype) refuse(cursor, fmt::format("{} is not an array", field_name()));
        if (!scalar.is_string()) refuse(cursor, "dtype is not a string");
        entries_.back().dtype = scalar.get<std::string>();
        if (!safetensors_dtype_bits(entries_.back().dtype))
          refuse(cursor, fmt::format("unknown dtype {}; the format has {}", quote(entries_.back().dtype, 40),
                                     safetensors_dtype_list()));
        return;
      case Place::list: number(scalar, cursor);
    }
  }

 private:
  enum class Place { outside, header, metadata, tensor, list };
  enum class Field { dtype, shape, offsets };

  std::string_view field_name() const {
    return field_ == Field::dtype ? "dtype" : field_ == Field::shape ? "shape" : "data_offsets";
  }
  [[noreturn]] Field refuse(const JsonCursor& cursor, std::string_view what) const {
    cursor.error(fmt::format("tensor {}: {}", quote(name_), what));
  }
  void number(const Json& scalar, const JsonCursor& cursor) {
    if (!scalar.is_number_unsigned())
      refuse(cursor, fmt::format("{} holds {}, which is not a whole number from 0 to 2^64 - 1", field_name(),
                                 quote(scalar.dump(), 40)));
    const auto value = scalar.get<std::uint64_t>();
    HeaderEntry& entry = entries_.back();
    if (field_ == Field::offsets) {
      if (entry.offsets.size() == 2) refuse(cursor, "data_offsets holds more than a begin and an end");
      entry.offsets.push_back(value);
    } else {
      if (value > static_cast<std::uint64_t>(INT64_MAX))
        refuse(cursor, fmt::format("extent {} overflows 63 bits", value));
      if (static_cast<int>(entry.shape.size()) == kMaxRank)
        refuse(cursor, fmt::format("the rank is over the limit of {}", kMaxRank));
      entry.shape.push_back(static_cast<Extent>(value));
    }
  }

  std::vector<HeaderEntry>& entries_;
  SafetensorsMetadata& metadata_;
  Place at_ = Place::outside;
  Field field_ = Field::dtype;
  bool seen_[3] = {};
  std::string name_;
  std::string metadata_key_;
};

std::uint64_t little_endian_u64(std::span<const std::byte> bytes) {
  std::uint64_t value = 0;
  for (int i = 7; i >= 0; --i) value = value << 8 | static_cast<std::uint64_t>(bytes[static_cast<std::size_t>(i)]);
  return value;
}

/// The header text, its length checked against the limit and the file.
std::string_view header_of(std::span<const std::byte> bytes, const std::string& source) {
  if (bytes.size() < 8)
    throw FileError(fmt::format(
        "{}: holds {} bytes, fewer than the 8 of the header length; it is truncated or not a safetensors file", source,
        bytes.size()));
  const std::uint64_t length = little_endian_u64(bytes);
  if (length > kMaxHeaderBytes)
    throw FileError(fmt::format("{}: the header length {} is over the limit of {}; it is not a safetensors file",
                                source, length, kMaxHeaderBytes));
  if (length > bytes.size() - 8)
    throw FileError(
        fmt::format("{}: the header of {} bytes reaches past the end of the file of {} bytes; it is truncated", source,
                    length, bytes.size()));
  const std::string_view header(reinterpret_cast<const char*>(bytes.data()) + 8, length);
  if (!header.starts_with('{'))
    throw FileError(fmt::format("{}: the header does not begin with '{{'; it is not a safetensors file", source));
  return header;
}

/// Bytes that follow from the dtype and shape of `entry`.
std::uint64_t bytes_of(const HeaderEntry& entry, const std::string& context) {
  const std::uint64_t count = checked_numel(Shape(entry.shape), context);
  const std::uint64_t bits =
      checked_multiply<FileError, std::uint64_t>(count, *safetensors_dtype_bits(entry.dtype), context);
  if (bits % 8 != 0)
    throw FileError(fmt::format("{}: {} elements of {} take {} bits, which is not a whole number of bytes", context,
                                count, entry.dtype, bits));
  return bits / 8;
}

}  // namespace

SafetensorsFile SafetensorsFile::parse(std::span<const std::byte> bytes, std::string source) {
  SafetensorsFile file;
  file.source_ = std::move(source);
  const std::string_view header = header_of(bytes, file.source_);
  std::vector<HeaderEntry> entries;
  HeaderHandler handler(entries, file.metadata_);
  parse_json_events(header, file.source_ + " (header)", handler, {.max_depth = 3});

  std::sort(entries.begin(), entries.end(), [](const HeaderEntry& a, const HeaderEntry& b) {
    return std::tie(a.offsets, a.name) < std::tie(b.offsets, b.name);
  });
  const std::span<const std::byte> data = bytes.subspan(8 + header.size());
  std::uint64_t at = 0;
  for (HeaderEntry& entry : entries) {
    const std::string context = fmt::format("{}: tensor {}", file.source_, quote(entry.name));
    const std::uint64_t begin = entry.offsets[0], end = entry.offsets[1];
    if (end < begin)
      throw FileError(fmt::format("{}: data_offsets [{}, {}] end before they begin", context, begin, end));
    if (begin != at)
      throw FileError(fmt::format("{}: its data begins at byte {}, but the data before it ends at byte {}; {}", context,
                                  begin, at, begin < at ? "tensors must not overlap" : "holes are not allowed"));
    const std::uint64_t needed = bytes_of(entry, context);
    if (end - begin != needed)
      throw FileError(fmt::format("{}: {} [{}] takes {} bytes, but data_offsets span {}", context, entry.dtype,
                                  fmt::join(entry.shape, ", "), needed, end - begin));
    if (end > data.size())
      throw FileError(
          fmt::format("{}: its data ends at byte {} of {}; the file is truncated", context, end, data.size()));
    at = end;
    file.index_.emplace(entry.name, file.tensors_.size());
    file.tensors_.push_back({std::move(entry.name), std::move(entry.dtype), Shape(std::move(entry.shape)),
                             data.subspan(begin, end - begin)});
  }
  if (at != data.size())
    throw FileError(
        fmt::format("{}: {} bytes follow the data of the last tensor; remove them", file.source_, data.size() - at));
  return file;
}

SafetensorsFile SafetensorsFile::open(const std::filesystem::path& path) {
  const auto mapping = std::make_shared<const MappedFile>(path);
  SafetensorsFile file = parse(mapping->bytes(), path.string());
  file.mapping_ = mapping;
  return file;
}

const TensorView* SafetensorsFile::find(std::string_view name) const {
  const auto found = index_.find(name);
  return found == index_.end() ? nullptr : &tensors_[found->second];
}

const TensorView& SafetensorsFile::at(std::string_view name) const {
  if (const TensorView* found = find(name)) return *found;
  throw FileError(fmt::format("{}: there is no tensor {}; it holds {}", source_, quote(name), [&] {
    std::string names;
    for (std::size_t i = 0; i < std::min<std::size_t>(tensors_.size(), 5); ++i)
      names += (i ? ", " : "") + quote(tensors_[i].name);
    if (tensors_.size() > 5) names += fmt::format(" and {} more", tensors_.size() - 5);
    return tensors_.empty() ? std::string("none") : names;
  }()));
}

Array to_array(const TensorView& tensor, std::string_view source) {
  const auto dtype = dtype_from_safetensors(tensor.dtype);
  if (!dtype)
    throw FileError(
        fmt::format("{}: tensor {} is {}, which Weft's tensors do not hold; convert it first, for example to F32; they "
                    "hold {}",
                    source, quote(tensor.name), tensor.dtype,
                    dtype_list([](const Element& row) { return !row.safetensors.empty(); })));
  if (*dtype == DType::boolean)
    for (std::size_t i = 0; i < tensor.data.size(); ++i)
      if (tensor.data[i] > std::byte{1})
        throw FileError(fmt::format("{}: tensor {}: element {} of BOOL is the byte {}; only 0 and 1 are truth values",
                                    source, quote(tensor.name), i, static_cast<int>(tensor.data[i])));
  return {*dtype, tensor.shape, {tensor.data.begin(), tensor.data.end()}};
}

}  // namespace weft::io
