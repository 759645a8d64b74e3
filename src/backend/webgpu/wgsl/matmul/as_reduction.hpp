// Matrix products as loop kernels: products too narrow for tiles, and parts that the tiled form shares.
#pragma once

#include "backend/webgpu/wgsl/render.hpp"
#include "compile/kernel.hpp"

namespace weft::webgpu {

/// The product as a reduction over k with its epilogue.
void render_as_reduction(const kernel::MatmulKernel& kernel, const Target& target, Scratch& scratch,
                         Rendered& rendered);

/// Appends the epilogue's steps and stores to a kernel whose step `product` is the matrix product.
void append_epilogue(kernel::LoopKernel& loop, const kernel::LoopKernel& given, int product);
kernel::Step load_step(DType type, int operand, kernel::View view);
kernel::Step sum_step(DType type, int of);

}  // namespace weft::webgpu
