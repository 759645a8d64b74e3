// Chains of elementwise f32 work as machine code: a vector goes through all of a chain in registers. Values of bf16 and f16 are
// floats there, and are narrow in memory only. The values equal those of the tile kernels, bit for bit. Only if the processor has AVX-512; otherwise, or with WEFT_CPU_JIT=0, tile kernels do the work
// one op at a time.
#pragma once

#include <compare>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "backend/cpu/loop/executable.hpp"
#include "ops/scalar.hpp"
#include "weft/dtype.hpp"

namespace weft::cpu {

/// Two ops that are one instruction.
enum class Joined : std::uint8_t {
  none,
  mul_add,         // a * b + c
  mul_sub,         // a * b - c
  sub_mul,         // c - a * b
  compare_select,  // a == b ? c : d, and so on, by the op
};

/// A step of a chain: an op on floats, or two of them.
struct ChainOp {
  scalar::Op op = scalar::Op::input;
  Joined joined = Joined::none;
  DType to = DType::f32;  // of a cast
  auto operator<=>(const ChainOp&) const = default;
};
inline constexpr ChainOp kChainCopy{};
/// Whether chains read and write this type: f32, bf16 and f16.
bool is_chain_type(DType type);
/// Whether chains support the op, on floats.
bool is_chain_op(ChainOp op);

inline constexpr int kChainOperandsMax = 12;
inline constexpr int kChainFoldsMax = 2;

/// A chain over rows of floats in memory.
struct Chain {
  /// The source of an operand: memory (an index into `varies`), or an earlier step.
  struct Arg {
    bool memory = false;
    int index = 0;
    auto operator<=>(const Arg&) const = default;
  };
  struct Link {
    ChainOp op;
    int arg_count = 0;
    Arg args[4];
    int store = -1;        // memory where the result is also stored
    bool streams = false;  // the store bypasses the caches; the rows are aligned to 64 bytes
    int fold = -1;         // the fold that takes the only operand; such a step has no result
    auto operator<=>(const Link&) const = default;
  };
  std::vector<bool> varies;  // each place in memory: varies along the row, or one element for the row
  std::vector<DType> types;  // of each place in memory
  std::vector<Link> steps;
  std::vector<scalar::Op> folds;  // add, mul, max or min of values along each row
  bool far = false;               // operands are beyond the L2 cache, so the lines ahead are prefetched
  std::vector<int> prefetched;    // places in memory that nothing reads yet
  auto operator<=>(const Chain&) const = default;
};

/// A call of a chain, which changes it: rows, the whole vectors of a row (and those in groups of four) times kChainVectorBytes,
/// the lanes of the last part, each place in memory with the bytes from row to row, and the rows' accumulators of each fold.
inline constexpr int kChainLanes = 16, kChainVectorBytes = 2 * kChainLanes;  // of elements of 16 bits
struct ChainCall {
  std::int64_t rows = 1, whole = 0, fours = 0, rest = 0;
  struct Place {
    char* data;
    std::int64_t row;
  } places[kChainOperandsMax];
  double* folds[kChainFoldsMax];
};
using ChainFunction = void (*)(ChainCall*);

/// Equal chains, such as those of a model's layers, share code. Many threads may use it at once.
class ChainCode {
 public:
  /// Nothing if a chain needs more registers than exist, or if the system does not allow such code.
  static std::optional<ChainCode> make(const Chain& chain);
  void run(ChainCall& call) const { function_(&call); }

 private:
  struct Code {
    Executable memory;
    ChainFunction function = nullptr;
  };
  static std::shared_ptr<const Code> assemble(const Chain& chain);

  std::shared_ptr<const Code> code_;
  ChainFunction function_ = nullptr;
};

/// Whether chains are used: the instruction set has AVX-512, and they are not switched off.
bool chains_enabled();
/// For tests.
void set_chains_enabled(bool enabled);

}  // namespace weft::cpu
