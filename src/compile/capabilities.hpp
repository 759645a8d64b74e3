// What a device says of itself that the compiler reads.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "weft/dtype.hpp"
#include "weft/shape.hpp"

namespace weft::graph {
class Call;
}

namespace weft::compiler {

/// A backend fills this in once, in its description. Where a backend lacks a kernel, the compiler takes primitives in its place.
struct Capabilities {
  std::string name;                       // "cpu", "webgpu:0"
  std::vector<DType> dtypes;              // that its kernels compute
  std::size_t buffer_bytes_max = 0;       // of one buffer
  std::size_t binding_bytes_max = 0;      // of one operand of a kernel
  std::size_t offset_alignment = 64;      // bytes; operands are laid out at multiples of it
  bool prefers_separate_buffers = false;  // a kernel must not read and write one buffer object (WebGPU)
  int operands_max = 64;                  // distinct operands of one kernel
  Extent launch_points = 4096;            // independent kernels over no more points than this run best as one
  int kernels_side_by_side = 0;           // neighbours in a plan that the device may run at one time

  /// Whether the device has a kernel for this op with these types, shapes and attributes. Empty: for none.
  std::function<bool(const graph::Call&)> has_kernel;
  /// Types of operands that its products and its attentions read as they are, beside those that they compute in: f16, bf16
  /// and types of storage. A kernel converts them as it reads them (MatmulKernel, AttentionKernel). Empty: none.
  std::vector<DType> product_reads, attention_reads;
  Extent computed_rows_max = 0;  // rows of a product with packed weights that may be computed as they are read
};

}  // namespace weft::compiler
