#include "backend/webgpu/wgsl/shader.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <utility>

#include "weft/error.hpp"

namespace weft::webgpu {
namespace {

constexpr std::string_view kNameCharacters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_";

/// Copies the text to `out`; `write(name)` writes the replacement of a mark.
template <class Write>
void replace_marks(std::string_view text, std::string& out, const Write& write) {
  out.reserve(out.size() + text.size());
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t mark = std::min(text.find('$', at), text.size());
    out += text.substr(at, mark - at);
    if (mark == text.size()) return;
    const std::size_t end = std::min(text.find_first_not_of(kNameCharacters, mark + 1), text.size());
    write(text.substr(mark + 1, end - mark - 1));
    at = end;
    if (end == mark + 1 && end < text.size() && text[end] == '$') ++at;  // $$
  }
}

[[noreturn]] void undeclared(std::string_view name) {
  throw InternalError(fmt::format("webgpu: a shader refers to ${}, which it does not declare", name));
}

constexpr std::pair<std::string_view, int> kSharedElements[] = {{"vec4f", 16}, {"vec4<u32>", 16}, {"vec2f", 8},
                                                                {"f32", 4},    {"u32", 4},        {"i32", 4},
                                                                {"bool", 4},   {"atomic<u32>", 4}};

}  // namespace

std::string with_new_names(std::string_view text, const ShaderNames& names) {
  std::string out;
  replace_marks(text, out, [&](std::string_view name) {
    out += '$';
    if (name.empty()) {
      out += '$';
      return;
    }
    const auto found = names.find(name);
    if (found == names.end()) undeclared(name);
    out += found->second;
  });
  return out;
}

std::string ShaderPieces::text() const {
  std::set<std::string, std::less<>> declared;
  for (std::size_t i = 0; i < storage.size(); ++i) declared.insert(fmt::format("data{}", i));
  for (const Shared& array : shared) declared.insert(array.name);
  for (const Function& function : functions) declared.insert(function.name);
  std::string out;
  const auto append = [&](std::string_view piece) {
    replace_marks(piece, out, [&](std::string_view name) {
      if (name.empty()) {
        out += '$';
        return;
      }
      if (!declared.contains(name)) undeclared(name);
      out += name;
    });
  };
  if (matrices)
    out +=
        "enable f16;\nenable subgroups;\nenable chromium_experimental_subgroup_matrix;\n"
        "diagnostic(off, chromium.subgroup_matrix_uniformity);\n";
  if (subgroups) out += "enable subgroups;\ndiagnostic(off, subgroup_uniformity);\n";
  for (std::size_t i = 0; i < storage.size(); ++i)
    out += fmt::format("@group(0) @binding({0}) var<storage, {1}> data{0}: array<{2}>;\n", i,
                       storage[i].written ? "read_write" : "read", storage[i].element);
  out += helpers.text();
  append(verbatim);
  for (const Shared& array : shared)
    out += fmt::format("var<workgroup> {}: array<{}, {}>;\n", array.name, array.element, array.count);
  for (const Function& function : functions) {
    out += "fn " + function.name;
    append(function.text);
  }
  out += fmt::format(
      "@compute @workgroup_size({})\n"
      "fn main(@builtin(workgroup_id) workgroup: vec3u, @builtin(local_invocation_index) thread: u32{}{}) {{\n",
      threads, matrices ? ", @builtin(subgroup_id) subgroup: u32" : "",
      folded_groups > 0 || resident ? ", @builtin(num_workgroups) workgroups: vec3u" : "");
  if (resident)
    out +=
        "  let group = workgroup.y * workgroups.x + workgroup.x;\n"
        "  let groups = workgroups.x * workgroups.y;\n"
        "  let tests = workgroups.y > 1u;\n";
  else if (folded_groups > 0)
    out += fmt::format(
        "  let group = (workgroup.z * workgroups.y + workgroup.y) * workgroups.x + workgroup.x;\n"
        "  if (group >= {}u) {{ return; }}\n",
        folded_groups);
  else
    out += "  let group = workgroup.x;\n";
  append(body);
  return out + "}\n";
}

int shared_element_bytes(std::string_view element) {
  for (const auto& [name, bytes] : kSharedElements)
    if (name == element) return bytes;
  throw InternalError(fmt::format("webgpu: workgroup arrays of {} are not known", element));
}

}  // namespace weft::webgpu
