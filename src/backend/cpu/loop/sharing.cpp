// One bytecode for all equal loop kernels: the layers of a deep model differ only in their operands.
#include <algorithm>
#include <bit>
#include <mutex>
#include <unordered_map>

#include "backend/cpu/loop/code.hpp"
#include "base/hash.hpp"

namespace weft::cpu {
namespace {

/// Everything that the loop compiler reads, except the places of operands; of these only which outputs overlap which inputs.
struct Key {
  kernel::LoopKernel kernel;
  std::vector<bool> overlaps;
  Extent columns;
  DType product_type;
  int product_output;
  const TileTable* tiles;
  bool chains;

  Key(const kernel::LoopKernel& k, Extent columns_of, DType type, int output)
      : kernel(k),
        columns(columns_of),
        product_type(type),
        product_output(output),
        tiles(&tile_table()),
        chains(chains_enabled()) {
    for (const kernel::Operand& o : k.outputs)
      for (const kernel::Operand& i : k.inputs) overlaps.push_back(overlap(o, i));
    for (auto* operands : {&kernel.inputs, &kernel.outputs})
      for (kernel::Operand& each : *operands) each = {.type = each.type};
  }

  bool operator==(const Key& other) const {
    const kernel::LoopKernel &a = kernel, &b = other.kernel;
    // Compares constants by their bits: 0 and -0 differ.
    const auto same_bits = [](const kernel::Step& x, const kernel::Step& y) {
      return std::bit_cast<std::uint64_t>(x.value) == std::bit_cast<std::uint64_t>(y.value);
    };
    return a.name == b.name && a.outer == b.outer && a.inner == b.inner && a.inputs == b.inputs &&
           a.outputs == b.outputs && a.steps == b.steps && a.stores == b.stores &&
           std::equal(a.steps.begin(), a.steps.end(), b.steps.begin(), same_bits) && overlaps == other.overlaps &&
           columns == other.columns && product_type == other.product_type && product_output == other.product_output &&
           tiles == other.tiles && chains == other.chains;
  }
};

struct Hash {
  std::size_t operator()(const Key& key) const {
    Hasher hash;
    hash.add(key.kernel.name);
    for (const Extent each : {key.kernel.outer, key.kernel.inner, key.columns})
      hash.add(static_cast<std::uint64_t>(each));
    hash.add(key.kernel.steps.size());
    return hash.digest();
  }
};

}  // namespace

std::shared_ptr<const LoopProgram::Code> shared_code(const kernel::LoopKernel& kernel, Extent columns,
                                                     DType product_type, int product_output) {
  static std::mutex mutex;
  static std::unordered_map<Key, std::weak_ptr<const LoopProgram::Code>, Hash> known;
  static std::size_t most = 256;
  const std::lock_guard lock(mutex);
  const Key key(kernel, columns, product_type, product_output);
  if (const auto found = known.find(key); found != known.end())
    if (auto code = found->second.lock()) return code;
  auto code = compile_loop(kernel, columns, product_type, product_output);
  known[key] = code;
  if (known.size() > most) {
    std::erase_if(known, [](const auto& each) { return each.second.expired(); });
    most = std::max<std::size_t>(256, 2 * known.size());
  }
  return code;
}

}  // namespace weft::cpu
