// Accesses to a storage array, written for one with other elements.
#include "backend/webgpu/wgsl/array_view.hpp"

#include <gtest/gtest.h>

#include "backend/webgpu/render_support.hpp"

#if WEFT_HAS_WEBGPU
namespace weft::webgpu::array_view_test {
namespace {

ArrayView vectors(std::uint32_t base = 0) { return {"data1", "all", {"f32", 4}, base, "seen"}; }
ArrayView scalars(std::uint32_t base) { return {"data1", "all", {"f32", 1}, base, "seen"}; }

TEST(ArrayViewTest, ElementsAreScalarsOrVectorsOfThem) {
  EXPECT_EQ(array_element("f32"), (ArrayElement{"f32", 1}));
  EXPECT_EQ(array_element("vec4<f32>"), (ArrayElement{"f32", 4}));
  EXPECT_EQ(array_element("vec2<u32>"), (ArrayElement{"u32", 2}));
  EXPECT_EQ(array_element("atomic<u32>"), std::nullopt);
}

TEST(ArrayViewTest, ScalarsBeginLater) {
  EXPECT_EQ(with_view("  $data1[i | 1u] = $data1[j] + $data12[k];\n", scalars(8)),
            "  $all[(i | 1u) + 8u] = $all[(j) + 8u] + $data12[k];\n");
  EXPECT_EQ(with_view("$data1[i] += 1f;", scalars(0)), "$all[i] += 1f;");
}

TEST(ArrayViewTest, VectorsGoThroughFunctions) {
  EXPECT_EQ(with_view("let x = $data1[(i) >> 2u].x + $data1[j][j & 3u] == $data1[f($data1[k].y, 2u)].z;", vectors()),
            "let x = $seen_load((i) >> 2u).x + $seen_load(j)[j & 3u] == $seen_load(f($seen_load(k).y, 2u)).z;");
  EXPECT_EQ(with_view("$data1[i] = vec4<f32>($data1[j].x, y, z, w);", vectors()),
            "$seen_store(i, vec4<f32>($seen_load(j).x, y, z, w));");
}

TEST(ArrayViewTest, AddressesAndChangesOfAPartAreRefused) {
  for (const char* text : {"atomicLoad(&$data1[i])", "$data1[i].x = 1f;", "$data1[i][2] = 1f;", "$data1[i] += v;",
                           "$data1[i].y += 1f;", "f(&$data1)"})
    EXPECT_EQ(with_view(text, vectors()), std::nullopt) << text;
  EXPECT_EQ(with_view("atomicLoad(&$data1[i])", scalars(4)), std::nullopt);
  EXPECT_TRUE(with_view("$data1[i].x == 1f", vectors())) << "a comparison changes nothing";
}

TEST(ArrayViewTest, AssigningIsNotReading) {
  EXPECT_FALSE(is_read("$data1[i] = 2f * $data12[$data0[i]];", "data1"));
  for (const char* text : {"x = $data1[i];", "$data1[i] += 1f;", "$data1[$data1[i]] = 0f;",
                           "atomicAdd(&$data1[0], 1u);", "if ($data1[i] == 0f) {}", "$data1[i].x = 1f;"})
    EXPECT_TRUE(is_read(text, "data1")) << text;
}

class WgslArrayViewTest : public RenderTest {};

// The same sums through vectors, and through scalars that are seen as vectors.
TEST_F(WgslArrayViewTest, TheDeviceSeesTheSame) {
  const std::string body =
      "  if (thread < 4u) {\n"
      "    let v = $data1[thread + 1u];\n"
      "    $data1[thread + 5u] = v + vec4<f32>($data1[thread][thread & 3u]);\n"
      "  }\n";
  std::mt19937 random(1);
  const std::vector<TestBuffer> buffers = {random_buffer(random, DType::f32, 64)};
  ShaderPieces plain{.threads = 32, .storage = {{"f32"}, {"vec4<f32>", true}}, .body = body};
  const auto run = [&](ShaderPieces shader, std::vector<BoundRange> ranges) {
    Rendered rendered;
    rendered.dispatches.push_back({"seen", std::move(shader), std::move(ranges), 1});
    return results_of(rendered, buffers)[0];
  };
  plain.storage = {{"vec4<f32>", true}};
  plain.body = *with_view(body, {"data1", "data0", {"vec4<f32>", 1}, 2, ""});
  const reference::Values wanted = run(plain, {{0, 0, 256, true}});
  ShaderPieces seen{.threads = 32, .storage = {{"f32", true}}};
  const ArrayView view{"data1", "data0", {"f32", 4}, 8, "seen"};
  declare_view(view, seen);
  seen.body = *with_view(body, view);
  EXPECT_EQ(run(seen, {{0, 0, 256, true}}), wanted);
  EXPECT_NE(wanted, buffers[0].values);
}

}  // namespace
}  // namespace weft::webgpu::array_view_test
#endif
