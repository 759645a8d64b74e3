// Joining the partial results of the threads that share a row.
#include "backend/webgpu/wgsl/reduction/writer.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace weft::webgpu {
using kernel::Level;
using kernel::LoopKernel;
using kernel::Step;
using kernel::StepKind;
using scalar::Reduction;

namespace {

constexpr int kSharedWordsMax = 2048;  // workgroup memory for joining lanes

}  // namespace

std::string ReductionWriter::from_word(DType type, const std::string& word) {
  return type == DType::u32       ? word
         : type == DType::boolean ? "(" + word + " != 0u)"
                                  : fmt::format("bitcast<{}>({})", wgsl_type(type), word);
}

std::string ReductionWriter::combine_statement(int s, int lane, const std::string& other,
                                               const std::string& other_position, Helpers& helpers) const {
  const Step& step = kernel_.steps[static_cast<std::size_t>(s)];
  const std::string own = accumulator(s, lane, false);
  if (!gives_position(step.reduction))
    return fmt::format(
        "{} = {};", own,
        render_combine(step.reduction, kernel_.steps[static_cast<std::size_t>(step.a)].type, own, other, helpers));
  const std::string position = accumulator(s, lane, true);
  return fmt::format("if ({0} > {1} || ({0} == {1} && {2} < {3})) {{ {1} = {0}; {3} = {2}; }}", other, own,
                     other_position, position);
}

// Joins the partial results of the lanes of each row, so that every lane has the row's results, and names these.
void ReductionWriter::join(const std::vector<int>& steps, StepWriter& writer, Helpers& helpers) {
  int joined = 1;  // neighbouring lanes that have the same result
  if (!layout_.columns && target_.subgroup_size >= 2 && layout_.lanes > 1) {
    uses_subgroups_ = true;
    for (; joined < std::min<int>(layout_.lanes, static_cast<int>(target_.subgroup_size)); joined *= 2)
      for (int s : steps) {
        const DType type = type_of(s);
        const std::string own = accumulator(s, 0, false), name = fmt::format("o{}d{}", s, joined);
        writer.line(
            fmt::format("let {} = {};", name,
                        from_word(type, fmt::format("subgroupShuffleXor({}, {}u)", to_word(type, own), joined))));
        if (has_position(s))
          writer.line(fmt::format("let {}p = subgroupShuffleXor({}, {}u);", name, accumulator(s, 0, true), joined));
        writer.line(combine_statement(s, 0, name, name + "p", helpers));
      }
  }
  if (joined < layout_.lanes) {
    // As many at a time as workgroup memory holds.
    for (std::size_t from = 0, to = 0; from < steps.size(); from = to) {
      int words = 0;
      std::vector<int> some;
      for (; to < steps.size(); ++to) {
        const int more = layout_.threads / joined * accumulators() * components(steps[to]);
        if (!some.empty() && words + more > kSharedWordsMax) break;
        words += more;
        some.push_back(steps[to]);
      }
      shared_words_ = std::max(shared_words_, words);
      join_through_memory(some, joined, writer, helpers);
    }
  }
  for (int s : steps) {
    const bool arg = has_position(s);
    std::vector<std::string> lanes;
    for (int lane = 0; lane < accumulators(); ++lane)
      lanes.push_back(render_cast({accumulator(s, lane, arg), arg ? DType::i32 : type_of(s), {}},
                                  kernel_.steps[static_cast<std::size_t>(s)].type, helpers));
    writer.define(s, lanes);
  }
}

// Every lane adds up the row's partial results in the same order; if there are many, some lanes first add up a part.
void ReductionWriter::join_through_memory(const std::vector<int>& steps, int joined, StepWriter& writer,
                                          Helpers& helpers) {
  const int parts = layout_.lanes / joined;                           // of a row
  const int stride = layout_.columns ? layout_.rows_per_group() : 1;  // in memory, from part to part
  const int region = layout_.threads / joined;                        // words of one accumulator
  const auto each = [&](const auto& visit) {
    int base = 0;
    for (int s : steps)
      for (int lane = 0; lane < accumulators(); ++lane) {
        visit(s, lane, base);
        base += region * components(s);
      }
  };
  const auto put = [&](const std::string& at) {
    each([&](int s, int lane, int base) {
      writer.line(
          fmt::format("  $shared_words[{}u + {}] = {};", base, at, to_word(type_of(s), accumulator(s, lane, false))));
      if (has_position(s))
        writer.line(fmt::format("  $shared_words[{}u + {}] = bitcast<u32>({});", base + region, at,
                                accumulator(s, lane, true)));
    });
  };
  const auto take = [&](const std::string& at, int count, int step) {
    each([&](int s, int lane, int base) {
      const auto get = [&](const std::string& from) {
        return from_word(type_of(s), fmt::format("$shared_words[{}u + {}]", base, from));
      };
      const auto get_position = [&](const std::string& from) {
        return fmt::format("bitcast<i32>($shared_words[{}u + {}])", base + region, from);
      };
      writer.line(fmt::format("  {} = {};", accumulator(s, lane, false), get(at)));
      if (has_position(s)) writer.line(fmt::format("  {} = {};", accumulator(s, lane, true), get_position(at)));
      // Thread numbers are below 2^16, but slow compilers do not know this, so they do not unroll the loop.
      writer.line(fmt::format("  for (var part = 1u; part < {}u{}; part++) {{", count,
                              target_.unroll ? "" : " + (thread >> 16u)"));
      const std::string from = fmt::format("{} + part * {}u", at, step);
      writer.line(fmt::format("    let other = {};", get(from)));
      if (has_position(s)) writer.line(fmt::format("    let other_p = {};", get_position(from)));
      writer.line("    " + combine_statement(s, lane, "other", "other_p", helpers));
      writer.line("  }");
    });
  };
  const std::string own = divided("thread", joined);
  const std::string row_start =
      layout_.columns ? modulo("thread", stride) : fmt::format("{} * {}u", divided("thread", layout_.lanes), parts);
  writer.line(joined > 1 ? fmt::format("if ({} == 0u) {{", modulo("thread", joined)) : "{");
  put(own);
  writer.line("}");
  writer.line("workgroupBarrier();");
  int left = parts;
  if (parts > kSerialPartsMax) {
    left = kSerialPartsMax;
    const std::string part = joined == 1 ? "lane" : divided("lane", joined);
    writer.line(fmt::format("if ({} < {}u{}) {{", part, left,
                            joined > 1 ? fmt::format(" && {} == 0u", modulo("thread", joined)) : ""));
    take(own, parts / left, left * stride);
    put(own);
    writer.line("}");
    writer.line("workgroupBarrier();");
  }
  writer.line("{");
  take(row_start, left, stride);
  writer.line("}");
  writer.line("workgroupBarrier();");  // before the words are used again
}

}  // namespace weft::webgpu
