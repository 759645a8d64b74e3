// A shader of a routine, line by line.
#pragma once

#include <fmt/format.h>

#include <string>
#include <utility>

#include "backend/webgpu/wgsl/render.hpp"

namespace weft::webgpu {

/// Statements of a shader, and the operands that they read and write.
class RoutineShader {
 public:
  RoutineShader(const Target& target, const std::string& kernel) : target_(target), bindings_(target, kernel) {}

  int read(const kernel::Operand& operand) { return bindings_.add(operand, false); }
  int write(const kernel::Operand& operand) {
    const int handle = bindings_.add(operand, true);
    bindings_.forbid_vectors(handle);
    return handle;
  }
  /// A u32 operand of atomics, alone in its buffer.
  int atomics(const kernel::Operand& operand) {
    const int handle = bindings_.add(operand, true);
    bindings_.want_atomics(handle);
    return handle;
  }
  void resolve() { bindings_.resolve(); }
  std::string at(int handle, const std::string& index) const {
    return bindings_.load(handle, fmt::format("{} + {}u", index, bindings_.base(handle)));
  }
  std::string put(int handle, const std::string& index, const std::string& value) const {
    return bindings_.store(handle, fmt::format("{} + {}u", index, bindings_.base(handle)), value);
  }
  /// A pointer to an atomic.
  std::string pointer(int handle, const std::string& index) const {
    return fmt::format("&{}[{} + {}u]", bindings_.array_of(handle), index, bindings_.base(handle));
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

}  // namespace weft::webgpu
