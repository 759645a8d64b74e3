// The description of a device that the compiler reads.
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

/// A backend fills this in once, in its description. If a backend lacks a kernel, the compiler uses primitives instead.
struct Capabilities {
  std::string name;                       // "cpu", "webgpu:0"
  std::vector<DType> dtypes;              // dtypes that its kernels compute
  std::size_t buffer_bytes_max = 0;       // limit for one buffer
  std::size_t binding_bytes_max = 0;      // limit for one operand of a kernel
  std::size_t offset_alignment = 64;      // bytes; operands begin at multiples of it
  bool prefers_separate_buffers = false;  // a kernel must not read and write one buffer object (WebGPU)
  int operands_max = 64;                  // distinct operands of one kernel
  /// Reductions of columns, or of a few long rows, over at least this many points make one kernel with the values that depend on
  /// them; 0: never.
  Extent shared_points = 0;
  Extent launch_points = 4096;   // independent kernels over at most this many points run best as one
  int kernels_side_by_side = 0;  // neighbours in a plan that the device may run at the same time

  /// Whether the device has a kernel for this op with these types, shapes and attributes. Empty: for none.
  std::function<bool(const graph::Call&)> has_kernel;
  /// Types of operands that its products and attentions read directly, in addition to the types that they compute in: f16, bf16
  /// and storage types. A kernel converts them while reading (MatmulKernel, AttentionKernel). Empty: none.
  std::vector<DType> product_reads, attention_reads;
  /// The same for products of i32, if both operands are of such types.
  std::vector<DType> integer_product_reads;
  /// Types that its attentions write directly, rounded once, in addition to the type that they compute in: of f16 and bf16.
  std::vector<DType> attention_writes;
  /// Bytes of a value that stay near between the passes of a kernel: reductions over other axes than the last then store results of
  /// the size of their input in the same kernel. 0: such results are better made by a kernel of their own.
  Extent near_bytes = 0;
  /// Products with windows read turned weights (a dense matrix in another order) without a copy.
  bool reads_turned_weights = false;
  Extent computed_rows_max = 0;  // most rows of a product with packed weights that may be computed while reading
};

}  // namespace weft::compiler
