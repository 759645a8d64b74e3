// Only a few candidates are sorted. Many workgroups adjust logits and find the best of their part. Many then count candidates
// and their mass in bins of the distance to the best logit. One workgroup for each row walks from bins to candidates.
//
// Masses are integers of 64 bits (words low, high), so that sums are exact in any order. The CPU adds in f64, and with a
// vocabulary of equal logits sums in f32 would differ.
#include "backend/webgpu/wgsl/sample.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <utility>

#include "backend/webgpu/wgsl/sample/text.hpp"
#include "base/philox.hpp"
#include "weft/error.hpp"
#include "weft/inference.hpp"

namespace weft::webgpu {
namespace {

using namespace sample;
using kernel::CallKernel;
using kernel::Operand;

// For a part: best key, its token; best key before bias and penalties, sum of the others.
constexpr Extent kRecordWords = 4;
constexpr Extent kExtraWords = 4;  // for a row, after its bins: bins per unit of logits; total mass (low, high)
constexpr double kReach = 28;      // e^-28 of the most probable: tokens beyond have less weight than a draw can resolve

std::string number(const char* name, Extent value) { return fmt::format("const {} = {}u;\n", name, value); }

/// Functions that give all threads the same element of a workgroup array, after a barrier; a single thread needs none.
std::string same_element(const char* function, const char* array, const char* element, Extent threads) {
  return fmt::format("fn {}(i: u32) -> {} {{ return {}; }}\n", function, element,
                     fmt::format(fmt::runtime(threads > 1 ? "workgroupUniformLoad(&{}[i])" : "{}[i]"), array));
}

/// Operands of a shader, accessed through named functions.
class Operands {
 public:
  Operands(const Target& target, const std::string& kernel) : bindings(target, kernel) {}

  /// NAME(i) gives an element.
  int read(const char* name, const Operand& operand) { return add({bindings.add(operand, false), name, operand.type}); }
  /// put_NAME(i, value) replaces one.
  int write(const char* name, const Operand& operand) {
    const int handle = add({bindings.add(operand, true), name, operand.type, true});
    bindings.forbid_vectors(handle);
    return handle;
  }
  void declare(ShaderPieces& shader) const {
    for (const Access& access : accesses_) {
      if (!bindings.is_bound(access.handle)) continue;
      const std::string at = fmt::format("i + {}u", bindings.base(access.handle));
      const std::string_view type = wgsl_storage_type(access.type);
      if (access.is_written)
        shader.functions.push_back(
            {fmt::format("put_{}", access.name),
             fmt::format("(i: u32, value: {}) {{ {} }}\n", type, bindings.store(access.handle, at, "value"))});
      else
        shader.functions.push_back(
            {access.name, fmt::format("(i: u32) -> {} {{ return {}; }}\n", type, bindings.load(access.handle, at))});
    }
  }

  Bindings bindings;

 private:
  struct Access {
    int handle;
    const char* name;
    DType type;
    bool is_written = false;
  };
  int add(const Access& access) {
    accesses_.push_back(access);
    return access.handle;
  }
  std::vector<Access> accesses_;
};

class SampleWriter {
 public:
  SampleWriter(const CallKernel& kernel, const Target& target, Scratch& scratch)
      : kernel_(kernel), target_(target), rows_(kernel.shapes[0][0]), vocabulary_(kernel.shapes[0][1]) {
    // 12 bytes a bin, and 16 for the two candidates of each that can be listed.
    bins_ = target.limits.workgroup_bytes >= 32768 ? 1024 : 512;
    const auto most = static_cast<Extent>(std::bit_floor(target.limits.workgroup_invocations));
    if (target.unroll) {
      threads_ = std::min<Extent>(256, most);
      draw_threads_ = std::min({Extent{1024}, most, bins_});
    }
    while (divide_up(vocabulary_, part_) > bins_ && 2 * part_ <= capacity()) part_ *= 2;
    parts_ = divide_up(vocabulary_, part_);
    if (parts_ > bins_)
      throw DeviceError(fmt::format("webgpu: {}: a vocabulary of {} tokens; this device draws of at most {}",
                                    kernel.name, vocabulary_, bins_ * part_));
    adjusted_ = scratch.add(DType::f32, rows_ * parts_ * part_);
    records_ = scratch.add(DType::u32, rows_ * parts_ * kRecordWords);
    words_ = scratch.add(DType::u32, rows_ * row_words());
    masses_ = scratch.add(DType::u32, rows_ * parts_ * 2);
  }

  RenderedDispatch parts() {
    Operands operands(target_, kernel_.name);
    operands.read("logit", kernel_.reads[0]);
    operands.read("setting", kernel_.reads[1]);
    operands.read("history", kernel_.reads[2]);
    operands.read("bias_token", kernel_.reads[3]);
    operands.read("bias", kernel_.reads[4]);
    operands.write("adjusted", adjusted_);
    operands.write("record", records_);
    operands.write("word", words_);
    operands.bindings.resolve();
    ShaderPieces shader = shader_of(threads_, threads_);
    shader.share("marks", "atomic<u32>", part_);
    shader.share("given", "f32", kSampleSettings);
    operands.declare(shader);
    shader.verbatim += same_element("same_given", "given", "f32", threads_) + mark_functions();
    for (const std::string_view each : {kKeys, kSum, kQuotient, kPartFunctions}) shader.verbatim += each;
    for (const char* helper : {"order_key_f32", "is_nan_f32", "inf_f32", "exp_f32"}) shader.helpers.use(helper);
    shader.body = kPartBody;
    return dispatch(".parts", operands, std::move(shader), rows_ * parts_);
  }

  RenderedDispatch weights() {
    Operands operands(target_, kernel_.name);
    operands.read("setting", kernel_.reads[1]);
    operands.read("adjusted", adjusted_);
    operands.read("record", records_);
    operands.write("part_mass", masses_);
    const int words = operands.bindings.add(words_, true);
    operands.bindings.want_atomics(words);
    operands.bindings.resolve();
    ShaderPieces shader = shader_of(threads_, threads_);
    shader.share("given", "f32", kSampleSettings);
    shader.share("total", "atomic<u32>", 2);
    share_bins(shader);
    operands.declare(shader);
    const std::string array = operands.bindings.array_of(words);
    shader.functions.push_back({"word", fmt::format("(i: u32) -> u32 {{ return atomicLoad(&{}[i]); }}\n", array)});
    shader.functions.push_back(
        {"add_word", fmt::format("(i: u32, value: u32) -> u32 {{ return atomicAdd(&{}[i], value); }}\n", array)});
    shader.verbatim += same_element("same_given", "given", "f32", threads_);
    for (const std::string_view each : {kKeys, kQuotient, kMasses, kWeightFunctions}) shader.verbatim += each;
    for (const char* helper : {"order_key_f32", "is_nan_f32", "exp_f32"}) shader.helpers.use(helper);
    shader.body = kWeightBody;
    return dispatch(".weights", operands, std::move(shader), rows_ * parts_);
  }

  RenderedDispatch draw() {
    Operands operands(target_, kernel_.name);
    operands.read("logit", kernel_.reads[0]);
    operands.read("setting", kernel_.reads[1]);
    operands.read("draw_word", kernel_.reads[5]);
    operands.read("record", records_);
    operands.read("part_mass", masses_);
    operands.read("word", words_);
    const int adjusted = operands.read("adjusted", adjusted_);
    if (target_.unroll) operands.bindings.want_vectors(adjusted);
    operands.write("word", words_);
    operands.write("result", kernel_.out());
    operands.bindings.resolve();
    const auto bits = std::countr_zero(static_cast<std::uint64_t>(bins_));
    ShaderPieces shader = shader_of(draw_threads_, capacity());
    std::string& text = shader.verbatim;
    text += number("capacity", capacity()) + number("per_bin", capacity() / bins_) + number("bin_bits", bits) +
            number("distance_shift", 31 - bits) +  // distances are below 2^31
            number("sampling_use", static_cast<Extent>(philox::Use::sampling));
    const auto count_up = [&](std::initializer_list<const char*> names) {
      Extent next = 0;
      for (const char* name : names) text += number(name, next++);
    };
    count_up({"fill_bins", "fill_digits", "list_them", "sum_distances", "sum_kept"});
    count_up({"order_by_key", "order_by_distance", "order_by_token"});
    count_up({"stage_top_k", "stage_typical", "stage_top_p", "stage_first", "stage_draw"});
    shader.share("given", "u32", 16);
    shader.share("found", "u32", 8);
    shader.share("listed", "atomic<u32>", 1);
    share_bins(shader);
    operands.declare(shader);
    shader.functions.push_back(
        {"all_given", fmt::format("() -> array<u32, 16> {{ return {}; }}\n",
                                  draw_threads_ > 1 ? "workgroupUniformLoad(&given)" : "given")});
    shader.functions.push_back({"adjusted_lanes", fmt::format("(i: u32) -> vec4f {{ return {}; }}\n",
                                                              target_.unroll ? operands.bindings.vector(adjusted, "i")
                                                                             : "vec4f(adjusted(i))")});
    text += same_element("same_found", "found", "u32", draw_threads_) + number("lanes", target_.unroll ? 4 : 1);
    for (const std::string_view each : {kKeys, kSum, kQuotient, kMasses, kDrawNumbers, kDrawSums,
                                        draw_threads_ == 1 ? kRunUpAlone : kRunUp, kDrawCandidates})
      text += each;
    for (const char* helper :
         {"order_key_f32", "is_nan_f32", "nan_f32", "exp_f32", "log1p_f32", "mul_wide", "philox_block"})
      shader.helpers.use(helper);
    shader.body = kDrawBody;
    return dispatch(".draw", operands, std::move(shader), rows_);
  }

 private:
  Extent capacity() const { return 2 * bins_; }
  Extent row_words() const { return 3 * bins_ + kExtraWords; }
  void share_bins(ShaderPieces& shader) const {
    for (const char* each : {"counts", "lows", "highs"}) shader.share(each, "atomic<u32>", bins_);
  }
  /// The common part of the three shaders. A single thread skips barriers.
  ShaderPieces shader_of(Extent threads, Extent keys) const {
    ShaderPieces shader{.threads = static_cast<int>(threads), .verbatim = numbers(threads)};
    const bool alone = threads == 1;
    shader.functions.push_back({"barrier", alone ? "() {}\n" : "() { workgroupBarrier(); }\n"});
    shader.functions.push_back({"storage_barrier", alone ? "() {}\n" : "() { storageBarrier(); }\n"});
    shader.share("keys", "u32", keys);
    shader.share("places", "u32", keys);
    shader.verbatim +=
        same_element("same_key", "keys", "u32", threads) + same_element("same_place", "places", "u32", threads);
    return shader;
  }
  std::string numbers(Extent threads) const {
    // The total mass stays below 2^63 even if all tokens are equally probable.
    const int unit_bits = 31 - std::bit_width(static_cast<std::uint64_t>(vocabulary_));
    return number("vocabulary", vocabulary_) + number("part", part_) + number("parts", parts_) +
           number("pitch", parts_ * part_) + number("bins", bins_) + number("row_words", row_words()) +
           number("threads", threads) + fmt::format("const unit = {}f;\n", std::int64_t{1} << unit_bits) +
           fmt::format("const bins_per_distance = {:.9g}f;\n", static_cast<double>(bins_) / kReach);
  }
  std::string mark_functions() const {
    const Extent window = kernel_.shapes[2][1], biased = kernel_.shapes[3][1];
    // Marks count how often the history has a token; their highest bit says that it has a bias.
    const auto mark = [&](const char* name, const char* tokens, Extent count, const char* statement) {
      std::string text = fmt::format("fn {}(thread: u32, row: u32, begin: u32, size: u32) {{\n", name);
      if (count > 0)
        text += fmt::format(
            "  for (var i = thread; i < {0}u; i += threads) {{\n"
            "    let at = bitcast<u32>({1}(row * {0}u + i)) - begin;\n"
            "    if (at < size) {{ {2} }}\n  }}\n",
            count, tokens, statement);
      return text + "}\n";
    };
    std::string text = mark("mark_history", "history", window, "atomicAdd(&marks[at], 1u);") +
                       mark("mark_bias", "bias_token", biased, "atomicOr(&marks[at], 0x80000000u);");
    text += "fn biased(l: f32, row: u32, token: u32) -> f32 {\n  var sum = l;\n";
    if (biased > 0)
      text += fmt::format(
          "  for (var i = row * {0}u; i < (row + 1u) * {0}u; i++) {{\n"
          "    if (bitcast<u32>(bias_token(i)) == token) {{ sum += bias(i); }}\n  }}\n",
          biased);
    return text + "  return sum;\n}\n";
  }
  RenderedDispatch dispatch(const char* name, const Operands& operands, ShaderPieces shader, Extent groups) const {
    return dispatch_of(kernel_.name + name, std::move(shader), operands.bindings, static_cast<std::uint64_t>(groups),
                       target_);
  }

  const CallKernel& kernel_;
  const Target& target_;
  Extent rows_, vocabulary_;
  Extent bins_ = 0;
  Extent threads_ = 1, draw_threads_ = 1;  // software adapters compile this many barriers for half a minute
  Extent part_ = 1024, parts_ = 0;
  Operand adjusted_, records_, words_, masses_;
};

}  // namespace

void render_sample_token(const CallKernel& kernel, const Target& target, Scratch& scratch, Rendered& rendered) {
  if (kernel.shapes[0][0] == 0) return;
  SampleWriter writer(kernel, target, scratch);
  rendered.dispatches.push_back(writer.parts());
  rendered.dispatches.push_back(writer.weights());
  rendered.dispatches.push_back(writer.draw());
}

}  // namespace weft::webgpu
