// Products whose rows of A each belong to one of several B, as in a mixture of experts.
#pragma once

#include "backend/webgpu/wgsl/render.hpp"
#include "compile/kernel.hpp"

namespace weft::webgpu {

/// Rows of C in an order in which the rows of a group are neighbours and begin a tile.
///
/// `order` is u32 [slots + tiles]. order[slot] is a row of C; with `kOfNoGroup` added, the sums of this row are zero. Slots
/// without a row are `kEmpty`. order[slots + tile] is the group of a tile, or `kEmpty` of a tile that is not used.
struct RowGroups {
  static constexpr std::uint32_t kOfNoGroup = 0x80000000u, kEmpty = 0xffffffffu;

  RowGroups(Extent rows_of_c, Extent groups_in_all, int rows_of_tile, Extent rows_of_c_together, Scratch& scratch);

  Extent rows = 0, groups = 0;
  int tile = 0;                 // slots
  Extent share = 1;             // row i of C is of row i / share of A
  Extent tiles = 0;             // the most that there can be
  Extent first = 0, count = 0;  // the groups whose B a product has; others it leaves out
  kernel::Operand order;

  Extent slots() const { return tiles * tile; }
};

/// Declares `$slot_entry(at)`, an entry of the order, `$row_at(slot)`, the row of A of a slot (of the last row, if it has none), and
/// `$shared_group`, in workgroup memory. `order`: the handle of RowGroups::order.
void declare_row_groups(const RowGroups& groups, int order, const Bindings& bindings, ShaderPieces& shader);
/// Statements that set `number` to the group of a tile (`tile`, which is the same for a workgroup), counted from the first of this
/// product, and end the workgroup if the product leaves it out.
std::string group_of_tile(const RowGroups& groups, const std::string& tile, const char* number);

/// Whether a workgroup of the device holds what ordering rows of so many groups needs.
bool can_order(Extent groups, const Target& target);
/// Writes the order, from the group of each row, i32 [rows]; a number outside [0, groups) is none.
RenderedDispatch order_by_group(const std::string& name, const kernel::Operand& of_row, const RowGroups& groups,
                                const Target& target);
/// Writes the order of rows that are sorted by group, from the ends of the groups, i32 [groups], as grouped_matmul has them.
RenderedDispatch order_by_ends(const std::string& name, const kernel::Operand& ends, const RowGroups& groups,
                               const Target& target);

}  // namespace weft::webgpu
