#include "backend/webgpu/wgsl/render.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>

#include "backend/webgpu/wgsl/scalar.hpp"
#include "weft/error.hpp"

namespace weft::webgpu {

namespace {

bool lists(const AdapterInfo& adapter, const char* component, const char* result, std::uint32_t k) {
  return std::any_of(adapter.subgroup_matrices.begin(), adapter.subgroup_matrices.end(),
                     [&](const SubgroupMatrixConfig& c) {
                       return c.component == component && c.result == result && c.m == 16 && c.n == 16 && c.k == k;
                     });
}

}  // namespace

Target target_of(const AdapterInfo& adapter) {
  Target target;
  target.limits = adapter.limits;
  if (adapter.subgroups && adapter.subgroup_size_min == adapter.subgroup_size_max &&
      std::has_single_bit(adapter.subgroup_size_min) && adapter.subgroup_size_min <= 128)
    target.subgroup_size = adapter.subgroup_size_min;
  target.profile = profile_from_table(adapter);
  target.lists_matrices = adapter.f16 && target.subgroup_size == 32 && lists(adapter, "f16", "f32", 16);
  target.lists_integer_matrices = target.subgroup_size == 32 && lists(adapter, "i8", "i32", 32);
  target.unroll = adapter.type != AdapterType::software;
  return target;
}

kernel::Operand Scratch::add(DType type, Extent count) {
  rendered_.scratch_bytes.push_back(static_cast<std::uint64_t>(count) * 4);
  return {.buffer = first_ + static_cast<int>(rendered_.scratch_bytes.size()) - 1,
          .type = type,
          .offset = 0,
          .count = count};
}

int Bindings::add(const kernel::Operand& operand, bool written) {
  accesses_.push_back({operand, written});
  return static_cast<int>(accesses_.size()) - 1;
}

void Bindings::resolve() {
  merge(false);
  // Operands in one buffer can share a binding, which is worth it only if there are too many.
  if (bindings_.size() > target_.limits.storage_buffers) merge(true);
  if (bindings_.size() > target_.limits.storage_buffers)
    throw InternalError(
        fmt::format("webgpu: kernel {} uses {} buffer ranges, and a shader of this device has at most {}", kernel_,
                    bindings_.size(), target_.limits.storage_buffers));
}

namespace {

/// Bits of an element in a storage buffer: a bool takes a word there.
int bits_of(const kernel::Operand& operand) { return operand.type == DType::boolean ? 32 : element(operand.type).bits; }
std::uint64_t bytes_of(const kernel::Operand& operand, Extent elements) {
  return bytes_of_bits(bits_of(operand), static_cast<std::size_t>(elements));
}
/// Operands of packed types begin at a whole byte.
std::uint64_t start_of(const kernel::Operand& operand) { return bytes_of(operand, operand.offset); }

/// The word that contains an element of fewer than 32 bits.
std::string word_index(int bits, const std::string& index) {
  return fmt::format("({}) >> {}u", index, std::countr_zero(32u / static_cast<unsigned>(bits)));
}
std::string bit_of(int bits, const std::string& index) {
  const int shift = std::countr_zero(static_cast<unsigned>(bits));
  const std::string place = fmt::format("(({}) & {}u)", index, 32 / bits - 1);
  return shift == 0 ? place : fmt::format("({} << {}u)", place, shift);
}
std::string mask_of(int bits) { return fmt::format("{:#x}u", (1u << bits) - 1); }

}  // namespace

void Bindings::merge(bool whole_buffers) {
  bindings_.clear();
  const std::uint64_t alignment = std::max<std::uint64_t>(16, target_.limits.offset_alignment);
  for (const Access& access : accesses_) {
    if (access.operand.count == 0) continue;
    const std::uint64_t start = start_of(access.operand);
    const std::uint64_t offset = start / alignment * alignment;
    const std::uint64_t end = (start + bytes_of(access.operand, access.operand.count) + 15) / 16 * 16;
    BoundRange range{access.operand.buffer, offset, end - offset, access.written};
    // After joining a range, a binding may overlap another, so repeat until nothing changes.
    for (std::size_t i = 0; i < bindings_.size();) {
      const BoundRange& other = bindings_[i].range;
      const bool overlaps = other.buffer == range.buffer && other.offset < range.offset + range.bytes &&
                            range.offset < other.offset + other.bytes;
      if (!overlaps && !(whole_buffers && other.buffer == range.buffer)) {
        ++i;
        continue;
      }
      const std::uint64_t first = std::min(range.offset, other.offset);
      range.bytes = std::max(range.offset + range.bytes, other.offset + other.bytes) - first;
      range.offset = first;
      range.written = range.written || other.written;
      bindings_.erase(bindings_.begin() + static_cast<std::ptrdiff_t>(i));
      i = 0;
    }
    bindings_.push_back({range, {}, false, 0});
  }
  // WebGPU does not allow a buffer to be both read-only and written in one dispatch.
  for (Binding& a : bindings_) {
    const bool changes = a.range.written;
    for (const Binding& b : bindings_)
      if (a.range.buffer == b.range.buffer && b.range.written) a.range.written = true;
    a.range.only_read = a.range.written && !changes;
  }
  for (Access& access : accesses_) {
    if (access.operand.count == 0) continue;
    const int bits = bits_of(access.operand);
    const std::uint64_t start = start_of(access.operand);
    for (std::size_t i = 0; i < bindings_.size(); ++i) {
      Binding& binding = bindings_[i];
      if (binding.range.buffer != access.operand.buffer || start < binding.range.offset ||
          start >= binding.range.offset + binding.range.bytes)
        continue;
      access.binding = static_cast<int>(i);
      access.base = static_cast<Extent>((start - binding.range.offset) * 8 / static_cast<std::uint64_t>(bits));
      const std::string_view element = wgsl_storage_type(access.operand.type);
      binding.element = binding.users == 0 || binding.element == element ? element : "u32";
      if (access.atomic) binding.element = "atomic<u32>";
      binding.element_bits = binding.users == 0 || binding.element_bits == bits ? bits : 0;
      ++binding.users;
    }
  }
  for (std::size_t i = 0; i < bindings_.size(); ++i) {
    bool wanted = false, forbidden = false, eights = false;
    for (const Access& access : accesses_) {
      if (access.binding != static_cast<int>(i)) continue;
      wanted = wanted || access.vector_wanted;
      eights = eights || access.eights_wanted;
      forbidden = forbidden || access.vector_forbidden;
    }
    bindings_[i].eights = eights && bindings_[i].element_bits == 16 && !bindings_[i].range.written;
    bindings_[i].vectors = wanted && !forbidden && !bindings_[i].eights && bindings_[i].element_bits != 0;
    // Threads that write parts of one word must not lose each other's bits.
    for (const Access& access : accesses_)
      if (access.binding == static_cast<int>(i) && access.written && bits_of(access.operand) < 32 &&
          (!bindings_[i].vectors || bits_of(access.operand) < 8))
        bindings_[i].element = "atomic<u32>";
  }
}

bool Bindings::has_vectors(int handle) const { return is_bound(handle) && binding_of(handle).vectors; }
bool Bindings::is_shared(int handle) const { return is_bound(handle) && binding_of(handle).users > 1; }

std::string Bindings::from_word(int handle, const std::string& word) const {
  const Access& access = at(handle);
  std::string value = word;
  const std::string_view type = wgsl_storage_type(access.operand.type);
  if (binding_of(handle).element != type) value = fmt::format("bitcast<{}>({})", type, value);
  return access.operand.type == DType::boolean ? fmt::format("({} != 0u)", value) : value;
}

std::string Bindings::to_word(int handle, const std::string& value) const {
  const Access& access = at(handle);
  std::string word = access.operand.type == DType::boolean ? fmt::format("u32({})", value) : value;
  const std::string_view element = binding_of(handle).element;
  if (element != wgsl_storage_type(access.operand.type)) word = fmt::format("bitcast<{}>({})", element, word);
  return word;
}

std::string Bindings::load(int handle, const std::string& index) const {
  const int binding = at(handle).binding;
  if (const int bits = bits_of(at(handle).operand); bits < 32) {
    std::string word = fmt::format("$data{}[{}]", binding, word_index(bits, index));
    if (binding_of(handle).eights)
      word = fmt::format("$data{}[({}) >> 3u][(({}) >> 1u) & 3u]", binding, index, index);
    else if (has_vectors(handle) && bits == 16)
      word = fmt::format("$data{}[({}) >> 2u][(({}) >> 1u) & 1u]", binding, index, index);
    else if (binding_of(handle).element == "atomic<u32>")
      word = fmt::format("atomicLoad(&{})", word);
    return fmt::format("(({} >> {}) & {})", word, bit_of(bits, index), mask_of(bits));
  }
  if (!has_vectors(handle)) return from_word(handle, fmt::format("$data{}[{}]", binding, index));
  return from_word(handle, fmt::format("$data{0}[({1}) >> 2u][({1}) & 3u]", binding, index));
}

std::string Bindings::load_vector(int handle, const std::string& index) const {
  if (const int bits = bits_of(at(handle).operand); bits < 8) {  // the four elements in the low bits of a word
    const std::string word = fmt::format("$data{}[{}]", at(handle).binding, word_index(bits, index));
    const bool is_atomic = binding_of(handle).element == "atomic<u32>";
    return fmt::format("({} >> {})", is_atomic ? fmt::format("atomicLoad(&{})", word) : word, bit_of(bits, index));
  }
  return fmt::format("$data{}[({}) >> 2u]", at(handle).binding, index);
}

std::string Bindings::vector(int handle, const std::string& index) const {
  const int bits = bits_of(at(handle).operand);
  if (bits >= 8) return fmt::format("{}[{}]", array_of(handle), index);
  const int groups = 8 / bits;  // in a word
  const std::string word =
      fmt::format("{}[({}) >> {}u]", array_of(handle), index, std::countr_zero(static_cast<unsigned>(groups)));
  const bool is_atomic = binding_of(handle).element == "atomic<u32>";
  return fmt::format("({} >> ((({}) & {}u) * {}u))", is_atomic ? fmt::format("atomicLoad(&{})", word) : word, index,
                     groups - 1, 4 * bits);
}

std::string Bindings::load_f32(int handle, const std::string& index, Helpers& helpers) const {
  return render_unpacked(at(handle).operand.type, load(handle, index), helpers);
}

std::string Bindings::load_vec4f(int handle, const std::string& group, Helpers& helpers) const {
  const DType type = at(handle).operand.type;
  const std::string raw = vector(handle, group);
  switch (type) {
    case DType::f32: return binding_of(handle).element == "f32" ? raw : fmt::format("bitcast<vec4f>({})", raw);
    case DType::f16: return fmt::format("{}({})", helpers.use("vec4f_from_f16"), raw);
    case DType::bf16: return fmt::format("{}({})", helpers.use("vec4f_from_bf16"), raw);
    default: break;
  }
  std::string values;
  for (int lane = 0; lane < 4; ++lane)
    values += (lane ? ", " : "") + render_unpacked(type, component(handle, raw, lane), helpers);
  return fmt::format("vec4f({})", values);
}

std::string Bindings::store_f32(int handle, const std::string& index, const std::string& value,
                                Helpers& helpers) const {
  return store(handle, index, render_packed(at(handle).operand.type, value, helpers));
}

std::string Bindings::store_vec4f(int handle, const std::string& group, const std::string& vector,
                                  Helpers& helpers) const {
  const DType type = at(handle).operand.type;
  if (type == DType::f32) return fmt::format("{}[{}] = {};", array_of(handle), group, vector);
  const auto lane = [&](const char* name) { return fmt::format("{}.{}", vector, name); };
  return store_values(handle, fmt::format("(({}) << 2u)", group), {lane("x"), lane("y"), lane("z"), lane("w")},
                      helpers);
}

std::string Bindings::store_values(int handle, const std::string& index, const std::string (&values)[4],
                                   Helpers& helpers, bool are_rounded) const {
  const DType type = at(handle).operand.type;
  if (type == DType::bf16 && are_rounded) {
    const std::string_view pair = helpers.use("pair_of_bf16");
    return fmt::format("$data{}[({}) >> 2u] = vec2<u32>({}({}, {}), {}({}, {}));", at(handle).binding, index, pair,
                       values[0], values[1], pair, values[2], values[3]);
  }
  if (type == DType::f16) {
    const std::string_view pair = helpers.use("halves_from_f32");
    return fmt::format("$data{}[({}) >> 2u] = vec2<u32>({}({}, {}), {}({}, {}));", at(handle).binding, index, pair,
                       values[0], values[1], pair, values[2], values[3]);
  }
  const auto packed = [&](int lane) { return render_packed(type, values[lane], helpers); };
  return store_vector(handle, index, {packed(0), packed(1), packed(2), packed(3)});
}

std::string Bindings::component(int handle, const std::string& vector, int lane) const {
  switch (const int bits = bits_of(at(handle).operand); bits) {
    case 1:
    case 2:
    case 4:
    case 8: return fmt::format("(({} >> {}u) & {})", vector, bits * lane, mask_of(bits));
    case 16: return fmt::format("(({}.{} >> {}u) & 0xffffu)", vector, "xy"[lane / 2], 16 * (lane % 2));
    default: break;
  }
  return from_word(handle, fmt::format("{}.{}", vector, "xyzw"[lane]));
}

std::string Bindings::store(int handle, const std::string& index, const std::string& value) const {
  if (const int bits = bits_of(at(handle).operand); bits < 32) {
    const std::string word = fmt::format("$data{}[{}]", at(handle).binding, word_index(bits, index));
    return fmt::format("atomicAnd(&{0}, ~({1} << {2})); atomicOr(&{0}, {3} << {2});", word, mask_of(bits),
                       bit_of(bits, index), value);
  }
  return fmt::format("$data{}[{}] = {};", at(handle).binding, index, to_word(handle, value));
}

std::string Bindings::store_vector(int handle, const std::string& index, const std::string (&values)[4]) const {
  const int bits = bits_of(at(handle).operand);
  switch (bits) {
    case 1:
    case 2:
    case 4: {  // a part of a word; other threads write the other parts
      const std::string word = fmt::format("$data{}[{}]", at(handle).binding, word_index(bits, index));
      return fmt::format(
          "atomicAnd(&{0}, ~({1} << {2})); atomicOr(&{0}, ({3} | ({4} << {7}u) | ({5} << {8}u) | ({6} << {9}u)) << "
          "{2});",
          word, mask_of(4 * bits), bit_of(bits, index), values[0], values[1], values[2], values[3], bits, 2 * bits,
          3 * bits);
    }
    case 8:
      return fmt::format("$data{}[({}) >> 2u] = {} | ({} << 8u) | ({} << 16u) | ({} << 24u);", at(handle).binding,
                         index, values[0], values[1], values[2], values[3]);
    case 16:
      return fmt::format("$data{}[({}) >> 2u] = vec2<u32>({} | ({} << 16u), {} | ({} << 16u));", at(handle).binding,
                         index, values[0], values[1], values[2], values[3]);
    default: break;
  }
  return fmt::format("$data{}[({}) >> 2u] = vec4<{}>({}, {}, {}, {});", at(handle).binding, index,
                     binding_of(handle).element, to_word(handle, values[0]), to_word(handle, values[1]),
                     to_word(handle, values[2]), to_word(handle, values[3]));
}

std::vector<ShaderPieces::Storage> Bindings::storage() const {
  std::vector<ShaderPieces::Storage> all;
  for (const Binding& binding : bindings_) {
    const std::string_view vector = binding.eights                                  ? "vec4<u32>"
                                    : !binding.vectors || binding.element_bits <= 8 ? "{}"
                                    : binding.element_bits == 16                    ? "vec2<u32>"
                                                                                    : "vec4<{}>";
    all.push_back({fmt::format(fmt::runtime(vector), binding.element), binding.range.written});
  }
  return all;
}

std::vector<BoundRange> Bindings::ranges() const {
  std::vector<BoundRange> ranges;
  for (const Binding& binding : bindings_) ranges.push_back(binding.range);
  return ranges;
}

RenderedDispatch dispatch_of(std::string name, ShaderPieces shader, const Bindings& bindings, std::uint64_t workgroups,
                             const Target& target) {
  if (workgroups > 0xffffffffu)
    throw DeviceError(
        fmt::format("webgpu: {} workgroups are more than one dispatch can number; use a smaller batch", workgroups));
  shader.storage = bindings.storage();
  shader.helpers.take_exact_halves(target.tested.exact_halves);
  shader.helpers.take_rounded_halves(target.tested.rounded_halves);
  shader.folded_groups = workgroups > target.limits.workgroups_per_dimension ? workgroups : 0;
  return {std::move(name), std::move(shader), bindings.ranges(), workgroups};
}

std::string divided(const std::string& a, Extent divisor) {
  if (divisor == 1) return a;
  const auto d = static_cast<std::uint64_t>(divisor);
  if (d >> 32 != 0) return "0u";
  if (std::has_single_bit(d)) return fmt::format("({} >> {}u)", a, std::countr_zero(d));
  return fmt::format("({} / {}u)", a, d);
}

std::string modulo(const std::string& a, Extent divisor) {
  if (divisor == 1) return "0u";
  const auto d = static_cast<std::uint64_t>(divisor);
  if (d >> 32 != 0) return a;
  if (std::has_single_bit(d)) return fmt::format("({} & {}u)", a, d - 1);
  return fmt::format("({} % {}u)", a, d);
}

bool overlap(const kernel::Operand& a, const kernel::Operand& b) {
  const auto bits = [](const kernel::Operand& o) { return o.type == DType::boolean ? 32 : element(o.type).bits; };
  return a.buffer == b.buffer && a.offset * bits(a) < (b.offset + b.count) * bits(b) &&
         b.offset * bits(b) < (a.offset + a.count) * bits(a);
}

}  // namespace weft::webgpu
