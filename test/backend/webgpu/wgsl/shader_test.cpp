// Pieces of shaders become WGSL, and marks are all that is looked for in their text.
#include "backend/webgpu/wgsl/shader.hpp"

#include <gtest/gtest.h>

#include "weft/error.hpp"

namespace weft::webgpu {
namespace {

TEST(ShaderPiecesTest, TextHasAllPieces) {
  ShaderPieces shader{.threads = 32, .subgroups = true};
  shader.storage = {{"f32"}, {"vec4<u32>", true}};
  shader.helpers.use("inf_f32");
  shader.share("sums", "f32", 32);
  shader.functions = {{"twice", "(x: f32) -> f32 { return 2f * x; }\n"}};
  shader.body = "  $sums[thread] = $twice($data0[group]);\n";
  const std::string wanted =
      "enable subgroups;\n"
      "diagnostic(off, subgroup_uniformity);\n"
      "@group(0) @binding(0) var<storage, read> data0: array<f32>;\n"
      "@group(0) @binding(1) var<storage, read_write> data1: array<vec4<u32>>;\n"
      "fn inf_f32() -> f32 { var bits = 0x7f800000u; return bitcast<f32>(bits); }\n"
      "var<workgroup> sums: array<f32, 32>;\n"
      "fn twice(x: f32) -> f32 { return 2f * x; }\n"
      "@compute @workgroup_size(32)\n"
      "fn main(@builtin(workgroup_id) workgroup: vec3u, @builtin(local_invocation_index) thread: u32) {\n"
      "  let group = workgroup.x;\n"
      "  sums[thread] = twice(data0[group]);\n"
      "}\n";
  EXPECT_EQ(shader.text(), wanted);
}

TEST(ShaderPiecesTest, SurplusWorkgroupsOfAFoldedDispatchReturn) {
  ShaderPieces shader;
  shader.folded_groups = 70000;
  const std::string text = shader.text();
  EXPECT_NE(text.find("@builtin(num_workgroups) workgroups: vec3u"), std::string::npos);
  EXPECT_NE(text.find("  if (group >= 70000u) { return; }\n"), std::string::npos);
}

TEST(ShaderPiecesTest, OnlyMarksAreNames) {
  ShaderPieces shader;
  shader.share("a", "u32", 1);
  shader.body = "  let a = $a[0]; v.a = a; // costs $$5, $$a\n";
  EXPECT_NE(shader.text().find("  let a = a[0]; v.a = a; // costs $5, $a\n"), std::string::npos);
  EXPECT_EQ(with_new_names("let a = $a[0]; v.a = $ab; $$", {{"a", "x"}, {"ab", "y_1"}}),
            "let a = $x[0]; v.a = $y_1; $$");
}

TEST(ShaderPiecesTest, AMarkOfNothingIsOurMistake) {
  ShaderPieces shader;
  shader.body = "  $nothing();\n";
  EXPECT_THROW(shader.text(), InternalError);
  EXPECT_THROW(with_new_names("$nothing", {}), InternalError);
  EXPECT_THROW(shared_element_bytes("mat4x4f"), InternalError);
}

}  // namespace
}  // namespace weft::webgpu
