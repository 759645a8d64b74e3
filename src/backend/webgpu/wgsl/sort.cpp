#include "backend/webgpu/wgsl/sort.hpp"

#include <fmt/format.h>

#include <optional>
#include <utility>

#include "backend/webgpu/wgsl/memory_radix.hpp"
#include "backend/webgpu/wgsl/sort_lines.hpp"
#include "backend/webgpu/wgsl/sort_shader.hpp"

namespace weft::webgpu {
namespace {

constexpr int kSortThreads = 256;

class SortWriter {
 public:
  SortWriter(const kernel::CallKernel& kernel, const Target& target)
      : kernel_(kernel),
        target_(target),
        sorted_(kernel),
        n_(sorted_.n),
        count_(sorted_.count),
        lines_(sorted_.lines) {}

  void write(Scratch& scratch, Rendered& rendered) {
    const MemoryRadix radix(kernel_.name, lines_, n_, target_, scratch);
    rendered.dispatches.push_back(keys_of(radix.keys(), radix.places()));
    rendered.dispatches.push_back(results(radix.sort(32, scratch, rendered).places));
  }

 private:
  RenderedDispatch keys_of(const kernel::Operand& keys, const kernel::Operand& places) {
    SortShader s(target_, kernel_.name);
    s.pieces.threads = kSortThreads;
    const int x = s.read(kernel_.reads[0]), to = s.write(keys), to_place = s.write(places);
    s.resolve();
    s.line(fmt::format("let i = group * {}u + thread;", kSortThreads));
    s.line(fmt::format("if (i < {}u) {{", lines_ * n_));
    s.line(fmt::format("  let x = {};", s.at(x, "i")));
    s.line("  " + s.put(to, "i", sorted_.key("x", s.pieces.helpers)));
    s.line("  " + s.put(to_place, "i", modulo("i", n_)));
    s.line("}");
    return s.dispatch(kernel_.name + ".keys", divide_up(lines_ * n_, kSortThreads));
  }

  RenderedDispatch results(const kernel::Operand& places) {
    SortShader s(target_, kernel_.name);
    s.pieces.threads = kSortThreads;
    const int x = s.read(kernel_.reads[0]), from = s.read(places), values = s.write(kernel_.outs[0]),
              positions = s.write(kernel_.outs[1]);
    s.resolve();
    s.line(fmt::format("let i = group * {}u + thread;", kSortThreads));
    s.line(fmt::format("if (i < {}u) {{", lines_ * count_));
    s.line(fmt::format("  let first = {} * {}u;", divided("i", count_), n_));
    s.line(fmt::format("  let place = {};",
                       s.at(from, fmt::format("first + {} + {}u", modulo("i", count_), sorted_.a.first))));
    s.line("  " + s.put(values, "i", s.at(x, "first + place")));
    s.line("  " + s.put(positions, "i", "bitcast<i32>(place)"));
    s.line("}");
    return s.dispatch(kernel_.name + ".results", divide_up(lines_ * count_, kSortThreads));
  }

  const kernel::CallKernel& kernel_;
  const Target& target_;
  const SortedLines sorted_;
  Extent n_, count_, lines_;
};

}  // namespace

void render_sort(const kernel::CallKernel& kernel, const Target& target, Scratch& scratch, Rendered& rendered) {
  if (kernel.shape().numel() == 0) return;
  if (std::optional<RenderedDispatch> dispatch = sort_lines(kernel, target))
    rendered.dispatches.push_back(std::move(*dispatch));
  else
    SortWriter(kernel, target).write(scratch, rendered);
}

}  // namespace weft::webgpu
