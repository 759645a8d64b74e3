// Compiles loop kernels to bytecode: types made explicit, pairs of ops joined, values placed, phases scheduled.
#include "backend/cpu/loop/loop.hpp"

#include <algorithm>

#include "backend/cpu/loop/code.hpp"
#include "backend/cpu/loop/schedule.hpp"

namespace weft::cpu {
namespace {

constexpr Extent kTileBytes = 4096;  // of one register of 4-byte values: several of them fill the nearest cache
constexpr Extent kFrameTiles = 8;    // limit for all registers of a tile together

std::unique_ptr<LoopProgram::Totals> make_totals(const LoopProgram::Code& code) {
  auto made = std::make_unique<LoopProgram::Totals>();
  const Extent chunks = (code.inner + code.chunk - 1) / code.chunk;
  made->part = (chunks + code.splits - 1) / code.splits * code.chunk;
  made->parts = (code.inner + made->part - 1) / made->part;
  std::size_t most = 0;
  for (std::size_t p = 0; p < code.phases.size(); ++p) {
    if (code.phases[p].inner.empty()) continue;
    made->phases.push_back(static_cast<int>(p));
    most = std::max(most, code.phases[p].reductions.size());
  }
  const auto outer = static_cast<std::size_t>(code.outer);
  made->totals.resize(code.reductions.size() * outer);
  made->total_positions.resize(made->totals.size());
  made->partial.resize(static_cast<std::size_t>(made->parts) * most * outer);
  made->partial_positions.resize(made->partial.size());
  return made;
}

}  // namespace

bool overlap(const kernel::Operand& x, const kernel::Operand& y) {
  const auto bits = [](const kernel::Operand& o) { return static_cast<Extent>(element(o.type).bits); };
  return x.buffer == y.buffer && x.offset * bits(x) < (y.offset + y.count) * bits(y) &&
         y.offset * bits(y) < (x.offset + x.count) * bits(x);
}

std::shared_ptr<const LoopProgram::Code> compile_loop(const kernel::LoopKernel& kernel, Extent columns,
                                                      DType product_type, int product_output) {
  const std::optional<kernel::LoopKernel> ordered = columns == 0 ? reordered(kernel) : std::nullopt;
  LoopNodes nodes = read_nodes(ordered ? *ordered : kernel, columns, product_type, product_output);
  join_pairs(nodes);
  LoopProgram::Code begun;
  begun.name = kernel.name;
  for (const kernel::Operand& o : kernel.inputs) begun.input_bytes.push_back(size_bytes(o.type));
  for (const kernel::Operand& o : kernel.outputs) begun.output_bytes.push_back(size_bytes(o.type));
  begun.product_bytes = size_bytes(product_type);
  begun.columns = nodes.columns;
  begun.outer = nodes.outer;
  begun.inner = nodes.inner;
  begun.run = nodes.run;
  begun.fast_run = nodes.fast_run;

  Extent widest = 1;
  for (const LoopNode& node : nodes.nodes)
    if (!node.outer) widest = std::max(widest, static_cast<Extent>(size_bytes(node.type)));
  // The number of registers depends on the values that are kept, and these depend on the tile: try smaller tiles.
  for (Extent elements = kTileBytes / std::max<Extent>(widest, 4);; elements /= 2) {
    auto code = std::make_shared<LoopProgram::Code>(begun);
    choose_tile(nodes, elements, *code);
    const int registers = schedule(nodes, *code);
    if (registers * elements * widest > kFrameTiles * kTileBytes && elements > 256) continue;
    if (chains_enabled()) form_chains(*code);
    return code;
  }
}

LoopProgram::LoopProgram(const kernel::LoopKernel& kernel, Extent columns, DType product_type, int product_output)
    : code_(shared_code(kernel, columns, product_type, product_output)),
      totals_(code_->splits > 1 && code_->outer > 0 ? make_totals(*code_) : nullptr) {}
LoopProgram::~LoopProgram() = default;
LoopProgram::LoopProgram(LoopProgram&&) noexcept = default;

}  // namespace weft::cpu
