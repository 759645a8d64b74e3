#include "tensor/block_format.hpp"

#include <algorithm>
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
template <std::size_t block_bytes, std::size_t... places>
std::size_t find_bad_scale(const std::byte* blocks, std::size_t count) {
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

using T = BlockType;
constexpr BlockFormat kFormats[] = {
    // type, name, GGUF id, file type, bytes and elements of a block
    {T::f32, "F32", 0, 0, 4, 1, dequantise_f32, quantise_f32, find_bad_value<std::uint32_t, 0x7F800000u>},
    {T::f16, "F16", 1, 1, 2, 1, dequantise_f16, quantise_f16, find_bad_value<std::uint16_t, 0x7C00u>},
    {T::bf16, "BF16", 30, 32, 2, 1, dequantise_bf16, quantise_bf16, find_bad_value<std::uint16_t, 0x7F80u>},
    {T::f64, "F64", 28, -1, 8, 1, dequantise_f64, quantise_f64, find_bad_value<std::uint64_t, 0x7FF0000000000000u>},
    {T::i8, "I8", 24, -1, 1, 1, dequantise_i8, nullptr, all_finite},
    {T::i16, "I16", 25, -1, 2, 1, dequantise_i16, nullptr, all_finite},
    {T::i32, "I32", 26, -1, 4, 1, dequantise_i32, nullptr, all_finite},
    {T::i64, "I64", 27, -1, 8, 1, dequantise_i64, nullptr, all_finite},
    {T::q4_0, "Q4_0", 2, 2, 18, 32, dequantise_q4_0, quantise_q4_0, find_bad_scale<18, 0>},
    {T::q4_1, "Q4_1", 3, 3, 20, 32, dequantise_q4_1, quantise_q4_1, find_bad_scale<20, 0, 2>},
    {T::q5_0, "Q5_0", 6, 8, 22, 32, dequantise_q5_0, quantise_q5_0, find_bad_scale<22, 0>},
    {T::q5_1, "Q5_1", 7, 9, 24, 32, dequantise_q5_1, quantise_q5_1, find_bad_scale<24, 0, 2>},
    {T::q8_0, "Q8_0", 8, 7, 34, 32, dequantise_q8_0, quantise_q8_0, find_bad_scale<34, 0>},
    {T::q2_k, "Q2_K", 10, 10, 84, 256, dequantise_q2_k, quantise_q2_k, find_bad_scale<84, 80, 82>},
    {T::q3_k, "Q3_K", 11, 11, 110, 256, dequantise_q3_k, quantise_q3_k, find_bad_scale<110, 108>},
    {T::q4_k, "Q4_K", 12, 14, 144, 256, dequantise_q4_k, quantise_q4_k, find_bad_scale<144, 0, 2>},
    {T::q5_k, "Q5_K", 13, 16, 176, 256, dequantise_q5_k, quantise_q5_k, find_bad_scale<176, 0, 2>},
    {T::q6_k, "Q6_K", 14, 18, 210, 256, dequantise_q6_k, quantise_q6_k, find_bad_scale<210, 208>},
    {T::iq4_nl, "IQ4_NL", 20, 25, 18, 32, dequantise_iq4_nl, quantise_iq4_nl, find_bad_scale<18, 0>},
    {T::iq4_xs, "IQ4_XS", 23, 30, 136, 256, dequantise_iq4_xs, quantise_iq4_xs, find_bad_scale<136, 0>},
    {T::mxfp4, "MXFP4", 39, 38, 17, 32, dequantise_mxfp4, quantise_mxfp4, find_bad_exponent},
};

// `block_format` looks rows up by their place.
constexpr bool rows_stand_in_order() {
  for (std::size_t i = 0; i < std::size(kFormats); ++i)
    if (kFormats[i].type != static_cast<BlockType>(i)) return false;
  return std::size(kFormats) == static_cast<std::size_t>(BlockType::mxfp4) + 1;
}
static_assert(rows_stand_in_order());

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
    throw UsageError(fmt::format("{} bytes are no whole blocks of {} ({} bytes each); give whole blocks", bytes.size(),
                                 format.name, format.block_bytes));
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
const BlockFormat& block_format(BlockType type) { return kFormats[static_cast<std::size_t>(type)]; }

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
    throw UsageError(fmt::format("{} takes no rounded values; choose one of {}", format.name, block_format_list(true)));
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
