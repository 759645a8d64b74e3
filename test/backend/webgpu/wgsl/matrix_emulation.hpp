// Subgroup matrices in plain WGSL, for devices without them: a shader's text is rewritten so that 32 threads share what a
// subgroup of a real device would. Thread t of them has row t / 2 of a left matrix, the eight columns from t % 2 * 8 on of
// a right one, and where the two meet of a result.
#pragma once

#include <regex>
#include <string>

namespace weft::webgpu {

inline std::string with_emulated_matrices(std::string text) {
  const auto replace = [&](const char* from, const char* to) { text = std::regex_replace(text, std::regex(from), to); };
  replace("enable f16;\n|enable subgroups;\n|enable chromium[^;]*;\n|diagnostic[^;]*;\n", "");
  replace(", @builtin\\(subgroup_id\\) subgroup: u32", "");
  replace("(fn main\\([^{]*\\{\n)", "$1  let subgroup = thread / 32u;\n  emulated_thread = thread % 32u;\n");
  replace("subgroupMatrixLoad<subgroup_matrix_(left|right)<f16, 16, 16>, (row|col)_major>\\(&staged, ", "load_$1_$2(");
  replace("subgroupMatrixStore<row_major>\\(&staged, ", "store_result(");
  replace("subgroupMatrixMultiplyAccumulate", "multiply_matrices");
  replace("subgroup_matrix_left<f16, 16, 16>", "array<f32, 16>");
  replace("subgroup_matrix_right<f16, 16, 16>", "array<f32, 128>");
  replace("subgroup_matrix_result<f32, 16, 16>", "array<f32, 8>");
  static const char* const kFunctions = R"(
var<private> emulated_thread: u32;
fn staged_half(at: u32) -> f32 { return unpack2x16float(staged[at / 8u][(at % 8u) / 2u])[at % 2u]; }
fn load_left_row(at: u32, pitch: u32) -> array<f32, 16> {
  var m: array<f32, 16>;
  for (var k = 0u; k < 16u; k++) { m[k] = staged_half((at + emulated_thread / 2u * pitch) * 8u + k); }
  return m;
}
fn load_left_col(at: u32, pitch: u32) -> array<f32, 16> {
  var m: array<f32, 16>;
  for (var k = 0u; k < 16u; k++) { m[k] = staged_half((at + k * pitch) * 8u + emulated_thread / 2u); }
  return m;
}
fn load_right_row(at: u32, pitch: u32) -> array<f32, 128> {
  var m: array<f32, 128>;
  for (var i = 0u; i < 128u; i++) {
    m[i] = staged_half((at + i / 8u * pitch) * 8u + emulated_thread % 2u * 8u + i % 8u);
  }
  return m;
}
fn load_right_col(at: u32, pitch: u32) -> array<f32, 128> {
  var m: array<f32, 128>;
  for (var i = 0u; i < 128u; i++) {
    m[i] = staged_half((at + (emulated_thread % 2u * 8u + i % 8u) * pitch) * 8u + i / 8u);
  }
  return m;
}
fn multiply_matrices(a: array<f32, 16>, b: array<f32, 128>, c: array<f32, 8>) -> array<f32, 8> {
  var left = a;
  var right = b;
  var m = c;
  for (var k = 0u; k < 16u; k++) {
    for (var j = 0u; j < 8u; j++) { m[j] = fma(left[k], right[k * 8u + j], m[j]); }
  }
  return m;
}
fn store_result(at: u32, m: array<f32, 8>, pitch: u32) {
  for (var v = 0u; v < 2u; v++) {
    var four = vec4f();
    for (var e = 0u; e < 4u; e++) { four[e] = m[v * 4u + e]; }
    staged[at + emulated_thread / 2u * pitch + emulated_thread % 2u * 2u + v] = bitcast<vec4<u32>>(four);
  }
}
)";
  return text + kFunctions;
}

}  // namespace weft::webgpu
