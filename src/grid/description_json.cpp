// Descriptions as JSON.
#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "base/file.hpp"
#include "base/quote.hpp"
#include "grid/layer_rows.hpp"
#include "weft/grid/description.hpp"
#include "weft/grid/number_types.hpp"

namespace weft::grid {
namespace {

constexpr std::string_view kFormat = "weft-grid-1";
constexpr std::uint64_t kBytesMax = std::uint64_t{64} << 20;

Value coordinate_value(const Coordinate& at) { return Value::array({at.z, at.y, at.x, at.layer}); }

/// A child with a link is the link alone, since it runs another layer.
Value layer_value(const Layer& l, bool is_inside) {
  ValueObject object;
  if (l.link) object.set("link", coordinate_value(*l.link));
  if (l.link && is_inside) return object;
  object.set("type", name_of(l.type));
  const LayerRow& row = row_of(l.type);
  if (row.activates) object.set("activation", name_of(l.activation));
  if (l.dtype != DType::f32) object.set("dtype", weft::name_of(l.dtype));
  if (l.disabled) object.set("disabled", true);
  static const Layer kDefault;
  for (const LayerField& field : layer_fields())
    if (field.is_used_by(l.type))
      std::visit(
          [&](const auto member) {
            if (l.*member != kDefault.*member) object.set(field.name, l.*member);
          },
          field.member);
  if (l.type == LayerType::softmax) {
    object.set("kind", name_of(l.softmax));
    if (!l.levels.empty()) object.set("levels", Value::Array(l.levels.begin(), l.levels.end()));
    if (!l.mask.empty()) {
      Value::Array mask;
      for (const bool seen : l.mask) mask.emplace_back(seen);
      object.set("mask", std::move(mask));
    }
  }
  if (l.type == LayerType::parallel) object.set("combine", name_of(l.combine));
  if (!l.children.empty()) {
    Value::Array children;
    for (const Layer& child : l.children) children.push_back(layer_value(child, true));
    object.set("children", std::move(children));
  }
  if (!l.gate.empty()) object.set("gate", layer_value(l.gate[0], true));
  return object;
}

/// Reads a description and collects what is wrong with it.
class DescriptionReader {
 public:
  Description read(const Value& value) {
    if (!value.is_object()) {
      problems_.push_back({"", fmt::format("is {}, not an object", weft::name_of(value.kind()))});
      refuse(problems_);
    }
    Extent extents[4] = {1, 1, 1, 1};
    constexpr std::string_view kExtents[] = {"depth", "rows", "columns", "layers_per_cell"};
    for (const auto& [key, member] : value.members()) {
      const auto* extent = std::find(std::begin(kExtents), std::end(kExtents), key);
      if (extent != std::end(kExtents))
        take("/" + key, [&] { extents[extent - kExtents] = member.integer(); });
      else if (key == "format")
        take("/format", [&] {
          if (member.string() != kFormat)
            throw UsageError(fmt::format("is {}, not \"{}\"", quote(member.string()), kFormat));
        });
      else if (key != "layers")
        problems_.push_back({"/" + shown(key), "is unknown"});
    }
    refuse(problems_);
    // A single cell has all the layers that are given.
    const Value* given = value.find("layers");
    if (!value.find("layers_per_cell") && extents[0] == 1 && extents[1] == 1 && extents[2] == 1 && given &&
        given->is_array())
      extents[3] = std::max<Extent>(1, static_cast<Extent>(given->elements().size()));
    Description d(extents[0], extents[1], extents[2], extents[3]);
    if (const Value* layers = value.find("layers")) take("/layers", [&] { read_layers(*layers, d); });
    refuse(problems_);
    refuse(problems_of(d));
    return d;
  }

 private:
  /// Runs `f`, whose UsageErrors become problems at `path`.
  template <class F>
  void take(const std::string& path, F f) {
    try {
      f();
    } catch (const UsageError& error) {
      problems_.push_back({path, error.what()});
    }
  }

  static std::string shown(const std::string& key) {
    const std::string quoted = quote(key, 60);
    return quoted.substr(1, quoted.size() - 2);
  }

  void read_layers(const Value& layers, Description& d) {
    std::size_t next = 0;
    std::set<std::size_t> given;
    for (std::size_t i = 0; i < layers.elements().size(); ++i) {
      const Value& layer = layers.elements()[i];
      const std::string path = fmt::format("/layers/{}", i);
      take(path, [&] {
        if (const Value* at = layer.find("at")) next = d.index(coordinate(*at));
        if (next >= d.layers.size())
          throw UsageError(fmt::format("is beyond the {} layers of the grid", d.layers.size()));
        if (!given.insert(next).second)
          throw UsageError(fmt::format("the layer {} is given twice", to_string(d.coordinate(next))));
        const std::size_t place = next++;
        d.layers[place] = read_layer(path, layer, 0);
      });
    }
  }

  static Coordinate coordinate(const Value& value) {
    if (value.elements().size() != 4) throw UsageError("a coordinate has four numbers: z, y, x, layer");
    return {value[0].integer(), value[1].integer(), value[2].integer(), value[3].integer()};
  }

  Layer read_layer(const std::string& path, const Value& value, int depth) {
    if (depth > kNestingMax) throw UsageError(fmt::format("is nested deeper than {}", kNestingMax));
    Layer l;
    if (const Value* link = value.find("link")) take(path + "/link", [&] { l.link = coordinate(*link); });
    const Value* type = value.find("type");
    if (depth > 0 && l.link) {
      for (const auto& [key, member] : value.members())
        if (key != "link") problems_.push_back({path + "/" + shown(key), "is unknown beside a link"});
      return l;
    }
    if (!type) throw UsageError("has no type");
    bool typed = false;
    take(path + "/type", [&] {
      l.type = layer_type(type->string());
      typed = true;
    });
    if (!typed) return l;
    const bool is_plain = !row_of(l.type).activates || l.type == LayerType::embedding || l.type == LayerType::kmeans;
    l.activation = is_plain ? Activation::linear : Activation::relu;
    for (const auto& [key, member] : value.members()) {
      const std::string at = path + "/" + shown(key);
      take(at, [&, &key = key, &member = member] { read_member(at, key, member, depth, l); });
    }
    return l;
  }

  void read_member(const std::string& path, const std::string& key, const Value& member, int depth, Layer& l) {
    if (key == "type" || key == "link" || (key == "at" && depth == 0)) return;
    if (key == "dtype") return void(l.dtype = number_type(member.string()));
    if (key == "disabled") return void(l.disabled = member.boolean());
    if (key == "activation" && row_of(l.type).activates) return void(l.activation = grid::activation(member.string()));
    if (l.type == LayerType::softmax) {
      if (key == "kind") return void(l.softmax = named<SoftmaxKind>("the softmax", member.string(), 10));
      if (key == "levels") {
        for (const Value& level : member.elements()) l.levels.push_back(level.integer());
        return;
      }
      if (key == "mask") {
        for (const Value& seen : member.elements()) l.mask.push_back(seen.boolean());
        return;
      }
    }
    if (l.type == LayerType::parallel) {
      if (key == "combine") return void(l.combine = named<Combine>("the way to combine", member.string(), 4));
      if (key == "gate") return void(l.gate = {read_layer(path, member, depth + 1)});
    }
    if (key == "children" && (l.type == LayerType::parallel || l.type == LayerType::sequential)) {
      for (std::size_t i = 0; i < member.elements().size(); ++i) {
        const std::string at = fmt::format("{}/{}", path, i);
        l.children.emplace_back();
        take(at, [&] { l.children.back() = read_layer(at, member.elements()[i], depth + 1); });
      }
      return;
    }
    for (const LayerField& field : layer_fields())
      if (field.name == key && field.is_used_by(l.type))
        return std::visit(
            [&](const auto at) {
              using Member = std::remove_reference_t<decltype(l.*at)>;
              if constexpr (std::is_same_v<Member, bool>)
                l.*at = member.boolean();
              else if constexpr (std::is_same_v<Member, double>)
                l.*at = member.number();
              else
                l.*at = member.integer();
            },
            field.member);
    throw UsageError(fmt::format("is unknown for {}", name_of(l.type)));
  }

  template <class E>
  static E named(std::string_view what, const std::string& name, int count) {
    std::string names;
    for (int i = 0; i < count; ++i) {
      if (name == name_of(static_cast<E>(i))) return static_cast<E>(i);
      names += fmt::format("{}{}", i ? ", " : "", name_of(static_cast<E>(i)));
    }
    throw UsageError(fmt::format("{} {} is unknown; choose one of {}", what, quote(name), names));
  }

  std::vector<Problem> problems_;
};

}  // namespace

Value to_value(const Description& d) {
  Value::Array layers;
  for (std::size_t i = 0; i < d.layers.size(); ++i) {
    if (is_fresh(d.layers[i])) continue;
    ValueObject object;
    object.set("at", coordinate_value(d.coordinate(i)));
    const Value layer = layer_value(d.layers[i], false);
    for (const auto& [key, member] : layer.members()) object.set(key, member);
    layers.emplace_back(std::move(object));
  }
  return Value::object({{"format", kFormat},
                        {"depth", d.depth},
                        {"rows", d.rows},
                        {"columns", d.columns},
                        {"layers_per_cell", d.layers_per_cell},
                        {"layers", std::move(layers)}});
}

Description from_value(const Value& value) { return DescriptionReader().read(value); }

Description from_json(std::string_view text, std::string_view source) {
  return from_value(Value::parse(text, source, 2'000'000));
}

Description load_description(const std::filesystem::path& path) {
  try {
    return from_json(read_text_file(path, kBytesMax), path.string());
  } catch (UsageError& error) {
    error.add_context(fmt::format("reading {}", path.string()));
    throw;
  }
}

}  // namespace weft::grid
