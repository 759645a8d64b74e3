// The weights of a product with windows, which are its operand A: packing of those of some channels.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "backend/cpu/gemm.hpp"
#include "backend/cpu/gemm_kernels.hpp"

namespace weft::cpu {

/// A[m, (channel, tap)]. The weights of the product that goes back to the image are reversed, with channels and results
/// exchanged, and perhaps only every second tap: then one result's taps lie in a short run of memory, and are read with it.
class WindowWeights {
 public:
  WindowWeights(const GemmArgs<float>& args, const GemmKernels<float>& kernels, std::int64_t taps);

  /// to[(c * taps + t) * width + i] is the weight of result strip * width + i, channel begin + c and tap t, for the `width` of a
  /// strip; 0 past the last result.
  void pack(std::int64_t strip, std::int64_t begin, std::int64_t channels, float* to) const;

 private:
  bool describe();

  const GemmArgs<float>& args_;
  const GemmKernels<float>& kernels_;
  std::int64_t taps_;
  std::int64_t offset_ = 0, row_ = 0, channel_ = 0;  // of runs
  std::vector<std::int64_t> places_;                 // of taps in a run
  std::int64_t run_ = 0;                             // its length
  bool in_runs_;                                     // describe() sets the members above
};

}  // namespace weft::cpu
