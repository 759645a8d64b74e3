#include "ops/routine.hpp"

namespace weft::ops {
namespace {

constexpr RoutineRow kRoutines[] = {
    {Routine::write_rows, "write_rows", 0, "A cache with some of its rows replaced."},
    {Routine::cache_attention, "cache_attention", -1,
     "Attention of new tokens over the cached keys of their sequences."},
    {Routine::sample_token, "sample_token", -1, "Draws the next token of each row of logits."},
    {Routine::unpack_rows, "unpack_rows", -1, "Rows of a packed matrix by index, as f32."},
};

}  // namespace

std::span<const RoutineRow> routines() { return kRoutines; }
const RoutineRow& row_of(Routine routine) { return kRoutines[static_cast<std::size_t>(routine)]; }

std::string_view name_of(CacheType type) {
  constexpr std::string_view names[] = {"f32", "f16", "q8"};
  return names[static_cast<std::size_t>(type)];
}

Extent row_words(CacheType type, Extent width) {
  switch (type) {
    case CacheType::f32: return width;
    case CacheType::f16: return width % 2 == 0 ? width / 2 : 0;
    case CacheType::q8: return width % 32 == 0 ? width / 32 * 9 : 0;
  }
  return 0;
}

UnpackRows unpack_rows_of(std::span<const Extent> a) { return {a[0], a[1]}; }
WriteRows write_rows_of(std::span<const Extent> a) { return {static_cast<CacheType>(a[0])}; }
CacheAttention cache_attention_of(std::span<const Extent> a) {
  return {static_cast<CacheType>(a[0]), a[1], real_of(a[2]), a[3], real_of(a[4]), a[5]};
}

}  // namespace weft::ops
