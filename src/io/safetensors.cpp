// Reading safetensors: the header is parsed piece by piece, so that a hostile header is refused before it is stored.
#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <tuple>

#include "base/checked.hpp"
#include "base/json.hpp"
#include "base/quote.hpp"
#include "base/utf8.hpp"
#include "io/safetensors.hpp"
#include "io/safetensors_dtype.hpp"
#include "io/safetensors_limits.hpp"
#include "weft/error.hpp"

namespace weft::io {
namespace {

struct HeaderEntry {
  std::string name;
  std::uint64_t byte = 0;  // of the file, behind the name
  std::string dtype;
  std::vector<Extent> shape;
  std::vector<std::uint64_t> offsets;
  bool is_complete = false;
};

/// Accepts exactly {"__metadata__": {text: text}, name: {"dtype": text, "shape": [n...], "data_offsets": [n, n]}, ...}. Leaves
/// out what it has reported, and goes on.
class HeaderHandler : public JsonHandler {
 public:
  HeaderHandler(std::vector<HeaderEntry>& entries, SafetensorsMetadata& metadata, FormatFindings& findings)
      : entries_(entries), metadata_(metadata), findings_(findings) {}

  /// Whether every entry of the header was read.
  bool is_complete() const { return complete_; }

  void key(std::string name, const JsonCursor& cursor) override {
    if (skipped_ > 0) return;
    if (at_ == Place::header) {
      name_ = std::move(name);
    } else if (at_ == Place::metadata) {
      metadata_key_ = std::move(name);
    } else {
      field_ = name == "dtype"          ? Field::dtype
               : name == "shape"        ? Field::shape
               : name == "data_offsets" ? Field::offsets
                                        : Field::unknown;
      if (field_ == Field::unknown)
        refuse(cursor, fmt::format("unknown key {}; a tensor has dtype, shape and data_offsets", quote(name)));
      else
        seen_[static_cast<int>(field_)] = true;
    }
  }

  void start(bool object, const JsonCursor& cursor) override {
    if (skipped_ > 0) {
      ++skipped_;
      return;
    }
    switch (at_) {
      case Place::outside:
        if (!object) cursor.error("the header is an array; it must be an object");
        at_ = Place::header;
        return;
      case Place::header:
        if (name_ == kMetadataName) {
          if (!object) return skip(cursor, "__metadata__ is an array; it must be an object of texts");
          at_ = Place::metadata;
          return;
        }
        if (!object) return skip_entry(cursor, "is an array; it must be an object with dtype, shape and data_offsets");
        entries_.push_back({name_, 8 + cursor.byte(), {}, {}, {}, true});
        std::fill(std::begin(seen_), std::end(seen_), false);
        at_ = Place::tensor;
        return;
      case Place::metadata:
        return skip(cursor,
                    fmt::format("__metadata__ {} is not a string; metadata maps text to text", quote(metadata_key_)));
      case Place::tensor:
        if (field_ == Field::unknown) {
          ++skipped_;
          return;
        }
        if (field_ == Field::dtype) return skip_entry(cursor, "dtype is not a string");
        if (object) return skip_entry(cursor, fmt::format("{} is an object; it must be an array", field_name()));
        at_ = Place::list;
        return;
      case Place::list: return skip_entry(cursor, fmt::format("{} holds something other than numbers", field_name()));
    }
  }

  void end(bool, const JsonCursor& cursor) override {
    if (skipped_ > 0) {
      --skipped_;
      return;
    }
    switch (at_) {
      case Place::list:
        if (field_ == Field::offsets && entries_.back().offsets.size() != 2 && entries_.back().is_complete)
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
    if (skipped_ > 0) return;
    switch (at_) {
      case Place::outside: cursor.error("the header is not an object");
      case Place::header:
        if (name_ == kMetadataName) return report(cursor, "__metadata__ is not an object of strings");
        return refuse(cursor, "is not an object with dtype, shape and data_offsets");
      case Place::metadata:
        if (!scalar.is_string())
          return report(
              cursor, fmt::format("__metadata__ {} is not a string; metadata maps text to text", quote(metadata_key_)));
        metadata_[metadata_key_] = scalar.get<std::string>();
        return;
      case Place::tensor:
        if (field_ == Field::unknown) return;
        if (field_ != Field::dtype) return refuse(cursor, fmt::format("{} is not an array", field_name()));
        if (!scalar.is_string()) return refuse(cursor, "dtype is not a string");
        entries_.back().dtype = scalar.get<std::string>();
        if (!safetensors_dtype_bits(entries_.back().dtype))
          refuse(cursor,
                 fmt::format("unknown dtype {}; the format has {}", quote(entries_.back().dtype, 40),
                             safetensors_dtype_list()),
                 "UNKNOWN_DTYPE");
        return;
      case Place::list: number(scalar, cursor);
    }
  }

 private:
  enum class Place { outside, header, metadata, tensor, list };
  enum class Field { dtype, shape, offsets, unknown };

  std::string_view field_name() const {
    return field_ == Field::dtype ? "dtype" : field_ == Field::shape ? "shape" : "data_offsets";
  }
  void report(const JsonCursor& cursor, std::string_view what) {
    findings_.add("INVALID_HEADER", 8 + cursor.byte(), "", cursor.place(what));
  }
  /// Reports a mistake in the entry of a tensor.
  void refuse(const JsonCursor& cursor, std::string_view what, std::string_view code = "INVALID_ENTRY") {
    if (at_ != Place::header) entries_.back().is_complete = false;
    complete_ = false;
    findings_.add(code, 8 + cursor.byte(), name_, cursor.place(fmt::format("tensor {}: {}", quote(name_), what)));
  }
  /// The same for the container that has just begun.
  void skip(const JsonCursor& cursor, std::string_view what) {
    report(cursor, what);
    ++skipped_;
  }
  void skip_entry(const JsonCursor& cursor, std::string_view what) {
    refuse(cursor, what);
    ++skipped_;
  }
  void number(const Json& scalar, const JsonCursor& cursor) {
    HeaderEntry& entry = entries_.back();
    if (!entry.is_complete) return;
    if (!scalar.is_number_unsigned())
      return refuse(cursor, fmt::format("{} holds {}, which is not a whole number from 0 to 2^64 - 1", field_name(),
                                        quote(scalar.dump(), 40)));
    const auto value = scalar.get<std::uint64_t>();
    if (field_ == Field::offsets) {
      if (entry.offsets.size() == 2) return refuse(cursor, "data_offsets holds more than a begin and an end");
      entry.offsets.push_back(value);
    } else {
      if (value > static_cast<std::uint64_t>(INT64_MAX))
        return refuse(cursor, fmt::format("extent {} overflows 63 bits", value));
      if (static_cast<int>(entry.shape.size()) == kMaxRank)
        return refuse(cursor, fmt::format("the rank is over the limit of {}", kMaxRank));
      entry.shape.push_back(static_cast<Extent>(value));
    }
  }

  std::vector<HeaderEntry>& entries_;
  SafetensorsMetadata& metadata_;
  FormatFindings& findings_;
  Place at_ = Place::outside;
  Field field_ = Field::dtype;
  bool seen_[3] = {};
  bool complete_ = true;
  int skipped_ = 0;  // containers that are open and left out
  std::string name_;
  std::string metadata_key_;
};

std::uint64_t little_endian_u64(std::span<const std::byte> bytes) {
  std::uint64_t value = 0;
  for (int i = 7; i >= 0; --i) value = value << 8 | static_cast<std::uint64_t>(bytes[static_cast<std::size_t>(i)]);
  return value;
}

/// Whether the file begins with eight characters of a text, which would be a length of 10^18 bytes or so.
bool begins_as_text(std::span<const std::byte> bytes) {
  return std::all_of(bytes.begin(), bytes.begin() + 8, [](std::byte byte) {
    const auto c = static_cast<unsigned char>(byte);
    return c >= 0x20 ? c != 0x7f && c < 0xf5 : c == '\t' || c == '\n' || c == '\r';
  });
}

/// The header text, its length checked against the limit and the file; nothing if it was reported.
std::optional<std::string_view> header_of(std::span<const std::byte> bytes, const std::string& source,
                                          FormatFindings& findings) {
  const auto refuse = [&](std::string_view code, std::uint64_t byte, std::string message) {
    findings.add(code, byte, "", std::move(message));
    return std::nullopt;
  };
  if (bytes.size() < 8)
    return refuse("HEADER_TOO_SMALL", 0,
                  fmt::format("{}: holds {} bytes, fewer than the 8 of the header length; it is truncated or not a "
                              "safetensors file",
                              source, bytes.size()));
  const std::uint64_t length = little_endian_u64(bytes);
  if (length > kMaxHeaderBytes && begins_as_text(bytes))
    return refuse("HEADER_TOO_LARGE", 0,
                  fmt::format("{}: this is not a model file, neither GGUF nor safetensors: it begins with {}; name a "
                              "model file of these formats, or a folder with model.safetensors",
                              source, quote({reinterpret_cast<const char*>(bytes.data()), bytes.size()}, 24)));
  if (length > kMaxHeaderBytes)
    return refuse("HEADER_TOO_LARGE", 0,
                  fmt::format("{}: the header length {} is over the limit of {}; it is not a safetensors file", source,
                              length, kMaxHeaderBytes));
  if (length > bytes.size() - 8)
    return refuse(
        "INVALID_HEADER_LENGTH", 0,
        fmt::format("{}: the header of {} bytes reaches past the end of the file of {} bytes; it is truncated", source,
                    length, bytes.size()));
  const std::string_view header(reinterpret_cast<const char*>(bytes.data()) + 8, length);
  if (!header.starts_with('{'))
    return refuse("INVALID_HEADER_START", 8,
                  fmt::format("{}: the header does not begin with '{{'; it is not a safetensors file", source));
  return header;
}

/// Parses the header. False if the rest of it was not read.
bool parse_header(std::string_view header, const std::string& source, HeaderHandler& handler,
                  FormatFindings& findings) {
  const std::string name = source + " (header)";
  const auto report = [&](std::string_view code, std::uint64_t byte, const FileError& error) {
    findings.add(code, byte, "", error.what());
    return false;
  };
  if (const auto at = find_invalid_utf8(header)) {
    try {
      require_utf8(header, name);
    } catch (const FileError& error) {
      return report("HEADER_NOT_UTF8", 8 + *at, error);
    }
  }
  try {
    parse_json_events(header, name, handler, {.max_depth = 3});
    return true;
  } catch (const JsonError& error) {
    return report(error.fact() == JsonError::Fact::duplicate_key ? "DUPLICATE_NAME"
                  : error.fact() == JsonError::Fact::limit       ? "HEADER_LIMIT"
                                                                 : "INVALID_JSON",
                  8 + std::min(error.byte(), header.size()), error);
  } catch (const FormatError&) {
    throw;
  } catch (const FileError& error) {
    return report("INVALID_JSON", 8, error);
  }
}

/// Bytes that follow from the dtype and shape of `entry`; nothing if it was reported.
std::optional<std::uint64_t> bytes_of(const HeaderEntry& entry, const std::string& context, FormatFindings& findings) {
  try {
    const std::uint64_t count = checked_numel(Shape(entry.shape), context);
    const std::uint64_t bits =
        checked_multiply<FileError, std::uint64_t>(count, *safetensors_dtype_bits(entry.dtype), context);
    if (bits % 8 == 0) return bits / 8;
    findings.add("PARTIAL_BYTE", entry.byte, entry.name,
                 fmt::format("{}: {} elements of {} take {} bits, which is not a whole number of bytes", context, count,
                             entry.dtype, bits));
  } catch (const FormatError&) {
    throw;
  } catch (const FileError& error) {
    findings.add("SIZE_OVERFLOW", entry.byte, entry.name, error.what());
  }
  return std::nullopt;
}

}  // namespace

SafetensorsFile SafetensorsFile::parse(std::span<const std::byte> bytes, std::string source) {
  FormatFindings findings(nullptr);
  return parse(bytes, std::move(source), findings);
}

SafetensorsFile SafetensorsFile::parse(std::span<const std::byte> bytes, std::string source, FormatFindings& findings) {
  SafetensorsFile file;
  file.source_ = std::move(source);
  file.bytes_ = bytes;
  const std::optional<std::string_view> header = header_of(bytes, file.source_, findings);
  if (!header) return file;
  std::vector<HeaderEntry> entries;
  HeaderHandler handler(entries, file.metadata_, findings);
  if (!parse_header(*header, file.source_, handler, findings)) return file;
  std::erase_if(entries, [](const HeaderEntry& entry) { return !entry.is_complete; });

  std::sort(entries.begin(), entries.end(), [](const HeaderEntry& a, const HeaderEntry& b) {
    return std::tie(a.offsets, a.name) < std::tie(b.offsets, b.name);
  });
  file.data_begin_ = 8 + header->size();
  const std::span<const std::byte> data = bytes.subspan(file.data_begin_);
  std::uint64_t at = 0;
  for (HeaderEntry& entry : entries) {
    const std::string context = fmt::format("{}: tensor {}", file.source_, quote(entry.name));
    const std::uint64_t begin = entry.offsets[0], end = entry.offsets[1];
    const auto report = [&](std::string_view code, std::string message) {
      findings.add(code, entry.byte, entry.name, fmt::format("{}: {}", context, message));
    };
    if (end < begin) {
      report("REVERSED_RANGE", fmt::format("data_offsets [{}, {}] end before they begin", begin, end));
      continue;
    }
    // A hole may be that of an entry which was reported and left out.
    if (begin < at || (begin > at && handler.is_complete()))
      report(begin < at ? "OVERLAP" : "HOLE",
             fmt::format("its data begins at byte {}, but the data before it ends at byte {}; {}", begin, at,
                         begin < at ? "tensors must not overlap" : "holes are not allowed"));
    const std::optional<std::uint64_t> needed = bytes_of(entry, context, findings);
    if (needed && end - begin != *needed)
      report("SIZE_MISMATCH", fmt::format("{} [{}] takes {} bytes, but data_offsets span {}", entry.dtype,
                                          fmt::join(entry.shape, ", "), *needed, end - begin));
    at = std::max(at, end);
    if (end > data.size()) {
      report("TRUNCATED", fmt::format("its data ends at byte {} of {}; the file is truncated", end, data.size()));
      continue;
    }
    file.index_.emplace(entry.name, file.tensors_.size());
    file.tensors_.push_back({std::move(entry.name), std::move(entry.dtype), Shape(std::move(entry.shape)),
                             data.subspan(begin, end - begin)});
  }
  if (at < data.size() && handler.is_complete())
    findings.add(
        "TRAILING_BYTES", file.data_begin_ + at, "",
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
