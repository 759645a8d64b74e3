// Kernels that follow a product of few rows and need only results of one of its workgroups: they run at its end. Examples are
// the rotation of queries and keys by their positions, and the write of a token's keys and values to their cache.
#pragma once

#include <functional>
#include <map>
#include <vector>

#include "backend/webgpu/wgsl/render.hpp"
#include "compile/kernel.hpp"

namespace weft::webgpu {

class RowsTail {
 public:
  /// What a load step reads: a held result at its own element, or at the other element of its pair.
  struct Source {
    int held = -1;
    bool partner = false;
  };
  struct Loop {
    kernel::LoopKernel loop;  // loads of held results are accumulators
    std::map<int, Source> sources;
    int held = -1;  // its result
  };
  struct Write {
    kernel::CallKernel write;
    int held = -1;
  };
  /// A result [m, n] that workgroups keep for later kernels: those of the product in the order of its stores, then one of each
  /// loop. `stored`: memory receives it too.
  struct Held {
    kernel::Operand operand;
    bool stored = true;
  };

  RowsTail(const kernel::PackedMatmulKernel& product, const Target& target);

  /// Whether the product can have a tail.
  bool suits() const { return suits_; }
  /// Adds the kernel to the end of the product. False if it needs results of several workgroups, or has another form.
  bool try_add(const kernel::Kernel& kernel);
  /// Whether there is work, and the dispatch does not need too many bindings. `is_read`: whether memory is read by kernels
  /// outside of this dispatch before it is written again.
  bool finish(const std::function<bool(const kernel::Operand&)>& is_read);

  int teams() const { return teams_; }
  /// Columns of a pair are this far apart, and a workgroup has both; 0: it has any neighbours.
  Extent distance() const { return distance_; }
  const std::vector<Held>& held() const { return held_; }
  const std::vector<Loop>& loops() const { return loops_; }
  const std::vector<Write>& writes() const { return writes_; }
  /// The epilogue of the product without the stores that nothing reads.
  const kernel::LoopKernel& epilogue() const { return epilogue_; }
  /// Steps of the epilogue, or of a loop, that are held results in the order of their numbers.
  const std::vector<int>& values() const { return values_; }

 private:
  bool try_add_loop(const kernel::LoopKernel& given);
  bool try_add_write(const kernel::CallKernel& given);
  int held_at(const kernel::Operand& operand) const;
  bool is_free(const kernel::Operand& written) const;
  bool has_neighbours(Extent distance) const;
  bool accept_distance(Extent distance);

  const kernel::PackedMatmulKernel& product_;
  const Target& target_;
  int teams_;
  bool suits_ = false;
  Extent distance_ = 0;
  kernel::LoopKernel epilogue_;
  std::vector<int> values_;
  std::vector<Held> held_;
  std::vector<Loop> loops_;
  std::vector<Write> writes_;
  std::vector<kernel::Operand> reads_;  // from memory, by all kernels of the dispatch
};

}  // namespace weft::webgpu
