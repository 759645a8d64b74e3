#include "backend/cpu/played_bf16_tiles.hpp"

#if defined(__AVX512BW__)
#include "backend/cpu/bf16_amx.inc.hpp"
#include "backend/cpu/played_tiles.hpp"

namespace weft::cpu {
namespace {

/// Products of pairs of bf16, added in f32.
struct PlayedBf16Tiles : PlayedTiles<std::uint8_t, std::uint8_t> {
  template <int c, int a, int b>
  static void multiply() {
    require_meeting_shapes<c, a, b>();
    for (int m = 0; m < shape.rows[c]; ++m)
      for (int n = 0; n < shape.row_bytes[c] / 4; ++n) {
        float sum;
        std::memcpy(&sum, registers[c][m] + 4 * n, 4);
        for (int k = 0; k < shape.row_bytes[a] / 2; ++k)
          sum += element(registers[a][m] + 2 * k) * element(registers[b][k / 2] + 4 * n + k % 2 * 2);
        std::memcpy(registers[c][m] + 4 * n, &sum, 4);
      }
  }

 private:
  static float element(const std::uint8_t* at) {
    std::uint32_t bits = 0;
    std::memcpy(reinterpret_cast<std::uint8_t*>(&bits) + 2, at, 2);
    float value;
    std::memcpy(&value, &bits, 4);
    return value;
  }
};

}  // namespace

const GemmKernels<float>* played_bf16_tiles() {
  if (best_isa() < Isa::avx512_bf16) return nullptr;
  static const GemmKernels<float> kernels = bf16_tiles<PlayedBf16Tiles>(avx512::kGemmBf16);
  return &kernels;
}

}  // namespace weft::cpu
#else
namespace weft::cpu {
const GemmKernels<float>* played_bf16_tiles() { return nullptr; }
}  // namespace weft::cpu
#endif
