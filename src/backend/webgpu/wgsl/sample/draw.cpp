// The last dispatch of a draw, a workgroup a row: from bin to candidate.
#include "backend/webgpu/wgsl/sample/text.hpp"

namespace weft::webgpu::sample {

const std::string_view kDrawNumbers =
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
const std::string_view kDrawSums =
    R"(fn joined(a: vec3u, b: vec3u) -> vec3u { return vec3u(plus(a.xy, b.xy), a.z + b.z); }
fn bin_at(i: u32) -> vec3u { return vec3u(atomicLoad(&lows[i]), atomicLoad(&highs[i]), atomicLoad(&counts[i])); }
fn set_bin(i: u32, sum: vec3u) {
  atomicStore(&lows[i], sum.x);
  atomicStore(&highs[i], sum.y);
  atomicStore(&counts[i], sum.z);
}
fn clear(thread: u32) {
  barrier();
  for (var i = thread; i < bins; i += threads) { set_bin(i, vec3u()); }
  barrier();
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
  return same_found(1u);
}
)";

const std::string_view kRunUp = R"(// Makes running sums of the bins.
fn run_up(thread: u32) {
  barrier();
  for (var step = 1u; step < bins; step *= 2u) {
    var sums: array<vec3u, bins / threads>;
    for (var j = 0u; j < bins / threads; j++) {
      let i = j * threads + thread;
      sums[j] = bin_at(i);
      if (i >= step) { sums[j] = joined(sums[j], bin_at(i - step)); }
    }
    barrier();
    for (var j = 0u; j < bins / threads; j++) { set_bin(j * threads + thread, sums[j]); }
    barrier();
  }
}
)";
const std::string_view kRunUpAlone = R"(fn run_up(thread: u32) {
  var sum = vec3u();
  for (var i = 0u; i < bins; i++) {
    sum = joined(sum, bin_at(i));
    set_bin(i, sum);
  }
}
)";

const std::string_view kDrawCandidates = R"(var<private> cut: vec2u;
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
  barrier();
  return all;
}
fn fill(thread: u32, row: u32, by_distance: bool) {
  clear(thread);
  visit(thread, row, fill_bins, by_distance, 0u, cut_bin, vec2u(), vec2u());
  barrier();
  for (var i = thread; i < bins; i += threads) {
    let sum = bin_at(i);
    put_word(row * row_words + i, sum.z);
    put_word(row * row_words + bins + i, sum.x);
    put_word(row * row_words + 2u * bins + i, sum.y);
  }
  storage_barrier();
  barrier();
}
fn sort(thread: u32, size: u32) {
  for (var stretch = 2u; stretch <= size; stretch *= 2u) {
    for (var step = stretch / 2u; step > 0u; step /= 2u) {
      barrier();
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
  barrier();
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
      barrier();
      visit(thread, row, select(fill_digits, list_them, lists), is_by_distance, first, last, low, high);
      if (!lists) { continue; }
      sort(thread, size);
    }
    barrier();
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
  barrier();
  return result;
}
)";

const std::string_view kDrawBody = R"(  let row = group;
  let base = row * row_words;
  for (var i = thread; i < 9u; i += threads) { given[i] = bitcast<u32>(setting(row * 9u + i)); }
  for (var i = thread; i < 4u; i += threads) { given[9u + i] = draw_word(row * 4u + i); }
  for (var i = thread; i < 3u; i += threads) { given[13u + i] = word(base + 3u * bins + i); }
  let g = all_given();
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

}  // namespace weft::webgpu::sample
