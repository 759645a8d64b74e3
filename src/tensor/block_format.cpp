#include "tensor/block_format.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <cctype>
#include <cmath>
#include <iterator>

#include "base/threads.hpp"
#include "tensor/block_codec.hpp"

namespace weft {
namespace {

using namespace codec;

/// f16 scales at these places of each block.
template <DType type, std::size_t... places>
std::size_t find_bad_scale(const std::byte* blocks, std::size_t count) {
  constexpr auto block_bytes = static_cast<std::size_t>(element(type).block_bytes);
  for (std::size_t i = 0; i < count; ++i)
    // An exponent of all ones is infinity or NaN.
    if ((((load<std::uint16_t>(blocks + i * block_bytes + places) & 0x7C00u) == 0x7C00u) || ...)) return i;
  return count;
}
template <class Bits, Bits exponent>
std::size_t find_bad_value(const std::byte* values, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i)
    if ((load<Bits>(values + i * sizeof(Bits)) & exponent) == exponent) return i;
  return count;
}
/// The exponent byte 255 of the microscaling formats is NaN.
std::size_t find_bad_exponent(const std::byte* blocks, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i)
    if (blocks[17 * i] == std::byte{255}) return i;
  return count;
}
std::size_t all_finite(const std::byte*, std::size_t count) { return count; }

/// The name of a type in capitals.
template <DType type>
constexpr auto kCapitals = [] {
  std::array<char, name_of(type).size()> text;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = name_of(type)[i];
    text[i] = c >= 'a' && c <= 'z' ? static_cast<char>(c - 'a' + 'A') : c;
  }
  return text;
}();

template <DType type>
constexpr BlockFormat format_of(int file_type, void (*dequantise)(const std::byte*, float*, std::size_t),
                                void (*quantise)(const float*, std::byte*, std::size_t),
                                std::size_t (*find_not_finite)(const std::byte*, std::size_t)) {
  const Element& row = element(type);
  return {type,
          {kCapitals<type>.data(), kCapitals<type>.size()},
          static_cast<std::uint32_t>(row.gguf),
          is_block(type) ? static_cast<std::size_t>(row.block_bytes) : size_bytes(type),
          static_cast<std::size_t>(row.block_elements),
          file_type,
          dequantise,
          quantise,
          find_not_finite};
}

constexpr BlockFormat kFormats[] = {
    // type (general.file_type, ...)
    format_of<DType::f32>(0, dequantise_f32, quantise_f32, find_bad_value<std::uint32_t, 0x7F800000u>),
    format_of<DType::f16>(1, dequantise_f16, quantise_f16, find_bad_value<std::uint16_t, 0x7C00u>),
    format_of<DType::bf16>(32, dequantise_bf16, quantise_bf16, find_bad_value<std::uint16_t, 0x7F80u>),
    format_of<DType::f64>(-1, dequantise_f64, quantise_f64, find_bad_value<std::uint64_t, 0x7FF0000000000000u>),
    format_of<DType::i8>(-1, dequantise_i8, nullptr, all_finite),
    format_of<DType::i16>(-1, dequantise_i16, nullptr, all_finite),
    format_of<DType::i32>(-1, dequantise_i32, nullptr, all_finite),
    format_of<DType::i64>(-1, dequantise_i64, nullptr, all_finite),
    format_of<DType::q4_0>(2, dequantise_q4_0, quantise_q4_0, find_bad_scale<DType::q4_0, 0>),
    format_of<DType::q4_1>(3, dequantise_q4_1, quantise_q4_1, find_bad_scale<DType::q4_1, 0, 2>),
    format_of<DType::q5_0>(8, dequantise_q5_0, quantise_q5_0, find_bad_scale<DType::q5_0, 0>),
    format_of<DType::q5_1>(9, dequantise_q5_1, quantise_q5_1, find_bad_scale<DType::q5_1, 0, 2>),
    format_of<DType::q8_0>(7, dequantise_q8_0, quantise_q8_0, find_bad_scale<DType::q8_0, 0>),
    format_of<DType::q2_k>(10, dequantise_q2_k, quantise_q2_k, find_bad_scale<DType::q2_k, 80, 82>),
    format_of<DType::q3_k>(11, dequantise_q3_k, quantise_q3_k, find_bad_scale<DType::q3_k, 108>),
    format_of<DType::q4_k>(14, dequantise_q4_k, quantise_q4_k, find_bad_scale<DType::q4_k, 0, 2>),
    format_of<DType::q5_k>(16, dequantise_q5_k, quantise_q5_k, find_bad_scale<DType::q5_k, 0, 2>),
    format_of<DType::q6_k>(18, dequantise_q6_k, quantise_q6_k, find_bad_scale<DType::q6_k, 208>),
    format_of<DType::iq4_nl>(25, dequantise_iq4_nl, quantise_iq4_nl, find_bad_scale<DType::iq4_nl, 0>),
    format_of<DType::iq4_xs>(30, dequantise_iq4_xs, quantise_iq4_xs, find_bad_scale<DType::iq4_xs, 0>),
    format_of<DType::mxfp4>(38, dequantise_mxfp4, quantise_mxfp4, find_bad_exponent),
};

// Places of the formats by type; -1: model files do not hold the type.
constexpr auto kPlaces = [] {
  std::array<signed char, kDTypeCount> places;
  for (signed char& place : places) place = -1;
  for (std::size_t i = 0; i < std::size(kFormats); ++i)
    places[static_cast<std::size_t>(kFormats[i].type)] = static_cast<signed char>(i);
  return places;
}();
// Every type with a number in GGUF has a format.
static_assert([] {
  for (const Element& row : kElements)
    if ((row.gguf >= 0) != (kPlaces[static_cast<std::size_t>(row.type)] >= 0)) return false;
  return true;
}());

struct UnreadType {
  std::uint32_t id;
  std::string_view name;
};
constexpr UnreadType kUnread[] = {
    {4, "Q4_2 (withdrawn)"},
    {5, "Q4_3 (withdrawn)"},
    {9, "Q8_1"},
    {15, "Q8_K"},
    {16, "IQ2_XXS"},
    {17, "IQ2_XS"},
    {18, "IQ3_XXS"},
    {19, "IQ1_S"},
    {21, "IQ3_S"},
    {22, "IQ2_S"},
    {29, "IQ1_M"},
    {31, "Q4_0_4_4 (withdrawn)"},
    {32, "Q4_0_4_8 (withdrawn)"},
    {33, "Q4_0_8_8 (withdrawn)"},
    {34, "TQ1_0"},
    {35, "TQ2_0"},
    {40, "NVFP4"},
    {41, "Q1_0"},
};

bool equal_ignoring_case(std::string_view a, std::string_view b) {
  if (a.size() != b.size()) return false;
  for (std::size_t i = 0; i < a.size(); ++i)
    if (std::toupper(static_cast<unsigned char>(a[i])) != std::toupper(static_cast<unsigned char>(b[i]))) return false;
  return true;
}

/// Blocks in `bytes`, which must be whole ones.
std::size_t count_of(const BlockFormat& format, std::span<const std::byte> bytes) {
  if (bytes.size() % format.block_bytes != 0)
    throw UsageError(fmt::format("{} bytes are not a whole number of blocks of {} ({} bytes each); give whole blocks",
                                 bytes.size(), format.name, format.block_bytes));
  return bytes.size() / format.block_bytes;
}
std::size_t count_of(const BlockFormat& format, std::span<const std::byte> blocks, std::size_t values) {
  const std::size_t count = count_of(format, blocks);
  if (count != values / format.block_elements || values % format.block_elements != 0)
    throw UsageError(fmt::format("{} bytes of {} hold {} values, but {} are given; make the sizes fit", blocks.size(),
                                 format.name, count * format.block_elements, values));
  return count;
}

}  // namespace

std::span<const BlockFormat> block_formats() { return kFormats; }
const BlockFormat& block_format(BlockType type) {
  const int place = kPlaces[static_cast<std::size_t>(type)];
  if (place < 0)
    throw UsageError(
        fmt::format("model files cannot hold {}; cast it to one of {}", name_of(type), block_format_list()));
  return kFormats[place];
}

const BlockFormat* find_block_format(std::string_view name) {
  for (const BlockFormat& format : kFormats)
    if (equal_ignoring_case(format.name, name)) return &format;
  return nullptr;
}

const BlockFormat* find_block_format(std::uint32_t gguf_id) {
  for (const BlockFormat& format : kFormats)
    if (format.gguf_id == gguf_id) return &format;
  return nullptr;
}

std::string_view unread_gguf_type(std::uint32_t gguf_id) {
  for (const UnreadType& type : kUnread)
    if (type.id == gguf_id) return type.name;
  return "";
}

std::string block_format_list(bool can_quantise_only) {
  std::string list;
  for (const BlockFormat& format : kFormats)
    if (!can_quantise_only || format.can_quantise()) list += (list.empty() ? "" : ", ") + std::string(format.name);
  return list;
}

void dequantise(BlockType type, std::span<const std::byte> blocks, std::span<float> values) {
  const BlockFormat& format = block_format(type);
  const std::size_t count = count_of(format, blocks, values.size());
  if (count > 0) format.dequantise(blocks.data(), values.data(), count);
}

void quantise(BlockType type, std::span<const float> values, std::span<std::byte> blocks) {
  const BlockFormat& format = block_format(type);
  if (!format.can_quantise())
    throw UsageError(fmt::format("Weft cannot round to {}; choose one of {}", format.name, block_format_list(true)));
  const std::size_t count = count_of(format, blocks, values.size());
  if (!format.is_plain())
    for (std::size_t i = 0; i < values.size(); ++i)
      if (!std::isfinite(values[i]))
        throw UsageError(
            fmt::format("value {} is {}, and blocks of {} hold finite values only; mend the source, or keep "
                        "F32",
                        i, values[i], format.name));
  if (count > 0) format.quantise(values.data(), blocks.data(), count);
}

std::optional<std::uint64_t> find_not_finite(BlockType type, std::span<const std::byte> blocks) {
  const BlockFormat& format = block_format(type);
  const std::size_t count = count_of(format, blocks);
  // The first of each task's blocks, and of those the first.
  constexpr std::size_t kTaskBytes = 256 * 1024;
  const std::size_t step = kTaskBytes / format.block_bytes, tasks = (count + step - 1) / step;
  std::atomic<std::size_t> first = count;
  parallel_for(static_cast<std::int64_t>(tasks), [&](std::int64_t task) {
    const std::size_t begin = static_cast<std::size_t>(task) * step, size = std::min(step, count - begin);
    const std::size_t bad = format.find_not_finite(blocks.data() + begin * format.block_bytes, size);
    if (bad == size) return;
    std::size_t known = first.load(std::memory_order_relaxed);
    while (begin + bad < known && !first.compare_exchange_weak(known, begin + bad, std::memory_order_relaxed)) {
    }
  });
  const std::size_t bad = first.load(std::memory_order_relaxed);
  if (bad == count) return std::nullopt;
  return std::uint64_t{bad} * format.block_elements;
}

}  // namespace weft
