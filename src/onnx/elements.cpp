// The elements of tensors in ONNX files: in a field of raw bytes, in fields of numbers, or in files beside the model.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cstring>

#include "base/checked.hpp"
#include "base/file.hpp"
#include "base/quote.hpp"
#include "onnx/proto.hpp"

namespace weft::onnx {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kElementTypeNames[] = {
    "UNDEFINED", "FLOAT",      "UINT8",      "INT8",         "UINT16",         "INT16",      "INT32",
    "INT64",     "STRING",     "BOOL",       "FLOAT16",      "DOUBLE",         "UINT32",     "UINT64",
    "COMPLEX64", "COMPLEX128", "BFLOAT16",   "FLOAT8E4M3FN", "FLOAT8E4M3FNUZ", "FLOAT8E5M2", "FLOAT8E5M2FNUZ",
    "UINT4",     "INT4",       "FLOAT4E2M1", "FLOAT8E8M0",   "UINT2",          "INT2"};

// The file of external data: a plain relative path that stays inside of the folder also when links are followed.
fs::path external_path(const TensorProto::External& external, const std::string& context, const fs::path& folder) {
  const auto refuse = [&](std::string_view fact) {
    throw FileError(fmt::format("{}: external data at {} {}", context, quote(external.location), fact));
  };
  if (folder.empty()) refuse("needs the folder of the model; load the model from a file");
  if (external.location.empty()) refuse("has no location");
  if (external.location.find('\0') != std::string_view::npos) refuse("has a NUL in its name");
  const fs::path relative(external.location);
  if (relative.is_absolute() || relative.has_root_name()) refuse("is not relative to the model");
  for (const fs::path& part : relative)
    if (part == "..") refuse("leaves the folder of the model");
  std::error_code error;
  const fs::path root = fs::canonical(folder, error);
  if (error) refuse("has no folder: " + error.message());
  const fs::path found = fs::canonical(root / relative, error);
  if (error) refuse("cannot be opened: " + error.message());
  const fs::path within = found.lexically_relative(root);
  if (within.empty() || *within.begin() == "..") refuse("leaves the folder of the model through a link");
  return found;
}

// Numbers of a field, cut to the type's bytes. Their count is checked while they are read.
void put_numbers(const TensorProto& tensor, std::uint32_t wanted, const std::string& source, const std::string& context,
                 std::size_t width, std::size_t count, std::vector<std::byte>& out) {
  for (WireReader r(tensor.message, source, "tensor"); r.next();) {
    if (r.field() != wanted) continue;
    r.each_number([&](std::uint64_t value) {
      if (out.size() == count * width)
        throw FileError(fmt::format("{}: more elements than the {} of its shape", context, count));
      const std::size_t at = out.size();
      out.resize(at + width);
      std::memcpy(out.data() + at, &value, width);
    });
  }
}

void put_fixed(const TensorProto& tensor, std::uint32_t wanted, const std::string& source, const std::string& context,
               std::size_t bytes, std::vector<std::byte>& out) {
  for (WireReader r(tensor.message, source, "tensor"); r.next();) {
    if (r.field() != wanted) continue;
    const Bytes elements = r.fixed_elements();
    if (elements.size() > bytes - out.size())
      throw FileError(fmt::format("{}: more elements than its shape has", context));
    out.insert(out.end(), elements.begin(), elements.end());
  }
}

// Bits of an element that is smaller than a byte; 0 for others.
int narrow_bits(std::int64_t type) {
  return type == kUint4 || type == kInt4 ? 4 : type == kUint2 || type == kInt2 ? 2 : 0;
}
bool is_signed_narrow(std::int64_t type) { return type == kInt4 || type == kInt2; }

// Each element in a byte of its own. The first elements of a byte are its lowest bits.
std::vector<std::byte> widened(Bytes packed, std::size_t count, int bits, bool is_signed) {
  std::vector<std::byte> wide(count);
  const unsigned mask = (1u << bits) - 1, sign = 1u << (bits - 1);
  const std::size_t each = 8 / static_cast<std::size_t>(bits);
  for (std::size_t i = 0; i < count; ++i) {
    const unsigned raw =
        std::to_integer<unsigned>(packed[i / each]) >> (i % each * static_cast<std::size_t>(bits)) & mask;
    wide[i] = static_cast<std::byte>(is_signed ? (raw ^ sign) - sign : raw);
  }
  return wide;
}

}  // namespace

bool is_narrow(std::int64_t type) { return narrow_bits(type) != 0; }

std::string element_type_name(std::int64_t type) {
  if (type >= 0 && type < static_cast<std::int64_t>(std::size(kElementTypeNames)))
    return std::string(kElementTypeNames[type]);
  return fmt::format("type {}", type);
}

DType dtype_of_element(std::int64_t type) {
  for (const DType d : kComputeDTypes)
    if (element(d).onnx == type) return d;
  throw DTypeError(fmt::format("elements of {}, which Weft does not compute with", element_type_name(type)));
}

io::Array elements_of(const TensorProto& tensor, const std::string& source, const fs::path& folder, Narrow narrow) {
  ElementView view = view_elements(tensor, source, folder, narrow);
  if (view.made.empty()) view.made.assign(view.bytes.begin(), view.bytes.end());
  return {view.dtype, std::move(view.shape), std::move(view.made)};
}

ElementView view_elements(const TensorProto& tensor, const std::string& source, const fs::path& folder, Narrow narrow) {
  const std::string context = fmt::format("{}: tensor {}", source, quote(tensor.name));
  ElementView array;
  try {
    if (narrow == Narrow::widen && is_narrow(tensor.type))
      array.dtype = is_signed_narrow(tensor.type) ? DType::i8 : DType::u8;
    else
      array.dtype = dtype_of_element(tensor.type);
  } catch (DTypeError& error) {
    throw DTypeError(fmt::format("{}: {}", context, error.what()));
  }
  array.shape = Shape(tensor.dims);
  const std::uint64_t count = checked_numel(array.shape, context);
  const int bits = narrow_bits(tensor.type);
  const std::uint64_t bytes = bits
                                  ? (count * static_cast<std::uint64_t>(bits) + 7) / 8
                                  : checked_multiply<FileError, std::uint64_t>(count, size_bytes(array.dtype), context);
  const auto check_bytes = [&](std::uint64_t given, std::string_view where) {
    if (given != bytes)
      throw FileError(fmt::format("{}: {} [{}] needs {} bytes, and {} has {}", context, name_of(array.dtype),
                                  fmt::join(tensor.dims, ", "), bytes, where, given));
  };
  if (tensor.external) {
    const fs::path path = external_path(*tensor.external, context, folder);
    array.file = std::make_shared<const MappedFile>(path);
    const std::uint64_t size = array.file->bytes().size(), offset = tensor.external->offset;
    if (offset > size)
      throw FileError(fmt::format("{}: offset {} is beyond the end of {}", context, offset, quote(path.string())));
    const std::uint64_t length = tensor.external->length.value_or(std::min(bytes, size - offset));
    check_bytes(length, "the external data");
    if (length > size - offset)
      throw FileError(fmt::format("{}: bytes {} to {} are beyond the end of {}", context, offset, offset + length,
                                  quote(path.string())));
    array.bytes = array.file->bytes().subspan(offset, length);
  } else {
    std::optional<Bytes> raw;
    for (WireReader r(tensor.message, source, "tensor"); r.next();)
      if (r.field() == 9) raw = r.bytes();
    if (raw) {
      check_bytes(raw->size(), "the file");
      array.bytes = *raw;
    } else {
      const std::size_t width = size_bytes(array.dtype);
      switch (tensor.type) {
        case kFloat: put_fixed(tensor, 4, source, context, bytes, array.made); break;
        case kDouble: put_fixed(tensor, 10, source, context, bytes, array.made); break;
        case kInt64: put_numbers(tensor, 7, source, context, width, count, array.made); break;
        case kUint32:
        case kUint64: put_numbers(tensor, 11, source, context, width, count, array.made); break;
        default: put_numbers(tensor, 5, source, context, width, bits ? bytes : count, array.made); break;
      }
      check_bytes(array.made.size(), "the file");
      array.bytes = array.made;
    }
  }
  if (bits) array.made = widened(array.bytes, count, bits, is_signed_narrow(tensor.type));
  if (array.dtype == DType::boolean) {
    if (array.made.empty()) array.made.assign(array.bytes.begin(), array.bytes.end());
    for (std::byte& b : array.made) b = b == std::byte{} ? std::byte{} : std::byte{1};
  }
  if (!array.made.empty()) array.bytes = array.made;
  return array;
}

}  // namespace weft::onnx
