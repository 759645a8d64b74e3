// What the passes that make one dispatch of several share: ranges, and the names of pieces of their shaders.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "backend/webgpu/wgsl/render.hpp"

namespace weft::webgpu {

bool overlap(const BoundRange& a, const BoundRange& b);

/// Arrays in workgroup memory that several shaders share: the first arrays of one element type of all shaders, the second arrays,
/// and so on. A workgroup runs one of the shaders at a time.
class WorkgroupPool {
 public:
  void add(const ShaderPieces& shader);
  std::int64_t bytes() const;
  /// Adds the new names of the shader's arrays to `names`.
  static void name(const ShaderPieces& shader, ShaderNames& names);
  void declare(ShaderPieces& joined) const;

 private:
  std::map<std::string, std::vector<std::int64_t>, std::less<>> counts_;  // by element type
};

/// Gives the shader's functions names that end in `number`, and adds them to the joined shader. `names` has the new names of
/// everything else that their texts refer to, and gets theirs.
void add_functions(const ShaderPieces& shader, std::size_t number, ShaderNames& names, ShaderPieces& joined);

/// Replaces each kMeetingMark.
void replace_meeting_marks(ShaderPieces& shader, std::string_view by);

}  // namespace weft::webgpu
