// Types that all renderers to WGSL share: the target, the rendered dispatch, and the binding of operands.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "backend/webgpu/adapter.hpp"
#include "backend/webgpu/device_profile.hpp"
#include "backend/webgpu/tested_facts.hpp"
#include "backend/webgpu/wgsl/shader.hpp"
#include "compile/kernel.hpp"

namespace weft::webgpu {

/// The properties of a device that rendering needs.
struct Target {
  Limits limits;
  std::uint32_t subgroup_size = 0;  // 0: no subgroups, or of varying size
  bool unroll = true;               // unroll inner loops; software adapters would take seconds to compile that
  DeviceProfile profile;            // figures for choices
  TestedFacts tested = {};          // properties that tests on the device have shown, beyond the guarantees of WGSL
  bool lists_matrices = false;      // the adapter lists subgroup matrices of f16 with sums in f32, 16 x 16 x 16

  bool lists_integer_matrices = false;  // ... of i8 with sums in i32, 16 x 16 x 32

  bool is_short = true;  // a plan of short dispatches that wait for one another (is_short_pass)

  /// Whether products may use subgroup matrices.
  bool matrices() const { return lists_matrices && tested.matrices; }
  bool integer_matrices() const { return lists_integer_matrices && tested.integer_matrices; }
  /// Whether short dispatches become the phases of resident ones (resident.hpp). Kernels are then rendered to suit that.
  bool joins_phases() const { return is_short && tested.meetings; }
};
/// The target with the profile from the table.
Target target_of(const AdapterInfo& adapter);

/// The buffer in which workgroups of a dispatch meet; a device has one.
inline constexpr int kMeetingBuffer = -2;

/// Threads of a workgroup of a resident dispatch.
inline constexpr int kPhaseThreads = 256;

/// A byte range of a buffer that a dispatch sees as one storage binding.
struct BoundRange {
  int buffer = -1;           // index into Plan::buffers; beyond them: Rendered::scratch_bytes; or kMeetingBuffer
  std::uint64_t offset = 0;  // in bytes, a multiple of Limits::offset_alignment
  std::uint64_t bytes = 0;
  bool written = false;    // declared as such; a buffer is so in all its bindings, or in none
  bool only_read = false;  // nevertheless, as another range of the buffer is the one that is written
  bool operator==(const BoundRange&) const = default;

  bool changes() const { return written && !only_read; }
};

struct RenderedDispatch {
  std::string name;
  ShaderPieces shader;  // equal work on other buffers has equal text
  std::vector<BoundRange> bindings;
  std::uint64_t workgroups = 0;   // of a resident shader: more would have no work
  std::uint32_t repeats = 1;      // it runs so many times, each time after the one before
  double operations = 0;          // of its kernel
  std::vector<int> kernels = {};  // of which it is a part: their positions in the plan
  bool beside_previous = false;   // touches no element that the previous one writes, although ranges overlap
  bool is_aside = false;          // prepares operands or joins results: has few of the kernel's operations
};

/// A kernel as dispatches that run in order. The contents of their scratch buffers, numbered after those of the plan, do not
/// matter between kernels.
struct Rendered {
  std::vector<RenderedDispatch> dispatches;
  std::vector<std::uint64_t> scratch_bytes;

  /// Says of the dispatches from number `first` on that they are aside.
  void set_aside(std::size_t first) {
    for (; first < dispatches.size(); ++first) dispatches[first].is_aside = true;
  }
};

/// Numbers the scratch buffers of one kernel.
class Scratch {
 public:
  Scratch(int plan_buffers, Rendered& rendered) : first_(plan_buffers), rendered_(rendered) {}
  /// An operand of `count` elements in a new scratch buffer.
  kernel::Operand add(DType type, Extent count);

 private:
  int first_;
  Rendered& rendered_;
};

/// The storage bindings of one dispatch: one for each range of a buffer, shared by operands that overlap. The offset is rounded
/// down to the alignment, and the rest is added to indices in the text, so that equal layers have equal text.
class Bindings {
 public:
  Bindings(const Target& target, std::string kernel) : target_(target), kernel_(std::move(kernel)) {}

  /// Adds an operand; returns its handle. Operands without elements are not bound.
  int add(const kernel::Operand& operand, bool written);
  /// Requests access to the operand in aligned groups of four; scalar stores to its binding prevent this.
  void want_vectors(int handle) { accesses_[static_cast<std::size_t>(handle)].vector_wanted = true; }
  /// Requests that the operand, of 16 bits and only read, be bound as groups of eight; operands that share the binding are then
  /// read one by one.
  void want_eights(int handle) { accesses_[static_cast<std::size_t>(handle)].eights_wanted = true; }
  void forbid_vectors(int handle) { accesses_[static_cast<std::size_t>(handle)].vector_forbidden = true; }
  /// Declares a u32 operand, alone in its buffer, as atomics; they are used by `array_of`.
  void want_atomics(int handle) { accesses_[static_cast<std::size_t>(handle)].atomic = true; }
  /// Fixes the bindings. Throws InternalError if there are more than a shader may have.
  void resolve();

  bool is_bound(int handle) const { return accesses_[static_cast<std::size_t>(handle)].binding >= 0; }
  bool has_vectors(int handle) const;
  /// The number of its binding; below 0: none.
  int binding(int handle) const { return at(handle).binding; }
  bool has_eights(int handle) const { return is_bound(handle) && binding_of(handle).eights; }
  /// Index of the operand's first element in its binding, in elements.
  Extent base(int handle) const { return accesses_[static_cast<std::size_t>(handle)].base; }
  /// Whether another operand shares the binding (as in an update in place).
  bool is_shared(int handle) const;

  /// Mark of the binding's array.
  std::string array_of(int handle) const { return "$data" + std::to_string(at(handle).binding); }
  /// The element at `index` (u32 text, counted from the binding's start), as a value of the operand's type. Elements below
  /// 32 bits are packed in words: they are loaded and stored as their bits, a u32 (`render_unpacked`).
  std::string load(int handle, const std::string& index) const;
  /// Group of four number `index`, as the buffer holds it (has_vectors); elements below 8 bits are in a word's low bits.
  std::string vector(int handle, const std::string& index) const;
  /// The group of four that starts at `index`, a multiple of 4; `component` extracts a value of the operand's type from it.
  std::string load_vector(int handle, const std::string& index) const;
  std::string component(int handle, const std::string& vector, int lane) const;
  /// The element at `index`, or group of four number `group` (has_vectors), of a type that computes in f32: an f32, a vec4f.
  std::string load_f32(int handle, const std::string& index, Helpers& helpers) const;
  std::string load_vec4f(int handle, const std::string& group, Helpers& helpers) const;
  /// Statements. Values have the operand's type.
  std::string store(int handle, const std::string& index, const std::string& value) const;
  std::string store_vector(int handle, const std::string& index, const std::string (&values)[4]) const;
  /// store_vector of values that are not packed yet. `are_rounded`: the operand's type holds them.
  std::string store_values(int handle, const std::string& index, const std::string (&values)[4], Helpers& helpers,
                           bool are_rounded = false) const;
  /// The same for values in f32, which are rounded to the operand's type. `group` is the number of a group of four.
  std::string store_f32(int handle, const std::string& index, const std::string& value, Helpers& helpers) const;
  std::string store_vec4f(int handle, const std::string& group, const std::string& vector, Helpers& helpers) const;

  std::vector<ShaderPieces::Storage> storage() const;
  std::vector<BoundRange> ranges() const;

 private:
  struct Access {
    kernel::Operand operand;
    bool written = false, vector_wanted = false, vector_forbidden = false, eights_wanted = false, atomic = false;
    int binding = -1;
    Extent base = 0;
  };
  struct Binding {
    BoundRange range;
    std::string_view element;  // WGSL type
    bool vectors = false, eights = false;
    int users = 0;
    int element_bits = 0;  // of the operands; 0: they differ
  };
  const Access& at(int handle) const { return accesses_[static_cast<std::size_t>(handle)]; }
  const Binding& binding_of(int handle) const { return bindings_[static_cast<std::size_t>(at(handle).binding)]; }
  std::string from_word(int handle, const std::string& word) const;
  std::string to_word(int handle, const std::string& value) const;
  void merge(bool whole_buffers);

  Target target_;
  std::string kernel_;
  std::vector<Access> accesses_;
  std::vector<Binding> bindings_;
};

/// A dispatch of a shader that has all its pieces except the storage, which `bindings` has. Throws DeviceError for more
/// workgroups than a shader can number; see fold_workgroups.
RenderedDispatch dispatch_of(std::string name, ShaderPieces shader, const Bindings& bindings, std::uint64_t workgroups,
                             const Target& target);

/// Whether two operands share elements.
bool overlap(const kernel::Operand& a, const kernel::Operand& b);

/// `a / divisor` and `a % divisor` on u32 text, by shift and mask where possible.
std::string divided(const std::string& a, Extent divisor);
std::string modulo(const std::string& a, Extent divisor);

/// Whether products and attention read such elements, as numbers in f32.
constexpr bool reads_as_f32(DType type) { return compute_type(type) == DType::f32 && !is_block(type); }

constexpr Extent divide_up(Extent a, Extent b) { return (a + b - 1) / b; }

}  // namespace weft::webgpu
