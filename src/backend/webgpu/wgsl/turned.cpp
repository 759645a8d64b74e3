#include "backend/webgpu/wgsl/turned.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>

#include "backend/webgpu/wgsl/render.hpp"

namespace weft::webgpu {

using kernel::Step;
using kernel::StepKind;

namespace {

constexpr Extent kSide = Turned::kSide;
constexpr Extent kThreadsAlong = 8;  // of 32 neighbouring threads, where each takes one element; the others are across
constexpr std::size_t kTurnedLoadsMost = 3;  // blocks in workgroup memory

std::optional<Turned> turned_axes_of(const Step& step, Extent total) {
  std::vector<Extent> extents, strides;  // merged where neighbours are contiguous
  Extent points = 1;
  for (std::size_t d = 0; d < step.view.extents.size(); ++d) {
    const Extent extent = step.view.extents[d], stride = step.view.strides[d];
    points *= extent;
    if (extent == 1) continue;
    if (!strides.empty() && strides.back() == stride * extent) {
      extents.back() *= extent;
      strides.back() = stride;
    } else {
      extents.push_back(extent);
      strides.push_back(stride);
    }
  }
  if (points != total || extents.size() < 2 || std::abs(strides.back()) < kSide) return {};
  const auto found = std::find(strides.begin(), strides.end(), 1);
  if (found == strides.end()) return {};
  const auto at = static_cast<std::size_t>(found - strides.begin());
  Turned turned{extents[at], 1, extents.back()};
  for (std::size_t d = at + 1; d + 1 < extents.size(); ++d) turned.between *= extents[d];
  const Extent padded = divide_up(turned.across, kSide) * kSide * divide_up(turned.along, kSide) * kSide;
  if (turned.across * turned.along * 2 <= padded) return {};
  return turned;
}

}  // namespace

bool Turned::whole() const { return across % kSide == 0 && along % kSide == 0; }

Extent Turned::blocks(Extent total) const {
  return total / (across * along) * divide_up(across, kSide) * divide_up(along, kSide);
}

std::optional<Turned> turned_axes(const kernel::LoopKernel& kernel, const std::vector<bool>& needed, Extent total) {
  for (std::size_t s = 0; s < kernel.steps.size(); ++s) {
    if (!needed[s] || kernel.steps[s].kind != StepKind::load) continue;
    if (const std::optional<Turned> turned = turned_axes_of(kernel.steps[s], total)) return turned;
  }
  return {};
}

std::vector<int> turned_loads(const kernel::LoopKernel& kernel, const std::vector<bool>& needed, Extent total,
                              const Turned& turned) {
  std::vector<int> loads;
  for (std::size_t s = 0; s < kernel.steps.size(); ++s) {
    const Step& step = kernel.steps[s];
    const bool has_word = step.type == DType::f32 || step.type == DType::i32 || step.type == DType::u32;
    if (needed[s] && step.kind == StepKind::load && has_word && turned_axes_of(step, total) == turned)
      loads.push_back(static_cast<int>(s));
  }
  if (loads.size() > kTurnedLoadsMost) loads.clear();
  return loads;
}

PlaceInBlock place_in_block(const Turned& turned, int width) {
  const Extent items = Turned::kBlockElements / width;
  const std::string in = modulo("item", items);
  std::string row = divided(in, kSide / 4), column = modulo(in, kSide / 4) + " * 4u";
  if (width == 1) {
    // 32 neighbouring threads take a few rows of a few elements, so that both what they read and what they write are runs.
    const Extent down = kSide / kThreadsAlong;
    const std::string tile = divided(in, kSide), lane = modulo(in, kSide);
    row = fmt::format("{} * {}u + {}", divided(tile, kSide / kThreadsAlong), down, divided(lane, kThreadsAlong));
    column =
        fmt::format("{} * {}u + {}", modulo(tile, kSide / kThreadsAlong), kThreadsAlong, modulo(lane, kThreadsAlong));
  }
  return place_in_block(turned, divided("item", items), row, column);
}

PlaceInBlock place_in_block(const Turned& turned, const std::string& block, const std::string& row,
                            const std::string& column) {
  const Extent blocks = divide_up(turned.along, kSide);
  const std::string rest = divided(block, blocks), outer = divided(rest, turned.between);
  if (turned.whole())
    return {fmt::format("(({} * {}u + {}) * {}u + {}) * {}u + {} * {}u + {}", outer, kSide, row, turned.between,
                        modulo(rest, turned.between), turned.along, modulo(block, blocks), kSide, column),
            ""};
  const Extent downs = divide_up(turned.across, kSide);
  const std::string across = fmt::format("({} * {}u + {})", modulo(outer, downs), kSide, row);
  const std::string along = fmt::format("({} * {}u + {})", modulo(block, blocks), kSide, column);
  return {fmt::format("(({} * {}u + {}) * {}u + {}) * {}u + {}", divided(outer, downs), turned.across, across,
                      turned.between, modulo(rest, turned.between), turned.along, along),
          fmt::format("{} < {}u && {} < {}u", across, turned.across, along, turned.along)};
}

}  // namespace weft::webgpu
