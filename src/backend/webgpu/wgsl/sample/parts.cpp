// The first two dispatches of a draw, of many workgroups each: logits adjusted and the best of each part; then candidates
// and their mass by bins.
#include "backend/webgpu/wgsl/sample/text.hpp"

namespace weft::webgpu::sample {

// --- Parts ------------------------------------------------------------------------------------------------------------

const std::string_view kPartFunctions =
    R"(// A product that is rounded before it is used, as the CPU's is: through an atomic, nothing can be fused.
fn rounded(at: u32, product: f32) -> f32 {
  atomicStore(&marks[at], bitcast<u32>(product));
  return bitcast<f32>(atomicLoad(&marks[at]));
}
)";

const std::string_view kPartBody = R"(  let row = group / parts;
  let number = group % parts;
  let begin = number * part;
  let size = min(part, vocabulary - begin);
  for (var i = thread; i < 9u; i += threads) { given[i] = setting(row * 9u + i); }
  for (var i = thread; i < part; i += threads) { atomicStore(&marks[i], 0u); }
  barrier();
  let repetition = given[5];
  let frequency = given[6];
  let presence = given[7];
  if (repetition != 1f || frequency != 0f || presence != 0f) { mark_history(thread, row, begin, size); }
  mark_bias(thread, row, begin, size);
  barrier();
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
  if (same_given(8u) == 0f) { return; }
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

const std::string_view kWeightBody = R"(  let row = group / parts;
  let begin = row * pitch + group % parts * part;
  for (var i = thread; i < 9u; i += threads) { given[i] = setting(row * 9u + i); }
  barrier();
  if (!(same_given(0u) > 0f)) { return; }
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
  barrier();
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
  barrier();
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
const std::string_view kWeightFunctions = R"(fn add_words(low: u32, high: u32, m: vec2u) {
  let old = add_word(low, m.x);
  let carried = m.y + select(0u, 1u, old + m.x < old);
  if (carried != 0u) { add_word(high, carried); }
}
)";

}  // namespace weft::webgpu::sample
