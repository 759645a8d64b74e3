// Values of Q2_K to Q6_K. The formats define the order of the products: d scale is rounded before it is multiplied by q.
#include "tensor/block_k.hpp"

namespace weft::codec {

void dequantise_q2_k(const std::byte* at, float* y, std::size_t count) {
  for (; count > 0; --count, at += 84) {
    const float d = load_scale(at + 80), dmin = load_scale(at + 82);
    for (int group = 0; group < 16; ++group, y += 16) {
      const float scale = d * static_cast<float>(low_nibble(at[group]));
      const float minimum = dmin * static_cast<float>(high_nibble(at[group]));
      const std::byte* q = at + 16 + 32 * (group / 8) + 16 * (group % 2);
      const int shift = 2 * (group / 2 % 4);
      for (int i = 0; i < 16; ++i) y[i] = scale * static_cast<float>(static_cast<int>(q[i]) >> shift & 3) - minimum;
    }
  }
}

void dequantise_q3_k(const std::byte* at, float* y, std::size_t count) {
  for (; count > 0; --count, at += 110) {
    const float d = load_scale(at + 108);
    for (int group = 0; group < 16; ++group, y += 16) {
      const float scale = d * static_cast<float>(static_cast<int>(load_q3_scale(at + 96, group)) - 32);
      const std::byte* third = at + 16 * (group % 2);
      const std::byte* q = at + 32 + 32 * (group / 8) + 16 * (group % 2);
      const int shift = 2 * (group / 2 % 4), bit = group / 2;
      for (int i = 0; i < 16; ++i) {
        const int low = static_cast<int>(q[i]) >> shift & 3, high = static_cast<int>(third[i]) >> bit & 1;
        y[i] = scale * static_cast<float>(low + 4 * high - 4);
      }
    }
  }
}

void dequantise_q4_k(const std::byte* at, float* y, std::size_t count) {
  for (; count > 0; --count, at += 144) {
    const float d = load_scale(at), dmin = load_scale(at + 2);
    for (int group = 0; group < 8; ++group, y += 32) {
      const ScaleAndMinimum pair = load_pair(at + 4, group);
      const float scale = d * static_cast<float>(pair.scale), minimum = dmin * static_cast<float>(pair.minimum);
      const std::byte* q = at + 16 + 32 * (group / 2);
      const int shift = 4 * (group % 2);
      for (int i = 0; i < 32; ++i) y[i] = scale * static_cast<float>(static_cast<int>(q[i]) >> shift & 15) - minimum;
    }
  }
}

void dequantise_q5_k(const std::byte* at, float* y, std::size_t count) {
  for (; count > 0; --count, at += 176) {
    const float d = load_scale(at), dmin = load_scale(at + 2);
    for (int group = 0; group < 8; ++group, y += 32) {
      const ScaleAndMinimum pair = load_pair(at + 4, group);
      const float scale = d * static_cast<float>(pair.scale), minimum = dmin * static_cast<float>(pair.minimum);
      const std::byte* fifth = at + 16;
      const std::byte* q = at + 48 + 32 * (group / 2);
      const int shift = 4 * (group % 2);
      for (int i = 0; i < 32; ++i) {
        const int low = static_cast<int>(q[i]) >> shift & 15, high = static_cast<int>(fifth[i]) >> group & 1;
        y[i] = scale * static_cast<float>(low | high << 4) - minimum;
      }
    }
  }
}

void dequantise_q6_k(const std::byte* at, float* y, std::size_t count) {
  for (; count > 0; --count, at += 210) {
    const float d = load_scale(at + 208);
    for (int group = 0; group < 16; ++group, y += 16) {
      const float scale = d * static_cast<float>(static_cast<std::int8_t>(at[192 + group]));
      const int half = group / 8, row = group / 2 % 4, first = 16 * (group % 2);
      const std::byte* low = at + 64 * half + 32 * (row % 2) + first;
      const std::byte* high = at + 128 + 32 * half + first;
      for (int i = 0; i < 16; ++i) {
        const int q = (static_cast<int>(low[i]) >> 4 * (row / 2) & 15) | (static_cast<int>(high[i]) >> 2 * row & 3)
                                                                             << 4;
        y[i] = scale * static_cast<float>(q - 32);
      }
    }
  }
}

}  // namespace weft::codec
