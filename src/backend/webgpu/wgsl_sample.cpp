// Nothing is sorted but a few candidates. Many workgroups adjust logits and find the best of their part; many then count
// candidates and their mass by bins of the distance to the best logit; one workgroup a row walks from bin to candidate.
//
// Masses are integers of 64 bits (words low, high), so that sums are exact and do not depend on an order: the CPU adds in
// f64, and a vocabulary of equal logits tells sums in f32 from those.
#include "backend/webgpu/wgsl_sample.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <utility>

#include "backend/webgpu/wgsl_scalar.hpp"
#include "backend/webgpu/wgsl_steps.hpp"
#include "base/philox.hpp"
#include "weft/error.hpp"
#include "weft/inference.hpp"

namespace weft::webgpu {
namespace {

using kernel::Operand;
using kernel::RoutineKernel;

constexpr Extent kRecordWords =
    4;  // of a part: best key, its token; best key before bias and penalties, sum of the others
constexpr Extent kExtraWords = 4;  // of a row, after its bins: bins per unit of logits; mass of all (low, high)
constexpr double kReach = 28;      // e^-28 of the most probable: all that is beyond weighs less than a draw can tell

// --- What all three share ---------------------------------------------------------------------------------------------

// Larger for larger logits and largest for NaN, and back.
constexpr std::string_view kKeys =
    R"(fn key_of(l: f32) -> u32 { return select(order_key_f32(l), 0xffffffffu, is_nan_f32(l)); }
fn logit_of(key: u32) -> f32 { return bitcast<f32>(select(~key, key & 0x7fffffffu, key >= 0x80000000u)); }
fn is_finite_key(key: u32) -> bool { return key > 0x007fffffu && key < 0xff800000u; }
// The largest key of all threads, and the first place that has it.
fn best_of(thread: u32, key: u32, place: u32) -> vec2u {
  keys[thread] = key;
  places[thread] = place;
  for (var step = threads / 2u; step > 0u; step /= 2u) {
    workgroupBarrier();
    if (thread < step) {
      let other = vec2u(keys[thread + step], places[thread + step]);
      if (other.x > keys[thread] || (other.x == keys[thread] && other.y < places[thread])) {
        keys[thread] = other.x;
        places[thread] = other.y;
      }
    }
  }
  let best = workgroupUniformLoad(&keys[0]);
  return vec2u(best, workgroupUniformLoad(&places[0]));
}
)";

constexpr std::string_view kSum = R"(fn sum_of(thread: u32, value: f32) -> f32 {
  keys[thread] = bitcast<u32>(value);
  for (var step = threads / 2u; step > 0u; step /= 2u) {
    workgroupBarrier();
    if (thread < step) { keys[thread] = bitcast<u32>(bitcast<f32>(keys[thread]) + bitcast<f32>(keys[thread + step])); }
  }
  return bitcast<f32>(workgroupUniformLoad(&keys[0]));
}
)";

// GPUs divide to within some units of the last place, the same way for all quotients by one number; that would bend the
// probabilities of a whole row. The remainder is exact, as products of halves are.
constexpr std::string_view kQuotient = R"(fn quotient(x: f32, y: f32) -> f32 {
  let q = x / y;
  let q_high = bitcast<f32>(bitcast<u32>(q) & 0xfffff000u);
  let y_high = bitcast<f32>(bitcast<u32>(y) & 0xfffff000u);
  let rest = ((x - q_high * y_high) - q_high * (y - y_high)) - (q - q_high) * y_high - (q - q_high) * (y - y_high);
  return select(q, q + rest / y, abs(q) > 1e-25f && abs(q) < 1e25f);
}
)";

constexpr std::string_view kMasses = R"(fn plus(a: vec2u, b: vec2u) -> vec2u {
  let low = a.x + b.x;
  return vec2u(low, a.y + b.y + select(0u, 1u, low < a.x));
}
// A fraction as a mass.
fn mass(fraction: f32) -> vec2u {
  let scaled = fraction * unit;
  let high = floor(scaled);
  return vec2u(u32((scaled - high) * 4294967296f), u32(high));
}
fn distance(l: f32) -> f32 { return quotient(top - l, temperature); }
fn weight(l: f32) -> f32 { return exp_f32(-distance(l)); }
fn set_row(best: f32, temperature_given: f32, bins_per_unit: f32) {
  top = best;
  temperature = clamp(temperature_given, 1e-20f, 1e30f);
  scale = bins_per_unit;
}
// Adds a candidate to a bin.
fn add(bin: u32, m: vec2u) {
  atomicAdd(&counts[bin], 1u);
  let old = atomicAdd(&lows[bin], m.x);
  let high = m.y + select(0u, 1u, old + m.x < old);
  if (high != 0u) { atomicAdd(&highs[bin], high); }
}
var<private> top: f32;
var<private> temperature: f32;
var<private> scale: f32;
)";

// --- Parts ------------------------------------------------------------------------------------------------------------

constexpr std::string_view kPartFunctions =
    R"(// A product that is rounded before it is used, as the CPU's is: through an atomic, nothing can be fused.
fn rounded(at: u32, product: f32) -> f32 {
  atomicStore(&marks[at], bitcast<u32>(product));
  return bitcast<f32>(atomicLoad(&marks[at]));
}
)";

constexpr std::string_view kPartBody = R"(  let row = group / parts;
  let number = group % parts;
  let begin = number * part;
  let size = min(part, vocabulary - begin);
  for (var i = thread; i < 9u; i += threads) { given[i] = setting(row * 9u + i); }
  for (var i = thread; i < part; i += threads) { atomicStore(&marks[i], 0u); }
  workgroupBarrier();
  let repetition = given[5];
  let frequency = given[6];
  let presence = given[7];
  if (repetition != 1f || frequency != 0f || presence != 0f) { mark_history(thread, row, begin, size); }
  mark_bias(thread, row, begin, size);
  workgroupBarrier();
  let draws = given[0] > 0f;
  var best = vec2u(0u, 0xffffffffu);
  var raw_best = best;
  for (var i = thread; i < part; i += threads) {
    var l = -inf_f32();
    if (i < size) {
      let raw = logit(row * vocabulary + begin + i);
      l = raw;
      let mark = atomicLoad(&marks[i]);
      if (mark >= 0x80000000u) { l = biased(l, row, begin + i); }
      let times = mark & 0x7fffffffu;
      if (times != 0u) {
        if (l > 0f) { l = quotient(l, repetition); } else { l = rounded(i, l * repetition); }
        l -= rounded(i, frequency * f32(times)) + presence;
      }
      let key = key_of(l);
      let raw_key = key_of(raw);
      if (key > best.x || best.y == 0xffffffffu) { best = vec2u(key, begin + i); }
      if (raw_key > raw_best.x || raw_best.y == 0xffffffffu) { raw_best = vec2u(raw_key, begin + i); }
    }
    if (draws) { put_adjusted(row * pitch + begin + i, l); }
  }
  if (draws) {
    for (var i = number * threads + thread; i < row_words; i += parts * threads) {
      put_word(row * row_words + i, select(0u, bitcast<u32>(min(bins_per_distance / given[0], 3e38f)), i == 3u * bins));
    }
  }
  best = best_of(thread, best.x, best.y);
  let at = group * 4u;
  if (thread == 0u) {
    put_record(at, best.x);
    put_record(at + 1u, best.y);
  }
  if (workgroupUniformLoad(&given[8]) == 0f) { return; }
  raw_best = best_of(thread, raw_best.x, raw_best.y);
  var sum = 0f;
  if (is_finite_key(raw_best.x)) {
    for (var i = thread; i < size; i += threads) {
      if (begin + i != raw_best.y) { sum += exp_f32(logit(row * vocabulary + begin + i) - logit_of(raw_best.x)); }
    }
  }
  sum = sum_of(thread, sum);
  if (thread == 0u) {
    put_record(at + 2u, raw_best.x);
    put_record(at + 3u, bitcast<u32>(sum));
  }
)";

// --- Weights ----------------------------------------------------------------------------------------------------------

constexpr std::string_view kWeightBody = R"(  let row = group / parts;
  let begin = row * pitch + group % parts * part;
  for (var i = thread; i < 9u; i += threads) { given[i] = setting(row * 9u + i); }
  workgroupBarrier();
  if (!(workgroupUniformLoad(&given[0]) > 0f)) { return; }
  var best = vec2u(0u, 0xffffffffu);
  for (var i = thread; i < parts; i += threads) {
    let key = record((row * parts + i) * 4u);
    if (key > best.x) { best = vec2u(key, i); }
  }
  best = best_of(thread, best.x, best.y);
  if (!is_finite_key(best.x)) { return; }
  let base = row * row_words;
  set_row(logit_of(best.x), given[0], bitcast<f32>(word(base + 3u * bins)));
  let ranked = given[1] > 0f || given[2] < 1f || given[3] < 1f;
  let least = select(min(given[4], 1f), 0f, ranked);
  var sum = vec2u();
  if (thread == 0u) {
    atomicStore(&total[0], 0u);
    atomicStore(&total[1], 0u);
  }
  for (var i = thread; i < bins; i += threads) {
    atomicStore(&counts[i], 0u);
    atomicStore(&lows[i], 0u);
    atomicStore(&highs[i], 0u);
  }
  workgroupBarrier();
  for (var i = thread; i < part; i += threads) {
    let l = adjusted(begin + i);
    let scaled = (top - l) * scale;
    if (!(scaled < f32(bins))) { continue; }
    let w = weight(l);
    if (!(w >= least)) { continue; }
    let m = mass(w);
    sum = plus(sum, m);
    if (ranked) { add(u32(scaled), m); }
  }
  let old = atomicAdd(&total[0], sum.x);
  atomicAdd(&total[1], sum.y + select(0u, 1u, old + sum.x < old));
  workgroupBarrier();
  if (ranked) {
    for (var i = thread; i < bins; i += threads) {
      let count = atomicLoad(&counts[i]);
      if (count == 0u) { continue; }
      add_word(base + i, count);
      add_words(base + bins + i, base + 2u * bins + i, vec2u(atomicLoad(&lows[i]), atomicLoad(&highs[i])));
    }
  }
  if (thread == 0u) {
    let all = vec2u(atomicLoad(&total[0]), atomicLoad(&total[1]));
    add_words(base + 3u * bins + 1u, base + 3u * bins + 2u, all);
    put_part_mass(group * 2u, all.x);
    put_part_mass(group * 2u + 1u, all.y);
  }
)";
constexpr std::string_view kWeightFunctions = R"(fn add_words(low: u32, high: u32, m: vec2u) {
  let old = add_word(low, m.x);
  let carried = m.y + select(0u, 1u, old + m.x < old);
  if (carried != 0u) { add_word(high, carried); }
}
)";

// --- The draw ---------------------------------------------------------------------------------------------------------

constexpr std::string_view kDrawNumbers =
    R"(fn less(a: vec2u, b: vec2u) -> bool { return a.y < b.y || (a.y == b.y && a.x < b.x); }
fn minus(a: vec2u, b: vec2u) -> vec2u { return vec2u(a.x - b.x, a.y - b.y - select(0u, 1u, a.x < b.x)); }
// floor(m u / 2^64)
fn part_of(m: vec2u, u: vec2u) -> vec2u {
  let p = mul_wide(u.x, m.y);
  let q = mul_wide(u.y, m.x);
  let middle = plus(plus(vec2u(mul_wide(u.x, m.x).y, 0u), vec2u(p.x, 0u)), vec2u(q.x, 0u));
  return plus(plus(mul_wide(u.y, m.y), vec2u(p.y, 0u)), plus(vec2u(q.y, 0u), vec2u(middle.y, 0u)));
}
// ceil(m share) for a share below 1, at least 1
fn share_of(m: vec2u, share: f32) -> vec2u {
  if (!(share > 0f)) { return vec2u(1u, 0u); }
  let bits = bitcast<u32>(share);
  let mantissa = (bits & 0x7fffffu) | 0x800000u;
  let low = mul_wide(mantissa, m.x);
  let high = plus(vec2u(low.y, 0u), mul_wide(mantissa, m.y));
  var w = vec3u(low.x, high);
  var rest = 0u;
  var shift = 150u - (bits >> 23u);
  for (; shift >= 32u; shift -= 32u) {
    rest |= w.x;
    w = vec3u(w.y, w.z, 0u);
  }
  if (shift != 0u) {
    rest |= w.x << (32u - shift);
    w = vec3u((w.x >> shift) | (w.y << (32u - shift)), (w.y >> shift) | (w.z << (32u - shift)), 0u);
  }
  let whole = plus(w.xy, vec2u(select(0u, 1u, rest != 0u), 0u));
  return select(whole, vec2u(1u, 0u), whole.x == 0u && whole.y == 0u);
}
// floor(2^31 a / b) for a < b < 2^63
fn ratio(a: vec2u, b: vec2u) -> u32 {
  var rest = a;
  var q = 0u;
  for (var i = 0u; i < 31u; i++) {
    rest = vec2u(rest.x << 1u, (rest.y << 1u) | (rest.x >> 31u));
    q <<= 1u;
    if (!less(rest, b)) {
      rest = minus(rest, b);
      q |= 1u;
    }
  }
  return q;
}
)";

// Sums over bins are (mass low, mass high, count).
constexpr std::string_view kDrawSums =
    R"(fn joined(a: vec3u, b: vec3u) -> vec3u { return vec3u(plus(a.xy, b.xy), a.z + b.z); }
fn bin_at(i: u32) -> vec3u { return vec3u(atomicLoad(&lows[i]), atomicLoad(&highs[i]), atomicLoad(&counts[i])); }
fn set_bin(i: u32, sum: vec3u) {
  atomicStore(&lows[i], sum.x);
  atomicStore(&highs[i], sum.y);
  atomicStore(&counts[i], sum.z);
}
fn clear(thread: u32) {
  workgroupBarrier();
  for (var i = thread; i < bins; i += threads) { set_bin(i, vec3u()); }
  workgroupBarrier();
}
// A goal less a sum; 0 where the sum is beyond it.
fn rest_of(goal: vec3u, sum: vec3u) -> vec3u {
  return vec3u(select(minus(goal.xy, sum.xy), vec2u(), less(goal.xy, sum.xy)), goal.z - min(goal.z, sum.z));
}
fn reaches(sum: vec3u, goal: vec3u) -> bool { return !less(sum.xy, goal.xy) && sum.z >= goal.z; }
// The first bin with which the sums reach the goal, or all there is. `found` gets its number, its count, the sums before it
// and the goal less these; the count is given back.
fn cross(thread: u32, wanted: vec3u) -> u32 {
  if (thread == 0u) { found = array<u32, 8>(); }
  run_up(thread);
  let all = bin_at(bins - 1u);
  let goal = vec3u(select(wanted.xy, all.xy, less(all.xy, wanted.xy)), min(wanted.z, all.z));
  for (var i = thread; i < bins; i += threads) {
    let sum = bin_at(i);
    if (!reaches(sum, goal)) { continue; }
    var before = vec3u();
    if (i > 0u) { before = bin_at(i - 1u); }
    if (reaches(before, goal)) { break; }
    found[0] = i;
    found[1] = sum.z - before.z;
    found[2] = before.x;
    found[3] = before.y;
    found[4] = before.z;
    found[5] = goal.x;
    found[6] = goal.y;
    found[7] = goal.z;
  }
  return workgroupUniformLoad(&found[1]);
}
)";

constexpr std::string_view kRunUp = R"(// Makes running sums of the bins.
fn run_up(thread: u32) {
  workgroupBarrier();
  for (var step = 1u; step < bins; step *= 2u) {
    var sums: array<vec3u, bins / threads>;
    for (var j = 0u; j < bins / threads; j++) {
      let i = j * threads + thread;
      sums[j] = bin_at(i);
      if (i >= step) { sums[j] = joined(sums[j], bin_at(i - step)); }
    }
    workgroupBarrier();
    for (var j = 0u; j < bins / threads; j++) { set_bin(j * threads + thread, sums[j]); }
    workgroupBarrier();
  }
}
)";
constexpr std::string_view kRunUpAlone = R"(fn run_up(thread: u32) {
  var sum = vec3u();
  for (var i = 0u; i < bins; i++) {
    sum = joined(sum, bin_at(i));
    set_bin(i, sum);
  }
}
)";

constexpr std::string_view kDrawCandidates = R"(var<private> cut: vec2u;
var<private> cut_bin: u32;
var<private> far: vec2u;
var<private> is_typical: bool;
var<private> center: u32;
var<private> least: f32;
// For digits below the number of bins.
fn digit_shift(width: u32) -> u32 { return max(32u - countLeadingZeros(width), bin_bits) - bin_bits; }
fn is_after(a: vec2u, b: vec2u) -> bool { return a.x > b.x || (a.x == b.x && a.y > b.y); }
// Every candidate that the filters so far have left, in bins first to last: counted, weighed, or listed if low to high
// holds it. Candidates are ordered by (~key, token), or by (distance from what is typical, token).
fn visit(thread: u32, row: u32, task: u32, by_distance: bool, first: u32, last: u32, low: vec2u, high: vec2u) {
  for (var group = thread; group < pitch / lanes; group += threads) {
    let logits = adjusted_lanes(row * (pitch / lanes) + group);
    for (var lane = 0u; lane < lanes; lane++) {
      let l = logits[lane];
      let scaled = (top - l) * scale;
      if (!(scaled < f32(bins))) { continue; }
      var bin = u32(scaled);
      if (bin < first || bin > last) { continue; }
      let token = group * lanes + lane;
      var at = vec2u(~key_of(l), token);
      if (is_after(at, cut)) { continue; }
      if (is_typical) {
        let x = u32(distance(l) * 67108864f);
        let from_center = vec2u(select(x - center, center - x, x < center), token);
        if (is_after(from_center, far)) { continue; }
        if (by_distance) {
          at = from_center;
          bin = at.x >> distance_shift;
        }
      }
      let is_inside = !is_after(low, at) && !is_after(at, high);
      if (task == list_them) {
        if (is_inside) {
          let place = atomicAdd(&listed[0], 1u);
          keys[place] = at.x;
          places[place] = at.y;
        }
        continue;
      }
      let w = weight(l);
      if (task == sum_distances) {
        add(thread, mass(w * distance(l) * 0.03125f));
      } else if (task == sum_kept) {
        if (w >= least) { add(thread, mass(w)); }
      } else if (task == fill_bins) {
        add(bin, mass(w));
      } else if (is_inside) {
        let is_by_key = low.x != high.x;
        let width = select(high.y - low.y, high.x - low.x, is_by_key);
        add(select(at.y - low.y, at.x - low.x, is_by_key) >> digit_shift(width), mass(w));
      }
    }
  }
}
fn sum(thread: u32, row: u32, task: u32, last: u32) -> vec2u {
  clear(thread);
  visit(thread, row, task, false, 0u, last, vec2u(), vec2u());
  run_up(thread);
  let all = bin_at(bins - 1u).xy;
  workgroupBarrier();
  return all;
}
fn fill(thread: u32, row: u32, by_distance: bool) {
  clear(thread);
  visit(thread, row, fill_bins, by_distance, 0u, cut_bin, vec2u(), vec2u());
  workgroupBarrier();
  for (var i = thread; i < bins; i += threads) {
    let sum = bin_at(i);
    put_word(row * row_words + i, sum.z);
    put_word(row * row_words + bins + i, sum.x);
    put_word(row * row_words + 2u * bins + i, sum.y);
  }
  storageBarrier();
  workgroupBarrier();
}
fn sort(thread: u32, size: u32) {
  for (var stretch = 2u; stretch <= size; stretch *= 2u) {
    for (var step = stretch / 2u; step > 0u; step /= 2u) {
      workgroupBarrier();
      for (var i = thread; i < size / 2u; i += threads) {
        let a = (i / step) * step * 2u + i % step;
        let x = vec2u(keys[a], places[a]);
        let y = vec2u(keys[a + step], places[a + step]);
        if (is_after(x, y) == ((a & stretch) == 0u)) {
          keys[a] = y.x;
          places[a] = y.y;
          keys[a + step] = x.x;
          places[a + step] = x.y;
        }
      }
    }
  }
}
fn listed_sum(row: u32, i: u32) -> vec3u {
  if (places[i] == 0xffffffffu) { return vec3u(); }
  let l = adjusted(row * pitch + places[i]);
  let is_near = (top - l) * scale < f32(bins);
  let w = weight(select(top, l, is_near));
  return select(vec3u(), vec3u(mass(w), 1u), is_near && w >= least);
}
// The bins of the row: of candidates as they were counted, or for an order by token of parts.
fn load_bins(thread: u32, row: u32, order: u32) {
  workgroupBarrier();
  for (var i = thread; i < bins; i += threads) {
    var sum = vec3u();
    if (order != order_by_token) {
      let at = row * row_words + i;
      sum = vec3u(word(at + bins), word(at + 2u * bins), word(at));
    } else if (i < parts) {
      let at = (row * parts + i) * 2u;
      sum = vec3u(part_mass(at), part_mass(at + 1u), 0u);
    }
    set_bin(i, sum);
  }
}
// The first candidate with which mass and count of all up to it reach the goal: (key, token, mass up to it). The bin that
// holds it is found, bins within it as long as it has more candidates than can be listed, and these are sorted.
fn find(thread: u32, row: u32, order: u32, wanted: vec3u) -> vec4u {
  let is_by_distance = order == order_by_distance;
  var goal = wanted;
  var before = vec2u();
  var low = vec2u();
  var high = vec2u(0xffffffffu, pitch - 1u);
  var first = 0u;
  var last = cut_bin;
  var size = 0u;
  var round = 0u;
  load_bins(thread, row, order);
  loop {
    let count = cross(thread, goal);
    before = plus(before, vec2u(found[2], found[3]));
    goal = rest_of(vec3u(found[5], found[6], found[7]), vec3u(found[2], found[3], found[4]));
    if (size != 0u) { break; }
    let is_by_key = low.x != high.x;
    let width = select(high.y - low.y, high.x - low.x, is_by_key);
    var shift = digit_shift(width);
    if (round == 0u) {
      shift = distance_shift;
      if (is_by_distance) {
        low.x = found[0] << shift;
        high.x = low.x + (1u << shift) - 1u;
      } else {
        first = found[0];
        last = found[0];
      }
    } else if (is_by_key) {
      low.x += found[0] << shift;
      high.x = min(high.x, low.x + ((1u << shift) - 1u));
    } else {
      low.y += found[0] << shift;
      high.y = min(high.y, low.y + ((1u << shift) - 1u));
    }
    round++;
    let lists = count <= capacity;
    clear(thread);
    if (order == order_by_token) {
      for (var i = thread; i < part; i += threads) { places[i] = first * part + i; }
      size = part;
    } else {
      if (thread == 0u) { atomicStore(&listed[0], 0u); }
      // The row's bins also count what a filter has cut since.
      if (lists) { size = 1u << (32u - countLeadingZeros(count - 1u)); }
      for (var i = thread; i < size; i += threads) {
        keys[i] = 0xffffffffu;
        places[i] = 0xffffffffu;
      }
      workgroupBarrier();
      visit(thread, row, select(fill_digits, list_them, lists), is_by_distance, first, last, low, high);
      if (!lists) { continue; }
      sort(thread, size);
    }
    workgroupBarrier();
    for (var i = thread; i < bins; i += threads) {
      var sum = vec3u();
      for (var j = i * per_bin; j < min((i + 1u) * per_bin, size); j++) { sum = joined(sum, listed_sum(row, j)); }
      set_bin(i, sum);
    }
  }
  var at = found[0] * per_bin;
  let end = min(at + per_bin, size);
  for (; at + 1u < end; at++) {
    let own = listed_sum(row, at);
    if (reaches(own, goal)) { break; }
    before = plus(before, own.xy);
    goal = rest_of(goal, own);
  }
  let result = vec4u(keys[at], places[at], plus(before, listed_sum(row, at).xy));
  workgroupBarrier();
  return result;
}
)";

constexpr std::string_view kDrawBody = R"(  let row = group;
  let base = row * row_words;
  for (var i = thread; i < 9u; i += threads) { given[i] = bitcast<u32>(setting(row * 9u + i)); }
  for (var i = thread; i < 4u; i += threads) { given[9u + i] = draw_word(row * 4u + i); }
  for (var i = thread; i < 3u; i += threads) { given[13u + i] = word(base + 3u * bins + i); }
  let g = workgroupUniformLoad(&given);
  let top_k = bitcast<f32>(g[1]);
  let typical = bitcast<f32>(g[2]);
  let top_p = bitcast<f32>(g[3]);
  let min_p = min(bitcast<f32>(g[4]), 1f);
  var best = vec2u(0u, 0xffffffffu);
  for (var i = thread; i < parts; i += threads) {
    let key = record((row * parts + i) * 4u);
    if (key > best.x || best.y == 0xffffffffu) { best = vec2u(key, record((row * parts + i) * 4u + 1u)); }
  }
  best = best_of(thread, best.x, best.y);
  var token = best.y;
  if (bitcast<f32>(g[0]) > 0f && is_finite_key(best.x)) {
    set_row(logit_of(best.x), bitcast<f32>(g[0]), bitcast<f32>(g[13]));
    var total = vec2u(g[14], g[15]);
    cut = vec2u(0xffffffffu, 0xffffffffu);
    far = cut;
    cut_bin = bins - 1u;
    is_typical = false;
    least = 0f;
    let ranked = top_k > 0f || typical < 1f || top_p < 1f;
    if (!ranked) { least = min_p; }
    let number = philox_block(vec2u(g[9], g[10]), vec4u(g[11], g[12], 0u, sampling_use));
    for (var stage = select(stage_draw, stage_top_k, ranked); stage <= stage_draw; stage++) {
      var goal = vec3u(1u, 0u, 0u);
      let is_kept_mass = stage == stage_draw && min_p > 0f && ranked;
      if (is_kept_mass || (stage == stage_typical && typical < 1f)) {
        var last = cut_bin;
        if (is_kept_mass) { last = min(last, u32(max(-log(max(least, 1e-30f)), 0f) * bins_per_distance) + 2u); }
        let all = sum(thread, row, select(sum_distances, sum_kept, is_kept_mass), last);
        if (is_kept_mass) {
          total = vec2u(max(all.x, select(1u, 0u, all.y > 0u)), all.y);
          least = 0f;
        } else {
          center = ratio(all, total);
          is_typical = true;
        }
      }
      if (typical < 1f && (stage == stage_typical || stage == stage_top_p)) { fill(thread, row, stage == stage_typical); }
      if (stage == stage_top_k) {
        if (!(top_k > 0f)) { continue; }
        goal = vec3u(0u, 0u, max(1u, u32(min(top_k, 1e9f))));
      } else if (stage == stage_typical) {
        if (!(typical < 1f)) { continue; }
        goal = vec3u(share_of(total, typical), 0u);
      } else if (stage == stage_top_p) {
        if (!(top_p < 1f)) { continue; }
        goal = vec3u(share_of(total, top_p), 0u);
      } else if (stage == stage_first) {
        if (!(min_p > 0f && ranked)) { continue; }
      } else {
        // 53 bits, as the CPU takes.
        goal = vec3u(plus(part_of(total, vec2u(number.y & 0xfffff800u, number.x)), vec2u(1u, 0u)), 0u);
      }
      let order = select(select(order_by_key, order_by_distance, stage == stage_typical), order_by_token, !ranked);
      let c = find(thread, row, order, goal);
      token = c.y;
      if (stage == stage_first) {
        least = min_p * weight(adjusted(row * pitch + token));
      } else if (stage == stage_typical) {
        far = c.xy;
        total = c.zw;
      } else {
        cut = c.xy;
        cut_bin = min(u32((top - adjusted(row * pitch + token)) * scale), bins - 1u);
        total = c.zw;
      }
    }
  }
  token = select(token, 0xffffffffu, best.x == 0xffffffffu);
  var log_probability = 0f;
  if (bitcast<f32>(g[8]) != 0f && best.x != 0xffffffffu) {
    var raw_best = vec2u(0u, 0xffffffffu);
    for (var i = thread; i < parts; i += threads) {
      let key = record((row * parts + i) * 4u + 2u);
      if (key > raw_best.x) { raw_best = vec2u(key, i); }
    }
    raw_best = best_of(thread, raw_best.x, raw_best.y);
    let raw_top = logit_of(raw_best.x);
    var others = 0f;
    for (var i = thread; i < parts; i += threads) {
      let at = (row * parts + i) * 4u;
      let key = record(at + 2u);
      if (!is_finite_key(key)) { continue; }
      others += (select(1f, 0f, i == raw_best.y) + bitcast<f32>(record(at + 3u))) * exp_f32(logit_of(key) - raw_top);
    }
    others = sum_of(thread, others);
    log_probability = logit(row * vocabulary + token) - raw_top - log1p_f32(others);
    if (!is_finite_key(raw_best.x)) { log_probability = nan_f32(); }
  }
  if (thread == 0u) {
    put_result(row * 2u, bitcast<i32>(token));
    put_result(row * 2u + 1u, bitcast<i32>(log_probability));
  }
)";

// --- Rendering --------------------------------------------------------------------------------------------------------

std::string number(const char* name, Extent value) { return fmt::format("const {} = {}u;\n", name, value); }
std::string shared(const char* name, const char* element, Extent count) {
  return fmt::format("var<workgroup> {}: array<{}, {}>;\n", name, element, count);
}

std::string without_barriers(std::string text) {
  const std::pair<std::string_view, std::string_view> replaced[] = {
      {"workgroupBarrier();", ""}, {"storageBarrier();", ""}, {"workgroupUniformLoad(&", "("}};
  for (const auto& [from, to] : replaced)
    for (std::size_t at = text.find(from); at != std::string::npos; at = text.find(from, at))
      text.replace(at, from.size(), to);
  return text;
}

/// Operands of a shader, each behind functions with a name.
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
  std::string functions() const {
    std::string text;
    for (const Access& access : accesses_) {
      if (!bindings.is_bound(access.handle)) continue;
      const std::string at = fmt::format("i + {}u", bindings.base(access.handle));
      const std::string_view type = wgsl_storage_type(access.type);
      if (access.is_written)
        text += fmt::format("fn put_{}(i: u32, value: {}) {{ {} }}\n", access.name, type,
                            bindings.store(access.handle, at, "value"));
      else
        text +=
            fmt::format("fn {}(i: u32) -> {} {{ return {}; }}\n", access.name, type, bindings.load(access.handle, at));
    }
    return text;
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
  SampleWriter(const RoutineKernel& kernel, const Target& target, Scratch& scratch)
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
    std::string text = numbers(threads_) + shared("marks", "atomic<u32>", part_) +
                       shared("given", "f32", kSampleSettings) + shared("keys", "u32", threads_) +
                       shared("places", "u32", threads_) + operands.functions();
    text += mark_functions();
    for (const std::string_view each : {kKeys, kSum, kQuotient, kPartFunctions}) text += each;
    return dispatch(".parts", operands, text, kPartBody, threads_, rows_ * parts_);
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
    std::string text = numbers(threads_) + shared("given", "f32", kSampleSettings) + shared("keys", "u32", threads_) +
                       shared("places", "u32", threads_) + shared("total", "atomic<u32>", 2) + bin_arrays() +
                       operands.functions();
    const std::string array = operands.bindings.array_of(words);
    text += fmt::format("fn word(i: u32) -> u32 {{ return atomicLoad(&{}[i]); }}\n", array);
    text += fmt::format("fn add_word(i: u32, value: u32) -> u32 {{ return atomicAdd(&{}[i], value); }}\n", array);
    for (const std::string_view each : {kKeys, kQuotient, kMasses, kWeightFunctions}) text += each;
    return dispatch(".weights", operands, text, kWeightBody, threads_, rows_ * parts_);
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
    operands.write("result", kernel_.out);
    operands.bindings.resolve();
    const auto bits = std::countr_zero(static_cast<std::uint64_t>(bins_));
    std::string text = numbers(draw_threads_) + number("capacity", capacity()) + number("per_bin", capacity() / bins_) +
                       number("bin_bits", bits) + number("distance_shift", 31 - bits) +  // distances are below 2^31
                       number("sampling_use", static_cast<Extent>(philox::Use::sampling));
    const auto count_up = [&](std::initializer_list<const char*> names) {
      Extent next = 0;
      for (const char* name : names) text += number(name, next++);
    };
    count_up({"fill_bins", "fill_digits", "list_them", "sum_distances", "sum_kept"});
    count_up({"order_by_key", "order_by_distance", "order_by_token"});
    count_up({"stage_top_k", "stage_typical", "stage_top_p", "stage_first", "stage_draw"});
    text += shared("given", "u32", 16) + shared("found", "u32", 8) + shared("listed", "atomic<u32>", 1) + bin_arrays() +
            shared("keys", "u32", capacity()) + shared("places", "u32", capacity()) + operands.functions();
    text += number("lanes", target_.unroll ? 4 : 1) +
            fmt::format("fn adjusted_lanes(i: u32) -> vec4f {{ return {}; }}\n",
                        target_.unroll ? operands.bindings.vector(adjusted, "i") : "vec4f(adjusted(i))");
    for (const std::string_view each : {kKeys, kSum, kQuotient, kMasses, kDrawNumbers, kDrawSums,
                                        draw_threads_ == 1 ? kRunUpAlone : kRunUp, kDrawCandidates})
      text += each;
    return dispatch(".draw", operands, text, kDrawBody, draw_threads_, rows_);
  }

 private:
  Extent capacity() const { return 2 * bins_; }
  Extent row_words() const { return 3 * bins_ + kExtraWords; }
  std::string bin_arrays() const {
    return shared("counts", "atomic<u32>", bins_) + shared("lows", "atomic<u32>", bins_) +
           shared("highs", "atomic<u32>", bins_);
  }
  std::string numbers(Extent threads) const {
    // The mass of a whole vocabulary of the most probable stays below 2^63.
    const int unit_bits = 31 - std::bit_width(static_cast<std::uint64_t>(vocabulary_));
    return number("vocabulary", vocabulary_) + number("part", part_) + number("parts", parts_) +
           number("pitch", parts_ * part_) + number("bins", bins_) + number("row_words", row_words()) +
           number("threads", threads) + fmt::format("const unit = {}f;\n", std::int64_t{1} << unit_bits) +
           fmt::format("const bins_per_distance = {:.9g}f;\n", static_cast<double>(bins_) / kReach);
  }
  std::string mark_functions() const {
    const Extent window = kernel_.shapes[2][1], biased = kernel_.shapes[3][1];
    // Marks count how often the history has a token; their highest bit says that it has a bias.
    std::string text = "fn mark_history(thread: u32, row: u32, begin: u32, size: u32) {\n";
    if (window > 0)
      text += fmt::format(
          "  for (var i = thread; i < {0}u; i += threads) {{\n"
          "    let at = bitcast<u32>(history(row * {0}u + i)) - begin;\n"
          "    if (at < size) {{ atomicAdd(&marks[at], 1u); }}\n  }}\n",
          window);
    text += "}\nfn mark_bias(thread: u32, row: u32, begin: u32, size: u32) {\n";
    if (biased > 0)
      text += fmt::format(
          "  for (var i = thread; i < {0}u; i += threads) {{\n"
          "    let at = bitcast<u32>(bias_token(row * {0}u + i)) - begin;\n"
          "    if (at < size) {{ atomicOr(&marks[at], 0x80000000u); }}\n  }}\n",
          biased);
    text += "}\nfn biased(l: f32, row: u32, token: u32) -> f32 {\n  var sum = l;\n";
    if (biased > 0)
      text += fmt::format(
          "  for (var i = row * {0}u; i < (row + 1u) * {0}u; i++) {{\n"
          "    if (bitcast<u32>(bias_token(i)) == token) {{ sum += bias(i); }}\n  }}\n",
          biased);
    return text + "  return sum;\n}\n";
  }
  RenderedDispatch dispatch(const char* name, const Operands& operands, const std::string& text, std::string_view body,
                            Extent threads, Extent groups) const {
    Helpers helpers;
    helpers.use_called(text);
    helpers.use_called(body);
    const auto count = static_cast<std::uint64_t>(groups);
    std::string shader = compute_shader(operands.bindings, helpers, workgroup_number(count, target_),
                                        static_cast<int>(threads), text, std::string(body));
    if (threads == 1) shader = without_barriers(std::move(shader));
    return {kernel_.name + name, std::move(shader), operands.bindings.ranges(), count};
  }

  const RoutineKernel& kernel_;
  const Target& target_;
  Extent rows_, vocabulary_;
  Extent bins_ = 0;
  Extent threads_ = 1, draw_threads_ = 1;  // software adapters compile this many barriers for half a minute
  Extent part_ = 1024, parts_ = 0;
  Operand adjusted_, records_, words_, masses_;
};

}  // namespace

void render_sample_token(const RoutineKernel& kernel, const Target& target, Scratch& scratch, Rendered& rendered) {
  if (kernel.shapes[0][0] == 0) return;
  SampleWriter writer(kernel, target, scratch);
  rendered.dispatches.push_back(writer.parts());
  rendered.dispatches.push_back(writer.weights());
  rendered.dispatches.push_back(writer.draw());
}

}  // namespace weft::webgpu
