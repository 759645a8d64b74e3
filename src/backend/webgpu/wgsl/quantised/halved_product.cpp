#include "backend/webgpu/wgsl/quantised/halved_product.hpp"

#include <algorithm>
#include <limits>

#include "backend/webgpu/quantised_pack.hpp"
#include "backend/webgpu/wgsl/matmul/matrix_writer.hpp"
#include "backend/webgpu/wgsl/matmul/row_halves.hpp"
#include "backend/webgpu/wgsl/quantised/unpack.hpp"

namespace weft::webgpu {
using kernel::Operand;
using kernel::PackedMatmulKernel;

namespace {

/// Whether f16 holds the weights, rounded. Scales in f16 make every weight a multiple of 2^-24, so only sizes above 65504 are
/// outside of its range; blocks hold those only if they are damaged, and they become 65504.
bool become_halves(const QuantForm& form) {
  return form.values == QuantValues::f16 || form.scales == QuantScales::half || form.scales == QuantScales::coded;
}

/// Whether halves of the weights are scaled, each row by a power of two: those of bf16, and of blocks whose scales have the range of f32.
bool become_scaled_halves(const QuantForm& form) {
  return form.values == QuantValues::bf16 || form.scales == QuantScales::single;
}

/// Whether A may become halves, and W is or becomes halves, with so many bindings of the epilogue and `matrices` of weights.
bool suits_halves(const PackedMatmulKernel& kernel, const kernel::LoopKernel& epilogue, std::size_t matrices,
                  const Target& target) {
  constexpr Extent kEight = 8;
  const QuantForm form = quant_form(kernel.block_type);
  const std::size_t others = (kernel.experts ? 3 : 2) + (become_scaled_halves(form) ? matrices : 0);
  return !kernel.exact && !kernel.rows && (become_halves(form) || become_scaled_halves(form)) &&
         kernel.a.type == DType::f32 && kernel.k % kEight == 0 && kernel.a_row % kEight == 0 &&
         kernel.a.offset % kEight == 0 &&
         others + matrices + epilogue.inputs.size() + epilogue.outputs.size() <= target.limits.storage_buffers;
}

/// Rows of W that are halves at the same time: all, or those of some experts.
Extent rows_at_once(const PackedMatmulKernel& kernel) {
  if (!kernel.experts) return kernel.n;
  return std::clamp<Extent>(kUnpackedMax / (kernel.n * kernel.k), 1, kernel.experts->count) * kernel.n;
}

/// The weights where they are of f16; else where they will be as halves, which have no buffer yet.
Operand weights_as_halves(const PackedMatmulKernel& kernel) {
  const QuantForm form = quant_form(kernel.block_type);
  if (form.values != QuantValues::f16) return {-1, DType::f16, 0, rows_at_once(kernel) * kernel.k};
  const Extent rows = kernel.rows_of_weights(), column = quant_layout(form, rows, kernel.k).blocks * kQuantBlock;
  return {kernel.weights.buffer, DType::f16, kernel.weights.offset * 2, rows * column};
}

/// Whether weights become halves as they are staged: where few tiles read them. Measured on an H100 with 8B's shapes.
bool unpacks_in_tiles(const PackedMatmulKernel& kernel) {
  constexpr Extent kRowsMax = 64, kElementsMin = Extent{1} << 22;
  const bool is_read_by_few = kernel.experts || (kernel.m <= kRowsMax && kernel.n * kernel.k >= kElementsMin);
  return is_read_by_few && PackedOperand::suits(kernel.block_type) && kernel.k % kQuantBlock == 0;
}

/// The product of halves; A and weights in blocks have no buffers yet. B has a batch for each expert whose weights are halves at once.
kernel::MatmulKernel product_of_halves(const PackedMatmulKernel& kernel) {
  kernel::MatmulKernel halves{.name = kernel.name, .batch = 1, .m = kernel.m, .n = kernel.n, .k = kernel.k};
  halves.epilogue = kernel.epilogue;
  halves.b = weights_as_halves(kernel);
  if (unpacks_in_tiles(kernel)) halves.b.count = kernel.rows_of_weights() * kernel.k;
  if (kernel.experts)
    halves.batch =
        halves.b.buffer >= 0 || unpacks_in_tiles(kernel) ? kernel.experts->count : rows_at_once(kernel) / kernel.n;
  const Extent column = halves.b.count / (halves.batch * kernel.n);
  halves.a = {-1, DType::f16, 0, kernel.m * kernel.k};
  halves.a_view = kernel::matrix_view({{halves.batch}, {0}, 0, {}}, kernel.m, kernel.k, kernel.k, 1);
  halves.b_view = kernel::matrix_view({{halves.batch}, {halves.batch > 1 ? kernel.n * column : 0}, 0, {}}, kernel.k, 1,
                                      kernel.n, column);
  return halves;
}

/// Weights in blocks as halves in scratch, which `halves` gets when it has none: all, or as many as it holds, from row `first` on.
/// `largest`: the largest size in each of these rows, if they are scaled.
void unpack_weights(const PackedMatmulKernel& kernel, Operand& halves, Operand& largest, Extent first,
                    const Target& target, Scratch& scratch, Rendered& rendered) {
  const QuantForm form = quant_form(kernel.block_type);
  if (form.values == QuantValues::f16) return;
  if (halves.buffer < 0) {
    halves = scratch.add(DType::f16, halves.count);
    if (become_scaled_halves(form)) largest = scratch.add(DType::f32, halves.count / kernel.k);
  }
  const Extent all = kernel.rows_of_weights(), rows = std::min(halves.count / kernel.k, all - first);
  const std::string name = kernel.name + ".unpack";
  rendered.dispatches.push_back(
      become_scaled_halves(form)
          ? unpack_scaled(name, kernel.block_type, kernel.weights, all, kernel.k, largest, halves, rows, target, first)
          : unpack(name, kernel.block_type, kernel.weights, all, kernel.k, nullptr, halves, rows, target, first));
}

struct Choice {
  const MatrixTile* tile = nullptr;  // null: none suits
  int split = 1;
};

/// The tile and split with the least estimated time for a product, or for a pair with columns of both, which are halves of whole tiles.
/// Neither pairs nor products of experts are split.
Choice choose(const PackedMatmulKernel& kernel, const kernel::MatmulKernel& halves, bool is_pair,
              const Target& target) {
  if (!target.matrices() || !suits_matrices(halves)) return {};
  const bool in_tiles = unpacks_in_tiles(kernel), is_split = !kernel.experts && !is_pair;
  if (is_split && !in_tiles) {
    const auto choice = choose_matrix_tile(halves, target);
    return choice ? Choice{&matrix_tiles()[static_cast<std::size_t>(choice->tile)], choice->split} : Choice{};
  }
  kernel::MatmulKernel whole = halves;
  whole.batch = 1;
  if (is_pair) whole.n *= 2;
  Choice best;
  double least = std::numeric_limits<double>::infinity();
  for (const MatrixTile& tile : matrix_tiles()) {
    if (!fits(tile, true, true, target.limits) || (is_pair && !suits_pair(tile, halves)) ||
        (in_tiles && !has_whole_steps(tile, halves.k)))
      continue;
    if (kernel.experts) whole.m = rows_in_groups(kernel.m, kernel.experts->count, tile.rows);
    const Extent turns = halves.k / (Extent{tile.depth} * tile.turn),
                 most = is_split ? std::clamp<Extent>(turns / 2, 1, 64) : 1;
    for (int split = 1; split <= most && split_fits(1, whole.m, whole.n, split, target); ++split) {
      const double time = estimate(tile, split, whole, target.profile);
      if (time >= least * 0.999) continue;
      least = time;
      best = {&tile, split};
    }
  }
  return best;
}

/// The product, or a pair, in this tile.
class HalvesRenderer {
 public:
  HalvesRenderer(const PackedMatmulKernel& kernel, const PackedMatmulKernel* second, const MatrixTile& tile, int split,
                 const Target& target, Scratch& scratch, Rendered& rendered)
      : kernel_(kernel),
        second_(second),
        tile_(tile),
        split_(split),
        target_(target),
        scratch_(scratch),
        rendered_(rendered) {}

  void render(kernel::MatmulKernel halves, std::size_t steps_of_first) {
    std::optional<RowGroups> groups;
    if (kernel_.experts) {
      groups.emplace(kernel_.m, kernel_.experts->count, tile_.rows, kernel_.experts->share, scratch_);
      rendered_.dispatches.push_back(order_by_group(kernel_.name, kernel_.experts->of_row, *groups, target_));
    }
    const Extent rows = groups ? groups->slots() : kernel_.m;
    const Operand largest = scratch_.add(DType::f32, rows);
    halves.a = scratch_.add(DType::f16, rows * kernel_.k);
    render_row_halves(kernel_.name, kernel_.a, kernel_.a_row, rows, kernel_.k, largest, halves.a, target_, rendered_,
                      groups ? &*groups : nullptr);
    ScaledOperands scaled{.largest_a = largest,
                          .batched_b = halves.batch > 1,
                          .scaled_b = become_scaled_halves(quant_form(kernel_.block_type)),
                          .padded = false,
                          .steps_of_first = steps_of_first};
    const bool in_tiles = unpacks_in_tiles(kernel_);
    if (in_tiles) {
      const auto packed = [](const PackedMatmulKernel& k) {
        const Extent words = quant_layout(quant_form(k.block_type), k.rows_of_weights(), k.k).words;
        return PackedOperand{
            k.block_type, {k.weights.buffer, DType::u32, k.weights.offset, words}, k.rows_of_weights()};
      };
      scaled.packed_b = packed(kernel_);
      if (second_) scaled.packed_second_b = packed(*second_);
    } else if (second_) {
      scaled.second_b = weights_as_halves(*second_);
    }
    const Extent all = groups ? groups->groups : 1;
    for (Extent first = 0; first < all; first += halves.batch) {
      if (!in_tiles)
        unpack_weights(kernel_, halves.b, scaled.largest_b, first * kernel_.n, target_, scratch_, rendered_);
      if (second_ && !in_tiles)
        unpack_weights(*second_, *scaled.second_b, scaled.second_largest_b, first * kernel_.n, target_, scratch_,
                       rendered_);
      if (groups) groups->first = first, groups->count = std::min(halves.batch, all - first);
      MatrixWriter(halves, tile_, split_, target_, scratch_, rendered_, &scaled, groups ? &*groups : nullptr).render();
    }
  }

 private:
  const PackedMatmulKernel& kernel_;
  const PackedMatmulKernel* second_;
  const MatrixTile& tile_;
  int split_;
  const Target& target_;
  Scratch& scratch_;
  Rendered& rendered_;
};

}  // namespace

bool render_on_halves(const PackedMatmulKernel& kernel, const Target& target, Scratch& scratch, Rendered& rendered) {
  if (!suits_halves(kernel, kernel.epilogue, 1, target)) return false;
  const kernel::MatmulKernel halves = product_of_halves(kernel);
  const Choice choice = choose(kernel, halves, false, target);
  if (!choice.tile) return false;
  HalvesRenderer(kernel, nullptr, *choice.tile, choice.split, target, scratch, rendered).render(halves, 0);
  return true;
}

bool render_pair_on_halves(const PackedMatmulKernel& first, const PackedMatmulKernel& second, const GatedPair& pair,
                           const Target& target, Scratch& scratch, Rendered& rendered) {
  if (first.exact || !suits_halves(second, pair.epilogue, 2, target)) return false;
  kernel::MatmulKernel halves = product_of_halves(first);
  halves.name = first.name + " + " + second.name;
  halves.epilogue = pair.epilogue;
  const MatrixTile* tile = choose(first, halves, true, target).tile;
  if (!tile || halves.b.offset % 8 != 0 || weights_as_halves(second).offset % 8 != 0) return false;
  HalvesRenderer(first, &second, *tile, 1, target, scratch, rendered).render(halves, pair.steps_of_first);
  return true;
}

}  // namespace weft::webgpu
