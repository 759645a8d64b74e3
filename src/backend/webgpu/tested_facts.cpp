#include "backend/webgpu/tested_facts.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <span>
#include <utility>
#include <vector>

#include "backend/webgpu/command_sequence.hpp"
#include "backend/webgpu/wgsl/meeting.hpp"
#include "backend/webgpu/wgsl/render.hpp"
#include "base/half.hpp"
#include "base/log.hpp"
#include "weft/error.hpp"

namespace weft::webgpu {
namespace {

constexpr int kVersion = 6;  // of the format and of the tests
constexpr std::string_view kKey = "weft tested facts";

constexpr int kThreads = 256;
constexpr std::uint32_t kHalves = 1 << 16;
constexpr int kExchangeThreads = 256;

using Words = std::vector<std::uint32_t>;

/// A test's shader, whose buffers are all written.
Shader test_shader(const ShaderPieces& pieces) {
  return {"test", pieces.text(), std::vector<bool>(pieces.storage.size(), false)};
}

/// Runs the shader and returns its buffers, which have these numbers of words.
std::vector<Words> all_results(const std::shared_ptr<Device>& device, const ShaderPieces& pieces,
                               std::span<const std::uint32_t> words, std::uint32_t workgroups) {
  Recording recording;
  recording.shaders.push_back(test_shader(pieces));
  Dispatch dispatch{"test", 0, {}, fold_workgroups(workgroups)};
  std::vector<std::shared_ptr<Buffer>> buffers;
  for (const std::uint32_t count : words) {
    buffers.push_back(Buffer::create(device, count * 4, "testing the device"));
    dispatch.bindings.push_back({static_cast<int>(recording.slots.size()), 0, count * 4});
    recording.slots.push_back({buffers.back()});
  }
  recording.commands.emplace_back(std::move(dispatch));
  CommandSequence(device, std::move(recording)).run({});
  std::vector<Words> host;
  for (std::size_t i = 0; i < words.size(); ++i) {
    host.emplace_back(words[i]);
    buffers[i]->download(0, host[i].data(), host[i].size() * 4);
  }
  return host;
}

/// The same for one buffer.
Words results(const std::shared_ptr<Device>& device, const ShaderPieces& pieces, std::uint32_t words,
              std::uint32_t workgroups) {
  return all_results(device, pieces, {&words, 1}, workgroups)[0];
}

ShaderPieces unpacking_shader() {
  return {.threads = kThreads,
          .storage = {{"u32", true}},
          .body = fmt::format("  let code = group * {}u + thread;\n"
                              "  let both = bitcast<vec2<u32>>(unpack2x16float(code | (code << 16u)));\n"
                              "  $data0[code] = both.x;\n"
                              "  $data0[code + {}u] = both.y;\n",
                              kThreads, kHalves)};
}

bool has_exact_halves(const std::shared_ptr<Device>& device) {
  const Words words = results(device, unpacking_shader(), 2 * kHalves, kHalves / kThreads);
  for (std::uint32_t i = 0; i < words.size(); ++i) {
    const float wanted = f32_from_f16(static_cast<std::uint16_t>(i % kHalves));
    const bool same = std::isnan(wanted) ? std::isnan(std::bit_cast<float>(words[i]))
                                         : words[i] == std::bit_cast<std::uint32_t>(wanted);
    if (!same) return false;
  }
  return true;
}

// Each thread has the upper 16 bits of a float, and compares conversions around all places where the nearest half changes: numbers
// that are halves, the middle between two halves, and their neighbours.
ShaderPieces rounding_shader() {
  ShaderPieces pieces{.threads = kThreads, .storage = {{"u32", true}}};
  pieces.helpers.use("f16_from_f32");
  pieces.body = fmt::format(
      "  let upper = (group * {}u + thread) << 16u;\n"
      "  var places = array<u32, 7>(0u, 1u, 0xfffu, 0x1000u, 0x1001u, 0x17ffu, 0x1fffu);\n"
      "  var wrong = 0u;\n"
      "  for (var at = 0u; at < 56u; at++) {{\n"
      "    let bits = upper | ((at / 7u) << 13u) | places[at % 7u];\n"
      "    let wanted = f16_from_f32(bitcast<f32>(bits));\n"
      "    let other = f16_from_f32(bitcast<f32>(bits ^ 0x80000001u));\n"
      "    let got = pack2x16float(vec2f(bitcast<f32>(bits), bitcast<f32>(bits ^ 0x80000001u)));\n"
      "    let none = (wanted & 0x7fffu) > 0x7c00u && (got & 0x7fffu) > 0x7c00u;\n"
      "    let no_other = (other & 0x7fffu) > 0x7c00u && ((got >> 16u) & 0x7fffu) > 0x7c00u;\n"
      "    if ((wanted != (got & 0xffffu) && !none) || (other != (got >> 16u) && !no_other)) {{ wrong++; }}\n"
      "  }}\n"
      "  $data0[group * {}u + thread] = wrong;\n",
      kThreads, kThreads);
  return pieces;
}

bool has_rounded_halves(const std::shared_ptr<Device>& device) {
  const Words wrong = results(device, rounding_shader(), kHalves, kHalves / kThreads);
  return std::all_of(wrong.begin(), wrong.end(), [](std::uint32_t count) { return count == 0; });
}

int left_value(int row, int k) { return (row * 7 + k * 3) % 13 + 200; }
int right_value(int k, int column) { return (k * 5 + column * 11) % 17 + 300; }

// Two products of matrices in workgroup memory, whose lines are three vectors of packed halves apart: one direct, and one with
// both matrices transposed. The sums are whole numbers beyond f16.
ShaderPieces matrices_shader() {
  ShaderPieces pieces{.threads = 32, .matrices = true, .storage = {{"vec4<u32>", true}}};
  pieces.share("staged", "vec4<u32>", 256);
  pieces.functions.push_back({"left", "(row: u32, k: u32) -> f32 { return f32((row * 7u + k * 3u) % 13u + 200u); }\n"});
  pieces.functions.push_back(
      {"right", "(k: u32, column: u32) -> f32 { return f32((k * 5u + column * 11u) % 17u + 300u); }\n"});
  pieces.body =
      "  let line = thread / 2u;\n"
      "  let vector = thread % 2u;\n"
      "  for (var w = 0u; w < 4u; w++) {\n"
      "    let at = vector * 8u + w * 2u;\n"
      "    $staged[line * 3u + vector][w] = pack2x16float(vec2f($left(line, at), $left(line, at + 1u)));\n"
      "    $staged[48u + line * 3u + vector][w] = pack2x16float(vec2f($right(line, at), $right(line, at + 1u)));\n"
      "  }\n"
      "  workgroupBarrier();\n"
      "  var rows: subgroup_matrix_result<f32, 16, 16>;\n"
      "  var columns: subgroup_matrix_result<f32, 16, 16>;\n"
      "  let a = subgroupMatrixLoad<subgroup_matrix_left<f16, 16, 16>, row_major>(&$staged, subgroup * 48u, 3u);\n"
      "  let b = subgroupMatrixLoad<subgroup_matrix_right<f16, 16, 16>, row_major>(&$staged, 48u, 3u);\n"
      "  let c = subgroupMatrixLoad<subgroup_matrix_left<f16, 16, 16>, col_major>(&$staged, 48u, 3u);\n"
      "  let d = subgroupMatrixLoad<subgroup_matrix_right<f16, 16, 16>, col_major>(&$staged, subgroup * 48u, 3u);\n"
      "  rows = subgroupMatrixMultiplyAccumulate(a, b, rows);\n"
      "  columns = subgroupMatrixMultiplyAccumulate(c, d, columns);\n"
      "  subgroupMatrixStore<row_major>(&$staged, 96u, rows, 5u);\n"
      "  subgroupMatrixStore<row_major>(&$staged, 176u, columns, 5u);\n"
      "  workgroupBarrier();\n"
      "  for (var at = thread; at < 256u; at += 32u) { $data0[at] = $staged[at]; }\n";
  return pieces;
}

bool has_matrices(const std::shared_ptr<Device>& device) {
  if (!target_of(device->info()).lists_matrices) return false;
  try {
    const Words words = results(device, matrices_shader(), 1024, 1);
    for (int row = 0; row < 16; ++row)
      for (int column = 0; column < 16; ++column) {
        int sum = 0;
        for (int k = 0; k < 16; ++k) sum += left_value(row, k) * right_value(k, column);
        const auto at = [&](int first, int r, int c) {
          return std::bit_cast<float>(words[static_cast<std::size_t>(4 * first + 20 * r + c)]);
        };
        if (at(96, row, column) != static_cast<float>(sum) || at(176, column, row) != static_cast<float>(sum))
          return false;
      }
    return true;
  } catch (const Error& error) {
    log(LogLevel::warning, "webgpu",
        fmt::format("{}: subgroup matrices are not used: {}", device->name(), error.what()));
    return false;
  }
}

// What attention on matrices does between its barriers, many times over, in several subgroups that are not in step: matrices
// are stored, each thread reads one column of them, writes halves over them, and these are read as matrices.
ShaderPieces exchange_shader() {
  constexpr int kTurns = 64;
  ShaderPieces pieces{.threads = kExchangeThreads, .matrices = true, .storage = {{"u32", true}}};
  pieces.share("scores", "vec4<u32>", 96 * kExchangeThreads / 32);
  pieces.functions.push_back({"halves", "(v: vec2f) -> u32 { return bitcast<u32>(vec2<f16>(v)); }\n"});
  // Left and right are matrices of small whole numbers; a sum of their product modulo 8 becomes the next left one.
  std::string body =
      "  let lane = thread & 31u;\n"
      "  let own = subgroup * 96u;\n"
      "  let row = lane & 15u;\n"
      "  let part = lane >> 4u;\n"
      "  var word: vec4<u32>;\n"
      "  for (var w = 0u; w < 4u; w++) {\n"
      "    let k = part * 8u + w * 2u;\n"
      "    word[w] = $halves(vec2f(f32((row * 3u + k + group) % 8u), f32((row * 3u + k + 1u + group) % 8u)));\n"
      "  }\n"
      "  $scores[own + row * 3u + part] = word;\n"
      "  workgroupBarrier();\n"
      "  let right = subgroupMatrixLoad<subgroup_matrix_right<f16, 16, 16>, col_major>(&$scores, own, 3u);\n"
      "  workgroupBarrier();\n"
      "  var sum = 0u;\n";
  body += fmt::format("  for (var turn = 0u; turn < {}u + (subgroup & 3u); turn++) {{\n", kTurns);
  body +=
      "    let left = subgroupMatrixLoad<subgroup_matrix_left<f16, 16, 16>, row_major>(&$scores, own, 3u);\n"
      "    var product = subgroup_matrix_result<f32, 16, 16>();\n"
      "    product = subgroupMatrixMultiplyAccumulate(left, right, product);\n"
      "    // subgroup order\n"
      "    subgroupMatrixStore<row_major>(&$scores, own, product, 6u);\n"
      "    // subgroup order\n";
  for (int i = 0; i < 8; ++i)
    body +=
        fmt::format("    let s{0} = bitcast<f32>($scores[own + row / 4u + (part * 8u + {0}u) * 6u][row & 3u]);\n", i);
  body += "    // subgroup order\n";
  for (int i = 0; i < 8; ++i) body += fmt::format("    let p{0} = f32((u32(s{0}) + turn + {0}u) % 8u);\n", i);
  body +=
      "    $scores[own + row * 3u + part] = vec4<u32>($halves(vec2f(p0, p1)), $halves(vec2f(p2, p3)), "
      "$halves(vec2f(p4, p5)), $halves(vec2f(p6, p7)));\n"
      "    // subgroup order\n"
      "    sum = sum * 5u + u32(p0 + 8f * p1 + 64f * p2 + 512f * p3) + u32(p4 + 8f * p5 + 64f * p6 + 512f * p7) * "
      "4096u;\n"
      "  }\n";
  body += fmt::format("  $data0[group * {}u + thread] = sum;\n", kExchangeThreads);
  pieces.body = body;
  return pieces;
}

/// The same with barriers at the marked places, in turns that all subgroups take.
ShaderPieces ordered_exchange_shader() {
  ShaderPieces pieces = exchange_shader();
  const auto replace_all = [&](std::string_view from, std::string_view to) {
    for (std::size_t at = pieces.body.find(from); at != std::string::npos; at = pieces.body.find(from, at + to.size()))
      pieces.body.replace(at, from.size(), to);
  };
  replace_all("// subgroup order", "workgroupBarrier();");
  replace_all("u + (subgroup & 3u); turn++) {", "u + 3u; turn++) { let counts = turn < 64u + (subgroup & 3u);");
  replace_all("    sum = sum * 5u", "    if (counts) { sum = sum * 5u");
  replace_all("* 4096u;\n", "* 4096u; }\n");
  return pieces;
}

bool has_ordered_subgroups(const std::shared_ptr<Device>& device) {
  constexpr std::uint32_t kGroups = 1024;
  try {
    const std::uint32_t words = kGroups * kExchangeThreads;
    const Words wanted = results(device, ordered_exchange_shader(), words, kGroups);
    for (int i = 0; i < 3; ++i)
      if (results(device, exchange_shader(), words, kGroups) != wanted) return false;
    return true;
  } catch (const Error& error) {
    log(LogLevel::warning, "webgpu",
        fmt::format("{}: the order inside subgroups is not used: {}", device->name(), error.what()));
    return false;
  }
}

int integer_value(int line, int k) { return (line * 37 + k * 11 + 128) % 256 - 128; }

// A product of 16 x 32 by 32 x 16 integers, both with neighbours along k: all of i8 but in order, with -128 times -128.
ShaderPieces integers_shader(bool on_matrices) {
  ShaderPieces pieces{.threads = 32, .matrices = on_matrices, .storage = {{"vec4<u32>", true}}};
  pieces.share("staged", "vec4<u32>", 176);
  pieces.functions.push_back(
      {"number", "(line: u32, k: u32) -> u32 { return ((line * 37u + k * 11u + 128u) % 256u + 128u) & 255u; }\n"});
  pieces.body =
      "  let line = thread / 2u;\n"
      "  let vector = thread % 2u;\n"
      "  for (var w = 0u; w < 4u; w++) {\n"
      "    let k = vector * 16u + w * 4u;\n"
      "    var left = 0u;\n"
      "    var right = 0u;\n"
      "    for (var e = 0u; e < 4u; e++) {\n"
      "      left |= $number(line, k + e) << (8u * e);\n"
      "      right |= $number(line + 5u, k + e) << (8u * e);\n"
      "    }\n"
      "    $staged[line * 3u + vector][w] = left;\n"
      "    $staged[48u + line * 3u + vector][w] = right;\n"
      "  }\n"
      "  workgroupBarrier();\n";
  pieces.body +=
      on_matrices
          ? "  let a = subgroupMatrixLoad<subgroup_matrix_left<i8, 32, 16>, row_major>(&$staged, subgroup * 48u, 3u);\n"
            "  let b = subgroupMatrixLoad<subgroup_matrix_right<i8, 16, 32>, col_major>(&$staged, 48u, 3u);\n"
            "  var sums: subgroup_matrix_result<i32, 16, 16>;\n"
            "  sums = subgroupMatrixMultiplyAccumulate(a, b, sums);\n"
            "  subgroupMatrixStore<row_major>(&$staged, 96u, sums, 5u);\n"
          : "  for (var at = thread; at < 64u; at += 32u) {\n"
            "    var four = vec4<i32>();\n"
            "    for (var e = 0u; e < 4u; e++) {\n"
            "      for (var v = 0u; v < 8u; v++) {\n"
            "        four[e] += dot4I8Packed($staged[at / 4u * 3u + v / 4u][v % 4u],\n"
            "                                $staged[48u + (at % 4u * 4u + e) * 3u + v / 4u][v % 4u]);\n"
            "      }\n"
            "    }\n"
            "    $staged[96u + at / 4u * 5u + at % 4u] = bitcast<vec4<u32>>(four);\n"
            "  }\n";
  pieces.body +=
      "  workgroupBarrier();\n  for (var at = thread; at < 80u; at += 32u) { $data0[at] = $staged[96u + at]; }\n";
  return pieces;
}

bool multiplies_integers(const std::shared_ptr<Device>& device, bool on_matrices) {
  try {
    const Words words = results(device, integers_shader(on_matrices), 320, 1);
    for (int row = 0; row < 16; ++row)
      for (int column = 0; column < 16; ++column) {
        int sum = 0;
        for (int k = 0; k < 32; ++k) sum += integer_value(row, k) * integer_value(column + 5, k);
        if (words[static_cast<std::size_t>(20 * row + column)] != static_cast<std::uint32_t>(sum)) return false;
      }
    return true;
  } catch (const Error& error) {
    log(LogLevel::warning, "webgpu",
        fmt::format("{}: {} of i8 are not used: {}", device->name(), on_matrices ? "subgroup matrices" : "dot products",
                    error.what()));
    return false;
  }
}

/// Software runs workgroups one after another. Only for Vulkan does WGSL's storageBarrier become a barrier of the whole device, so a
/// test on another backend could pass by chance.
bool may_meet(const AdapterInfo& info) { return info.type != AdapterType::software && info.backend == "Vulkan"; }

constexpr std::uint32_t kMeetingGroups = 32, kMeetingThreads = 128, kMeetingTurns = 64;

// In each turn all workgroups write, meet, and read what others wrote: words of their own, or every so many words one. Each word is
// written once, and not read before.
ShaderPieces meetings_shader() {
  ShaderPieces pieces{.threads = kMeetingThreads, .resident = true};
  pieces.storage = {{"u32", true}, {"u32", true}, {"atomic<u32>", true}};
  pieces.verbatim = std::string(kMeetingDeclarations);
  pieces.functions.push_back({"meet", meeting_function("$data2")});
  pieces.functions.push_back({"number",
                              "(turn: u32, owner: u32, thread: u32) -> u32 {\n"
                              "  return turn * 7919u + owner * 1000003u + thread * 17u + 1u;\n}\n"});
  pieces.functions.push_back(
      {"place", fmt::format("(turn: u32, owner: u32, thread: u32) -> u32 {{\n"
                            "  let at = select(owner * {0}u + thread, thread * {1}u + owner, (turn & 1u) != 0u);\n"
                            "  return turn * {2}u + at;\n}}\n",
                            kMeetingThreads, kMeetingGroups, kMeetingGroups * kMeetingThreads)});
  pieces.body = fmt::format(
      "  resident = Resident(group, groups, true, true);\n"
      "  var wrong = 0u;\n"
      "  for (var turn = 0u; turn < {0}u; turn++) {{\n"
      "    $data1[$place(turn, group, thread)] = $number(turn, group, thread);\n"
      "    resident.waits = true;\n"
      "    $meet(thread);\n"
      "    for (var other = 0u; other < 8u; other++) {{\n"
      "      let owner = (group + turn * 37u + other * 13u + 1u) % {1}u;\n"
      "      let its = (thread * 5u + turn + other) % {2}u;\n"
      "      if ($data1[$place(turn, owner, its)] != $number(turn, owner, its)) {{ wrong++; }}\n"
      "    }}\n"
      "  }}\n"
      "  $data0[group * {2}u + thread] = wrong;\n",
      kMeetingTurns, kMeetingGroups, kMeetingThreads);
  return pieces;
}

bool has_meetings(const std::shared_ptr<Device>& device) {
  if (!may_meet(device->info())) return false;
  try {
    constexpr std::uint32_t kThreadsOfAll = kMeetingGroups * kMeetingThreads;
    constexpr std::array<std::uint32_t, 3> kWords{kThreadsOfAll, kThreadsOfAll * kMeetingTurns, kMeetingBytes / 4};
    for (int i = 0; i < 3; ++i) {
      const std::vector<Words> host = all_results(device, meetings_shader(), kWords, kMeetingGroups);
      if (host[2][kMissedOffset / 4] != 0 ||
          std::ranges::any_of(host[0], [](std::uint32_t wrong) { return wrong != 0; }))
        return false;
    }
    return true;
  } catch (const Error& error) {
    log(LogLevel::warning, "webgpu", fmt::format("{}: workgroups do not meet: {}", device->name(), error.what()));
    return false;
  }
}

/// All of them at once, because compilers take far longer than the tests. A shader that does not compile fails its own test.
void compile_tests(Device& device) {
  const Target target = target_of(device.info());
  std::vector<ShaderPieces> tests{unpacking_shader(), rounding_shader(), integers_shader(false)};
  if (target.lists_matrices)
    for (ShaderPieces& pieces : std::array{matrices_shader(), ordered_exchange_shader(), exchange_shader()})
      tests.push_back(std::move(pieces));
  if (target.lists_integer_matrices) tests.push_back(integers_shader(true));
  if (may_meet(device.info())) tests.push_back(meetings_shader());
  std::vector<Shader> shaders;
  for (const ShaderPieces& pieces : tests) shaders.push_back(test_shader(pieces));
  try {
    device.pipelines().compile(shaders);
  } catch (const InternalError& error) {
    log(LogLevel::debug, "webgpu", error.what());
  }
}

}  // namespace

std::string facts_text(const TestedFacts& facts) {
  return nlohmann::ordered_json{{"version", kVersion},
                                {"exact_halves", facts.exact_halves},
                                {"rounded_halves", facts.rounded_halves},
                                {"matrices", facts.matrices},
                                {"ordered_subgroups", facts.ordered_subgroups},
                                {"integer_matrices", facts.integer_matrices},
                                {"integer_dots", facts.integer_dots},
                                {"meetings", facts.meetings}}
             .dump() +
         "\n";
}

std::optional<TestedFacts> parse_facts(std::string_view text) {
  const nlohmann::json json = nlohmann::json::parse(text, nullptr, false);
  if (!json.is_object() || !json.contains("version") || json["version"] != kVersion) return {};
  TestedFacts facts;
  for (const auto& [name, fact] :
       {std::pair{"exact_halves", &facts.exact_halves}, std::pair{"rounded_halves", &facts.rounded_halves},
        std::pair{"matrices", &facts.matrices}, std::pair{"ordered_subgroups", &facts.ordered_subgroups},
        std::pair{"integer_matrices", &facts.integer_matrices}, std::pair{"integer_dots", &facts.integer_dots},
        std::pair{"meetings", &facts.meetings}}) {
    const auto found = json.find(name);
    if (found == json.end() || !found->is_boolean()) return {};
    *fact = found->get<bool>();
  }
  return facts;
}

TestedFacts test_facts(const std::shared_ptr<Device>& device) {
  compile_tests(*device);
  TestedFacts facts;
  facts.exact_halves = has_exact_halves(device);
  facts.rounded_halves = has_rounded_halves(device);
  facts.matrices = has_matrices(device);
  facts.ordered_subgroups = facts.matrices && has_ordered_subgroups(device);
  facts.integer_matrices = target_of(device->info()).lists_integer_matrices && multiplies_integers(device, true);
  facts.integer_dots = multiplies_integers(device, false);
  facts.meetings = has_meetings(device);
  return facts;
}

const TestedFacts& FactsKeeper::facts() {
  const std::lock_guard lock(device_->mutex());
  if (facts_) return *facts_;
  const std::vector<std::byte> kept = device_->blob_cache().load(kKey);
  if (!kept.empty()) facts_ = parse_facts({reinterpret_cast<const char*>(kept.data()), kept.size()});
  if (facts_) return *facts_;
  facts_ = test_facts(device_);
  device_->blob_cache().store(kKey, facts_text(*facts_));
  log(LogLevel::info, "webgpu", fmt::format("{}: tested: {}", device_->name(), facts_text(*facts_)));
  return *facts_;
}

}  // namespace weft::webgpu
