#include "backend/webgpu/quantised_pack.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstring>

#include "base/threads.hpp"
#include "tensor/block_k.hpp"
#include "tensor/block_read.hpp"

namespace weft::webgpu {
namespace {

/// Converts to bytes that kernels multiply: table entries instead of indices. Formats of 256 elements have eight or sixteen
/// codes; kernels take one for each 16 elements.
void prepare(BlockType type, const QuantForm& form, UnpackedBlock& block) {
  const auto look_up = [&](const int* table, int count) {
    for (int i = 0; i < count; ++i) block.q[i] = static_cast<std::uint8_t>(table[block.q[i]]);
  };
  if (type == BlockType::iq4_nl) look_up(codec::kIq4, 32);
  if (type == BlockType::iq4_xs) look_up(codec::kIq4, codec::kSuper);
  if (type == BlockType::mxfp4) look_up(codec::kE2m1, 32);
  if (form.scales != QuantScales::coded || form.group == 16) return;
  for (int j = 8; j-- > 0;) {
    block.codes[2 * j] = block.codes[2 * j + 1] = block.codes[j];
    block.minimum_codes[2 * j] = block.minimum_codes[2 * j + 1] = block.minimum_codes[j];
  }
}

std::uint32_t word_of(const std::uint8_t* bytes) {
  return bytes[0] | std::uint32_t{bytes[1]} << 8 | std::uint32_t{bytes[2]} << 16 | std::uint32_t{bytes[3]} << 24;
}

/// The integers of 32 elements.
void write_values(const QuantForm& form, const std::uint8_t* q, std::uint32_t* values, std::uint32_t* high) {
  for (int c = 0; c < 8; ++c) {
    const std::uint32_t four = word_of(q + 4 * c);
    if (form.values == QuantValues::byte)
      values[c] = four;
    else
      values[c / 2] |= (four & 0x0F0F0F0Fu) << 4 * (c % 2);
    if (form.planes == 1) high[0] |= (four >> 4 & 0x01010101u) << c;
    if (form.planes == 2) high[c / 4] |= (four >> 4 & 0x03030303u) << 2 * (c % 4);
  }
}

/// Converts the output of `prepare` and `write_values` back to the form of `read_block`.
void restore(BlockType type, const QuantForm& form, UnpackedBlock& block) {
  const auto find = [&](const int* table, int count) {
    for (int i = 0; i < count; ++i)
      block.q[i] =
          static_cast<std::uint8_t>(std::find(table, table + 16, static_cast<std::int8_t>(block.q[i])) - table);
  };
  if (type == BlockType::iq4_nl) find(codec::kIq4, 32);
  if (type == BlockType::iq4_xs) find(codec::kIq4, codec::kSuper);
  if (type == BlockType::mxfp4) find(codec::kE2m1, 32);
  if (form.scales != QuantScales::coded || form.group == 16) return;
  for (int j = 0; j < 8; ++j) {
    block.codes[j] = block.codes[2 * j];
    block.minimum_codes[j] = block.minimum_codes[2 * j];
  }
}

void read_values(const QuantForm& form, const std::uint32_t* values, const std::uint32_t* high, std::uint8_t* q) {
  for (int c = 0; c < 8; ++c) {
    std::uint32_t four = form.values == QuantValues::byte ? values[c] : values[c / 2] >> 4 * (c % 2) & 0x0F0F0F0Fu;
    if (form.planes == 1) four |= (high[0] >> c & 0x01010101u) << 4;
    if (form.planes == 2) four |= (high[c / 4] >> 2 * (c % 4) & 0x03030303u) << 4;
    for (int i = 0; i < 4; ++i) q[4 * c + i] = static_cast<std::uint8_t>(four >> 8 * i);
  }
}

/// Throws ShapeError unless `given` is the number of bytes of [n, k].
void check_blocks(BlockType type, std::size_t given, Extent n, Extent k) {
  if (given != bytes_for<ShapeError>(type, Shape{n, k}, "packed matrix"))
    throw ShapeError(
        fmt::format("packed matrix: {} bytes are not a [{}, {}] matrix of {}", given, n, k, name_of(type)));
}

Extent whole(Extent words) { return (words + 63) / 64 * 64; }

}  // namespace

QuantForm quant_form(BlockType type) {
  using V = QuantValues;
  using S = QuantScales;
  switch (type) {
    case BlockType::f32: return {.values = V::f32};
    case BlockType::bf16: return {.values = V::bf16};
    case BlockType::q4_0: return {.values = V::nibble, .scales = S::half, .zero = 8};
    case BlockType::q4_1: return {.values = V::nibble, .scales = S::half, .has_minimum = true};
    case BlockType::q5_0: return {.values = V::nibble, .scales = S::half, .zero = 16, .planes = 1};
    case BlockType::q5_1: return {.values = V::nibble, .scales = S::half, .has_minimum = true, .planes = 1};
    case BlockType::q8_0:
    case BlockType::iq4_nl: return {.values = V::byte, .scales = S::half};
    case BlockType::q2_k: return {.values = V::nibble, .scales = S::coded, .has_minimum = true, .group = 16};
    case BlockType::q3_k: return {.values = V::nibble, .scales = S::coded, .group = 16, .zero = 4};
    case BlockType::q4_k: return {.values = V::nibble, .scales = S::coded, .has_minimum = true};
    case BlockType::q5_k: return {.values = V::nibble, .scales = S::coded, .has_minimum = true, .planes = 1};
    case BlockType::q6_k: return {.values = V::nibble, .scales = S::coded, .group = 16, .zero = 32, .planes = 2};
    case BlockType::iq4_xs: return {.values = V::byte, .scales = S::coded};
    case BlockType::mxfp4: return {.values = V::byte, .scales = S::single};
    default: return {};
  }
}

bool has_quantised_products(BlockType type) {
  return type == BlockType::f16 || quant_form(type).values != QuantValues::f16;
}

QuantLayout quant_layout(const QuantForm& form, Extent n, Extent k) {
  QuantLayout at;
  at.blocks = (k + kQuantBlock - 1) / kQuantBlock;
  const Extent all = checked_multiply<ShapeError>(n, at.blocks, "packed matrix");
  checked_multiply<ShapeError>(all, Extent{256}, "packed matrix");
  at.high = whole(all * form.value_words());
  at.scales = at.high + whole(all * form.planes);
  at.factors = at.scales + (form.scales == QuantScales::none ? 0 : whole(all));
  at.words = at.factors + (form.scales == QuantScales::coded ? whole(all / 8) : 0);
  return at;
}

std::vector<std::uint32_t> pack_quantised(BlockType type, std::span<const std::byte> blocks, Extent n, Extent k) {
  const BlockFormat& format = block_format(type);
  const auto elements = static_cast<Extent>(format.block_elements), bytes = static_cast<Extent>(format.block_bytes);
  check_blocks(type, blocks.size(), n, k);
  const QuantForm form = quant_form(type);
  const QuantLayout at = quant_layout(form, n, k);
  std::vector<std::uint32_t> words(static_cast<std::size_t>(at.words));
  const Extent row_bytes = k / elements * bytes;
  parallel_for(n, [&](Extent row) {
    const std::byte* from = blocks.data() + row * row_bytes;
    if (form.scales == QuantScales::none) {
      std::memcpy(words.data() + row * at.blocks * form.value_words(), from, static_cast<std::size_t>(row_bytes));
      return;
    }
    UnpackedBlock block;
    for (Extent b = 0; b < at.blocks; from += bytes) {
      read_block(type, from, block);
      prepare(type, form, block);
      for (int part = 0; part < elements / kQuantBlock; ++part, ++b) {
        const auto i = static_cast<std::size_t>(row * at.blocks + b);
        write_values(form, block.q + 32 * part, words.data() + i * static_cast<std::size_t>(form.value_words()),
                     words.data() + static_cast<std::size_t>(at.high) + i * static_cast<std::size_t>(form.planes));
        std::uint32_t& scale = words[static_cast<std::size_t>(at.scales) + i];
        if (form.scales == QuantScales::half) scale = block.scale | std::uint32_t{block.minimum} << 16;
        if (form.scales == QuantScales::single) scale = std::bit_cast<std::uint32_t>(block.single);
        if (form.scales == QuantScales::coded) {
          const std::int8_t* codes = block.codes + 2 * part;
          const std::int8_t* minimums = block.minimum_codes + 2 * part;
          for (int half = 0; half < 2; ++half) {
            scale |= std::uint32_t{static_cast<std::uint8_t>(codes[half])} << 16 * half;
            if (form.has_minimum) scale |= std::uint32_t{static_cast<std::uint8_t>(minimums[half])} << (16 * half + 8);
          }
          words[static_cast<std::size_t>(at.factors) + i / 8] = block.scale | std::uint32_t{block.minimum} << 16;
        }
      }
    }
  });
  return words;
}

void unpack_quantised(BlockType type, std::span<const std::uint32_t> words, Extent n, Extent k,
                      std::span<std::byte> blocks) {
  check_blocks(type, blocks.size(), n, k);
  const QuantForm form = quant_form(type);
  const QuantLayout at = quant_layout(form, n, k);
  const BlockFormat& format = block_format(type);
  const auto elements = static_cast<Extent>(format.block_elements), bytes = static_cast<Extent>(format.block_bytes);
  const Extent row_bytes = k / elements * bytes;
  parallel_for(n, [&](Extent row) {
    std::byte* to = blocks.data() + row * row_bytes;
    if (form.scales == QuantScales::none) {
      std::memcpy(to, words.data() + row * at.blocks * form.value_words(), static_cast<std::size_t>(row_bytes));
      return;
    }
    UnpackedBlock block;
    for (Extent b = 0; b < at.blocks; to += bytes) {
      for (int part = 0; part < elements / kQuantBlock; ++part, ++b) {
        const auto i = static_cast<std::size_t>(row * at.blocks + b);
        read_values(form, words.data() + i * static_cast<std::size_t>(form.value_words()),
                    words.data() + static_cast<std::size_t>(at.high) + i * static_cast<std::size_t>(form.planes),
                    block.q + 32 * part);
        const std::uint32_t scale = words[static_cast<std::size_t>(at.scales) + i];
        if (form.scales == QuantScales::single) block.single = std::bit_cast<float>(scale);
        const std::uint32_t factors =
            form.scales == QuantScales::coded ? words[static_cast<std::size_t>(at.factors) + i / 8] : scale;
        block.scale = static_cast<std::uint16_t>(factors);
        block.minimum = static_cast<std::uint16_t>(factors >> 16);
        if (form.scales == QuantScales::coded)
          for (int half = 0; half < 2; ++half) {
            block.codes[2 * part + half] = static_cast<std::int8_t>(scale >> 16 * half);
            block.minimum_codes[2 * part + half] = static_cast<std::int8_t>(scale >> (16 * half + 8));
          }
      }
      restore(type, form, block);
      write_block(type, block, to);
    }
  });
}

}  // namespace weft::webgpu
