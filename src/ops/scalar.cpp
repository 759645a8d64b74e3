#include "ops/scalar.hpp"

#include <array>

#include "base/hash.hpp"

namespace weft::scalar {
namespace {

struct OpInfo {
  std::string_view name;
  int arity;
  Cost cost;
  bool gives_bool = false;
};

// In the order of the enumeration.
constexpr std::array<OpInfo, kOpCount> kOps = {{
    {"input", 0, Cost::none},
    {"constant", 0, Cost::none},
    {"neg", 1, Cost::plain},
    {"abs", 1, Cost::plain},
    {"sign", 1, Cost::plain},
    {"floor", 1, Cost::plain},
    {"ceil", 1, Cost::plain},
    {"round", 1, Cost::plain},
    {"trunc", 1, Cost::plain},
    {"sqrt", 1, Cost::plain},
    {"rsqrt", 1, Cost::plain},
    {"exp", 1, Cost::function},
    {"exp2", 1, Cost::function},
    {"expm1", 1, Cost::function},
    {"log", 1, Cost::function},
    {"log2", 1, Cost::function},
    {"log10", 1, Cost::function},
    {"log1p", 1, Cost::function},
    {"sin", 1, Cost::function},
    {"cos", 1, Cost::function},
    {"tan", 1, Cost::function},
    {"asin", 1, Cost::function},
    {"acos", 1, Cost::function},
    {"atan", 1, Cost::function},
    {"sinh", 1, Cost::function},
    {"cosh", 1, Cost::function},
    {"tanh", 1, Cost::function},
    {"asinh", 1, Cost::function},
    {"acosh", 1, Cost::function},
    {"atanh", 1, Cost::function},
    {"erf", 1, Cost::function},
    {"is_nan", 1, Cost::plain, true},
    {"logical_not", 1, Cost::plain, true},
    {"bit_not", 1, Cost::plain},
    {"cast", 1, Cost::plain},
    {"add", 2, Cost::plain},
    {"sub", 2, Cost::plain},
    {"mul", 2, Cost::plain},
    {"div", 2, Cost::plain},
    {"rem", 2, Cost::function},
    {"pow", 2, Cost::function},
    {"atan2", 2, Cost::function},
    {"min", 2, Cost::plain},
    {"max", 2, Cost::plain},
    {"copysign", 2, Cost::plain},
    {"eq", 2, Cost::plain, true},
    {"ne", 2, Cost::plain, true},
    {"lt", 2, Cost::plain, true},
    {"le", 2, Cost::plain, true},
    {"gt", 2, Cost::plain, true},
    {"ge", 2, Cost::plain, true},
    {"logical_and", 2, Cost::plain, true},
    {"logical_or", 2, Cost::plain, true},
    {"bit_and", 2, Cost::plain},
    {"bit_or", 2, Cost::plain},
    {"bit_xor", 2, Cost::plain},
    {"shl", 2, Cost::plain},
    {"shr", 2, Cost::plain},
    {"select", 3, Cost::plain},
    {"philox", 3, Cost::function},
}};
static_assert(kOps[static_cast<int>(Op::erf)].name == "erf" && kOps[static_cast<int>(Op::add)].name == "add" &&
              kOps[static_cast<int>(Op::copysign)].name == "copysign" &&
              kOps[static_cast<int>(Op::shr)].name == "shr" && kOps[static_cast<int>(Op::philox)].name == "philox");

}  // namespace

int arity(Op op) { return kOps[static_cast<std::size_t>(op)].arity; }
std::string_view name_of(Op op) { return kOps[static_cast<std::size_t>(op)].name; }

Cost cost_of(Op op) { return kOps[static_cast<std::size_t>(op)].cost; }
bool gives_bool(Op op) { return kOps[static_cast<std::size_t>(op)].gives_bool; }

std::string_view name_of(Reduction reduction) {
  constexpr std::string_view names[] = {"sum", "prod", "max", "min", "argmax", "argmin"};
  return names[static_cast<int>(reduction)];
}

std::uint64_t hash(const Expression& expression) {
  Hasher hasher;
  hasher.add(static_cast<std::uint64_t>(expression.inputs));
  for (const Instruction& in : expression.code) {
    hasher.add(static_cast<std::uint64_t>(in.op) << 8 | static_cast<std::uint64_t>(in.type));
    hasher.add(static_cast<std::uint64_t>(static_cast<std::uint32_t>(in.a)) << 32 | static_cast<std::uint32_t>(in.b));
    hasher.add(static_cast<std::uint64_t>(static_cast<std::uint32_t>(in.c)) << 32 |
               static_cast<std::uint32_t>(in.slot));
    hasher.add_double(in.value);
  }
  return hasher.digest();
}

}  // namespace weft::scalar
