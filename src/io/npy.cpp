#include "io/npy.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstring>

#include "base/checked.hpp"
#include "base/quote.hpp"
#include "io/npy_header.hpp"
#include "weft/error.hpp"

namespace weft::io {
namespace {

static_assert(std::endian::native == std::endian::little, "files and tensors are little-endian");

constexpr std::string_view kMagic = "\x93NUMPY";
constexpr std::size_t kNpyHeaderBytesMax = 10'000;  // NumPy's own limit for files that are not trusted
constexpr std::size_t kAlignment = 64;              // of the data, as NumPy writes it

/// How the elements of a file are stored.
struct Stored {
  DType dtype;
  std::size_t size;  ///< bytes of an element in the file
  bool swapped;      ///< big-endian
};

[[noreturn]] void refuse_descr(const std::string& descr, std::string_view source, std::string_view what,
                               std::string_view cure) {
  throw FileError(fmt::format("{}: descr {} is {}; {}", source, quote(descr, 40), what, cure));
}

Stored stored_as(const std::string& descr, std::string_view source) {
  constexpr std::string_view kSaveAgain = "save the array again with numpy.save";
  constexpr std::string_view kToFloat = "convert it first, for example array.astype('float32')";
  if (descr.empty()) refuse_descr(descr, source, "empty", kSaveAgain);
  const char order = descr[0];
  const std::string type = descr.substr(1);
  if (order != '<' && order != '>' && order != '|')
    refuse_descr(descr, source, "without a byte order (<, > or |)", kSaveAgain);
  if (type.starts_with('O'))
    refuse_descr(descr, source, "an array of Python objects, which only running code could load", kToFloat);
  for (const Element& row : kElements) {
    if (row.npy.empty() || type != row.npy) continue;
    const std::size_t size = size_bytes(row.type);
    if (size == 1 || order != '|') return {row.type, size, size > 1 && order == '>'};
  }
  for (const char* other : {"f16", "c8", "c16", "c32"})
    if (type == other)
      refuse_descr(descr, source,
                   fmt::format("not a type of Weft's arrays, which are {}",
                               dtype_list([](const Element& row) { return !row.npy.empty(); })),
                   kToFloat);
  refuse_descr(descr, source, "not a type of numbers", kToFloat);
}

void swap_bytes(std::vector<std::byte>& data, std::size_t size) {
  for (std::size_t at = 0; at < data.size(); at += size)
    std::reverse(data.begin() + static_cast<std::ptrdiff_t>(at), data.begin() + static_cast<std::ptrdiff_t>(at + size));
}

/// Column-major bytes to row-major.
std::vector<std::byte> transposed(std::span<const std::byte> data, const Shape& shape, std::size_t size) {
  std::vector<std::byte> result(data.size());
  std::vector<std::size_t> index(shape.size(), 0), strides(shape.size(), size);
  for (int axis = 1; axis < shape.rank(); ++axis)
    strides[static_cast<std::size_t>(axis)] =
        strides[static_cast<std::size_t>(axis - 1)] * static_cast<std::size_t>(shape[axis - 1]);
  std::size_t from = 0;
  for (std::size_t to = 0; to < result.size(); to += size) {
    std::memcpy(result.data() + to, data.data() + from, size);
    for (int axis = shape.rank() - 1; axis >= 0; --axis) {  // the odometer of row-major order
      const auto a = static_cast<std::size_t>(axis);
      from += strides[a];
      if (++index[a] < static_cast<std::size_t>(shape[axis])) break;
      from -= strides[a] * index[a];
      index[a] = 0;
    }
  }
  return result;
}

std::string descr_of(DType dtype) {
  const Element& row = element(dtype);
  if (row.npy.empty())
    throw UsageError(fmt::format("npy: the format has no {}; save it as safetensors, or cast it to f32", row.name));
  return fmt::format("{}{}", row.bits == 8 ? '|' : '<', row.npy);
}

/// Everything before the data.
std::string preamble_of(const Array& array) {
  const std::string descr = descr_of(array.dtype);
  const std::uint64_t needed = checked_multiply<UsageError, std::uint64_t>(
      checked_numel<UsageError>(array.shape, "npy"), size_bytes(array.dtype), "npy");
  if (needed != array.data.size())
    throw UsageError(fmt::format("npy: {} [{}] takes {} bytes, but {} are given", name_of(array.dtype),
                                 fmt::join(array.shape, ", "), needed, array.data.size()));
  const std::string dictionary = fmt::format("{{'descr': '{}', 'fortran_order': False, 'shape': ({}{}), }}", descr,
                                             fmt::join(array.shape, ", "), array.shape.rank() == 1 ? "," : "");
  const std::size_t prefix = kMagic.size() + 4;
  const std::size_t total = (prefix + dictionary.size() + 1 + kAlignment - 1) / kAlignment * kAlignment;
  const std::size_t length = total - prefix;
  if (length > kNpyHeaderBytesMax)
    throw UsageError(
        fmt::format("npy: a shape of rank {} does not fit the header; reshape the array first", array.shape.rank()));
  std::string text = std::string(kMagic) + std::string("\x01\x00", 2);
  text += static_cast<char>(length & 0xFF);
  text += static_cast<char>(length >> 8);
  text += dictionary + std::string(length - dictionary.size() - 1, ' ') + "\n";
  return text;
}

}  // namespace

Array parse_npy(std::span<const std::byte> bytes, std::string_view source) {
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  const auto fail = [&](const std::string& what) { throw FileError(fmt::format("{}: {}", source, what)); };
  if (!text.starts_with(kMagic)) fail("does not begin with \\x93NUMPY; it is not a .npy file");
  if (text.size() < 8) fail("ends within the version; it is truncated");
  const int major = static_cast<unsigned char>(text[6]), minor = static_cast<unsigned char>(text[7]);
  if (major < 1 || major > 3 || minor != 0)
    fail(fmt::format("version {}.{} of the format is unknown; save the array again with numpy.save", major, minor));
  const std::size_t length_bytes = major == 1 ? 2 : 4, header_at = 8 + length_bytes;
  if (text.size() < header_at) fail("ends within the header length; it is truncated");
  std::size_t length = 0;
  for (std::size_t i = length_bytes; i-- > 0;) length = length << 8 | static_cast<unsigned char>(text[8 + i]);
  if (length > kNpyHeaderBytesMax)
    fail(fmt::format("the header length {} is over the limit of {}; save the array again with numpy.save", length,
                     kNpyHeaderBytesMax));
  if (length > text.size() - header_at)
    fail(fmt::format("the header of {} bytes reaches past the end of the file; it is truncated", length));
  const std::string_view header_text = text.substr(header_at, length);
  if (!header_text.ends_with('\n')) fail("the header does not end in a newline; save the array again with numpy.save");

  NpyHeader header = parse_npy_header(header_text, source);
  const Stored stored = stored_as(header.descr, source);
  Shape shape(std::move(header.shape));
  const std::uint64_t needed =
      checked_multiply<FileError, std::uint64_t>(checked_numel(shape, source), stored.size, source);
  const std::span<const std::byte> data = bytes.subspan(header_at + length);
  if (data.size() < needed)
    fail(fmt::format("the array takes {} bytes, but only {} follow the header; the file is truncated", needed,
                     data.size()));
  if (data.size() > needed)
    fail(fmt::format("{} bytes follow the array; keep one array in a .npy file, several in a .npz",
                     data.size() - needed));

  Array array{stored.dtype, std::move(shape), {}};
  array.data = header.fortran_order && array.shape.rank() > 1 ? transposed(data, array.shape, stored.size)
                                                              : std::vector<std::byte>(data.begin(), data.end());
  if (stored.swapped) swap_bytes(array.data, stored.size);
  if (stored.dtype == DType::boolean)
    for (std::size_t i = 0; i < array.data.size(); ++i)
      if (array.data[i] > std::byte{1})
        fail(fmt::format("element {} of b1 is the byte {}; only 0 and 1 are truth values", i,
                         static_cast<int>(array.data[i])));
  return array;
}

Array read_npy(const std::filesystem::path& path) { return parse_npy(MappedFile(path).bytes(), path.string()); }

std::vector<std::byte> npy_bytes(const Array& array) {
  const std::string preamble = preamble_of(array);
  const auto head = std::as_bytes(std::span(preamble));
  std::vector<std::byte> bytes(head.begin(), head.end());
  bytes.insert(bytes.end(), array.data.begin(), array.data.end());
  return bytes;
}

void write_npy(const std::filesystem::path& path, const Array& array, AtomicFileOptions options) {
  const std::string preamble = preamble_of(array);
  options.expected_bytes = std::max<std::uint64_t>(options.expected_bytes, preamble.size() + array.data.size());
  write_file_atomically(
      path,
      [&](AtomicFile& file) {
        file.write(preamble);
        file.write(array.data);
      },
      options);
}

}  // namespace weft::io
