// Choice of the tile kernels.
#include "backend/cpu/loop/tile.hpp"

#include "backend/cpu/loop/tile_tables.hpp"

namespace weft::cpu {

const TileTable& tile_table() { return tile_table(isa()); }

const TileTable& tile_table(Isa isa) {
  switch (isa) {
#if defined(__x86_64__)
    case Isa::amx:
    case Isa::avx512_bf16:
    case Isa::avx512: return tile_table_avx512();
    case Isa::avx2: return tile_table_avx2();
#else
    case Isa::amx:
    case Isa::avx512_bf16:
    case Isa::avx512:
    case Isa::avx2:
#endif
    case Isa::neon_bf16:
    case Isa::neon_dot:
    case Isa::baseline: break;
  }
  return tile_table_baseline();
}

DType cast_step(DType from, DType to) {
  if (tile_table().cast[static_cast<std::size_t>(from)][static_cast<std::size_t>(to)] != nullptr) return to;
  // Casts from a narrow type are exact. Casts to a narrow float through f64 round once, except for integers beyond 2^53.
  if (compute_type(from) != from) return compute_type(from);
  if (compute_type(to) == DType::f32) return from == DType::boolean ? DType::f32 : DType::f64;
  return compute_type(to);
}

template <>
const AttentionParts<float>& attention_parts<float>() {
  return tile_table().attention_f32;
}
template <>
const AttentionParts<double>& attention_parts<double>() {
  return tile_table().attention_f64;
}

template <>
const RecurrentParts<float>& recurrent_parts<float>() {
  return tile_table().recurrent_f32;
}
template <>
const RecurrentParts<double>& recurrent_parts<double>() {
  return tile_table().recurrent_f64;
}

template <>
const StateScanParts<float>& state_scan_parts<float>() {
  return tile_table().state_scan_f32;
}
template <>
const StateScanParts<double>& state_scan_parts<double>() {
  return tile_table().state_scan_f64;
}

}  // namespace weft::cpu
