// What the dispatches of a draw share: keys of logits, sums over a workgroup, quotients, and masses in bins.
#include "backend/webgpu/wgsl/sample/text.hpp"

namespace weft::webgpu::sample {

// Larger for larger logits and largest for NaN, and back.
const std::string_view kKeys =
    R"(fn key_of(l: f32) -> u32 { return select(order_key_f32(l), 0xffffffffu, is_nan_f32(l)); }
fn logit_of(key: u32) -> f32 { return bitcast<f32>(select(~key, key & 0x7fffffffu, key >= 0x80000000u)); }
fn is_finite_key(key: u32) -> bool { return key > 0x007fffffu && key < 0xff800000u; }
// The largest key of all threads, and the first place that has it.
fn best_of(thread: u32, key: u32, place: u32) -> vec2u {
  keys[thread] = key;
  places[thread] = place;
  for (var step = threads / 2u; step > 0u; step /= 2u) {
    barrier();
    if (thread < step) {
      let other = vec2u(keys[thread + step], places[thread + step]);
      if (other.x > keys[thread] || (other.x == keys[thread] && other.y < places[thread])) {
        keys[thread] = other.x;
        places[thread] = other.y;
      }
    }
  }
  let best = same_key(0u);
  return vec2u(best, same_place(0u));
}
)";

const std::string_view kSum = R"(fn sum_of(thread: u32, value: f32) -> f32 {
  keys[thread] = bitcast<u32>(value);
  for (var step = threads / 2u; step > 0u; step /= 2u) {
    barrier();
    if (thread < step) { keys[thread] = bitcast<u32>(bitcast<f32>(keys[thread]) + bitcast<f32>(keys[thread + step])); }
  }
  return bitcast<f32>(same_key(0u));
}
)";

// GPUs divide to within some units of the last place, the same way for all quotients by one number; that would bend the
// probabilities of a whole row. The remainder is exact, as products of halves are.
const std::string_view kQuotient = R"(fn quotient(x: f32, y: f32) -> f32 {
  let q = x / y;
  let q_high = bitcast<f32>(bitcast<u32>(q) & 0xfffff000u);
  let y_high = bitcast<f32>(bitcast<u32>(y) & 0xfffff000u);
  let rest = ((x - q_high * y_high) - q_high * (y - y_high)) - (q - q_high) * y_high - (q - q_high) * (y - y_high);
  return select(q, q + rest / y, abs(q) > 1e-25f && abs(q) < 1e25f);
}
)";

const std::string_view kMasses = R"(fn plus(a: vec2u, b: vec2u) -> vec2u {
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

}  // namespace weft::webgpu::sample
