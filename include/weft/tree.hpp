// Component trees: elements {"type", "props", "children"}, and what changed from one version of a tree to the next. A tree may be a model
// (weft/nn/tree_model.hpp), a data layout (weft/metatensor.hpp) or a workflow (weft/workflow.hpp).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "weft/value.hpp"

namespace weft::tree {

/// A step from one tree to another. Edits are done one after another; `path` is a JSON pointer in the tree as the edits before left it
/// ("/children/1"; "" is the root).
///
/// | kind | path | |
/// |---|---|---|
/// | replace | the element | becomes `element` |
/// | update | the element | gets the props `element` in place of its own |
/// | remove | the parent | loses child `from` |
/// | move | the parent | child `from` is taken out, and put in before child `to` of the rest |
/// | insert | the parent | gets `element` before child `to` |
struct Edit {
  enum class Kind : std::uint8_t { replace, update, remove, move, insert };
  Kind kind = Kind::update;
  std::string path;
  std::size_t from = 0, to = 0;
  Value element;
  bool operator==(const Edit&) const = default;
};

/// The element in its full form: {"type", "props": {...}, "children": [...]}. Errors: UsageError with the path of an element that is not
/// one, has other members, or shares its key with a sibling; trees deeper than 60 or with more than 100,000 elements, and lists of
/// more than 10,000 children.
Value normalised(const Value& element);

/// For each new child the old one that it is a version of. Children with a key are versions of each other if key and type are equal. A
/// key is the prop "key", or else "id", or of a Field its "name": a text or a whole number. Of children without one, the i-th of a type is a version of the i-th of that type. Both lists
/// are `normalised`.
std::vector<std::optional<std::size_t>> match(const Value::Array& older, const Value::Array& newer);

/// The edits from one tree to another, with as few moves as possible (those that are not in a longest increasing subsequence). None
/// for equal trees. Errors: as `normalised`.
std::vector<Edit> difference(const Value& older, const Value& newer);

/// The tree with the edits done, `normalised`: patched(a, difference(a, b)) is b. Errors: as `normalised`; UsageError for an edit whose
/// path or place does not exist.
Value patched(const Value& tree, const std::vector<Edit>& edits);

/// [{"kind": "move", "path": "/children/0", "from": 2, "to": 0}, ...], and back. Errors of `edits_from`: UsageError.
Value to_value(const std::vector<Edit>& edits);
std::vector<Edit> edits_from(const Value& value);

}  // namespace weft::tree
