#include "ops/scalar.hpp"

#include <array>

#include "base/hash.hpp"

namespace weft::scalar {
namespace {

struct OpInfo {
  std::string_view name;
  int arity;
};

// In the order of the enumeration.
constexpr std::array<OpInfo, kOpCount> kOps = {{
    {"input", 0},  {"constant", 0}, {"neg", 1},         {"abs", 1},         {"sign", 1},       {"floor", 1},
    {"ceil", 1},   {"round", 1},    {"trunc", 1},       {"sqrt", 1},        {"rsqrt", 1},      {"exp", 1},
    {"exp2", 1},   {"expm1", 1},    {"log", 1},         {"log2", 1},        {"log10", 1},      {"log1p", 1},
    {"sin", 1},    {"cos", 1},      {"tan", 1},         {"asin", 1},        {"acos", 1},       {"atan", 1},
    {"sinh", 1},   {"cosh", 1},     {"tanh", 1},        {"asinh", 1},       {"acosh", 1},      {"atanh", 1},
    {"erf", 1},    {"is_nan", 1},   {"logical_not", 1}, {"bit_not", 1},     {"cast", 1},       {"add", 2},
    {"sub", 2},    {"mul", 2},      {"div", 2},         {"rem", 2},         {"pow", 2},        {"atan2", 2},
    {"min", 2},    {"max", 2},      {"copysign", 2},    {"eq", 2},          {"ne", 2},         {"lt", 2},
    {"le", 2},     {"gt", 2},       {"ge", 2},          {"logical_and", 2}, {"logical_or", 2}, {"bit_and", 2},
    {"bit_or", 2}, {"bit_xor", 2},  {"shl", 2},         {"shr", 2},         {"select", 3},     {"philox", 3},
}};
static_assert(kOps[static_cast<int>(Op::erf)].name == "erf" && kOps[static_cast<int>(Op::add)].name == "add" &&
              kOps[static_cast<int>(Op::copysign)].name == "copysign" &&
              kOps[static_cast<int>(Op::shr)].name == "shr" && kOps[static_cast<int>(Op::philox)].name == "philox");

}  // namespace

int arity(Op op) { return kOps[static_cast<std::size_t>(op)].arity; }
std::string_view name_of(Op op) { return kOps[static_cast<std::size_t>(op)].name; }

bool gives_bool(Op op) {
  switch (op) {
    case Op::is_nan:
    case Op::logical_not:
    case Op::eq:
    case Op::ne:
    case Op::lt:
    case Op::le:
    case Op::gt:
    case Op::ge:
    case Op::logical_and:
    case Op::logical_or: return true;
    default: return false;
  }
}

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
