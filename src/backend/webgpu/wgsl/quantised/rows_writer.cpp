// The whole shader, and the reads of rows of A.
#include "backend/webgpu/wgsl/quantised/rows_writer.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "backend/webgpu/wgsl/loop.hpp"
#include "backend/webgpu/wgsl/quantised/computed_rows.hpp"

namespace weft::webgpu {
using kernel::PackedMatmulKernel;

int RowsWriter::threads_of(const Target& target, const PackedMatmulKernel& kernel) {
  // One row by a large matrix of few bits: a compute unit should round the row once, and not once for each of several workgroups.
  constexpr Extent kLarge = Extent{1} << 25;
  if (target.joins_phases() && kernel.m == 1 && may_have_integers(target, kernel) && kernel.n * kernel.k >= kLarge &&
      quant_form(kernel.block_type).values == QuantValues::nibble)
    return static_cast<int>(std::min<Extent>(kThreadsOfUnit, target.limits.workgroup_invocations));
  return target.joins_phases() && kernel.n < kManyColumns ? kPhaseThreads : 128;
}

RowsWriter::RowsWriter(const PackedMatmulKernel& kernel, const Target& target, const RowsExtras& extras)
    : kernel_(kernel), extras_(extras), target_(target) {
  threads_ = threads_of(target, kernel);
  rows_ = kernel.experts ? 1 : static_cast<int>(std::min(kernel.m, kFewRows));  // rows of experts differ in W
  lanes_ = lanes_of(target);
  // Each read of A serves several rows of W, as long as there is work for all compute units.
  columns_ = rows_ > 2 || extras.before || extras.tail ? 1 : kernel.n >= 32768 ? 4 : kernel.n >= 8192 ? 2 : 1;
}

void RowsWriter::render(Rendered& rendered) {
  Bindings bindings(target_, kernel_.name);
  Helpers helpers;
  const PackedMatmulKernel* before = extras_.before;
  const bool reads_a = !kernel_.rows && !extras_.parts;
  const int a = reads_a ? bindings.add(kernel_.a, false) : -1;
  const int parts = extras_.parts ? bindings.add(extras_.parts->operand, false) : -1;
  if (parts >= 0) bindings.want_vectors(parts);
  by_fours_ = reads_a && kernel_.k % 4 == 0 && kernel_.a_row % 4 == 0 && kernel_.a.offset % 4 == 0;
  if (by_fours_) bindings.want_vectors(a);
  const int of_row = kernel_.experts ? bindings.add(kernel_.experts->of_row, false) : -1;
  std::optional<ComputedRows> computed;
  if (kernel_.rows) computed.emplace(*kernel_.rows, bindings, helpers);
  const Extent rows_of_weights = kernel_.rows_of_weights();
  const PackedReader reader(kernel_.block_type, kernel_.weights, rows_of_weights, kernel_.k, bindings);
  std::optional<PackedReader> reader_before;
  if (before)
    reader_before.emplace(kernel_.block_type, before->weights, rows_of_weights, kernel_.k, bindings, "_before");
  choose_lanes(reader);
  const kernel::LoopKernel epilogue = before         ? extras_.pair->epilogue
                                      : extras_.tail ? extras_.tail->epilogue()
                                                     : without_inner(kernel_.epilogue);
  const Space space{{{"i", kernel_.m}, {"j", kernel_.n}}, -1};
  std::vector<int> wanted;
  if (extras_.tail)
    wanted.assign(extras_.tail->values().begin(),
                  extras_.tail->values().end() - static_cast<std::ptrdiff_t>(extras_.tail->loops().size()));
  StepWriter writer(epilogue, bindings, helpers, space, space, wanted);
  std::vector<TailLoop> tail = tail_writers(bindings, helpers);
  const std::vector<std::pair<int, int>> tail_writes = tail_bindings(bindings);
  bindings.resolve();
  by_fours_ = by_fours_ && bindings.has_vectors(a);
  ShaderPieces shader{.threads = threads_, .subgroups = target_.subgroup_size >= 2};
  reader.declare(shader);
  if (before) reader_before->declare(shader);
  if (computed)
    computed->declare(shader);
  else
    shader.functions.push_back(
        extras_.parts ? ShaderPieces::Function{"activations", joined_parts_function(*extras_.parts, kernel_.m, parts,
                                                                                    bindings, target_)}
                      : activation_function(a, bindings));
  sums_ = computed ? computed->sums() : 0;
  shader.functions.push_back(finish_function(epilogue, writer, helpers));
  choose_staging(reader);
  constexpr int kTurnsMax = 10;
  // The expert of a row may be the result of an earlier phase, and W cannot be read before it is known.
  is_phase_ = target_.joins_phases() && kernel_.n < kManyColumns && stages() && turns_of_phase() <= kTurnsMax &&
              !kernel_.experts;
  // A workgroup that has staged integers goes on with them: rounding costs more than a tile.
  const Extent tiles = divide_up(kernel_.n, teams() * columns_), groups_m = divide_up(kernel_.m, rows_);
  const Extent groups_max = kThreadsOfUnit / threads_ * Extent{target_.profile.compute_units};
  strides_ = integers_ && groups_m == 1 && lanes_ <= lanes_of(target_) && tiles > groups_max && target_.unroll;
  const Extent groups_n = strides_ ? divide_up(tiles, divide_up(tiles, groups_max)) : tiles;
  const auto groups = static_cast<std::uint64_t>(groups_n * groups_m);
  line(fmt::format("let lane = {};", modulo("thread", lanes_)));
  line(fmt::format("let i0 = {} * {}u;", divided("group", groups_n), rows_));
  if (kernel_.experts) write_expert(of_row, bindings);
  write_row_sums_start();
  line(strides_ ? fmt::format("for (var tile = group; tile < {}u; tile += {}u) {{", tiles, groups_n)
                : fmt::format("let tile = {};", modulo("group", groups_n)));
  line(fmt::format("let j0 = {};", column_of(divided("thread", lanes_))));
  if (stages()) {
    if (integers_)
      share_integers(reader, shader);
    else
      shader.share("staged", "vec4f", rows_ * staged_fours_);
    if (sums_ > 0) shader.share("sums", "f32", rows_ * sums_ * threads_ / lanes_of(target_));
  }
  if (is_phase_) {
    shader.early = reader.bindings();
    if (before) std::ranges::copy(reader_before->bindings(), std::back_inserter(shader.early));
  }
  std::vector<Weights> weights{{&reader, "s", ""}};
  if (before) weights.push_back({&*reader_before, "u", "_before"});
  write_sums(weights);
  std::vector<std::string> joined;
  for (const Weights& each : weights)
    for (const std::string& name : sums_of(each.sum)) joined.push_back(name);
  for (int i = 0; i < rows_ && !stages(); ++i)
    for (int r = 0; r < sums_; ++r) {
      joined.push_back(fmt::format("whole{}_{}", i, r));
      line(fmt::format("{} = dot(row{}_{}, vec4f(1f));", joined.back(), i, r));
    }
  if (!shader.subgroups) shader.share("joined", "f32", threads_);
  if (lanes_ > lanes_of(target_)) shader.share("across", "f32", static_cast<Extent>(joined.size()) * threads_ / 32);
  write_joined(joined);
  if (computed) write_factors();
  write_results();
  std::string name = before ? before->name + " + " + kernel_.name : kernel_.name;
  if (extras_.tail) {
    write_tail(tail, tail_writes, bindings, shader);
    for (const RowsTail::Loop& each : extras_.tail->loops()) name += " + " + each.loop.name;
    for (const RowsTail::Write& each : extras_.tail->writes()) name += " + " + each.write.name;
  }
  if (strides_) {
    if (extras_.tail) line("workgroupBarrier();");  // before the next tile's results take the slots
    line("}");
  }
  shader.helpers = std::move(helpers);
  shader.body = std::move(text_);
  rendered.dispatches.push_back(dispatch_of(name, std::move(shader), bindings, groups, target_));
}

void RowsWriter::choose_lanes(const PackedReader& reader) {
  units_ = reader.units();
  constexpr int kAheadMax = 5, kReadsMax = 8;
  if (!target_.unroll) return;
  if (!extras_.tail) {
    // Long rows of few columns: several subgroups share one, so that no thread waits for many reads in turn.
    const Extent few = 16 * Extent{target_.profile.compute_units};
    if (target_.subgroup_size == 32)
      while (lanes_ < threads_ && units_ >= 4 * lanes_ && kernel_.n * lanes_ / 32 <= few) lanes_ *= 2;
    // Many columns: the memory is busy, so no lane should be idle in the last turn.
    const auto idle = [&](int lanes) { return divide_up(units_, lanes) * lanes - units_; };
    while (kernel_.n >= kManyColumns && lanes_ > 4 && 8 * idle(lanes_) > units_) lanes_ /= 2;
  }
  // A workgroup of a resident dispatch that has more than one tile stages A again for each.
  if (target_.joins_phases() && !extras_.tail && kernel_.n < kManyColumns)
    columns_ = static_cast<int>(
        std::min<Extent>(4 / rows_, divide_up(kernel_.n, 2 * Extent{target_.profile.compute_units} * teams())));
  const int turns = static_cast<int>(divide_up(units_, lanes_));
  ahead_ = turns <= kAheadMax ? turns : kAheadMax - 1;
  ahead_ = std::clamp(kReadsMax / (columns_ * (extras_.before ? 2 : 1)), 1, ahead_);
}

std::string RowsWriter::column_of(const std::string& team) const {
  const Extent distance = extras_.tail ? extras_.tail->distance() : 0;
  if (distance == 0) return fmt::format("(tile * {}u + {}) * {}u", teams(), team, columns_);
  const int half = teams() / 2;
  const std::string pair = fmt::format("(tile * {}u + {})", half, modulo(team, half));
  return fmt::format("{} * {}u + {} + {} * {}u", divided(pair, distance), 2 * distance, modulo(pair, distance),
                     divided(team, half), distance);
}

ShaderPieces::Function RowsWriter::activation_function(int a, const Bindings& bindings) const {
  const Extent base = bindings.base(a);
  const bool whole = kernel_.k % kQuantBlock == 0;
  const std::string row_of_a = kernel_.experts ? divided("i", kernel_.experts->share) : "i";
  const std::string row =
      fmt::format("min({}, {}u) * {}u", row_of_a, kernel_.rows_of_a() - 1, static_cast<std::uint32_t>(kernel_.a_row));
  std::string text = "(i: u32, e: u32) -> vec4f {\n";
  if (by_fours_) {
    const std::string at = whole ? "e" : fmt::format("min(e, {}u)", kernel_.k - 4);
    const std::string value = bindings.vector(a, fmt::format("({} + {} + {}u) >> 2u", row, at, base));
    text += whole ? fmt::format("  return {};\n", value)
                  : fmt::format("  return select(vec4f(), {}, e < {}u);\n", value, kernel_.k);
  } else {
    text += fmt::format("  let row = {} + {}u;\n  return vec4f(", row, base);
    for (int c = 0; c < 4; ++c) {
      const std::string at = fmt::format("row + min(e + {}u, {}u)", c, kernel_.k - 1);
      text += fmt::format("{}select(0f, {}, e + {}u < {}u)", c ? ", " : "", bindings.load(a, at), c, kernel_.k);
    }
    text += ");\n";
  }
  return {"activations", text + "}\n"};
}

bool RowsWriter::can_stage(const PackedMatmulKernel& kernel, const AttentionParts& parts) {
  constexpr Extent kBytesMax = 16384;
  // Every workgroup joins the parts for itself. Above, there is so much to join that a phase which joins them once is faster.
  constexpr Extent kElementsMax = Extent{1} << 20;
  if (kernel.n * kernel.k > kElementsMax) return false;
  return !kernel.rows && !kernel.experts && kernel.m <= kFewRows && kernel.k % kQuantBlock == 0 &&
         kernel.a_row == kernel.k && kernel.k == parts.heads * parts.width && kernel.m * kernel.k * 4 <= kBytesMax;
}

void RowsWriter::choose_staging(const PackedReader& reader) {
  constexpr Extent kBytesMax = 24576;
  const Extent fours = reader.units() * reader.chunks();
  const Extent bytes = rows_ * fours * 16;
  integers_ = suits_integers(reader);
  if (integers_) {
    staged_fours_ = fours;
    return;
  }
  // Software adapters would take long to compile the text of several rows.
  if ((target_.subgroup_size >= 2 || !kernel_.rows) && (target_.unroll || rows_ == 1) &&
      bytes <= std::min<Extent>(kBytesMax, target_.limits.workgroup_bytes / 2))
    staged_fours_ = fours;
}

void RowsWriter::write_staging(const PackedReader& reader) {
  if (strides_) line("if (tile == group) {");
  if (is_phase_) line(std::string(kMeetingMark));
  if (integers_)
    write_staged_integers(reader);
  else
    write_staged_floats(reader);
  write_row_sums();
  if (strides_) line("}");
}

void RowsWriter::write_staged_floats(const PackedReader& reader) {
  const auto place = [&](int i, const std::string& at) {
    return fmt::format("$staged[{}u + {} * {}u + {}]", i * staged_fours_, modulo(at, reader.chunks()), reader.units(),
                       divided(at, reader.chunks()));
  };
  for (int i = 0; i < rows_; ++i) {
    if (target_.unroll) {
      write_staged_row(i, place);
      continue;
    }
    line(fmt::format("for (var at = thread; at < {}u; at += {}u) {{", staged_fours_, threads_));
    line(fmt::format("  {} = $activations(i0 + {}u, at * 4u{});", place(i, "at"), i, row_sums(i, "&row")));
    line("}");
  }
}

// Every subgroup reads all sums of subgroups.
void RowsWriter::write_row_sums() {
  const int size = lanes_of(target_), subgroups = threads_ / size;
  const auto each_row_sum = [&](auto work) {
    for (int i = 0; i < rows_; ++i)
      for (int r = 0; r < sums_; ++r) work(fmt::format("whole{}_{}", i, r), i, r, (i * sums_ + r) * subgroups);
  };
  each_row_sum([&](const std::string& whole, int i, int r, int) {
    line(fmt::format("{} = dot(row{}_{}, vec4f(1f));", whole, i, r));
    for (int distance = 1; distance < size; distance *= 2)
      line(fmt::format("{0} += subgroupShuffleXor({0}, {1}u);", whole, distance));
  });
  if (sums_ > 0) line(fmt::format("if ({} == 0u) {{", modulo("thread", size)));
  each_row_sum([&](const std::string& whole, int, int, int at) {
    line(fmt::format("  $sums[{}u + {}] = {};", at, divided("thread", size), whole));
  });
  if (sums_ > 0) line("}");
  line("workgroupBarrier();");
  each_row_sum([&](const std::string& whole, int, int, int at) {
    std::string sum;
    for (int s = 0; s < subgroups; ++s) sum += fmt::format("{}$sums[{}u]", s ? " + " : "", at + s);
    line(fmt::format("{} = {};", whole, sum));
  });
}

// Several reads come before the first write, so that a thread waits for them once.
void RowsWriter::write_staged_row(int i, FunctionRef<std::string(int, const std::string&)> place) {
  constexpr Extent kTogether = 5;
  const Extent turns = divide_up(staged_fours_, Extent{threads_});
  const auto is_whole = [&](Extent turn) { return (turn + 1) * threads_ <= staged_fours_; };
  for (Extent first = 0; first < turns; first += kTogether) {
    const Extent end = std::min(first + kTogether, turns);
    line("{");
    for (Extent turn = first; turn < end; ++turn) {
      const std::string at = fmt::format("thread + {}u", turn * threads_);
      if (is_whole(turn)) {
        line(fmt::format("  let x{} = $activations(i0 + {}u, ({}) * 4u{});", turn, i, at, row_sums(i, "&row")));
        continue;
      }
      for (int r = 0; r < sums_; ++r) line(fmt::format("  var last{}_{} = vec4f();", i, r));
      line(fmt::format("  let x{} = $activations(i0 + {}u, min({}, {}u) * 4u{});", turn, i, at, staged_fours_ - 1,
                       row_sums(i, "&last")));
      for (int r = 0; r < sums_; ++r)
        line(fmt::format("  row{0}_{1} += select(vec4f(), last{0}_{1}, {2} < {3}u);", i, r, at, staged_fours_));
    }
    for (Extent turn = first; turn < end; ++turn) {
      const std::string at = fmt::format("(thread + {}u)", turn * threads_);
      const std::string store = fmt::format("{} = x{};", place(i, at), turn);
      line(is_whole(turn) ? "  " + store : fmt::format("  if ({} < {}u) {{ {} }}", at, staged_fours_, store));
    }
    line("}");
  }
}

void RowsWriter::write_expert(int of_row, const Bindings& bindings) {
  line(fmt::format("let given = bitcast<u32>({});",
                   bindings.load(of_row, fmt::format("i0 + {}u", bindings.base(of_row)))));
  line(fmt::format("let expert = min(given, {}u);", kernel_.experts->count - 1));
  line("let has_expert = given == expert;");
}

}  // namespace weft::webgpu
