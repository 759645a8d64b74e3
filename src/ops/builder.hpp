// Writes scalar code: each new value is simplified and shared with an equal earlier one.
#pragma once

#include <unordered_map>

#include "ops/scalar.hpp"

namespace weft::scalar {

/// A value is identified by the index that its making call returned, which is valid for this builder only.
///
/// Untyped (as parsing does), constants are real numbers that fold exactly; a truth value that folds is kept as a cast to bool.
/// In typed mode each instruction has its type, and folding follows the type's arithmetic.
class Builder {
 public:
  enum class Mode : std::uint8_t { untyped, typed };
  explicit Builder(int inputs, Mode mode = Mode::untyped) : inputs_(inputs), mode_(mode) {}

  int input(int slot, DType type = DType::f32);
  int constant(double value, DType type = DType::f32);
  int boolean(bool value);
  int cast(int a, DType type);
  /// An op on earlier values; in typed mode `type` is the result's type.
  int make(Op op, int a, int b = -1, int c = -1, DType type = DType::f32);
  /// Copies another expression, with values of this builder in place of its operands.
  int inlined(const Expression& expression, std::span<const int> arguments);

  const Instruction& operator[](int index) const { return code_[static_cast<std::size_t>(index)]; }
  bool is_constant(int index, double value) const;  // -0 and 0 are different constants
  int size() const { return static_cast<int>(code_.size()); }
  int inputs() const { return inputs_; }

  /// The function whose result is `result`, without unused instructions, in the order of first use.
  Expression finish(int result) const;

 private:
  int add(Instruction instruction);
  int simplify(const Instruction& in);
  bool is_bool(int index) const;
  /// Whether it is never a bool, whatever the operands: identities such as x * 1 may then drop their op.
  bool is_number(int index) const;

  struct Hash {
    std::size_t operator()(const Instruction& in) const;
  };
  int inputs_;
  Mode mode_;
  std::vector<Instruction> code_;
  std::unordered_map<Instruction, int, Hash> index_;
};

}  // namespace weft::scalar
