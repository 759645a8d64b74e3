// A compute shader in pieces, and the function that joins them to WGSL.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "backend/webgpu/wgsl/scalar.hpp"

namespace weft::webgpu {

/// The declarations of a shader, and the statements of its entry point.
///
/// In the text of functions and of the body, `$name` refers to a storage array, workgroup array or function of this shader.
/// Code that processes the text looks only for marks: renaming a piece replaces its marks. Helper functions have the same name
/// in every shader and no mark. `$$` is a dollar sign.
struct ShaderPieces {
  /// Binding i is the array `$data<i>`.
  struct Storage {
    std::string element;  // WGSL type
    bool written = false;
  };
  /// An array in workgroup memory.
  struct Shared {
    std::string name, element;
    std::int64_t count = 0;
  };
  /// `text` follows the name: "(x: f32) -> f32 { return $other(x); }\n".
  struct Function {
    std::string name, text;
  };

  int threads = 1;         // of a workgroup
  bool subgroups = false;  // uses subgroup functions, with values that are the same in a subgroup by design
  bool matrices = false;   // uses subgroup matrices of f16; `subgroup` is the number of the subgroup in the workgroup
  std::vector<Storage> storage;
  Helpers helpers;
  /// Declarations whose names other pieces use without a mark. A shader with such declarations cannot be merged.
  std::string verbatim;
  std::vector<Shared> shared;
  std::vector<Function> functions;
  /// Where the text has the line kMeetingMark, once on each way through it, it needs the results of earlier dispatches. Before that
  /// line it reads only these bindings. Empty: it has no such line.
  std::vector<int> early;
  std::string body;  // statements; `group` is the number of the workgroup, `thread` that of the thread in it
  /// 0 if workgroups have one dimension. Else their number; the dispatch may have more, which return at once.
  std::uint64_t folded_groups = 0;
  /// The workgroups number any that run at once (see resident.hpp): `groups` is their number, and `tests` whether they only meet.
  bool resident = false;

  void share(std::string name, std::string_view element, std::int64_t count) {
    shared.push_back({std::move(name), std::string(element), count});
  }

  /// The whole shader, with entry point main. Throws InternalError for a mark without a declaration.
  std::string text() const;
};

inline constexpr std::string_view kMeetingMark = "// earlier results";

using ShaderNames = std::map<std::string, std::string, std::less<>>;

/// The text with each mark replaced by the mark of its new name. Throws InternalError for a name without a new name.
std::string with_new_names(std::string_view text, const ShaderNames& names);

/// Bytes of an element of a workgroup array. Throws InternalError for a type that no renderer uses.
int shared_element_bytes(std::string_view element);

}  // namespace weft::webgpu
