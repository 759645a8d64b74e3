// Mixed precision: Variables stay f32, and a scope lets ops compute on f16 or bf16 where that is safe.
#pragma once

#include <cstdint>
#include <string_view>

#include "weft/dtype.hpp"
#include "weft/tensor.hpp"

namespace weft {

/// While one lives, ops of this thread cast their float inputs by the rule of the op (`autocast_rule`):
///
///     Autocast scope(DType::bf16);
///     Tensor loss = nn::cross_entropy(model(tokens), targets);  // products and attention in bf16, the loss in f32
///
/// Products and attention take f16 or bf16 inputs and give such results; sums inside them are f32. Softmaxes, norms, losses,
/// reductions and exponentials take f32 inputs and give f32. All other ops take their inputs as they are, so that f32 + bf16
/// is f32. Inputs of f64, of integers and of storage types stay as they are, and so does every op that reads an f64.
///
/// Scopes nest; the innermost counts, and Autocast(DType::f32) switches the outer ones off. Gradients follow the types that
/// the forward pass had, whether a scope lives when `grad` is called or not. The gradient of an f32 value whose narrow copy
/// was read arrives in f32: that of a parameter is not rounded on its way. Updates of optimisers ignore scopes. A compiled
/// function is traced again for another type of the scope around its call.
class Autocast {
 public:
  /// Errors  UsageError: a type other than f16, bf16 and f32.
  explicit Autocast(DType type, Where where = Where::current());
  ~Autocast();
  Autocast(const Autocast&) = delete;
  Autocast& operator=(const Autocast&) = delete;

 private:
  DType before_;
};

/// The type of this thread's innermost scope: f16 or bf16, or f32 if none is on.
DType autocast_type();

/// What a scope does to the inputs of an op.
enum class AutocastRule : std::uint8_t {
  as_given,  // nothing
  narrow,    // casts them to the type of the scope, and the result too; a bias stays f32 until it was added
  wide,      // casts f16 and bf16 to f32
};
/// Of an op by its name. Errors: UsageError for a name that no op has.
AutocastRule autocast_rule(std::string_view op);

}  // namespace weft
