// Subgroup matrices in plain WGSL, for devices without them: a shader's text is rewritten so that 32 threads share what a
// subgroup of a real device would. Thread t of them has row t / 2 of a left matrix, the eight columns from t % 2 * 8 on of
// a right one, and where the two meet of a result. Compilers cannot tell how long loops are, and so leave them as they are.
#pragma once

#include <regex>
#include <set>
#include <string>

namespace weft::webgpu {

inline constexpr const char* kEmulatedProduct = R"(
var<private> emulated_thread: u32;
fn multiply_matrices(a: array<f32, 16>, b: array<f32, 128>, c: array<f32, 8>) -> array<f32, 8> {
  var left = a;
  var right = b;
  var m = c;
  for (var k = 0u; k < 16u + (emulated_thread >> 5u); k++) {
    for (var j = 0u; j < 8u + (emulated_thread >> 5u); j++) { m[j] = fma(left[k], right[k * 8u + j], m[j]); }
  }
  return m;
}
)";

/// The same for matrices of i8, 32 deep: rows of 32, and eight columns of 32.
inline constexpr const char* kEmulatedIntegers = R"(
fn multiply_integers(a: array<i32, 32>, b: array<i32, 256>, c: array<i32, 8>) -> array<i32, 8> {
  var left = a;
  var right = b;
  var m = c;
  for (var k = 0u; k < 32u + (emulated_thread >> 5u); k++) {
    for (var j = 0u; j < 8u + (emulated_thread >> 5u); j++) { m[j] += left[k] * right[k * 8u + j]; }
  }
  return m;
}
fn byte_of(at: u32) -> i32 { return i32(staged[at / 16u][at % 16u / 4u] << (24u - at % 4u * 8u)) >> 24u; }
fn load_integer_row(at: u32, pitch: u32) -> array<i32, 32> {
  var m: array<i32, 32>;
  for (var k = 0u; k < 32u + (emulated_thread >> 5u); k++) { m[k] = byte_of((at + emulated_thread / 2u * pitch) * 16u + k); }
  return m;
}
fn load_integer_columns(at: u32, pitch: u32) -> array<i32, 256> {
  var m: array<i32, 256>;
  for (var i = 0u; i < 256u + (emulated_thread >> 5u); i++) {
    m[i] = byte_of((at + (emulated_thread % 2u * 8u + i % 8u) * pitch) * 16u + i / 8u);
  }
  return m;
}
fn store_integers(at: u32, m: array<i32, 8>, pitch: u32) {
  for (var v = 0u; v < 2u + (emulated_thread >> 5u); v++) {
    var four = vec4<u32>();
    for (var e = 0u; e < 4u + (emulated_thread >> 5u); e++) { four[e] = u32(m[v * 4u + e]); }
    staged[at + emulated_thread / 2u * pitch + emulated_thread % 2u * 2u + v] = four;
  }
}
)";

/// What reads and writes matrices in the array @.
inline constexpr const char* kEmulatedAccess = R"(
fn half_@(at: u32) -> f32 { return unpack2x16float(@[at / 8u][(at % 8u) / 2u])[at % 2u]; }
fn load_left_row_@(at: u32, pitch: u32) -> array<f32, 16> {
  var m: array<f32, 16>;
  for (var k = 0u; k < 16u + (emulated_thread >> 5u); k++) { m[k] = half_@((at + emulated_thread / 2u * pitch) * 8u + k); }
  return m;
}
fn load_left_col_@(at: u32, pitch: u32) -> array<f32, 16> {
  var m: array<f32, 16>;
  for (var k = 0u; k < 16u + (emulated_thread >> 5u); k++) { m[k] = half_@((at + k * pitch) * 8u + emulated_thread / 2u); }
  return m;
}
fn load_right_row_@(at: u32, pitch: u32) -> array<f32, 128> {
  var m: array<f32, 128>;
  for (var i = 0u; i < 128u + (emulated_thread >> 5u); i++) {
    m[i] = half_@((at + i / 8u * pitch) * 8u + emulated_thread % 2u * 8u + i % 8u);
  }
  return m;
}
fn load_right_col_@(at: u32, pitch: u32) -> array<f32, 128> {
  var m: array<f32, 128>;
  for (var i = 0u; i < 128u + (emulated_thread >> 5u); i++) {
    m[i] = half_@((at + (emulated_thread % 2u * 8u + i % 8u) * pitch) * 8u + i / 8u);
  }
  return m;
}
fn load_result_@(at: u32, pitch: u32) -> array<f32, 8> {
  var m: array<f32, 8>;
  for (var i = 0u; i < 8u + (emulated_thread >> 5u); i++) {
    m[i] = bitcast<f32>(@[at + emulated_thread / 2u * pitch + emulated_thread % 2u * 2u + i / 4u][i % 4u]);
  }
  return m;
}
fn store_result_@(at: u32, m: array<f32, 8>, pitch: u32) {
  for (var v = 0u; v < 2u + (emulated_thread >> 5u); v++) {
    var four = vec4f();
    for (var e = 0u; e < 4u + (emulated_thread >> 5u); e++) { four[e] = m[v * 4u + e]; }
    @[at + emulated_thread / 2u * pitch + emulated_thread % 2u * 2u + v] = bitcast<vec4<u32>>(four);
  }
}
)";

inline std::string with_emulated_matrices(std::string text) {
  const auto replace = [&](const std::string& from, const std::string& to) {
    text = std::regex_replace(text, std::regex(from), to);
  };
  replace("enable f16;\n|enable subgroups;\n|enable chromium[^;]*;\n|diagnostic[^;]*;\n", "");
  replace(", @builtin\\(subgroup_id\\) subgroup: u32", "");
  replace("(fn main\\([^{]*\\{\n)", "$1  let subgroup = thread / 32u;\n  emulated_thread = thread % 32u;\n");
  // Threads that share a matrix wait for each other where a subgroup would run in order, so all of them have to get there.
  replace("// subgroup order", "workgroupBarrier();");
  replace("if \\([^\n]*\\) \\{  // some subgroups", "{");
  replace("bitcast<u32>\\(vec2<f16>\\((\\w+)\\)\\)", "pack2x16float($1)");
  if (text.find("subgroup_matrix_left<i8") != std::string::npos) {  // products of integers have one array
    replace("subgroupMatrixLoad<subgroup_matrix_left<i8, 32, 16>, row_major>\\(&staged, ", "load_integer_row(");
    replace("subgroupMatrixLoad<subgroup_matrix_right<i8, 16, 32>, col_major>\\(&staged, ", "load_integer_columns(");
    replace("subgroupMatrixStore<row_major>\\(&staged, ", "store_integers(");
    replace("subgroupMatrixMultiplyAccumulate", "multiply_integers");
    replace("subgroup_matrix_result<i32, 16, 16>", "array<i32, 8>");
    return text + "var<private> emulated_thread: u32;\n" + kEmulatedIntegers;
  }
  const std::regex access("subgroupMatrix(?:Load<[^&\n]*|Store<row_major>)\\(&(\\w+), ");
  std::set<std::string> arrays;
  for (std::sregex_iterator at(text.begin(), text.end(), access); at != std::sregex_iterator(); ++at)
    arrays.insert((*at)[1]);
  replace("subgroupMatrixLoad<subgroup_matrix_(left|right)<f16, 16, 16>, (row|col)_major>\\(&(\\w+), ",
          "load_$1_$2_$3(");
  replace("subgroupMatrixLoad<subgroup_matrix_result<f32, 16, 16>, row_major>\\(&(\\w+), ", "load_result_$1(");
  replace("subgroupMatrixStore<row_major>\\(&(\\w+), ", "store_result_$1(");
  replace("subgroupMatrixMultiplyAccumulate", "multiply_matrices");
  replace("subgroup_matrix_left<f16, 16, 16>", "array<f32, 16>");
  replace("subgroup_matrix_right<f16, 16, 16>", "array<f32, 128>");
  replace("subgroup_matrix_result<f32, 16, 16>", "array<f32, 8>");
  text += kEmulatedProduct;
  for (const std::string& array : arrays) text += std::regex_replace(kEmulatedAccess, std::regex("@"), array);
  return text;
}

}  // namespace weft::webgpu
