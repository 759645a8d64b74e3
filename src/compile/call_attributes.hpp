// Attributes of a kernel that computes a call, as the struct that its row describes.
#pragma once

#include "compile/kernel.hpp"
#include "graph/op.hpp"

namespace weft::kernel {

template <class S>
S attributes_of(const CallKernel& kernel) {
  return graph::struct_of<S>(kernel.op->attributes, kernel.attributes.data());
}

}  // namespace weft::kernel
