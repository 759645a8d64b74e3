// Schemas and layouts written as trees of elements, {type, props, children}, as scripts write them with JSX.
#include <fmt/format.h>

#include "base/quote.hpp"
#include "weft/metatensor.hpp"

namespace weft::metatensor {
namespace {

constexpr int kElementsDeep = 60;

[[noreturn]] void refuse_element(const std::string& path, std::string_view fact) {
  throw UsageError(fmt::format("{}: {}", path.empty() ? "the element" : path, fact));
}

/// An element's parts, with their kinds checked.
struct Parts {
  Parts(const Value& element, const std::string& path) : path(path) {
    if (!element.is_object()) refuse_element(path, "is not {type, props, children}");
    const Value* given = element.find("type");
    if (!given || !given->is_string()) refuse_element(path, "has no type");
    type = given->string();
    if (const Value* found = element.find("props"); found && !found->is_null()) {
      if (!found->is_object()) refuse_element(path, "has props that are not an object");
      props = found->members();
    }
    if (const Value* found = element.find("children")) {
      if (!found->is_array()) refuse_element(path, "has children that are not a list");
      children = &found->elements();
    }
  }
  std::size_t count() const { return children ? children->size() : 0; }
  std::string place(std::size_t i) const { return fmt::format("{}/children/{}", path, i); }
  const Value& only_child() const {
    if (count() != 1) refuse_element(path, fmt::format("a {} has one child, and not {}", type, count()));
    return children->front();
  }
  std::string name() const {
    const Value* found = props.find("name");
    if (!found || !found->is_string()) refuse_element(path, "a Field has a name");
    return found->string();
  }
  /// A prop, which is taken out. Null if there is none.
  Value take(std::string_view name) {
    const Value* found = props.find(name);
    Value value = found ? *found : Value();
    props.remove(name);
    return value;
  }
  void no_more() const {
    if (!props.empty()) refuse_element(path, fmt::format("a {} has no prop {}", type, quote(props[0].key)));
  }

  std::string path, type;
  Value::Object props;
  const Value::Array* children = nullptr;
};

Value layout_from(const Value& element, const std::string& path, int depth) {
  if (depth > kElementsDeep) refuse_element(path, fmt::format("elements are nested deeper than {}", kElementsDeep));
  Parts parts(element, path);
  const std::string keyword = "TypeDef:" + parts.type;
  Value::Object schema;
  Value::Object annotations;
  for (const char* name : {"dtype", "shape", "discriminator", "encoding"})
    if (parts.props.contains(name)) annotations.set(name, parts.take(name));
  const Value align = parts.take("align");
  if (!align.is_null() && parts.type == "Struct")
    annotations.set("align", align);
  else if (!align.is_null())
    schema.set("TypeDef:Align", align);
  if (parts.type == "Struct" || parts.type == "Union") {
    std::vector<Value::Object::Member> members;
    for (std::size_t i = 0; i < parts.count(); ++i) {
      const Parts field((*parts.children)[i], parts.place(i));
      if (field.type != "Field") refuse_element(field.path, fmt::format("the children of a {} are Fields", parts.type));
      Value type = layout_from(field.only_child(), field.place(0), depth + 1);
      if (const Value* own = field.props.find("align")) type.members().set("TypeDef:Align", *own);
      members.push_back({field.name(), std::move(type)});
    }
    Value::Object fields(std::move(members));
    if (parts.type == "Struct")
      schema.set("properties", std::move(fields));
    else
      annotations.set("mapping", std::move(fields));
  } else if (parts.type == "Array" || parts.type == "Record") {
    schema.set(parts.type == "Array" ? "items" : "additionalProperties",
               layout_from(parts.only_child(), parts.place(0), depth + 1));
  } else if (parts.count() > 0) {
    refuse_element(path, fmt::format("a {} has no children", parts.type));
  }
  for (const auto& [name, value] : parts.props) schema.set(name, value);
  schema.set(keyword, annotations.empty() ? Value(true) : Value(std::move(annotations)));
  return schema;
}

Node node_from_element(const Value& element, const std::string& path, int depth) {
  if (depth > kElementsDeep) refuse_element(path, fmt::format("elements are nested deeper than {}", kElementsDeep));
  Parts parts(element, path);
  if (parts.type == "Struct") {
    std::vector<Field> fields;
    parts.no_more();
    for (std::size_t i = 0; i < parts.count(); ++i) {
      Parts field((*parts.children)[i], parts.place(i));
      if (field.type != "Field") refuse_element(field.path, "the children of a Struct are Fields");
      const std::string name = field.name();
      if (name.empty() || name.find('.') != std::string::npos)
        refuse_element(field.path, fmt::format("{} cannot be the name of a field", quote(name)));
      for (const Field& other : fields)
        if (other.name == name) refuse_element(field.path, fmt::format("there are two fields {}", quote(name)));
      Node node = node_from_element(field.only_child(), field.place(0), depth + 1);
      node.is_optional = field.take("optional") == Value(true);
      field.take("name");
      field.no_more();
      fields.push_back({name, std::move(node)});
    }
    return structure(std::move(fields));
  }
  // The others are written as they are in a header.
  Value::Object node;
  if (const Value align = parts.take("align"); !align.is_null()) node.set("align", align);
  if (parts.type == "Tensor") {
    node.set("kind", "flat");
    node.set("dtype", parts.take("dtype"));
    node.set("shape", parts.take("shape"));
  } else if (parts.type == "ArrayOf") {
    node.set("kind", "struct");
    node.set("layout", layout_from(parts.only_child(), parts.place(0), depth + 1));
    if (const Value mode = parts.take("mode"); !mode.is_null()) node.set("mode", mode);
  } else if (parts.type == "Blob") {
    node.set("kind", "blob");
  } else {
    refuse_element(
        path, fmt::format("there is no {} here; there are Struct, Tensor, ArrayOf and Blob", quote(parts.type, 40)));
  }
  if (parts.type != "Tensor")
    if (const Value count = parts.take("count"); !count.is_null()) node.set("count", count);
  parts.no_more();
  try {
    return node_from(node);
  } catch (Error& error) {
    error.add_context(fmt::format("reading {}", path.empty() ? "the element" : path));
    throw;
  }
}

}  // namespace

Node node_from_elements(const Value& element) { return node_from_element(element, "", 0); }

}  // namespace weft::metatensor

namespace weft::typedefs {

Value schema_from_elements(const Value& element) { return metatensor::layout_from(element, "", 0); }

}  // namespace weft::typedefs
