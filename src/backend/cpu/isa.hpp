// Which instruction set the CPU kernels use: found once at run time, lowered by WEFT_CPU_ISA or by tests.
#pragma once

namespace weft::cpu {

/// `baseline` is what every processor of the architecture has: SSE2 or NEON. Each set includes those before it of its architecture.
/// aarch64: `neon_dot` has dot products of bytes (FEAT_DotProd), `neon_bf16` those of bf16 too (FEAT_BF16).
/// x86-64: `avx2` means AVX2 with FMA and F16C, `avx512` AVX-512 F, DQ, BW and VL (and VNNI where it is), `avx512_bf16` AVX-512
/// VNNI and BF16, `amx` tiles of eight-bit integers and bf16.
enum class Isa { baseline, neon_dot, neon_bf16, avx2, avx512, avx512_bf16, amx };

/// The best this processor and its operating system can run.
Isa best_isa();
/// Whether this processor runs a set.
bool runs(Isa isa);
/// The set in use: `best_isa()`, or the one that WEFT_CPU_ISA names. UsageError for
/// another name or one that the processor lacks.
Isa isa();
/// Changes it for the whole process, between calls of kernels. UsageError if the processor lacks it.
void set_isa(Isa isa);

const char* name(Isa isa);

/// Whether one instruction adds the products of pairs of bf16.
constexpr bool has_bf16_dot(Isa isa) { return isa == Isa::neon_bf16 || isa >= Isa::avx512_bf16; }

}  // namespace weft::cpu
