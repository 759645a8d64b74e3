// Which instruction set the CPU kernels use: found once at run time, lowered by WEFT_CPU_ISA or by tests.
#pragma once

namespace weft::cpu {

/// Each includes all sets before it. `avx2` means AVX2 with FMA and F16C, `avx512` AVX-512 F, DQ, BW and VL (and VNNI where it
/// is), `avx512_bf16` AVX-512 VNNI and BF16, `amx` tiles of eight-bit integers and bf16.
enum class Isa { baseline, avx2, avx512, avx512_bf16, amx };

/// The best this processor and its operating system can run.
Isa best_isa();
/// The set in use: `best_isa()`, or the one that WEFT_CPU_ISA=baseline|avx2|avx512|avx512_bf16|amx names. UsageError for
/// another name or one that the processor lacks.
Isa isa();
/// Changes it for the whole process, between calls of kernels. UsageError if the processor lacks it.
void set_isa(Isa isa);

const char* name(Isa isa);

}  // namespace weft::cpu
