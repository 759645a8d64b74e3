// Vectors of bf16 and f16 in memory as vectors of floats in registers.
#pragma once

#include "backend/cpu/loop/vector_assembler.hpp"
#include "weft/dtype.hpp"

namespace weft::cpu::emitting {

/// The types are f32, bf16 and f16. Stores take floats that are values of the type, and `mask` is null for all lanes.
class NarrowAssembler : protected VectorAssembler {
 protected:
  void load_vector(DType type, int r, const Xbyak::Address& from, const Xbyak::Opmask* mask) {
    const Zmm to = mask ? zmm(r) | *mask | a_.T_z : zmm(r);
    switch (type) {
      case DType::bf16: a_.vpmovzxwd(to, from), a_.vpslld(zmm(r), zmm(r), 16); break;
      case DType::f16: a_.vcvtph2ps(to, from); break;
      default: a_.vmovups(to, from);
    }
  }
  /// One element in all lanes.
  void load_element(DType type, int r, const Xbyak::Address& from) {
    switch (type) {
      case DType::bf16: a_.vpbroadcastw(zmm(r), from), a_.vpslld(zmm(r), zmm(r), 16); break;
      case DType::f16: a_.vpbroadcastw(ymm(r), from), a_.vcvtph2ps(zmm(r), ymm(r)); break;
      default: a_.vbroadcastss(zmm(r), from);
    }
  }
  /// Past the caches, the vector begins at a multiple of its bytes.
  void store_vector(DType type, const Xbyak::Address& place, int from, const Xbyak::Opmask* mask, bool past_caches) {
    constexpr int t = kTemporary;
    const Xbyak::Address to = mask ? place | *mask : place;
    if (type == DType::bf16) {
      a_.vpsrld(zmm(t), zmm(from), 16);
      if (!past_caches) return a_.vpmovdw(to, zmm(t));
      a_.vpmovdw(ymm(t), zmm(t)), a_.vmovntdq(to, ymm(t));
    } else if (type == DType::f16) {
      if (!past_caches) return a_.vcvtps2ph(to, zmm(from), kNearestEven);
      a_.vcvtps2ph(ymm(t), zmm(from), kNearestEven), a_.vmovntdq(to, ymm(t));
    } else if (past_caches) {
      a_.vmovntps(to, zmm(from));
    } else {
      a_.vmovups(to, zmm(from));
    }
  }
  /// The float that is the nearest value of the type, as in narrow_casts.inc.hpp.
  void round_to(DType type, int to, int x) {
    constexpr int t = kTemporary;
    if (type == DType::f16) {
      a_.vcvtps2ph(ymm(t), zmm(x), kNearestEven);
      a_.vcvtph2ps(zmm(to), ymm(t));
    } else if (type == DType::bf16) {
      constexpr std::uint32_t kUpper = 0xFFFF0000u, kQuiet = 0x00400000u;
      a_.vpsrld(zmm(t), zmm(x), 16);
      op(kAndInt, t, t, bits(1));
      op(kAddInt, t, t, x);
      op(kAddInt, t, t, bits(0x7FFF));
      op(kAndInt, to, t, bits(kUpper));
      choose(x, x, kUnordered);
      op_chosen(kAndInt, to, x, bits(kUpper));
      op_chosen(kOrInt, to, to, bits(kQuiet));
    } else {
      move(to, x);
    }
  }
};

}  // namespace weft::cpu::emitting
