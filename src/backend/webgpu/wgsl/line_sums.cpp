#include "backend/webgpu/wgsl/line_sums.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "backend/webgpu/wgsl/routine_shader.hpp"
#include "backend/webgpu/wgsl/scalar.hpp"
#include "backend/webgpu/wgsl/zeros.hpp"

namespace weft::webgpu {
namespace {

constexpr Extent kSumsBytesMost = 49152;  // of sums in workgroup memory
constexpr int kSumsThreadsMost = 1024;    // on an H100 1.2 times as fast as 512: each holds fewer updates in registers
constexpr Extent kSumsAtOnce = Extent{1} << 22;  // sums in memory: as many as a cache holds with their scales
constexpr Extent kSumsTimesMost = 16;            // each time is up to three shaders, if lines do not lie alike
constexpr int kSumThreads = 256;

BlockNeeds needs_of(DType type) {
  return {.slot_bytes = type == DType::f32 ? 12 : 4,
          .bytes_most = kSumsBytesMost,
          .threads_most = kSumsThreadsMost,
          .turned_parts_most = 8};
}

/// Adds an update to the sum of 64 bits of its place, whose scale is not below that of the update. `low` and `high` point to its words.
std::string add_part(const std::string& low, const std::string& high, const std::string& scale) {
  return fmt::format(
      "let scale = {2}; "
      "if (scale == 255u) {{ if (fixed_scale(value) == 255u) {{ atomicOr({0}, fixed_special(value)); }} }} else {{ "
      "let part = fixed_part(value, scale); "
      "let carry = u32(atomicAdd({0}, part) > ~part) - (part >> 31u); "
      "if (carry != 0u) {{ atomicAdd({1}, carry); }} }}",
      low, high, scale);
}

void use_fixed_point(ShaderPieces& shader) {
  for (const char* helper : {"fixed_scale", "fixed_part", "fixed_special", "fixed_value"}) shader.helpers.use(helper);
}

/// The elements of `operand` that belong to `count` of its `outer` slices, from slice `first` on.
kernel::Operand slices_of(const kernel::Operand& operand, Extent outer, Extent first, Extent count) {
  const Extent each = operand.count / outer;
  return {operand.buffer, operand.type, operand.offset + first * each, count * each};
}

class SumsInMemory {
 public:
  SumsInMemory(const LineSums& sums, const Target& target) : sums_(sums), along_(sums.along), target_(target) {}

  void render(Scratch& scratch, Rendered& rendered) {
    const kernel::Operand out = words_of(sums_.out);
    render_zeros(sums_.name + ".clear", out, target_, scratch, rendered);
    if (sums_.out.type != DType::f32) {
      rendered.dispatches.push_back(add_integers(out));
      return;
    }
    const Extent slice = along_.extent * along_.inner;
    const Extent together =
        std::min(along_.outer, std::max(kSumsAtOnce / slice, divide_up(along_.outer, kSumsTimesMost)));
    const kernel::Operand parts = scratch.add(DType::u32, 2 * together * slice);
    render_zeros(sums_.name + ".clear_sums", parts, target_, scratch, rendered);
    for (Extent first = 0; first < along_.outer; first += together) {
      const Extent count = std::min(together, along_.outer - first);
      const auto of = [&](const kernel::Operand& all) { return slices_of(all, along_.outer, first, count); };
      const kernel::Operand indices = of(words_of(sums_.indices)), updates = of(words_of(sums_.updates));
      rendered.dispatches.push_back(find_scales(indices, updates, of(out)));
      rendered.dispatches.push_back(add_up(indices, updates, of(out), parts));
      rendered.dispatches.push_back(values(of(out), parts));
    }
  }

 private:
  /// Begins a shader whose thread takes update `i`, and knows the place `at` of its sum.
  void begin(RoutineShader& s, const kernel::Operand& indices, int handle) const {
    s.pieces.threads = kSumThreads;
    s.line(fmt::format("let i = group * {}u + thread;", kSumThreads));
    s.line(fmt::format("if (i >= {}u) {{ return; }}", indices.count));
    s.line(fmt::format("let place = {};", s.at(handle, "i")));
    s.line(fmt::format("if (place >= {}u) {{ return; }}", along_.extent));
    s.line(fmt::format("let at = ({} * {}u + place) * {}u + {};", divided("i", along_.taken * along_.inner),
                       along_.extent, along_.inner, modulo("i", along_.inner)));
  }
  static Extent groups(const kernel::Operand& operand) { return divide_up(operand.count, kSumThreads); }

  RenderedDispatch add_integers(const kernel::Operand& out) const {
    const kernel::Operand indices = words_of(sums_.indices);
    RoutineShader s(target_, sums_.name);
    const int from = s.read(indices), updates = s.read(words_of(sums_.updates)), to = s.atomics(out);
    s.resolve();
    begin(s, indices, from);
    s.line(fmt::format("atomicAdd({}, {});", s.pointer(to, "at"), s.at(updates, "i")));
    return s.dispatch(sums_.name, groups(indices));
  }

  RenderedDispatch find_scales(const kernel::Operand& indices, const kernel::Operand& updates,
                               const kernel::Operand& out) const {
    RoutineShader s(target_, sums_.name);
    const int from = s.read(indices), values = s.read(updates), to = s.atomics(out);
    s.resolve();
    s.pieces.helpers.use("fixed_scale");
    begin(s, indices, from);
    s.line(fmt::format("atomicMax({}, fixed_scale({}));", s.pointer(to, "at"), s.at(values, "i")));
    return s.dispatch(sums_.name + ".scales", groups(indices));
  }

  RenderedDispatch add_up(const kernel::Operand& indices, const kernel::Operand& updates, const kernel::Operand& scales,
                          const kernel::Operand& parts) const {
    RoutineShader s(target_, sums_.name);
    const int from = s.read(indices), values = s.read(updates), scale = s.read(scales), to = s.atomics(parts);
    s.resolve();
    use_fixed_point(s.pieces);
    begin(s, indices, from);
    s.line(fmt::format("let value = {};", s.at(values, "i")));
    s.line(add_part(s.pointer(to, "2u * at"), s.pointer(to, "2u * at + 1u"), s.at(scale, "at")));
    return s.dispatch(sums_.name, groups(indices));
  }

  /// Scales become values, and the sums zeros for the next lines.
  RenderedDispatch values(const kernel::Operand& out, const kernel::Operand& parts) const {
    RoutineShader s(target_, sums_.name);
    const int sums = s.write(parts), to = s.write(out);
    s.resolve();
    use_fixed_point(s.pieces);
    s.pieces.threads = kSumThreads;
    s.line(fmt::format("let i = group * {}u + thread;", kSumThreads));
    s.line(fmt::format("if (i >= {}u) {{ return; }}", out.count));
    s.line(fmt::format("let sum = vec2u({}, {});", s.at(sums, "2u * i"), s.at(sums, "2u * i + 1u")));
    s.line(s.put(to, "i", fmt::format("fixed_value(sum, {})", s.at(to, "i"))));
    s.line(s.put(sums, "2u * i", "0u"));
    s.line(s.put(sums, "2u * i + 1u", "0u"));
    return s.dispatch(sums_.name + ".values", groups(out));
  }

  const LineSums& sums_;
  const AxisLines along_;
  const Target& target_;
};

}  // namespace

std::optional<LineBlock> sums_block(const AxisLines& along, DType type, const Target& target) {
  return line_block(along, target, needs_of(type));
}

bool turns_sums(const AxisLines& along, DType type, const Target& target) {
  return turns_columns(along, target, needs_of(type));
}

RenderedDispatch sums_in_workgroup_memory(const kernel::CallKernel& kernel, const AxisLines& along,
                                          const LineBlock& block, const Target& target) {
  LineBlockWriter w(kernel, along, block, target);
  const int indices = w.bind(kernel.reads[0], false), updates = w.bind(kernel.reads[1], false);
  w.resolve(indices, updates, w.bind(kernel.out(), true));
  w.shader.share("low", "atomic<u32>", block.slots());
  if (kernel.out().type != DType::f32) {
    w.each_slot("atomicStore(&$low[s], 0u);");
    w.barrier();
    w.each_update("atomicAdd(&$low[s], value);", true);
    w.barrier();
    w.each_place(w.store("atomicLoad(&$low[s])"));
    return w.dispatch();
  }
  use_fixed_point(w.shader);
  w.shader.share("high", "atomic<u32>", block.slots());
  w.shader.share("scale", "atomic<u32>", block.slots());
  w.each_slot("atomicStore(&$scale[s], 0u); atomicStore(&$low[s], 0u); atomicStore(&$high[s], 0u);");
  w.barrier();
  w.hold_updates();
  w.each_update("atomicMax(&$scale[s], fixed_scale(value));", true);
  w.barrier();
  w.each_update(add_part("&$low[s]", "&$high[s]", "atomicLoad(&$scale[s])"), true);
  w.barrier();
  w.each_place(w.store("fixed_value(vec2u(atomicLoad(&$low[s]), atomicLoad(&$high[s])), atomicLoad(&$scale[s]))"));
  return w.dispatch();
}

void render_sums_in_memory(const LineSums& sums, const Target& target, Scratch& scratch, Rendered& rendered) {
  SumsInMemory(sums, target).render(scratch, rendered);
}

}  // namespace weft::webgpu
