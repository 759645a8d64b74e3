// What the shaders of sorts have in common.
#pragma once

#include <fmt/format.h>

#include <string>
#include <utility>

#include "backend/webgpu/wgsl/render.hpp"
#include "backend/webgpu/wgsl/scalar.hpp"
#include "compile/call_attributes.hpp"
#include "graph/order.hpp"

namespace weft::webgpu {

/// Statements of a shader, and the operands that they read and write.
class SortShader {
 public:
  SortShader(const Target& target, const std::string& kernel) : target_(target), bindings_(target, kernel) {}

  int read(const kernel::Operand& operand) { return bindings_.add(operand, false); }
  int write(const kernel::Operand& operand) {
    const int handle = bindings_.add(operand, true);
    bindings_.forbid_vectors(handle);
    return handle;
  }
  void resolve() { bindings_.resolve(); }
  std::string at(int handle, const std::string& index) const {
    return bindings_.load(handle, fmt::format("{} + {}u", index, bindings_.base(handle)));
  }
  std::string put(int handle, const std::string& index, const std::string& value) const {
    return bindings_.store(handle, fmt::format("{} + {}u", index, bindings_.base(handle)), value);
  }
  void line(const std::string& statement) { pieces.body += "  " + statement + "\n"; }
  RenderedDispatch dispatch(std::string name, Extent groups) {
    return dispatch_of(std::move(name), std::move(pieces), bindings_, static_cast<std::uint64_t>(groups), target_);
  }

  ShaderPieces pieces;

 private:
  const Target& target_;
  Bindings bindings_;
};

/// A sort: lines of `n` elements, of which `count` ranks are kept.
struct SortedLines {
  explicit SortedLines(const kernel::CallKernel& kernel)
      : a(kernel::attributes_of<graph::SortAttributes>(kernel)),
        n(kernel.shapes[0].dim(-1)),
        count(kernel.shape().dim(-1)),
        lines(kernel.shape().numel() / count),
        type(kernel.types[0]) {}

  /// The unsigned integer of the same order as an element.
  std::string key(const std::string& x, Helpers& helpers) const {
    std::string text = x;
    if (type == DType::f32)
      text = fmt::format("select({}({}), 0xffffffffu, {}({}))", helpers.use("order_key_f32"), x,
                         helpers.use("is_nan_f32"), x);
    else if (type == DType::i32)
      text = fmt::format("(bitcast<u32>({}) ^ 0x80000000u)", x);
    return a.descending ? fmt::format("~{}", text) : text;
  }

  graph::SortAttributes a;
  Extent n, count, lines;
  DType type;
};

}  // namespace weft::webgpu
